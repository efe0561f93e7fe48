"""Shared parts of text8 and enwik8: one file of 100,000,000 bytes, split 90 / 5 / 5 % as in the literature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmx import documents
from lmx.data.builders import base
from lmx.errors import InputError

SIZE = 100_000_000


class Mahoney(base.TextBuilder, skip_registration=True):  # type: ignore[call-arg]
  """A byte stream; examples are bytes, so a character divided by a split is not lost."""

  BUILDER_CONFIGS = base.CHECKED

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    size = sum(len(block) for block in documents.read_blocks(paths['all']))
    if self.builder_config.check_sizes and size != SIZE:
      raise InputError(
        f'data set {self.name}: got {size:,} bytes in {paths["all"]}; expected {SIZE:,}; '
        'for another file set data.check_sizes=False'
      )
    if size < 20:
      raise InputError(f'{paths["all"]}: {size} bytes are too few for three splits')
    start, stop = {'train': (0, 18), 'valid': (18, 19), 'test': (19, 20)}[split]
    for index, text in enumerate(base.read_range(paths['all'], size * start // 20, size * stop // 20)):
      yield f'{split}-{index}', text, ''

  def sizes(self, text: Any) -> dict[str, int]:
    return {'bytes': len(text)}
