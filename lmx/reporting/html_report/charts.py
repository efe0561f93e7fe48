"""Curves of a run by update, as inline SVG with labels in HTML, so that text keeps its size at every width.

The page's script shows values under the pointer; without it the curves are complete.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx.reporting import loss_curve
from lmx.reporting.html_report import markup
from lmx.reporting.html_report.markup import Markup, tag

_WIDTH, _HEIGHT = 1000, 400  # of the coordinates in an SVG
_MOST = 1000  # points of a curve
_LARGEST = 1e300  # value on an axis
_SMOOTHED = 40  # points from which a training curve is smoothed
OF_A_CLASS = re.compile(r'_class_[0-9]{1,9}$')
_COLOURS = 6  # of style.css
_SERIES = re.compile(r'_\d+$')
_LONGEST_SERIES = 10
_OF_THE_LOG = ('step', 'split', 'seconds')
_TITLES = {
  'lr': 'Learning rate',
  'tokens_per_second': 'Tokens per second',
  'pixels_per_second': 'Pixels per second',
  'wait_share': 'Share of time spent waiting for data',
}
_RATES = ('tokens_per_second', 'pixels_per_second')
_FROM_ZERO = ('lr', *_RATES, 'wait_share')
_FIRST = ('lr', *_RATES)  # of the training metrics, always shown

Points = list[tuple[int, float]]


class Curve(NamedTuple):
  """A metric by update: name in the legend, (step, value), number of its colour, whether its points are marked."""

  name: str
  points: Points
  colour: int
  marked: bool


class Chart(NamedTuple):
  """Curves over one axis; `levels` are values to compare with, drawn as lines across."""

  title: str
  unit: str
  curves: list[Curve]
  levels: dict[str, float]
  from_zero: bool = False
  smoothed: bool = False


def build(
  records: Sequence[Mapping[str, Any]], results: Mapping[str, Any], headline: str
) -> tuple[list[Chart], list[Chart]]:
  """Return the charts of a run, and further ones that matter less.

  Args:
    records: records of metrics.jsonl.
    results: results.json, or {}.
    headline: the main metric, whose chart is the first after that of the loss.
  """
  splits = list(dict.fromkeys(record['split'] for record in records))
  others = [split for split in splits if split != 'train']
  names = [name for name in _names(records, others) if name != 'loss' and not OF_A_CLASS.search(name)]
  names.sort(key=lambda name: name != headline)
  first = [_loss(records, splits, results, headline)] + [_chart(records, others, name) for name in names]
  first.append(_classes(records, others, results))
  training = [name for name in _names(records, ['train']) if name != 'loss']
  first[1:1] = [_chart(records, ['train'], name) for name in _FIRST if name in training]
  if headline in names:  # the headline comes after the loss
    first.insert(1, first.pop(1 + sum(name in training for name in _FIRST)))
  more = [_chart(records, ['train'], name) for name in training if name not in _FIRST]
  return [c for c in first[:12] if c.curves], [c for c in first[12:] + more if c.curves]


def _classes(records: Sequence[Mapping[str, Any]], splits: Sequence[str], results: Mapping[str, Any]) -> Chart:
  """Return the chart of the metric that a validation has for each class, of few classes."""
  found = dict.fromkeys(n for r in records if r['split'] in splits for n in r if OF_A_CLASS.search(n))
  if not 2 <= len(found) <= _COLOURS:
    return Chart('', '', [], {})
  labels = dict(enumerate(results.get('labels', ())))
  curves = [
    Curve(labels.get(int(name.rpartition('_')[2]), name), points, i % _COLOURS, True)
    for i, name in enumerate(found)
    if (points := [point for split in splits for point in _points(records, split, name)])
  ]
  return Chart(f'{title(OF_A_CLASS.sub("", next(iter(found))))} by class', '', curves, {})


def _names(records: Sequence[Mapping[str, Any]], splits: Sequence[str]) -> list[str]:
  """Return the metrics of splits, without series such as one for each of many classes."""
  found = dict.fromkeys(n for r in records if r['split'] in splits for n in r if n not in _OF_THE_LOG)
  stems = [_SERIES.sub('', name) for name in found]
  return [name for name in found if stems.count(_SERIES.sub('', name)) <= _LONGEST_SERIES]


def _points(records: Sequence[Mapping[str, Any]], split: str, name: str) -> Points:
  return [(r['step'], float(r[name])) for r in records if r['split'] == split and name in r]


def _loss(
  records: Sequence[Mapping[str, Any]], splits: Sequence[str], results: Mapping[str, Any], headline: str
) -> Chart:
  caption = {'train': 'training', 'valid': 'validation'}
  curves = [
    Curve(caption.get(split, split), points, i, split != 'train')
    for i, split in enumerate(sorted(splits, key=lambda split: split != 'train'))
    if (points := _points(records, split, 'loss'))
  ]
  levels = {
    markup.fill(label, baseline): float(baseline['loss'])
    for name, label in BASELINES.items()
    if isinstance((baseline := results.get('validation_baselines', {}).get(name, {})).get('loss'), int | float)
    and math.isfinite(baseline['loss'])
  }
  unit = 'nats per token' if headline.startswith('perplexity') else 'nats'
  return Chart('Loss', unit, curves, levels, smoothed=True)


BASELINES = {'kneser_ney': 'Kneser-Ney {order}-gram', 'unigram': 'unigram'}


def _chart(records: Sequence[Mapping[str, Any]], splits: Sequence[str], name: str) -> Chart:
  caption = {'train': 'training', 'valid': 'validation'}
  curves = [
    Curve(caption.get(split, split), points, i + (split != 'train'), split != 'train')
    for i, split in enumerate(splits)
    if (points := _points(records, split, name))
  ]
  return Chart(title(name), '', curves, {}, name in _FROM_ZERO, name == 'grad_norm')


def title(name: str) -> str:
  """Return the title of a metric."""
  words = markup.words(name)
  return _TITLES.get(name, words if words[:4] in ('BLEU', 'chrF') else words[:1].upper() + words[1:])


def draw(chart: Chart, index: int, wide: bool = False) -> tuple[Markup, dict[str, Any]]:
  """Return a chart as a figure, and its points for the page's script.

  Args:
    chart: the chart; at least one curve has a point.
    index: position among the charts of the page.
    wide: draw it over the whole width.
  """
  x, y = _x_range(chart), _y_range(chart)
  parts = list(_lines(chart, x, y))
  shown = [thin(curve.points) for curve in chart.curves]
  last = ', '.join(f'{c.name} {markup.plain(c.points[-1][1])} at step {c.points[-1][0]:,}' for c in chart.curves)
  picture = tag(
    'svg',
    *parts,
    viewBox=f'0 0 {_WIDTH} {_HEIGHT}',
    preserveAspectRatio='none',
    role='img',
    aria_label=f'{chart.title}: {last}',
  )
  legends = [
    tag('span', curve.name, cls='legend dots' if curve.marked else 'legend', style=f'--c:var(--c{curve.colour})')
    for curve in chart.curves
  ]
  note = _not_finite(chart)
  figure = tag(
    'figure',
    tag('figcaption', tag('b', chart.title), tag('small', chart.unit) if chart.unit else '', *legends),
    tag('div', picture, *_labels(chart, x, y), cls='plot'),
    tag('p', tag('small', note)) if note else '',
    cls='wide' if wide else '',
    data_chart=index,
    tabindex=0,
  )
  series = [
    {
      'name': markup.visible(curve.name),
      'colour': curve.colour,
      'points': [[s, v if math.isfinite(v) else None] for s, v in points],
    }
    for curve, points in zip(chart.curves, shown, strict=True)
  ]
  return figure, {'title': chart.title, 'x': x, 'y': y, 'series': series}


def thin(points: Points) -> Points:
  """Return at most about `_MOST` points of a curve: of each stretch the lowest and the highest, and both ends."""
  if len(points) <= _MOST:
    return points
  kept = {0, len(points) - 1}
  for part in np.array_split(np.arange(len(points)), _MOST // 2):
    values = [points[i][1] for i in part]
    finite = [i for i, value in zip(part, values, strict=True) if math.isfinite(value)] or list(part)
    kept |= {int(min(finite, key=lambda i: points[i][1])), int(max(finite, key=lambda i: points[i][1]))}
  return [points[i] for i in sorted(kept)]


def _bound(value: float) -> float:
  """Return a value within the range of an axis, whose ends have a finite difference."""
  return min(max(value, -_LARGEST), _LARGEST)


def _finite(chart: Chart) -> list[np.ndarray]:
  every = [np.asarray([_bound(v) for _, v in curve.points if math.isfinite(v)], np.float64) for curve in chart.curves]
  return [values for values in every if len(values)] or [np.zeros(1)]


def _x_range(chart: Chart) -> tuple[float, float]:
  last = max(curve.points[-1][0] for curve in chart.curves)
  return 0, max(last, 1) * 1.01  # room for the last mark


def _y_range(chart: Chart) -> tuple[float, float]:
  """Return the range of the values; the highest 3 % may be above it, which is a loss before its first steep fall."""
  values, levels = _finite(chart), [_bound(v) for v in chart.levels.values()]
  low = min(*(float(v.min()) for v in values), *levels, math.inf)
  highest = max(*(float(v.max()) for v in values), *levels, -math.inf)
  high = max(*(float(np.quantile(v, 0.97)) for v in values), *levels, -math.inf)
  low = min(low, 0) if chart.from_zero else low
  if highest - low < 1.6 * (high - low):
    high = highest
  if not high > low and 0 <= low <= 1:
    low, high = 0.0, 1.0
  if not high > low:
    low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
  margin = 0.06 * (high - low)
  return low if chart.from_zero and low == 0 else low - margin, high + margin


def _lines(chart: Chart, x: tuple[float, float], y: tuple[float, float]) -> Iterator[Markup]:
  for value in ticks(*y, 5):
    yield tag('path', d=f'M0 {_top(value, y):.1f}H{_WIDTH}', cls='grid')
  for value in chart.levels.values():
    yield tag('path', d=f'M0 {_top(value, y):.1f}H{_WIDTH}', cls='level')
  for curve in chart.curves:
    style = f'--c:var(--c{curve.colour})'
    points = thin(curve.points)
    if chart.smoothed and not curve.marked and len(points) >= _SMOOTHED:
      yield tag('path', d=_path(points, x, y), cls='raw', style=style)
      values = loss_curve.smooth(np.asarray([v for _, v in curve.points], np.float64))
      points = thin([(step, float(v)) for (step, _), v in zip(curve.points, values, strict=True)])
    yield tag('path', d=_path(points, x, y), style=style)
    if (curve.marked and len(points) <= 60) or len(points) == 1:
      dots = ''.join(f'M{_left(s, x):.1f} {_top(v, y):.1f}h0' for s, v in points if math.isfinite(v))
      yield tag('path', d=dots, cls='dots', style=style)


def _path(points: Points, x: tuple[float, float], y: tuple[float, float]) -> str:
  """Return the line through points, with a gap where a value is not finite."""
  parts, begins = [], True
  for step, value in points:
    if not math.isfinite(value):
      begins = True
      continue
    parts.append(f'{"M" if begins else "L"}{_left(step, x):.1f} {_top(value, y):.1f}')
    begins = False
  return ''.join(parts)


def _left(step: float, x: tuple[float, float]) -> float:
  return _WIDTH * (step - x[0]) / (x[1] - x[0])


def _top(value: float, y: tuple[float, float]) -> float:
  return min(max(_HEIGHT * (y[1] - value) / (y[1] - y[0]), -10.0 * _HEIGHT), 10.0 * _HEIGHT)


def _labels(chart: Chart, x: tuple[float, float], y: tuple[float, float]) -> Iterator[Markup]:
  """Yield the numbers on the axes and the names of the levels."""
  marks = ticks(*y, 5)
  for value in marks:
    yield tag('span', tick_text(value, marks), cls='y', style=f'top:{_top(value, y) / _HEIGHT:.2%}')
  steps = [step for step in ticks(*x, 5) if step == int(step)]
  for step in steps:
    left = _left(step, x) / _WIDTH
    yield tag('span', f'{int(step):,}', cls='x end' if left > 0.97 and step >= 1000 else 'x', style=f'left:{left:.2%}')
  above = math.inf
  for name, value in sorted(chart.levels.items(), key=lambda item: -item[1]):
    top = _top(value, y) / _HEIGHT
    close = top - above < 0.08
    yield tag('span', f'{name} {value:.3f}', cls='name below' if close else 'name', style=f'top:{top:.2%}')
    above = top


def ticks(low: float, high: float, count: int) -> list[float]:
  """Return about `count` round numbers from low to high."""
  rough = (high - low) / count
  power = 10.0 ** math.floor(math.log10(rough))
  spacing = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
  first = math.ceil(low / spacing - 1e-9)
  return [float(f'{i * spacing:.10g}') for i in range(first, math.floor(high / spacing + 1e-9) + 1)]


def tick_text(value: float, marks: Sequence[float]) -> str:
  """Return the label of a mark, as short as the labels of all marks allow."""
  largest = max(map(abs, marks))
  if value == 0:
    return '0'
  if largest >= 1e6:
    return f'{value / 1e6:g}M'
  if largest >= 1e4:
    return f'{value / 1e3:g}k'
  if largest < 1e-2:
    mantissa, _, exponent = f'{value:.2e}'.partition('e')
    return f'{float(mantissa):g}e{int(exponent)}'
  decimals = max(len(f'{abs(mark):g}'.partition('.')[2]) for mark in marks)
  return f'{value:,.{decimals}f}'


def _not_finite(chart: Chart) -> str:
  """Return a note on the values that are not finite and so are not drawn."""
  steps = [step for curve in chart.curves for step, value in curve.points if not math.isfinite(value)]
  if not steps:
    return ''
  named = ', '.join(f'{step:,}' for step in steps[:5]) + (', ...' if len(steps) > 5 else '')
  return f'{len(steps):,} value{"s" * (len(steps) > 1)} not finite, at step {named}'
