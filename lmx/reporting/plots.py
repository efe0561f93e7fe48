"""Figures: NTM memory, attention weights, segmented images, BLEU by length, confusion matrices, metric curves."""

from __future__ import annotations

import io
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx.errors import InputError, explain

_MAX_PIXELS = 8000  # per side: matplotlib rejects 65,536, and all pixels are in memory


def episodes(batches: Any, count: int) -> list[dict[str, np.ndarray]]:
  """Return the first episode of each length in the first batch, shortest first, at most `count`, each with B = 1."""
  batch = batches(0)
  rows: dict[int, int] = {}
  for b in np.flatnonzero(batch['row_weights_B']):
    rows.setdefault(int(batch['size_B'][b]), int(b))
  return [{k: v[b : b + 1] for k, v in batch.items()} for _, b in sorted(rows.items())][:count]


def memory(path: Any, episode: dict[str, np.ndarray], trace: dict[str, np.ndarray]) -> None:
  """Draw one episode as in figures 4 to 6 of Graves et al. 2014 (arXiv 1410.5401).

  From top to bottom: inputs, targets, outputs, write weightings, read weightings, final memory. Time runs from left to
  right.

  Args:
    path: image file to write, local or on a bucket.
    episode: one row of a batch.
    trace: the model's `trace` of this row, B = 1; only 'logits_BTO' for a model without memory.
  """
  from matplotlib.figure import Figure  # imported here, because it takes half a second

  T = int(episode['valid_BT'].sum())
  answered_T = episode['weights_BT'][0, :T, None]
  chance_TO = 1 / (1 + np.exp(-np.asarray(trace['logits_BTO'][0, :T], np.float64)))
  panels = [
    ('inputs', episode['inputs_BTI'][0, :T], 'gray_r'),
    ('targets', episode['target_bits_BTO'][0, :T] * answered_T, 'gray_r'),
    ('answers', chance_TO * answered_T, 'gray_r'),
  ]
  for name, title in (('write_BTHS', 'write weightings'), ('read_BTHS', 'read weightings')):
    if name in trace:
      heads_HTS = np.asarray(trace[name][0, :T]).swapaxes(0, 1)
      titles = [title] if len(heads_HTS) == 1 else [f'{title}, head {h + 1}' for h in range(len(heads_HTS))]
      panels += [(title, weights_TS, 'gray') for title, weights_TS in zip(titles, heads_HTS, strict=True)]
  heights = [1.0, 1.0, 1.0] + [2.2] * (len(panels) - 3) + [2.2] * ('memory_BTSW' in trace)
  figure = Figure(figsize=(6 + T / 12, 1.3 * sum(heights)), layout='constrained')
  all_axes = np.atleast_1d(figure.subplots(len(heights), 1, height_ratios=heights))
  for axes, (title, values_TX, colours) in zip(all_axes, panels, strict=False):
    low, high = min(0.0, float(values_TX.min())), max(1.0, float(values_TX.max()))
    axes.imshow(values_TX.T, aspect='auto', cmap=colours, vmin=low, vmax=high, interpolation='nearest')
    axes.set_title(title, loc='left', fontsize=9)
  all_axes[len(panels) - 1].set_xlabel('step')
  if 'memory_BTSW' in trace:
    axes = all_axes[-1]
    memory_WS = np.asarray(trace['memory_BTSW'][0, T - 1]).T
    bound = float(np.quantile(np.abs(memory_WS), 0.98)) or 1.0  # a row written many times does not hide the others
    shown = axes.imshow(memory_WS, aspect='auto', cmap='coolwarm', vmin=-bound, vmax=bound, interpolation='nearest')
    axes.set_title('memory after the last step', loc='left', fontsize=9)
    axes.set_xlabel('row')
    figure.colorbar(shown, ax=axes, pad=0.01, extend='both')
  _save(figure, path)


def confusion(path: Any, counts: Sequence[Sequence[int]], names: Sequence[str]) -> None:
  """Draw a confusion matrix with true classes as rows and predicted classes as columns.

  Args:
    path: image file to write.
    counts: (true class, predicted class).
    names: class names.
  """
  from matplotlib.figure import Figure

  counts_CC = np.asarray(counts)
  share_CC = counts_CC / np.maximum(counts_CC.sum(axis=1, keepdims=True), 1)
  size = len(names)
  figure = Figure(figsize=(2.5 + 0.45 * size, 2 + 0.45 * size), layout='constrained')
  axes = figure.subplots()
  axes.imshow(share_CC, cmap='Blues', vmin=0, vmax=1)
  for row, column in np.ndindex(size, size):
    colour = 'white' if share_CC[row, column] > 0.5 else 'black'
    axes.text(column, row, f'{counts_CC[row, column]:,}', ha='center', va='center', fontsize=7, color=colour)
  axes.set_xticks(range(size), names, rotation=90, fontsize=8)
  axes.set_yticks(range(size), names, fontsize=8)
  axes.set_xlabel('predicted')
  axes.set_ylabel('true')
  _save(figure, path)


def alignment(path: Any, a_TS: np.ndarray, source: Sequence[str], target: Sequence[str]) -> None:
  """Draw the attention weights of a sentence pair as in figure 3 of Bahdanau et al. 2015: black 0, white 1.

  Args:
    path: image file to write.
    a_TS: attention weights, one row per target token.
    source: source tokens, the columns.
    target: target tokens, the rows.
  """
  from matplotlib.figure import Figure

  T, S = a_TS.shape
  figure = Figure(figsize=(2 + 0.28 * S, 1.6 + 0.28 * T), layout='constrained')
  axes = figure.add_subplot()
  axes.imshow(a_TS, cmap='gray', vmin=0, vmax=1, aspect='equal', interpolation='nearest')
  axes.set_xticks(np.arange(S), [_escape(word) for word in source], rotation=90)
  axes.set_yticks(np.arange(T), [_escape(word) for word in target])
  axes.xaxis.tick_top()
  axes.tick_params(length=0)
  _save(figure, path)


class Picture(NamedTuple):
  """Image with segmentation masks, for `segmentations`.

  Attributes:
    image: (Y, X, 3) uint8.
    masks: title -> class per pixel, (Y, X), -1 for none.
    attention: attention weights of `pixel` over the image, at any resolution, or None.
    pixel: row and column of the pixel with this attention.
  """

  image: np.ndarray
  masks: Mapping[str, np.ndarray]
  attention: np.ndarray | None = None
  pixel: tuple[int, int] = (0, 0)


def segmentations(path: Any, pictures: Sequence[Picture], names: Sequence[str], shades: Sequence[str]) -> None:
  """Draw one row per image: the image, its masks, and attention weights if given (brighter is larger).

  A cross marks the attending pixel. Pixels without a class are white.

  Args:
    path: image file to write.
    pictures: the images.
    names: class names; the legend lists classes that the masks contain.
    shades: class colours as '#rrggbb'.
  """
  from matplotlib import colors, patches
  from matplotlib.figure import Figure

  columns = max(1 + len(picture.masks) + (picture.attention is not None) for picture in pictures)
  figure = Figure(figsize=(2.2 * columns, 2.2 * len(pictures) + 0.6), layout='constrained')
  grid = figure.subplots(len(pictures), columns, squeeze=False)
  colours_C4 = np.array([*(colors.to_rgba(shade) for shade in shades), (1, 1, 1, 1)])  # -1, no class, is the last
  for axes in grid.ravel():
    axes.set_axis_off()
  for row, picture in zip(grid, pictures, strict=True):
    panels = [('image', picture.image), *((title, colours_C4[mask]) for title, mask in picture.masks.items())]
    for axes, (title, pixels) in zip(row, panels, strict=False):
      axes.imshow(pixels, interpolation='nearest')
      axes.set_title(title, fontsize=9)
    if picture.attention is not None:
      axes, (Y, X, _) = row[len(panels)], picture.image.shape
      axes.imshow(np.asarray(picture.image).mean(axis=2), cmap='gray', vmin=0, vmax=400)
      axes.imshow(picture.attention, cmap='inferno', alpha=0.75, extent=(-0.5, X - 0.5, Y - 0.5, -0.5))
      axes.set_title('attention of the cross', fontsize=9)
      for marked in (row[0], axes):
        marked.plot(picture.pixel[1], picture.pixel[0], marker='x', color='white', markeredgewidth=3, markersize=8)
        marked.plot(picture.pixel[1], picture.pixel[0], marker='x', color='black', markeredgewidth=1, markersize=7)
  shown = sorted({int(c) for picture in pictures for mask in picture.masks.values() for c in np.unique(mask) if c >= 0})
  handles = [patches.Patch(color=shades[c], label=_escape(names[c])) for c in shown]
  figure.legend(handles=handles, loc='outside lower center', ncols=min(len(handles), 8) or 1, frameon=False, fontsize=9)
  _save(figure, path)


def bleu_by_length(path: Any, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
  """Draw BLEU by source length, one line per model, as in figure 2 of Bahdanau et al. 2015.

  Args:
    path: image file to write.
    rows: model name -> result of `lmx.metrics.translation.bleu_by_length`.
  """
  from matplotlib.figure import Figure

  figure = Figure(figsize=(6, 4), layout='constrained')
  axes = figure.add_subplot()
  labels = {(row['above'], row['up_to'] or np.inf): row['words'] for bins in rows.values() for row in bins}
  positions = {key: x for x, key in enumerate(sorted(labels))}
  for name, bins in rows.items():
    x = [positions[row['above'], row['up_to'] or np.inf] for row in bins]
    axes.plot(x, [row['bleu'] for row in bins], marker='o', label=_escape(name), clip_on=False)
  axes.set_xticks(list(positions.values()), [labels[key] for key in positions])
  units = sorted({row.get('unit', 'words') for bins in rows.values() for row in bins})
  axes.set(xlabel=f'{" or ".join(units)} of the source', ylabel='BLEU', ylim=(0, None))
  axes.legend(frameon=False)
  _save(figure, path)


def metric_curves(path: Any, runs: Mapping[str, Sequence[Sequence[tuple[int, float]]]], title: str) -> None:
  """Draw a metric by step, one line per name.

  Several runs of a name are drawn as their mean with a band from minimum to maximum, at the steps that all measured.

  Args:
    path: image file to write.
    runs: name -> (step, metric) pairs of each run.
    title: y-axis label.

  Raises:
    InputError: the runs of a name share no measured step, or the file cannot be written.
  """
  from matplotlib.figure import Figure

  figure = Figure(figsize=(7, 4.2), layout='constrained')
  axes = figure.add_subplot()
  axes.grid(True, color='0.92', linewidth=0.8)
  for name, series in runs.items():
    steps = sorted(set.intersection(*({step for step, _ in one} for one in series)))
    if not steps:
      raise InputError(
        f'{name}: got runs that were measured at different steps; expected at least one step that all measured'
      )
    values_RI = np.asarray([[dict(one)[step] for step in steps] for one in series], np.float64)
    label = _escape(name) + (f' ({len(series)} runs)' if len(series) > 1 else '')
    (line,) = axes.plot(steps, values_RI.mean(axis=0), marker='o', markersize=4, label=label)
    if len(series) > 1:
      axes.fill_between(steps, values_RI.min(axis=0), values_RI.max(axis=0), color=line.get_color(), alpha=0.2, lw=0)
  axes.set(xlabel='updates', ylabel=_escape(title))
  axes.xaxis.set_major_formatter(lambda x, _: f'{x:,.0f}')
  axes.legend(frameon=False)
  _save(figure, path)


def pairs_curve(path: Any, points: Sequence[Mapping[str, Any]]) -> None:
  """Draw the accuracy on minimal pairs of a run's checkpoints: overall, with its 95% interval, and of each field.

  The x-axis is the number of training words on a logarithmic scale if all points have it, else updates.

  Args:
    path: image file to write.
    points: metrics of the checkpoints as in pairs_curve.json, in the order of their steps.
  """
  from matplotlib.figure import Figure

  has_words = all(point.get('words') for point in points)
  x = [point['words' if has_words else 'step'] for point in points]
  figure = Figure(figsize=(7, 4.2), layout='constrained')
  axes = figure.add_subplot()
  axes.grid(True, color='0.92', linewidth=0.8)
  percent = lambda values: 100 * np.asarray(values, np.float64)
  (line,) = axes.plot(x, percent([point['accuracy'] for point in points]), marker='o', lw=2.2, label='all paradigms')
  low, high = percent([point['interval'] for point in points]).T
  axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, lw=0)
  fields = [one['name'] for one in points[0]['fields']]
  for name in fields if len(fields) > 1 else ():
    each = [one['accuracy'] for point in points for one in point['fields'] if one['name'] == name]
    if len(each) == len(points):
      axes.plot(x, percent(each), marker='.', lw=1, label=_escape(name.replace('_', '-')))
  axes.axhline(50, color='0.5', lw=1, ls=':')
  about = f'{points[0]["dataset"]}, {points[0]["pipeline"]}'
  axes.set(xlabel='training words' if has_words else 'updates', ylabel=_escape(f'accuracy in percent ({about})'))
  if has_words:
    axes.set_xscale('log')
  axes.xaxis.set_major_formatter(lambda x, _: f'{x:,.0f}')
  axes.legend(frameon=False)
  _save(figure, path)


def context_gains(path: Any, results: Mapping[str, Any]) -> None:
  """Draw the gain from longer contexts for a group of models, as in figures 3 and 4 of Dai et al. 2019.

  arXiv 1901.02860. Each panel has a fraction of the hardest tokens and shows the perplexity decrease from each context
  to the next, relative to the best model. The last panel shows the perplexity itself.

  Args:
    path: image file to write.
    results: result of `lmx.evaluation.context_length.measure`.
  """
  from matplotlib.figure import Figure

  lengths, models = results['lengths'], results['models']
  shares = list(models[0]['shares'])
  figure = Figure(figsize=(3.6 * (len(shares) + 1), 3.4), layout='constrained')
  *gains, last = figure.subplots(1, len(shares) + 1)
  for one in models:
    for axes, share in zip(gains, shares, strict=True):
      axes.plot(lengths[1:], one['shares'][share]['perplexity_gain'], marker='o', markersize=3)
    last.plot(lengths, one['perplexity_per_token'], marker='o', markersize=3, label=_escape(one['name']))
  for axes, share in zip(gains, shares, strict=True):
    axes.set_title(f'hardest {float(share):.0%} of the tokens' if float(share) < 1 else 'all tokens', fontsize=9)
    axes.set_ylabel('fall of perplexity below the best model')
  last.set_title('perplexity', fontsize=9)
  last.legend(frameon=False)
  for axes in (*gains, last):
    axes.grid(True, color='0.92', linewidth=0.8)
    axes.set_xlabel('context in tokens')
  _save(figure, path)


def _escape(text: str) -> str:
  return text.replace('$', r'\$')  # otherwise it begins a formula


def _save(figure: Any, path: Any) -> None:
  dots = min(120, _MAX_PIXELS / max(figure.get_size_inches()))
  path = path if hasattr(path, 'write_bytes') else pathlib.Path(path)
  try:
    image = io.BytesIO()  # complete before the file is opened
    figure.savefig(image, format=path.suffix[1:] or 'png', dpi=dots)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(image.getvalue())
  except (OSError, ValueError) as error:
    raise InputError(f'cannot write {path}: {explain(error)}') from None
