"""Vectors of words in the two formats of word2vec.c, which gensim, fastText and others read too.

Text: a line "V D", then a line for each word, the word and its numbers with spaces between. Binary: the same first
line, then for each word the word, a space, D little-endian float32 and a line end (which not every writer puts, so the
reader needs none).
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from typing import IO

import numpy as np

from lmx.errors import InputError


def write(path: str, words: Sequence[str], table_VD: np.ndarray, *, binary: bool = False) -> None:
  """Writes vectors.

  Args:
    path: the file; gzipped if it ends with .gz.
    words: in the order of the rows, the most frequent first (gensim's restrict_vocab goes by it).
    table_VD: float32.
    binary: the binary format.

  Raises:
    InputError: a word with white space in it, which neither format can hold, or the file cannot be written.
  """
  for word in words:
    if not word or len(word.split()) != 1 or word.split()[0] != word:
      raise InputError(f'"{word}" cannot be written: the formats of word2vec end a word at white space')
  table_VD = np.asarray(table_VD, '<f4')
  try:
    with _open(path, 'wb') as file:
      file.write(f'{len(words)} {table_VD.shape[1]}\n'.encode())
      for word, row_D in zip(words, table_VD, strict=True):
        if binary:
          file.write(word.encode() + b' ' + row_D.tobytes() + b'\n')
        else:  # nine digits give a float32 back exactly
          file.write((word + ' ' + ' '.join(f'{x:.9g}' for x in row_D) + '\n').encode())
  except OSError as error:
    raise InputError(f'cannot write {path}: {error}') from None


def read(path: str, *, binary: bool | None = None, limit: int = 0) -> tuple[list[str], np.ndarray]:
  """Reads vectors; returns (words, table_VD float32).

  Args:
    path: the file; gzipped if it ends with .gz.
    binary: which format; None goes by the name (.bin) and then by the content.
    limit: read the first so many words; 0 reads all.

  Raises:
    InputError: no such file, another format, or the file ends too early.
  """
  try:
    with _open(path, 'rb') as file:
      V, D = _head(path, file.readline())
      V = min(V, limit) if limit else V
      if binary is None:
        binary = path.removesuffix('.gz').endswith('.bin') or _looks_binary(path, D)
      found = _read_binary(path, file, V, D) if binary else _read_text(path, file, V, D)
  except (OSError, EOFError) as error:
    raise InputError(f'cannot read {path}: {error}') from None
  return found


def _open(path: str, mode: str) -> IO[bytes]:
  file: IO[bytes] = gzip.open(path, mode) if path.endswith('.gz') else open(path, mode)  # type: ignore[assignment]
  return file


def _head(path: str, line: bytes) -> tuple[int, int]:
  try:
    V, D = map(int, line.split())
  except ValueError:
    raise InputError(f'{path}: the first line is {line[:40]!r}, not two numbers (words, width)') from None
  return V, D


def _looks_binary(path: str, D: int) -> bool:
  """Whether the second line is no word with D numbers."""
  with _open(path, 'rb') as file:
    file.readline()
    parts = file.readline(64 * (D + 4)).split()
  try:
    return len(parts) != D + 1 or not all(map(np.isfinite, map(float, parts[1:])))
  except ValueError:
    return True


def _read_text(path: str, file: IO[bytes], V: int, D: int) -> tuple[list[str], np.ndarray]:
  words, table_VD = [], np.zeros((V, D), np.float32)
  for i in range(V):
    parts = file.readline().decode('utf-8', 'replace').rstrip().split(' ')
    if len(parts) != D + 1:
      raise InputError(f'{path}: line {i + 2} has {len(parts) - 1} numbers, not {D}')
    words.append(parts[0])
    table_VD[i] = np.array(parts[1:], np.float32)
  return words, table_VD


def _read_binary(path: str, file: IO[bytes], V: int, D: int) -> tuple[list[str], np.ndarray]:
  data = file.read() if V else b''
  words, table_VD, at = [], np.zeros((V, D), np.float32), 0
  for i in range(V):
    space = data.find(b' ', at)
    if space < 0 or space + 1 + 4 * D > len(data):
      raise InputError(f'{path}: the file ends after {i} of {V} words ({os.path.getsize(path):,} bytes)')
    words.append(data[at:space].lstrip(b'\n').decode('utf-8', 'replace'))
    table_VD[i] = np.frombuffer(data, '<f4', D, space + 1)
    at = space + 1 + 4 * D
  return words, table_VD
