"""Modules of PyTorch saved whole: what they compute besides their tensors.

Their classes and attributes are compared with those of the modules that lmx writes for the same configuration, which
are what it computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lmx.errors import InputError
from lmx.interop.huggingface.entry import show
from lmx.interop.torch_file import Foreign

_HOOKS = '_forward_hooks', '_forward_pre_hooks'
# Attributes that change no output in evaluation, are sizes of the tensors, or are read as settings.
_FREE = {
  *('training', 'p', 'inplace', 'dropout', 'dropouti', 'dropouth', 'dropoute', 'verbose', 'stats', 'use_cuda', 'prevX'),
  *('in_features', 'out_features', 'num_embeddings', 'embedding_dim', 'input_size', 'hidden_size', 'ninp', 'nhid'),
  *('padding_idx', 'norm_type', 'scale_grad_by_freq', 'sparse', 'tie_weights', 'splits', 'keep_order', 'div_val'),
  *('tgt_len', 'mem_len', 'max_klen', 'clamp_len', 'same_length', 'sample_softmax', 'flatten_parameters'),
}
_OPTIONAL = 'Dropout', 'ParameterList', 'PositionalEmbedding'  # endings of classes without which the output is the same


def check(theirs: Foreign, ours: Foreign, name: str = '') -> None:
  """Raise InputError if a module of a file computes something else than ours does with the same tensors.

  Args:
    theirs: a module of which `torch_file.tensors` gives the tensors.
    ours: the module that lmx writes.
    name: its name, '' for the whole.
  """
  if _short(theirs) != _short(ours):
    raise InputError(f'module "{name}": got class {theirs.name}; expected {ours.name}; lmx computes no other')
  at = f'{name}.' if name else ''
  for attribute, value in ours.state.items():
    is_compared = attribute in _HOOKS or not attribute.startswith('_') and attribute not in _FREE
    if is_compared and attribute in theirs.state and not _are_alike(theirs.state[attribute], value):
      got = show(theirs.state[attribute])
      raise InputError(f'attribute "{at}{attribute}": got {got}; expected {show(value)}; lmx computes with no other')
  parts, own = _parts(theirs), _parts(ours)
  if others := [part for part in parts if part not in own]:
    raise InputError(f'module "{at}{others[0]}": got {parts[others[0]].name}; expected none; lmx computes no such part')
  for part, child in own.items():
    if part in parts:
      check(parts[part], child, f'{at}{part}')
    elif not _short(child).endswith(_OPTIONAL):
      raise InputError(f'module "{at}{part}": missing; expected {child.name}')


def check_options(module: Foreign, options: Mapping[str, Any], activation: str, name: str = '') -> None:
  """Raise InputError if a module within another has an option of another value, or is another activation.

  Args:
    module: see `check`.
    options: attribute of any module -> its value.
    activation: class of torch.nn.modules.activation.
    name: its name, '' for the whole.
  """
  if '.activation.' in module.name and _short(module) != activation:
    raise InputError(f'module "{name}": got class {module.name}; expected {activation}; lmx computes no other')
  for attribute, value in options.items():
    if attribute in module.state and not _are_alike(got := module.state[attribute], value):
      where = f'attribute "{name}.{attribute}"'
      raise InputError(f'{where}: got {show(got)}; expected {show(value)}; lmx computes with no other')
  for part, child in _parts(module).items():
    check_options(child, options, activation, f'{name}.{part}' if name else part)


def _short(module: Foreign) -> str:
  return module.name.rpartition('.')[2]


def _parts(module: Foreign) -> Mapping[str, Foreign]:
  """Return the modules of a module by name."""
  return {name: part for name, part in module.state['_modules'].items() if part is not None}


def _are_alike(x: Any, y: Any) -> bool:
  """Return True if two attributes are equal: numbers up to rounding, and lists or tuples of the same items."""
  if isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)):
    return len(x) == len(y) and all(map(_are_alike, x, y))
  if isinstance(x, (int, float)) and isinstance(y, (int, float)):
    return math.isclose(x, y, rel_tol=1e-6)
  return type(x) is type(y) and x == y
