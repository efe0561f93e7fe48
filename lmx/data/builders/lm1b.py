"""One Billion Word Benchmark (Chelba et al. 2013, arXiv 1312.3005), read from its original files.

TFDS's `lm1b` does not keep the held-out files apart.

Papers test on the first of its 50 held-out files. The second validates here; the release of Transformer-XL validates
on the first too.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from typing import Any

from lmx import documents
from lmx.data.builders import split_files, streams
from lmx.data.builders.files import Document
from lmx.errors import InputError

_SHARD = re.compile(r'news\.en-(\d{5})-of-00100(?:\.gz)?')


def read(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the sentences, one per line, in the order of the files."""
  names = _shards(os.path.dirname(paths['train']), source) if split == 'train' else [paths[split]]
  lines = itertools.chain.from_iterable(map(documents.read_lines, names))
  for index, text in enumerate(streams.join_lines(lines)):
    yield f'{split}-{index}', text, ''


def _shards(folder: str, source: Any) -> list[str]:
  """Return the training files. Raises InputError if one is missing, or is there both plain and compressed."""
  matches = [match for name in documents.list_names(folder) if (match := _SHARD.fullmatch(name))]
  paths = [os.path.join(folder, match[0]) for match in matches]
  split_files.check_stems(paths, ('', '.gz'))
  missing = [number for number in range(1, 100) if number not in {int(match[1]) for match in matches}]
  if missing and source.check_sizes:
    raise InputError(
      f'data set {source.dataset}: {folder} does not hold news.en-{missing[0]:05}-of-00100; expected 99 files; '
      'fetch it, or set data.check_sizes=False'
    )
  return paths
