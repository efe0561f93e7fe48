"""What a parameter of lmx is made of among Hugging Face's tensors, and the ways in which the two differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from lmx.errors import InputError

Tensors = Mapping[str, np.ndarray]


class Entry(NamedTuple):
  """One parameter of lmx and the tensors that it is made of."""

  path: tuple[str, ...]  # in {'model': ..., 'objective': ...}
  names: tuple[str, ...]  # one tensor, or query, key and value
  shape: tuple[int, ...]  # of each tensor
  load: Callable[..., np.ndarray]
  save: Callable[[np.ndarray], tuple[np.ndarray, ...]]
  group: str = ''  # entries that a file may lack, but only all together


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
  """InputError unless a field of config.json, where it is there, is one of the values that lmx computes with."""
  if name in theirs and theirs[name] not in allowed:
    wanted = ' or '.join(repr(value) for value in allowed)
    raise InputError(f'config.json has {name} = {theirs[name]!r}; this model of lmx has {wanted}')


def sizes(theirs: Mapping[str, Any], names: Mapping[str, str], rates: Mapping[str, str]) -> dict[str, Any]:
  """Field of lmx -> value.

  Args:
    theirs: what config.json holds.
    names: field of lmx -> name of a size there; all must be there.
    rates: the same of rates of dropout, which are 0.1 in Hugging Face's classes where they are not named.

  Raises:
    InputError: sizes that are missing or no positive whole numbers.
  """
  wrong = [name for name in names.values() if not isinstance(theirs.get(name), int) or theirs[name] < 1]
  if wrong:
    raise InputError(f'config.json lacks {", ".join(wrong)}, or they are no positive whole numbers')
  return {ours: theirs[name] for ours, name in names.items()} | {
    ours: float(theirs.get(name, 0.1)) for ours, name in rates.items()
  }
