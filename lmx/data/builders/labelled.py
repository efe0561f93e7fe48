"""Labelled documents: a held-out validation split, and TSV files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lmx.data.builders import cells
from lmx.data.builders.files import Document
from lmx.errors import InputError

EVERY = 10  # one in ten training documents is for validation


def hold_out(split: str, paths: dict[str, str], read: Callable[[str, str], Iterator[Document]]) -> Iterator[Document]:
  """Yield the documents of a split; training documents 9, 19, ... (from 0) are those for validation.

  Args:
    split: the split.
    paths: file of each published split.
    read: yields the documents of a published split, given it and its file, in a fixed order.
  """
  if split not in ('train', 'valid'):
    yield from read(split, paths[split])
    return
  for index, document in enumerate(read('train', paths['train'])):
    if (index % EVERY == EVERY - 1) == (split == 'valid'):
      yield document


def read_table(path: str, columns: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
  """Yield (line number, cells) for each row of a .tsv with 'label' and the other `columns`, the label stripped."""
  for number, row in cells.read(path):
    if missing := [name for name in columns if name not in row]:
      raise InputError(
        f'{path}, line 1: got no column {", ".join(missing)}, but {", ".join(row)}; expected these columns'
      )
    yield number, row | {'label': cells.label(row['label'], path)}
