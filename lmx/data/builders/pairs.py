"""Builder of translations: a pair is two documents, the source and then the target."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import tensorflow_datasets.public_api as tfds

from lmx.data.builders import base, files, parallel
from lmx.data.builders.files import Document
from lmx.errors import InputError


class PairBuilder(base.TextBuilder, skip_registration=True):  # type: ignore[call-arg]
  """Pairs in the order of the published files."""

  def find_files(self, directory: str) -> Any:
    source = self.source
    return parallel.find(source.dataset, self.dataset.layout, directory, source.sides, all_files=source.check_sizes)

  def splits(self, paths: Any) -> list[str]:
    return [*paths]

  def documents(self, split: str, paths: Any) -> Iterator[Document]:
    for name, *texts in self.pairs(split, paths):
      yield from ((f'{name}.{side}', text, '') for side, text in zip(self.source.sides, texts, strict=True))

  def pairs(self, split: str, paths: Any) -> Iterator[parallel.Pair]:
    """Yield (name, source, target) for each pair in a split, in order."""
    yield from parallel.read(paths[split], self.source.sides, drop=split == 'train')

  def _fetch(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
    """Return the files of the two languages, by split."""
    sides = self.source.sides
    urls = {name: url for name, url in self.dataset.urls.items() if name.rpartition('.')[2] in sides}
    paths = dl_manager.download(urls)  # TFDS would unpack to names that still end in .gz
    both = {split: [f'{groups[0][0]}.{side}' for side in sides] for split, groups in self.dataset.layout.stems.items()}
    return {
      split: [tuple(os.fspath(paths[name]) for name in names)]
      for split, names in both.items()
      if all(name in paths for name in names)
    }


class OwnPairBuilder(base.OwnFiles, PairBuilder, skip_registration=True):  # type: ignore[call-arg]
  """The user's translations; splits without a file are held out of the training pairs."""

  def find_files(self, directory: str) -> Any:
    return parallel.find_own(directory, self.source.sides, self.source.split_names)

  def splits(self, paths: Any) -> list[str]:
    self._missing = self.source.held_out_splits()
    self._parts = self._counted(paths['train']) if self._missing else {}
    return [*paths, *self._missing]

  def pairs(self, split: str, paths: Any) -> Iterator[parallel.Pair]:
    """Yield the pairs in the split's files, or the training pairs assigned to the split."""
    if not self._missing or split not in self._parts:
      yield from super().pairs(split, paths)
      return
    for number, pair in enumerate(parallel.read(paths['train'], self.source.sides, drop=True)):
      if self._part(number, pair) == split:
        yield pair

  def _counted(self, train: list[parallel.Files]) -> dict[str, range]:
    """Return each split's pair numbers if there are few pairs; with empty ranges a hash of the source decides."""
    fraction, sizes = self.source.split_fraction, dict.fromkeys(['train', *self._missing], 0)
    for _, source, _ in parallel.read(train, self.source.sides, drop=True):
      sizes[files.hashed_split(source, self._missing, fraction)] += 1
    total = sum(sizes.values())
    if total * fraction >= files.ENOUGH and all(sizes.values()):
      return dict.fromkeys(sizes, range(0))
    per_split = math.ceil(total * fraction)
    if total <= per_split * len(self._missing):
      raise InputError(
        f'{self.source.manual_dir}: {total} pairs are too few to hold out {" and ".join(self._missing)} text; '
        'give files named valid.* and test.*, or set data.split_fraction=0'
      )
    edges = [0, *(total - per_split * n for n in range(len(self._missing), 0, -1)), total]
    return {split: range(edges[i], edges[i + 1]) for i, split in enumerate(sizes)}

  def _part(self, number: int, pair: parallel.Pair) -> str:
    by_number = (split for split, numbers in self._parts.items() if number in numbers)
    hashed = files.hashed_split(pair[1], self._missing, self.source.split_fraction)
    return hashed if not any(self._parts.values()) else next(by_number)
