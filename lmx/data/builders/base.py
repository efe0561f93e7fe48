"""Shared parts of all builders: one example is one document {id, text, label}, in the order of the source.

A data set that is one stream (Penn Treebank, text8, enwik8) is split into examples of about a megabyte at line ends or
spaces; readers concatenate them again.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import tensorflow_datasets.public_api as tfds

from lmx import documents
from lmx.data.builders import files
from lmx.errors import InputError, explain

Document = tuple[str, Any, str]  # id, text (str, or bytes for a byte stream), label ('' for none)
EXAMPLE_SIZE = 1_000_000  # characters in an example of a stream


@dataclasses.dataclass
class TextConfig(tfds.core.BuilderConfig):
  """Options of a text data set.

  Attributes:
    check_sizes: compare the splits with the published sizes.
  """

  check_sizes: bool = True


CHECKED = [TextConfig(name='default'), TextConfig(name='unchecked', check_sizes=False)]


class _Info(tfds.core.DatasetInfo):
  """Dataset info of a data set that is not in TFDS's bucket."""

  def initialize_from_bucket(self) -> None:
    """Skip the bucket: TFDS would create a temporary folder each time and not remove it."""


class TextBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
  """Base class of document data sets; a subclass defines URLS, EXPECTED and `documents`."""

  VERSION = tfds.core.Version(files.VERSION)
  MANUAL_DOWNLOAD_INSTRUCTIONS = 'Files in manual_dir are used before a download is tried.'
  URLS: dict[str, str] = {}  # name of the file -> address; archives are unpacked
  EXPECTED: dict[str, dict[str, int]] = {}  # split -> unit -> published size
  SPLITS: tuple[str, ...] = ('train', 'valid', 'test')
  FEATURES: tuple[str, ...] = ('id', 'text', 'label')  # texts, or bytes

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[Document]:
    """Yield the documents of a split, in order; `paths` is the result of `files.find`."""
    raise TypeError(f'{type(self).__name__} must define documents()')

  def sizes(self, text: Any) -> dict[str, int]:
    """Return the size of a document in the units of EXPECTED: tokens with one `<eos>` per line."""
    return {'tokens': len(text.split()) + text.count('\n')}

  def _info(self) -> tfds.core.DatasetInfo:
    features = tfds.features.FeaturesDict({name: tfds.features.Text() for name in self.FEATURES})
    metadata = self.get_metadata()
    return _Info(
      builder=self,
      description=metadata.description,
      citation=metadata.citation,
      features=features,
      disable_shuffling=True,
    )

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
    paths = self._paths(dl_manager)
    return {split: self._generate_examples(split, paths) for split in self.SPLITS}

  def _generate_examples(self, split: str, paths: dict[str, str]) -> Iterator:
    counts: dict[str, int] = {}
    index = -1
    for index, (name, text, label) in enumerate(self.documents(split, paths)):
      if self.builder_config.check_sizes:
        for unit, size in self.sizes(text).items():
          counts[unit] = counts.get(unit, 0) + size
      yield index, {'id': name, 'text': text, 'label': label}
    if index < 0:
      among = f' in {", ".join(_names(paths))}' if paths else ''
      raise InputError(f'data set {self.name}, split {split}: got no examples{among}; expected at least one')
    for unit, size in self.EXPECTED.get(split, {}).items():
      self.check_size(split, unit, counts.get(unit, 0), size, paths)

  def check_size(self, split: str, unit: str, count: int, size: int, paths: dict[str, str]) -> None:
    """Raise InputError unless a split has the published size, if sizes are checked."""
    if self.builder_config.check_sizes and count != size:
      raise InputError(
        f'data set {self.name}, split {split}: got {count:,} {unit} in '
        f'{", ".join(sorted(set(paths.values())))}; expected {size:,}; check the files, or set data.check_sizes=False'
      )

  def _paths(self, dl_manager: tfds.download.DownloadManager) -> Any:
    try:
      manual = os.fspath(dl_manager.manual_dir)
    except AssertionError:  # raised by TFDS if there is no such directory
      manual = ''
    if manual:
      return self.find_files(manual)
    urls = self.urls()
    try:
      paths = self.fetch(dl_manager, urls)
    except Exception as error:  # every kind of network error
      raise InputError(
        f'data set {self.name}: could not be downloaded from {", ".join(urls.values())} ({explain(error)}); '
        'copy its files to a directory and set data.manual_dir to it'
      ) from error
    return self.find_downloads({name: os.fspath(path) for name, path in paths.items()})

  def urls(self) -> dict[str, str]:
    """Return {name: address} of the downloads, {} if there are none."""
    return dict(self.URLS)

  def fetch(self, dl_manager: tfds.download.DownloadManager, urls: dict[str, str]) -> dict[str, Any]:
    """Download the addresses; return {name: path}, archives unpacked."""
    return dl_manager.download_and_extract(urls)

  def find_files(self, directory: str) -> Any:
    """Return {part: path} of the files in the user's directory."""
    return files.find(self.name, directory)

  def find_downloads(self, paths: dict[str, str]) -> Any:
    """Return {part: path} of the downloads; `paths` is URLS with local files or unpacked folders."""
    (folder,) = paths.values()
    return files.find(self.name, folder)


def _names(paths: Any) -> list[str]:
  """Return the paths in nested groups of paths, each once, sorted."""
  if isinstance(paths, str):
    return [paths]
  groups = paths.values() if isinstance(paths, dict) else paths
  return sorted({path for group in groups for path in _names(group)})


def join_lines(lines: Iterator[str]) -> Iterator[str]:
  """Join lines into texts of about EXAMPLE_SIZE characters."""
  batch: list[str] = []
  size = 0
  for line in lines:
    batch.append(line)
    size += len(line)
    if size >= EXAMPLE_SIZE:
      yield ''.join(batch)
      batch, size = [], 0
  if batch:
    yield ''.join(batch)


def read_range(path: str, start: int, stop: int) -> Iterator[bytes]:
  """Yield bytes start .. stop of a file in parts that end before a space, so words are split only at start and stop."""
  position, pending = 0, b''
  for block in documents.read_blocks(path):
    pending += block[max(0, start - position) : max(0, stop - position)]
    position += len(block)
    while len(pending) >= EXAMPLE_SIZE and (at := pending.find(b' ', EXAMPLE_SIZE)) > 0:
      yield pending[:at]
      pending = pending[at:]
    if position >= stop:
      break
  if pending:
    yield pending


def blank_line_documents(lines: Iterator[str]) -> Iterator[str]:
  """Yield the documents of a text, separated by empty lines."""
  document: list[str] = []
  for line in lines:
    if line.strip():
      document.append(line)
    elif document:
      yield ''.join(document)
      document = []
  if document:
    yield ''.join(document)
