"""Errors that a user can mend. The command line prints their message alone and exits with code 2.

Of a warning it prints the message alone too, and goes on.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from typing import Any

_LONGEST = 5_000  # characters of a message


class InputError(ValueError):
  """Something given to lmx (a config key, a file, a batch size) is wrong; the message says what to do."""

  def __init__(self, message: object = ''):
    """Shorten a message that repeats a long input."""
    text = str(message)
    super().__init__(text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...')


class InputWarning(UserWarning):
  """Something given to lmx is not read as it stands, such as a text that is cut; the message says what and how much."""


class NonFiniteLoss(RuntimeError):
  """The loss of an update (with `train.on_nan` 'stop'), of a validation or of a measured split is NaN or infinite."""


def nearest(name: str, names: Iterable[str]) -> str:
  """Return `'; did you mean "x"?'` for the closest of `names`, or the whole list if none is close."""
  names = sorted(names)
  close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
  if close:
    return f'; did you mean "{close[0]}"?'
  return '; known: ' + ', '.join(names)


def check_choice(where: str, value: Any, choices: Iterable[str]) -> None:
  """InputError naming the field `where` (such as 'optim.schedule') and the nearest of `choices`, unless it is one."""
  choices = list(choices)
  if value not in choices:
    raise InputError(f'{where}: unknown "{value}"{nearest(str(value), choices)}')


def check_range(where: str, value: float, low: float, high: float | None = None) -> None:
  """InputError naming the field `where` unless low <= value, and value < high where there is a `high`."""
  if not value >= low or (high is not None and not value < high):
    wanted = f'at least {low}' + ('' if high is None else f' and below {high}')
    raise InputError(f'{where} is {value}; it must be {wanted}')


def check_least(section: str, cfg: Any, **least: float) -> None:
  """InputError naming the first field of `section` that is below its least value."""
  for name, low in least.items():
    check_range(f'{section}.{name}', getattr(cfg, name), low)


def check_share(where: str, value: float) -> None:
  """InputError naming the field `where` unless 0 <= value <= 1."""
  if not 0 <= value <= 1:
    raise InputError(f'{where} is {value}; it must be between 0 and 1')


def check_heads(model: str, width: int, heads: int, *, even: bool = False) -> None:
  """InputError unless the width D of a `model` is divided evenly among its H heads, and is `even` if that is asked."""
  check_range('model.D', width, 1)
  check_range('model.H', heads, 1)
  if width % heads or (even and width % 2):
    raise InputError(f'{model}: width D = {width} must be {"even and " if even else ""}divisible by H = {heads} heads')


@contextlib.contextmanager
def writing(name: str) -> Iterator[None]:
  """Make an OSError of what writes to the file `name` an InputError, but for that of a reader that has gone."""
  try:
    yield
  except BrokenPipeError:
    raise  # no fault: the command ends
  except OSError as error:
    raise InputError(f'{name}: cannot be written ({error.strerror})') from None
