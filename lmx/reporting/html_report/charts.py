"""Curves of a run by update, drawn by matplotlib as inline SVG in the colours of style.css.

The page's script shows values under the pointer; without it the curves are complete.
"""

from __future__ import annotations

import io
import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lmx.reporting import COLOURS, loss_curve, templates
from lmx.reporting.html_report import formats

_STYLE = (pathlib.Path(__file__).parent / 'style.css').read_text(encoding='utf-8')
_LIGHT = _STYLE.partition('}')[0]
THEME = dict(re.findall(r'--(c[0-9]|card|faint|line): (#[0-9a-f]{6})', _LIGHT))
_VARIABLES = {colour: f'var(--{name})' for name, colour in THEME.items()}
_MAX_POINTS = 1000  # per curve
_MIN_SMOOTHED = 40  # points; shorter training curves are not smoothed
PER_CLASS = re.compile(r'_class_[0-9]{1,9}$')
_SERIES = re.compile(r'_\d+$')
_MAX_SERIES = 10
_LOG_FIELDS = ('step', 'split', 'seconds')
_TITLES = {
  'lr': 'Learning rate',
  'tokens_per_second': 'Tokens per second',
  'pixels_per_second': 'Pixels per second',
  'wait_share': 'Share of time spent waiting for data',
  'tokens_per_second_per_chip': 'Tokens per second per chip',
  'pixels_per_second_per_chip': 'Pixels per second per chip',
  'model_flops_per_second': 'Model FLOPs per second',
  'mfu': 'Model FLOPs utilisation (MFU)',
  'step_seconds': 'Seconds per update, mean',
  'step_seconds_p99': 'Seconds per update, 99th percentile',
  'peak_memory_bytes': 'Peak memory, bytes',
}
_RATES = ('tokens_per_second', 'pixels_per_second')
_FROM_ZERO = ('lr', *_RATES, 'wait_share', 'mfu', 'step_seconds', 'step_seconds_p99', 'model_flops_per_second')
_FIRST = ('lr', *_RATES, 'mfu')  # of the training metrics, always shown
_BY_GROUP = {'lr_of_': 'Learning rate by group', 'grad_norm_of_': 'Gradient norm by group'}  # prefixes of metrics

Points = list[tuple[int, float]]


class Curve(NamedTuple):
  """A metric by step: name in the legend, (step, value) points, colour number, whether its points have markers."""

  name: str
  points: Points
  colour: int
  marked: bool


class Chart(NamedTuple):
  """Curves over one axis; `levels` are baselines, drawn as horizontal lines."""

  title: str
  unit: str
  curves: list[Curve]
  levels: dict[str, float]
  from_zero: bool = False
  smoothed: bool = False


def build(
  records: Sequence[Mapping[str, Any]], results: Mapping[str, Any], headline: str
) -> tuple[list[Chart], list[Chart]]:
  """Return the main charts of a run, and further ones.

  Args:
    records: records of metrics.jsonl.
    results: results.json, or {}.
    headline: the main metric; its chart follows the loss.
  """
  splits = list(dict.fromkeys(record['split'] for record in records))
  others = [split for split in splits if split != 'train']
  names = [name for name in _names(records, others) if name != 'loss' and not PER_CLASS.search(name)]
  names.sort(key=lambda name: name != headline)
  first = [_loss(records, splits, results, headline)] + [_chart(records, others, name) for name in names]
  first.append(_classes(records, others, results))
  training = [name for name in _names(records, ['train']) if name != 'loss' and not name.startswith(tuple(_BY_GROUP))]
  first[1:1] = [_chart(records, ['train'], name) for name in _FIRST if name in training]
  if headline in names:  # the headline comes after the loss
    first.insert(1, first.pop(1 + sum(name in training for name in _FIRST)))
  first += [_by_group(records, prefix) for prefix in _BY_GROUP]
  more = [_chart(records, ['train'], name) for name in training if name not in _FIRST]
  return [c for c in first[:12] if c.curves], [c for c in first[12:] + more if c.curves]


def _classes(records: Sequence[Mapping[str, Any]], splits: Sequence[str], results: Mapping[str, Any]) -> Chart:
  """Return the chart of the per-class validation metric, without curves if there are many classes."""
  found = dict.fromkeys(n for r in records if r['split'] in splits for n in r if PER_CLASS.search(n))
  if not 2 <= len(found) <= COLOURS:
    return Chart('', '', [], {})
  labels = dict(enumerate(results.get('labels', results.get('classes', ()))))
  curves = [
    Curve(labels.get(int(name.rpartition('_')[2]), name), points, i % COLOURS, True)
    for i, name in enumerate(found)
    if (points := [point for split in splits for point in _points(records, split, name)])
  ]
  return Chart(f'{title(PER_CLASS.sub("", next(iter(found))))} by class', '', curves, {})


def _by_group(records: Sequence[Mapping[str, Any]], prefix: str) -> Chart:
  """Return the chart of a training metric of each parameter group; of some groups if there are many."""
  names = list(dict.fromkeys(n for r in records if r['split'] == 'train' for n in r if n.startswith(prefix)))
  chosen = [names[i] for i in sorted({*np.linspace(0, len(names) - 1, min(len(names), COLOURS)).round().astype(int)})]
  unit = f'{len(chosen)} of {len(names)} groups' if len(chosen) < len(names) else ''
  curves = [
    Curve(name.removeprefix(prefix).replace('_and_', ', '), points, i, False)
    for i, name in enumerate(chosen)
    if (points := _points(records, 'train', name))
  ]
  return Chart(_BY_GROUP[prefix], unit, curves, {}, True, prefix == 'grad_norm_of_')


def overlay(runs: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> list[Chart]:
  """Return the charts of several runs, each with a curve for every run that has the metric.

  Args:
    runs: (name, records of metrics.jsonl) of each run, at most `COLOURS` of them.
  """
  charts = []
  for split, label in (('train', 'training'), ('valid', 'validation')):
    names = dict.fromkeys(name for _, records in runs for name in _names(records, [split]))
    names = dict.fromkeys(
      name for name in names if not PER_CLASS.search(name) and not name.startswith(tuple(_BY_GROUP))
    )
    for name in names:
      curves = [
        Curve(run, points, i, split != 'train')
        for i, (run, records) in enumerate(runs)
        if (points := _points(records, split, name))
      ]
      is_smoothed = split == 'train' and name in ('loss', 'grad_norm')
      charts.append(Chart(title(name), label, curves, {}, name in _FROM_ZERO, is_smoothed))
  order = {'Loss': 0}
  return sorted(charts, key=lambda chart: order.get(chart.title, 1 + (chart.unit == 'training')))


def _names(records: Sequence[Mapping[str, Any]], splits: Sequence[str]) -> list[str]:
  """Return the metrics of the splits, without repetitions of the loss and long series such as one metric per class."""
  chosen = [record for record in records if record['split'] in splits]
  found = dict.fromkeys(n for r in chosen for n in r if n not in _LOG_FIELDS)
  stems = [_SERIES.sub('', name) for name in found]
  return [
    name
    for name in found
    if stems.count(_SERIES.sub('', name)) <= _MAX_SERIES and (name == 'loss' or not _repeats_loss(chosen, name))
  ]


def _repeats_loss(records: Sequence[Mapping[str, Any]], name: str) -> bool:
  """Return whether a metric is the loss, as the only term of a loss is, up to its rounding in float32."""
  pairs = [(float(r[name]), float(r.get('loss', math.nan))) for r in records if name in r]
  return all(math.isclose(value, loss, rel_tol=1e-5) for value, loss in pairs)


def _points(records: Sequence[Mapping[str, Any]], split: str, name: str) -> Points:
  return [(r['step'], float(r[name])) for r in records if r['split'] == split and name in r]


def _loss(
  records: Sequence[Mapping[str, Any]], splits: Sequence[str], results: Mapping[str, Any], headline: str
) -> Chart:
  levels = {
    f'{formats.fill(loss_curve.BASELINES[name], baseline)} (validation)': float(baseline['loss'])
    for name in loss_curve.LINES
    if isinstance((baseline := results.get('validation_baselines', {}).get(name, {})).get('loss'), int | float)
    and math.isfinite(baseline['loss'])
  }
  unit = 'nats per token' if headline.startswith('perplexity') else 'nats'
  splits = sorted(splits, key=lambda split: split != 'train')
  return Chart('Loss', unit, _curves(records, splits, 'loss'), levels, smoothed=True)


def _chart(records: Sequence[Mapping[str, Any]], splits: Sequence[str], name: str) -> Chart:
  return Chart(title(name), '', _curves(records, splits, name), {}, name in _FROM_ZERO, name == 'grad_norm')


def _curves(records: Sequence[Mapping[str, Any]], splits: Sequence[str], name: str) -> list[Curve]:
  """Return the curve of a metric on each split that has it; colour 0 is the training's."""
  caption, colour = {'train': 'training', 'valid': 'validation'}, int('train' not in splits)
  found = [(split, _points(records, split, name), i) for i, split in enumerate(splits, colour)]
  return [
    Curve(caption.get(split, split), points, i % COLOURS, split != 'train') for split, points, i in found if points
  ]


def title(name: str) -> str:
  """Return the title of a metric."""
  words = formats.words(name)
  return _TITLES.get(name, words[:1].upper() + words[1:] if words.partition(' ')[0].islower() else words)


# Width, height, font size and left margin of a picture, in units of the SVG.
_Size = tuple[int, int, float, int]
_WIDE: _Size = (1070, 325, 11.5, 54)
_NARROW: _Size = (430, 200, 10, 48)


class Drawing(NamedTuple):
  """(SVG, CSS position of the plot in it) of each size, last values, note below, and points for the page's script."""

  pictures: list[tuple[Markup, str]]
  label: str
  note: str
  data: dict[str, Any]


def draw(chart: Chart, index: int, wide: bool = False) -> Drawing:
  """Return a chart as pictures, and its points for the page's script.

  Args:
    chart: a chart with at least one point.
    index: its position in the page.
    wide: draw it as wide as the page, and once more at the normal width for small screens.
  """
  x, y = _x_range(chart), _y_range(chart)
  last = ', '.join(f'{c.name} {formats.plain(c.points[-1][1])} at step {c.points[-1][0]:,}' for c in chart.curves)
  series = [
    {
      'name': templates.visible(curve.name),
      'colour': curve.colour,
      'points': [[s, v if math.isfinite(v) else None] for s, v in thin(curve.points)],
    }
    for curve in chart.curves
  ]
  return Drawing(
    [_picture(chart, x, y, size, f'{index} {size}') for size in ((_WIDE, _NARROW) if wide else (_NARROW,))],
    f'{chart.title}: {last}',
    _not_finite(chart),
    {'title': templates.visible(chart.title), 'x': x, 'y': y, 'series': series},
  )


def _picture(
  chart: Chart, x: tuple[float, float], y: tuple[float, float], size: _Size, salt: str
) -> tuple[Markup, str]:
  """Return a chart in one size; `salt` makes its SVG ids unique in the page."""
  width, height, font, margin = size
  left, right, bottom, top = margin / width, 1 - 6 / width, 26 / height, 1 - 6 / height
  figure = Figure(figsize=(width / 72, height / 72), dpi=72)
  figure.patch.set_visible(False)
  axes = figure.add_axes((left, bottom, right - left, top - bottom), xlim=x, ylim=y, axisbelow=True)
  axes.set_frame_on(False)
  axes.tick_params(length=0, pad=8, labelcolor=THEME['faint'], labelsize=font)
  axes.grid(axis='y', color=THEME['line'], linewidth=1)
  marks = ticks(*y)
  axes.set_yticks(marks, [tick_text(mark, marks) for mark in marks])
  steps = [step for step in ticks(*x) if step == int(step)]
  axes.set_xticks(steps, [f'{int(step):,}' for step in steps])
  if steps[-1] >= 1000 and steps[-1] > 0.97 * x[1]:
    axes.get_xticklabels()[-1].set_horizontalalignment('right')
  _draw_levels(axes, chart, y, font)
  _draw_curves(axes, chart, y)
  position = f'left:{left:.2%};right:{1 - right:.2%};top:{1 - top:.2%};bottom:{bottom:.2%}'
  return to_svg(figure, salt), position


def _draw_levels(axes: Any, chart: Chart, y: tuple[float, float], font: float) -> None:
  """Draw the baselines as dashed lines, each labelled above, or below if another one is close above."""
  above = math.inf
  for name, value in sorted(chart.levels.items(), key=lambda item: -item[1]):
    axes.axhline(value, color=THEME['faint'], linewidth=1.2, linestyle=(0, (4, 3.3)))
    close = (above - value) / (y[1] - y[0]) < 0.08
    axes.annotate(
      templates.visible(f'{name} {value:.3f}'),
      (1, value),
      (-5, -5 if close else 5),
      xycoords=('axes fraction', 'data'),
      textcoords='offset points',
      bbox={'facecolor': THEME['card'], 'alpha': 0.75, 'linewidth': 0, 'pad': 1},
      color=THEME['faint'],
      fontsize=font,
      ha='right',
      va='top' if close else 'bottom',
      parse_math=False,
    )
    above = value


def _draw_curves(axes: Any, chart: Chart, y: tuple[float, float]) -> None:
  """Draw the curves, with gaps at values that are not finite; values far outside the plot are clipped."""
  low, high = 2 * y[0] - y[1], 2 * y[1] - y[0]
  clip = lambda points: zip(
    *((s, min(max(v, low), high) if math.isfinite(v) else math.nan) for s, v in points), strict=True
  )
  for curve in chart.curves:
    style: dict[str, Any] = {'color': THEME[f'c{curve.colour}'], 'solid_capstyle': 'round'}
    points = thin(curve.points)
    if chart.smoothed and not curve.marked and len(points) >= _MIN_SMOOTHED:
      axes.plot(*clip(points), **style, linewidth=1, alpha=0.28)
      values = loss_curve.smooth(np.asarray([v for _, v in curve.points], np.float64))
      points = thin([(step, float(v)) for (step, _), v in zip(curve.points, values, strict=True)])
    dotted = (curve.marked and len(points) <= 60) or len(points) == 1
    style |= {'marker': 'o', 'markersize': 6.5, 'markeredgewidth': 0} if dotted else {}
    axes.plot(*clip(points), **style, linewidth=2)


def to_svg(figure: Figure, salt: str) -> Markup:
  """Return a figure as an SVG element in the page's colours, with ids that depend on `salt`."""
  file = io.StringIO()
  with matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': salt}):
    figure.savefig(file, format='svg', metadata=dict.fromkeys(('Creator', 'Date', 'Format', 'Type')))
  text = file.getvalue()
  text = re.sub(r'<g id="[^"]+"', '<g', text[text.index('<svg') :])
  text = re.sub(r' <defs>\s*<style.*?</style>\s*</defs>\n', '', text, count=1, flags=re.DOTALL)
  return Markup(re.sub(r'(?<=(?:fill|roke): )#[0-9a-f]{6}', lambda match: _VARIABLES.get(match[0], match[0]), text))


def thin(points: Points) -> Points:
  """Return at most about `_MAX_POINTS` points of a curve: the minimum and maximum of each segment, and both ends."""
  if len(points) <= _MAX_POINTS:
    return points
  kept = {0, len(points) - 1}
  for part in np.array_split(np.arange(len(points)), _MAX_POINTS // 2):
    values = [points[i][1] for i in part]
    finite = [i for i, value in zip(part, values, strict=True) if math.isfinite(value)] or list(part)
    kept |= {int(min(finite, key=lambda i: points[i][1])), int(max(finite, key=lambda i: points[i][1]))}
  return [points[i] for i in sorted(kept)]


def _x_range(chart: Chart) -> tuple[float, float]:
  last = max(curve.points[-1][0] for curve in chart.curves)
  return 0, max(last, 1) * 1.01  # room for the last marker


def _y_range(chart: Chart) -> tuple[float, float]:
  curves = [[v for _, v in curve.points if math.isfinite(v)] for curve in chart.curves]
  low, high = loss_curve.limits(curves, [*chart.levels.values(), *[0.0] * chart.from_zero], 0.06)
  return (0.0 if chart.from_zero and min(map(min, filter(None, curves)), default=0) >= 0 else low), high


def ticks(low: float, high: float) -> list[float]:
  """Return about five round numbers from low to high."""
  marks = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
  margin = 1e-9 * (high - low)
  return [float(f'{mark:.10g}') for mark in marks if low - margin <= mark <= high + margin]


def tick_text(value: float, marks: Sequence[float]) -> str:
  """Return a tick label, as short as the labels of all ticks allow."""
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
  """Return a note about values that are not finite, which are not drawn."""
  steps = [step for curve in chart.curves for step, value in curve.points if not math.isfinite(value)]
  if not steps:
    return ''
  named = ', '.join(f'{step:,}' for step in steps[:5]) + (', ...' if len(steps) > 5 else '')
  return f'{len(steps):,} value{"s" * (len(steps) > 1)} not finite, at step {named}'
