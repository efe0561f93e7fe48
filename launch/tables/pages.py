"""Pages of docs/results: the tables of each paper as printed, with what lmx measured below each row.

They are written by `python -m launch.tables --pages` from published.csv, measured.csv and the tables of this folder.
"""

from __future__ import annotations

import collections
import csv
import functools
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from experiments.tables import Table
from launch.tables import (
  collection,
  computed,
  counts,
  matrix,
  measured,
  measurements,
  names,
  needs,
  printed,
  values,
  verdict,
)
from launch.tables import plan as plans
from lmx.errors import InputError, explain
from lmx.reporting import templates

FOLDER = plans.ROOT / 'docs' / 'results'
NOTES = plans.ROOT / 'docs' / 'notes'
_RENAMED = {'char_transformer': 'character_transformer'}  # systems of published.csv
_TEMPLATES = templates.environment(pathlib.Path(__file__).parent)
COMPUTED = (
  "Computed: from our metrics of the same row, by the paper's rule and before rounding: the mean of the columns, those "
  'of one task first; the increase; or its share of the error.'
)
_LEGEND = (
  "Rows and columns are the paper's. The line below a printed row has lmx's results, a mean over seeds if it says no "
  "other statistic; '(computed)' if it follows from the row's other results; 'not run' if a run of lmx can give the "
  'metric but has not been run; a dash if no run gives it. ✓: the printed figure is in our 95% interval or, '
  'for a single run, within its band. ✗: it is outside. Context: another system that the paper quotes.'
)


def system(table: Table) -> str:
  """Return the system on whose page a table is, that of most of its figures."""
  ids = printed.figures(table) or [row.id for row in table.rows]
  name = collections.Counter(key.partition('/')[0] for key in ids).most_common(1)[0][0]
  return _RENAMED.get(name, name)


def by_system() -> dict[str, list[str]]:
  """Return the names of the tables of each system."""
  found: dict[str, list[str]] = {}
  for name in plans.names():
    found.setdefault(system(plans.table(name)), []).append(name)
  return found


def write(folder: pathlib.Path) -> list[pathlib.Path]:
  """Write all pages into `folder`; return their paths. Raises InputError if they cannot be written."""
  made = pages()
  try:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
      (folder / name).write_text(text, encoding='utf-8')
  except OSError as error:
    raise InputError(f'--pages: cannot write {error.filename or folder}: {explain(error)}') from None
  return [folder / name for name in made]


def pages() -> dict[str, str]:
  """Return the text of each page by its file name."""
  found = systems()
  made = {f'{name}.md': _page(name, tables) for name, tables in found.items()}
  return {'README.md': _index(found), 'decks.md': decks(), **made}


def systems() -> dict[str, list[str]]:
  """Return the names of the tables of each system with a page, in alphabetical order."""
  found = by_system()
  for one in measured.measurements():
    found.setdefault(one.system, [])
  return dict(sorted(found.items()))


def _index(found: Mapping[str, list[str]]) -> str:
  run, possible = counts.verdicts(), counts.runnable_anywhere()
  rows, own_run = [], set()
  for name, tables in found.items():
    ids = [key for table in tables for key in printed.figures(plans.table(table))]
    own = own_ids(name, tables) & run.keys()
    own_run |= own
    lines = [line for line in measured.measurements() if line.system == name]
    others = sum(not line.is_lmx for line in lines)
    rows.append((name, names.SYSTEMS[name], counts.count(ids, possible, run), len(own), others))
  kinds = []
  for kind, is_count in (('scores', False), ('parameter counts', True)):
    ids = [key for key in run.keys() & plans.published().keys() if verdict.is_count(key) == is_count]
    kinds.append((kind, counts.count(ids, possible, run)))
  return render('README.md.jinja', pages=rows, own=len(own_run), kinds=kinds)


def own_ids(name: str, tables: Iterable[str]) -> set[str]:
  """Return the ids of a page that no paper prints: rows of its tables, and lmx's lines of measured.csv."""
  ids = {row.id for table in tables for row in plans.table(table).rows}
  ids |= {line.id for line in measured.measurements() if line.system == name and line.is_lmx}
  return ids - plans.published().keys()


def _page(name: str, tables: list[str]) -> str:
  lines = [line for line in measured.measurements() if line.system == name]
  ids = [key for table in tables for key in printed.figures(plans.table(table))]
  studies = {table: matrix.table(table) for table in tables if plans.table(table).matrix}
  run = counts.verdicts()
  return render(
    'results.md.jinja',
    name=name,
    title=names.SYSTEMS[name],
    legend=_LEGEND,
    summary=_summary(counts.count(ids, counts.runnable_anywhere(), run), len(own_ids(name, tables) & run.keys())),
    has_notes=(NOTES / f'{name}.md').exists(),
    tables={table: plans.table(table) for table in tables},
    matrices={table: matrix_text(one) for table, one in studies.items()},
    **measurements.sections(name, lines, {row.id for one in studies.values() for row in one.rows}),
  )


def _summary(one: counts.Count, own: int) -> str:
  """Return how much of a page was measured, and how it compares with print."""
  parts = []
  if one.printed and not one.run:
    parts.append(f'None of the {one.printed:,} printed figures was measured')
  elif one.printed:
    outside, other = one.comparable - one.reproduced, one.run - one.comparable
    parts.append(f'Printed figures measured: {one.run:,} of {one.printed:,}')
    parts.append(f'Reproduced: {one.reproduced:,}')
    parts.append(f'Different from print: {outside:,}')
    parts.append(f'Not comparable: {other:,}')
  if own:
    parts.append(f'Own rows measured: {own:,}')
  return ' '.join(f'{text}.' for text in parts or ['No run is recorded'])


def render(template: str, **given: Any) -> str:
  """Return the text of a template of this folder, without further blank lines at its end."""
  blocks_of = lambda place: printed.blocks(printed.figures_of(place))
  given |= {
    'blocks_of': blocks_of,
    'commands': _commands,
    'heading': heading,
    'is_run': _is_run,
    'lines_of': printed.lines_of,
    'show': show,
  }
  return _TEMPLATES.get_template(template).render(given).strip() + '\n'


def matrix_text(one: Table) -> str:
  """Return the matrix of a table with what is recorded."""
  blocks: Any = _TEMPLATES.get_template('blocks.md.jinja').module
  return str(blocks.matrix_of(matrix.heads(one), matrix.lines(one, values.recorded(one)))).strip()


def _is_run(place: tuple[str, str], shown: printed.Shown) -> bool:
  """Return whether a figure of (paper, table) was measured."""
  return any(key in shown.ours for key in printed.figures_of(place))


def heading(place: tuple[str, str]) -> str:
  """Return the heading of (paper, table)."""
  paper, number = place
  return f'{paper}, in its text' if number == 'text' else f'{paper}, table {number}' if number else paper


def show(
  table: Table,
  live: Mapping[str, str] | None = None,
  results: Iterable[collection.RowResult] = (),
  ids: Iterable[str] | None = None,
) -> tuple[printed.Shown, list[str]]:
  """Return what is shown with the figures of a table, and its footnotes.

  Args:
    table: the table.
    live: id -> figure of runs in a directory, which replace those of measured.csv.
    results: results of these runs.
    ids: the figures that are shown; None are all.
  """
  rows = verdict.rows()
  # A figure that another table quotes may have its run there.
  role = {key: printed.MEASURED if key in rows else kind for key, kind in printed.roles(table).items()}
  results = list(results)
  ours = {key: one.text for key, one in computed.figures(results).items()}
  ours |= {key: measured.text(one) for key, one in measured.by_row().items()} | dict(live or {})
  found = counts.verdicts(results)
  reasons: dict[str, str] = {}
  marks: dict[str, str] = {}
  for key in role if ids is None else ids:
    sign, why = _remark(table, key, role[key], found.get(key))
    note = reasons.setdefault(why, f'[{_letters(len(reasons))}]') if why else ''
    if sign or note:
      marks[key] = f'{sign} {note}'.strip()
  return printed.Shown(role, ours, marks), [f'{mark} {_sentence(why)}' for why, mark in reasons.items()]


def _remark(table: Table, key: str, kind: str, one: verdict.Verdict | None) -> tuple[str, str]:
  """Return the sign of a figure's verdict, and its reason for a footnote; '' without."""
  row = next((row for row in table.rows if row.id == key), None) or verdict.rows().get(key)
  if kind == printed.UNMEASURED:
    return '', printed.reason(table, key)
  if kind == printed.CONTEXT:
    return '', ''
  if one is None or one.kind == verdict.NOT_COMPARABLE:
    return '', one.why if one else row.differs if row else ''
  return ('✓', '') if one.kind == verdict.REPRODUCED else ('✗', row.outside if row else '')


def _letters(number: int) -> str:
  """Return 'a' to 'z', then 'aa' and so on."""
  return (_letters(number // 26 - 1) if number >= 26 else '') + chr(ord('a') + number % 26)


def _sentence(text: str) -> str:
  return text if text.endswith('.') else f'{text}.'


def _commands(table: Table) -> list[str]:
  """Return what runs the rows that are not measured, by hardware and data, with the hours of the longest."""
  runs, done = {run.name: run for run in table.runs}, measured.by_row()
  groups: dict[tuple[str, tuple[str, ...]], list[needs.Needs]] = {}
  for row in table.rows:
    if row.id in done:
      continue
    one = needs.of_row(row, runs)
    groups.setdefault((one.hardware, one.data), []).append(one)
  longest = lambda each: needs.describe(max(each, key=lambda one: (one.gpu_hours, one.core_hours)))
  return [f'{len(each)} row{"s" * (len(each) > 1)}: {longest(each)}' for each in groups.values()]


@functools.cache
def deck_figures() -> dict[tuple[str, str, str], tuple[str, ...]]:
  """Return the ids of the figures of each table of the decks: {(system, table, name of its part): ids}."""
  found: dict[tuple[str, str, str], tuple[str, ...]] = {}
  with (plans.FOLDER / 'deck_figures.csv').open(newline='', encoding='utf-8') as file:
    for line in csv.DictReader(file):
      key = (line['system'], line['table'], line['printed_as'])
      found[key] = (*found.get(key, ()), line['id'])
  return found


def deck_tables() -> dict[tuple[str, str], list[str]]:
  """Return the ids of each table of the decks in the paper's order: {(paper, table): ids}."""
  ids = {key for part in deck_figures().values() for key in part}
  found: dict[tuple[str, str], list[str]] = {}
  for key, line in plans.published().items():
    if key in ids:
      found.setdefault((line.paper, line.table), []).append(key)
  return found


def decks() -> str:
  """Return the page of the tables of the decks, as printed."""
  owners = {place: plans.table(name) for name in plans.names() for place in plans.table(name).prints}
  tables = []
  for place, ids in deck_tables().items():
    shown, notes = show(owners[place], ids=ids) if place in owners else (printed.Shown({}, {}, {}), [])
    tables.append((heading(place), printed.blocks(ids), shown, notes))
  return render('decks.md.jinja', legend=_LEGEND, tables=tables)
