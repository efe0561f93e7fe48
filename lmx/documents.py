"""Reader of user files: text, lines and JSON, each plain or compressed (.gz, .xz, .zst).

Every fault of a file (missing, damaged, not UTF-8, not JSON, nested too deep, another type, out of range) raises an
InputError that names the file, the line and the field. Paths may be `str` or have an `open` of their own (epath).
"""

from __future__ import annotations

import contextlib
import gzip
import json
import lzma
import math
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, Any

from lmx.errors import InputError, nearest

_FORMATS = {'.gz': 'gzip', '.xz': 'xz', '.zst': 'zstd'}
COMPRESSED = tuple(_FORMATS)
_BLOCK = 1 << 20  # bytes
_LONGEST = 60  # characters of a value shown in a message
_REQUIRED = object()
_SURROGATE = re.compile('[\ud800-\udfff]')
_KINDS = {
  str: 'a text',
  int: 'an integer',
  float: 'a finite number',
  bool: 'true or false',
  list: 'a list',
  dict: 'an object',
}


def read_blocks(path: Any) -> Iterator[bytes]:
  """Yield the content in blocks of a megabyte, decompressed for .gz, .xz and .zst.

  Raises:
    InputError: the file cannot be read, or its compressed data are damaged or incomplete.
  """
  kind = os.path.splitext(os.fspath(path))[1]
  try:
    with contextlib.ExitStack() as stack:
      file: IO[bytes] = stack.enter_context(path.open('rb') if hasattr(path, 'open') else open(path, 'rb'))
      if kind in COMPRESSED:
        file = stack.enter_context(_decompressed(file, kind))
      while block := file.read(_BLOCK):
        yield block
  except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
    if kind in _FORMATS and getattr(error, 'errno', None) is None:
      raise InputError(
        f'{path}: got damaged {_FORMATS[kind]} data ({error}); expected a complete file; fetch it again'
      ) from None
    assert isinstance(error, OSError)
    raise InputError(f'{path}: cannot be read ({error.strerror or error})') from None


def _decompressed(file: IO[bytes], kind: str) -> Any:
  if kind == '.zst':
    import pyarrow as pa  # takes time to import

    return pa.input_stream(file, compression='zstd')
  return gzip.open(file) if kind == '.gz' else lzma.open(file)


def read_bytes(path: Any) -> bytes:
  """Return the content of a file. Raises InputError as `read_blocks` does."""
  return b''.join(read_blocks(path))


def read_text(path: Any) -> str:
  """Return the content of a UTF-8 file. Raises InputError, also where it is empty, binary or of another encoding."""
  return ''.join(read_lines(path))


def read_lines(path: Any) -> Iterator[str]:
  """Yield the lines of a UTF-8 file, each ending in one line feed, the last one too.

  Line ends are LF or CR LF. In a file whose first megabyte has no LF they are CR; elsewhere a lone CR belongs to its
  line, because line n of a translated text has CR within lines.

  Raises:
    InputError: the file cannot be read, is empty or binary, or is not UTF-8; the line is named.
  """
  rest, number, end = b'', 0, b'\n'
  for block in read_blocks(path):
    if not number and not rest:
      end = line_end(block)
      _refuse_utf16(block, path)
    *lines, rest = (rest + block).split(end)
    for line in lines:
      number += 1
      yield _decode(line, path, number) + '\n'
  if rest:
    number += 1
    yield _decode(rest, path, number) + '\n'
  if not number:
    raise InputError(f'{path}: the file is empty')


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


def _decode(line: bytes, path: Any, number: int) -> str:
  if b'\0' in line:
    raise InputError(f'{path}, line {number}: got a zero byte; expected UTF-8 text, and this file is binary')
  try:
    return line.removesuffix(b'\r').decode('utf-8-sig' if number == 1 else 'utf-8')
  except UnicodeDecodeError as error:
    raise InputError(
      f'{path}, line {number}: not UTF-8 text ({error.reason} at byte {error.start}); save the file as UTF-8'
    ) from None


def parse_json(text: str, where: str) -> Any:
  """Return the value of a JSON text; Python's NaN and Infinity are accepted.

  Args:
    text: JSON of one value.
    where: file and line, for messages.

  Raises:
    InputError: the text is not JSON, is nested too deep, or has an integer too long or a lone surrogate.
  """
  try:
    value = json.loads(text)
  except json.JSONDecodeError as error:
    at = f'column {error.colno}' if error.lineno == 1 else f'line {error.lineno}, column {error.colno}'
    raise InputError(f'{where}: not JSON ({error.msg} at {at})') from None
  except RecursionError:
    raise InputError(f'{where}: got JSON nested too deep to read; expected lists and objects of a few levels') from None
  except ValueError:  # Python's limit of digits
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
  return text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...'
