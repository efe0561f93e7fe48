"""Expected best validation over k random trials (Dodge et al. 2019, arXiv 1909.03004): table and curve."""

from __future__ import annotations

import math
import pathlib
import statistics as descriptive
from collections.abc import Sequence
from typing import Any, NamedTuple

from launch.sweep import trial

_SHOWN = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)


class Curve(NamedTuple):
  """Expected best metric of k = 1..n trials.

  Attributes:
    best: its value by k - 1.
    seconds: of one trial, on average.
    note: the trials behind it, and how far they are random.
  """

  best: Sequence[float]
  seconds: float
  note: str


def curve(trials: Sequence[Any], plan: trial.Plan) -> Curve | None:
  """Return the curve of the done and pruned trials, the latter with their last validation; None below two trials.

  `trials` are the rows of launch.sweep.report.
  """
  from lmx import statistics  # imports NumPy, which launchers start without

  used = [row for row in trials if row.state in ('COMPLETE', 'PRUNED') and _is_finite(row.value)]
  if len(used) < 2:
    return None
  values = [float(row.value) for row in used if row.value is not None]
  pruned, failed = sum(row.state == 'PRUNED' for row in used), sum(row.state == 'FAIL' for row in trials)
  note = f'from {len(used)} trials' + f', {pruned} of them pruned (their last validation)' * bool(pruned)
  note += f', without {failed} failed' * bool(failed)
  if plan.sampler != 'random':
    note += f'; the estimate assumes random trials, which those of {plan.sampler} are not'
  best = statistics.expected_best(values, plan.metric.direction == 'minimize')
  return Curve([float(value) for value in best], descriptive.fmean(row.seconds for row in used), note)


def _is_finite(value: float | None) -> bool:
  return value is not None and math.isfinite(value)


def csv(found: Curve) -> str:
  """Return expected.csv."""
  lines = [f'{k},{value:.17g},{k * found.seconds:.1f}' for k, value in enumerate(found.best, 1)]
  return '\n'.join(['trials,expected_best,seconds', *lines]) + '\n'


def table(found: Curve, plan: trial.Plan) -> list[str]:
  """Return the part of table.md."""
  n = len(found.best)
  lines = [
    '',
    f'Expected best {plan.metric.name} of k trials (Dodge et al. 2019), {found.note}:',
    '',
    '| k | expected best | training time |',
    '|---|---|---|',
  ]
  shown = [k for k in _SHOWN if k < n] + [n]
  return lines + [f'| {k} | {found.best[k - 1]:.6g} | {k * found.seconds:.1f} s |' for k in shown]


def draw(folder: pathlib.Path, found: Curve, plan: trial.Plan) -> None:
  """Draw expected.png."""
  from matplotlib import figure as figures

  picture = figures.Figure(figsize=(6, 4), layout='constrained')
  panel, k = picture.subplots(), range(1, len(found.best) + 1)
  panel.plot(k, found.best, color='tab:blue', marker='o', markersize=3)
  panel.set_xscale('log' if len(k) >= 20 else 'linear')
  panel.set_xlabel('trials')
  panel.set_ylabel(f'expected best {plan.metric.name}')
  picture.savefig(folder / 'expected.png', dpi=120)
