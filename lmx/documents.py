"""Reader of user files: text, lines and JSON, each plain or compressed (.gz, .xz, .zst), and their opening to write.

Every fault of a file (missing, damaged, not UTF-8, not JSON, nested too deep, another type, out of range) raises an
InputError that names the file, the line and the field. So does a device or a socket, and a line, or a file that is read
whole, of more than `LONGEST` bytes. Paths may be `str` or have an `open` method (epath).
"""

from __future__ import annotations

import collections
import contextlib
import fnmatch
import gzip
import importlib
import json
import lzma
import math
import os
import pathlib
import re
import stat
import sys
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, TextIO, TypeVar

from lmx import storage
from lmx.errors import InputError, explain, nearest

_FORMATS = {'.gz': 'gzip', '.xz': 'xz', '.zst': 'zstd'}
COMPRESSED = tuple(_FORMATS)
LONGEST = 1 << 30  # maximum bytes of a line, or of a file read at once; an endless one would fill memory
_BLOCK = 1 << 20  # bytes
_WINDOW_LOG = 31  # maximum zstd window, 2 GiB (--long=31)
LINES = 5  # maximum number of lines named in a message
_SHOWN = 60  # characters of a value in a message
_SPECIAL = {stat.S_IFCHR: 'a device', stat.S_IFBLK: 'a device', stat.S_IFSOCK: 'a socket', stat.S_IFIFO: 'a pipe'}
_LEFT_BEHIND = re.compile(r'\..*|__macosx|thumbs\.db|desktop\.ini|.*~|#.*#|.*\.sw[op]', re.IGNORECASE | re.DOTALL)
_REQUIRED = object()
_NUMBER = re.compile(r'[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?')
_COMMA = re.compile(r'[+-]?[0-9]+,[0-9]+')
_WHOLE = re.compile(r'([+-]?[0-9]+)\.0+')
Part = TypeVar('Part', str, bytes)
_SURROGATE = re.compile('[\ud800-\udfff]')
_KINDS = {
  str: 'a text',
  int: 'an integer',
  float: 'a finite number',
  bool: 'true or false',
  list: 'a list',
  dict: 'an object',
}


def list_names(folder: Any) -> list[str]:
  """Return the sorted names in a folder, without hidden files and those left by systems and editors.

  Raises:
    InputError: the folder cannot be read.
  """
  try:
    names = os.listdir(folder)
  except OSError as error:
    raise InputError(f'{folder}: cannot be read ({explain(error)})') from None
  return [name for name in sorted(names) if not is_left_behind(name)]


def is_left_behind(name: str) -> bool:
  """Return True for names that are not data: hidden ones, and __MACOSX, Thumbs.db, x.txt~ or x.swp."""
  return _LEFT_BEHIND.fullmatch(name) is not None


def match(folder: Any, pattern: str) -> list[pathlib.Path]:
  """Return the paths in a folder whose names match a pattern, sorted, of the names that `list_names` returns."""
  folder = pathlib.Path(folder)
  names = list_names(folder) if folder.is_dir() else []
  return [folder / name for name in names if fnmatch.fnmatchcase(name, pattern)]


def ending(path: Any) -> str:
  """Return a name's extension in lower case, without the compression's: `.csv` for `A.CSV.gz`."""
  stem, last = os.path.splitext(os.fspath(path).lower())
  return os.path.splitext(stem)[1] if last in _FORMATS else last


def check_regular(path: Any) -> None:
  """Raise InputError for a device, a pipe or a socket, where a file is read more than once."""
  _refuse(path, _SPECIAL)


def check_streamed(path: Any) -> None:
  """Raise InputError for a device or a socket; a pipe may be read, once."""
  _refuse(path, (stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK))


def _refuse(path: Any, kinds: Iterable[int]) -> None:
  """Raise InputError if a local path is a special file of one of these kinds."""
  try:
    kind = stat.S_IFMT(os.stat(path).st_mode)
  except (OSError, ValueError):  # missing, or in a bucket: opening it reports this
    return
  if kind in kinds:
    raise InputError(f'{path}: got {_SPECIAL[kind]}; expected a regular file; copy its content to a file and give that')


def read_blocks(path: Any) -> Iterator[bytes]:
  """Yield the content in blocks of a megabyte, decompressed for .gz, .xz and .zst; a pipe is read once.

  Raises:
    InputError: the file cannot be read, is a device or a socket, or its compressed data are damaged or incomplete.
  """
  check_streamed(path)
  kind = os.path.splitext(os.fspath(path))[1].lower()
  try:
    with contextlib.ExitStack() as stack:
      opened = path.open('rb') if hasattr(path, 'open') else storage.open_file(path)
      file: IO[bytes] = stack.enter_context(opened)
      if kind in COMPRESSED:
        file = stack.enter_context(_decompressed(file, kind))
      while block := file.read(_BLOCK):
        yield block
  except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
    if kind in _FORMATS and getattr(error, 'errno', None) is None:
      raise InputError(_damage(path, kind, error)) from None
    assert isinstance(error, OSError)
    raise InputError(f'{path}: cannot be read ({explain(error)})') from None
  except _import_zstd().ZstdError as error:
    raise InputError(_damage(path, kind, error)) from None


def _damage(path: Any, kind: str, error: Exception) -> str:
  """Return the message for damaged compressed data."""
  return f'{path}: got damaged {_FORMATS[kind]} data ({error}); expected a complete file; fetch it again'


def _decompressed(file: IO[bytes], kind: str) -> Any:
  if kind != '.zst':
    return gzip.open(file) if kind == '.gz' else lzma.open(file)
  zstd = _import_zstd()
  return zstd.open(file, options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})


def _import_zstd() -> Any:
  """Return Python 3.14's standard module, or its backport."""
  return importlib.import_module('compression.zstd' if sys.version_info >= (3, 14) else 'backports.zstd')


def open_to_write(path: Any, mode: str = 'w', *, like: Any = None, errors: str = 'strict') -> TextIO:
  """Open a UTF-8 file to write, compressed if the name `like` (default: its own) ends in .gz, .xz or .zst.

  Line ends are LF on every system. Raises OSError.
  """
  kind = os.path.splitext(os.fspath(path if like is None else like))[1].lower()
  openers: dict[str, Any] = {'.gz': gzip.open, '.xz': lzma.open}
  opener = _import_zstd().open if kind == '.zst' else openers.get(kind, open)
  file: TextIO = opener(path, f'{mode}t', encoding='utf-8', errors=errors, newline='\n')
  return file


def read_bytes(path: Any) -> bytes:
  """Return the content of a file. Raises InputError as `read_blocks` does."""
  return b''.join(_limited(read_blocks(path), f'{path}: got more than {LONGEST:,} bytes; expected a file'))


def read_text(path: Any) -> str:
  """Return the content of a UTF-8 file. Raises InputError, also where it is empty, binary or of another encoding."""
  return ''.join(_limited(read_lines(path), f'{path}: got more than {LONGEST:,} characters; expected a text'))


def _limited(parts: Iterable[Part], message: str) -> Iterator[Part]:
  """Yield the parts of a content. Raises InputError, with the beginning of its message, above `LONGEST` in all."""
  size = 0
  for part in parts:
    size += len(part)
    if size > LONGEST:
      raise InputError(f'{message} that fits in memory')
    yield part


def read_lines(path: Any) -> Iterator[str]:
  """Yield the lines of a UTF-8 file, each ending in one line feed, the last one too.

  Line ends are LF or CR LF. In a file whose first megabyte has no LF they are CR; elsewhere a lone CR belongs to its
  line, because line n of a translated text has CR within lines.

  Raises:
    InputError: the file cannot be read, is empty or binary, or is not UTF-8; the line is named.
  """
  number, end = 0, b'\n'
  for first, lines, end in whole_lines(read_blocks(path), path):
    for number, line in enumerate(lines.removesuffix(end).split(end), first):
      yield _decode(line, path, number) + '\n'
  if not number:
    raise InputError(f'{path}: the file is empty')


def whole_lines(blocks: Iterable[bytes], path: Any, number: int = 1) -> Iterator[tuple[int, bytes, bytes]]:
  """Yield (number of the first line, some whole lines, their line end) of the blocks of a file.

  Args:
    blocks: content of the file; the last line may lack its end.
    path: its path, for messages.
    number: number of the first line; the line end is LF if that is not 1.

  Raises:
    InputError: a line has more than `LONGEST` bytes, or a first one of UTF-16, or one with a zero byte, begins a block.
  """
  rest: list[bytes] = []
  size, end = 0, b''
  for block in blocks:
    if not end:
      end = line_end(block) if number == 1 else b'\n'
      _refuse_utf16(block, path)
    cut = block.rfind(end) + 1
    if cut:
      lines = b''.join([*rest, block[:cut]])
      yield number, lines, end
      number, rest, size = number + lines.count(end), [], 0
    elif b'\0' in block:
      raise InputError(_zero_byte(path, number))
    rest.append(block[cut:])
    size += len(rest[-1])
    if size > LONGEST:
      raise InputError(f'{path}, line {number}: got a line of more than {LONGEST:,} bytes; expected text; divide it')
  if last := b''.join(rest):
    yield number, last, end


def line_end(block: bytes) -> bytes:
  """Return the line end of a file that begins with `block`: LF, or CR if it has CRs and no LF."""
  return b'\r' if b'\r' in block.removesuffix(b'\r') and b'\n' not in block else b'\n'


def read_rows(path: Any) -> Iterator[tuple[int, str]]:
  """Yield (line number, line without its line end) of a UTF-8 file, skipping the blank lines at its end."""
  blank: list[tuple[int, str]] = []
  for number, line in enumerate(read_lines(path), 1):
    blank.append((number, line.rstrip('\n')))
    if line.strip():
      yield from blank
      blank.clear()


def decode_lines(block: bytes, path: Any, number: int, end: bytes = b'\n') -> str:
  """Return the text of whole lines with LF ends; `number` is that of the first. Raises InputError as `read_lines`."""
  if number == 1:
    _refuse_utf16(block, path)
  try:
    if b'\0' not in block:
      text = block.decode('utf-8-sig' if number == 1 else 'utf-8')
      return text.replace('\r\n', '\n') if end == b'\n' else text.replace('\r', '\n')
  except UnicodeDecodeError:
    pass
  for offset, line in enumerate(block.split(end)):
    _decode(line, path, number + offset)
  raise AssertionError('one of the lines is faulty')


def _refuse_utf16(block: bytes, path: Any) -> None:
  """Raise InputError if a file that begins with `block` has the mark of UTF-16."""
  if block.startswith((b'\xff\xfe', b'\xfe\xff')):
    raise InputError(f'{path}: got UTF-16 text; expected UTF-8; save the file as UTF-8')


def _zero_byte(path: Any, number: int) -> str:
  return f'{path}, line {number}: got a zero byte; expected UTF-8 text, and this file is binary'


def _decode(line: bytes, path: Any, number: int) -> str:
  if b'\0' in line:
    raise InputError(_zero_byte(path, number))
  try:
    return line.removesuffix(b'\r').decode('utf-8-sig' if number == 1 else 'utf-8')
  except UnicodeDecodeError as error:
    raise InputError(
      f'{path}, line {number}: not UTF-8 text ({error.reason} at byte {error.start}); save the file as UTF-8'
    ) from None


class _RepeatedKey(Exception):
  """A JSON object has the key twice; `begin` is the position of the object in the text if it is known."""

  def __init__(self, key: str):
    super().__init__(key)
    self.key, self.begin = key, 0


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """Return a JSON object of its keys and values. Raises _RepeatedKey."""
  row = dict(pairs)
  if len(row) < len(pairs):
    counts = collections.Counter(key for key, _ in pairs)
    raise _RepeatedKey(next(key for key, count in counts.items() if count > 1))
  return row


class _Locating(json.JSONDecoder):
  """Python's slower decoder of JSON, which also finds where the object with a repeated key begins."""

  def __init__(self) -> None:
    super().__init__(object_pairs_hook=_unique)
    self.parse_object: Any = self._parse_object
    self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]

  def _parse_object(self, text_and_begin: tuple[str, int], *options: Any) -> Any:
    try:
      return json.decoder.JSONObject(text_and_begin, *options)  # type: ignore[attr-defined]
    except _RepeatedKey as error:
      error.begin = error.begin or text_and_begin[1]
      raise


def _repeated_key(text: str, key: str, where: str) -> str:
  """Return the message for a JSON text in which an object has a key twice."""
  line = ''
  if '\n' in text.strip():
    try:
      _Locating().decode(text)
    except _RepeatedKey as error:
      line = f' in the object that begins in line {text.count(chr(10), 0, error.begin) + 1}'
    except RecursionError:  # Python's decoder has a lower nesting limit
      pass
  return f'{where}: got the key {show(key)} twice{line}; expected each key once; remove or rename one'


def parse_json(text: str, where: str) -> Any:
  """Return the value of a JSON text; Python's NaN and Infinity are accepted.

  Args:
    text: JSON of one value.
    where: file and line, for messages.

  Raises:
    InputError: the text is not JSON, is nested too deep, has a key twice in an object, or has an integer too long or a
      lone surrogate.
  """
  try:
    value = json.loads(text, object_pairs_hook=_unique)
  except _RepeatedKey as error:
    raise InputError(_repeated_key(text, error.key, where)) from None
  except json.JSONDecodeError as error:
    at = f'column {error.colno}' if error.lineno == 1 else f'line {error.lineno}, column {error.colno}'
    raise InputError(f'{where}: not JSON ({error.msg} at {at})') from None
  except RecursionError:
    raise InputError(f'{where}: got JSON nested too deep to read; expected lists and objects of a few levels') from None
  except ValueError:  # Python's digit limit
    raise InputError(f'{where}: got an integer too long to read; expected numbers of at most 4,300 digits') from None
  if '\\u' in text and _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
    raise InputError(f'{where}: got half a surrogate pair (\\ud800 to \\udfff); expected whole characters')
  return value


def read_json(path: Any) -> Any:
  """Return the value of a JSON file. Raises InputError as `read_text` and `parse_json` do."""
  return parse_json(read_text(path), str(path))


def read_json_lines(path: Any) -> Iterator[tuple[int, Any]]:
  """Yield (line number, value) of each line of a file that is not blank. Raises InputError as `read_json` does."""
  for number, line in enumerate(read_lines(path), 1):
    if line.strip():
      yield number, parse_json(line, f'{path}, line {number}')


def field(row: Any, name: str, kind: type, where: str, default: Any = _REQUIRED) -> Any:
  """Return one field of a JSON object, checked to have the type `kind`.

  Args:
    row: the JSON value; must be an object.
    name: name of the field.
    kind: str, int, float (finite; integers are accepted), bool, list or dict. For int, a whole float is accepted.
    where: file and line, for messages.
    default: value if the field is missing or null; a field without a default is required.

  Raises:
    InputError: there is no such field, or it has another type or is out of range.
  """
  if not isinstance(row, Mapping):
    raise InputError(f'{where}: got {show(row)}; expected an object with the field "{name}"')
  value = row.get(name)
  if value is None and default is not _REQUIRED:
    return default
  if name not in row:
    raise InputError(f'{where}: no field "{name}"{nearest(name, map(str, row)) if row else ""}')
  return convert(value, kind, f'{where}: {name}')


def convert(value: Any, kind: type, where: str) -> Any:
  """Return a JSON value as `kind`. Raises InputError as `field` does; `where` ends with the field's name."""
  number = isinstance(value, (int, float)) and not isinstance(value, bool)
  if number and kind is int and isinstance(value, float) and value.is_integer():
    return int(value)
  if number and kind is float and _is_finite(value):
    return float(value)
  if isinstance(value, kind) and kind is not float and not (kind is int and isinstance(value, bool)):
    return value
  raise InputError(f'{where}: got {show(value)}; expected {_KINDS[kind]}')


def parse_number(text: str, where: str) -> float:
  """Return the number in a cell of a table or field of a line: ASCII digits with a decimal point, and finite.

  Args:
    text: the cell; white space around it does not count.
    where: file, line and column, for messages.

  Raises:
    InputError: the cell is another text, such as `1,5`, `1_000`, `nan` or digits of another script.
  """
  cell = text.strip()
  if _NUMBER.fullmatch(cell) and math.isfinite(number := float(cell)):
    return number
  point = f'; write {cell.replace(",", ".")}' if _COMMA.fullmatch(cell) else ''
  raise InputError(f'{where}: got {show(cell)}; expected a finite number, such as 1.5{point}')


def label_name(value: Any) -> str:
  """Return the name of a label as it is written in a table, in JSON or on the command line.

  Equal numbers are one label, so 1, 1.0 and '1.0' are '1', and 1e16 is '10000000000000000'. JSON's true is 'True', as
  Python and pandas write it in other tables; texts keep their case.
  """
  if isinstance(value, bool):
    return str(value)
  if isinstance(value, float) and value.is_integer():
    value = int(value)
  name = value.strip() if isinstance(value, str) else json.dumps(value)
  whole = _WHOLE.fullmatch(name)
  return whole[1] if whole else name


def compose(text: str) -> str:
  """Return a text in Unicode's composed form, NFC: macOS and Windows write `é` as one character or as two."""
  return unicodedata.normalize('NFC', text)


def labels_alike(names: Sequence[str]) -> list[str]:
  """Return the labels that differ from another only in case or Unicode form."""
  forms = [unicodedata.normalize('NFKC', name).casefold() for name in names]
  return [name for name, form in zip(names, forms, strict=True) if forms.count(form) > 1]


def _is_finite(value: float) -> bool:
  try:
    return math.isfinite(float(value))
  except OverflowError:
    return False


def show(value: Any) -> str:
  """Return a JSON value as text for a message, shortened."""
  if isinstance(value, (list, Mapping)):
    return f'{"a list" if isinstance(value, list) else "an object"} of {len(value)}'
  text = json.dumps(value, ensure_ascii=False, default=repr)
  return text if len(text) <= _SHOWN else f'{text[:_SHOWN]}...'


def format_lines(numbers: Sequence[int]) -> str:
  """Return 'line 3', or 'lines 3, 5, ...' with the first few lines."""
  first = ', '.join(map(str, numbers[:LINES]))
  return f'line{"s" * (len(numbers) > 1)} {first}{", ..." if len(numbers) > LINES else ""}'
