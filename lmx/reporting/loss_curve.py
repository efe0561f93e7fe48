"""Loss curve of a run (loss.png), with the baselines' validation losses as horizontal lines."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

BASELINES = {
  'kneser_ney': 'Kneser-Ney {order}-gram',
  'mixture': 'mixed with Kneser-Ney',
  'unigram': 'unigram',
  'majority': 'majority class, "{label}"',
  'mean': 'mean of the training scores',
  'tfidf': 'TF-IDF, {regression}',
}
LINES = ('kneser_ney', 'unigram')  # baselines that are drawn
_LARGEST = 1e300  # value on an axis
_LEVEL = 'level'  # gid of the labels of horizontal lines


def smooth(values: np.ndarray) -> np.ndarray:
  """Return the mean over a centred window, which grows from 1 to n / 20 values after the start.

  Unlike a trailing moving average, it does not lag behind a steep curve. Values that are not finite are skipped.
  """
  n = len(values)
  finite = np.isfinite(values)
  index = np.arange(n)
  half = np.minimum(index // 4, n // 40)
  ends = np.stack([index - half, np.minimum(index + half + 1, n)], axis=1).ravel()
  # Each window has its own sum: differences of cumulative sums would lose precision after a large loss.
  total = lambda x: np.add.reduceat(np.append(x, 0.0), ends)[::2]
  with np.errstate(invalid='ignore'):
    return total(np.where(finite, values, 0.0)) / total(finite)


def draw(
  records: Sequence[Mapping[str, Any]], path: pathlib.Path, results: Mapping[str, Any], step_size: str = ''
) -> None:
  """Draw the losses of a run by step, with the baselines' validation losses as horizontal lines.

  Args:
    records: records of metrics.jsonl: `step`, `split` and `loss` in nats.
    path: PNG file to write.
    results: values of `results.json`, or {}: `name`, `model`, `dataset`, `split`, `metric` and the metric's value.
      Optional: `validation_baselines` and `baselines` (on `split`), each with a `loss` in nats per token, and
      `trigger_step`, the step at which averaging began.
    step_size: tokens per global batch as text, such as '2,560 tokens', for the x-axis label.
  """
  from matplotlib.figure import Figure  # imported here, because it takes half a second

  curves = {
    split: np.asarray([(r['step'], r['loss']) for r in records if r['split'] == split and 'loss' in r], np.float64)
    for split in ('train', 'valid')
  }
  figure = Figure(figsize=(9, 5.2), dpi=140, layout='constrained')
  axes = figure.add_subplot()
  axes.grid(True, color='0.92', linewidth=0.8)
  axes.spines[['top', 'right', 'left', 'bottom']].set_visible(False)
  axes.tick_params(length=0, colors='0.3')
  _draw_curves(axes, curves, sampled=any(key.startswith('sampled_') for r in records[:1] for key in r))
  lines = {
    name: baseline
    for name, baseline in results.get('validation_baselines', {}).items()
    if name in LINES and np.isfinite(baseline.get('loss', np.nan))
  }
  last = max((c[-1, 0] for c in curves.values() if len(c)), default=1.0)
  _draw_results(axes, lines, results, last)
  axes.set_ylim(*limits([c[:, 1] for c in curves.values() if len(c)], [b['loss'] for b in lines.values()], 0.07))
  axes.set_xlim(0, last * 1.02)
  axes.xaxis.set_major_formatter(lambda x, _: f'{x:,.0f}')
  axes.set_xlabel('training step' + (f' ({step_size} each)' if step_size else ''), color='0.3')
  if not results.get('metric', 'perplexity_per_token').startswith('perplexity_per_'):
    axes.set_ylabel('loss (nats)', color='0.3')
  else:
    axes.set_ylabel('loss (nats per token)', color='0.3')
    _draw_perplexity(axes)
  title = results.get('name') or path.parent.name
  axes.set_title(title, loc='left', fontsize=13, fontweight='bold', color='0.2', pad=24)
  axes.text(0, 1.025, _subtitle(results), transform=axes.transAxes, fontsize=10, color='0.4')
  _arrange(axes)
  figure.savefig(path)


def _subtitle(results: Mapping[str, Any]) -> str:
  """Return the model, data set and metric of the run; '' without results."""
  if not results:
    return ''
  metric = results['metric']
  figure = f'{results["split"]} {metric.replace("_", " ")} {results[metric]:,.2f}'
  return f'{results["model"]} on {results["dataset"]}, {figure}'


def limits(curves: Sequence[Any], levels: Sequence[float], margin: float) -> tuple[float, float]:
  """Return the range of the finite values of curves and levels, extended by a fraction `margin` at both ends.

  The highest 3% of a curve, such as a loss before its first steep drop, may be above it.
  """
  arrays = [np.asarray(values, np.float64) for values in (*curves, *([level] for level in levels))]
  finite = [values[np.isfinite(values)] for values in arrays]
  values = [np.clip(one, -_LARGEST, _LARGEST) for one in finite if len(one)] or [np.zeros(1)]
  low, highest = float(min(one.min() for one in values)), float(max(one.max() for one in values))
  high = float(max(np.quantile(one, 0.97) for one in values))
  high = highest if highest - low < 1.6 * (high - low) else high
  if not high > low:
    around = 0.5 * (abs(low) or 1)
    low, high = (0.0, 1.0) if 0 <= low <= 1 else (low - around, high + around)
  return low - margin * (high - low), high + margin * (high - low)


def _draw_curves(axes: Any, curves: Mapping[str, np.ndarray], sampled: bool) -> None:
  train, valid = curves['train'], curves['valid']
  if len(train):
    axes.plot(*train.T, color='#1f5fa8', alpha=0.22, linewidth=0.9)
    label = 'training, over sampled words (smoothed)' if sampled else 'training (smoothed)'
    axes.plot(train[:, 0], smooth(train[:, 1]), color='#1f5fa8', linewidth=2, label=label)
  if len(valid):
    axes.plot(
      *valid.T, color='#d9541e', linewidth=1.4, marker='o', markersize=5, markeredgecolor='white', label='validation'
    )
    if np.isfinite(valid[:, 1]).any():
      step, best = valid[np.nanargmin(valid[:, 1])]
      axes.annotate(
        f'{best:.3f}',
        (step, best),
        (0, 7),
        textcoords='offset points',
        ha='center',
        va='bottom',
        color='#d9541e',
        fontsize=9,
      )
  if len(train) or len(valid):
    axes.legend(loc='lower right', bbox_to_anchor=(1, 1.05), ncols=2, frameon=False, labelcolor='0.2')


def _draw_results(axes: Any, lines: Mapping[str, Any], results: Mapping[str, Any], last: float) -> None:
  for name, baseline in lines.items():
    label = BASELINES[name].format(**baseline)
    label += f': validation {baseline["loss"]:.3f}'
    if results['split'] != 'valid':
      label += f', {results["split"]} {results["baselines"][name]["loss"]:.3f}'
    axes.axhline(baseline['loss'], color='0.45', linewidth=1.1, linestyle=(0, (5, 3)))
    axes.annotate(
      label,
      (last, baseline['loss']),
      (0, 3),
      textcoords='offset points',
      color='0.35',
      fontsize=9,
      ha='right',
      va='bottom',
      gid=_LEVEL,
    )
  trigger = results.get('trigger_step')
  if trigger is not None and trigger < last:  # otherwise it ended the run
    axes.axvline(trigger, color='0.45', linewidth=1.1, linestyle=(0, (1, 2)))
    axes.annotate(
      f'averaging begins ({trigger:,})',
      (trigger, 0.02),
      (4, 0),
      xycoords=('data', 'axes fraction'),
      textcoords='offset points',
      color='0.35',
      fontsize=9,
    )


def _arrange(axes: Any) -> None:
  """Move each label to the first position that crosses no curve, line or other label, or the fewest of them.

  A label is above or below its point. On a horizontal line, the point is at either end or between them.
  """
  from matplotlib.text import Annotation

  axes.figure.draw_without_rendering()  # sets the layout, which positions in pixels depend on
  paths = [line.get_transform().transform(_dense(line, axes)) for line in axes.get_lines()]
  weights = [1 if line.get_alpha() else 10 for line in axes.get_lines()]  # a raw curve may be crossed sooner
  placed: list[Any] = []
  for label in (text for text in axes.texts if isinstance(text, Annotation)):
    x, y = label.xy
    ends: list[tuple[float, Any]] = [(x, label.get_horizontalalignment())]
    if label.get_gid() == _LEVEL:
      left, right = axes.get_xlim()
      middles = [(left + share * (right - left), 'center') for share in (0.5, 0.4, 0.6, 0.3, 0.7)]
      ends += [(left + 0.01 * (right - left), 'left'), *middles]
    options = [(end, side) for end in ends for side in (1, -1)]

    def cost(option: Any, label: Any = label, y: float = y) -> float:
      _move(label, y, *option)
      box = label.get_window_extent().padded(1)
      crossed = sum(w * box.count_contains(path) for path, w in zip(paths, weights, strict=True))
      outside = not (axes.bbox.y0 <= box.y0 and box.y1 <= axes.bbox.y1)
      return float(crossed + 1000 * sum(map(box.overlaps, placed)) + 1000 * outside)

    _move(label, y, *min(options, key=cost))
    placed.append(label.get_window_extent().padded(1))


def _move(label: Any, y: float, end: tuple[float, str], side: int) -> None:
  """Put a label above (side 1) or below (-1) the point at `end`: (x, alignment there)."""
  label.xy = end[0], y
  label.xyann = label.xyann[0], side * abs(label.xyann[1])
  label.set(ha=end[1], va='bottom' if side > 0 else 'top')


def _dense(line: Any, axes: Any) -> np.ndarray:
  """Return the points of a line with others between them, so that a label that covers none does not cross it."""
  x, y = np.asarray(line.get_xydata(), np.float64).T
  if len(x) < 2:
    return np.stack([x, y], axis=1)
  at = np.linspace(0, len(x) - 1, max(2000, len(x)))
  return np.stack([np.interp(at, np.arange(len(x)), values) for values in (x, y)], axis=1)


def _draw_perplexity(axes: Any) -> None:
  """Add a right axis of perplexities, the exp of the left axis."""
  from matplotlib.ticker import MaxNLocator

  right = axes.secondary_yaxis('right', functions=(np.asarray, np.asarray))
  low, high = axes.get_ylim()
  ticks = [m * 10**e for e in range(7) for m in (1, 1.5, 2, 3, 5, 7) if low <= math.log(m * 10**e) <= high]
  if len(ticks) < 4:
    even = MaxNLocator(6).tick_values(*np.exp(np.minimum([low, high], 50)))
    ticks = [p for p in even if p > 0 and low <= math.log(p) <= high]
  ticks = ticks[:: 1 + len(ticks) // 11]
  right.set_yticks([math.log(p) for p in ticks], [f'{p:,.4g}' for p in ticks])
  right.tick_params(length=0, colors='0.3')
  right.spines['right'].set_visible(False)
  right.set_ylabel('perplexity per token', color='0.3')
