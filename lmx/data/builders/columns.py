"""Sentences in columns: a word a line with what is known of it, and an empty line between sentences (CoNLL's form)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lmx.data.builders import base, files
from lmx.errors import InputError

Word = tuple[int, list[str]]  # number of the line, its cells


class ColumnBuilder(base.TextBuilder, skip_registration=True):  # type: ignore[call-arg]
  """A data set of sentences whose words have labels, from files of the user's."""

  def sizes(self, text: Any) -> dict[str, int]:
    return {'sentences': 1, 'tokens': len(text.split())}

  def urls(self) -> dict[str, str]:
    return {}

  def downloaded(self, paths: dict[str, str]) -> Any:
    del paths
    raise InputError(f'data set {self.name} is not downloaded: name the directory of its files with data.manual_dir')


def sentences(path: str, separator: str | None = None) -> Iterator[list[Word]]:
  """The sentences of a file; lines that begin with '# ' and '-DOCSTART-' are none of theirs."""
  held: list[Word] = []
  for number, line in enumerate(files.read_lines(path), 1):
    if line.strip() and not line.startswith(('# ', '-DOCSTART-')):
      held.append((number, line.rstrip('\n').split(separator)))
    elif held and not line.strip():
      yield held
      held = []
  if held:
    yield held


def column(path: str, words: Sequence[Word], index: int) -> list[str]:
  """One column of a sentence. Raises InputError that names the line where there is none."""
  for number, cells in words:
    if not -len(cells) <= index < len(cells) or not cells[index].strip():
      raise InputError(f'{path}, line {number}: has no column {index + 1 if index >= 0 else "for the label"}')
  return ['_'.join(cells[index].split()) for _, cells in words]


def bio(labels: Sequence[str]) -> list[str]:
  """Labels of spans of IOB1, in which a B stands only between two spans of a type, as BIO; those of BIO as they are."""
  found, before = list(labels), 'O'
  for i, label in enumerate(labels):
    if label.startswith('I-') and (before == 'O' or before[2:] != label[2:]):
      found[i] = 'B-' + label[2:]
    before = label
  return found
