"""Errors that a user can fix. The command line prints only their message and exits with code 2.

For a warning it also prints only the message, and continues.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import numbers
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

_LONGEST = 5_000  # maximum characters of a message
_SHOWN = 60  # maximum characters of a value in a message
_NUMBER = re.compile(r'\[Errno -?\d+\] ?')  # matches an OSError quoted in another error's text
_DISK = {  # error number -> how to fix it
  errno.ENOSPC: 'free some space, or use another disk',
  errno.EDQUOT: 'free some space, or ask for a larger quota',
  errno.EFBIG: 'raise the limit of file sizes (ulimit -f)',
  errno.EROFS: 'mount the file system writable, or use another directory',
  **dict.fromkeys((errno.EACCES, errno.EPERM), 'change its permissions, or use another path'),
  **dict.fromkeys((errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG), 'use another path'),
  errno.EIO: 'check the disk, or use another one',
  errno.ESTALE: 'mount the network file system again',
}


class InputError(ValueError):
  """Invalid input to lmx (a config key, a file, a batch size); the message gives the fix."""

  def __init__(self, message: object = ''):
    """Shorten a message that repeats a long input."""
    text = str(message)
    super().__init__(text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...')


class InputWarning(UserWarning):
  """Changed input, such as truncated text; the message says what changed and how much."""


class InputNote(InputWarning):
  """Settings that were read from a file; the message names the file and the values."""


class ReaderGone(BrokenPipeError):
  """The reader of an output has closed it before its end."""


class NonFiniteLoss(RuntimeError):
  """The loss of an update (with `train.on_nan` 'stop'), of a validation or of an evaluated split is NaN or infinite."""


def nearest(name: str, names: Iterable[str], cutoff: float = 0.5) -> str:
  """Return `'; did you mean "x"?'` for the closest of `names`, or the whole list if none has that similarity."""
  names = sorted(names)
  return suggest(name, names, cutoff) or '; known: ' + ', '.join(names)


def suggest(name: str, names: Iterable[str], cutoff: float = 0.5) -> str:
  """Return `'; did you mean "x"?'` for the closest of `names`, or '' if none has that similarity."""
  close = difflib.get_close_matches(name, sorted(names), n=1, cutoff=cutoff)
  return f'; did you mean "{close[0]}"?' if close else ''


def check_choice(where: str, value: Any, choices: Iterable[str]) -> None:
  """Raise InputError with the field `where` (such as 'optim.schedule') and the nearest of `choices`, unless valid."""
  choices = list(choices)
  if value not in choices:
    raise InputError(f'{where}: unknown "{value}"{nearest(str(value), choices)}')


def check_range(where: str, value: float, low: float, high: float | None = None) -> None:
  """Raise InputError with the field `where` unless low <= value, and value < high if `high` is given."""
  if not value >= low or (high is not None and not value < high):
    expected = f'at least {low}' + ('' if high is None else f' and below {high}')
    raise InputError(f'{where}: got {value}; expected {expected}')


def check_type(where: str, value: Any, kinds: type | tuple[type, ...], expected: str) -> None:
  """Raise InputError with the argument `where` unless the value is of one of `kinds`; a bool is not a number.

  Args:
    where: the argument, as the user writes it.
    value: its value.
    kinds: as for `isinstance`; NumPy scalars are numbers, and integers are accepted as floats.
    expected: what is expected, for the message.
  """
  kinds = kinds if isinstance(kinds, tuple) else (kinds,)
  if type(value).__name__ in ('bool', 'bool_'):  # Python's or NumPy's
    is_valid = bool in kinds
  else:
    general = {int: numbers.Integral, float: numbers.Real}
    is_valid = isinstance(value, tuple(general.get(kind, kind) for kind in kinds))
  if not is_valid:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}...'
    raise InputError(f'{where}: got {shown} of type {type(value).__name__}; expected {expected}')


def check_least(section: str, cfg: Any, **least: float) -> None:
  """Raise InputError with the first field of `section` that is below its minimum."""
  for name, low in least.items():
    check_range(f'{section}.{name}', getattr(cfg, name), low)


def check_share(where: str, value: float) -> None:
  """Raise InputError with the field `where` unless 0 <= value <= 1."""
  if not 0 <= value <= 1:
    raise InputError(f'{where}: got {value}; expected between 0 and 1')


def check_heads(model: str, width: int, heads: int, *, even: bool = False, field: str = 'H') -> None:
  """Raise InputError unless the width D of a `model` is divisible by its heads, and even if `even`.

  Args:
    model: name of the model.
    width: D.
    heads: number of heads.
    even: an odd width is an error.
    field: field of the Config with the heads.
  """
  check_range('model.D', width, 1)
  check_range(f'model.{field}', heads, 1)
  if width % heads or (even and width % 2):
    expected = f'{"an even number " if even else "a number "}divisible by model.{field} = {heads}'
    raise InputError(f'model.D: got {width}; expected {expected} for {model}')


def disk_fault(error: BaseException, name: str = '') -> str:
  """Return the message for a path that cannot be used, or a disk that is full, read-only, limited or broken; else ''.

  Args:
    error: the error.
    name: the file or folder, where the error names none.
  """
  if not isinstance(error, OSError) or not (advice := _DISK.get(error.errno or 0)):
    return ''
  return f'{error.filename or name or "a file"}: cannot be read or written ({explain(error)}); {advice}'


def explain(error: BaseException) -> str:
  """Return an error's cause for a message, without errno and path."""
  if isinstance(error, (TypeError, LookupError, AttributeError)):  # a parser's own message
    return f'the content has another structure ({type(error).__name__})'
  cause = getattr(error, 'reason', None)  # of urllib
  if isinstance(cause, OSError):
    return explain(cause)
  return getattr(error, 'strerror', None) or _NUMBER.sub('', str(error)) or type(error).__name__


def disk_advice(number: int | None, text: str) -> str:
  """Return the reason and the fix of a disk fault, by its error number or by the text of a library; '' for none."""
  found = (code for code in _DISK if code == number or os.strerror(code) in text)
  return next((f'{os.strerror(code)}; {_DISK[code]}' for code in found), '')


@contextlib.contextmanager
def writing(name: str) -> Iterator[None]:
  """Convert an OSError while writing the file `name` to an InputError, or to ReaderGone for a closed pipe."""
  try:
    yield
  except BrokenPipeError as error:
    raise ReaderGone(*error.args) from None
  except OSError as error:
    raise InputError(f'{name}: cannot be written ({explain(error)})') from None
