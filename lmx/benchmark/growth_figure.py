"""Plot of time per token by size: one panel per model, one line per size (`lmx bench --growth --picture`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

_COLUMNS, _WIDTH, _HEIGHT = 7, 1.75, 1.6  # of panels, in inches
_COLOURS = {'width': '#1b6ca8', 'length': '#c8553d', 'vocabulary': '#4f8a4c', 'batch': '#8a5fa8'}


def write(path: Any, rows: Sequence[dict[str, Any]]) -> None:
  """Plot the rows of `growth.measure`.

  Both axes are logarithmic and relative to the middle size and its time per token.

  Args:
    path: image file.
    rows: rows, grouped by model.
  """
  from matplotlib.figure import Figure  # imported here: it takes half a second, which other commands save

  models = list(dict.fromkeys(row['model'] for row in rows))
  columns = min(_COLUMNS, len(models))
  lines = math.ceil(len(models) / columns)
  figure = Figure(figsize=(max(3.5, columns * _WIDTH), 0.5 + lines * _HEIGHT), layout='constrained')
  panels = np.atleast_1d(figure.subplots(lines, columns, sharex=True, sharey=True)).ravel()
  handles: dict[str, Any] = {}
  for panel, model in zip(panels, models, strict=False):
    _draw(panel, model, [row for row in rows if row['model'] == model and 'values' in row], handles)
  for panel in panels[len(models) :]:
    panel.set_axis_off()
  if handles:
    figure.legend(handles.values(), handles, loc='outside lower center', ncols=len(handles), fontsize=7, frameon=False)
  figure.savefig(path, dpi=100)


def _draw(panel: Any, model: str, rows: Sequence[dict[str, Any]], handles: dict[str, Any]) -> None:
  panel.set_title(model, fontsize=7, pad=2)
  panel.set_xscale('log', base=2)
  panel.set_yscale('log', base=2)
  panel.tick_params(labelsize=5, length=2, pad=1)
  for i, row in enumerate(rows):
    middle = len(row['values']) // 2
    x = np.array(row['values']) / row['values'][middle]
    y = np.array(row['seconds_per_token']) / row['seconds_per_token'][middle]
    colour = _COLOURS[row['size']]
    (handles[row['size']],) = panel.plot(x, y, color=colour, marker='.', markersize=3, linewidth=1)
    text = f'{row["size"][0].upper()} {row["exponent"]:.2f}'
    panel.text(0.04, 0.95 - 0.13 * i, text, color=colour, fontsize=5.5, transform=panel.transAxes, va='top')
