"""Shared parts of builders of translations: a pair is two documents, the source and then the target."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow_datasets.public_api as tfds

from lmx.data.builders import base, parallel
from lmx.errors import InputError


@dataclasses.dataclass
class PairConfig(base.TextConfig):
  """Options of a data set of pairs.

  Attributes:
    source: language of the first document of a pair.
    target: language of the second one.
    pattern: parallel_files: directory or table with the user's text.
    split_names: parallel_files: see `split_files.find_splits`.
    split_fraction: parallel_files: share of the training pairs to hold out for each of `files.held_out_splits`.
  """

  source: str = 'en'
  target: str = 'de'
  pattern: str = ''
  split_names: str = 'words'
  split_fraction: float = 0.05


def configs(source: str, target: str) -> list[PairConfig]:
  """Return the configs that TFDS lists: with and without a check of the published sizes."""
  return [
    PairConfig(name='default', source=source, target=target),
    PairConfig(name='unchecked', source=source, target=target, check_sizes=False),
  ]


class PairBuilder(base.TextBuilder, skip_registration=True):  # type: ignore[call-arg]
  """A data set of pairs; its files are in `parallel.LAYOUTS`, unless a subclass defines `pairs`."""

  BUILDER_CONFIGS = configs('en', 'de')

  @property
  def sides(self) -> tuple[str, str]:
    """Return the languages of source and target."""
    return self.builder_config.source, self.builder_config.target

  def pairs(self, split: str, paths: Any) -> Iterator[parallel.Pair]:
    """Yield (name, source, target) of each pair of a split, in order."""
    yield from parallel.read(paths[split], self.sides, drop=split == 'train')

  def documents(self, split: str, paths: Any) -> Iterator[base.Document]:
    count = 0
    for name, source, target in self.pairs(split, paths):
      yield f'{name}.{self.sides[0]}', source, ''
      yield f'{name}.{self.sides[1]}', target, ''
      count += 1
    layout = parallel.LAYOUTS.get(self.name)
    published = layout.pairs.get(split, count) if layout else count
    if self.builder_config.check_sizes and count != published:
      raise InputError(
        f'data set {self.name}, split {split}: got {count:,} pairs in '
        f'{", ".join(path for group in paths[split] for path in group)}; expected {published:,}; check the files, or '
        'set data.check_sizes=False'
      )

  def sizes(self, text: Any) -> dict[str, int]:
    del text
    return {}

  def find_downloads(self, paths: dict[str, str]) -> Any:
    del paths
    raise InputError(f'data set {self.name} is not downloaded: set data.manual_dir to the directory of its files')

  def find_files(self, directory: str) -> Any:
    return parallel.find(self.name, directory, self.sides, all_files=self.builder_config.check_sizes)

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
    paths = self._paths(dl_manager)
    return {split: self._generate_examples(split, paths) for split in paths}
