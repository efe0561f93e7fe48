"""Errors that a user can mend. The command line prints their message alone and exits with code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
  """Something given to lmx (a config key, a file, a batch size) is wrong; the message says what to do."""


class NonFiniteLoss(RuntimeError):
  """The loss became NaN or infinite and `config.train.on_nan` is 'stop'."""


def nearest(name: str, names: Iterable[str]) -> str:
  """Returns `'; did you mean "x"?'` for the closest of `names`, or the whole list if none is close."""
  names = sorted(names)
  close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
  if close:
    return f'; did you mean "{close[0]}"?'
  return '; known: ' + ', '.join(names)
