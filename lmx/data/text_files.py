"""The user's own text (`text_files`): documents in the order of file names, read in parts.

Files are .txt, .jsonl, each plain or compressed, or .parquet. A part is a range of a plain file between document
boundaries, some row groups of a .parquet file, or a whole compressed file. So processes can share a corpus, and none
holds more than one part. A document longer than a part is split at line ends.

No TFDS is needed: a copy of the text would double its space.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lmx import documents, storage
from lmx.data.builders import cells, files, parquet
from lmx.errors import InputError, explain, nearest

_BLOCK = 1 << 20
_BLANK = re.compile(r'\n\s*\n')
_FIRST_BLANK = re.compile(r'\A\s*\n')
_LINE = re.compile(rb'\n')
_GAP = re.compile(rb'\n[ \t\r\f\v]*\n')  # between two documents, wherever a file is divided
# Where a long document is divided, at a line end: before its white space, or after it.
_LINE_ENDS = {'before': re.compile(rb'(?<=\S)(?=[ \t\r\f\v]*\n)'), 'after': re.compile(rb'\n[ \t\r\f\v]*(?=\S)')}

Row = tuple[str, str, str]  # id, text, label


class Part(NamedTuple):
  """A part of a split's files.

  Attributes:
    file: index of the file.
    start: first byte of a plain file, or first row group of a .parquet file.
    stop: the byte, or row group, after the last; 0 for a whole compressed file.
    begins: first byte of the part's first document; below `start` if the document began earlier.
    ends: whether the part's last document ends in it.
  """

  file: int
  start: int
  stop: int
  begins: int
  ends: bool = True


@dataclasses.dataclass(frozen=True)
class Selection:
  """A split's share of the training text, by document hash or by line numbers.

  Attributes:
    split: name of the split.
    missing: splits that are held out.
    fraction: share of each of them.
    lines: first and last line, exclusive, if there are few documents.
  """

  split: str
  missing: tuple[str, ...]
  fraction: float
  lines: tuple[int, int] | None = None


class Documents:
  """The documents of a split.

  Args:
    paths: its files.
    unit: unit of a document in a .txt file: 'blank_line' (text between empty lines), 'file' or 'line'.
    column: field of the text in .jsonl and .parquet files.
    selection: the documents of the files that are in the split; None for all.
  """

  def __init__(self, paths: Sequence[str], unit: str, column: str, selection: Selection | None = None):
    if unit not in ('blank_line', 'file', 'line'):
      raise InputError(f'data.documents: unknown "{unit}"{nearest(unit, ("blank_line", "file", "line"))}')
    self._paths, self._unit, self._column, self._selection = paths, unit, column, selection

  @property
  def size(self) -> int:
    """Size of the (possibly compressed) files in bytes; for a held-out split about its share."""
    return round(self._share * sum(map(storage.size, self._paths)))

  @property
  def _share(self) -> float:
    chosen = self._selection
    if chosen is None:
      return 1.0
    return 1 - len(chosen.missing) * chosen.fraction if chosen.split == 'train' else chosen.fraction

  def __iter__(self) -> Iterator[Row]:
    """Yield id, text and label ('' without a label). Raises InputError for a damaged file, or one without text."""
    rows = (row for file in range(len(self._paths)) for row in self._whole(file))
    if self._selection is None:
      return rows
    return _lines(rows, self._selection.lines) if self._selection.lines else filter(self._selects, rows)

  def _whole(self, file: int) -> Iterator[Row]:
    count = 0
    for row in self._read(Part(file, 0, 0, 0)):
      count += 1
      yield row
    if not count:
      raise InputError(f'{self._paths[file]}: the file has no text')

  def _selects(self, row: Row) -> bool:
    chosen = self._selection
    return chosen is None or files.hashed_split(row[1], list(chosen.missing), chosen.fraction) == chosen.split

  def select(self, selection: Selection) -> Documents:
    """Return a share of these documents."""
    return Documents(self._paths, self._unit, self._column, selection)

  @property
  def has_parts(self) -> bool:
    """Return False if the split is selected by line numbers, which count from the first file on."""
    return not (self._selection and self._selection.lines)

  def parts(self, size: int, divide: str) -> list[Part]:
    """Return the parts of the files, each of about `size` bytes; [] without `has_parts`.

    Args:
      size: bytes.
      divide: where to split a longer document: 'before' the white space at a line end, or 'after' it; '' for no split.
    """
    if not self.has_parts:
      return []
    divide = '' if self._selection else divide
    return [part for file in range(len(self._paths)) for part in self._parts(file, size, divide)]

  def _parts(self, file: int, size: int, divide: str) -> Iterator[Part]:
    path = self._paths[file]
    if path.lower().endswith(documents.COMPRESSED):
      yield Part(file, 0, 0, 0)
    elif path.lower().endswith('.parquet'):
      start = total = 0
      with parquet.open_file(path) as source:
        for group in range(count := source.num_row_groups):
          total += source.metadata.row_group(group).total_byte_size
          if total >= size or group + 1 == count:
            yield Part(file, start, group + 1, start)
            start, total = group + 1, 0
    else:
      yield from self._ranges(file, size, divide)

  def _ranges(self, file: int, size: int, divide: str) -> Iterator[Part]:
    path = self._paths[file]
    length, start, begins = storage.size(path), 0, 0
    with storage.open_file(path) as source:
      lone_returns = documents.line_end(source.read(_BLOCK)) == b'\r'
      whole = lone_returns or (self._unit == 'file' and not path.lower().endswith('.jsonl'))
      by_line = self._unit == 'line' or path.lower().endswith('.jsonl')
      while not whole and length - start > size:
        stop, ends = _border(source, start, size, '' if by_line else divide, by_line=by_line)
        if stop >= length:
          break
        yield Part(file, start, stop, begins, ends)
        start, begins = stop, stop if ends else begins
    yield Part(file, start, length, begins)

  def read(self, part: Sequence[Any]) -> Iterator[Row]:
    """Yield the documents of a part that are in the split; a document of several parts is divided into them."""
    rows = self._read(Part(*part))
    return rows if self._selection is None else filter(self._selects, rows)

  def part_size(self, part: Sequence[Any]) -> int:
    """Return the bytes of a part in its file, as `size` counts them."""
    file, start, stop, *_ = part
    path = self._paths[file]
    if path.lower().endswith('.parquet'):
      with parquet.open_file(path) as source:
        return round(self._share * storage.size(path) * (stop - start) / max(source.num_row_groups, 1))
    return round(self._share * (stop - start if stop else storage.size(path)))

  def continues(self, part: Sequence[Any]) -> bool:
    """Return True if the part begins inside a document."""
    return Part(*part).begins < Part(*part).start

  def ends(self, part: Sequence[Any]) -> bool:
    """Return True if the last document of the part ends in it."""
    return Part(*part).ends

  def _read(self, part: Part) -> Iterator[Row]:
    path = self._paths[part.file]
    name = os.path.basename(path)
    stem = _stem(path)
    if stem.lower().endswith('.parquet'):
      texts = _parquet_texts(path, part, self._column)
    elif stem.lower().endswith('.jsonl'):
      texts = _json_texts(path, part, self._column)
    else:
      texts = ((text, '') for text in self._plain(path, part))
    for number, (text, label) in enumerate(texts, 1):
      yield f'{name}:{f"{part.start}+" * bool(part.start)}{number}', text, label

  def _plain(self, path: str, part: Part) -> Iterator[str]:
    texts = _texts(path, part)
    if self._unit == 'file':
      found: Iterable[str] = iter([''.join(_bounded(texts, path)).rstrip()])
    elif self._unit == 'line':
      found = (line.rstrip() for text in texts for line in text.split('\n'))
    else:
      found = _between_blank_lines(texts, part, path)
    return (text for text in found if text.strip())


def open_splits(
  paths_of: Mapping[str, Sequence[str]], pattern: str, unit: str, column: str, fraction: float, missing: Sequence[str]
) -> dict[str, Documents]:
  """Return the splits of the user's files.

  Args:
    paths_of: {split: files}, from `files.find_texts`.
    pattern: where they are, for messages.
    unit: see `Documents`.
    column: see `Documents`.
    fraction: share of the training text to hold out for each of `missing`.
    missing: splits to hold out of the training text.

  Raises:
    InputError: there are too few lines to hold out any.
  """
  splits = {split: Documents(paths, unit, column) for split, paths in paths_of.items()}
  if not missing:
    return splits
  train, held, sizes = splits['train'], tuple(missing), dict.fromkeys(['train', *missing], 0)
  lines = 0
  for _, text, _ in train:
    sizes[files.hashed_split(text, list(missing), fraction)] += 1
    if sum(sizes.values()) * fraction >= files.ENOUGH and all(sizes.values()):
      return {**splits, **{split: train.select(Selection(split, held, fraction)) for split in sizes}}
    lines += text.count('\n') + 1
  per_split = math.ceil(lines * fraction)
  if lines <= per_split * len(missing):
    raise InputError(
      f'{pattern}: {lines} lines are too few to hold out {" and ".join(missing)} text; '
      'give files named valid* and test*, or set data.split_fraction=0'
    )
  edges = [0, *(lines - per_split * n for n in range(len(missing), 0, -1)), lines]
  borders = {split: (edges[i], edges[i + 1]) for i, split in enumerate(sizes)}
  return {**splits, **{split: train.select(Selection(split, held, fraction, borders[split])) for split in sizes}}


def _stem(path: str) -> str:
  return os.path.splitext(path)[0] if path.lower().endswith(documents.COMPRESSED) else path


def _lines(rows: Iterable[Row], borders: tuple[int, int]) -> Iterator[Row]:
  """Yield the documents, restricted to lines `borders[0]` to `borders[1]` of the whole text."""
  start, stop = borders
  position = 0
  for name, text, label in rows:
    lines = text.split('\n')
    selected = '\n'.join(lines[max(0, start - position) : max(0, stop - position)])
    position += len(lines)
    if selected.strip():
      yield name, selected, label


def _border(source: Any, start: int, size: int, divide: str, *, by_line: bool) -> tuple[int, bool]:
  """Return (the first border of documents at least `size` bytes after `start`, True), or (line boundary, False) if a
  document is longer than a part and may be split.
  """
  at, rest = start + size, b''
  source.seek(at)
  while block := source.read(_BLOCK):
    found = rest + block
    if gap := (_LINE if by_line else _GAP).search(found):
      return at + gap.end(), True
    if divide and at + len(found) - start >= 2 * size and (end := _LINE_ENDS[divide].search(found)):
      return at + end.end(), False
    keep = len(found) if by_line else len(found.rstrip(b' \t\r\f\v\n'))
    at, rest = at + keep, found[keep:]
  return at + len(rest), True


def _texts(path: str, part: Part) -> Iterator[str]:
  """Yield a part's text in blocks of whole lines; the last line may lack its line end."""
  number = 0
  try:
    # Only the first line of a file may have a mark, so that the first of a later part has another number.
    for number, lines, end in documents.whole_lines(_blocks(path, part), path, 2 if part.start else 1):
      yield documents.decode_lines(lines, path, number, end)
  except InputError:
    if part.start:  # again, with the number of the line in the file
      before = _lines_before(path, part.start)
      for number, lines, end in documents.whole_lines(_blocks(path, part), path, before + 1):
        documents.decode_lines(lines, path, number, end)
    raise
  if not number:
    raise InputError(f'{path}: the file is empty')


def _blocks(path: str, part: Part) -> Iterator[bytes]:
  return documents.read_blocks(path) if not part.stop else _range(path, part.start, part.stop)


def _lines_before(path: str, start: int) -> int:
  return sum(block.count(b'\n') for block in _range(path, 0, start))


def _range(path: str, start: int, stop: int) -> Iterator[bytes]:
  try:
    with storage.open_file(path) as file:
      file.seek(start)
      while start < stop and (block := file.read(min(_BLOCK, stop - start))):
        start += len(block)
        yield block
  except OSError as error:
    raise InputError(f'{path}: cannot be read ({explain(error)})') from None


def _bounded(texts: Iterable[str], path: str) -> Iterator[str]:
  """Yield the texts of a document. Raises InputError if it has more than `documents.LONGEST` characters."""
  size = 0
  for text in texts:
    _check_size(size := size + len(text), path)
    yield text


def _check_size(size: int, path: str) -> None:
  if size > documents.LONGEST:
    raise InputError(
      f'{path}: got a document of more than {documents.LONGEST:,} characters; expected documents that fit in memory, '
      'with blank lines between them; set data.documents=line if each line is one'
    )


def _between_blank_lines(texts: Iterable[str], part: Part, path: str) -> Iterator[str]:
  """Yield the texts between empty lines, without white space at their ends; `texts` are whole lines of a part.

  A text that the part does not begin, or end, with keeps its white space there.
  """
  document: list[str] = []
  continued = part.begins < part.start
  space = ''  # at the end of the block
  size = 0  # characters of the document so far
  for text in texts:
    _check_size(size := size + len(text), path)
    text = text if document or continued else _FIRST_BLANK.sub('', text)
    body = text.rstrip()
    if not body:
      space += text if document or continued else ''
      continue
    first, *others = _BLANK.split(space + body)
    document.append(first)
    if others:
      yield ''.join(document).rstrip()
      yield from (other.rstrip() for other in others[:-1])
      document, size = others[-1:], len(others[-1])
    space = text[len(body) :]
  yield ''.join(document) + ('' if part.ends else space)


def _json_texts(path: str, part: Part, column: str) -> Iterator[tuple[str, str]]:
  lines = (line for text in _texts(path, part) for line in text.removesuffix('\n').split('\n'))
  for number, line in enumerate(lines, 1):
    if not line.strip():
      continue
    try:
      found = _json_text(line, f'{path}, line {number}', column)
    except InputError:
      if part.start:
        _json_text(line, f'{path}, line {_lines_before(path, part.start) + number}', column)
      raise
    if found[0]:
      yield found


def _json_text(line: str, where: str, column: str) -> tuple[str, str]:
  row = documents.parse_json(line, where)
  text = documents.field(row, column, str, where).rstrip()
  return text, cells.label(row.get('label'), f'{where}: label')


def _parquet_texts(path: str, part: Part, column: str) -> Iterator[tuple[str, str]]:
  with parquet.open_file(path) as source:
    parquet.check_texts(source, path, column)
    columns = [column, *(['label'] if 'label' in source.schema_arrow.names and column != 'label' else [])]
    groups = range(part.start, part.stop or source.num_row_groups)
    for number, row in parquet.rows(source, path, columns, groups):
      if text := (row[column] or '').rstrip():
        yield text, cells.label(row.get('label'), f'{path}, row {number}: label')
