"""Search space on the command line, `--space KEY=VALUES`, without a `sweep()` or in addition to its axes.

--space 'optim.lr=log:1e-4..1e-2'      uniform in the logarithm
--space 'model.dropout=0..0.5'         uniform; of integers if both ends are integers
--space 'model.N=int:2..8'             integers
--space 'model.init=paper,released'    choices; a choice with a comma in quotes or brackets: "a,b",c or (1,2),(3,4)
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from experiments import spaces
from launch.sweep import study
from lmx import cast
from lmx.errors import InputError

_NUMBER = r'([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)'
_RANGE = re.compile(rf'(?:(log|int):)?{_NUMBER}\.\.{_NUMBER}')
_FORMS = 'a range (log:1e-4..1e-2, 0.1..0.5, 2..8, int:2..8) or at least two choices (a,b)'
_CHECKED = 16  # points with a value of the space, of which one must resolve

Swept = spaces.Space | Sequence[dict[str, Any]]  # result of a sweep(), its points as a list


def parse(texts: Iterable[str]) -> spaces.Space:
  """Return the axes of the options `--space`. Raises InputError."""
  space = spaces.Space()
  for text in texts:
    key, _, values = (part.strip() for part in text.partition('='))
    if not key or not values:
      raise InputError(f"--space: got {text!r}; expected KEY=VALUES, such as --space 'optim.lr=log:1e-4..1e-2'")
    if key in space:
      raise InputError(f'--space: got {key} twice; expected each key once; give all its values in one --space')
    match = _RANGE.fullmatch(values)
    space[key] = _range(text, *match.groups()) if match else _choices(text, key, values)
  return space


def _range(text: str, kind: str | None, *ends: str) -> spaces.Range:
  if any(math.isinf(float(end)) for end in ends):
    raise InputError(f'--space: got {text[:80]!r}; expected finite ends, at most 1.8e308 apart')
  values: list[Any] = [float(end) if re.search('[.eE]', end) else int(end) for end in ends]
  if kind == 'int':
    if any(value != int(value) for value in values):
      raise InputError(f'--space: got {text!r}; expected integers after int:; omit int: for a range of floats')
    values = [int(value) for value in values]
  elif any(isinstance(value, float) for value in values):
    values = [float(value) for value in values]
  make = spaces.log_range if kind == 'log' else spaces.linear_range
  try:
    return make(*values)
  except ValueError as error:
    raise InputError(f'--space: got {text!r}; {error}') from None


def _choices(text: str, key: str, values: str) -> tuple[Any, ...]:
  parts = split(values)
  if any(_RANGE.fullmatch(part) or part.startswith(('log:', 'int:')) for part in parts) or not all(parts):
    raise InputError(f'--space: got {text!r}; expected {_FORMS}')
  choices = [cast.parse(part) for part in parts]
  if len(choices) == 1:
    raise InputError(f'--space: got {text!r}; expected {_FORMS}; fix one value with --config.{key}={values}')
  shown = [study.format_value(choice) for choice in choices]
  if len(set(shown)) < len(shown):
    raise InputError(f'--space: got {text!r}, with a choice twice; expected different choices')
  return tuple(choices)


def split(text: str) -> list[str]:
  """Split a list at its commas, except those in quotes and brackets. Raises InputError if one of these is open."""
  parts, closing = [''], ''
  for character, before in zip(text, ' ' + text, strict=False):
    if closing[-1:] in ('"', "'"):
      closing = closing[:-1] if character == closing[-1] and before != '\\' else closing
    elif closing and character == closing[-1]:
      closing = closing[:-1]
    elif character in '"\'([{' and (closing or not parts[-1].strip()):
      closing += {'(': ')', '[': ']', '{': '}'}.get(character, character)
    elif character == ',' and not closing:
      parts.append('')
      continue
    parts[-1] += character
  if closing:
    raise InputError(f'--space: got {text!r}; expected {closing[-1]} at its end')
  return [part.strip() for part in parts]


def is_list(text: str) -> bool:
  """Return whether the text of a config value is a comma list."""
  try:
    return len(split(text)) > 1
  except InputError:
    return False  # `lmx` reports what is wrong with the value


def format_axis(axis: Any) -> str:
  """Return an axis as `--space` takes it; `axis` is one of study.Axes, or as a study stores it."""
  values = list(axis)
  if len(values) == 3 and isinstance(values[2], bool) and not any(isinstance(value, str) for value in values):
    return f'{"log:" * values[2]}{values[0]!r}..{values[1]!r}'
  return ','.join(value if value and not is_list(value) else repr(value) for value in values)


def combine(swept: Swept, given: spaces.Space) -> Swept:
  """Return the space of a `sweep()` with the axes of `given`, which replace those of the same keys.

  Raises:
    InputError: points with different keys cannot be combined with a range.
  """
  if not given:
    return swept
  if isinstance(swept, spaces.Space):
    return spaces.Space({**swept, **given})
  points = [{key: value for key, value in point.items() if key not in given} for point in swept] or [{}]
  if not any(isinstance(axis, spaces.Range) for axis in given.values()):
    return [{**point, **more} for point in points for more in given.corners()]
  if any(point.keys() != points[0].keys() for point in points):
    raise InputError('--space: got a range, but the points of sweep() differ in their keys; give choices, such as a,b')
  axes = {key: tuple({repr(point[key]): point[key] for point in points}.values()) for key in points[0]}
  return spaces.Space({**axes, **given})


def describe(axes: study.Axes, given: Mapping[str, Any], swept: study.Axes) -> list[str]:
  """Return a line for each axis of the search: its values, and whether --space or sweep() gives them."""
  shown = {key: format_axis(axis) for key, axis in axes.items()}
  widths = max(map(len, shown)), max(map(len, shown.values()))
  lines = []
  for key, values in shown.items():
    source = 'sweep()' if key not in given else '--space'
    source += f', instead of {format_axis(swept[key])} in sweep()' if key in given and key in swept else ''
    lines.append(f'  {key:{widths[0]}}  {values:{widths[1]}}  {source}')
  return ['space:', *lines]


def samples(search: study.Search) -> Iterator[list[dict[str, str]]]:
  """Yield for each value of the search, ends for a range, some points that have it."""
  for key, axis in search.axes.items():
    for value in axis[:2] if isinstance(axis, spaces.Range) else axis:
      if search.points:
        found: Iterable[Mapping[str, Any]] = (point for point in search.points if point.get(key) == value)
      else:
        found = spaces.Space({**search.axes, key: (value,)}).corners()
      yield [{name: str(one) for name, one in point.items()} for point in itertools.islice(found, _CHECKED)]
