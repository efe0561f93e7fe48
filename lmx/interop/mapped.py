"""Tensors mapped from files: values take memory while they are used, and `release` frees it.

`blocks`, `copy` and `are_equal` use a few megabytes of a tensor at a time, however large it is.
"""

from __future__ import annotations

import json
import math
import mmap
import pathlib
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import safetensors

from lmx import documents
from lmx.errors import InputError

_BLOCK = 1 << 22  # bytes
# safetensors types that NumPy supports.
_DTYPES = {
  'F64': np.float64,
  'F32': np.float32,
  'F16': np.float16,
  'BF16': ml_dtypes.bfloat16,
  **{f'{kind}{bits}': f'{name}{bits}' for kind, name in (('I', 'int'), ('U', 'uint')) for bits in (8, 16, 32, 64)},
  'BOOL': np.bool_,
}


def read_safetensors(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Return {name: mapped array} from a safetensors file.

  Raises:
    InputError: the file is damaged or truncated, or a tensor has an unsupported type.
  """
  try:
    with safetensors.safe_open(path, 'numpy'):  # checks the header and the length of the file
      pass
    with open(path, 'rb') as file:
      begin = int.from_bytes(file.read(8), 'little')
      header = documents.parse_json(file.read(begin).decode(), f'{path}, header')
  except (safetensors.SafetensorError, OSError) as error:
    raise InputError(f'{path} is damaged or truncated: {_first_cut(path) or error}') from None
  header.pop('__metadata__', None)
  tensors = {}
  for name, about in header.items():
    if about['dtype'] not in _DTYPES:
      raise InputError(f'{path}: tensor "{name}": got type {about["dtype"]}; expected floats')
    start = 8 + begin + about['data_offsets'][0]
    tensors[name] = view(path, start, about['shape'], np.dtype(_DTYPES[about['dtype']]))
  return tensors


def _first_cut(path: pathlib.Path) -> str:
  """Return a line that names the first tensor beyond the end of a file, '' if its header is unreadable."""
  try:
    size = path.stat().st_size
    with open(path, 'rb') as file:
      length = int.from_bytes(file.read(8), 'little')
      if 8 + length > size:
        return f'its header ends at byte {8 + length:,} and the file at {size:,}' if size > 8 else ''
      header = json.loads(file.read(length))
    header.pop('__metadata__', None)
    ends = sorted((8 + length + about['data_offsets'][1], name) for name, about in header.items())
  except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
    return ''
  cut = [(end, name) for end, name in ends if end > size]
  if not cut:
    return ''
  return (
    f'tensor "{cut[0][1]}" ends at byte {cut[0][0]:,} and the file at {size:,}; {len(cut)} of {len(ends)} tensors are '
    'not whole'
  )


def view(path: pathlib.Path, start: int, shape: Any, dtype: np.dtype) -> np.ndarray:
  """Return an array mapped read-only from the bytes of a file that begin at `start`."""
  if 0 in shape:
    return np.zeros(shape, dtype)
  return np.memmap(path, np.uint8, 'r', start, math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def release(x: Any) -> None:
  """Free the memory of a mapped array, which is read again on use; ignore other arrays."""
  pages = _pages(x)
  if pages is not None and hasattr(mmap, 'MADV_DONTNEED'):
    pages.madvise(mmap.MADV_DONTNEED)


def blocks(x: np.ndarray) -> Iterator[np.ndarray]:
  """Yield the rows of an array in blocks; the memory of each is freed after it."""
  yield from (block for (block,) in _together(x))


def _together(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
  """Yield the same rows of arrays of one shape in blocks; their memory is freed after each."""
  size, largest = len(arrays[0]) if arrays[0].ndim else 0, max(x.nbytes for x in arrays)
  if largest <= _BLOCK:
    yield arrays
  else:
    rows = max(1, _BLOCK * size // largest)
    for start in range(0, size, rows):
      yield tuple(x[start : start + rows] for x in arrays)
      for x in arrays:
        release(x)


def copy(x: np.ndarray) -> np.ndarray:
  """Return a copy of an array."""
  copied = np.empty(x.shape, x.dtype)
  for to, block in _together(copied, x):
    to[...] = block
  return copied


def are_equal(x: np.ndarray, y: np.ndarray) -> bool:
  """Return True if two arrays have the same shape and values; NaN equals NaN. Their memory is freed."""
  if x.shape != y.shape:
    return False
  has_nan = x.dtype.kind not in 'OSU'
  equal = all(np.array_equal(one, other, equal_nan=has_nan) for one, other in _together(x, y))
  release(x)
  release(y)
  return equal


def is_mapped(x: Any) -> bool:
  """Return True if an array is mapped from a file."""
  return _pages(x) is not None


def _pages(x: Any) -> mmap.mmap | None:
  while x is not None and not isinstance(x, mmap.mmap):
    x = getattr(x, 'base', None)
  return x
