"""The TFDS builder of a row of `lmx.data.datasets`: an example is a document {id, text, label}, in the source's order.

A data set that is one stream (Penn Treebank, text8, enwik8) is split into examples of about a megabyte at line ends or
spaces; readers concatenate them again.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow_datasets.public_api as tfds

from lmx.data.builders import files, labelled
from lmx.data.builders.files import Document
from lmx.errors import InputError

# Unit of a published size -> size of a document; other units count examples: rows, pairs or questions.
UNITS: dict[str, Callable[[Any], int]] = {
  'tokens': lambda text: len(text.split()) + text.count('\n'),  # with one `<eos>` per line
  'words': lambda text: len(text.split()),
  'lines': lambda text: text.count('\n'),
  'characters': len,
}
_FOLDER = pathlib.Path(__file__).parent


@dataclasses.dataclass
class Config(tfds.core.BuilderConfig):
  """The data set that a builder prepares.

  Attributes:
    source: the `lmx.data.sources.Config`.
  """

  source: Any = None


class _Info(tfds.core.DatasetInfo):
  """Dataset info of a data set that is not in TFDS's bucket."""

  def initialize_from_bucket(self) -> None:
    """Skip the bucket: TFDS would create a temporary folder each time and not remove it."""


class TextBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
  """Builder of documents; `read` of the data set's row yields them. Other kinds are subclasses."""

  VERSION = tfds.core.Version(files.VERSION)
  FEATURES: tuple[str, ...] = ('id', 'text', 'label')  # texts, or bytes

  @property
  def source(self) -> Any:
    """Return the `lmx.data.sources.Config`."""
    return self.builder_config.source

  @property
  def dataset(self) -> Any:
    """Return the row of the data set, a `lmx.data.datasets.DataSet`."""
    return self.source.rules

  def documents(self, split: str, paths: Any) -> Iterator[Document]:
    """Yield the documents of a split, in order; `paths` is the result of `find_files`."""
    documents: Iterator[Document] = files.function(self.dataset.read)(split, paths, self.source)
    return documents

  def find_files(self, directory: str) -> Any:
    """Return {part: path} of the files in a directory."""
    return files.find(self.source.dataset, self.dataset.layout, directory)

  def splits(self, paths: Any) -> list[str]:
    """Return the splits, given the result of `find_files`."""
    optional = self.dataset.layout.optional if self.dataset.layout else ()
    return [*self.dataset.splits, *(part for part in optional if part in paths)]

  def size(self, split: str, paths: Any) -> Mapping[str, int]:
    """Return the published size of a split by unit, {} if it is unknown."""
    del paths
    found, fold = self.dataset.sizes, self.source.fold
    if not fold or split not in ('train', 'valid'):
      return found.get(split, {})
    return {unit: labelled.size(split, size + found['valid'][unit], fold) for unit, size in found['train'].items()}

  def _info(self) -> tfds.core.DatasetInfo:
    return _Info(
      builder=self,
      description=_descriptions().get(self.name, self.dataset.about),
      citation='\n\n'.join(_citations()[key] for key in self.dataset.cite),
      features=tfds.features.FeaturesDict({name: tfds.features.Text() for name in self.FEATURES}),
      disable_shuffling=True,
    )

  def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
    paths = self._paths(dl_manager)
    if self.source.fold and 'valid' in paths:
      raise InputError(
        f'data.fold: got {self.source.fold}, but the validation split of data set {self.source.dataset} has a file, '
        f'{", ".join(files.flat(paths["valid"]))}; expected 0, or training rows from which a fold is held out'
      )
    return {split: self._generate_examples(split, paths) for split in self.splits(paths)}

  def _generate_examples(self, split: str, paths: Any) -> Iterator:
    published = self.size(split, paths) if self.source.check_sizes else {}
    found = dict.fromkeys(published, 0)
    index = -1
    for index, (name, text, label) in enumerate(self.documents(split, paths)):
      for unit in found.keys() & UNITS.keys():
        found[unit] += UNITS[unit](text)
      yield index, {'id': name, 'text': text, 'label': label}
    if index < 0:
      among = f' in {", ".join(files.flat(paths))}' if paths else ''
      is_held_out = split in self.source.held_out_splits()
      fix = f', held out of the training rows; give a file {split}.*, or raise data.split_fraction' * is_held_out
      where = f'data set {self.source.dataset}, split {split}'
      raise InputError(f'{where}: got no examples{among}; expected at least one{fix}')
    examples = (index + 1) // self.source.documents_per_example
    read = paths[split] if isinstance(paths, dict) and split in paths else paths
    for unit, size in published.items():
      count = found[unit] if unit in UNITS else examples
      files.check_size(self.source.dataset, split, unit, count, size, files.flat(read))

  def _paths(self, dl_manager: tfds.download.DownloadManager) -> Any:
    if self.source.manual_dir and not self.source.dataset.startswith('embedded'):
      return self.find_files(self.source.manual_dir)
    urls = self.dataset.urls
    if not urls and self.dataset.layout is None:  # generated
      return {}
    if not urls:
      raise InputError(
        f'data.manual_dir: got no directory of data set {self.source.dataset}, which is not downloaded; '
        'expected the directory of its files'
      )
    try:
      paths = self._fetch(dl_manager)
    except Exception as error:  # every kind of network error
      raise InputError(
        f'data set {self.name}: could not be downloaded from {", ".join(urls.values())} ({error}); '
        'copy its files to a directory and set data.manual_dir to it'
      ) from error
    return paths if 'archive' not in urls else self.find_files(paths['archive'])

  def _fetch(self, dl_manager: tfds.download.DownloadManager) -> dict[str, str]:
    """Return {name: path} of the downloads, archives unpacked."""
    paths = dl_manager.download_and_extract(dict(self.dataset.urls))
    return {name: os.fspath(path) for name, path in paths.items()}


class OwnFiles:
  """Mixin of the builders of the user's files; splits without a file are held out of the training rows by a hash."""

  source: Any

  def splits(self, paths: Any) -> list[str]:
    """Return the splits with files, and those held out."""
    return [*paths, *self.source.held_out_splits()]

  def size(self, split: str, paths: Any) -> Mapping[str, int]:
    """Return {}: no size is published."""
    del split, paths
    return {}

  def rows_of(self, split: str) -> tuple[str, Callable[[str], bool]]:
    """Return the split whose files hold a split's rows, and a function that is True for the texts of its rows."""
    missing = self.source.held_out_splits()
    if split != 'train' and split not in missing or not missing:
      return split, lambda text: True
    chosen = missing, self.source.split_fraction, self.source.fold
    return 'train', lambda text: files.hashed_split(text, *chosen) == split


def make(base: type[TextBuilder], source: Any, name: str, directory: str) -> TextBuilder:
  """Return the builder of a data set.

  Args:
    base: class of its kind.
    source: the `lmx.data.sources.Config`.
    name: name of the config, a folder of the prepared data.
    directory: folder of the prepared data.
  """
  attributes = {'name': source.dataset.partition('/')[0], '__module__': __name__}  # next to checksums.tsv
  cls = types.new_class(base.__name__, (base,), {'skip_registration': True}, lambda body: body.update(attributes))
  builder: TextBuilder = cls(data_dir=directory, config=Config(name=name, source=source))
  return builder


@functools.cache
def _descriptions() -> dict[str, str]:
  """Return the sections of descriptions.md by heading."""
  _, *sections = (_FOLDER / 'descriptions.md').read_text(encoding='utf-8').split('\n## ')
  return {name: text.strip() for name, _, text in (section.partition('\n') for section in sections)}


@functools.cache
def _citations() -> dict[str, str]:
  """Return the entries of CITATIONS.bib by key."""
  entries = (_FOLDER / 'CITATIONS.bib').read_text(encoding='utf-8').strip().split('\n\n')
  return {re.split('[{,]', entry)[1]: entry for entry in entries}
