"""What the builders of labelled documents share: a validation split cut from the training documents, and TSV files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lmx import documents
from lmx.data.builders import base
from lmx.errors import InputError

EVERY = 10  # of the training documents, one in ten is for validation


class LabelledBuilder(base.TextBuilder):
  """A data set without a validation split of its own: of its training documents 9, 19, ... (from 0) are one.

  A subclass gives `labelled`, the documents of one of the published splits.
  """

  def labelled(self, part: str, path: str) -> Iterator[base.Document]:
    """The documents of 'train' or 'test' as published, in a fixed order."""
    raise TypeError(f'{type(self).__name__} must say how its documents are read')

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    if split not in ('train', 'valid'):
      yield from self.labelled(split, paths[split])
      return
    for index, document in enumerate(self.labelled('train', paths['train'])):
      if (index % EVERY == EVERY - 1) == (split == 'valid'):
        yield document

  def sizes(self, text: Any) -> dict[str, int]:
    del text
    return {'documents': 1}


def read_table(path: str, columns: Iterable[str]) -> Iterator[dict[str, str]]:
  """Rows of a tab-separated file whose first line names its columns, `columns` among them; nothing is quoted."""
  lines = documents.read_lines(path)
  names = next(lines).rstrip('\n').split('\t')
  missing = [name for name in columns if name not in names]
  if missing:
    raise InputError(f'{path}: the first line names no column {", ".join(missing)}; it has {", ".join(names)}')
  for number, line in enumerate(lines, 2):
    cells = line.rstrip('\n').split('\t')
    if len(cells) != len(names):
      raise InputError(f'{path}, line {number}: {len(cells)} columns instead of {len(names)}')
    yield dict(zip(names, cells, strict=True))
