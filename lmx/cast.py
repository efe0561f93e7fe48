"""Conversion of config values to the types of dataclass fields."""

from __future__ import annotations

import ast
import functools
import re
import types
import typing
import warnings
from collections.abc import Mapping
from typing import Any

from lmx import ranges
from lmx.errors import InputError, nearest

_LARGEST = 3.4028234663852886e38  # of float32, in which parameters are stored

_UNUSABLE = re.compile('[\0\ud800-\udfff]')  # in a string: a zero byte or a lone surrogate
_TUPLE = re.compile(r'\s*(\(.*\)|\[.*\])\s*', re.DOTALL)  # in a string: a tuple that is not valid Python, such as (a,b)


def convert(section: str, cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
  """Convert each of `values` to the type of its field of `cls`; `section` is for messages."""
  hints = _hints(cls)
  return {k: cast(f'{section}.{k}', hints[k], v) for k, v in values.items()}


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
  """Return a dataclass's field types; cached, because reading them takes two fifths of loading a config."""
  return typing.get_type_hints(cls, include_extras=True)


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
  """Return `value` converted to the type of its field and checked by the rules of that type.

  Whole floats become ints, ints become floats, numbers and booleans become texts, lists become tuples, and a single
  text or number a tuple of one.

  Args:
    key: section.key, for messages.
    hint: type of the field; `Annotated` types have rules of lmx/ranges.py.
    value: value in the config.
    bound: integers must be between -bound and bound.

  Raises:
    InputError: the value has another type, is not finite, is out of range or breaks another rule.
  """
  hint, rules = _unwrap(hint)
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if origin in (typing.Union, types.UnionType):
    if value is None and type(None) in args:
      return None
    return cast(key, next(a for a in args if a is not type(None)), value, bound=bound)
  if origin is tuple:
    converted = _tuple(key, args, rules, value)
  elif origin is typing.Literal:
    return _choose(key, args, value)
  elif hint is typing.Any:
    return value
  else:
    converted = _scalar(key, hint, value, bound)
  if hint in (int, float) and not any(isinstance(rule, ranges.Limits) for rule in rules):
    rules = [ranges.Limits(), *rules]
  for rule in rules:
    if expected := rule.problem(converted):
      raise InputError(f'{key}: got {_short(value)}; expected {expected}')
  return converted


def _unwrap(hint: Any) -> tuple[Any, list[Any]]:
  """Return a type without its annotations, and these."""
  if typing.get_origin(hint) is typing.Annotated:
    return hint.__origin__, list(hint.__metadata__)
  return hint, []


def _tuple(key: str, args: tuple[Any, ...], rules: list[Any], value: Any) -> tuple[Any, ...]:
  """Return a tuple of converted elements; `args` are their types."""
  is_uniform = args[-1] is Ellipsis
  if is_uniform and isinstance(value, str) and _TUPLE.fullmatch(value):
    raise InputError(f"{key}: got {_short(value)}; expected a Python tuple with quotes, such as ('a', 'b')")
  if is_uniform and _unwrap(args[0])[0] in (str, int, float) and isinstance(value, (str, int, float)):
    return (cast(key, args[0], value),)
  record = next((rule for rule in rules if isinstance(rule, ranges.Record)), None)
  expected = record or ('a tuple' if is_uniform else f'{len(args)} values')
  if not isinstance(value, (list, tuple)) or not (is_uniform or len(value) == len(args)):
    raise InputError(f'{key}: got {_short(value)}; expected {expected}')
  hints = [args[0]] * len(value) if is_uniform else args
  names = [f'{key}[{i}]' for i in range(len(value))] if record is None else record.names
  try:
    return tuple(_element(name, hint, element) for name, hint, element in zip(names, hints, value, strict=True))
  except InputError as error:
    if record is None:
      raise
    raise InputError(f'{key}: got {_short(value)}; expected {record}; {error}') from None


def _element(name: str, hint: Any, value: Any) -> Any:
  """Convert an element of a tuple, where a number is not a string, unlike on a command line."""
  if _unwrap(hint)[0] is str and not isinstance(value, str):
    raise InputError(f'{name}: got {_short(value)}; expected text in quotes')
  return cast(name, hint, value)


def _scalar(key: str, hint: Any, value: Any, bound: int) -> Any:
  """Return a text, number, truth value or section converted to its type."""
  if hint is str and isinstance(value, bool):  # a label or column True
    return str(value)
  number = isinstance(value, (int, float)) and not isinstance(value, bool)
  if number and hint in (int, float) and not -_LARGEST <= value <= _LARGEST:
    raise InputError(f'{key}: got {_short(value)}; expected a finite number')
  if number and hint is float:
    return float(value)
  if number and hint is int and value == int(value):
    if not -bound < value < bound:
      raise InputError(f'{key}: got {_short(value)}; expected an integer between {-bound:,} and {bound:,}')
    return int(value)
  if number and hint is str and abs(value) <= _LARGEST:
    return str(value)
  fits = isinstance(hint, type) and isinstance(value, hint) and (hint is bool) == isinstance(value, bool)
  if fits and isinstance(value, str) and (wrong := _UNUSABLE.search(value)):
    expected = 'no zero byte' if wrong[0] == '\0' else 'text in UTF-8'
    raise InputError(f'{key}: got {_short(value)}; expected {expected}')
  if fits:
    return value
  expected = getattr(hint, '__name__', str(hint))
  raise InputError(f'{key}: got {_short(value)}, a {type(value).__name__}; expected type {expected}')


def _choose(key: str, choices: tuple[str, ...], value: Any) -> str:
  """Return one of the choices; true and false of earlier versions become 'full' and 'none'."""
  if isinstance(value, bool) and {'none', 'full'} <= set(choices):
    return 'full' if value else 'none'
  if isinstance(value, str) and value in choices:
    return value
  hint = nearest(str(value), choices).partition('; known')[0]  # the names are in the message
  raise InputError(f'{key}: got {_short(value)}; expected one of {", ".join(choices)}{hint}')


def _short(value: Any) -> str:
  """Format a value for a message; Python itself refuses to print an integer of 5,000 digits."""
  if isinstance(value, int) and abs(value) > _LARGEST:
    return f'an integer of {value.bit_length():,} bits'
  text = repr(value)
  return text if len(text) <= 80 else f'{text[:80]}...'
