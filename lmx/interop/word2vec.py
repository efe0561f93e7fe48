"""Word vectors in the two formats of word2vec.c, which gensim, fastText and others read too: a writer of both, and a
reader of the binary one. lmx/data/vectors.py reads the text.

Text: a line "V D", then one line per word, the word and its values separated by spaces. Binary: the same first line,
then per word the word, a space, D little-endian float32 and a newline. Some writers omit that newline, so the reader
does not require it. The format is detected from the content, not the file name.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import IO

import numpy as np

from lmx.errors import InputError, explain

_WIDEST = 1_000_000  # largest vector dimension
_SAMPLE = 1 << 16  # bytes read to distinguish text from binary
_LONGEST = 1000  # bytes of a first line with two numbers
_CONTROL = re.compile(r'[\x00-\x08\x0e-\x1f]')


def write(path: str, words: Sequence[str], table_VD: np.ndarray, *, binary: bool = False) -> None:
  """Write vectors.

  Args:
    path: the file; gzipped if it ends with .gz.
    words: in the order of the rows, the most frequent first (gensim's restrict_vocab relies on it).
    table_VD: float32.
    binary: write the binary format.

  Raises:
    InputError: a word has white space, which the binary format cannot represent; a number is not finite; or the file
      cannot be written.
  """
  for word in words:
    if not word or len(word.split()) != 1 or word.split()[0] != word:
      raise InputError(f'"{word}" cannot be written: white space ends a word in the formats of word2vec')
  table_VD = np.asarray(table_VD, '<f4')
  for word, row_D in zip(words, table_VD, strict=True):
    _check_finite(path, word.encode(), row_D.tobytes())
  try:
    with _open(path, 'wb') as file:
      file.write(f'{len(words)} {table_VD.shape[1]}\n'.encode())
      for word, row_D in zip(words, table_VD, strict=True):
        if binary:
          file.write(word.encode() + b' ' + row_D.tobytes() + b'\n')
        else:  # nine digits round-trip a float32 exactly
          file.write((word + ' ' + ' '.join(f'{x:.9g}' for x in row_D) + '\n').encode())
  except OSError as error:
    raise InputError(f'cannot write {path}: {explain(error)}') from None


def rows(path: str) -> Iterator[tuple[str, bytes]]:
  """Yield (word, its little-endian float32 values) for each row of a binary file; gzipped with .gz.

  Raises:
    InputError: no such file, another format, a word that is empty or not UTF-8, a number that is not finite, or more or
      fewer words than the first line gives; the word is named.
  """
  with _reading(path) as file:
    V, D = _head(path, file.readline(_LONGEST))
    for number, (content, row) in enumerate(_binary_rows(path, file, V, D), 1):
      yield _decode(content, f'{path}, word {number} of {V}'), row


def width_of_binary(path: str) -> int:
  """Return the vector width of a binary file, 0 for any other file."""
  with _reading(path) as file:
    try:
      _, D = _head(path, file.readline(_LONGEST))
    except InputError:
      return 0
    return D if _is_binary(file, D) else 0


def select(path: str, words: Collection[str]) -> Iterator[tuple[str, np.ndarray]]:
  """Yield (word, vector float32 `(D,)`) for the rows of some words; the others are verified and not held.

  Raises:
    InputError: see `rows`.
  """
  for word, row in rows(path):
    if word in words:
      yield word, np.frombuffer(row, '<f4')


@contextlib.contextmanager
def _reading(path: str) -> Iterator[IO[bytes]]:
  """Yield the open file. Raises InputError if it cannot be read to its end."""
  try:
    with _open(path, 'rb') as file:
      yield file
  except (OSError, EOFError, zlib.error) as error:
    raise InputError(f'{path}: cannot be read ({explain(error)})') from None


def _open(path: str, mode: str) -> IO[bytes]:
  file: IO[bytes] = gzip.open(path, mode) if path.endswith('.gz') else open(path, mode)  # type: ignore[assignment]
  return file


def _decode(word: bytes, where: str) -> str:
  try:
    return word.decode()
  except UnicodeDecodeError:
    raise InputError(f'{where}: got the word {word[:40]!r}; expected UTF-8; save the file as UTF-8') from None


def _head(path: str, line: bytes) -> tuple[int, int]:
  try:
    V, D = map(int, line.replace(b'_', b'?').split())  # an underscore is no digit here
  except ValueError:
    V, D = -1, -1
  if V < 0 or not 1 <= D <= _WIDEST:
    raise InputError(
      f'{path}, line 1: got {line[:40]!r}; expected the number of words and their width, such as "5000 300"'
    )
  return V, D


def _is_binary(file: IO[bytes], D: int) -> bool:
  """Return True if the first row is not a word with D values, and the bytes after the first line are not text."""
  sample = file.read(max(_SAMPLE, 32 * D))
  word, *numbers = sample.split(b'\n')[0].rstrip().rsplit(b' ', D)
  try:
    if word and len(list(map(float, numbers))) == D:
      return False
  except ValueError:
    pass
  try:
    return bool(_CONTROL.search(codecs.getincrementaldecoder('utf-8')().decode(sample)))
  except UnicodeDecodeError:
    return True


def _binary_rows(path: str, file: IO[bytes], V: int, D: int) -> Iterator[tuple[bytes, bytes]]:
  for number in range(1, V + 1):
    word, row = _word(file), file.read(4 * D)
    if len(row) < 4 * D:
      raise InputError(f'{path}: got {number - 1:,} words; expected {V:,} by the first line, each with {D} float32')
    word = word.removeprefix(b'\n')
    if not word or b'\n' in word:
      raise InputError(
        f'{path}, word {number} of {V}: got {word[:40]!r}; expected a word without space or line end '
        f'before its {D} float32'
      )
    _check_finite(f'{path}, word {number} of {V}', word, row)
    yield word, row
  rest = file.read()
  if rest.strip():
    raise InputError(
      f'{path}: got {len(rest):,} bytes after the last of {V:,} words; expected the end of the '
      'file. The binary format has no words with a space'
    )


def _word(file: IO[bytes]) -> bytes:
  """Return the bytes up to the next space, which is skipped, or to the end of the file."""
  word = bytearray()
  while (byte := file.read(1)) not in (b' ', b''):
    word += byte
  return bytes(word)


def _check_finite(where: str, word: bytes, row: bytes) -> None:
  numbers_D = np.frombuffer(row, '<f4')
  if not np.isfinite(numbers_D).all():
    wrong = numbers_D[~np.isfinite(numbers_D)][0]
    raise InputError(
      f'{where}: got {wrong} in the vector of "{word.decode("utf-8", "replace")[:40]}"; expected finite values'
    )
