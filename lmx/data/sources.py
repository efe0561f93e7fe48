"""Data sets by name: their rules, what identifies their content, and their documents in order.

Every data set is a TFDS builder that writes ArrayRecord, read through `as_data_source`, so TensorFlow is not needed.
Prepared data sits in `<cache>/datasets/<name>-<digest>/`, named by the content of the files it was made from; it
appears there by one rename, so what a killed process leaves is never read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import io
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from lmx.data import cache
from lmx.data.builders import files
from lmx.errors import InputError, nearest

SPLITS = ('train', 'valid', 'test', 'unsupervised')
DOCUMENTS = ('auto', 'blank_line', 'file', 'line')
_SIZES = 'sizes.json'  # in a prepared directory: size of each file
_BATCH = 256  # records asked of ArrayRecord at once
_LM1B_VALID = 0.02  # 1B words: share of the held-out part that is used for validation, the rest is test


@dataclasses.dataclass(frozen=True)
class Rules:
  """How a data set is to be tokenised.

  Attributes:
    words: rule of the `words` tokenizer, see `lmx.data.tokenizers.Words`.
    stream: a split is one document, in several examples.
    sentences: mode of `lmx.data.sentences.split`, 'auto' (seen from the text) or '' (no sentences).
    version: version of the builder.
    token_labels: a document's label is the labels of its words, with spaces between them.
  """

  words: str
  stream: bool
  sentences: str
  version: str = files.VERSION
  token_labels: bool = False

  @property
  def document_eos(self) -> bool:
    """Do bytes, characters and words of prose end a document with `<eos>`?"""
    return self.words == 'prose' and not self.stream


RULES = {
  'embedded': Rules('prose', False, 'prose'),
  'embedded_topics': Rules('prose', False, ''),
  'text_files': Rules('prose', False, 'auto'),
  'ptb': Rules('lines', True, 'lines'),
  'ptb_characters': Rules('lines', True, 'lines'),
  'wikitext2': Rules('lines', False, 'prose'),
  'wikitext103': Rules('lines', False, 'prose'),
  'text8': Rules('space', True, ''),
  'enwik8': Rules('prose', True, ''),
  'brown': Rules('lines', False, 'lines'),
  'brown_stream': Rules('space', True, ''),
  'lm1b': Rules('lines', False, 'lines', version='1.1.0'),
  'trec': Rules('prose', False, ''),
  'imdb': Rules('prose', False, ''),
  'embedded_tags': Rules('space', False, '', token_labels=True),
  'sst2': Rules('space', False, ''),
  'sst2_phrases': Rules('space', False, ''),
  'wnut17': Rules('space', False, '', token_labels=True),
}


@dataclasses.dataclass(frozen=True)
class Source:
  """A data set and its options; see `lmx.data.corpus.load` for the fields."""

  name: str
  manual_dir: str = ''
  check_sizes: bool = True
  documents: str = 'auto'
  split_fraction: float = 0.05

  def __post_init__(self):
    if self.name not in RULES:
      raise InputError(f'unknown data set "{self.name}"{nearest(self.name, RULES)}')
    if self.documents not in DOCUMENTS:
      raise InputError(f'data.documents is "{self.documents}"{nearest(self.documents, DOCUMENTS)}')
    if not 0 <= self.split_fraction < 0.5:
      raise InputError(f'data.split_fraction is {self.split_fraction}; it must be at least 0 and below 0.5')

  @property
  def rules(self) -> Rules:
    """The data set's rules."""
    return RULES[self.name]

  def identity(self) -> dict[str, Any]:
    """What the content depends on, JSON-able: name, version, digests of the files, options."""
    identity: dict[str, Any] = {'name': self.name, 'version': self.rules.version}
    if self.name.startswith('embedded'):
      prose = importlib.import_module('lmx.data.builders.embedded.prose')
      return identity | prose.fingerprint()
    if self.name == 'text_files':
      found = files.find_texts(self.manual_dir)
      identity |= {'documents': self._documents, 'split_fraction': self.split_fraction}
      return identity | {'files': {split: [_digest(p) for p in paths] for split, paths in sorted(found.items())}}
    if self.name == 'lm1b':
      return identity
    identity['check_sizes'] = self.check_sizes
    if not self.manual_dir:
      return identity | {'downloads': _checksums(self.name)}
    found_parts = files.find(self.name, self.manual_dir)
    inputs = {part: [_digest(path)] for part, path in sorted(found_parts.items())}
    if 'all' in inputs and self.name.startswith('brown'):  # the texts lie beside the list of categories
      folder = os.path.dirname(found_parts['all'])
      inputs['texts'] = [_digest(os.path.join(folder, name)) for name in sorted(os.listdir(folder)) if len(name) == 4]
    if self.name == 'imdb' and not found_parts['train'].removesuffix('.gz').endswith('.tsv'):
      inputs['texts'] = [[part, _listing(os.path.dirname(path))] for part, path in sorted(found_parts.items())]
    return identity | {'files': inputs}

  @property
  def _documents(self) -> str:
    return 'blank_line' if self.documents == 'auto' else self.documents


def open_splits(source: Source, cache_dir: str = '') -> dict[str, Examples]:
  """Prepares the data set unless that was done, and opens its splits. Raises InputError."""
  with _quiet():
    if source.name == 'lm1b':
      return _open_lm1b(source, cache.root(cache_dir))
    identity = source.identity()
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    directory = os.path.join(cache.root(cache_dir), 'datasets', f'{source.name}-{key}')
    cache.build(directory, lambda temporary: _prepare(source, temporary, cache.root(cache_dir)))
    _check_sizes(directory)
    builder = _builder(source, directory)
    return {split: Examples(builder.as_data_source(split)) for split in SPLITS if split in builder.info.splits}


class Examples:
  """The documents of a split, in order."""

  def __init__(self, records: Any):
    self._records = records

  def __len__(self) -> int:
    return len(self._records)

  def __iter__(self) -> Iterator[tuple[str, str, str]]:
    """Yields id, text, label ('' where there is none)."""
    for start in range(0, len(self._records), _BATCH):
      indices = list(range(start, min(start + _BATCH, len(self._records))))
      rows = self._records.__getitems__(indices)
      for index, row in zip(indices, rows, strict=True):
        name = row['id'].decode() if 'id' in row else str(index)
        # A byte stream's split may cut a character; surrogates carry its bytes through.
        text = row['text'].decode('utf-8', 'surrogateescape')
        yield name, text if 'id' in row else text + '\n', row['label'].decode() if 'label' in row else ''


def _builder(source: Source, directory: str) -> Any:
  module = importlib.import_module(f'lmx.data.builders.{source.name}.{source.name}_dataset_builder')
  if source.name == 'text_files':
    config = module.TextFilesConfig(
      name='files', pattern=source.manual_dir, documents=source._documents, split_fraction=source.split_fraction
    )
  else:
    config = 'default' if source.check_sizes or source.name.startswith('embedded') else 'unchecked'
  return module.Builder(data_dir=directory, config=config)


def _prepare(source: Source, directory: str, root: str) -> None:
  import tensorflow_datasets as tfds  # seconds to import, and needless when the data is ready

  config = tfds.download.DownloadConfig()
  if source.manual_dir and source.name != 'text_files':
    config.manual_dir = os.path.abspath(source.manual_dir)
  try:
    with contextlib.redirect_stdout(io.StringIO()):  # TFDS prints what it is going to do
      _builder(source, directory).download_and_prepare(
        download_dir=os.path.join(root, 'downloads'), download_config=config, file_format='array_record'
      )
  except Exception as error:  # TFDS wraps what a builder raises
    cause: BaseException | None = error
    while cause is not None:
      if isinstance(cause, InputError) or cache.is_disk_error(cause):
        raise cause from None
      cause = cause.__cause__ or cause.__context__
    raise
  _record_sizes(directory)


def _record_sizes(directory: str) -> None:
  """Notes the size of every prepared file: ArrayRecord reads a truncated one without complaint."""
  sizes = {}
  for folder, _, names in os.walk(directory):
    for name in names:
      path = os.path.join(folder, name)
      sizes[os.path.relpath(path, directory)] = os.path.getsize(path)
  with open(os.path.join(directory, _SIZES), 'w', encoding='utf-8') as file:
    json.dump(sizes, file, indent=1, sort_keys=True)


def _check_sizes(directory: str) -> None:
  advice = f'delete the directory {directory} and run again'
  path = os.path.join(directory, _SIZES)
  try:
    with open(path, encoding='utf-8') as file:
      sizes = dict(json.load(file))
  except (OSError, ValueError) as error:
    raise InputError(f'{path}: cannot be read ({error}); {advice}') from error
  for name, size in sizes.items():
    path = os.path.join(directory, name)
    found = os.path.getsize(path) if os.path.exists(path) else None
    if found != size:
      state = 'is missing' if found is None else f'has {found:,} bytes instead of {size:,}'
      raise InputError(f'{path}: the prepared data is damaged, the file {state}; {advice}')


def _open_lm1b(source: Source, root: str) -> dict[str, Examples]:
  import tensorflow_datasets as tfds

  version = source.rules.version
  base = source.manual_dir or os.path.join(root, 'datasets')
  directory = next(
    (
      path
      for path in (os.path.join(base, 'lm1b', version), os.path.join(base, version), base)
      if os.path.exists(os.path.join(path, 'dataset_info.json'))
    ),
    None,
  )
  if directory is None:
    if importlib.util.find_spec('tensorflow') is None:
      raise InputError(
        f'data set lm1b: no prepared copy in {base}. TFDS prepares it with TensorFlow, once: install lmx[tf] and run '
        'this again, or prepare it elsewhere with tfds.builder("lm1b").download_and_prepare(file_format='
        '"array_record") and name its data_dir with data.manual_dir'
      )
    builder = tfds.builder('lm1b', data_dir=base)
    builder.download_and_prepare(file_format='array_record')
  else:
    builder = tfds.builder_from_directory(directory)
  cut = round(builder.info.splits['test'].num_examples * _LM1B_VALID)
  parts = {'train': 'train', 'valid': f'test[:{cut}]', 'test': f'test[{cut}:]'}
  return {split: Examples(builder.as_data_source(part)) for split, part in parts.items()}


@contextlib.contextmanager
def _quiet():
  """Keeps TFDS's log lines, and its progress bars where there is no terminal, off the screen."""
  import tensorflow_datasets as tfds
  from absl import logging

  before = logging.get_verbosity()
  logging.set_verbosity(logging.ERROR)
  if not sys.stderr.isatty():
    tfds.disable_progress_bar()
  try:
    yield
  finally:
    logging.set_verbosity(before)


def _digest(path: str) -> list[str]:
  return [os.path.basename(path), cache.sha256(path)]


def _listing(folder: str) -> str:
  """Digest of the names and sizes of all files below a folder: a hundred thousand of them are not read for it."""
  digest = hashlib.sha256()
  for directory, folders, names in os.walk(folder):
    folders.sort()
    for name in sorted(names):
      path = os.path.join(directory, name)
      digest.update(f'{os.path.relpath(path, folder)}\0{os.path.getsize(path)}\0'.encode())
  return digest.hexdigest()


def _checksums(name: str) -> list[str]:
  folder = os.path.join(os.path.dirname(files.__file__), name)
  with open(os.path.join(folder, 'checksums.tsv'), encoding='utf-8') as file:
    return [line.split('\t')[2] for line in file]
