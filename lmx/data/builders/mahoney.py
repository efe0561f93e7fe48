"""text8 and enwik8 (Mahoney 2011): one file of 100,000,000 bytes, split 90 / 5 / 5 % as in the literature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmx import documents
from lmx.data.builders import streams
from lmx.data.builders.files import Document
from lmx.errors import InputError

SIZE = 100_000_000


def read(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the parts of a byte stream; they are bytes, so a character divided by a split is not lost."""
  size = sum(len(block) for block in documents.read_blocks(paths['all']))
  if source.check_sizes and size != SIZE:
    raise InputError(
      f'data set {source.dataset}: got {size:,} bytes in {paths["all"]}; expected {SIZE:,}; '
      'for another file set data.check_sizes=False'
    )
  if size < 20:
    raise InputError(f'{paths["all"]}: {size} bytes are too few for three splits')
  start, stop = {'train': (0, 18), 'valid': (18, 19), 'test': (19, 20)}[split]
  for index, text in enumerate(streams.read_range(paths['all'], size * start // 20, size * stop // 20)):
    yield f'{split}-{index}', text, ''
