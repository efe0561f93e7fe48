"""The first words of a training text: `data.words`, as in BabyLM's tracks of 10 and 100 million words.

Words are separated by white space. Documents are read in order, and the one that exceeds the budget ends after its last
word. So the text has exactly that many words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lmx.errors import InputError

Row = tuple[str, str, str]  # id, text, label
_WORD = re.compile(r'\S+')


class WordBudget:
  """The documents of a split up to a number of words; a part is one of the split's and its number of words, 0 for all.

  Args:
    examples: the documents: `sources.Examples` or `text_files.Documents`.
    words: number of words.
    where: source of the text, for messages.
  """

  def __init__(self, examples: Any, words: int, where: str):
    self._examples, self._words, self._where = examples, words, where
    self.size, self.has_parts = examples.size, examples.has_parts

  def __iter__(self) -> Iterator[Row]:
    """Yield id, text and label. Raises InputError after the last document if there are fewer words."""
    return self._first(self._examples, self._words)

  def _first(self, rows: Iterable[Row], words: int) -> Iterator[Row]:
    rest = words
    for name, text, label in rows:
      count = len(text.split())
      yield name, text if count <= rest else _cut(text, rest), label
      rest -= count
      if rest <= 0:
        return
    raise self._too_few(words - rest)

  def _too_few(self, count: int) -> InputError:
    return InputError(
      f'data.words: got {self._words:,}; expected at most {count:,}, the words of the training text ({self._where}); '
      'lower it, or add text'
    )

  def parts(self, size: int, divide: str) -> list[tuple[Any, int]]:
    """Return the parts up to the last word, each with 0, and the last one with its number of words."""
    kept: list[tuple[Any, int]] = []
    rest = self._words
    for part in self._examples.parts(size, divide):
      count = sum(len(text.split()) for _, text, _ in self._examples.read(part))
      if count >= rest:
        return [*kept, (part, rest)]
      kept.append((part, 0))
      rest -= count
    raise self._too_few(self._words - rest)

  def read(self, part: Sequence[Any]) -> Iterator[Row]:
    """Yield the documents of a part."""
    whole, words = part
    rows: Iterator[Row] = self._examples.read(whole)
    return self._first(rows, words) if words else rows

  def part_size(self, part: Sequence[Any]) -> int:
    """Return the bytes of a part, about."""
    return int(self._examples.part_size(part[0]))

  def continues(self, part: Sequence[Any]) -> bool:
    """Return True if the part begins inside a document."""
    return bool(self._examples.continues(part[0]))

  def ends(self, part: Sequence[Any]) -> bool:
    """Return True if the last document of the part ends in it, or with the budget."""
    return bool(part[1]) or bool(self._examples.ends(part[0]))


def _cut(text: str, words: int) -> str:
  """Return a text up to the end of its first `words` words."""
  end = 0
  for number, word in enumerate(_WORD.finditer(text), 1):
    if number == words:
      end = word.end()
      break
  return text[:end]
