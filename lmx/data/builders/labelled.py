"""Labelled documents: a held-out validation split, and TSV files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lmx.data.builders import cells, files
from lmx.data.builders.files import Document
from lmx.errors import InputError


def is_held_out(index: int, fold: int) -> bool:
  """Return whether the training document with this number (from 0) is of a fold: of fold 0 are 9, 19, ..."""
  return (index + 1 + fold) % files.FOLDS == 0


def size(split: str, count: int, fold: int) -> int:
  """Return how many of `count` training documents are for training or, if the split is 'valid', of the fold."""
  held_out = (count + fold) // files.FOLDS
  return held_out if split == 'valid' else count - held_out


def hold_out(
  split: str, paths: dict[str, str], read: Callable[[str, str], Iterator[Document]], fold: int
) -> Iterator[Document]:
  """Yield the documents of a split; a fold of the training documents is for validation.

  Args:
    split: the split.
    paths: file of each published split.
    read: yields the documents of a published split, given it and its file, in a fixed order.
    fold: number of the fold, `data.fold`.
  """
  if split not in ('train', 'valid'):
    yield from read(split, paths[split])
    return
  for index, document in enumerate(read('train', paths['train'])):
    if is_held_out(index, fold) == (split == 'valid'):
      yield document


def read_table(path: str, columns: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
  """Yield (line number, cells) for each row of a .tsv with 'label' and the other `columns`, the label stripped."""
  for number, row in cells.read(path):
    if missing := [name for name in columns if name not in row]:
      raise InputError(
        f'{path}, line 1: got no column {", ".join(missing)}, but {", ".join(row)}; expected these columns'
      )
    yield number, row | {'label': cells.label(row['label'], path)}
