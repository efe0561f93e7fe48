"""Fast encoding of a subword tokenizer whose words are encoded one by one: the ids of a word are looked up.

Text has few distinct words, so most of the time of an encoder goes to words that it has encoded before. Here a regular
expression splits a text into the words of the library's pre-tokenizer, and a table has the ids of each word; the
library encodes only the words that are not in the table. The result equals the library's, because a word's ids do not
depend on its neighbours.

Deviation: none. A text with a character whose class is not the same in every version of Unicode since 3.2 is encoded
by the library itself.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence

import numpy as np

_LARGEST = 500_000  # words of a table, which is then emptied
_SPACES = '\t\n\r \xa0'  # the only white space of a text that is split here


class _Index(dict[str, int]):
  """Words numbered as they are looked up first."""

  def __missing__(self, word: str) -> int:
    self[word] = number = len(self)
    return number


class WordCache:
  """Encoder of texts by a table of words.

  Args:
    pattern: matches the words of a text, without gaps.
    known: matches a text that `pattern` splits as the library does.
    encode: ids of each of some words.
  """

  def __init__(
    self, pattern: re.Pattern[str], known: re.Pattern[str], encode: Callable[[list[str]], Sequence[Sequence[int]]]
  ):
    self._find, self._known, self._encode = pattern.findall, known.fullmatch, encode
    self._reset()

  def _reset(self) -> None:
    self._index = _Index()
    self._ids = np.zeros(0, np.int32)
    self._ends = np.zeros(1, np.int64)  # word w has ids[ends[w]:ends[w + 1]]

  def knows(self, text: str) -> bool:
    """Return True if the cache can encode the text."""
    return self._known(text) is not None

  def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
    """Return the ids of each text, int32; every text must be one that the cache `knows`."""
    if len(self._index) > _LARGEST:
      self._reset()
    words_by_text = [self._find(text) for text in texts]
    seen = len(self._index)
    counts = np.fromiter(map(len, words_by_text), np.int64, len(texts))
    words = itertools.chain.from_iterable(words_by_text)
    word_W = np.fromiter(map(self._index.__getitem__, words), np.int64, int(counts.sum()))
    self._add(itertools.islice(self._index, seen, None))
    starts_W = self._ends[word_W]
    lengths_W = self._ends[word_W + 1] - starts_W
    ends_W = np.cumsum(lengths_W)
    place = np.repeat(starts_W - ends_W + lengths_W, lengths_W) + np.arange(ends_W[-1] if ends_W.size else 0)
    ends_by_text = np.concatenate([[0], ends_W])[np.cumsum(counts)]
    return np.split(self._ids[place], ends_by_text[:-1])[: len(texts)]

  def _add(self, words: Iterable[str]) -> None:
    ids = [np.asarray(one, np.int32) for one in self._encode(list(words))]
    if ids:
      self._ids = np.concatenate([self._ids, *ids])
      self._ends = np.concatenate([self._ends, self._ends[-1] + np.cumsum([one.size for one in ids])])


@functools.cache
def byte_level() -> tuple[re.Pattern[str], re.Pattern[str]]:
  """Return (pattern of GPT-2's words, pattern of the texts that it splits as the library does)."""
  classes: dict[str, list[int]] = {'L': [], 'N': [], 'other': []}
  for code in range(sys.maxunicode + 1):
    character = chr(code)
    kind = unicodedata.category(character)
    if kind == unicodedata.ucd_3_2_0.category(character) and kind[0] in 'LNPSM':
      classes[kind[0] if kind[0] in 'LN' else 'other'].append(code)
  letters, numbers, others = (_ranges(classes[name]) for name in ('L', 'N', 'other'))
  words = rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{letters}]+| ?[{numbers}]+| ?[^{_SPACES}{letters}{numbers}]+"
  spaces = rf'[{_SPACES}]+(?![^{_SPACES}])|[{_SPACES}]+'
  return re.compile(f'{words}|{spaces}'), re.compile(f'[{_SPACES}{letters}{numbers}{others}]*')


def _ranges(codes: Sequence[int]) -> str:
  """Return the inside of a character class."""
  parts, start = [], 0
  for i, code in enumerate(codes):
    if i + 1 == len(codes) or codes[i + 1] != code + 1:
      parts.append(f'{re.escape(chr(codes[start]))}-{re.escape(chr(code))}')
      start = i + 1
  return ''.join(parts)
