"""Token cache files and their checksums.

The manifest has the size and SHA-256 of every file, and for token files also the CRC-32 of each block of 4 MiB. A large
token file, or one in a bucket, is verified block by block when a block is first read. Every other file is verified
whole when the cache is opened. Ids are checked against the vocabulary in both cases.
"""

from __future__ import annotations

import hashlib
import os
import warnings
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx.data import cache
from lmx.errors import InputError, InputWarning

BLOCK = 1 << 22  # bytes
WHOLE = 16 * BLOCK  # largest size of a token file that is verified when it is opened


class Damaged(InputError):
  """A file of the token cache is missing or has changed."""


class Checksums:
  """Checksums of bytes that arrive in parts of any size."""

  def __init__(self) -> None:
    self._digest = hashlib.sha256()
    self._blocks: list[int] = []
    self._filled, self._crc = 0, 0  # of the last block

  def update(self, content: bytes) -> None:
    """Add the next bytes."""
    self._digest.update(content)
    view = memoryview(content)
    while view:
      part, view = view[: BLOCK - self._filled], view[BLOCK - self._filled :]
      self._crc, self._filled = zlib.crc32(part, self._crc), self._filled + len(part)
      if self._filled == BLOCK:
        self._blocks.append(self._crc)
        self._filled = self._crc = 0

  @property
  def sha256(self) -> str:
    return self._digest.hexdigest()

  @property
  def blocks(self) -> list[int]:
    """CRC-32 of each block of 4 MiB; the last one may be shorter."""
    return self._blocks + [self._crc] * (self._filled > 0)


def check(path: str, entry: Mapping[str, Any], *, whole: bool = True) -> None:
  """Raise `Damaged` unless a file has the size, and if `whole` the SHA-256, of its entry in the manifest."""
  size = os.path.getsize(path) if os.path.exists(path) else -1
  if size != entry['bytes']:
    state = 'is missing' if size < 0 else f'has {size:,} bytes instead of {entry["bytes"]:,}'
    raise Damaged(f'{path}: the token cache is damaged, the file {state}')
  if whole:
    with open(path, 'rb') as file:
      if hashlib.file_digest(file, 'sha256').hexdigest() != entry['sha256']:
        raise Damaged(f'{path}: the token cache is damaged, the content differs from its SHA-256')


class TokenFile(np.lib.mixins.NDArrayOperatorsMixin):
  """Token ids in a memory-mapped file, read like a 1-D array.

  Indexing verifies the blocks that it reads; every other use reads and verifies the whole file.

  Args:
    path: the file.
    dtype: type of the ids.
    entry: entry of the manifest: size and SHA-256.
    blocks: CRC-32 of each block; None for older manifests without them. A file larger than `WHOLE` bytes is then
      verified only by size and ids, with a warning.
    vocab_size: ids must be below it.
    ids: the ids if the file is in a bucket (`bucket.Ids`); None maps the file.

  Raises:
    Damaged: the size differs, or the content of a file up to `WHOLE` bytes.
  """

  ndim = 1

  def __init__(
    self,
    path: str,
    dtype: np.dtype,
    entry: Mapping[str, Any],
    blocks: Sequence[int] | None,
    vocab_size: int,
    ids: Any = None,
  ):
    small = entry['bytes'] <= WHOLE
    if ids is None:
      check(path, entry, whole=small)
    if blocks is None and not small:
      warnings.warn(
        f'{path}: the manifest has no block checksums, so only size and ids are verified; delete the directory '
        f'{os.path.dirname(path)} to rebuild it',
        InputWarning,
        stacklevel=2,
      )
    self._path, self._blocks, self._vocab_size = path, blocks, vocab_size
    self._ids: Any = np.asarray(np.memmap(path, dtype, mode='r')) if ids is None else ids
    self.dtype, self.shape, self.size = self._ids.dtype, self._ids.shape, self._ids.size
    self._each = BLOCK // self.dtype.itemsize  # ids of a block
    self._unread = np.ones(-(-self.size // self._each), bool)
    if blocks is not None and len(blocks) != len(self._unread):
      raise Damaged(f'{path}: the token cache is damaged, {len(blocks)} checksums for {len(self._unread)} blocks')
    if small and ids is None:
      self._verify(slice(None))

  def __len__(self) -> int:
    return self.size

  def __getitem__(self, index: Any) -> Any:
    if self._unread.any():
      self._read(self._touched(index))
    return self._ids[index]

  def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    self._read(slice(None))
    return np.array(self._ids[:], dtype, copy=copy)

  def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    arrays = [np.asarray(x) if isinstance(x, TokenFile) else x for x in inputs]
    return getattr(ufunc, method)(*arrays, **options)

  def _touched(self, index: Any) -> Any:
    """Return an index of the blocks that `index` reads."""
    if isinstance(index, slice):
      start, stop, step = index.indices(self.size)
      low, high = (start, stop) if step > 0 else (stop + 1, start + 1)
      return slice(low // self._each, max(-(-high // self._each), 0)) if high > low else slice(0)
    position = np.asarray(index)
    if position.dtype == bool or not np.issubdtype(position.dtype, np.integer):
      return slice(None)
    inside = position[(position >= -self.size) & (position < self.size)]  # the array itself rejects the others
    return (inside % self.size).ravel() // self._each

  def _read(self, blocks: Any) -> None:
    """Verify blocks during a run, which ends if they are damaged: the next start rebuilds the cache."""
    try:
      self._verify(blocks)
    except Damaged as error:
      cache.discard(os.path.dirname(self._path))
      raise Damaged(f'{error}; the token cache is deleted; start again, which rebuilds it') from None

  def _verify(self, blocks: Any) -> None:
    """Verify the blocks of this index that are read for the first time. Raises Damaged."""
    numbers = np.arange(len(self._unread))[blocks]
    for block in np.unique(numbers[self._unread[numbers]]).tolist():
      ids = self._ids[block * self._each : (block + 1) * self._each]
      wrong = ''
      if self._blocks is not None and zlib.crc32(np.ascontiguousarray(ids).data) != self._blocks[block]:
        wrong = 'differs from its CRC-32'
      elif int(ids.max()) >= self._vocab_size:
        wrong = f'has token id {ids.max()}, and the vocabulary has {self._vocab_size:,} tokens'
      if wrong:
        raise Damaged(f'{self._path}: the token cache is damaged, block {block} of 4 MiB {wrong}')
      self._unread[block] = False
