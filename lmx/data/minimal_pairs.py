"""Minimal pairs: an acceptable sentence and an unacceptable one that differ in one property, grouped by paradigm.

BLiMP (Warstadt et al. 2020, arXiv 1912.00582) is a folder with a .jsonl file for each of its 67 paradigms. Any .jsonl,
.tsv, .csv or .parquet file with a column of good and one of bad sentences is read too.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lmx import documents
from lmx.data.builders import cells
from lmx.errors import InputError, InputWarning, nearest

GOOD, BAD, PARADIGM, PHENOMENON, FIELD, ID = (
  'sentence_good',
  'sentence_bad',
  'UID',
  'linguistics_term',
  'field',
  'pairID',
)
_ENDINGS = (*cells.ENDINGS, '.parquet')
# BLiMP's files name a 13th phenomenon and a field in two ways; these are the 12 and 4 of its table 3.
_SAME = {'s-selection': 'argument_structure', 'syntax/semantics': 'syntax_semantics'}
_WORD = re.compile("[^\\W_]+(?:['\u2019][^\\W_]+)*")
WORD_RULE = 'a word is a run of letters and digits, with apostrophes inside; upper and lower case differ'
SEEN = 2  # occurrences of a seen word, as in BabyLM's filter


class Pair(NamedTuple):
  """Two sentences of a paradigm.

  Attributes:
    good, bad: the acceptable and the unacceptable sentence.
    paradigm: name of the contrast.
    phenomenon: name of the paradigms about one phenomenon, '' without one.
    field: field of linguistics, '' without one.
    id: name of the pair in its paradigm.
  """

  good: str
  bad: str
  paradigm: str
  phenomenon: str
  field: str
  id: str


@dataclasses.dataclass(frozen=True)
class MinimalPairs:
  """Pairs of a folder or a file.

  Attributes:
    name: of the folder or the file.
    pairs: in the order of the files and their lines.
    path: of the folder or the file.
    subset: name of the subset, 'all' for all pairs.
    about: rule of the subset, for output.
    dropped: paradigms of which the subset has no pair.
  """

  name: str
  pairs: Sequence[Pair]
  path: str = ''
  subset: str = 'all'
  about: str = ''
  dropped: Sequence[str] = ()

  @property
  def hash(self) -> str:
    """Digest of the sentences and their paradigms."""
    content = json.dumps([(*pair,) for pair in self.pairs], ensure_ascii=False)
    return hashlib.sha256(content.encode('utf-8', 'surrogatepass')).hexdigest()

  def keep(self, subset: str, about: str, kept: Sequence[Pair]) -> MinimalPairs:
    """Return a subset. Raises InputError if no pair is left."""
    if not kept:
      raise InputError(f'--subset: got {subset}, which has none of the {len(self.pairs):,} pairs of {self.path}')
    left = {pair.paradigm for pair in kept}
    dropped = [name for name in dict.fromkeys(pair.paradigm for pair in self.pairs) if name not in left]
    return dataclasses.replace(self, pairs=kept, subset=subset, about=about, dropped=dropped)


def read(path: str, good: str = GOOD, bad: str = BAD, paradigm: str = '') -> MinimalPairs:
  """Read minimal pairs.

  The columns `linguistics_term`, `field` and `pairID` are read if they exist. Without the last a pair is named by its
  line.

  Args:
    path: a file, or a folder of files; each may be compressed.
    good: column of the acceptable sentences.
    bad: column of the unacceptable sentences.
    paradigm: column of the paradigms; '' is `UID`, or the name of the file if there is no such column.

  Raises:
    InputError: a column is missing, a sentence is empty or no text, a file has no row, a paradigm has a pair twice or
      two phenomena, `good` is `bad`, or a line cannot be read.
  """
  if good == bad:
    raise InputError(f'--good, --bad: got {good} for both; expected two columns')
  pairs: list[Pair] = []
  places: dict[tuple[str, str], str] = {}
  groups: dict[str, tuple[str, str]] = {}
  for file in _files(path):
    count = len(pairs)
    for number, row in cells.read(file):
      where = f'{file}, line {number}'
      pair = _pair(row, where, number, _stem(file), (good, bad, paradigm))
      if other := places.get((pair.paradigm, pair.id)):
        raise InputError(
          f'{where}: {ID}: got "{pair.id}" twice in paradigm {pair.paradigm} (before in {other}); expected different '
          'names; rename one'
        )
      places[pair.paradigm, pair.id] = where
      if (known := groups.setdefault(pair.paradigm, (pair.phenomenon, pair.field))) != (pair.phenomenon, pair.field):
        raise InputError(
          f'{where}: got phenomenon "{pair.phenomenon}" and field "{pair.field}" in paradigm {pair.paradigm}; expected '
          f'"{known[0]}" and "{known[1]}", as in its other rows'
        )
      pairs.append(pair)
    if len(pairs) == count:
      raise InputError(f'{file}: got no pairs; expected at least one row; remove the file, or add rows')
  return MinimalPairs(pathlib.Path(os.path.abspath(path)).name, pairs, path)


def _files(path: str) -> list[str]:
  """Return the file, or the files of a folder; warn of other files."""
  if not os.path.isdir(path):
    if documents.ending(path) not in _ENDINGS:
      raise InputError(f'--pairs: got {path}; expected a folder, or a file that ends in {", ".join(_ENDINGS)}')
    return [path]
  names = documents.list_names(path)
  tables = [name for name in names if documents.ending(name) in _ENDINGS]
  if not tables:
    raise InputError(
      f'--pairs: got {path}, a folder without {", ".join(_ENDINGS)} files; expected BLiMP, or such files'
    )
  stems = dict[str, str]()
  for name in tables:
    if (first := stems.setdefault(_stem(name), name)) != name:
      raise InputError(f'{path}: got {first} and {name}; expected one file of each name; remove or rename one')
  if other := [name for name in names if name not in tables]:
    warnings.warn(f'{path}: skipped, not a table of pairs: {", ".join(other)}', InputWarning, stacklevel=3)
  return [os.path.join(path, name) for name in tables]


def _stem(file: str) -> str:
  """Return a file's name without its endings."""
  name = os.path.basename(file)
  return name[: name.lower().rindex(documents.ending(name))]


def _pair(row: Mapping[str, Any], where: str, number: int, stem: str, columns: tuple[str, str, str]) -> Pair:
  """Return the pair of a row. Raises InputError."""
  good, bad, paradigm = columns
  sentences: list[str] = []
  for option, name in (('--good', good), ('--bad', bad)):
    text = _cell(row, name, where, f'name it by {option}')
    if not text.strip():
      raise InputError(f'{where}: {name}: got an empty sentence; expected a text; remove the line')
    sentences.append(text)
  if paradigm or PARADIGM in row:
    stem = _cell(row, paradigm or PARADIGM, where, 'name it by --paradigm').strip()
    if not stem:
      raise InputError(f'{where}: {paradigm or PARADIGM}: got no paradigm; expected its name')
  others = [cells.text(row.get(name), f'{where}: {name}') for name in (PHENOMENON, FIELD, ID)]
  phenomenon, field = (_SAME.get(name, name) for name in others[:2])
  return Pair(sentences[0], sentences[1], stem, phenomenon, field, others[2] or f'line {number}')


def _cell(row: Mapping[str, Any], name: str, where: str, advice: str) -> str:
  """Return the text in a column, unchanged. Raises InputError, with advice if there is no such column."""
  if name not in row:
    raise InputError(f'{where}: no column "{name}"{nearest(name, map(str, row))}; {advice}')
  value = row[name]
  if not isinstance(value, str):
    raise InputError(f'{where}: {name}: got {documents.show(value)}; expected a text')
  return value


def keep_listed(dataset: MinimalPairs, path: str = '') -> MinimalPairs:
  """Return the pairs in BabyLM's list, a table with the columns `UID` and `pairID`.

  Paradigms that have no file are ignored; a listed pair of another paradigm must exist.

  Args:
    dataset: the pairs.
    path: the list; '' is the file blimp_babylm_filtered.tsv, which may be compressed, beside the folder.

  Raises:
    InputError: there is no list, or it names a pair that does not exist.
  """
  path = path or _list_beside(dataset.path)
  known = {(pair.paradigm, pair.id) for pair in dataset.pairs}
  paradigms, listed = {pair.paradigm for pair in dataset.pairs}, set()
  advice = f'expected the columns {PARADIGM} and {ID} of a list of pairs; name another --subset_file'
  for number, row in cells.read(path):
    key = tuple(_cell(row, name, f'{path}, line {number}', advice) for name in (PARADIGM, ID))
    if key[0] in paradigms and key not in known:
      raise InputError(f'{path}, line {number}: got pair {key[1]} of {key[0]}, which is not in {dataset.path}')
    listed.add(key)
  kept = [pair for pair in dataset.pairs if (pair.paradigm, pair.id) in listed]
  return dataset.keep('babylm', f'pairs listed in {os.path.basename(path)}', kept)


def _list_beside(path: str) -> str:
  """Return the list beside a folder of pairs. Raises InputError."""
  folder = os.path.dirname(os.path.abspath(path))
  stem = 'blimp_babylm_filtered.tsv'
  names = [stem, *(f'{stem}{ending}' for ending in documents.COMPRESSED)]
  beside = next((os.path.join(folder, name) for name in names if os.path.exists(os.path.join(folder, name))), '')
  if not beside:
    raise InputError(f'--subset_file: got none, and {folder} has no {stem}; expected the list of pairs; name the file')
  return beside


def keep_seen(dataset: MinimalPairs, texts: Iterable[str], source: str) -> MinimalPairs:
  """Return the pairs whose words all occur at least `SEEN` times in a text.

  Args:
    dataset: the pairs.
    texts: documents, or lines.
    source: name of the text.

  Raises:
    InputError: there is no such pair.
  """
  words_of = [{*_WORD.findall(pair.good), *_WORD.findall(pair.bad)} for pair in dataset.pairs]
  counts = collections.Counter[str]()
  for text in texts:
    counts.update(_WORD.findall(text))
  kept = [
    pair for pair, words in zip(dataset.pairs, words_of, strict=True) if all(counts[word] >= SEEN for word in words)
  ]
  return dataset.keep('seen', f'every word occurs at least {SEEN} times in {source}; {WORD_RULE}', kept)
