"""The user's own text files."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator

import tensorflow_datasets.public_api as tfds

from lmx import documents
from lmx.data.builders import base, cells, files
from lmx.errors import InputError, nearest


@dataclasses.dataclass
class TextFilesConfig(base.TextConfig):
  """Options of the user's text.

  Attributes:
    pattern: directory, file, glob, or several separated by commas; '': TFDS's manual_dir.
    documents: unit of a document in a .txt file: 'blank_line' (text between empty lines), 'file' or 'line'.
    split_fraction: share of the training text to hold out for each of `files.held_out_splits`.
  """

  pattern: str = ''
  documents: str = 'blank_line'
  split_fraction: float = 0.05


class Builder(base.TextBuilder):
  """Documents in the order of the files' names."""

  BUILDER_CONFIGS = [TextFilesConfig(name='default')]

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
    pattern = self.builder_config.pattern or os.fspath(dl_manager.manual_dir)
    splits = files.find_texts(pattern)
    generators = {split: self._examples(self._read(paths)) for split, paths in splits.items()}
    if missing := files.held_out_splits(splits, self.builder_config.split_fraction):
      generators |= {split: self._examples(part) for split, part in self._hold_out(splits['train'], missing).items()}
    return generators

  def _examples(self, documents: Iterator[base.Document]) -> Iterator:
    for index, (name, text, label) in enumerate(documents):
      yield index, {'id': name, 'text': text, 'label': label}

  def _read(self, paths: list[str]) -> Iterator[base.Document]:
    for path in paths:
      count = 0
      read = _json_lines(path) if '.jsonl' in os.path.basename(path) else self._plain(path)
      for count, (text, label) in enumerate(read, 1):
        yield f'{os.path.basename(path)}:{count}', text, label
      if not count:
        raise InputError(f'{path}: the file has no text')

  def _plain(self, path: str) -> Iterator[tuple[str, str]]:
    unit = self.builder_config.documents
    lines = documents.read_lines(path)
    if unit == 'blank_line':
      texts = base.blank_line_documents(lines)
    elif unit == 'file':
      texts = iter([''.join(lines)])
    elif unit == 'line':
      texts = lines
    else:
      raise InputError(f'data.documents: unknown "{unit}"{nearest(unit, ("blank_line", "file", "line"))}')
    return ((text.rstrip(), '') for text in texts if text.strip())

  def _hold_out(self, paths: list[str], missing: list[str]) -> dict[str, Iterator[base.Document]]:
    """Split the training text into a training part and the `missing` parts."""
    fraction = self.builder_config.split_fraction
    sizes = dict.fromkeys(['train', *missing], 0)
    lines = 0
    for _, text, _ in self._read(paths):
      sizes[files.hashed_split(text, missing, fraction)] += 1
      lines += text.count('\n') + 1
    if sum(sizes.values()) * fraction >= files.ENOUGH and all(sizes.values()):
      return {split: self._by_hash(paths, split, missing) for split in sizes}
    per_split = math.ceil(lines * fraction)
    if lines <= per_split * len(missing):
      raise InputError(
        f'{", ".join(paths)}: {lines} lines are too few to hold out {" and ".join(missing)} text; '
        'give files named valid* and test*, or set data.split_fraction=0'
      )
    edges = [0, *(lines - per_split * n for n in range(len(missing), 0, -1)), lines]
    return {split: self._by_lines(paths, edges[i], edges[i + 1]) for i, split in enumerate(sizes)}

  def _by_hash(self, paths: list[str], split: str, missing: list[str]) -> Iterator[base.Document]:
    fraction = self.builder_config.split_fraction
    return (document for document in self._read(paths) if files.hashed_split(document[1], missing, fraction) == split)

  def _by_lines(self, paths: list[str], start: int, stop: int) -> Iterator[base.Document]:
    position = 0
    for name, text, label in self._read(paths):
      rows = text.split('\n')
      selected = '\n'.join(rows[max(0, start - position) : max(0, stop - position)])
      position += len(rows)
      if selected.strip():
        yield name, selected, label


def _json_lines(path: str) -> Iterator[tuple[str, str]]:
  for number, row in documents.read_json_lines(path):
    where = f'{path}, line {number}'
    text = documents.field(row, 'text', str, where).rstrip()
    if text:
      yield text, cells.label(row.get('label'), f'{where}: label')
