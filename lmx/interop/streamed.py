"""Tensors that are computed when they are written, so that an export holds one of them at a time."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lmx.errors import InputError

STEM, ENDING = 'model', '.safetensors'
INDEX = f'{STEM}{ENDING}.index.json'
MAX_SHARD_SIZE = 5 * 10**9  # bytes, as `save_pretrained` of transformers 4
_UNITS = {'KB': 10**3, 'MB': 10**6, 'GB': 10**9, 'TB': 10**12}
_ALIGNMENT = 8  # bytes, of a safetensors header


@dataclasses.dataclass(frozen=True, eq=False)
class Lazy:
  """A float32 array that is computed on each use.

  Attributes:
    shape: its shape.
    compute: returns its values.
  """

  shape: tuple[int, ...]
  compute: Callable[[], np.ndarray]

  @property
  def ndim(self) -> int:
    return len(self.shape)

  @property
  def size(self) -> int:
    return math.prod(self.shape)

  @property
  def nbytes(self) -> int:
    return self.size * np.dtype(np.float32).itemsize

  def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    del copy
    return np.ascontiguousarray(self.compute(), dtype or np.float32)


def write_safetensors(path: pathlib.Path, tensors: Mapping[str, Lazy], metadata: Mapping[str, str]) -> None:
  """Write a safetensors file, one tensor at a time; it has the same bytes as from the library of that name."""
  names, end = sorted(tensors), 0
  header: dict[str, Any] = {'__metadata__': dict(metadata)}
  for name in names:
    begin, end = end, end + tensors[name].nbytes
    header[name] = {'dtype': 'F32', 'shape': tensors[name].shape, 'data_offsets': (begin, end)}
  text = json.dumps(header, separators=(',', ':'), ensure_ascii=False).encode()
  text += b' ' * (-len(text) % _ALIGNMENT)
  with open(path, 'wb') as file:
    file.write(len(text).to_bytes(8, 'little') + text)
    for name in names:
      file.write(np.asarray(tensors[name], '<f4').reshape(-1).view(np.uint8).data)


def write_shards(directory: pathlib.Path, tensors: Mapping[str, Lazy], max_shard_size: int = MAX_SHARD_SIZE) -> None:
  """Write tensors as model.safetensors, or as shards with an index if they are larger than `max_shard_size`.

  Args:
    directory: an existing folder.
    tensors: the tensors in the order of the model.
    max_shard_size: maximum bytes of the tensors of one file; a larger tensor gets its own file.
  """
  shards = _split(tensors, max_shard_size)
  if len(shards) < 2:
    write_safetensors(directory / f'{STEM}{ENDING}', tensors, {'format': 'pt'})
    return
  places: dict[str, str] = {}
  for i, names in enumerate(shards, 1):
    file = f'{STEM}-{i:05d}-of-{len(shards):05d}{ENDING}'
    write_safetensors(directory / file, {name: tensors[name] for name in names}, {'format': 'pt'})
    places |= dict.fromkeys(names, file)
  sizes = {
    'total_parameters': sum(x.size for x in tensors.values()),
    'total_size': sum(x.nbytes for x in tensors.values()),
  }
  text = json.dumps({'metadata': sizes, 'weight_map': places}, indent=2, sort_keys=True)
  (directory / INDEX).write_text(text + '\n', encoding='utf-8')


def _split(tensors: Mapping[str, Lazy], max_shard_size: int) -> list[list[str]]:
  """Return the names of each shard: consecutive tensors, as many as fit."""
  shards: list[list[str]] = []
  size = max_shard_size + 1
  for name, x in tensors.items():
    if size + x.nbytes > max_shard_size:
      shards.append([])
      size = 0
    shards[-1].append(name)
    size += x.nbytes
  return shards


def parse_size(text: str) -> int:
  """Return a size such as '5GB' in bytes; raise InputError if it is none."""
  match = re.fullmatch(rf'([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?)\s?({"|".join(_UNITS)})', text, re.IGNORECASE)
  if not match or not (size := int(float(match[1]) * _UNITS[match[2].upper()])):
    raise InputError(f'--max_shard_size: got {text!r}; expected a size such as 5GB or 200MB')
  return size
