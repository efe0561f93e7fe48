"""Picture of a table with curves: panels, a line for each name, standard deviations as error bars. Imports no JAX."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from experiments.tables import METRICS, Curve, Table
from launch.tables.values import Value

_COLOURS = [*(f'C{number}' for number in range(10)), 'black', 'goldenrod', 'navy', 'lightcoral', 'darkgreen']


def figure(table: Table, values: Mapping[str, Value]) -> Any:
  """Return the figure of a table's curves; `values` are the metrics by row."""
  from matplotlib.figure import Figure

  points = [one for one in table.curves if one.y in values and (not one.x or one.x in values)]
  panels = list(dict.fromkeys(one.panel for one in points)) or ['']
  made = Figure(figsize=(1 + 4 * len(panels), 4.2), layout='constrained')
  all_axes = made.subplots(1, len(panels), squeeze=False)[0]
  left = min((values[one.x].mean for one in points if one.x), default=1.0) / 4  # x of a metric without one
  names = list(dict.fromkeys(one.line for one in table.curves))
  metric_of = {row.id: row.metric for row in table.rows}
  drawn: dict[str, Any] = {}
  for panel, axes in zip(panels, all_axes, strict=True):
    for number, name in enumerate(names):
      style = {'color': _COLOURS[number % len(_COLOURS)], 'capsize': 2, 'markersize': 5}
      drawn |= _lines(axes, [one for one in points if (one.panel, one.line) == (panel, name)], values, left, style)
    for i, mark in enumerate(mark for mark in table.marks if mark.panel == panel):
      axes.axhline(mark.y, color='0.6', linewidth=0.8, linestyle=':')
      spot = (0.55 if i % 2 else 0.01, mark.y)  # labels of almost equal heights do not overlap
      axes.annotate(mark.label, spot, xycoords=('axes fraction', 'data'), fontsize=7, color='0.4', va='bottom')
    better = {METRICS[metric_of[one.y]].lower for one in points if one.panel == panel}
    axes.set(xscale='log', title=f'{panel} (lower is better)' if better == {True} else panel)
    axes.spines[['top', 'right']].set_visible(False)
  titles = {METRICS[metric_of[one.x]].title for one in points if one.x}
  alone = ' (crosses: counted, not trained)' if any(not one.x for one in points) else ''
  made.supxlabel(', '.join(sorted(titles)) + alone, fontsize=10)
  if drawn:
    place = {'loc': 'upper left', 'bbox_to_anchor': (1, 1)}
    shown = [name for name in names if name in drawn]
    all_axes[-1].legend([drawn[name] for name in shown], shown, frameon=False, fontsize=8, **place)
  return made


def _lines(
  axes: Any, points: list[Curve], values: Mapping[str, Value], left: float, style: Mapping[str, Any]
) -> dict[str, Any]:
  """Draw the points of a line, those without an x as crosses at the left end; return what the legend shows."""
  found: dict[str, Any] = {}
  for has_x, mark in ((False, 'x'), (True, 'o')):
    some = sorted(
      (values[one.x].mean if has_x else left, *values[one.y][:2], one.line) for one in points if bool(one.x) == has_x
    )
    if some:
      xs, ys, deviations, lines = zip(*some, strict=True)
      errors = [0.0 if math.isnan(one) else one for one in deviations]
      found[lines[0]] = axes.errorbar(xs, ys, errors, marker=mark, linestyle='-' if has_x else '', **style)
  return found
