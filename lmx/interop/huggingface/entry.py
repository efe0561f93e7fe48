"""Conversion of Hugging Face's tensors to one parameter of lmx, including their layout."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from lmx.errors import InputError

Tensors = Mapping[str, np.ndarray]
LARGEST = 2**31 - 1  # shapes and token ids are int32
ONLY = 'lmx supports no other; choose weights that were trained so'  # end of messages
LAYERS = 1000  # largest number of layers of a model
# Activations by name, with the form of GELU that they compute.
GELU = {
  **dict.fromkeys(('gelu', 'gelu_python'), 'erf'),
  **dict.fromkeys(('gelu_new', 'gelu_pytorch_tanh', 'gelu_fast', 'gelu_accurate', 'gelu_python_tanh'), 'tanh'),
}
# Fields with which transformers changes any model, and the values that do not.
_PLAIN: dict[str, tuple[Any, ...]] = {'pruned_heads': (None, {}), 'add_cross_attention': (None, False)}


class Entry(NamedTuple):
  """One parameter of lmx and the tensors from which it is converted."""

  path: tuple[str, ...]  # in {'model': ..., 'objective': ...}
  names: tuple[str, ...]  # one tensor, or query, key and value
  shape: tuple[int, ...]  # of each tensor
  load: Callable[..., np.ndarray]  # rearranges values of any float type, without computing
  save: Callable[[np.ndarray], tuple[np.ndarray, ...]]
  group: str = ''  # name of an optional part; a file has all of its entries or none


class Tied(NamedTuple):
  """A tensor of a file that repeats another."""

  name: str
  source: str
  checked: bool = True  # False: transformers does not compute with it, so it may differ
  always: bool = False  # True: no field of config.json unties the two


def position_ids(x: np.ndarray) -> np.ndarray:
  """Return the content of a position id buffer."""
  return np.arange(x.size).reshape(x.shape)


def causal_mask(x: np.ndarray) -> np.ndarray:
  """Return the content of a buffer with a causal mask."""
  return np.tril(np.ones(x.shape[-2:]))


def masked_score(x: np.ndarray) -> np.ndarray:
  """Return the content of a buffer with the score of a masked position: -10,000 or less."""
  return np.minimum(x, -1e4)


def is_constant(x: np.ndarray, content: Callable[[np.ndarray], np.ndarray]) -> bool:
  """Return True if a buffer has its constant content, up to rounding to half precision."""
  return _is_near(x, content, 0.01)


def is_rounded(x: np.ndarray, content: Callable[[np.ndarray], np.ndarray]) -> bool:
  """Return True if a buffer has its constant content only up to rounding to half precision."""
  return not _is_near(x, content, 1e-5)


def _is_near(x: np.ndarray, content: Callable[[np.ndarray], np.ndarray], tolerance: float) -> bool:
  """Return True if a buffer has its content up to a relative difference; below 1, of numbers around 0, an absolute."""
  x = np.asarray(x, np.float32)
  try:
    expected = np.asarray(content(x))
    around_0 = expected.size > 0 and expected.min() <= 0
    return np.allclose(x, expected, rtol=tolerance, atol=max(tolerance, 2e-4) if around_0 else 0)
  except ValueError:  # another shape
    return False


def same(path: str, name: str, *shape: int, group: str = '') -> Entry:
  """Entry of a tensor with the same layout in both."""
  return Entry(tuple(path.split('/')), (name,), shape, lambda x: x, lambda x: (x,), group)


def transposed(path: str, name: str, rows: int, columns: int, group: str = '') -> Entry:
  """Entry of a torch.nn.Linear kernel, (rows, columns) = (out, in)."""
  flip = lambda x: x.T
  return Entry(tuple(path.split('/')), (name,), (rows, columns), flip, lambda x: (x.T,), group)


def reshaped(path: str, name: str, shape: tuple[int, ...], ours: tuple[int, ...], flip: bool = False) -> Entry:
  """Entry of a kernel with separate axes in lmx; with `flip` the tensor is transposed first."""
  load = lambda x: (x.T if flip else x).reshape(ours)
  flat = shape[::-1] if flip else shape
  save = lambda x: (x.reshape(flat).T if flip else x.reshape(flat),)
  return Entry(tuple(path.split('/')), (name,), shape, load, save)


def norm(path: str, name: str, D: int, group: str = '') -> list[Entry]:
  """Entries of a layer normalisation."""
  parts = (('scale', 'weight'), ('bias', 'bias'))
  return [same(f'{path}/{ours}', f'{name}.{theirs}', D, group=group) for ours, theirs in parts]


def linear(path: str, name: str, outputs: int, inputs: int) -> list[Entry]:
  """Entries of a torch.nn.Linear."""
  return [
    transposed(f'{path}/kernel', f'{name}.weight', outputs, inputs),
    same(f'{path}/bias', f'{name}.bias', outputs),
  ]


def stacked(path: str, name: str, parts: tuple[str, ...], H: int, K: int) -> list[Entry]:
  """Entries of torch.nn.Linears of queries, keys or values, stacked to a kernel (D, C, H, K) and a bias (C, H, K)."""
  D, prefix = H * K, tuple(path.split('/'))
  kernels, biases = (tuple(f'{name}.{part}.{kind}' for part in parts) for kind in ('weight', 'bias'))
  load = lambda *xs: np.stack([x.T.reshape(D, H, K) for x in xs], axis=1)
  save = lambda x: tuple(x[:, c].reshape(D, D).T for c in range(len(parts)))
  load_bias = lambda *xs: np.stack([x.reshape(H, K) for x in xs])
  save_bias = lambda x: tuple(x[c].reshape(D) for c in range(len(parts)))
  return [
    Entry((*prefix, 'kernel'), kernels, (D, D), load, save),
    Entry((*prefix, 'bias'), biases, (D,), load_bias, save_bias),
  ]


def check_value(theirs: Mapping[str, Any], name: str, *allowed: Any) -> None:
  """Raise InputError if config.json has the field with a value that lmx does not compute with."""
  if name in theirs and theirs[name] not in allowed:
    expected = ' or '.join(repr(value) for value in allowed)
    raise InputError(f'config.json: {name}: got {show(theirs[name])}; expected {expected}; {ONLY}')


def check_plain(theirs: Mapping[str, Any], **fixed: tuple[Any, ...]) -> None:
  """Raise InputError if config.json has a field, of every model or in `fixed`, with a value that is not supported."""
  for name, values in (_PLAIN | fixed).items():
    check_value(theirs, name, *values)


@contextlib.contextmanager
def fields_of(where: Any) -> Iterator[None]:
  """Name `where` instead of config.json in errors of the functions here."""
  try:
    yield
  except InputError as error:
    raise InputError(f'{where}: {str(error).removeprefix("config.json: ")}') from None


def switch(theirs: Mapping[str, Any], name: str, default: bool) -> bool:
  """Return a switch of config.json; raise InputError unless it is true or false."""
  if type(value := theirs.get(name, default)) is not bool:
    raise InputError(f'config.json: {name}: got {show(value)}; expected true or false')
  return value


def show(value: Any) -> str:
  """Return a value as text for a message, truncated to 60 characters."""
  text = repr(value)
  return text if len(text) <= 60 else text[:57] + '...'


def integer(theirs: Mapping[str, Any], name: str, default: int | None = None, low: int = 1, high: int = LARGEST) -> int:
  """Return an integer of config.json; raise InputError if it is out of range, or missing without a default."""
  value = theirs.get(name, default)
  if name not in theirs and default is None:
    raise InputError(f'config.json: {name}: missing; expected a whole number from {low:,} to {high:,}')
  if type(value) is not int or not low <= value <= high:
    raise InputError(f'config.json: {name}: got {show(value)}; expected a whole number from {low:,} to {high:,}')
  return value


def rate(theirs: Mapping[str, Any], name: str, default: float) -> float:
  """Return a dropout rate of config.json; raise InputError unless it is in [0, 1)."""
  value = theirs.get(name, default)
  if type(value) not in (int, float) or not 0 <= value < 1:
    raise InputError(f'config.json: {name}: got {show(value)}; expected a number from 0 to below 1')
  return float(value)


def epsilon(theirs: Mapping[str, Any], name: str, default: float) -> float:
  """Return the epsilon of layer normalisation; raise InputError unless it is a number from 0."""
  value = theirs.get(name, default)
  if type(value) not in (int, float) or not 0 <= value < math.inf:
    raise InputError(f'config.json: {name}: got {show(value)}; expected a number of at least 0')
  return float(value)


def sizes(theirs: Mapping[str, Any], names: Mapping[str, tuple[str, int]], rates: Mapping[str, str]) -> dict[str, Any]:
  """Return {field of lmx: value}.

  Args:
    theirs: content of config.json.
    names: field of lmx -> name of a size in config.json, and its default in the class of transformers.
    rates: field of lmx -> name of a dropout rate in config.json; a missing one is 0.1, as in the classes.

  Raises:
    InputError: a size is not a positive integer, or a rate is invalid.
  """
  values: dict[str, Any] = {
    ours: integer(theirs, name, default, high=LAYERS if ours == 'N' else LARGEST)
    for ours, (name, default) in names.items()
  }
  return values | {ours: rate(theirs, name, 0.1) for ours, name in rates.items()}


def own_fields(cfg: Any, names: Mapping[str, tuple[str, Any]], rates: Mapping[str, str] = {}) -> dict[str, Any]:
  """Return {name in config.json: value} of fields of a Config; the inverse of `sizes`."""
  return {theirs: getattr(cfg, ours) for ours, (theirs, _) in names.items()} | {
    theirs: getattr(cfg, ours) for ours, theirs in rates.items()
  }


def named(theirs: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
  """Return config.json with the names of its class in place of aliases (`attribute_map`).

  Args:
    theirs: content of config.json.
    aliases: alias -> name.

  Raises:
    InputError: alias and name have different values, of which versions of transformers take different ones.
  """
  content = {name: value for name, value in theirs.items() if name not in aliases}
  for alias, name in aliases.items():
    if alias in theirs and content.setdefault(name, theirs[alias]) != theirs[alias]:
      raise InputError(
        f'config.json: {alias}: got {show(theirs[alias])}; expected {name}, {show(content[name])}, because both are '
        'the same field; remove the one that is not meant'
      )
  return content
