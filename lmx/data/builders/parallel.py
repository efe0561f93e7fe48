"""Parallel files: line n of one is the translation of line n of the other.

No TFDS is imported here, so a complete token cache can be found without it.
"""

from __future__ import annotations

import html
import itertools
import os
import re
import warnings
from collections.abc import Iterator, Sequence

from lmx import documents
from lmx.data.builders import split_files
from lmx.data.builders.files import ParallelLayout
from lmx.errors import InputError, InputWarning

Files = tuple[str, ...]  # one file per side, or one table with both
Paths = dict[str, list[Files]]  # split -> its files, in order
Pair = tuple[str, str, str]  # name, source, target
_SEGMENT = re.compile(r'<seg\b[^>]*>(.*?)</seg>', re.IGNORECASE)


def find(name: str, layout: ParallelLayout, directory: str, sides: Sequence[str], *, all_files: bool = True) -> Paths:
  """Return the files of data set `name` in `directory`.

  Args:
    name: the data set.
    layout: its files.
    directory: the user's directory.
    sides: languages of source and target.
    all_files: require every file of a group; else use the existing ones.

  Raises:
    InputError: `directory` is not a directory, or files are missing; the message names them.
  """
  if not os.path.isdir(directory):
    raise InputError(f'data.manual_dir: got {directory}; expected a directory with the files of data set {name}')
  paths: Paths = {}
  for split, groups in layout.stems.items():
    tried = [{stem: _pair(directory, layout.folders, stem, sides) for stem in group} for group in groups]
    chosen = next((group for group in tried if any(group.values())), tried[0])
    missing = [stem for stem, pair in chosen.items() if pair is None]
    if len(missing) == len(chosen) and split in layout.optional:
      continue
    if missing and (all_files or len(missing) == len(chosen)):
      wanted = ', '.join(f'{stem}.{side}' for stem in missing for side in sides)
      raise InputError(
        f'data.manual_dir: got {directory}; expected {wanted} of data set {name}, split {split} (each also as .gz)'
      )
    paths[split] = [pair for pair in chosen.values() if pair]
  return paths


def _pair(directory: str, folders: Sequence[str], stem: str, sides: Sequence[str]) -> Files | None:
  for folder in folders:
    paths = [_side(os.path.join(directory, folder, stem), side) for side in sides]
    if paths[0] and paths[1]:
      return paths[0], paths[1]
  return None


def _side(stem: str, side: str) -> str | None:
  """Return the file of one language; for a test set in SGML, '-src' matches either of its two forms."""
  names = [f'{stem}.{side}', f'{stem}.{side}.gz']
  if stem.endswith('-src'):
    names = [f'{form}.{side}.sgm{end}' for form in (stem, stem.removesuffix('src') + 'ref') for end in ('', '.gz')]
  return next((name for name in names if os.path.isfile(name)), None)


def find_own(pattern: str, sides: Sequence[str], names: str = 'words') -> Paths:
  """Return the user's files by split: train*, valid* (dev*, val*) and test* with both suffixes, or tables.

  Args:
    pattern: a directory, or a table (.tsv, also compressed) of source and target.
    sides: suffixes of the source and target files, such as 'en' and 'de'.
    names: see `split_files.find_splits`.

  Raises:
    InputError: there are no such files, a file has no counterpart, or a held-out split has several files.
  """
  tables = split_files.with_compression(['.tsv'], names)
  if os.path.isfile(pattern) and pattern.lower().endswith(tables):
    documents.check_regular(pattern)
    return {'train': [(pattern,)]}
  if not os.path.isdir(pattern):
    raise InputError(
      f'data.manual_dir: got {pattern or "none"}; expected a directory or a .tsv file for data set parallel_files'
    )
  endings = [split_files.with_compression([f'.{side.lower()}'], names) for side in sides]
  expected = f'*.{sides[0]} and *.{sides[1]}, or .tsv; set data.source and data.target to the two suffixes'
  every = (*endings[0], *endings[1], *tables)
  found = split_files.find_splits(pattern, every, f'pair of files; expected {expected}', names, apart=True)
  splits: Paths = {split: _pairs(paths, sides, endings, names) for split, paths in found.items()}
  if any(splits.values()):
    split_files.warn_passed(
      pattern, [path for paths in found.values() for path in paths if path.lower().endswith(tables)]
    )
    splits = {split: groups for split, groups in splits.items() if groups}
  else:
    splits = {split: [(path,) for path in paths] for split, paths in found.items()}
  for split, several in splits.items():
    if split != 'train' and len(several) > 1:
      raise InputError(
        f'{pattern}: got several files named as the {split} split: '
        f'{", ".join(os.path.basename(paths[0]) for paths in several)}; expected one'
      )
  if 'train' not in splits:
    raise InputError(f'{pattern}: got only files named as validation or test text; expected training text too')
  return splits


def _pairs(paths: Sequence[str], sides: Sequence[str], endings: Sequence[tuple[str, ...]], names: str) -> list[Files]:
  """Return the files of the two languages with one stem, sorted by it. Raises InputError if one has no counterpart."""
  by_stem: list[dict[str, str]] = [{}, {}]
  for path in paths:
    for one_side, ends in zip(by_stem, endings, strict=True):
      if ending := max((end for end in ends if path.lower().endswith(end)), key=len, default=''):
        one_side[path[: -len(ending)]] = path
  for own, other, side in zip(by_stem, by_stem[::-1], sides[::-1], strict=True):
    if unmatched := sorted(own.keys() - other.keys()):
      raise InputError(
        f'{own[unmatched[0]]}: got no {os.path.basename(unmatched[0])}.{side} in its directory; expected both files'
      )
  return [(by_stem[0][stem], by_stem[1][stem]) for stem in sorted(by_stem[0], key=split_files.order(names))]


def read(paths: Sequence[Files], sides: Sequence[str], *, drop: bool) -> Iterator[Pair]:
  """Yield the pairs in some files, with stripped sentences.

  Args:
    paths: files to read, in order.
    sides: column names if a table's first line names them.
    drop: skip pairs with an empty side, with a warning that counts them (for training text); else raise an error,
      because a score over fewer sentences does not measure the whole set.

  Raises:
    InputError: files have different numbers of lines, rows have other columns, or a side is empty.
  """
  for group in paths:
    where, empty = ' and '.join(group), 0
    rows = _table(group[0], sides) if len(group) == 1 else _lines(group)
    for number, source, target in rows:
      if source and target:
        yield f'{os.path.basename(group[0])}:{number}', source, target
      elif drop:
        empty += 1
      else:
        side = sides[0] if not source else sides[1]
        raise InputError(f'{where}, line {number}: got an empty {side} side; expected both sides of held-out text')
    if empty:
      warnings.warn(f'{where}: {empty:,} pairs with an empty side are skipped', InputWarning, stacklevel=2)


def _lines(group: Files) -> Iterator[tuple[int, str, str]]:
  sides = [_sentences(path) for path in group]
  for number, (source, target) in enumerate(itertools.zip_longest(*sides), 1):
    if source is None or target is None:
      rest = sum(1 for _ in sides[0 if target is None else 1])
      counts = (number - 1, number + rest) if source is None else (number + rest, number - 1)
      raise InputError(
        f'{group[0]}: got {counts[0]:,} lines, and {group[1]} has {counts[1]:,}; expected as many, each '
        'the translation of the same line of the other'
      )
    yield number, source, target


def _sentences(path: str) -> Iterator[str]:
  """Yield the lines of a text file, or the segments of SGML, stripped."""
  sgml = path.removesuffix('.gz').endswith('.sgm')
  for line in documents.read_lines(path):
    if sgml:
      yield from (html.unescape(segment).strip() for segment in _SEGMENT.findall(line))
    else:
      yield line.strip()


def _table(path: str, sides: Sequence[str]) -> Iterator[tuple[int, str, str]]:
  """Yield two columns of a table: those named `sides` in its first line, else the first and the second of two."""
  columns, count = (0, 1), 2
  for number, line in enumerate(documents.read_lines(path), 1):
    if line == '\n':
      continue
    cells = [cell.strip() for cell in line.rstrip('\n').split('\t')]
    if number == 1 and set(sides) <= set(cells):
      columns, count = (cells.index(sides[0]), cells.index(sides[1])), len(cells)
      continue
    if len(cells) != count:
      raise InputError(f'{path}, line {number}: got {len(cells)} columns; expected {count} (source TAB target)')
    yield number, cells[columns[0]], cells[columns[1]]
