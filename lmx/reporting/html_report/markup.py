"""Pieces of HTML: elements, tables and numbers. All text is escaped here; what these functions return is markup."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_SPELLED = {'bleu': 'BLEU', 'chrf': 'chrF', 'f1': 'F1', 'mlm': 'MLM', 'nsp': 'NSP', 'lr': 'learning rate'}
_VOID = ('img', 'input')
# Zero bytes and other controls, half surrogate pairs, and marks that reverse the order of the text after them.
_INVISIBLE = re.compile('[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]')
_NONFINITE = {'NaN': 'NaN', 'Infinity': '∞', '-Infinity': '−∞'}


class Markup(str):
  """Text that is HTML already. A format string would make it plain text, which is escaped again: that is an error."""

  def __format__(self, spec: str) -> str:
    raise TypeError('markup in a format string is escaped again; pass it to tag() as a child')


def visible(text: str) -> str:
  """Return a text with the code points of control characters in place of them, such as [U+202E]."""
  return _INVISIBLE.sub(lambda match: f'[U+{ord(match[0]):04X}]', text)


def escape(value: Any) -> str:
  """Return a value as HTML text; Markup as it is."""
  return value if isinstance(value, Markup) else html.escape(visible(str(value)))


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
  """Return an element.

  Args:
    name: such as 'td'.
    *children: texts, which are escaped, or Markup.
    **attributes: `cls` is the class, `_` in a name is `-`; None and False leave an attribute out, True has no value.
  """
  texts = []
  for key, value in attributes.items():
    key = 'class' if key == 'cls' else key.replace('_', '-')
    if value is True:
      texts.append(f' {key}')
    elif value is not None and value is not False and (key, value) != ('class', ''):
      texts.append(f' {key}="{html.escape(visible(str(value)))}"')
  content = '' if name in _VOID else f'{"".join(map(escape, children))}</{name}>'
  return Markup(f'<{name}{"".join(texts)}>{content}')


def join(parts: Iterable[str]) -> Markup:
  """Return several pieces of markup, each on a line of its own."""
  return Markup('\n'.join(map(escape, parts)))


def number(value: Any, name: str = '') -> Markup:
  """Return a number of a results file as a `data` element: rounded to read, and whole in its `value`.

  Args:
    value: a number, None, or the text that JSON has for one that is not finite.
    name: the metric; an accuracy of at most 1 is shown in percent.
  """
  if value is None:
    return Markup('')
  return tag('data', plain(value, name), value=value)


def plain(value: Any, name: str = '') -> str:
  """Return a number as text, rounded to read."""
  if isinstance(value, str) or not math.isfinite(value):
    text = str(value)
    return _NONFINITE.get(text, {'nan': 'NaN', 'inf': '∞', '-inf': '−∞'}.get(text, text))
  if isinstance(value, int):
    return f'{value:,}'
  if is_share(name) and 0 <= value <= 1:
    return f'{value:.1%}'
  if value == 0 or 0.01 <= abs(value) < 10:
    return f'{value:.3f}'
  return f'{value:,.2f}' if 10 <= abs(value) < 1e9 else f'{value:.3g}'


def is_share(name: str) -> bool:
  """Return True if values of a metric are fractions, which are read in percent."""
  return name.endswith('accuracy') or name in ('precision', 'recall', 'f1 of a class', 'macro_f1')


def words(name: str) -> str:
  """Return the name of a metric as words."""
  return ' '.join(_SPELLED.get(word, word) for word in name.split('_'))


def fill(label: str, values: Mapping[str, Any]) -> str:
  """Return a label with the values of its {fields}, '?' for one that is missing."""
  return re.sub(r'\{(\w+)\}', lambda match: str(values.get(match[1], '?')), label)


def prose(text: str) -> Markup:
  """Return a text of a docstring, with what stands between backticks as code."""
  parts = text.split('`')
  return Markup(''.join(tag('code', part) if i % 2 else escape(part) for i, part in enumerate(parts)))


def duration(seconds: float) -> str:
  """Return seconds in words, such as '1 min 29 s'."""
  minutes, rest = divmod(round(seconds), 60)
  if minutes:
    hours, minutes = divmod(minutes, 60)
    return f'{hours:,} h {minutes} min' if hours else f'{minutes} min {rest} s'
  return f'{seconds:.1f} s' if seconds < 10 else f'{rest} s'


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]], cls: str = '', strong: int | None = None) -> Markup:
  """Return a table whose first column names the rows.

  Args:
    head: names of the columns; () for none.
    rows: cells; a cell that is an element `td` or `th` stays one.
    cls: class of the table.
    strong: number of a row to emphasise.
  """
  top = tag('thead', tag('tr', *(tag('th', cell, scope='col') for cell in head))) if head else ''
  lines = [
    tag('tr', _cell('th', row[0], scope='row'), *(_cell('td', cell) for cell in row[1:]), cls='main' * (i == strong))
    for i, row in enumerate(rows)
  ]
  return tag('div', tag('table', Markup(top), tag('tbody', *lines), cls=cls), cls='scroll')


def _cell(name: str, content: Any, **attributes: Any) -> Markup:
  whole = isinstance(content, Markup) and content.startswith(('<td', '<th'))
  return content if whole else tag(name, content, **attributes)


def section(name: str, title: str, *children: Any) -> Markup:
  """Return a section of the page with a heading; '' without children."""
  parts = [child for child in children if child]
  return tag('section', tag('h2', title), *parts, id=name) if parts else Markup('')


def details(title: Any, *children: Any, is_open: bool = False, cls: str = '') -> Markup:
  """Return children below a line that opens and closes."""
  return tag('details', tag('summary', title), *children, open=is_open, cls=cls)


def matrix(
  rows: Sequence[str],
  columns: Sequence[str],
  cells: Sequence[Sequence[tuple[float, str, str, bool]]],
  axes: tuple[str, str],
  cls: str = '',
) -> Markup:
  """Return a table with shaded cells.

  Args:
    rows: names down the side.
    columns: names along the top, written upright.
    cells: for each cell the depth of its shade from 0 to 1, its text, its tooltip, and whether it has the colour of
      correct ones.
    axes: what the rows and the columns are.
    cls: further class of the table.
  """
  corner = tag('th', f'{axes[0]} ↓ {axes[1]} →', cls='axis')
  head = tag('thead', tag('tr', corner, *(tag('th', tag('span', name), scope='col', title=name) for name in columns)))
  lines = [
    tag('tr', tag('th', name, scope='row'), *(_shaded(*cell) for cell in line))
    for name, line in zip(rows, cells, strict=True)
  ]
  return tag('div', tag('table', head, tag('tbody', *lines), cls=f'matrix {cls}'.strip()), cls='scroll')


def _shaded(depth: float, text: str, tooltip: str, is_hit: bool) -> Markup:
  cls = f'{"hit" if is_hit else "miss"}{" deep" * (depth > 0.55)}'
  return tag('td', text, cls=cls, style=f'--s:{depth:.3f}', title=tooltip)
