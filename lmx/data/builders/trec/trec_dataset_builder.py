"""TREC questions classified by the type of their answer (Li and Roth 2002): six classes."""

from __future__ import annotations

from collections.abc import Iterator

from lmx import documents
from lmx.data.builders import base, labelled
from lmx.errors import InputError

_URL = 'https://cogcomp.seas.upenn.edu/Data/QA/QC/'


class Builder(labelled.LabelledBuilder):
  """Questions in the order of the file; the label is the coarse class."""

  BUILDER_CONFIGS = base.CHECKED
  URLS = {'train': _URL + 'train_5500.label', 'test': _URL + 'TREC_10.label'}
  EXPECTED = {'train': {'documents': 4_907}, 'valid': {'documents': 545}, 'test': {'documents': 500}}

  def labelled(self, part: str, path: str) -> Iterator[base.Document]:
    if path.removesuffix('.gz').endswith('.tsv'):
      rows = iter([(row['label'], row['text']) for _, row in labelled.read_table(path, ('label', 'text'))])
    else:
      rows = _lines(path)
    for index, (label, text) in enumerate(rows):
      yield f'{part}-{index}', text, label

  def find_downloads(self, paths: dict[str, str]) -> dict[str, str]:
    return paths


def _lines(path: str) -> Iterator[tuple[str, str]]:
  """Yield (coarse class, question) of the published files, 'DESC:manner How did ...' in Latin-1."""
  content = documents.read_bytes(path).decode('latin-1')
  for number, line in enumerate(content.splitlines(), 1):
    kind, space, text = line.strip().partition(' ')
    coarse, colon, _ = kind.partition(':')
    if not (space and colon):
      raise InputError(f'{path}, line {number}: expected "CLASS:subclass " at the start')
    yield coarse, text
