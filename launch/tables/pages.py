"""Pages of docs/results: the tables of each paper as printed, with what lmx measured below each row.

They are written by `python -m launch.tables --pages` from published.csv, measured.csv and the tables of this folder.
"""

from __future__ import annotations

import collections
import csv
import functools
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from experiments.tables import Table
from launch.tables import measured, needs, printed
from launch.tables import plan as plans
from lmx.errors import InputError, explain
from lmx.reporting import templates

FOLDER = plans.ROOT / 'docs' / 'results'
NOTES = plans.ROOT / 'docs' / 'notes'
_RENAMED = {'char_transformer': 'character_transformer'}  # systems of published.csv
_TITLES = {
  'ngrams': 'n-gram models',
  'quaternion_text': 'Quaternion Transformer, text',
  'quickstart': 'Every model, quickly',
  'lineage': 'One budget from word2vec to XLNet',
}
_TEMPLATES = templates.environment(pathlib.Path(__file__).parent)
_LEGEND = (
  "Rows and columns are the paper's. The line below a printed row has lmx's results: 'not run' if a run of lmx can "
  'give the metric but has not been run, a dash if no run gives it. Context: another system that the paper quotes.'
)


class Count(NamedTuple):
  """Numbers of figures: printed in a paper, that lmx can run on some hardware, and that were run."""

  printed: int
  runnable: int
  run: int


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


def runnable(table: Table, key: str) -> set[str]:
  """Return the ids of the rows that the hardware `key` of needs.HARDWARE can run."""
  runs = {run.name: run for run in table.runs}
  return {row.id for row in table.rows if needs.hardware(row, runs) in needs.HARDWARE[key]}


def count(ids: Iterable[str], possible: set[str], run: set[str]) -> Count:
  """Return the counts of rows and figures."""
  ids = set(ids)
  return Count(len(ids & plans.published().keys()), len(ids & possible), len(ids & run))


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


def _title(name: str, tables: list[str]) -> str:
  """Return the title of a page: what most titles of its tables begin with."""
  heads = collections.Counter(plans.table(table).title.partition(',')[0] for table in tables)
  return _TITLES.get(name) or (heads.most_common(1)[0][0] if heads else name)


def _index(systems: Mapping[str, list[str]]) -> str:
  done = {one.id for one in measured.measurements()}
  rows = []
  for name, tables in systems.items():
    counts = [count(printed.figures(t), runnable(t, 'pod'), done) for t in map(plans.table, tables)]
    total = Count(*map(sum, zip(Count(0, 0, 0), *counts, strict=True)))
    rows.append((name, _title(name, tables), total, sum(line.system == name for line in measured.measurements())))
  return render('README.md.jinja', legend=_LEGEND, pages=rows)


def _page(name: str, tables: list[str]) -> str:
  return render(
    'results.md.jinja',
    name=name,
    title=_title(name, tables),
    legend=_LEGEND,
    has_notes=(NOTES / f'{name}.md').exists(),
    tables={table: plans.table(table) for table in tables},
    measured=[_measured(one) for one in measured.measurements() if one.system == name],
  )


def render(template: str, **values: Any) -> str:
  """Return the text of a template of this folder, without further blank lines at its end."""
  blocks_of = lambda place: printed.blocks(printed.figures_of(place))
  values |= {
    'blocks_of': blocks_of,
    'cells_of': printed.cells_of,
    'commands': _commands,
    'heading': heading,
    'show': show,
  }
  return _TEMPLATES.get_template(template).render(values).strip() + '\n'


def heading(place: tuple[str, str]) -> str:
  """Return the heading of (paper, table)."""
  paper, number = place
  return f'{paper}, in its text' if number == 'text' else f'{paper}, table {number}' if number else paper


def show(table: Table, live: Mapping[str, str] | None = None) -> tuple[printed.Shown, list[str]]:
  """Return what is shown beside the figures of a table, and its footnotes.

  Args:
    table: the table.
    live: id -> figure of runs in a directory, which replace those of measured.csv.
  """
  role, live = printed.roles(table), live or {}
  recorded = measured.by_figure()
  ours = {key: measured.text(one) for key, one in recorded.items()} | dict(live)
  differs = {row.id: row.differs for row in table.rows if row.differs}
  differs |= {key: one.differs for key, one in recorded.items() if one.differs and key not in live}
  reasons: dict[str, str] = {}
  marks: dict[str, str] = {}
  for key, kind in role.items():
    why = printed.reason(table, key) if kind == printed.UNMEASURED else differs.get(key, '')
    if why and kind != printed.CONTEXT:
      marks[key] = reasons.setdefault(why, f'[{_letters(len(reasons))}]')
  return printed.Shown(role, ours, marks), [f'{mark} {_sentence(why)}' for why, mark in reasons.items()]


def _letters(number: int) -> str:
  """Return 'a' to 'z', then 'aa' and so on."""
  return (_letters(number // 26 - 1) if number >= 26 else '') + chr(ord('a') + number % 26)


def _sentence(text: str) -> str:
  return text if text.endswith('.') else f'{text}.'


def _commands(table: Table) -> list[str]:
  """Return what runs the rows of a table, by the hardware and data that they need, with the hours of the longest."""
  runs = {run.name: run for run in table.runs}
  groups: dict[tuple[str, tuple[str, ...]], list[needs.Needs]] = {}
  for row in table.rows:
    one = needs.of_row(row, runs)
    groups.setdefault((one.hardware, one.data), []).append(one)
  longest = lambda each: needs.describe(max(each, key=lambda one: (one.gpu_hours, one.core_hours)))
  return [f'{len(each)} row{"s" * (len(each) > 1)}: {longest(each)}' for each in groups.values()]


def _measured(one: measured.Measurement) -> tuple[str, ...]:
  """Return the cells of a measured metric."""
  line = plans.published().get(one.id)
  return (
    one.row or (line.row if line else one.id),
    ', '.join(filter(None, (one.dataset, one.split))),
    one.metric,
    measured.text(one),
    line.text if line else '',
    '; '.join(filter(None, [one.protocol, one.differs and f'not compared: {one.differs}'])),
    f'`{one.command}`' if one.command else '',
    ', '.join(filter(None, (one.commit, one.hardware, one.date))),
  )


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
    shown, notes = show(owners[place]) if place in owners else (printed.Shown({}, {}, {}), [])
    used = {shown.marks[key] for key in ids if key in shown.marks}
    tables.append((heading(place), printed.blocks(ids), shown, [n for n in notes if n.partition(' ')[0] in used]))
  return render('decks.md.jinja', legend=_LEGEND, tables=tables)
