"""Conversion between weights of Hugging Face's models and parameters of lmx, by name, on NumPy arrays.

A file's tensors are a dict from name to array, as `safetensors.numpy.load_file` returns it. Each module is one
family, named after the lmx model. It exports
  entries(cfg) -> the parameters, each with the tensors it is converted from;
  PREFIX, BARE: the prefix that files of the bare model omit, and a pattern for the start of names without it;
  tied(cfg): tensors that repeat others, such as a tied output matrix; they must equal them, and are written too;
  BUFFERS: name pattern -> constant content of such tensors, such as causal masks; it is checked, and not written;
  constants(cfg), optional: those of them that are written;
and, if folders are read and written (folder.py),
  TYPE, TOKENIZER: the model_type in config.json, and the kind of the lmx tokenizer;
  fields(config), config(cfg): conversion between sizes in config.json and fields of the model's Config;
  vocabulary(folder), NOTE, optional: reader of a vocabulary of words, and a line about it for the user;
  DATA, optional: fields of lmx's section `data` of an imported run.
The classes of transformers, each a model with a head, are in architectures.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from lmx.errors import InputError, nearest
from lmx.interop.huggingface import architectures, awd_lstm, bert, elmo, gpt, gpt2, transformer, transformer_xl, xlnet
from lmx.interop.huggingface.entry import Entry, Tensors, is_constant

FAMILIES: dict[str, ModuleType] = {
  'awd_lstm': awd_lstm,
  'bert': bert,
  'elmo': elmo,
  'gpt': gpt,
  'gpt2': gpt2,
  'transformer': transformer,
  'transformer_xl': transformer_xl,
  'xlnet': xlnet,
}
_NAMED = 100  # tensors listed in an error message


def family(name: str) -> ModuleType:
  """Return the family of a model; raise InputError with the nearest name if it has none."""
  if name not in FAMILIES:
    raise InputError(f'model "{name}" has no Hugging Face format{nearest(name, FAMILIES)}')
  return FAMILIES[name]


def _canonical(layout: ModuleType, cfg: Any, tensors: Tensors) -> dict[str, np.ndarray]:
  """Return the tensors under the full names of current files, without tied tensors and buffers.

  Raises:
    InputError: a tied tensor or buffer differs from the value that lmx computes with.
  """
  renamed = {}
  for name, tensor in tensors.items():
    if re.match(layout.BARE, name):
      name = layout.PREFIX + name
    name = re.sub(r'LayerNorm\.gamma$', 'LayerNorm.weight', re.sub(r'LayerNorm\.beta$', 'LayerNorm.bias', name))
    renamed[name] = tensor
  for tied in layout.tied(cfg):
    if tied.name not in renamed:
      continue
    copy = renamed.pop(tied.name)
    if tied.source not in renamed:  # a file has a tensor that two names share under only one of them
      renamed[tied.source] = copy
    elif tied.checked and not np.array_equal(copy, renamed[tied.source], equal_nan=True):
      untie = 'set "tie_word_embeddings": false in config.json if both are intended'
      raise InputError(
        f'{tied.name}: got other values than {tied.source}; expected equal ones, because this config ties the two; '
        f'{untie if hasattr(cfg, "tied") else "remove it"}'
      )
  for pattern, content in layout.BUFFERS.items():
    for name in [name for name in renamed if re.fullmatch(pattern, name)]:
      if not is_constant(np.asarray(renamed.pop(name), np.float32), content):
        raise InputError(
          f'{name}: got other values than the constant that lmx computes; expected the constant of the model; remove '
          'it if it is unused'
        )
  return renamed


def _check(name: str, entries: Iterable[Entry], tensors: Tensors) -> None:
  """Raise InputError with the tensors that are missing, unknown or of another shape."""
  entries = list(entries)
  shapes = {n: e.shape for e in entries for n in e.names}
  problems = []
  missing = [n for n in shapes if n not in tensors]
  extra = [n for n in tensors if n not in shapes]
  wrong = [
    f'{n} is {tuple(tensors[n].shape)}, not {shape}'
    for n, shape in shapes.items()
    if n in tensors and tuple(tensors[n].shape) != shape
  ]
  for label, names in (('missing', missing), ('unknown', extra), ('of another shape', wrong)):
    if names:
      more = f' and {len(names) - _NAMED:,} more' if len(names) > _NAMED else ''
      problems.append(f'{len(names):,} tensors {label}: {", ".join(names[:_NAMED])}{more}')
  if problems:
    raise InputError(f'these weights do not fit {name} with this config: ' + '; '.join(problems))


def _entries(layout: ModuleType, cfg: Any, architecture: str, outputs: int) -> list[Entry]:
  return (
    architectures.entries(architecture, layout.entries(cfg), cfg.D, outputs) if architecture else layout.entries(cfg)
  )


def from_hf(name: str, cfg: Any, tensors: Tensors, architecture: str = '', outputs: int = 0) -> dict[str, Any]:
  """Return the parameters of model `name` converted from Hugging Face's tensors.

  Args:
    name: one of this folder's families.
    cfg: the model's config, whose sizes the tensors must have.
    tensors: name -> array of any float type.
    architecture: a class of architectures.py; '' is the pre-trained model.
    outputs: number of labels, for a class that has labels.

  Returns:
    {'model': ..., 'objective': ...}, float32. Optional parts (`Entry.group`) that the file lacks are omitted: without a
    next-sentence head the objective's part is {}.

  Raises:
    InputError: tensors are missing, unknown or of another shape; they are listed.
  """
  layout = family(name)
  tensors = _canonical(layout, cfg, tensors)
  entries = _entries(layout, cfg, architecture, outputs)
  present = {entry.group for entry in entries if any(n in tensors for n in entry.names)}
  entries = [entry for entry in entries if not entry.group or entry.group in present]
  _check(architecture or name, entries, tensors)
  params: dict[str, Any] = {'model': {}, 'objective': {}}
  for entry in entries:
    node = params
    for part in entry.path[:-1]:
      node = node.setdefault(part, {})
    value = entry.load(*(np.asarray(tensors[n], np.float32) for n in entry.names))
    node[entry.path[-1]] = np.ascontiguousarray(value)
  return params


def to_hf(
  name: str, cfg: Any, params: Mapping[str, Any], architecture: str = '', outputs: int = 0
) -> dict[str, np.ndarray]:
  """Return Hugging Face's tensors in float32, tied ones included; the inverse of `from_hf`.

  Args:
    name: see `from_hf`.
    cfg: see `from_hf`.
    params: {'model': ...}, and 'objective' with 'nsp' to write BERT's next-sentence head, or with the layer
      of the class. Optional parts (`Entry.group`) that are absent here are not written.
    architecture: see `from_hf`; parts of the model that the class does not have are skipped.
    outputs: see `from_hf`.

  Raises:
    InputError: a parameter is missing or of another shape.
  """
  layout = family(name)
  tensors: dict[str, np.ndarray] = {}
  entries = _entries(layout, cfg, architecture, outputs)
  for entry in architectures.class_entries(architecture, entries) if architecture else entries:
    node: Any = params
    for part in entry.path:
      node = node.get(part) if isinstance(node, Mapping) else None
    if node is None and entry.group:
      continue
    if node is None:
      raise InputError(f'{name}: parameter {"/".join(entry.path)} is missing')
    try:
      values = entry.save(np.asarray(node, np.float32))
    except (ValueError, IndexError):
      values = ()
    if [v.shape for v in values] != [entry.shape] * len(entry.names):
      where = f'{name}: parameter {"/".join(entry.path)}'
      raise InputError(f'{where} has shape {np.shape(node)}, which does not fit the config')
    tensors |= {n: np.ascontiguousarray(v) for n, v in zip(entry.names, values, strict=True)}
  tensors |= layout.constants(cfg) if hasattr(layout, 'constants') else {}
  if architecture and not architectures.HEADS[architecture].tied:
    return tensors
  return tensors | {tied.name: tensors[tied.source] for tied in layout.tied(cfg) if tied.source in tensors}
