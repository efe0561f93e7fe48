"""Rendering of a table as Markdown, HTML and a figure: published metrics against ours."""

from __future__ import annotations

import math
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments.tables import BEST, DATA, MEAN, METRICS, Metric, Run, Table
from launch.tables import collection, curves, findings, matrix, measured, needs, pages, phenomena, values, verdict
from launch.tables import plan as plans
from launch.tables.paradigms import Accuracies
from launch.tables.printed import figure
from lmx.redaction import redact

HEADER = (
  'Row',
  'Data',
  'Figure',
  'Published',
  'Ours',
  'Difference',
  'In spreads',
  'Reproduced',
  'Measured on',
  'Time',
)
ROWS = 'Rows that lmx measures'  # headings
MEASURED_HOW = '## How each is measured'
_COMPARED = ('Published', 'Difference', 'In spreads', 'Reproduced')
_NUMBERS = ('Published', 'Ours', 'Difference', 'In spreads', 'Reproduced', 'Time')


class Line(NamedTuple):
  """Cells of a row in the order of HEADER; for the figure, the difference and our spread in halves of our interval."""

  cells: tuple[str, ...]
  result: collection.RowResult
  share: float
  spread: float


def lines(results: Sequence[collection.RowResult]) -> list[Line]:
  """Return the cells of the table."""
  return [_line(one) for one in results]


def _line(one: collection.RowResult) -> Line:
  row, printed = one.row, plans.published().get(one.row.id)
  metric, recorded = METRICS[row.metric], _recorded(one)
  digits = len(printed.text.partition('.')[2]) if printed else 2
  value = float(recorded.value) if recorded else one.value
  deviation = float(recorded.spread or math.nan) if recorded else one.deviation
  found = verdict.of(recorded or one, None if math.isnan(value) else printed)
  half = (found.high - found.low) / 2
  difference = value - printed.value if printed and not math.isnan(half) else math.nan
  spreads = difference / printed.spread if printed and printed.spread else math.nan
  devices = sorted({result.device for result in one.seeds if result.device})
  seconds = [result.seconds for result in one.seeds if not math.isnan(result.seconds)]
  cells = (
    printed.row if printed else row.id,
    f'{printed.dataset}, {printed.split}'.strip(', ') if printed else one.run if row.tries and one.seeds else '',
    metric.title
    if row.statistic == MEAN
    else f'{metric.title}, {measured.of_seeds(row.statistic, one.expected_seeds)}',
    _published(row, verdict.printed(row.id)),
    f'recorded: {measured.text(recorded)}' if recorded else _ours(one, digits),
    '' if math.isnan(difference) else _number(difference, metric, max(digits, 1), '+'),
    '' if math.isnan(spreads) else f'{spreads:+.1f}',
    '' if math.isnan(half) else _reproduced(found, metric, digits),
    '; '.join(devices) or (recorded.hardware if recorded else ''),
    duration(sum(seconds) / len(seconds)) if seconds else '',
  )
  return Line(cells, one, difference / half if half else math.nan, deviation / half if half else math.nan)


def _recorded(one: collection.RowResult) -> measured.Measurement | None:
  """Return the recorded line of a row that has not been run here."""
  return measured.by_row().get(one.row.id) if one.state == collection.ABSENT else None


def _reproduced(found: verdict.Verdict, metric: Metric, digits: int) -> str:
  """Return 'yes' or 'no' with the interval, or with the width of the band around a single run."""
  text = 'yes' if found.kind == verdict.REPRODUCED else 'no'
  if metric.whole:
    return text
  places = max(digits, 1)
  return (
    f'{text} (±{(found.high - found.low) / 2:.{max(digits, 2)}g})'
    if found.is_band
    else (f'{text} ({found.low:.{places}f} to {found.high:.{places}f})')
  )


def _number(value: float, metric: Metric, digits: int, sign: str = '') -> str:
  return f'{value:{sign},.0f}' if metric.whole else f'{value:{sign}.{digits}f}'


def _published(row, printed: plans.Printed | None) -> str:
  if printed is None:
    return 'none'
  metric = METRICS[row.metric]
  text = figure(printed, _number(printed.value, metric, 0) if metric.whole else '')
  return text + (' *' if row.differs else '')


def _ours(one: collection.RowResult, digits: int) -> str:
  if not one.seeds:
    return one.state
  text = _number(one.value, METRICS[one.row.metric], digits)
  has_spread = not math.isnan(one.deviation) and one.row.statistic != BEST
  text += f' ± {one.deviation:.{max(digits, 1) + 1}f}' if has_spread else ''
  count = len(one.seeds)
  seeds = '' if one.seeds[0].seed is None else f' ({measured.of_seeds(one.row.statistic, count)})'
  return text + seeds + ('' if one.state == collection.DONE else f', {count} of {one.expected_seeds}; {one.state}')


def duration(seconds: float) -> str:
  """Format seconds: 48 s, 12 min, 3.5 h."""
  if seconds < 90:
    return f'{seconds:.0f} s'
  return f'{seconds / 60:.0f} min' if seconds < 5400 else f'{seconds / 3600:.1f} h'


def _has_printed(results: Sequence[collection.RowResult]) -> bool:
  return any(one.row.id in plans.published() for one in results)


def has_picture(table: Table, results: Sequence[collection.RowResult]) -> bool:
  """Return whether there is something to draw: curves, or published metrics."""
  return bool(table.curves) or _has_printed(results)


def documents(
  name: str,
  table: Table,
  results: Sequence[collection.RowResult],
  plan: plans.Plan,
  groups: Mapping[str, Mapping[str, Accuracies]],
) -> dict[str, str]:
  """Return the table with its protocol as Markdown and as an HTML page with its figure, by the ending of the file.

  Of a part of the rows, the paper's tables are left out. `groups` is that of `paradigms.of_table`.
  """
  is_whole, found = len(results) == len(table.rows), lines(results)
  shown, footnotes = pages.show(table, live(results), results) if is_whole else (None, [])
  is_like = any(one.row.like for one in results)
  columns = [
    name for name in HEADER if name not in _COMPARED or _has_printed(results) or is_like and name == 'Published'
  ]
  picture = 'Scores by what they cost' if table.curves else 'Difference from the published metrics'
  given = {
    'name': name,
    'printed': table,
    'shown': shown,
    'footnotes': footnotes,
    'rows_heading': ROWS,
    'measured_how': MEASURED_HOW,
    'columns': columns,
    'numbers': _NUMBERS,
    'heads': matrix.heads(table),
    'matrix': matrix.lines(table, values.of_results(results)),
    'findings': findings.sections(table, groups),
    'lines': [{'shown': [one.cells[HEADER.index(name)] for name in columns], 'result': one.result} for one in found],
    'remarks': [*notes(results), *([pages.COMPUTED] if table.computed and is_whole else [])],
    'picture': picture if has_picture(table, results) else '',
    'by_phenomenon': f'{name}{phenomena.SUFFIX}' if groups else '',
    'runs': [
      (run.name, about(run, table, plan), '\n'.join(protocol(run, table, plan))) for run in runs_of(table, results)
    ],
    'data': [(key, DATA[key].files, DATA[key].terms) for key in data_of(table, results)],
  }
  return {end: pages.render(f'report.{end}.jinja', **given) for end in ('md', 'html')}


def live(results: Sequence[collection.RowResult]) -> dict[str, str]:
  """Return the metrics of runs by id, as text."""
  return {line.result.row.id: line.cells[4] for line in lines(results) if line.result.seeds}


def notes(results: Sequence[collection.RowResult]) -> list[str]:
  """Return the notes below the table: rows without a comparison and the reason, remarks, sources, and problems."""
  reasons = dict.fromkeys(one.row.differs for one in results if one.row.differs)
  texts = [f'* Not compared: {reason}.' for reason in reasons]
  texts += [f'{one.row.id}: {one.row.note}.' for one in results if one.row.note]
  sources: dict[str, None] = {}
  for one in results:
    printed = verdict.printed(one.row.id)
    if printed:
      checked = 'checked' if printed.verified else 'not checked'
      place = f'{printed.paper}, table {printed.table}' if printed.table else printed.paper
      sources[f'{place} ({checked}; {printed.source})'] = None
  texts += [f'Published: {source}.' for source in sources]
  if _has_printed(results):
    texts.append(
      'Ours: the mean over seeds, unless the row names another statistic. Difference: ours less the published figure. '
      'Reproduced: the published figure is in the 95% interval of ours (over seeds, or over the rows of a single or '
      'best run), or within the band (±) of a single run without one: twice the '
      'published spread where one is known (the standard deviation over runs), else a width of ours for figures of its '
      'kind.'
    )
  return texts + [f'Not counted: {problem}' for problem in dict.fromkeys(p for one in results for p in one.problems)]


def runs_of(table: Table, results: Sequence[collection.RowResult]) -> list[Run]:
  """Return the runs of the rows, and those that they start from."""
  runs = {run.name: run for run in table.runs}
  return plans.sort_by_dependency(plans.read_from(one.row for one in results), runs)


def data_of(table: Table, results: Sequence[collection.RowResult]) -> list[str]:
  """Return the names of the data sets and weights that the runs read."""
  text = ' '.join(' '.join((*run.settings, *run.then)) for run in runs_of(table, results))
  return [name for name in DATA if f'{{data.{name}}}' in text]


def about(run: Run, table: Table, plan: plans.Plan) -> str:
  """Return the seeds, hardware and hours of a run."""
  count = len(plans.seeds(run, plan))
  one = needs.of_run(run, {other.name: other for other in table.runs}, count)
  return (f'{count} seed{"s" * (count > 1)}; ' if run.seeds else '') + f'needs {needs.describe(one)}'


def protocol(run: Run, table: Table, plan: plans.Plan) -> list[str]:
  """Return the commands of a run at its first seed."""
  runs = {one.name: one for one in table.runs}
  clean = plans.Plan(runs=(pathlib.Path('DIR'),), seeds=plan.seeds, options=plan.options, settings=plan.settings)
  planned = plans.commands(run, plans.seeds(run, plan)[0], runs, clean, shown=True)
  return [f'lmx {redact(shlex.join(command.words))}' for command in planned]


def draw(file: pathlib.Path, table: Table, results: Sequence[collection.RowResult]) -> None:
  """Draw each row's difference from the published metric in units of its band, or the table's curves."""
  made = curves.figure(table, values.of_results(results)) if table.curves else _differences(results, table.title)
  made.savefig(file, dpi=130, metadata={'Software': None})


def _differences(results: Sequence[collection.RowResult], title: str):
  """Return the figure of a table without curves."""
  from matplotlib.figure import Figure

  shown = lines(results)
  figure = Figure(figsize=(11, 1.4 + 0.26 * len(shown)), layout='constrained')
  axes = figure.subplots()
  axes.axvspan(-1, 1, color='0.93', zorder=0)
  axes.axvline(0, color='0.5', linewidth=1, zorder=1)
  for y, line in enumerate(shown):
    if not math.isnan(line.share):
      inside = abs(line.share) <= 1
      x = min(max(line.share, -3.9), 3.9)  # larger differences are drawn at the edge
      error = None if math.isnan(line.spread) else line.spread
      axes.errorbar(
        x,
        y,
        xerr=error,
        fmt='o' if abs(line.share) <= 3.9 else '>' if x > 0 else '<',
        color='#1f6f50' if inside else '#a33333',
        capsize=2,
        markersize=5,
        zorder=3,
      )
    text = f'{line.cells[3]}  |  {line.cells[4]}'
    color = 'black' if line.result.seeds else '0.55'
    axes.annotate(text, (1.01, y), xycoords=('axes fraction', 'data'), va='center', fontsize=8, color=color)
  axes.set_yticks(range(len(shown)), [_label(line) for line in shown], fontsize=8)
  axes.set(
    xlim=(-4, 4),
    ylim=(len(shown) - 0.4, -0.6),
    xlabel='ours less published, in halves of our interval or band (grey: reproduced)',
  )
  axes.set_title(f'{title}     (right: published | ours)', fontsize=10, loc='left')
  axes.spines[['top', 'right', 'left']].set_visible(False)
  axes.tick_params(left=False)
  return figure


def _label(line: Line) -> str:
  text = ', '.join(filter(None, line.cells[:2])) + f': {line.cells[2]}'
  return text if len(text) <= 80 else text[:79] + '…'
