"""Conversion of config values to the types of dataclass fields."""

from __future__ import annotations

import ast
import functools
import sys
import types
import typing
import warnings
from collections.abc import Mapping
from typing import Any

from lmx.errors import InputError, nearest

_LARGEST = sys.float_info.max


def convert(section: str, cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
  """Return `values` with each one converted to the type of its field of `cls`; `section` is for messages."""
  hints = _hints(cls)
  return {k: cast(f'{section}.{k}', hints[k], v) for k, v in values.items()}


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
  """Return the types of the fields of a dataclass; reading them is two fifths of loading a config."""
  return typing.get_type_hints(cls)


def parse(text: str) -> Any:
  """Return the text as a Python literal if it is one, true/false in any case as a bool, else the text itself."""
  if text.lower() in ('true', 'false'):
    return text.lower() == 'true'
  try:
    with warnings.catch_warnings(action='ignore'):  # warnings about text that only resembles a literal
      return ast.literal_eval(text)
  except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
    return text


def cast(key: str, hint: Any, value: Any, *, bound: int = 2**31) -> Any:
  """Return `value` converted to the type of its field.

  Whole floats become ints, ints become floats, lists become tuples, and a single text or number a tuple of one.

  Args:
    key: section.key, for messages.
    hint: type of the field.
    value: value in the config.
    bound: integers must be between -bound and bound.

  Raises:
    InputError: the value has another type, is not finite, or is out of range.
  """
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if origin in (typing.Union, types.UnionType):
    if value is None and type(None) in args:
      return None
    return cast(key, next(a for a in args if a is not type(None)), value)
  inner = args[0] if origin is tuple and len(args) == 2 and args[1] is Ellipsis else None
  if inner in (str, int, float) and isinstance(value, (str, int, float)):
    value = (value,)
  if (origin or hint) is tuple and isinstance(value, (list, tuple)):
    return tuple(cast(key, inner, v) if inner else _freeze(v) for v in value)
  if origin is typing.Literal:
    return _choose(key, args, value)
  if hint is typing.Any:
    return value
  number = isinstance(value, (int, float)) and not isinstance(value, bool)
  if number and hint in (int, float) and not -_LARGEST <= value <= _LARGEST:
    raise InputError(f'config key "{key}": got {_short(value)}; expected a finite number')
  if number and hint is float:
    return float(value)
  if number and hint is int and value == int(value):
    if not -bound < value < bound:
      raise InputError(f'config key "{key}": got {_short(value)}; expected an integer between {-bound:,} and {bound:,}')
    return int(value)
  if number and hint is str and abs(value) <= _LARGEST:
    return str(value)
  fits = isinstance(hint, type) and isinstance(value, hint) and (hint is bool) == isinstance(value, bool)
  if fits:
    return value
  expected = getattr(hint, '__name__', str(hint))
  raise InputError(f'config key "{key}": got {_short(value)}, a {type(value).__name__}; expected type {expected}')


def _choose(key: str, choices: tuple[str, ...], value: Any) -> str:
  """Return one of the choices; true and false of an earlier version are 'full' and 'none'."""
  if isinstance(value, bool) and {'none', 'full'} <= set(choices):
    return 'full' if value else 'none'
  if isinstance(value, str) and value in choices:
    return value
  known = ', '.join(choices)
  raise InputError(f'config key "{key}": got {_short(value)}; expected one of {known}{nearest(str(value), choices)}')


def _short(value: Any) -> str:
  """Return a value as text for a message; Python itself refuses to print an integer of 5,000 digits."""
  if isinstance(value, int) and abs(value) > _LARGEST:
    return f'an integer of {value.bit_length():,} bits'
  text = repr(value)
  return text if len(text) <= 80 else f'{text[:80]}...'


def _freeze(value: Any) -> Any:
  return tuple(_freeze(v) for v in value) if isinstance(value, (list, tuple)) else value
