"""One Billion Word Benchmark (Chelba et al. 2013, arXiv 1312.3005) from its own files, which TFDS's `lm1b` mixes.

Papers test on the first of its 50 held-out files. The second validates here; the release of Transformer-XL validates
on the first too.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Iterator

from lmx import documents
from lmx.data.builders import base

_NAME = '1-billion-word-language-modeling-benchmark-r13output'


class Builder(base.TextBuilder):
  """Sentences, one per line, in the order of the files."""

  BUILDER_CONFIGS = base.CHECKED
  URLS = {'archive': f'http://www.statmt.org/lm-benchmark/{_NAME}.tar.gz'}

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    names = [paths[split]]
    if split == 'train':
      names = sorted(glob.glob(os.path.join(glob.escape(os.path.dirname(paths['train'])), 'news.en-*')))
    lines = itertools.chain.from_iterable(map(documents.read_lines, names))
    for index, text in enumerate(base.join_lines(lines)):
      yield f'{split}-{index}', text, ''
