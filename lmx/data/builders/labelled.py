"""Shared parts of builders of labelled documents: a held-out validation split, and TSV files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lmx.data.builders import base, cells
from lmx.errors import InputError

EVERY = 10  # one in ten training documents is for validation


class LabelledBuilder(base.TextBuilder):
  """A data set without its own validation split: training documents 9, 19, ... (from 0) are held out for it.

  A subclass defines `labelled`, the documents of one of the published splits.
  """

  def labelled(self, part: str, path: str) -> Iterator[base.Document]:
    """Yield the documents of 'train' or 'test' as published, in a fixed order."""
    raise TypeError(f'{type(self).__name__} must define labelled()')

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


def read_table(path: str, columns: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
  """Yield (line number, cells) of each row of a .tsv with 'label' and the other `columns`, the label stripped."""
  for number, row in cells.read(path):
    if missing := [name for name in columns if name not in row]:
      raise InputError(f'{path}: the first line has no column {", ".join(missing)}; it has {", ".join(row)}')
    yield number, row | {'label': cells.label(row['label'], path)}
