"""The user's own translations."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import tensorflow_datasets.public_api as tfds

from lmx.data.builders import files, pairs, parallel
from lmx.errors import InputError


class Builder(pairs.PairBuilder):
  """Pairs in the order of the files' names; splits without a file are held out of the training pairs."""

  def _paths(self, dl_manager: tfds.download.DownloadManager) -> Any:
    pattern = self.builder_config.pattern or os.fspath(dl_manager.manual_dir)
    return parallel.find_own(pattern, self.sides, self.builder_config.split_names)

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
    paths, fraction = self._paths(dl_manager), self.builder_config.split_fraction
    self._missing = files.held_out_splits(paths, fraction)
    self._parts = self._counted(paths['train']) if self._missing else {}
    return {split: self._generate_examples(split, paths) for split in (*paths, *self._missing)}

  def pairs(self, split: str, paths: Any) -> Iterator[parallel.Pair]:
    """Yield the pairs of the split's files, or those of the training files that are assigned to the split."""
    if not self._missing or split not in self._parts:
      yield from super().pairs(split, paths)
      return
    for number, pair in enumerate(parallel.read(paths['train'], self.sides, drop=True)):
      if self._part(number, pair) == split:
        yield pair

  def _counted(self, train: list[parallel.Files]) -> dict[str, range]:
    """Return the pair numbers of each split if pairs are few; with empty ranges a hash of the source decides."""
    fraction, sizes = self.builder_config.split_fraction, dict.fromkeys(['train', *self._missing], 0)
    for _, source, _ in parallel.read(train, self.sides, drop=True):
      sizes[files.hashed_split(source, self._missing, fraction)] += 1
    total = sum(sizes.values())
    if total * fraction >= files.ENOUGH and all(sizes.values()):
      return dict.fromkeys(sizes, range(0))
    per_split = math.ceil(total * fraction)
    if total <= per_split * len(self._missing):
      raise InputError(
        f'{self.builder_config.pattern}: {total} pairs are too few to hold out {" and ".join(self._missing)} text; '
        'give files named valid.* and test.*, or set data.split_fraction=0'
      )
    edges = [0, *(total - per_split * n for n in range(len(self._missing), 0, -1)), total]
    return {split: range(edges[i], edges[i + 1]) for i, split in enumerate(sizes)}

  def _part(self, number: int, pair: parallel.Pair) -> str:
    by_number = (split for split, numbers in self._parts.items() if number in numbers)
    hashed = files.hashed_split(pair[1], self._missing, self.builder_config.split_fraction)
    return hashed if not any(self._parts.values()) else next(by_number)
