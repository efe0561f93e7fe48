"""Accuracy on minimal pairs in the page: bars by phenomenon with 95% intervals, and tables of all groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from lmx import records
from lmx.metrics import published_pairs
from lmx.reporting import templates
from lmx.reporting.html_report import charts, formats

_WIDTH, _ROW, _LABELS, _FONT = 760, 24, 200, 11  # of the picture, in units of the SVG
_HEAD = ['', 'accuracy', '95% over pairs', '95% over paradigms', 'by means', 'paradigms', 'pairs', 'ties']


class Evaluation(NamedTuple):
  """Part of the page about one evaluation: legend has (name, colour) of the dots, tables (title, rows)."""

  title: str
  note: str
  picture: Markup
  label: str
  legend: list[tuple[str, int]]
  head: list[str]
  tables: list[tuple[str, list[list[Any]]]]


def contents(evaluations: Sequence[Mapping[str, Any]]) -> Iterator[Evaluation]:
  """Yield the parts about the evaluations in pairs.json, the newest first."""
  for i, one in enumerate(reversed(evaluations)):
    bars = one['phenomena'] or one['paradigms']
    published = _published(one, bars)
    subset = f', subset {one["split"]}' if one['split'] != 'all' else ''
    counts = f'{one["pairs"]:,} pairs, {one["ties"]:,} ties, {one["equal_tokens"]:,} equal after tokenization.'
    about = ', '.join(filter(None, (f'{one["dataset"]}{subset}', records.describe_checkpoint(one))))
    yield Evaluation(
      f'{about}: {_percent(one["accuracy"])}',
      f'{one["protocol"]}. {counts} {one["subset"]}'.strip(),
      _picture(bars, published, f'pairs {i}'),
      ', '.join(f'{formats.words(bar["name"])} {_percent(bar["accuracy"])}' for bar in bars),
      [(f'{system.name} ({published_pairs.NOTE}) {system.overall:.1f}%', c + 1) for c, system in enumerate(published)],
      _HEAD,
      [
        (name, [_row(group) for group in groups])
        for name, groups in (
          ('Overall', [{**one, 'name': 'mean of paradigms', 'paradigms': len(one['paradigms'])}]),
          ('Fields', one['fields']),
          ('Phenomena', one['phenomena']),
          ('Paradigms', one['paradigms']),
        )
        if groups
      ],
    )


def _published(metrics: Mapping[str, Any], bars: Sequence[Mapping[str, Any]]) -> list[published_pairs.Published]:
  """Return the published systems with the same phenomena; [] for a subset and for other pairs."""
  names = {bar['name'] for bar in bars}
  return [one for one in published_pairs.BLIMP if metrics['split'] == 'all' and names == {*one.phenomena}]


def _percent(share: float) -> str:
  return f'{100 * share:.1f}%'


def _row(group: Mapping[str, Any]) -> list[Any]:
  spans = [
    f'{100 * span[0]:.1f} to {100 * span[1]:.1f}' if span else ''
    for span in (group['interval'], group.get('paradigm_interval'))
  ]
  accuracy, means = (formats.number(group[name], is_share=True) for name in ('accuracy', 'accuracy_per_token'))
  counts = [formats.number(group[name]) for name in ('paradigms', 'pairs', 'ties')]
  return [formats.words(group['name']), accuracy, *spans, means, *counts]


def _picture(bars: Sequence[Mapping[str, Any]], published: Sequence[published_pairs.Published], salt: str) -> Markup:
  """Return horizontal bars with intervals over pairs, and dots of published systems; the line is chance."""
  height = _ROW * len(bars) + 34
  figure = Figure(figsize=(_WIDTH / 72, height / 72), dpi=72)
  figure.patch.set_visible(False)
  axes = figure.add_axes((_LABELS / _WIDTH, 26 / height, 1 - (_LABELS + 12) / _WIDTH, 1 - 30 / height))
  axes.set_frame_on(False)
  theme = charts.THEME
  y, values = np.arange(len(bars)), np.asarray([100 * bar['accuracy'] for bar in bars])
  spans = 100 * np.asarray([bar['interval'] for bar in bars], np.float64)
  axes.set(xlim=(0, 101), ylim=(len(bars) - 0.5, -0.5), axisbelow=True)
  axes.barh(y, values, height=0.62, color=theme['c0'], alpha=0.45)
  axes.errorbar(values, y, xerr=np.abs(spans.T - values), fmt='none', ecolor=theme['c0'], elinewidth=1.6, capsize=3)
  axes.axvline(50, color=theme['faint'], linewidth=1.2, linestyle=(0, (4, 3.3)))
  for c, system in enumerate(published):
    dots = [system.phenomena[bar['name']] for bar in bars]
    axes.plot(dots, y, 'o', color=theme[f'c{c + 1}'], markersize=4.5, markeredgewidth=0)
  axes.tick_params(length=0, pad=8, labelcolor=theme['faint'], labelsize=_FONT)
  axes.grid(axis='x', color=theme['line'], linewidth=1)
  axes.set_yticks(y, [templates.visible(formats.words(bar['name'])) for bar in bars], parse_math=False)
  axes.set_xticks(range(0, 101, 25), [f'{x}%' for x in range(0, 101, 25)])
  return charts.to_svg(figure, salt)
