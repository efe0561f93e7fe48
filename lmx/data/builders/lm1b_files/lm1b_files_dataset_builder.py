"""One Billion Word Benchmark (Chelba et al. 2013, arXiv 1312.3005) from its own files, which TFDS's `lm1b` mixes.

Papers test on the first of its 50 held-out files. The second validates here; the release of Transformer-XL validates
on the first too.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator

from lmx import documents
from lmx.data.builders import base, split_files
from lmx.errors import InputError

_NAME = '1-billion-word-language-modeling-benchmark-r13output'
_SHARD = re.compile(r'news\.en-(\d{5})-of-00100(?:\.gz)?')


class Builder(base.TextBuilder):
  """Sentences, one per line, in the order of the files."""

  BUILDER_CONFIGS = base.CHECKED
  URLS = {'archive': f'http://www.statmt.org/lm-benchmark/{_NAME}.tar.gz'}

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    names = [paths[split]]
    if split == 'train':
      names = self._shards(os.path.dirname(paths['train']))
    lines = itertools.chain.from_iterable(map(documents.read_lines, names))
    for index, text in enumerate(base.join_lines(lines)):
      yield f'{split}-{index}', text, ''

  def _shards(self, folder: str) -> list[str]:
    """Return the training files. Raises InputError if one is missing, or is there both plain and compressed."""
    matches = [match for name in documents.list_names(folder) if (match := _SHARD.fullmatch(name))]
    paths = [os.path.join(folder, match[0]) for match in matches]
    split_files.check_stems(paths, ('', '.gz'))
    missing = [number for number in range(1, 100) if number not in {int(match[1]) for match in matches}]
    if missing and self.builder_config.check_sizes:
      raise InputError(
        f'data set {self.name}: {folder} does not hold news.en-{missing[0]:05}-of-00100; expected 99 files; fetch it, '
        'or set data.check_sizes=False'
      )
    return paths
