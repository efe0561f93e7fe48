"""TREC questions classified by the type of their answer (Li and Roth 2002): six classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmx import documents
from lmx.data.builders import labelled
from lmx.data.builders.files import Document
from lmx.errors import InputError


def read(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the questions in the order of the file; the label is the coarse class."""
  yield from labelled.hold_out(split, paths, _rows, source.fold)


def _rows(part: str, path: str) -> Iterator[Document]:
  if path.removesuffix('.gz').endswith('.tsv'):
    rows = iter([(row['label'], row['text']) for _, row in labelled.read_table(path, ('label', 'text'))])
  else:
    rows = _lines(path)
  for index, (label, text) in enumerate(rows):
    yield f'{part}-{index}', text, label


def _lines(path: str) -> Iterator[tuple[str, str]]:
  """Yield (coarse class, question) of the published files, 'DESC:manner How did ...' in Latin-1."""
  content = documents.read_bytes(path).decode('latin-1')
  for number, line in enumerate(content.splitlines(), 1):
    kind, space, text = line.strip().partition(' ')
    coarse, colon, _ = kind.partition(':')
    if not (space and colon):
      raise InputError(f'{path}, line {number}: got no "CLASS:subclass " at the start; expected it before the question')
    yield coarse, text
