"""The characters of Penn Treebank, Mikolov's version (Mikolov et al. 2012), as one stream per split.

Built from the word files: their lines, stripped of blanks, are those of his character files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmx import documents
from lmx.data.builders import base
from lmx.data.builders.ptb import ptb_dataset_builder as ptb


class Builder(base.TextBuilder):
  """Sentences, one per line, in the order of the file."""

  BUILDER_CONFIGS = base.CHECKED
  URLS = ptb.Builder.URLS
  EXPECTED = {'train': {'characters': 5_017_482}, 'valid': {'characters': 393_042}, 'test': {'characters': 442_423}}

  def sizes(self, text: Any) -> dict[str, int]:
    return {'characters': len(text)}

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    lines = (line.strip() + '\n' for line in documents.read_lines(paths[split]))
    for index, text in enumerate(base.join_lines(lines)):
      yield f'{split}-{index}', text, ''

  def find_downloads(self, paths: dict[str, str]) -> dict[str, str]:
    return paths
