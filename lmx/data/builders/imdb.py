"""Large movie review data set (Maas et al. 2011): 50,000 reviews, half of each sentiment, and 50,000 unlabelled."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from lmx import documents
from lmx.data.builders import labelled
from lmx.data.builders.files import Document
from lmx.errors import InputError

_FOLDERS = {'train': ('neg', 'pos'), 'test': ('neg', 'pos'), 'unsupervised': ('unsup',)}
_SENTIMENT = {'0': 'neg', '1': 'pos', 'neg': 'neg', 'pos': 'pos', 'unsup': ''}


def read(split: str, paths: dict[str, str], source: Any) -> Iterator[Document]:
  """Yield the reviews by sentiment, then number; 'unsupervised' if the unpacked archive has it."""
  yield from labelled.hold_out(split, paths, _reviews, source.fold)


def _reviews(part: str, path: str) -> Iterator[Document]:
  rows = _table if path.removesuffix('.gz').endswith('.tsv') else _folders
  for name, text, label in sorted(rows(part, path), key=lambda row: (row[2], _number(row[0]))):
    yield f'{part}-{label}-{name}', text.replace('<br />', '\n'), label


def _number(name: str) -> int:
  """Return the review's number in a name such as '127_10' or 'pos_127'."""
  match = re.search(r'\d+', name)
  return int(match.group()) if match else 0


def _table(part: str, path: str) -> Iterator[Document]:
  del part
  for number, row in labelled.read_table(path, ('label', 'id', 'text')):
    if row['label'] not in _SENTIMENT:
      raise InputError(f'{path}, line {number}: label: got {row["label"]}; expected 0 (negative) or 1 (positive)')
    yield row['id'], row['text'], _SENTIMENT[row['label']]


def _folders(part: str, path: str) -> Iterator[Document]:
  for folder in _FOLDERS[part]:
    directory = os.path.join(os.path.dirname(path.rstrip(os.sep)), folder)
    for name in documents.list_names(directory):
      if name.endswith('.txt'):
        text = documents.read_bytes(os.path.join(directory, name)).decode('utf-8', 'replace')
        yield name.removesuffix('.txt'), text, _SENTIMENT[folder]
