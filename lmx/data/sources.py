"""Data sets by name: their rules, the identity of their content, and their documents in order.

Every data set is a TFDS builder that writes ArrayRecord, read through `as_data_source`, so TensorFlow is not needed.
Prepared data is in `<cache>/datasets/<name>-<digest>/`, named by the content of its source files. It
appears there by one rename, so partial output of a killed process is never read.
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
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from lmx import documents, ranges, storage
from lmx.data import cache, text_files
from lmx.data.builders import files, split_files
from lmx.data.datasets import DATA_SETS, TFDS, DataSet
from lmx.errors import InputError, InputWarning, check_choice, nearest

SPLITS = (
  'train',
  'valid',
  'test',
  'test_2017',
  'test_coco',
  'test_brown',
  'valid_mismatched',
  'test_mismatched',
  'unsupervised',
)
DOCUMENTS = ('auto', 'blank_line', 'file', 'line')
_SIZES = 'sizes.json'  # in a prepared directory: size and SHA-256 of each file
_BATCH = 256  # records read from ArrayRecord at once
_LM1B_VALID = 0.02  # 1B words: share of the held-out part used for validation, the rest is test


OWN = (
  'text_files',
  'parallel_files',
  'table_files',
  'tagged_files',
  'segmentation_files',
)  # data sets of user files, assigned to splits by their names
NAMED_SPLITS = (
  'text_files',
  'parallel_files',
  'table_files',
  'tagged_files',
  'squad_files',
)  # whose file names give their splits
OWN_TABLE = ('texts', 'label', 'scores')  # fields that describe table_files
_BUILDERS = {  # kind -> module of lmx.data.builders and class
  'table': ('table_builder', 'TableBuilder'),
  'questions': ('question_builder', 'QuestionBuilder'),
  'parallel': ('pairs', 'PairBuilder'),
  'segmentation': ('image_builder', 'ImageBuilder'),
}
_OWN_BUILDERS = {  # of the user's files
  'table_files': ('table_builder', 'OwnTableBuilder'),
  'tagged_files': ('tagged_builder', 'OwnTaggedBuilder'),
  'parallel_files': ('pairs', 'OwnPairBuilder'),
}


class Damaged(InputError):
  """A file of the prepared data is missing or has changed."""


@dataclasses.dataclass(frozen=True)
class Config:
  """A data set and its source: the first part of a config's `data` section.

  Attributes:
    dataset: name of the data set; 'generated' if the batching generates its rows ('algorithmic', 'scenes').
    manual_dir: directory with the data set's files, if it is not downloaded or embedded; for text_files also a file,
      a glob, or several separated by commas, each local or in a bucket (gs://...). For segmentation_files see
      lmx/data/builders/segmentation.py.
    cache_dir: directory of prepared and tokenized data; '' is LMX_CACHE, or the user's cache directory. A gs:// address
      keeps tokenized data in a bucket, from which its tokens are read; a host keeps the blocks that it has read.
    check_sizes: reject files whose checksum, or splits whose size, is not the published one.
    documents: document unit in the user's text files: 'blank_line' (also 'auto'), 'file' or 'line'.
    split_fraction: share of the user's training data held out for validation if no file is named for it, and the
      same for testing.
    fold: number of the fold of the training data held out for validation: all folds together are a cross-validation. Of
      published data without a validation split, ten folds from 0; of the user's labelled rows, 1 / split_fraction.
    hold_out_test: hold out test data if files are named for validation and none for testing; else the validation
      split is the one to evaluate (evaluation.split=valid).
    source: language to translate from, in data sets of translations; '' is the data set's default.
    target: language to translate into; the reverse direction and other pairs of the data set's languages are possible.
    texts: columns of the text, or of both texts, in data set table_files.
    label: column of the label in table_files.
    scores: True if that column has numeric scores.
    split_names: rule for splits in the user's file names: 'words' (lmx/data/builders/split_files.py), or 'prefixes' of
      earlier versions, where `testimonials.csv` is a test file.
    column: field of the text in the .jsonl and .parquet files of text_files.
    words: number of words of the training text, separated by white space; 0 is all. The document that exceeds it ends
      after its last word (lmx/data/word_budget.py). The vocabulary is trained on these words, too.
  """

  dataset: str = 'embedded'
  manual_dir: str = ''
  cache_dir: str = ''
  check_sizes: bool = True
  documents: str = 'auto'
  split_fraction: float = 0.05
  fold: int = 0
  hold_out_test: bool = True
  source: str = ''
  target: str = ''
  texts: Annotated[tuple[Annotated[str, ranges.Text()], ...], ranges.Distinct()] = ('text',)
  label: str = 'label'
  scores: bool = False
  split_names: str = 'words'
  column: str = 'text'
  words: int = 0

  def __post_init__(self) -> None:
    if self.dataset not in DATA_SETS:
      raise InputError(f'data.dataset: unknown "{self.dataset}"{nearest(self.dataset, DATA_SETS)}')
    changed = [f.name for f in dataclasses.fields(self) if f.name in OWN_TABLE and getattr(self, f.name) != f.default]
    if changed and self.dataset != 'table_files':
      raise InputError(
        f'data.{changed[0]}: got a value with data set {self.dataset}; expected the default, because it '
        'describes the tables of table_files'
      )
    if self.column != 'text' and self.dataset != 'text_files':
      raise InputError(f'data.column: got "{self.column}" with data set {self.dataset}; it is a field of text_files')
    if storage.is_remote(self.manual_dir) and self.dataset != 'text_files' and self.dataset not in TFDS:
      raise InputError(
        f'data.manual_dir: got {self.manual_dir} with data set {self.dataset}; expected a local folder, because only '
        'text_files are read from a bucket; copy it: gcloud storage cp --recursive'
      )
    if not 1 <= len(self.texts) <= 2:
      raise InputError(f'data.texts: got {len(self.texts)} columns; expected one or two')
    check_choice('data.split_names', self.split_names, split_files.NAMES)
    if self.split_names != 'words' and self.dataset not in NAMED_SPLITS:
      raise InputError(
        f'data.split_names: got "{self.split_names}" with data set {self.dataset}; expected "words", because its '
        'files have fixed names; omit it'
      )
    if self.documents not in DOCUMENTS:
      raise InputError(f'data.documents: unknown "{self.documents}"{nearest(self.documents, DOCUMENTS)}')
    if not 0 <= self.split_fraction < 0.5:
      raise InputError(f'data.split_fraction: got {self.split_fraction}; expected at least 0 and below 0.5')
    self._check_fold()
    self._check_sides()
    if self.words < 0 or self.words and not self.rules.running_text:
      raise InputError(
        f'data.words: got {self.words:,} with data set {self.dataset}; expected 0'
        + (', because its rows are no running text; omit it' if self.words > 0 else ', or a number of words')
      )

  @property
  def rules(self) -> DataSet:
    """The row of the data set."""
    return DATA_SETS[self.dataset]

  @property
  def documents_per_example(self) -> int:
    """Number of documents per example: two for translations and questions on passages, the texts of a row, else 1."""
    if self.rules.table:
      return self.rules.texts or len(self.rules.columns.texts or self.texts)
    return 2 if self.rules.pair or self.rules.spans else 1

  @property
  def sides(self) -> tuple[str, str] | None:
    """Source and target languages of a parallel data set, None for others."""
    return self.rules.languages(self.source, self.target)

  @property
  def keeps_file_documents(self) -> bool:
    """Return True if labelled sentences are kept with the number of their document in the file."""
    return False

  @property
  def folds(self) -> int:
    """Number of folds that the training data can be divided into; 1 if no fold can be held out."""
    if self.dataset in ('table_files', 'tagged_files'):
      return int(1 / self.split_fraction + 1e-6) if self.split_fraction else 1
    return files.FOLDS if self.rules.table or self.dataset in ('imdb', 'trec') else 1

  def _check_fold(self) -> None:
    if not 0 <= self.fold < self.folds:
      kind = 'has one validation split' if self.folds == 1 else f'has {self.folds} folds, from 0'
      raise InputError(
        f'data.fold: got {self.fold}; data set {self.dataset} {kind}'
        + (', of data.split_fraction each' if self.folds > 1 and self.dataset in OWN else '')
      )

  def _check_sides(self) -> None:
    for field in ('source', 'target'):
      language = getattr(self, field)
      if language and not self.rules.pair:
        pairs = [name for name, rules in DATA_SETS.items() if rules.pair]
        raise InputError(
          f'data.{field}: got data set {self.dataset}; expected one of translations ({", ".join(pairs)})'
        )
      if language and self.rules.sides and language not in self.rules.sides:
        raise InputError(
          f'data.{field}: got "{language}", which {self.dataset} does not have{nearest(language, self.rules.sides)}'
        )
    if self.sides and self.sides[0] == self.sides[1]:
      raise InputError(f'data.source and data.target: got "{self.sides[0]}" for both; expected two languages')

  def identity(self) -> dict[str, Any]:
    """Return everything that determines the content, for JSON: name, version, digests of the files, options."""
    return self.source_identity() | ({'words': self.words} if self.words else {})

  def source_identity(self) -> dict[str, Any]:
    """Return the identity of the whole data set, whatever part of it is read."""
    identity: dict[str, Any] = {'name': self.dataset, 'version': self.rules.version}
    identity |= {'fold': self.fold} if self.fold else {}
    if self.sides:
      return identity | self._pair_identity()
    if self.dataset.startswith('embedded'):
      prose = importlib.import_module('lmx.data.builders.prose')
      return identity | prose.fingerprint()
    if self.dataset == 'text_files':
      digests = {split: [_digest(p) for p in paths] for split, paths in sorted(self._own_files().items())}
      identity |= {'column': self.column} if self.column != 'text' else {}
      return identity | {'documents': self._documents, 'held_out': self._held_out_shares(), 'files': digests}
    if self.dataset == 'tagged_files':
      digests = {split: [_digest(p) for p in paths] for split, paths in sorted(self._own_files().items())}
      return identity | {'held_out': self._held_out_shares(), 'files': digests}
    if (self.rules.table or self.rules.spans) and not self.dataset.startswith('embedded'):
      return identity | self._own_identity()
    if self.rules.images:
      return identity | self._image_identity()
    if self.dataset == 'lm1b':
      return identity
    identity['check_sizes'] = self.check_sizes
    if not self.manual_dir:
      return identity | {'downloads': _checksums(self.rules.urls.values())}
    path_of = files.find(self.dataset, self.rules.layout, self.manual_dir)
    path_of = {part: path for part, path in path_of.items() if part not in self.rules.layout.optional}
    inputs = {part: [_tree_digest(path)] for part, path in sorted(path_of.items())}
    if 'all' in inputs and self.dataset.startswith('brown'):  # the texts are in the category list's folder
      folder = os.path.dirname(path_of['all'])
      inputs['texts'] = [_digest(os.path.join(folder, name)) for name in documents.list_names(folder) if len(name) == 4]
    if self.dataset == 'lm1b_files':
      inputs['texts'] = [['train', _folder_digest(os.path.dirname(path_of['train']))]]
    if self.dataset == 'imdb' and not path_of['train'].removesuffix('.gz').endswith('.tsv'):
      inputs['texts'] = [[part, _folder_digest(os.path.dirname(path))] for part, path in sorted(path_of.items())]
    return identity | {'files': inputs}

  def held_out_splits(self) -> list[str]:
    """Return the splits held out of the user's training files because they have no files."""
    if self.rules.images:
      missing = self.rules.reader.find(self.manual_dir).held_out_splits(self.split_fraction)
    else:
      missing = files.held_out_splits(self._own_files(), self.split_fraction) if self.dataset in OWN else []
    return [] if missing == ['test'] and not self.hold_out_test else missing

  def _held_out_shares(self) -> dict[str, float]:
    return dict.fromkeys(self.held_out_splits(), self.split_fraction)

  def _own_files(self) -> Mapping[str, Any]:
    """Return {split: the user's files}, only for data sets of user files."""
    if self.dataset == 'parallel_files':
      return self.rules.reader.find_own(self.manual_dir, self.sides or ('', ''), self.split_names)
    if self.rules.spans:
      return self.rules.reader.find(self.dataset, self.rules.layout, self._directory(), self.split_names)
    find = files.find_texts if self.dataset == 'text_files' else self.rules.reader.find_own
    return find(self.manual_dir, self.split_names)

  def file_notes(self) -> tuple[str, ...]:
    """Return a line with the files of each split, if their names give it, and one with the words to train on."""
    notes = (f'training text: the first {self.words:,} words (data.words)',) if self.words else ()
    if self.dataset not in NAMED_SPLITS:
      return notes
    files_of = {
      split: [path for group in groups for path in ([group] if isinstance(group, str) else group)]
      for split, groups in self._own_files().items()
    }
    parts = [
      f'{split} {len(paths):,} ({split_files.some(paths)})' for split in SPLITS if (paths := files_of.get(split))
    ]
    return (f'files of {self.manual_dir}: {"; ".join(parts)}', *notes)

  def training_files(self) -> str:
    """Return the user's training files for a message, or the data set's name if it has its own layout."""
    if self.dataset != 'table_files':
      return self.manual_dir or f'data set {self.dataset}'
    return ', '.join(self._own_files()['train'])

  def is_prepared_by_tfds(self) -> bool:
    """Return True for a data set of pairs that TFDS prepares, rather than one read from the user's text files."""
    return self.dataset in TFDS and self.rules.pair and (not self.manual_dir or bool(_tfds_directory(self, '')))

  def _own_identity(self) -> dict[str, Any]:
    """Return the identity of a table or of questions, which are read only from the user's files."""
    if self.rules.spans:
      files_of = {split: [_digest(path) for path in paths] for split, paths in sorted(self._own_files().items())}
      return {'check_sizes': self.check_sizes, 'files': files_of}
    if self.dataset == 'table_files':
      digests = {split: [_digest(p) for p in paths] for split, paths in sorted(self._own_files().items())}
      identity: dict[str, Any] = {name: getattr(self, name) for name in OWN_TABLE}
      return identity | {'held_out': self._held_out_shares(), 'files': digests}
    paths = self.rules.reader.find(self.dataset, self.rules.layout, self._directory())
    return {
      'check_sizes': self.check_sizes,
      'files': {split: _tree_digest(path) for split, path in sorted(paths.items())},
    }

  def _image_identity(self) -> dict[str, Any]:
    layout = self.rules.reader.find(self.manual_dir)
    return {
      'layout': layout.kind,
      'classes': list(layout.classes.names),
      'first': layout.classes.first,
      'colours': layout.classes.formatted_colours(),
      'check_sizes': self.check_sizes,
      'held_out': self._held_out_shares(),
      'files': layout.digests(),
    }

  def _directory(self) -> str:
    if not self.manual_dir:
      raise InputError(
        f'data.manual_dir: got no directory of data set {self.dataset}, which is not downloaded; '
        'expected the directory of its files'
      )
    return self.manual_dir

  def _pair_identity(self) -> dict[str, Any]:
    sides = self.sides or ('', '')
    identity: dict[str, Any] = {'sides': list(sides)}
    if self.is_prepared_by_tfds():
      return identity | {'tfds': TFDS[self.dataset]}
    if self.dataset.startswith('embedded'):
      return identity
    if self.dataset == 'parallel_files':
      paths_of, identity['held_out'] = self._own_files(), self._held_out_shares()
    else:
      identity['check_sizes'] = self.check_sizes
      if not self.manual_dir:
        return identity | {'downloads': _checksums(self.rules.urls.values())}
      paths_of = self.rules.reader.find(
        self.dataset, self.rules.layout, self.manual_dir, sides, all_files=self.check_sizes
      )
    digests = {
      split: [[_digest(path) for path in group] for group in paths] for split, paths in sorted(paths_of.items())
    }
    return identity | {'files': digests}

  @property
  def _documents(self) -> str:
    return 'blank_line' if self.documents == 'auto' else self.documents


def prepared_directory(source: Config) -> str:
  """Return the path of lmx's prepared copy of a data set, which may not exist yet. Raises InputError."""
  identity = source.source_identity() | ({'reading': source.rules.reading} if source.rules.reading else {})
  identity |= {'file_documents': True} if source.keeps_file_documents else {}
  key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
  return os.path.join(cache.root(source.cache_dir), 'datasets', f'{source.dataset.replace("/", "_")}-{key}')


def open_splits(source: Config, *, verify: bool = True) -> dict[str, Any]:
  """Prepare the data set if needed, and open its splits: `Examples`, or `text_files.Documents`. Raises InputError.

  With `data.words` the training split is a `WordBudget`.

  Args:
    source: the data set.
    verify: compare the prepared files with their checksums.
  """
  splits = _open_whole(source, verify)
  if source.words:
    from lmx.data.word_budget import WordBudget  # only such a run imports it

    splits['train'] = WordBudget(splits['train'], source.words, source.training_files())
  return splits


def _open_whole(source: Config, verify: bool) -> dict[str, Any]:
  if source.dataset == 'text_files':
    missing = source.held_out_splits()
    opened = text_files.open_splits(
      source._own_files(), source.manual_dir, source._documents, source.column, source.split_fraction, missing
    )
    return {split: opened[split] for split in SPLITS if split in opened}
  with _silence_tfds():
    root = cache.root(source.cache_dir)
    if source.dataset == 'lm1b':
      return _open_lm1b(source, root)
    if source.is_prepared_by_tfds():
      return _open_pairs(source, root)
    directory = prepared_directory(source)
    prepare = lambda: cache.build(directory, lambda temporary: _prepare(source, temporary, root))
    prepare()
    try:
      return _open_prepared(source, directory, verify)
    except Damaged as error:
      warnings.warn(f'{error}; the directory {directory} is deleted and prepared again', InputWarning, stacklevel=2)
    cache.discard(directory)
    prepare()
    return _open_prepared(source, directory)


def _open_prepared(source: Config, directory: str, verify: bool = True) -> dict[str, Examples]:
  """Verify the files of a prepared directory and open its splits. Raises Damaged with the name of the file."""
  if verify:
    _check_files(directory)
  try:
    builder = _builder(source, directory)
    records_of = {split: builder.as_data_source(split) for split in SPLITS if split in builder.info.splits}
  except InputError:
    raise
  except Exception as error:  # data without SHA-256 (older lmx): whatever a description with other content raises
    raise Damaged(f'{directory}: the prepared data is damaged ({error!r})') from error
  return {split: Examples(records, directory) for split, records in records_of.items()}


class Examples:
  """The documents of a split, in order.

  Args:
    records: rows of ArrayRecord.
    directory: lmx's own directory, deleted if the records are damaged; '' deletes nothing.
  """

  def __init__(self, records: Any, directory: str = ''):
    self._records, self._directory = records, directory

  def __len__(self) -> int:
    return len(self._records)

  @property
  def size(self) -> int:
    """Bytes of the prepared files."""
    return int(self._records.dataset_info.splits[self._records.split].num_bytes)

  @property
  def has_parts(self) -> bool:
    """Return True if there are rows; any range of rows is a part."""
    return len(self) > 0

  def parts(self, size: int, divide: str) -> list[tuple[int, int]]:
    """Return the ranges of rows of about `size` bytes each."""
    del divide  # a row is not divided
    count = len(self)
    each = max(1, count * size // max(self.size, 1))
    return [(start, min(start + each, count)) for start in range(0, count, each)]

  def part_size(self, part: Sequence[int]) -> int:
    """Return the bytes of a part, about."""
    return (part[1] - part[0]) * self.size // len(self)

  def continues(self, part: Sequence[int]) -> bool:
    """Return False: a part begins with a document."""
    del part
    return False

  def ends(self, part: Sequence[int]) -> bool:
    """Return True: a part ends with a document."""
    del part
    return True

  def _rows(self, indices: list[int]) -> Any:
    """Return the rows with these indices. Raises Damaged."""
    try:
      return self._records.__getitems__(indices)
    except (RuntimeError, ValueError) as error:  # ArrayRecord's own checksums
      paths = ', '.join(map(str, self._records.dataset_info.splits[self._records.split].filepaths))
      advice = 'prepare it again'
      if self._directory:
        cache.discard(self._directory)
        advice = f'the directory {self._directory} is deleted; the next start prepares it again'
      raise Damaged(f'{paths}: the prepared data is damaged ({error}); {advice}') from None

  def __getitem__(self, index: int) -> dict[str, Any]:
    """Return the row with this index, as the builder wrote it. Raises Damaged."""
    row: dict[str, Any] = self._rows([index])[0]
    return row

  def __iter__(self) -> Iterator[tuple[str, str, str]]:
    """Yield id, text, label ('' without a label)."""
    return self.read((0, len(self._records)))

  def read(self, part: Sequence[int]) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a range."""
    for start in range(part[0], part[1], _BATCH):
      indices = list(range(start, min(start + _BATCH, part[1])))
      for index, row in zip(indices, self._rows(indices), strict=True):
        name = row['id'].decode() if 'id' in row else str(index)
        # A byte stream's split may cut a character; surrogates preserve its bytes.
        text = row['text'].decode('utf-8', 'surrogateescape')
        yield name, text if 'id' in row else text + '\n', row['label'].decode() if 'label' in row else ''


class Pairs(Examples):
  """The documents of a split of TFDS translations: source, target, source, ...

  Args:
    records: rows with a text for each language.
    sides: languages of source and target.
    split: name of the split, for messages.
  """

  def __init__(self, records: Any, sides: tuple[str, str], split: str):
    super().__init__(records)
    self._sides, self._split = sides, split

  def __len__(self) -> int:
    return 2 * len(self._records)

  def __iter__(self) -> Iterator[tuple[str, str, str]]:
    empty = 0
    for start in range(0, len(self._records), _BATCH):
      indices = list(range(start, min(start + _BATCH, len(self._records))))
      for index, row in zip(indices, self._rows(indices), strict=True):
        texts = [row[side].decode().strip() for side in self._sides]
        empty += not all(texts)
        if all(texts):
          yield from ((f'{index}.{side}', text, '') for side, text in zip(self._sides, texts, strict=True))
    if empty:
      note = f'split {self._split}: {empty:,} pairs with an empty side are skipped'
      warnings.warn(note, InputWarning, stacklevel=2)


def _builder(source: Config, directory: str) -> Any:
  """Return the TFDS builder of a data set; the name of its config is a folder of the prepared data."""
  from lmx.data.builders import base  # imports TFDS

  rules = source.rules
  if rules.read:
    module, kind = 'base', 'TextBuilder'
  else:
    module, kind = _OWN_BUILDERS.get(source.dataset) or _BUILDERS[rules.kind]
  name = 'default' if source.check_sizes or source.dataset.startswith('embedded') else 'unchecked'
  if source.sides:
    name = '-'.join(source.sides)
  elif not rules.read:
    name = {'table': 'rows', 'tags': 'sentences', 'questions': 'questions', 'segmentation': 'images'}[rules.kind]
  cls = getattr(importlib.import_module(f'lmx.data.builders.{module}'), kind)
  return base.make(cls, source, name, directory)


def _prepare(source: Config, directory: str, root: str) -> None:
  try:
    with contextlib.redirect_stdout(io.StringIO()):  # TFDS prints its plan
      _builder(source, directory).download_and_prepare(
        download_dir=os.path.join(root, 'downloads'), file_format='array_record'
      )
  except Exception as error:  # TFDS wraps what a builder raises
    cause: BaseException | None = error
    while cause is not None:
      if isinstance(cause, InputError) or cache.is_disk_error(cause):
        raise cause from None
      cause = cause.__cause__ or cause.__context__
    raise
  _record_files(directory)


def _record_files(directory: str) -> None:
  """Record the size and the SHA-256 of every prepared file."""
  records = {}
  for folder, _, names in os.walk(directory):
    for name in names:
      path = os.path.join(folder, name)
      records[os.path.relpath(path, directory)] = [os.path.getsize(path), cache.sha256(path)]
  with open(os.path.join(directory, _SIZES), 'w', encoding='utf-8') as file:
    json.dump(records, file, indent=1, sort_keys=True)


def _check_files(directory: str) -> None:
  """Compare every prepared file with its size and SHA-256; an older lmx recorded only the size. Raises Damaged."""
  path = os.path.join(directory, _SIZES)
  try:
    recorded = documents.convert(documents.read_json(path), dict, path)
  except InputError as error:
    raise Damaged(f'{error}; the prepared data is damaged') from None
  for name, entry in recorded.items():
    size, sha256 = entry if isinstance(entry, list) and len(entry) == 2 else (entry, '')
    path = os.path.join(directory, name)
    actual = os.path.getsize(path) if os.path.isfile(path) else None
    if actual != size:
      state = 'is missing' if actual is None else f'has {actual:,} bytes instead of {documents.show(size)}'
      raise Damaged(f'{path}: the prepared data is damaged, the file {state}')
    if sha256 and cache.sha256(path) != sha256:
      raise Damaged(f'{path}: the prepared data is damaged, the content differs from its SHA-256')


def _open_lm1b(source: Config, root: str) -> dict[str, Examples]:
  builder = _tfds_builder(source, root)
  cut = round(builder.info.splits['test'].num_examples * _LM1B_VALID)
  parts = {'train': 'train', 'valid': f'test[:{cut}]', 'test': f'test[{cut}:]'}
  return {split: Examples(builder.as_data_source(part)) for split, part in parts.items()}


def _open_pairs(source: Config, root: str) -> dict[str, Examples]:
  builder = _tfds_builder(source, root)
  parts = {'train': 'train', 'valid': 'validation', 'test': 'test'}
  sides = source.sides or ('', '')
  return {split: Pairs(builder.as_data_source(part), sides, split) for split, part in parts.items()}


def _tfds_builder(source: Config, root: str) -> Any:
  """Return TFDS's own builder for the data set, prepared; raise InputError if that is impossible."""
  import tensorflow_datasets as tfds

  if directory := _tfds_directory(source, root):
    return tfds.builder_from_directory(directory)
  name, base = TFDS[source.dataset][0], source.manual_dir or os.path.join(root, 'datasets')
  if importlib.util.find_spec('tensorflow') is None:
    own = ', or set it to the directory of its text files' if source.sides else ''
    raise InputError(
      f'data set {source.dataset}: no prepared copy in {base}. TFDS prepares it with TensorFlow, once: install lmx[tf] '
      f'and run this again, or prepare it elsewhere with tfds.builder("{name}").download_and_prepare(file_format='
      f'"array_record") and set data.manual_dir to its data_dir{own}'
    )
  builder = tfds.builder(name, data_dir=base)
  builder.download_and_prepare(file_format='array_record')
  return builder


def _tfds_directory(source: Config, root: str) -> str:
  """Return the path of a data set prepared by TFDS, in the user's directory or the cache; '' if there is none."""
  name, version = TFDS[source.dataset]
  base = source.manual_dir or os.path.join(root, 'datasets')
  tails = [os.path.join(name, version), os.path.join(name.rpartition('/')[2], version), version, '']
  paths = (os.path.join(base, tail) for tail in tails)
  return next((path for path in paths if os.path.exists(os.path.join(path, 'dataset_info.json'))), '')


@contextlib.contextmanager
def _silence_tfds() -> Iterator[Any]:
  """Hide TFDS's log lines, and its progress bars if there is no terminal."""
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
  """Return name and digest of a file; an object is not read if its bucket keeps a checksum."""
  kept = storage.checksum(path) if storage.is_remote(path) else ''
  return [os.path.basename(path), kept or cache.sha256(path)]


def _tree_digest(path: str) -> list[str] | str:
  return _folder_digest(path) if os.path.isdir(path) else _digest(path)


def _folder_digest(folder: str) -> str:
  """Return a digest of the names and sizes of all files below a folder; reading 100,000 files would be slow."""
  digest = hashlib.sha256()
  for directory, folders, names in os.walk(folder):
    folders[:] = sorted(name for name in folders if not documents.is_left_behind(name))
    for name in sorted(name for name in names if not documents.is_left_behind(name)):
      path = os.path.join(directory, name)
      digest.update(f'{os.path.relpath(path, folder)}\0{os.path.getsize(path)}\0'.encode())
  return digest.hexdigest()


def _checksums(urls: Iterable[str]) -> list[str]:
  """Return the SHA-256 of downloads."""
  with open(os.path.join(os.path.dirname(files.__file__), 'checksums.tsv'), encoding='utf-8') as file:
    of = {url: digest for url, _, digest, _ in (line.rstrip('\n').split('\t') for line in file)}
  return [of[url] for url in urls]
