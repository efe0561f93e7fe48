"""Multi30k, task 1 (Elliott et al. 2016, 2017): translated image captions."""

from __future__ import annotations

from typing import Any

import tensorflow_datasets.public_api as tfds

from lmx.data.builders import pairs, parallel

_URL = 'https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/'
_STEMS = {split: groups[0][0] for split, groups in parallel.LAYOUTS['multi30k'].stems.items()}
_NOT_IN_CZECH = ('test_2017', 'test_coco')
_FILES = [
  f'{stem}.{side}'
  for split, stem in _STEMS.items()
  for side in ('en', 'de', 'fr', 'cs')
  if not (side == 'cs' and split in _NOT_IN_CZECH)
]


class Builder(pairs.PairBuilder):
  """Pairs in the order of the files: test is Flickr 2016, test_2017 Flickr 2017, test_coco the ambiguous COCO set."""

  URLS = {name: f'{_URL}{name}.gz' for name in _FILES}

  def urls(self) -> dict[str, str]:
    """Return the files of the two languages."""
    return {name: url for name, url in self.URLS.items() if name.rpartition('.')[2] in self.sides}

  def fetch(self, dl_manager: tfds.download.DownloadManager, urls: dict[str, str]) -> dict[str, Any]:
    return dl_manager.download(urls)  # TFDS would unpack to names that still end in .gz

  def find_downloads(self, paths: dict[str, str]) -> Any:
    both = {split: [f'{stem}.{side}' for side in self.sides] for split, stem in _STEMS.items()}
    return {split: [(paths[a], paths[b])] for split, (a, b) in both.items() if a in paths and b in paths}
