"""Map from Hugging Face's tensors to a parameter of lmx, with the differences in their layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from lmx.errors import InputError

Tensors = Mapping[str, np.ndarray]
LARGEST = 2**31 - 1  # shapes and token ids are int32
LAYERS = 1000  # of a model


class Entry(NamedTuple):
  """One parameter of lmx and the tensors that it is made of."""

  path: tuple[str, ...]  # in {'model': ..., 'objective': ...}
  names: tuple[str, ...]  # one tensor, or query, key and value
  shape: tuple[int, ...]  # of each tensor
  load: Callable[..., np.ndarray]
  save: Callable[[np.ndarray], tuple[np.ndarray, ...]]
  group: str = ''  # entries that a file may lack, but only all together


class Tied(NamedTuple):
  """A tensor of a file that repeats another."""

  name: str
  of: str
  checked: bool = True  # False: transformers does not compute with it, so it may differ


def count(x: np.ndarray) -> np.ndarray:
  """Return what a buffer of position ids holds."""
  return np.arange(x.size).reshape(x.shape)


def causal(x: np.ndarray) -> np.ndarray:
  """Return what a buffer with a causal mask holds."""
  return np.tril(np.ones(x.shape[-2:]))


def least(x: np.ndarray) -> np.ndarray:
  """Return what a buffer with the score of a masked position holds: -10,000 or less."""
  return np.minimum(x, -1e4)


def is_constant(x: np.ndarray, content: Callable[[np.ndarray], np.ndarray]) -> bool:
  """Return whether a buffer, of any float type, holds its constant."""
  try:
    return np.allclose(x, content(x), rtol=0.01, atol=0.01)
  except ValueError:  # another shape
    return False


def same(path: str, name: str, *shape: int, group: str = '') -> Entry:
  """A tensor that is the same in both."""
  return Entry(tuple(path.split('/')), (name,), shape, lambda x: x, lambda x: (x,), group)


def flipped(path: str, name: str, rows: int, columns: int, group: str = '') -> Entry:
  """A torch.nn.Linear kernel, (rows, columns) = (out, in)."""
  flip = lambda x: x.T
  return Entry(tuple(path.split('/')), (name,), (rows, columns), flip, lambda x: (x.T,), group)


def reshaped(path: str, name: str, shape: tuple[int, ...], ours: tuple[int, ...], flip: bool = False) -> Entry:
  """A kernel whose axes lmx keeps apart; with `flip` the tensor is transposed first."""
  load = lambda x: (x.T if flip else x).reshape(ours)
  flat = shape[::-1] if flip else shape
  save = lambda x: (x.reshape(flat).T if flip else x.reshape(flat),)
  return Entry(tuple(path.split('/')), (name,), shape, load, save)


def norm(path: str, name: str, D: int, group: str = '') -> list[Entry]:
  """A layer normalisation."""
  parts = (('scale', 'weight'), ('bias', 'bias'))
  return [same(f'{path}/{ours}', f'{name}.{theirs}', D, group=group) for ours, theirs in parts]


def linear(path: str, name: str, outputs: int, inputs: int) -> list[Entry]:
  """A torch.nn.Linear."""
  return [flipped(f'{path}/kernel', f'{name}.weight', outputs, inputs), same(f'{path}/bias', f'{name}.bias', outputs)]


def side_by_side(path: str, name: str, parts: tuple[str, ...], H: int, K: int) -> list[Entry]:
  """torch.nn.Linear of queries, keys or values, several of them in one kernel (D, C, H, K) with its bias (C, H, K)."""
  D, place = H * K, tuple(path.split('/'))
  kernels, biases = (tuple(f'{name}.{part}.{kind}' for part in parts) for kind in ('weight', 'bias'))
  load = lambda *xs: np.stack([x.T.reshape(D, H, K) for x in xs], axis=1)
  save = lambda x: tuple(x[:, c].reshape(D, D).T for c in range(len(parts)))
  load_bias = lambda *xs: np.stack([x.reshape(H, K) for x in xs])
  save_bias = lambda x: tuple(x[c].reshape(D) for c in range(len(parts)))
  return [
    Entry((*place, 'kernel'), kernels, (D, D), load, save),
    Entry((*place, 'bias'), biases, (D,), load_bias, save_bias),
  ]


def demand(theirs: Mapping[str, Any], name: str, *allowed: Any) -> None:
  """Raise InputError unless a field of config.json, where it is given, is one of the values that lmx computes with."""
  if name in theirs and theirs[name] not in allowed:
    wanted = ' or '.join(repr(value) for value in allowed)
    raise InputError(f'config.json has {name} = {shown(theirs[name])}; this model of lmx has {wanted}')


def shown(value: Any) -> str:
  """Return a value as a message quotes it, its first 60 characters."""
  text = repr(value)
  return text if len(text) <= 60 else text[:57] + '...'


def integer(theirs: Mapping[str, Any], name: str, default: int | None = None, low: int = 1, high: int = LARGEST) -> int:
  """Return a whole number of config.json; InputError where it is missing without a default, or out of range."""
  found = theirs.get(name, default)
  if name not in theirs and default is None:
    raise InputError(f'config.json lacks {name}; expected a whole number from {low:,} to {high:,}')
  if type(found) is not int or not low <= found <= high:
    raise InputError(f'config.json: {name}: got {shown(found)}; expected a whole number from {low:,} to {high:,}')
  return found


def rate(theirs: Mapping[str, Any], name: str, default: float) -> float:
  """Return a dropout rate of config.json; InputError where it is no number from 0 to below 1."""
  found = theirs.get(name, default)
  if type(found) not in (int, float) or not 0 <= found < 1:
    raise InputError(f'config.json: {name}: got {shown(found)}; expected a number from 0 to below 1')
  return float(found)


def sizes(theirs: Mapping[str, Any], names: Mapping[str, str], rates: Mapping[str, str]) -> dict[str, Any]:
  """Field of lmx -> value.

  Args:
    theirs: content of config.json.
    names: field of lmx -> name of a size there; all are required.
    rates: field of lmx -> name of a dropout rate, which is 0.1 in Hugging Face's classes where it is not given.

  Raises:
    InputError: a size is missing or no positive whole number, or a rate is none.
  """
  found: dict[str, Any] = {
    ours: integer(theirs, name, high=LAYERS if ours == 'N' else LARGEST) for ours, name in names.items()
  }
  return found | {ours: rate(theirs, name, 0.1) for ours, name in rates.items()}
