"""Picture of the accuracies of a matrix by phenomenon of the minimal pairs. Imports no JAX."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import numpy as np

from experiments.tables import Table
from launch.tables import matrix, paradigms

SUFFIX = '_phenomena.png'


def by_phenomenon(one: paradigms.Accuracies) -> dict[str, float]:
  """Return the mean accuracy of each phenomenon over its paradigms and all seeds, in percent."""
  columns: dict[str, list[int]] = {}
  for number, name in enumerate(one.paradigms):
    columns.setdefault(name.partition('/')[0], []).append(number)
  return {name: float(np.mean(np.asarray(one.values)[:, some])) for name, some in columns.items()}


def draw(file: pathlib.Path, table: Table, found: Mapping[str, Mapping[str, paradigms.Accuracies]]) -> None:
  """Draw a panel for each group: phenomena by systems in the order of the matrix, 50 percent white."""
  from matplotlib.figure import Figure

  years = matrix.years(table)
  widest = max(map(len, found.values()))
  names = list(dict.fromkeys(name for each in found.values() for one in each.values() for name in by_phenomenon(one)))
  size = (3 + 0.7 * widest, 1 + len(found) * (1.2 + 0.3 * len(names)))
  figure = Figure(figsize=size, layout='constrained')
  all_axes = figure.subplots(len(found), 1, squeeze=False)[:, 0]
  for axes, (group, systems) in zip(all_axes, found.items(), strict=True):
    each = [by_phenomenon(one) for one in systems.values()]
    values = np.array([[one.get(name, np.nan) for one in each] for name in names])
    axes.imshow(values, cmap='RdBu', vmin=0, vmax=100, aspect='auto')
    for y, x in np.argwhere(~np.isnan(values)):
      dark = abs(values[y, x] - 50) > 35
      axes.text(x, y, f'{values[y, x]:.0f}', ha='center', va='center', fontsize=8, color='white' if dark else 'black')
    labels = [f'{name}\n{years[name]}'.strip() for name in systems]
    axes.set_xticks(range(len(labels)), labels, fontsize=8, rotation=45, ha='right')
    axes.set_yticks(range(len(names)), [name.replace('_', ' ') for name in names], fontsize=8)
    axes.set_title(group, fontsize=10)
    axes.tick_params(length=0)
  figure.suptitle('Accuracy on minimal pairs by phenomenon, %', fontsize=11)
  figure.savefig(file, dpi=130, metadata={'Software': None})
