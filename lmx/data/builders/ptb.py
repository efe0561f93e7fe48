"""Penn Treebank, Mikolov's version (Mikolov et al. 2010, 2012): words and characters, one stream per split."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmx import documents
from lmx.data.builders import streams
from lmx.data.builders.files import Document


def words(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the sentences, one per line, in the order of the file."""
  del source
  for index, text in enumerate(streams.join_lines(documents.read_lines(paths[split]))):
    yield f'{split}-{index}', text, ''


def characters(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the lines of his character files: the stripped lines of the word files."""
  del source
  lines = (line.strip() + '\n' for line in documents.read_lines(paths[split]))
  for index, text in enumerate(streams.join_lines(lines)):
    yield f'{split}-{index}', text, ''
