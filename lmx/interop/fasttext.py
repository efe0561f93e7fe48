"""Word vectors of fastText's own binary models (.bin), such as cc.en.300.bin.

Bojanowski et al. 2017, "Enriching Word Vectors with Subword Information", arXiv 1607.04606, section 3.2: a word is the
set of its character n-grams, written <word>, and itself. In the released code (facebookresearch/fastText, dictionary.cc
and fasttext.cc) its vector is the mean of their rows. An n-gram's row is its hash bucket. An out-of-vocabulary word
only has n-gram rows.

The file, little-endian: magic number and version 12 (or 11, without n-grams of a supervised model); the training
arguments, twelve int32 and a double; the counts of entries, words and labels, int32, and of tokens and kept n-grams,
int64; the entries, each a zero-terminated text, its count, int64, and its type, a byte; the pairs of kept n-grams; a
byte that is 1 for a quantised matrix; its shape, int64; the matrix, float32. The output layer follows, which is not
read. Quantised models (.ftz) are refused.

Axes: R rows, E width of a vector.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from lmx.errors import InputError, explain

MAGIC, _VERSIONS = 793712314, (11, 12)
_ARGUMENTS = ('dim', 'ws', 'epoch', 'minCount', 'neg', 'wordNgrams', 'loss', 'model', 'bucket', 'minn', 'maxn', 'rate')
_SUPERVISED = 3  # of `model`
_MOST = 2**31 - 1
_LONGEST, _WORD = 100, 10_000  # letters of an n-gram, bytes of a word
END = '</s>'  # the program's word of a line end, which has no n-grams


class Model(NamedTuple):
  """A model's input side.

  Attributes:
    ids: row of each word.
    matrix_RE: word rows, then n-gram bucket rows, float32; mapped from the file.
    shortest: length of the shortest n-grams in code points, < and > included.
    longest: of the longest; 0 for none.
    buckets: number of n-gram hash buckets.
    kept: bucket -> its index among the buckets in the file; None for all.
  """

  ids: dict[str, int]
  matrix_RE: np.ndarray
  shortest: int
  longest: int
  buckets: int
  kept: dict[int, int] | None

  @property
  def words(self) -> int:
    """Number of word rows."""
    return len(self.matrix_RE) - (self.buckets if self.kept is None else len(self.kept))


def is_model(path: str) -> bool:
  """Return True if a file begins as a fastText model does."""
  with open(path, 'rb') as file:
    return file.read(4) == struct.pack('<i', MAGIC)


def read(path: str) -> Model:
  """Read a model. Raises InputError if it is damaged, quantised or of another version."""
  try:
    with open(path, 'rb') as file:
      return _read(path, file)
  except (OSError, struct.error, EOFError) as error:
    raise InputError(f'{path}: got a damaged model of fastText ({explain(error)}); expected a complete one') from None


def _read(path: str, file: IO[bytes]) -> Model:
  magic, version = _numbers(file, 'ii')
  if magic != MAGIC or version not in _VERSIONS:
    raise InputError(f'{path}: got version {version} of fastText; expected 12')
  about = dict(zip(_ARGUMENTS, _numbers(file, '12i'), strict=True))
  _numbers(file, 'd')
  if version == 11 and about['model'] == _SUPERVISED:
    about['maxn'] = 0
  size, words, labels, _, pruned = _numbers(file, 'iiiqq')
  if not 0 <= words <= size or size - words != labels or pruned < -1 or not 0 <= about['bucket'] <= _MOST:
    raise InputError(f'{path}: got {words:,} words and {labels:,} labels in {size:,} entries; expected their sum')
  if about['maxn'] and not 0 <= about['minn'] <= about['maxn'] <= _LONGEST:
    raise InputError(
      f'{path}: got n-grams of {about["minn"]:,} to {about["maxn"]:,} letters; expected up to {_LONGEST}'
    )
  ids = _words(path, file, words, size)
  kept = dict(_numbers(file, 'ii') for _ in range(pruned)) if pruned >= 0 else None
  if _numbers(file, '?')[0]:
    raise InputError(f'{path}: got a quantised model; expected a float model, .bin; lmx reads no others')
  rows, width = _numbers(file, 'qq')
  expected = words + (about['bucket'] if kept is None else len(kept))
  if (rows, width) != (expected, about['dim']):
    raise InputError(f'{path}: got a matrix of {rows:,} by {width:,}; expected {expected:,} by {about["dim"]:,}')
  try:
    matrix_RE = np.memmap(path, '<f4', 'r', file.tell(), (rows, width))
  except ValueError as error:
    raise EOFError(error) from None
  return Model(ids, matrix_RE, about['minn'], about['maxn'], about['bucket'], kept)


def _words(path: str, file: IO[bytes], words: int, size: int) -> dict[str, int]:
  """Return the row of each word in a file's entries, words before labels; of words that decode alike, the first."""
  rows: dict[bytes, int] = {}
  for i in range(size):
    text = _text(file)
    is_word = _numbers(file, 'qb')[1] == 0
    if is_word != (i < words) or is_word and text in rows:
      got = 'a word' if is_word else 'a label'
      raise InputError(f'{path}, entry {i + 1:,}: got {got}, {text[:40]!r}; expected {words:,} words, each once, first')
    if is_word:
      rows[text] = i
  ids: dict[str, int] = {}
  for text, i in rows.items():
    ids.setdefault(text.decode('utf-8', 'replace'), i)
  return ids


def _numbers(file: IO[bytes], form: str) -> tuple[Any, ...]:
  form = f'<{form}'
  return struct.unpack(form, file.read(struct.calcsize(form)))


def _text(file: IO[bytes]) -> bytes:
  """Return the bytes up to the next zero byte."""
  text = bytearray()
  while (byte := file.read(1)) != b'\0':
    if not byte or len(text) == _WORD:
      raise EOFError(f'it has a word of more than {_WORD:,} bytes' if byte else 'it ends within a word')
    text += byte
  return bytes(text)


def select(path: str, model: Model, words: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
  """Yield (word, vector float32 `(E,)`) for each of `words` with a vector. Raises InputError if one is not finite."""
  for word in words:
    if rows := subwords(model, word):
      with np.errstate(invalid='ignore', over='ignore'):
        vector_E = model.matrix_RE[rows].mean(axis=0, dtype=np.float32)
      if not np.isfinite(vector_E).all():
        raise InputError(f'{path}: got a number that is not finite in the vector of "{word[:40]}"')
      yield word, vector_E


def subwords(model: Model, word: str) -> list[int]:
  """Return a word's rows (section 3.2): its own row if it is in the vocabulary, and its n-grams' rows."""
  rows = [model.ids[word]] if word in model.ids else []
  if word == END or not model.buckets:
    return rows
  letters = [letter.encode('utf-8', 'replace') for letter in f'<{word}>']
  for start in range(len(letters)):
    for n in range(1, min(model.longest, len(letters) - start) + 1):
      is_mark = n == 1 and start in (0, len(letters) - 1)  # only < or >
      if n >= model.shortest and not is_mark:
        bucket = _hash(b''.join(letters[start : start + n])) % model.buckets
        place = bucket if model.kept is None else model.kept.get(bucket, -1)
        rows += [model.words + place] if place >= 0 else []
  return rows


def _hash(text: bytes) -> int:
  """Return the 32-bit FNV-1a hash as in the released code, where bytes from 128 on are negative."""
  value = 2166136261
  for byte in text:
    value = (value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619 & 0xFFFFFFFF
  return value
