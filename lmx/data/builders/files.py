"""Files of a data set in a user's directory, and their splits by file name.

No TFDS is imported here, so a complete token cache can be found without it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from lmx import documents
from lmx.data.builders import split_files
from lmx.data.builders.split_files import split_of as split_of
from lmx.errors import InputError

Document = tuple[str, Any, str]  # id, text (str, or bytes for a byte stream), label ('' for none)
VERSION = '1.0.0'  # of every builder; increase it when a builder's output changes
FOLDS = 10  # of published training documents without a validation split; one is held out for it
ENOUGH = 10  # expected documents in a split held out by hash; with fewer, the last ones are held out
TEXT_NAMES = (*(f'{kind}{how}' for kind in ('.txt', '.jsonl') for how in ('', *documents.COMPRESSED)), '.parquet')
TEXT_KINDS = '*.txt, *.jsonl, *.train, *.dev, *.valid, *.test, each also as .gz, .xz or .zst, or *.parquet'


@dataclasses.dataclass(frozen=True)
class Layout:
  """Possible locations of a data set's files.

  Attributes:
    folders: folders below the user's directory, tried in order.
    names: part -> file names tried in order, plain or with .gz; one that ends in / is a folder.
    other: the same for an alternative format.
    optional: parts that may be missing.
  """

  folders: tuple[str, ...]
  names: Mapping[str, tuple[str, ...]]
  other: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  optional: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ParallelLayout:
  """Possible locations of a parallel data set's files.

  Attributes:
    folders: folders below the user's directory, tried in order for each file.
    stems: split -> groups of file names without the language suffix, tried in order; the files of a group are
      concatenated.
    optional: splits that may be missing.
  """

  folders: tuple[str, ...]
  stems: Mapping[str, tuple[tuple[str, ...], ...]]
  optional: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Table:
  """A table data set.

  Attributes:
    texts: possible column names for each text, tried in order.
    label: possible names of the label column; a file without it has no labels (GLUE's test files).
    classes: cell in the label column -> label name; {} uses the cells as names.
    scores: True if labels are numeric scores.
    folders: folders below the user's directory, tried in order.
    files: split -> possible file names, tried in order, without the suffix .gz. Only the file of `needed` is required.
    needed: the split whose file is required.
    plain: column names of a file without a header, recognised by its number of cells.
    skipped: cells in the label column whose rows are skipped.
    choices: number of last texts that are choices, one of them correct.
    continues: the other texts of a row continue where its first one ends.
    broken: skip records that break over lines, as GLUE's own loader does.
    read: function in lmx/data/builders that reads a special file format into (line number, cells), 'module.function'.
    prepare: function that adds columns to a row's cells, given its location in the file; also applied to the user's
      rows.
    joined: columns that are joined into the column `text`, with a line break between. `read` then also takes the names
      of all columns, of which the file has no header.
    breaks: sign of a line break within a joined cell.
    strip: strip texts.
    is_own: a user's table, whose columns the config names.
    is_new: rows to predict, whose columns of texts have the names of the training data.
  """

  texts: tuple[tuple[str, ...], ...]
  label: tuple[str, ...] = ('label',)
  classes: Mapping[str, str] = dataclasses.field(default_factory=dict)
  scores: bool = False
  folders: tuple[str, ...] = ('',)
  files: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  plain: tuple[str, ...] = ()
  skipped: tuple[str, ...] = ()
  choices: int = 0
  needed: str = 'train'
  continues: bool = False
  broken: bool = False
  read: str = ''
  prepare: str = ''
  joined: tuple[str, ...] = ()
  breaks: str = r'\n'
  strip: bool = True
  is_own: bool = False
  is_new: bool = False

  @property
  def pairs(self) -> bool:
    """Return True if a row has a text pair (before its choices) whose second text may be empty."""
    return len(self.texts) == self.choices + 2


GOLD = 'gold_conll'  # ending of CoNLL-2012's files with the annotation of people


def function(name: str) -> Any:
  """Return the function 'module.function' of this package, which a data set names."""
  module, _, attribute = name.partition('.')
  return getattr(importlib.import_module(f'lmx.data.builders.{module}'), attribute)


def find(name: str, layout: Layout, directory: str) -> dict[str, str]:
  """Return {part: path} for the files of data set `name` in `directory`. Raises InputError with the expected names."""
  if not os.path.isdir(directory):
    raise InputError(f'data.manual_dir: got {directory}; expected a directory with the files of data set {name}')
  for names_of in (layout.names, *([layout.other] if layout.other else [])):
    for folder in layout.folders:
      paths = {part: first(os.path.join(directory, folder), names) for part, names in names_of.items()}
      if all(path or part in layout.optional for part, path in paths.items()):
        return {part: path for part, path in paths.items() if path}
  wanted = [names for part, names in layout.names.items() if part not in layout.optional]
  raise InputError(
    f'data.manual_dir: got {directory}; expected {", ".join(names[0] for names in wanted)} of data set '
    f'{name} (also accepted: {", ".join(names[-1] for names in wanted)}; each also as .gz)'
  )


def check_size(name: str, split: str, unit: str, count: int, size: int, paths: Iterable[str]) -> None:
  """Raise InputError unless a split of data set `name` has the published size."""
  if count != size:
    raise InputError(
      f'data set {name}, split {split}: got {count:,} {unit} in {", ".join(paths)}; expected {size:,}; check the '
      'files, or set data.check_sizes=False'
    )


def flat(paths: Any) -> list[str]:
  """Return the paths in nested groups of paths, each once, sorted."""
  if isinstance(paths, str):
    return [paths]
  groups = paths.values() if isinstance(paths, dict) else paths
  return sorted({path for group in groups for path in flat(group)})


def first(folder: str, names: tuple[str, ...]) -> str | None:
  """Return the first file of a folder with one of the names, plain or as .gz; a name that ends in / is a folder."""
  paths = (os.path.join(folder, name + suffix) for name in names for suffix in ('', '.gz'))
  return next((path for path in paths if os.path.isfile(path) or path.endswith('/') and os.path.isdir(path)), None)


def find_tree(path: str, ending: str) -> list[str]:
  """Return the English files below a folder with the suffix `ending`, plain or .gz, sorted; a file is itself.

  Raises:
    InputError: there is none, or a file exists both plain and compressed.
  """
  if os.path.isfile(path):
    return [path]
  paths = sorted(split_files.walk(path))
  is_english = lambda path: not {'arabic', 'chinese'} & set(path.split(os.sep))
  matches = [p for p in paths if p.removesuffix('.gz').endswith(ending) and is_english(os.path.relpath(p, path))]
  if not matches:
    raise InputError(f'{path}: got no file; expected *{ending} or *{ending}.gz in it or in folders below')
  split_files.check_stems(matches, (ending, f'{ending}.gz'))
  return matches


def find_texts(pattern: str, names: str = 'words') -> dict[str, list[str]]:
  """Return {split: user's text files}; see `split_files.find_splits` for `pattern` and `names`."""
  own = split_files.with_compression(('.train', '.valid', '.dev', '.test'))  # of plain text too
  endings = TEXT_NAMES if names == 'prefixes' else (*TEXT_NAMES, *own)
  expected = f'text file; expected {TEXT_KINDS}'
  return split_files.find_own('text_files', pattern, endings, expected, names, files='text files', rows='text')


def held_out_splits(splits: Collection[str], fraction: float) -> list[str]:
  """Return the splits to hold out of the user's training files; those in `splits` have their own files."""
  return [split for split in ('valid', 'test') if split not in splits] if fraction else []


def hashed_split(text: str, missing: list[str], fraction: float, fold: int = 0) -> str:
  """Return one of the `missing` splits for a share of `fraction` of all texts each, else 'train'.

  Their shares begin at the fold, so that each text is in the first of them in one of 1 / `fraction` folds.
  """
  share = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], 'big') / 2**64
  share = (share - fold * fraction) % 1 if fold else share
  return next((split for n, split in enumerate(missing, 1) if share < n * fraction), 'train')
