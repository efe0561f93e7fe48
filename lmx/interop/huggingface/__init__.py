"""Conversion between Hugging Face weights and lmx parameters, by name, on NumPy arrays.

Tensors are a dict from name to array, as `safetensors.numpy.load_file` returns it. Each module is one family, named
after the lmx model unless it has a MODEL. It exports
  entries(cfg) -> the parameters, each with the tensors it is converted from;
  PREFIX, BARE: the prefix that files of the bare model omit, and a pattern for the start of names without it;
  tied(cfg): tensors that repeat others, such as a tied output matrix; they must equal them, and are written too;
  BUFFERS: name pattern -> constant content of such tensors, such as causal masks; it is checked, but not written;
  constants(cfg), optional: those of them that are written;
and, if folders are read and written (folder.py),
  TYPE, TOKENIZER: the model_type in config.json, and the kind of the lmx tokenizer;
  fields(config), config(cfg): conversion between sizes in config.json and fields of the model's Config;
  vocabulary(folder), NOTE, optional: reader of a word vocabulary, and a line about it for the user;
  DATA, optional: fields of an imported run's `data` section;
  evaluation(directory, config), optional: fields of its `evaluation` section, the folder's search options;
  write(directory, tokenizer, evaluation, settings), optional: writer of its further files, given the fields of
    config.json; it returns more of them;
  remarks(directory, config, tensors), optional: lines for the user on what versions of transformers read differently;
  notes(cfg, architecture), optional: lines for the user on what the class of transformers computes differently;
  used(fields, tensors), optional: the tensors, without unused rows; MODEL, fits(cfg), if another family has the lmx
  model's name: that name, and True if this family writes a Config.
architectures.py has the transformers classes, each a model with a head.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from lmx.errors import InputError
from lmx.interop import mapped
from lmx.interop.huggingface import (
  adapter,
  architectures,
  awd_lstm,
  bert,
  elmo,
  fsmt,
  gpt,
  gpt2,
  transformer,
  transformer_xl,
  xlnet,
)
from lmx.interop.huggingface.entry import Entry, Tensors, is_constant, is_rounded
from lmx.interop.streamed import Lazy
from lmx.interop.tensor_table import ABSENT, NEW, READ, RENAMED, ROUNDED, UNUSED, Row, unique

FAMILIES: dict[str, ModuleType] = {
  'awd_lstm': awd_lstm,
  'bert': bert,
  'elmo': elmo,
  'fsmt': fsmt,
  'gpt': gpt,
  'gpt2': gpt2,
  'transformer': transformer,
  'transformer_xl': transformer_xl,
  'xlnet': xlnet,
}
MODELS = tuple(sorted({getattr(layout, 'MODEL', name) for name, layout in FAMILIES.items()}))
_HALF = ('float16', 'bfloat16')  # types that parameters keep, as float32 is twice as large
_NAMED = 100  # tensors listed in an error message


def family(name: str) -> ModuleType:
  """Return a model's family; raise InputError if there is none."""
  if name not in FAMILIES:
    raise InputError(f'model: got "{name}"; expected one of {", ".join(MODELS)}, which other libraries read')
  return FAMILIES[name]


def family_of(model: str, cfg: Any) -> str:
  """Return the name of the family in which a model with this Config is written."""
  others = (name for name, layout in FAMILIES.items() if getattr(layout, 'MODEL', '') == model and layout.fits(cfg))
  return next(others, model)


class Converted(NamedTuple):
  """Parameters converted from tensors.

  Attributes:
    params: see `from_hf`.
    rows: the tensors, each with its status.
    nonfinite: names of tensors with NaN or infinity.
  """

  params: dict[str, Any]
  rows: list[Row]
  nonfinite: list[str]


class _Named(NamedTuple):
  """Tensors under the full names of current files, the names that the file has for them, and those unused."""

  tensors: dict[str, np.ndarray]
  given: dict[str, str]
  unused: list[Row]


def _canonical(layout: ModuleType, cfg: Any, tensors: Tensors, adapted: Collection[str] = ()) -> _Named:
  """Return the tensors under their full names, without tied tensors and buffers.

  Raises:
    InputError: a tied tensor or buffer differs from the value that lmx computes with, two tensors get one name, or a
      tied tensor is among those that an adapter changed.
  """

  def rename(name: str) -> str:
    name = layout.PREFIX + name if re.match(layout.BARE, name) else name
    return re.sub(r'LayerNorm\.gamma$', 'LayerNorm.weight', re.sub(r'LayerNorm\.beta$', 'LayerNorm.bias', name))

  given, unused = unique(tensors, rename)
  renamed = {name: tensors[original] for name, original in given.items()}
  for tied in layout.tied(cfg):
    if {given.get(tied.name), given.get(tied.source)} & {*adapted}:
      untied = ' with "tie_word_embeddings": false' * (hasattr(cfg, 'tied') and not tied.always)
      raise InputError(
        f'{adapter.FILE}: got {tied.source}, which this config ties to {tied.name}; expected layers of their own, '
        f'because peft changes only one of the two; merge the adapter and save the model{untied}'
      )
    if tied.name not in renamed:
      continue
    copy = renamed.pop(tied.name)
    if tied.source not in renamed:  # a file has a tensor that two names share under only one of them
      renamed[tied.source], given[tied.source] = copy, given[tied.name]
      continue
    if tied.checked and not mapped.are_equal(copy, renamed[tied.source]):
      untie = 'set "tie_word_embeddings": false in config.json if both are intended'
      only = f'lmx computes with one; remove {tied.name} only if {tied.source} is intended for both'
      raise InputError(
        f'{tied.name}: got other values than {tied.source}; expected equal ones, because this config ties the two; '
        f'{untie if hasattr(cfg, "tied") and not tied.always else only}'
      )
    reason = f'repeats {given[tied.source]}' if tied.checked else f'{given[tied.source]} is computed with'
    unused.append(_row(UNUSED, given[tied.name], copy, reason))
  for pattern, content in layout.BUFFERS.items():
    for name in [name for name in renamed if re.fullmatch(pattern, name)]:
      buffer = renamed.pop(name)
      if not is_constant(buffer, content):
        raise InputError(
          f'{name}: got other values than the constant that lmx computes; expected the constant of the model; remove '
          'it if it is unused'
        )
      note = ROUNDED if is_rounded(buffer, content) else 'a constant'
      unused.append(_row(UNUSED, given[name], buffer, note))
      mapped.release(buffer)
  return _Named(renamed, given, unused)


def _without_heads(named: _Named, heads: Mapping[str, str], entries: Iterable[Entry], architecture: str) -> _Named:
  """Return the tensors without the layers of `heads`, {name: class}, unless those of the class are missing."""
  own = {name for entry in entries for name in entry.names}
  others = {name: heads[layer] for name in {*named.tensors} - own if (layer := name.rpartition('.')[0]) in heads}
  if any(name.rpartition('.')[0] in heads for name in own - {*named.tensors}):
    return named
  unused = [
    _row(UNUSED, named.given[name], named.tensors[name], f'of {other}, not {architecture}')
    for name, other in sorted(others.items())
  ]
  kept = {name: x for name, x in named.tensors.items() if name not in others}
  return _Named(kept, named.given, [*named.unused, *unused])


def _row(status: str, name: str, x: np.ndarray, note: str = '') -> Row:
  return Row(status, name, tuple(x.shape), x.dtype.name, note)


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
  """Return the parameters of model `name` converted from Hugging Face's tensors; see `convert`."""
  return convert(name, cfg, tensors, architecture, outputs).params


def convert(
  name: str,
  cfg: Any,
  tensors: Tensors,
  architecture: str = '',
  outputs: int = 0,
  names: Mapping[str, str] = {},
  head: Sequence[Entry] = (),
  adapted: Collection[str] = (),
) -> Converted:
  """Convert Hugging Face tensors one by one to the parameters of model `name`.

  Memory holds the parameters, and the mapped tensors (mapped.py) of one parameter.

  Args:
    name: one of this folder's families.
    cfg: the model's config, whose sizes the tensors must have.
    tensors: name -> array of any float type.
    architecture: a class of architectures.py; '' is the pre-trained model.
    outputs: number of labels, for a class that has labels.
    names: `Folder.names`.
    head: `Folder.head`.
    adapted: `Folder.adapted`.

  Returns:
    Parameters {'model': ..., 'objective': ...}, float32 or half precision as in the file, and the tensors' rows.
    Optional parts (`Entry.group`) that the file lacks are omitted: without a next-sentence head the objective's part is
    {}.

  Raises:
    InputError: tensors are missing, unknown or of another shape; they are listed.
  """
  layout = family(name)
  has_output = not architecture or architectures.HEADS[architecture].tied
  named = _canonical(layout, cfg, tensors, adapted if has_output else ())
  entries = [*_entries(layout, cfg, architecture, outputs), *head]
  if architecture:
    named = _without_heads(named, architectures.other_heads(architecture, layout.entries(cfg)), entries, architecture)
  present = {entry.group for entry in entries if any(n in named.tensors for n in entry.names)}
  entries = [entry for entry in entries if not entry.group or entry.group in present]
  _check(architecture or name, entries, named.tensors)
  params: dict[str, Any] = {'model': {}, 'objective': {}}
  rows, nonfinite = [], []
  for entry in entries:
    node = params
    for part in entry.path[:-1]:
      node = node.setdefault(part, {})
    stored = [named.tensors[n] for n in entry.names]
    for n, x in zip(entry.names, stored, strict=True):
      if not _is_float(x.dtype):
        given = names.get(named.given[n], named.given[n])
        raise InputError(f'tensor "{given}": got type {x.dtype.name}; expected floats')
    node[entry.path[-1]] = _load(entry, stored)
    for n, x in zip(entry.names, stored, strict=True):
      given = names.get(named.given[n], named.given[n])
      if given == ABSENT:
        rows.append(_row(NEW, '/'.join(entry.path), x, 'zeros'))
      else:
        rows.append(_row(READ, n, x) if given == n else _row(RENAMED, given, x, n))
      nonfinite += _nonfinite(given, x)
      mapped.release(x)
  return Converted(params, rows + [row._replace(name=names.get(row.name, row.name)) for row in named.unused], nonfinite)


def _is_float(dtype: np.dtype) -> bool:
  return dtype.kind == 'f' or dtype.name in _HALF


def _nonfinite(name: str, x: np.ndarray) -> list[str]:
  """Return the name of a tensor with NaN, infinity or values outside float32's range; else ''."""
  if not all(np.isfinite(block).all() for block in mapped.blocks(x)):
    return [name]
  if (
    x.dtype.itemsize <= 4
    or not x.size
    or all(np.abs(block).max() <= np.finfo(np.float32).max for block in mapped.blocks(x))
  ):
    return []
  return [f'{name} (numbers beyond float32)']


def _load(entry: Entry, stored: Sequence[np.ndarray]) -> np.ndarray:
  """Return a parameter, float32 or half precision, which shares no memory with a file."""
  half = len({x.dtype for x in stored}) == 1 and stored[0].dtype.name in _HALF
  with np.errstate(over='ignore'):  # `convert` reports values beyond float32
    value = np.ascontiguousarray(entry.load(*(stored if half else (np.asarray(x, np.float32) for x in stored))))
  return mapped.copy(value) if any(mapped.is_mapped(x) and np.may_share_memory(value, x) for x in stored) else value


def empty(name: str, cfg: Any) -> dict[str, Lazy]:
  """Return a model's tensors, constants and tied ones included, with shapes alone: their values are zeros."""
  layout = family(name)
  found = {n: entry.shape for entry in layout.entries(cfg) for n in entry.names}
  found |= {n: x.shape for n, x in (layout.constants(cfg) if hasattr(layout, 'constants') else {}).items()}
  found |= {tied.name: found[tied.source] for tied in layout.tied(cfg) if tied.source in found}
  return {n: Lazy(shape, functools.partial(np.zeros, shape)) for n, shape in found.items()}


def to_hf(
  name: str, cfg: Any, params: Mapping[str, Any], architecture: str = '', outputs: int = 0
) -> dict[str, np.ndarray]:
  """Return Hugging Face's tensors in float32, tied ones included; the inverse of `from_hf`. See `lazy`."""
  return {n: np.asarray(x) for n, x in lazy(name, cfg, params, architecture, outputs).items()}


def lazy(name: str, cfg: Any, params: Mapping[str, Any], architecture: str = '', outputs: int = 0) -> dict[str, Lazy]:
  """Return Hugging Face's tensors, tied ones included, each converted on use.

  Args:
    name: see `from_hf`.
    cfg: see `from_hf`.
    params: {'model': ...}, and 'objective' with 'nsp' to write BERT's next-sentence head, or with the layer
      of the class. Optional parts (`Entry.group`) that are absent here are not written.
    architecture: see `from_hf`; parts of the model that the class does not have are skipped.
    outputs: see `from_hf`.

  Raises:
    InputError: a parameter is missing, or on use, of another shape.
  """
  layout = family(name)
  tensors: dict[str, Lazy] = {}
  entries = _entries(layout, cfg, architecture, outputs)
  for entry in architectures.class_entries(architecture, entries) if architecture else entries:
    node: Any = params
    for part in entry.path:
      node = node.get(part) if isinstance(node, Mapping) else None
    if node is None and entry.group:
      continue
    if node is None:
      raise InputError(f'{name}: parameter {"/".join(entry.path)} is missing')
    for i, n in enumerate(entry.names):
      tensors[n] = Lazy(entry.shape, functools.partial(_save, name, entry, node, i))
  constants = layout.constants(cfg) if hasattr(layout, 'constants') else {}
  tensors |= {n: Lazy(x.shape, functools.partial(np.asarray, x)) for n, x in constants.items()}
  if architecture and not architectures.HEADS[architecture].tied:
    return tensors
  return tensors | {tied.name: tensors[tied.source] for tied in layout.tied(cfg) if tied.source in tensors}


def _save(name: str, entry: Entry, param: Any, i: int) -> np.ndarray:
  """Return tensor i of an entry; raise InputError if the parameter has another shape."""
  try:
    values = entry.save(np.asarray(param, np.float32))
  except (ValueError, IndexError):
    values = ()
  if [v.shape for v in values] != [entry.shape] * len(entry.names):
    where = f'{name}: parameter {"/".join(entry.path)}'
    raise InputError(f'{where} has shape {np.shape(param)}, which does not fit the config')
  return values[i]
