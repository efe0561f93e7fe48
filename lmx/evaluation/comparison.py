"""Comparison of evaluated systems on the same data: intervals, differences and paired significance tests.

A system is a run, or several runs that differ in the seed. With saved rows (`evaluation.save_rows`) the tests are over
rows: they say whether the difference would hold on other data of the same kind, for these trained parameters. Over
several seeds a system's metric is the mean over its seeds, and a row is resampled or exchanged with all of its seeds.
Welch's t test is over seeds: it says whether the difference would hold for other seeds, on this data.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx import records, statistics, storage
from lmx.errors import InputError, InputWarning, nearest
from lmx.evaluation import rows as row_files
from lmx.statistics import Interval

TESTS = {
  'mcnemar': "McNemar's exact test",
  'randomization': 'paired approximate randomization',
  'bootstrap': 'paired bootstrap',
  't': "Welch's t test over seeds",
}
CORRECTIONS: dict[str, Callable[[Sequence[float]], Any]] = {
  'holm': statistics.holm,
  'bh': statistics.false_discovery,
  'none': np.asarray,
}


class System(NamedTuple):
  """A system to compare.

  Attributes:
    name: its name in the table.
    workdirs: folders of its runs, one a seed.
    results: results.json of each.
    rows: rows of each; None unless all saved them.
  """

  name: str
  workdirs: Sequence[Any]
  results: Sequence[Mapping[str, Any]]
  rows: Sequence[Sequence[row_files.Row]] | None


class Compared(NamedTuple):
  """A system's metric, and its difference from the first system, which is None for the first.

  Attributes:
    name, workdirs: as of `System`.
    mean: the metric, of several seeds the mean.
    interval: its 95% interval: t over several seeds, else bootstrap over rows; None without either.
    difference: its mean minus the first system's.
    difference_interval: 95% interval of the difference.
    p: p-value of the difference.
    adjusted: p-value corrected for several comparisons.
    library: (name of the paired test of the library that computes the metric, its p-value), None without one.
  """

  name: str
  workdirs: Sequence[str]
  mean: float
  interval: Interval | None
  difference: float | None = None
  difference_interval: Interval | None = None
  p: float | None = None
  adjusted: float | None = None
  library: tuple[str, float] | None = None


class _Measured(NamedTuple):
  """Values of a system's rows, (n, seeds, ...), and the statistic that gives their metric."""

  values: np.ndarray
  statistic: Callable[[np.ndarray], float]
  is_binary: bool


def compare(
  systems: Sequence[System], metric: str, test: str = '', correction: str = 'holm'
) -> tuple[list[Compared], str]:
  """Compare systems with the first one.

  Args:
    systems: two or more.
    metric: metric of results.json.
    test: key of TESTS, '' for the metric's default: 'mcnemar' for the share of correct rows, 'randomization' for
      others, 't' without rows.
    correction: key of CORRECTIONS.

  Returns:
    The systems in their order, and the key of the test.

  Raises:
    InputError: they were not evaluated on the same rows, or there is no such test of the metric.
  """
  check_same_data(systems)
  values = [_seed_values(system, metric) for system in systems]
  has_rows = all(system.rows is not None for system in systems)
  measured = [_measure(system, metric) for system in systems] if has_rows and test != 't' else []
  test = test or _default_test(systems, measured, values)
  if test != 't' and not has_rows:
    raise InputError(_advice(systems))
  _check_test(test, measured, metric)
  found = [
    Compared(system.name, [str(path) for path in system.workdirs], float(np.mean(seeds)), _interval(seeds, one))
    for system, seeds, one in zip(systems, values, [*measured, *[None] * (len(systems) - len(measured))], strict=True)
  ]
  for i in range(1, len(systems)):
    pair = (values[0], values[i]) if test == 't' else (measured[0], measured[i])
    interval, p = (statistics.welch if test == 't' else functools.partial(_paired, test))(*pair)
    library = None if test == 't' else _library_test(metric, systems[0], systems[i], test)
    found[i] = found[i]._replace(
      difference=found[i].mean - found[0].mean, difference_interval=interval, p=p, library=library
    )
  adjusted = CORRECTIONS[correction]([one.p for one in found[1:] if one.p is not None])
  return [found[0], *(one._replace(adjusted=float(p)) for one, p in zip(found[1:], adjusted, strict=True))], test


def check_same_data(systems: Sequence[System]) -> None:
  """Raise InputError unless all systems were evaluated on the same split of the same data and on the same rows.

  The hash of prepared data also depends on the tokenizer and the length. Where it differs, equal labels in every row
  suffice, with a warning.
  """
  first, *others = [(system, i) for system in systems for i in range(len(system.results))]
  for other in others:
    for field in ('dataset', 'split', 'data_hash'):
      one, two = (system.results[i].get(field) for system, i in (first, other))
      if one != two and field == 'data_hash' and _have_truth(first, other):
        note = 'the data were prepared otherwise; the rows are compared by their labels'
        warnings.warn(
          f'{other[0].workdirs[other[1]]}: data_hash: got {two}, not {one}; {note}', InputWarning, stacklevel=3
        )
      elif one != two:
        raise InputError(
          f'{other[0].workdirs[other[1]]}: {field}: got {two}; expected {one}, as in {first[0].workdirs[first[1]]}; '
          'evaluate both on the same data'
        )
    _check_same_rows(first, other)


def _have_truth(first: tuple[System, int], other: tuple[System, int]) -> bool:
  """Return whether both evaluations saved rows with fields that come from the data."""
  saved = [system.results[i].get('rows') if system.rows is not None else None for system, i in (first, other)]
  return all(rows is not None and row_files.get(rows['kind']).TRUTH for rows in saved)


def _check_same_rows(first: tuple[System, int], other: tuple[System, int]) -> None:
  (a, i), (b, j) = first, other
  if a.rows is None or b.rows is None:
    return
  kinds = [system.results[k]['rows']['kind'] for system, k in (first, other)]
  where = f'{b.workdirs[j]}/{records.ROWS}'
  if kinds[0] != kinds[1] or len(a.rows[i]) != len(b.rows[j]):
    raise InputError(
      f'{where}: got {len(b.rows[j]):,} rows of kind {kinds[1]}; expected {len(a.rows[i]):,} of kind {kinds[0]}, as in '
      f'{a.workdirs[i]}; evaluate both on the same data'
    )
  for number, (one, two) in enumerate(zip(a.rows[i], b.rows[j], strict=True), 1):
    for name in ('row', *row_files.get(kinds[0]).TRUTH):
      if one.get(name) != two.get(name):
        raise InputError(
          f'{where}, line {number}: {name}: got {two.get(name)!r}; expected {one.get(name)!r}, as in {a.workdirs[i]}; '
          'evaluate both on the same data'
        )


def _seed_values(system: System, metric: str) -> list[float]:
  """Return a metric of each seed. Raises InputError if results.json lacks it."""
  for path, results in zip(system.workdirs, system.results, strict=True):
    if not records.is_number(results.get(metric)):
      names = [name for name, value in results.items() if records.is_number(value)]
      raise InputError(f'--metric: got "{metric}", which {path} does not have{nearest(metric, names)}')
    if not math.isfinite(results[metric]):
      raise InputError(f'{path}: {metric}: got {results[metric]}; expected a finite number; name another --metric')
  return [float(results[metric]) for results in system.results]


def _measure(system: System, metric: str) -> _Measured:
  """Return a metric of a system as a function of its rows."""
  assert system.rows is not None
  each = [row_files.measure(metric, *pair) for pair in zip(system.rows, system.results, strict=True)]
  for path, one in zip(system.workdirs, each, strict=True):
    if not np.isfinite(one.values).all():
      row = int(np.argwhere(~np.isfinite(one.values))[0][0]) + 1
      raise InputError(f'{path}/{records.ROWS}, line {row}: got a number that is not finite for {metric}')
  values = np.stack([one.values for one in each], axis=1)
  statistic = lambda some: sum(one.statistic(some[:, i]) for i, one in enumerate(each)) / len(each)
  return _Measured(values, statistic, each[0].is_binary)


def _default_test(systems: Sequence[System], measured: Sequence[_Measured], values: Sequence[Sequence[float]]) -> str:
  if not measured:
    return 't' if all(len(seeds) > 1 for seeds in values) else 'randomization'
  counts = {len(system.results) for system in systems}
  if measured[0].is_binary and counts == {1}:
    return 'mcnemar'
  return 'randomization' if len(counts) == 1 else 'bootstrap'


def _check_test(test: str, measured: Sequence[_Measured], metric: str) -> None:
  """Raise InputError if a test does not fit the metric or the numbers of seeds."""
  seeds = sorted({one.values.shape[1] for one in measured})
  if test == 'mcnemar' and not (measured[0].is_binary and seeds == [1]):
    what = f'{max(seeds)} seeds' if measured[0].is_binary else f'"{metric}"'
    raise InputError(
      f'--test: got mcnemar with {what}; expected one run of each system and a metric that counts correct rows; '
      'choose randomization or bootstrap'
    )
  if test == 'randomization' and len(seeds) > 1:
    raise InputError(
      f'--test: got randomization with {" and ".join(map(str, seeds))} seeds; expected equal numbers of seeds, which '
      'exchange their rows; choose bootstrap or t'
    )


def _advice(systems: Sequence[System]) -> str:
  """Return the message for systems without rows and too few seeds for a test over seeds."""
  system = next(one for one in systems if one.rows is None)
  path, results = system.workdirs[0], system.results[0]
  command = records.save_rows_command(storage.path('DIR', path), results, 'DIR')
  return (
    f'{path}: got no {records.ROWS}; expected the rows of its evaluation, or at least 2 seeds of every system; write '
    f'them by `{command}` and compare DIR, or train '
    'with --config.evaluation.save_rows=true'
  )


def _interval(seeds: Sequence[float], measured: _Measured | None) -> Interval | None:
  if len(seeds) > 1:
    return statistics.t_interval(seeds)
  return None if measured is None else statistics.bootstrap(measured.values, measured.statistic)


def _paired(test: str, a: _Measured, b: _Measured) -> tuple[Interval, float]:
  """Return the bootstrap interval of the difference b - a and the p-value of a test over rows."""
  both = np.concatenate([a.values, b.values], axis=1)
  seeds = a.values.shape[1]
  difference = lambda some: b.statistic(some[:, seeds:]) - a.statistic(some[:, :seeds])
  interval = statistics.bootstrap(both, difference)
  if test == 'mcnemar':
    return interval, statistics.mcnemar(a.values[:, 0], b.values[:, 0])
  if test == 'randomization':
    return interval, statistics.approximate_randomization(a.values, b.values, a.statistic)
  return interval, statistics.bootstrap_p(both, difference)


def _library_test(metric: str, a: System, b: System, test: str) -> tuple[str, float] | None:
  if a.rows is None or b.rows is None or len(a.rows) + len(b.rows) > 2:
    return None
  return row_files.get(a.results[0]['rows']['kind']).library_test(metric, a.rows[0], b.rows[0], a.results[0], test)
