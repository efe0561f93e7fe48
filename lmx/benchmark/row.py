"""A row of the table of `lmx bench --preset`: a measurement of lmx and its peer, and the combination of several runs.

A row is a dict, serialisable as JSON:
  name, unit          of the measured quantity: seconds (less is better) or a rate per second (more is better)
  ours, theirs        {'median', 'quartile_1', 'quartile_3'}; theirs is None without a peer
  ratio               times as fast as the peer; above 1 lmx is ahead
  ratio_of_rounds     the same of each round
  compile_seconds     time of compiling, not in `ours` unless the name says so; None if it is not separate
  our_peak_bytes, peer_peak_bytes  largest resident set of the two processes
  peer                versions and settings of the peer
  missing             what no interpreter of --peer has, else ''
  details             whatever else was measured
A failed row only has `name` and `error`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]


def spread(values: Sequence[float]) -> dict[str, float]:
  """Return median and quartiles."""
  quarters = statistics.quantiles(values, n=4, method='inclusive') if len(values) > 1 else [values[0]] * 3
  return {'median': statistics.median(values), 'quartile_1': quarters[0], 'quartile_3': quarters[2]}


def is_rate(unit: str) -> bool:
  """Return whether more is better."""
  return unit.endswith('/s')


def make(
  name: str,
  unit: str,
  ours: Sequence[float],
  theirs: Sequence[float] | None = None,
  *,
  compile_seconds: float | None = None,
  peaks: tuple[int | None, int | None] = (None, None),
  peer: dict[str, Any] | None = None,
  missing: str = '',
  details: dict[str, Any] | None = None,
) -> Row:
  """Return a row from one measurement per round; `theirs` has as many as `ours`, or is None or empty without a peer."""
  ratios: list[float] = []
  if theirs:
    pairs = zip(ours, theirs, strict=True)
    ratios = [a / b if is_rate(unit) else b / a for a, b in pairs]
  return {
    'name': name,
    'unit': unit,
    'ours': spread(ours),
    'theirs': spread(theirs) if theirs else None,
    'ratio': statistics.median(ratios) if ratios else None,
    'ratio_of_rounds': ratios,
    'compile_seconds': compile_seconds,
    'our_peak_bytes': peaks[0],
    'peer_peak_bytes': peaks[1],
    'peer': peer,
    'missing': missing,
    'details': details or {},
  }


def combine(runs: Sequence[Sequence[Row]]) -> list[Row]:
  """Return a row for each name in several runs of the table: medians, and the range of the ratio.

  The ratio is the median of the runs' ratios, `ratio_of_rounds` has the ratio of each run. Peaks are the largest.
  """
  combined = []
  for name in dict.fromkeys(row['name'] for run in runs for row in run):
    all_rows = [row for run in runs for row in run if row['name'] == name]
    rows = [row for row in all_rows if 'error' not in row]
    if not rows:
      combined.append(all_rows[0])
      continue
    with_peer = [row for row in rows if row['ratio'] is not None]
    last = (with_peer or rows)[-1]
    middle = lambda name, rows=rows: _known(statistics.median, [row[name] for row in rows])
    most = lambda name, rows=rows: _known(max, [row[name] for row in rows])
    each = lambda side, rows: spread([row[side]['median'] for row in rows])
    combined.append(
      {
        **last,
        'ours': each('ours', rows),
        'theirs': each('theirs', with_peer) if with_peer else None,
        'ratio': middle('ratio'),
        'ratio_of_rounds': [row['ratio'] for row in with_peer],
        'compile_seconds': middle('compile_seconds'),
        'our_peak_bytes': most('our_peak_bytes'),
        'peer_peak_bytes': most('peer_peak_bytes'),
        'details': {'runs': [row['details'] for row in rows]},
        'runs': len(rows),
        'failed': len(all_rows) - len(rows),
      }
    )
  return combined


def _known(function: Any, values: Sequence[Any]) -> Any:
  known = [value for value in values if value is not None]
  return function(known) if known else None


def markdown(rows: Sequence[Row]) -> str:
  """Return the rows as a Markdown table.

  The last column divides a training step's operations per second by the `product` row's, if there is one. Its inverse
  bounds the possible speedup of the step.
  """
  titles = (
    'Row',
    'lmx',
    'Peer',
    'Times as fast (rounds)',
    'Compiling',
    'Peak memory, lmx',
    'Peak memory, peer',
    'Of a product',
  )
  if any('runs' in row for row in rows):
    titles = (*titles[:3], 'Times as fast (runs)', *titles[4:])
  product = next((1e9 * row['ours']['median'] for row in rows if row['name'] == 'product' and 'error' not in row), 0.0)
  lines = [titles, ('---',) * len(titles), *((*_cells(row), _of_product(row, product)) for row in rows)]
  return '\n'.join('| ' + ' | '.join(cells) + ' |' for cells in lines)


def _cells(row: Row) -> tuple[str, ...]:
  name = f'`{row["name"]}`'
  if 'error' in row:
    return name, 'failed: ' + row['error'].replace('|', '/').replace('\n', ' '), '', '', '', '', ''
  unit = row['unit']
  theirs = f'not measured: no {row["missing"]}' if row['missing'] else ''
  if row['theirs']:
    theirs = show(row['theirs']['median'], unit)
  ratio = ''
  if row['ratio'] is not None:
    ratio = f'{row["ratio"]:.2f} ({", ".join(f"{x:.2f}" for x in row["ratio_of_rounds"])})'
  compiling = '' if row['compile_seconds'] is None else f'{row["compile_seconds"]:.1f} s'
  return name, show(row['ours']['median'], unit), theirs, ratio, compiling, _size(row, 'our'), _size(row, 'peer')


def _of_product(row: Row, product: float) -> str:
  details = row.get('details', {})
  speeds = [run['flops_per_second'] for run in details.get('runs', [details]) if run.get('flops_per_second')]
  return f'{statistics.median(speeds) / product:.0%}' if speeds and product else ''


def _size(row: Row, side: str) -> str:
  size = row[f'{side}_peak_bytes']
  return '' if size is None else f'{size / 2**20:,.0f} MiB'


def show(value: float, unit: str) -> str:
  """Return a measured value with its unit."""
  if unit == 's' and value < 10:
    return f'{1000 * value:,.0f} ms'
  return f'{value:,.0f} {unit}' if value >= 100 else f'{value:.1f} {unit}'


def line(row: Row) -> str:
  """Return the row as a line for a reader."""
  if 'error' in row:
    return f'{row["name"]}: failed: {row["error"]}'
  _, ours, theirs, ratio, compiling, our_peak, peer_peak = _cells(row)
  parts = [f'lmx {ours}', theirs and f'peer {theirs}', ratio and f'{ratio} times as fast']
  parts += [compiling and f'compiling {compiling}', our_peak and f'lmx {our_peak}', peer_peak and f'peer {peer_peak}']
  return f'{row["name"]}: ' + ', '.join(filter(None, parts))
