"""Token caches in a bucket (`data.cache_dir=gs://...`): written once, read in ranges.

A corpus is tokenized in the local cache and copied to the bucket, its manifest last. Elsewhere its small files are
copied to the local cache, and its tokens are read from the bucket in blocks as batches need them. A host keeps the
blocks on its disk, so it reads each at most once: with contiguous streams, or `data.row_parts`, only those of its rows.
On a full disk it keeps the latest blocks in memory. Hosts that tokenize one corpus exchange their chunks through it.
"""

from __future__ import annotations

import collections
import contextlib
import os
import pathlib
import threading
from typing import Any

import numpy as np
from etils import epath

from lmx import storage
from lmx.errors import InputError, explain

TOKENS_AT = 'tokens_at'  # file of a local directory: the address of the tokens
_MANIFEST = 'manifest.json'
_BLOCK = 1 << 22  # bytes
_HELD = 32  # blocks in memory


def path(address: str | os.PathLike[str]) -> epath.Path:
  """Return the path of a file or folder of a cache, local or in a bucket."""
  return storage.path('data.cache_dir', address)


def has(folder: epath.Path) -> bool:
  """Return True if a folder of the bucket has a whole corpus. Raises InputError if the bucket cannot be read."""
  try:
    return bool((folder / _MANIFEST).exists())
  except Exception as error:  # whatever the library of the bucket raises
    raise InputError(
      f'data.cache_dir: {folder} cannot be read ({explain(error)}); check the address and your access'
    ) from None


def upload(directory: str, folder: epath.Path) -> None:
  """Copy a corpus to the bucket, the manifest last."""
  for file in sorted(pathlib.Path(directory).iterdir(), key=lambda file: file.name == _MANIFEST):
    copy(path(file), folder / file.name)


def download(folder: epath.Path, directory: str) -> None:
  """Copy a corpus's files except its tokens, and record their location."""
  for file in folder.iterdir():
    if not file.name.endswith('.tokens'):
      copy(file, path(directory) / file.name)
  pathlib.Path(directory, TOKENS_AT).write_text(os.fspath(folder), encoding='utf-8')


def remove(folder: epath.Path) -> None:
  """Remove an unneeded folder, if possible."""
  with contextlib.suppress(Exception):
    if folder.exists():
      folder.rmtree()


def copy(source: epath.Path, to: epath.Path) -> None:
  """Copy a file in blocks, from a bucket or to one. Raises InputError if that fails."""
  try:
    to.parent.mkdir(parents=True, exist_ok=True)
    with source.open('rb') as file, to.open('wb') as out:
      while block := file.read(_BLOCK):
        out.write(block)
  except Exception as error:  # whatever the library of the bucket raises
    if isinstance(error, OSError) and error.errno:
      raise
    raise InputError(f'data.cache_dir: {source} cannot be copied to {to} ({explain(error)})') from None


class Ids:
  """Token ids of a file in a bucket, read like a 1-D array in blocks.

  Args:
    path: the file.
    dtype: type of the ids.
    size: bytes of the file.
    local: file for the blocks that this host has read, which its processes share; next to it, `.blocks` has a byte
      for each. '' keeps the latest blocks in memory.
  """

  def __init__(self, path: epath.Path, dtype: np.dtype, size: int, local: str = ''):
    self._path, self.dtype, self.size = path, dtype, size // dtype.itemsize
    self.shape = (self.size,)
    self._each = _BLOCK // dtype.itemsize
    self._blocks: collections.OrderedDict[int, np.ndarray] = collections.OrderedDict()
    self._lock = threading.Lock()
    self._held: _Held | None = None
    if local and size:
      with contextlib.suppress(OSError):
        self._held = _Held(local, size)

  def __getitem__(self, index: Any) -> np.ndarray:
    if isinstance(index, slice):
      start, stop, step = index.indices(self.size)
      if step == 1:
        parts = [
          self._block(n)[max(0, start - n * self._each) : stop - n * self._each]
          for n in range(start // self._each, -(-stop // self._each) if stop > start else 0)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, self.dtype)
      index = np.arange(start, stop, step)
    position = np.asarray(index)
    if position.dtype == bool:
      position = np.flatnonzero(position)
    if position.size and not -self.size <= position.min() <= position.max() < self.size:
      raise IndexError(f'index {position.min()} .. {position.max()} of {self.size} tokens')
    position = position % self.size if position.size else position
    found = np.empty(position.shape, self.dtype)
    number = position // self._each
    for n in np.unique(number).tolist():
      of_block = number == n
      found[of_block] = self._block(n)[position[of_block] - n * self._each]
    return found

  def _block(self, number: int) -> np.ndarray:
    with self._lock:
      if number in self._blocks:
        self._blocks.move_to_end(number)
        return self._blocks[number]
    content = self._held.get(number) if self._held else None
    if content is None:
      content = self._download(number)
    block = np.frombuffer(content, self.dtype)
    with self._lock:
      self._blocks[number] = block
      while len(self._blocks) > _HELD:
        self._blocks.popitem(last=False)
    return block

  def _download(self, number: int) -> bytes:
    try:
      with self._path.open('rb') as file:
        file.seek(number * _BLOCK)
        content: bytes = file.read(_BLOCK)
    except Exception as error:  # whatever the library of the bucket raises
      raise InputError(f'{self._path}: cannot be read ({explain(error)}); check the address and your access') from None
    if self._held:
      try:
        self._held.put(number, content)
      except OSError:  # the disk is full: memory has the latest blocks
        self._held = None
    return content


class _Held:
  """Blocks of an object in a sparse file of this host; a second file has a byte for each block that is there."""

  def __init__(self, path: str, size: int):
    self._paths, self._size = (path, f'{path}.blocks'), size
    for name, length in zip(self._paths, (size, -(-size // _BLOCK)), strict=True):
      with open(name, 'ab') as file:
        if file.tell() < length:
          file.truncate(length)

  def get(self, number: int) -> bytes | None:
    """Return a block, None if it is not there."""
    content, there = self._paths
    with open(there, 'rb') as file:
      file.seek(number)
      if file.read(1) != b'\1':
        return None
    with open(content, 'rb') as file:
      file.seek(number * _BLOCK)
      return file.read(_BLOCK)

  def put(self, number: int, block: bytes) -> None:
    """Write a block, then its byte. Raises OSError."""
    for path, start, written in zip(self._paths, (number * _BLOCK, number), (block, b'\1'), strict=True):
      with open(path, 'r+b') as file:
        file.seek(start)
        file.write(written)
