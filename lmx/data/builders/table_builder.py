"""Shared parts of table builders: an example is one document per text of a row, the first with the label."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import tensorflow_datasets.public_api as tfds

from lmx.data.builders import base, files, tables
from lmx.errors import InputError


@dataclasses.dataclass
class TableConfig(base.TextConfig):
  """Options of a data set of rows.

  Attributes:
    table: name in `tables.TABLES`; '' for a user table, which the other fields describe.
    pattern: table_files: directory or files.
    split_names: table_files: see `split_files.find_splits`.
    texts: table_files: columns of the texts.
    label: table_files: column of the label.
    scores: table_files: True if labels are numbers on a scale.
    split_fraction: table_files: share of the training rows to hold out for each of `files.held_out_splits`.
  """

  table: str = ''
  pattern: str = ''
  split_names: str = 'words'
  texts: tuple[str, ...] = ('text',)
  label: str = 'label'
  scores: bool = False
  split_fraction: float = 0.05


def configs(*names: str) -> list[TableConfig]:
  """Return the configs that TFDS lists: each table with and without a check of the published sizes."""
  config = lambda name, checked: TableConfig(
    name=f'{name.rpartition("/")[2]}{"" if checked else "_unchecked"}', table=name, check_sizes=checked
  )
  return [config(name, checked) for name in names for checked in (True, False)]


class TableBuilder(base.TextBuilder, skip_registration=True):  # type: ignore[call-arg]
  """A data set of rows. Without a validation file, every tenth training row is held out for validation."""

  @property
  def table(self) -> tables.Table:
    """Reading rules of its rows."""
    config = self.builder_config
    if config.table:
      return tables.TABLES[config.table]
    return tables.Table(tuple((name,) for name in config.texts), (config.label,), scores=config.scores, is_own=True)

  def rows(self, split: str, paths: Any) -> Iterator[tables.Row]:
    """Yield the rows of a split, in order."""
    hold_out = 'valid' not in paths
    if not hold_out or split not in ('train', 'valid'):
      yield from tables.read(self.table, paths[split], split)
      return
    for index, row in enumerate(tables.read(self.table, paths['train'], 'train')):
      if (index % tables.EVERY == tables.EVERY - 1) == (split == 'valid'):
        yield row

  def documents(self, split: str, paths: Any) -> Iterator[base.Document]:
    count = 0
    for name, texts, label in self.rows(split, paths):
      for index, text in enumerate(texts):
        yield f'{name}.{index}', text, '' if index else label
      count += 1
    if not count:
      raise InputError(f'data set {self.name}: split {split} has no rows')
    published = self._published(split, paths)
    if self.builder_config.check_sizes and published and count != published:
      raise InputError(
        f'data set {self.builder_config.table}, split {split}: got {count:,} rows in '
        f'{paths[split]}; expected {published:,}; check the files, or set data.check_sizes=False'
      )

  def _published(self, split: str, paths: Any) -> int:
    """Return the published number of rows of a split; 0 if it is unknown."""
    if 'valid' in paths or split not in ('train', 'valid'):
      return self.table.rows.get(split, 0)
    if 'valid' in self.table.files:  # its rows are in the training file, the size of which is then not published
      return 0
    whole = self.table.rows.get('train', 0)
    return whole // tables.EVERY if split == 'valid' else whole - whole // tables.EVERY

  def sizes(self, text: Any) -> dict[str, int]:
    del text
    return {}

  def urls(self) -> dict[str, str]:
    return {}

  def find_downloads(self, paths: dict[str, str]) -> Any:
    del paths
    name = self.builder_config.table or self.name
    raise InputError(f'data set {name} is not downloaded: set data.manual_dir to the directory of its files')

  def find_files(self, directory: str) -> Any:
    return tables.find(self.builder_config.table, directory)

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
    paths = self._paths(dl_manager)
    held_out = {'valid': ''} if 'train' in paths else {}
    return {split: self._generate_examples(split, paths) for split in {**paths, **held_out}}


class OwnTables(TableBuilder, skip_registration=True):  # type: ignore[call-arg]
  """The user's tables; `files.held_out_splits` are held out of the training rows by a hash of their texts."""

  def rows(self, split: str, paths: Any) -> Iterator[tables.Row]:
    missing = files.held_out_splits(paths, self.builder_config.split_fraction)
    source = 'train' if split in missing else split
    for path in paths[source]:
      for name, texts, label in tables.read(self.table, path, source):
        if source == 'train' and missing:
          if files.hashed_split('\n'.join(texts), missing, self.builder_config.split_fraction) != split:
            continue
        yield f'{os.path.basename(path)}:{name}', texts, label

  def _paths(self, dl_manager: tfds.download.DownloadManager) -> Any:
    return tables.find_own(
      self.builder_config.pattern or os.fspath(dl_manager.manual_dir), self.builder_config.split_names
    )

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
    paths = self._paths(dl_manager)
    held_out = files.held_out_splits(paths, self.builder_config.split_fraction)
    return {split: self._generate_examples(split, paths) for split in [*paths, *held_out]}
