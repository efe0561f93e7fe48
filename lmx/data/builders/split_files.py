"""The user's own files and their splits, by one function for texts, tables, translations and questions.

The split is a word in the file name: first (`test_2016.txt`), last (`corpus.train.txt`, `reviews-dev.csv`, `x.test`) or
between dots (`wiki.test.raw.txt`). Or it is the folder (`train/a.txt`). Without a training file, files with other names
are training data, except hidden files and documentation (README). No TFDS is imported here.
"""

from __future__ import annotations

import fnmatch
import functools
import glob
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from lmx import documents, storage
from lmx.errors import InputError, InputWarning

NAMES = ('words', 'prefixes')  # rules for split names; the second is from earlier versions
_WORDS = {
  'train': '(?:train|training)(?:set)?',
  'valid': '(?:valid|validation|val|dev|devel|development)(?:set)?',
  'test': '(?:test|testing)(?:set)?',
}
_PREFIXES = (('train', r'train'), ('valid', r'valid|dev|val(?![^\W\d_])'), ('test', r'test'))
_ABOUT = re.compile(
  r'(?:readme|licen[cs]e|copying|copyright|notice|authors|contributing|citation|requirements|change_?log|'
  r'sample_?submission)(?![^\W\d_]|\s+\w)',
  re.IGNORECASE,
)
_SHARD = re.compile(r'(?P<stem>.*)-(?P<number>\d+)-of-(?P<count>\d+)(?P<rest>\D.*)?')
_PART = re.compile(r'(?P<stem>.*\bpart-)(?P<number>\d{4,})(?P<rest>\D.*)?')  # as Spark and Hadoop number them
_COPY = re.compile(
  r'(?P<name>.+?)(?: \(\d+\)| - Copy(?: \(\d+\))?|[ ._-](?:copy|backup|bak))(?P<rest>\.[^/]*)', re.IGNORECASE
)
_SHOWN = 5  # names in a message


class _File(NamedTuple):
  """A file in a folder, and the split in its name: '' for none."""

  path: str
  split: str


def find_splits(
  pattern: str, endings: tuple[str, ...], expected: str, names: str = 'words', *, apart: bool = False
) -> dict[str, list[str]]:
  """Return {split: the user's files}, {} without a pattern; warn about other files in a folder.

  Args:
    pattern: a directory, a file, a glob, or several separated by commas. Files in a directory or glob may be skipped,
      see the module's docstring; a named file is always read.
    endings: endings of the files, in lower case.
    expected: for messages: 'KIND; expected ENDINGS'.
    names: one of `NAMES`.
    apart: files that differ only in their endings are different data (train.en and train.de).

  Raises:
    InputError: nothing matches; a file has another ending or is a device; two files have one name, or two of a folder
      differ in their endings only; the split of a file is ambiguous; or a shard is missing.
  """
  if names == 'prefixes':
    return _by_prefix(pattern, endings, expected)
  splits: dict[str, dict[str, str]] = {}
  named = {os.path.abspath(part) for part in _parts(pattern) if os.path.isfile(part)}
  passed: list[str] = []
  for part in _parts(pattern):
    others: list[str] = []
    if storage.is_remote(part):
      found = _in_bucket(part, endings)
    elif os.path.isdir(part):
      found, others = _in_folder(part, endings)
    elif os.path.lexists(part):
      found = [_File(_checked(part, endings, expected), split_of(part))]
    else:
      found, others = _matching(part, endings)
    if not found:
      kind, _, rest = expected.partition('; ')
      inside = any(os.path.isdir(path) for path in others)
      hint = f'; {os.path.join(part, "*", "*" + endings[0])} reads those in its folders' * inside
      raise InputError(f'{part}: got no {kind}{f", but {some(others)}" * bool(others)}; {rest}{hint}')
    if not os.path.isfile(part):
      _check_splits(found)
      found, more = _select(found)
      for split in dict.fromkeys(file.split for file in found):  # x.train and x.dev are different data
        check_stems([file.path for file in found if file.split == split], endings, apart=apart)
      _check_shards([file.path for file in found])
      _check_copies([file.path for file in found])
      others = [*others, *more]
    passed += [path for path in others if os.path.abspath(path) not in named]
    for file in sorted(found, key=lambda file: _natural(file.path)):
      splits.setdefault(file.split, {}).setdefault(os.path.abspath(file.path), file.path)
  warn_passed(pattern, passed)
  return {split: list(paths.values()) for split, paths in splits.items()}


def find_own(
  dataset: str, pattern: str, endings: tuple[str, ...], expected: str, names: str, *, files: str, rows: str
) -> dict[str, list[str]]:
  """Return {split: the user's files} of a data set, with training files; see `find_splits`.

  Args:
    dataset: name of the data set, for messages.
    pattern: as for `find_splits`.
    endings: as for `find_splits`.
    expected: as for `find_splits`.
    names: as for `find_splits`.
    files: name of its files, for messages.
    rows: name of what they hold.

  Raises:
    InputError: as `find_splits`, or there is no pattern or no training file.
  """
  splits = find_splits(pattern, endings, expected, names)
  if not splits:
    raise InputError(f'data.manual_dir: got none for data set {dataset}; expected a directory or {files}')
  if 'train' not in splits:
    raise InputError(f'{pattern}: got only files named as validation or test {rows}; expected training {rows} too')
  return splits


def with_compression(endings: Iterable[str], names: str = 'words') -> tuple[str, ...]:
  """Return endings, plain and compressed; earlier versions read .gz only."""
  return tuple(end + how for end in endings for how in ('', *(documents.COMPRESSED if names == 'words' else ('.gz',))))


def describe(endings: Iterable[str]) -> str:
  """Return endings for a message."""
  return f'{", ".join(f"*{end}" for end in endings)}, each also as {", ".join(documents.COMPRESSED)}'


def _parts(pattern: str) -> list[str]:
  """Return the parts of a pattern between commas; a file or a folder may have a comma in its name."""
  if os.path.lexists(pattern):
    return [pattern]
  return [part for part in map(str.strip, pattern.split(',')) if part]


def _by_prefix(pattern: str, endings: tuple[str, ...], expected: str) -> dict[str, list[str]]:
  """Return the files by the rule of earlier versions, for their runs."""
  splits: dict[str, list[str]] = {}
  for part in filter(None, (part.strip() for part in pattern.split(','))):
    below = os.path.join(glob.escape(part), '*') if os.path.isdir(part) else part
    paths = [part] if os.path.isfile(part) else sorted(p for p in glob.glob(below) if p.endswith(endings))
    if not paths:
      raise InputError(f'{part}: got no {expected}')
    for path in paths:
      name = os.path.basename(path).lower()
      split = next((split for split, words in _PREFIXES if re.match(words, name)), 'train')
      if path not in (some := splits.setdefault(split, [])):
        some.append(_checked(path, endings, expected))
  return splits


def _in_folder(folder: str, endings: tuple[str, ...]) -> tuple[list[_File], list[str]]:
  """Return the data files in a folder and its subfolders train, valid and test, and the other paths in it."""
  found: list[_File] = []
  others: list[str] = []
  for path in (os.path.join(folder, name) for name in documents.list_names(folder)):
    split = _split_folder(path) if os.path.isdir(path) else ''
    if split:
      inner, more = _in_split_folder(path, split, endings)
      found, others = [*found, *inner], [*others, *more]
    elif not _is_data(path, endings):
      others += [path] if _holds(path, endings) else []
    else:
      found.append(_File(path, named_split(path)))
  return found, others


def _in_bucket(address: str, endings: tuple[str, ...]) -> list[_File]:
  """Return the data files of a folder in a bucket and its subfolders train, valid and test, or of a file or glob."""
  at = storage.path('data.manual_dir', address)
  data = lambda paths: sorted(
    os.fspath(path) for path in paths if path.name.lower().endswith(endings) and not documents.is_left_behind(path.name)
  )
  if at.is_dir():
    folders = {split: path for path in at.iterdir() if (split := _split_folder(path.name)) and path.is_dir()}
    found = [_File(path, named_split(path)) for path in data(at.iterdir())]
    return [*found, *(_File(path, split) for split, folder in folders.items() for path in data(folder.iterdir()))]
  if glob.has_magic(at.name):
    return [_File(path, named_split(path)) for path in data(at.parent.iterdir()) if fnmatch.fnmatch(path, address)]
  return [_File(address, split_of(address))] if at.exists() and address.lower().endswith(endings) else []


def _in_split_folder(folder: str, split: str, endings: tuple[str, ...]) -> tuple[list[_File], list[str]]:
  found: list[_File] = []
  others: list[str] = []
  for path in (os.path.join(folder, name) for name in documents.list_names(folder)):
    if not _is_data(path, endings) or _is_about(path):
      others += [path] if _holds(path, endings) else []
    elif named_split(path) not in ('', split):
      raise InputError(
        f'{path}: got a file named as the {named_split(path)} split in a folder named as the {split} split; expected '
        'one split; move or rename the file'
      )
    else:
      found.append(_File(path, split))
  return found, others


def _matching(pattern: str, endings: tuple[str, ...]) -> tuple[list[_File], list[str]]:
  """Return the data files that match a glob, and the other paths; a folder that it matches may give the split."""
  by_folder = glob.has_magic(os.path.dirname(pattern))
  found: list[_File] = []
  others: list[str] = []
  for path in sorted(glob.glob(pattern)):
    if documents.is_left_behind(os.path.basename(path)):
      continue
    if _is_data(path, endings):
      found.append(_File(path, named_split(path) or (_split_folder(os.path.dirname(path)) if by_folder else '')))
    elif _holds(path, endings):
      others.append(path)
  return found, others


def _is_data(path: str, endings: tuple[str, ...]) -> bool:
  """Return True for a file with one of the endings. Raises InputError for a broken link, a device or a pipe."""
  if os.path.isdir(path) or not path.lower().endswith(endings):
    return False
  _checked(path, endings, '')
  return True


def _checked(path: str, endings: tuple[str, ...], expected: str) -> str:
  """Return a path. Raises InputError unless it is a file with one of the endings."""
  if not os.path.exists(path):
    raise InputError(f'{path}: got a link to no file; expected a file; fetch its content, or delete the link')
  documents.check_regular(path)
  if not path.lower().endswith(endings):
    raise InputError(f'{path}: got another file type than {expected}')
  return path


def _holds(path: str, endings: tuple[str, ...]) -> bool:
  """Return True for a file, or a folder that has files with one of the endings, or folders with such files."""
  if not os.path.isdir(path):
    return True
  paths = [os.path.join(path, name) for name in documents.list_names(path)]
  below = [name for folder in paths if os.path.isdir(folder) for name in documents.list_names(folder)]
  return any(name.lower().endswith(endings) for name in (*paths, *below))


def walk(folder: str) -> Iterator[str]:
  """Yield the files below a folder, without those that are left behind by systems and editors."""
  for path, folders, names in os.walk(folder):
    folders[:] = (name for name in folders if not documents.is_left_behind(name))
    yield from (os.path.join(path, name) for name in names if not documents.is_left_behind(name))


def _select(found: Sequence[_File]) -> tuple[list[_File], list[str]]:
  """Return the files that are data, with their splits, and the paths of the others."""
  has_train = any(file.split == 'train' for file in found)
  is_other = lambda file: not file.split and (has_train or _is_about(file.path))
  data = [file._replace(split=file.split or 'train') for file in found if not is_other(file)]
  return data, [file.path for file in found if is_other(file)]


def _check_splits(found: Sequence[_File]) -> None:
  """Raise InputError if the files of a split are in several folders, such as test.txt and test/a.txt."""
  folder_of: dict[str, _File] = {}
  for file in (file for file in found if file.split):
    other = folder_of.setdefault(file.split, file)
    if os.path.dirname(other.path) != os.path.dirname(file.path):
      raise InputError(
        f'{file.path}: got {other.path} too, both named as the {file.split} split; expected its files in one folder; '
        'move them, or name the files to read in data.manual_dir'
      )


def check_stems(paths: Iterable[str], endings: tuple[str, ...], *, apart: bool = False) -> None:
  """Raise InputError if two files have one name with two endings, such as train.txt and train.txt.gz."""
  by_stem: dict[tuple[str, str], str] = {}
  for path in paths:
    ending = max((end for end in endings if path.lower().endswith(end)), key=len)
    kind = next((ending.removesuffix(how) for how in documents.COMPRESSED if ending.endswith(how)), ending)
    other = by_stem.setdefault((path[: len(path) - len(ending)], kind if apart else ''), path)
    if other != path:
      raise InputError(
        f'{path}: got {os.path.basename(other)} in the same folder; expected one file of this name; remove one of '
        'them, or name the files to read in data.manual_dir'
      )


def _check_shards(paths: Sequence[str]) -> None:
  """Raise InputError if train-00000-of-00003.parquet, part-00000.txt or another shard is there without all others."""
  numbers_of: dict[tuple[str, str, str], list[str]] = {}
  for match in filter(None, map(_SHARD.fullmatch, paths)):
    numbers_of.setdefault((match['stem'] + '-', f'-of-{match["count"]}', match['rest'] or ''), []).append(
      match['number']
    )
  for match in filter(None, map(_PART.fullmatch, paths)):  # their number is unknown, so only a gap is seen
    numbers_of.setdefault((match['stem'], '', match['rest'] or ''), []).append(match['number'])
  for (stem, of, rest), numbers in numbers_of.items():
    width, there = min(map(len, numbers)), set(map(int, numbers))
    count = int(of.rpartition('-')[2]) if of else max(there) + 1
    first = 1 if 0 not in there and (not of or count in there) else 0
    count -= first if not of else 0
    shards = ((n, f'{stem}{n:0{width}}{of}{rest}') for n in range(first, first + count))
    if missing := next((path for n, path in shards if n not in there and not os.path.exists(path)), ''):
      raise InputError(
        f'{os.path.dirname(stem)}: got no {os.path.basename(missing)}; expected all {count:,} shards; fetch it, '
        'or name the files to read in data.manual_dir'
      )


def _check_copies(paths: Sequence[str]) -> None:
  """Raise InputError if a file is named like a copy of another one, such as "train (1).txt" next to train.txt."""
  for match in filter(None, map(_COPY.fullmatch, paths)):
    if (other := match['name'] + match['rest']) in paths:
      raise InputError(
        f'{match[0]}: got {os.path.basename(other)} in the same folder, apparently a copy; expected one of them; '
        'remove one, or name the files to read in data.manual_dir'
      )


def warn_passed(where: str, paths: Sequence[str]) -> None:
  """Warn of files and folders that are not read."""
  if paths:
    _warn_once(f'{where}: not read as data: {some(paths)}; to read a file, name it in data.manual_dir')


@functools.cache
def _warn_once(message: str) -> None:
  """Warn; a command lists the files several times."""
  warnings.warn(message, InputWarning, stacklevel=3)


def some(paths: Sequence[str]) -> str:
  """Return the first few names of paths, and the number of the others; a folder's name ends in /."""
  names = [os.path.basename(path) + '/' * os.path.isdir(path) for path in paths[:_SHOWN]]
  return ', '.join(names) + f' and {len(paths) - _SHOWN:,} more' * (len(paths) > _SHOWN)


def order(names: str) -> Callable[[str], str]:
  """Return the key by which paths are sorted under a rule of `NAMES`."""
  return _natural if names == 'words' else str


def _natural(path: str) -> str:
  """Return a natural sort key: a2 before a10."""
  return re.sub(r'\d+', lambda digits: digits[0].zfill(20), path)


def split_of(path: str) -> str:
  """Return the split given by a file's name, 'train' by default."""
  return named_split(path) or 'train'


def named_split(path: str) -> str:
  """Return the split in a file name, '' for none, as for "Devil in the White City.txt"."""
  name = os.path.basename(path).lower()
  name = name[: -len(compressed)] if (compressed := os.path.splitext(name)[1]) in documents.COMPRESSED else name
  for split, words in _WORDS.items():
    if re.match(rf'(?:{words})(?![^\W\d_])', name):
      return split
  ends = {split: rf'.*[._-](?:{words})(?:\.[^.]*)?' for split, words in _WORDS.items()}
  between = {split: rf'.*\.(?:{words})\..*' for split, words in _WORDS.items()}
  for patterns in (ends, between):
    if found := next((split for split, words in patterns.items() if re.fullmatch(words, name, re.DOTALL)), ''):
      return found
  return ''


def _split_folder(path: str) -> str:
  name = os.path.basename(path).lower()
  return next((split for split, words in _WORDS.items() if re.fullmatch(words, name)), '')


def _is_about(path: str) -> bool:
  return _ABOUT.match(os.path.basename(path)) is not None
