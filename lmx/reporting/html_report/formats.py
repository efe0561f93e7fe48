"""Text formats: metric names as words, rounded numbers, durations."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup, escape

_SPELLED = {
  **{name.lower(): name for name in ('BLEU', 'chrF', 'F1', 'IoU', 'mIoU', 'MLM', 'NLL', 'NPI', 'NSP', 'PLM')},
  'lr': 'learning rate',
}
_NONFINITE = {'nan': 'NaN', 'inf': '∞', '-inf': '−∞', 'Infinity': '∞', '-Infinity': '−∞'}


def number(value: Any, *, is_share: bool = False) -> Markup:
  """Return a number as a `data` element: rounded text, full precision in its `value`.

  Args:
    value: a number, None, or the JSON text of a number that is not finite.
    is_share: show a value between 0 and 1 in percent.
  """
  return (
    Markup('') if value is None else Markup('<data value="{}">{}</data>').format(value, plain(value, is_share=is_share))
  )


def plain(value: Any, *, is_share: bool = False) -> str:
  """Return a number as rounded text."""
  if isinstance(value, str) or not math.isfinite(value):
    return _NONFINITE.get(str(value), str(value))
  if isinstance(value, int):
    return f'{value:,}'
  if is_share and 0 <= value <= 1:
    return f'{value:.1%}'
  if value == 0 or 0.01 <= abs(value) < 10:
    return f'{value:.3f}'
  return f'{value:,.2f}' if 10 <= abs(value) < 1e9 else f'{value:.3g}'


def words(name: str) -> str:
  """Return the name of a metric as words."""
  return ' '.join(_SPELLED.get(word, word) for word in name.split('_'))


def fill(label: str, values: Mapping[str, Any]) -> str:
  """Return a label with the values of its {fields}, '?' for missing ones."""
  return re.sub(r'\{(\w+)\}', lambda match: str(values.get(match[1], '?')), label)


def code(text: Any) -> Markup:
  """Return a text as a `code` element."""
  return Markup('<code>{}</code>').format(text)


def prose(text: str) -> Markup:
  """Return docstring text, with text between backticks as code."""
  return Markup('').join(code(part) if i % 2 else escape(part) for i, part in enumerate(text.split('`')))


def breakable(key: str) -> Markup:
  """Return a key that may wrap after a dot or an underscore."""
  return Markup(re.sub(r'([._])', r'\1<wbr>', str(escape(key))))


def duration(seconds: float) -> str:
  """Return seconds in words, such as '1 min 29 s'."""
  minutes, rest = divmod(round(seconds), 60)
  if minutes:
    hours, minutes = divmod(minutes, 60)
    return f'{hours:,} h {minutes} min' if hours else f'{minutes} min {rest} s'
  return f'{seconds:.1f} s' if seconds < 10 else f'{rest} s'
