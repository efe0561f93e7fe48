"""Values of a config as the types that the fields of a dataclass say."""

from __future__ import annotations

import ast
import types
import typing
from collections.abc import Mapping
from typing import Any

from lmx.errors import InputError


def typed(section: str, cls: Any, given: Mapping[str, Any]) -> dict[str, Any]:
  """`given` with each value as the type of the field of `cls` that it is for; `section` stands in messages."""
  hints = typing.get_type_hints(cls)
  return {k: cast(f'{section}.{k}', hints[k], v) for k, v in given.items()}


def parse(text: str) -> Any:
  """A Python literal where the text is one, true/false in any case, else the text itself."""
  if text.lower() in ('true', 'false'):
    return text.lower() == 'true'
  try:
    return ast.literal_eval(text)
  except (ValueError, SyntaxError):
    return text


def cast(key: str, hint, value: Any) -> Any:
  """`value` as the type of its field, or InputError; whole floats become ints, ints become floats, lists tuples."""
  origin, args = typing.get_origin(hint), typing.get_args(hint)
  if origin in (typing.Union, types.UnionType):
    if value is None and type(None) in args:
      return None
    return cast(key, next(a for a in args if a is not type(None)), value)
  if (origin or hint) is tuple and isinstance(value, (list, tuple)):
    inner = args[0] if len(args) == 2 and args[1] is Ellipsis else None
    return tuple(cast(key, inner, v) if inner else _freeze(v) for v in value)
  if hint is typing.Any:
    return value
  if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
    return float(value)
  if hint is int and isinstance(value, float) and value == int(value):
    return int(value)
  if hint is str and isinstance(value, (int, float)) and not isinstance(value, bool):
    return str(value)
  fits = isinstance(hint, type) and isinstance(value, hint) and (hint is bool) == isinstance(value, bool)
  if fits:
    return value
  wanted = getattr(hint, '__name__', str(hint))
  raise InputError(f'config key "{key}" is {value!r}, a {type(value).__name__}; it must be of type {wanted}')


def _freeze(value: Any) -> Any:
  return tuple(_freeze(v) for v in value) if isinstance(value, (list, tuple)) else value
