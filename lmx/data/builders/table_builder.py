"""Builder of tables: an example is one document per text of a row, the first with the label."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from lmx.data.builders import base, labelled, tables
from lmx.data.builders.files import Document


class TableBuilder(base.TextBuilder, skip_registration=True):  # type: ignore[call-arg]
  """A published table; without a validation file, a tenth of the training rows is held out, the fold `data.fold`."""

  def find_files(self, directory: str) -> Any:
    return tables.find(self.source.dataset, self.dataset.layout, directory)

  def splits(self, paths: Any) -> list[str]:
    return [*{**paths, **({'valid': ''} if 'train' in paths else {})}]

  def documents(self, split: str, paths: Any) -> Iterator[Document]:
    for name, texts, label in self.rows(split, paths):
      for index, text in enumerate(texts):
        yield f'{name}.{index}', text, '' if index else label

  def rows(self, split: str, paths: Any) -> Iterator[tables.Row]:
    """Yield the rows of a split, in order."""
    table = self.dataset.layout
    if 'valid' in paths or split not in ('train', 'valid'):
      yield from tables.read(table, paths[split], split)
      return
    for index, row in enumerate(tables.read(table, paths['train'], 'train')):
      if labelled.is_held_out(index, self.source.fold) == (split == 'valid'):
        yield row

  def size(self, split: str, paths: Any) -> Mapping[str, int]:
    sizes = self.dataset.sizes
    if 'valid' in paths or split not in ('train', 'valid'):
      return sizes.get(split, {})
    if (
      'valid' in self.dataset.layout.files
    ):  # its rows are in the training file, whose published size then does not apply
      return {}
    whole = sizes.get('train', {}).get('rows', 0)
    return {'rows': labelled.size(split, whole, self.source.fold)} if whole else {}


class OwnTableBuilder(base.OwnFiles, TableBuilder, skip_registration=True):  # type: ignore[call-arg]
  """The user's tables; splits without a file are held out of the training rows by a hash of their texts."""

  def find_files(self, directory: str) -> Any:
    return tables.find_own(directory, self.source.split_names)

  def rows(self, split: str, paths: Any) -> Iterator[tables.Row]:
    table = tables.own(self.source.texts, self.source.label, self.source.scores)
    part, belongs = self.rows_of(split)
    for path in paths[part]:
      for name, texts, label in tables.read(table, path, part):
        if belongs('\n'.join(texts)):
          yield f'{os.path.basename(path)}:{name}', texts, label
