"""Pictures of a memory at work, as figures 4 to 6 of Graves et al. 2014 (arXiv 1410.5401) and those of the other tasks.

One file an episode: inputs, targets and answers on top, then what the write and the read heads attend to, and the
memory at the end. Time runs from left to right.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def episodes(batches: Any, count: int) -> list[dict[str, np.ndarray]]:
  """The first episode of each length there is in the first batch, shortest first, at most `count`; a row each."""
  batch = batches(0)
  rows: dict[int, int] = {}
  for b in np.flatnonzero(batch['row_weights_B']):
    rows.setdefault(int(batch['size_B'][b]), int(b))
  return [{k: v[b : b + 1] for k, v in batch.items()} for _, b in sorted(rows.items())][:count]


def draw(path: Any, episode: dict[str, np.ndarray], seen: dict[str, np.ndarray]) -> None:
  """Writes one picture.

  Args:
    path: of the PNG file, a pathlib.Path or one of a bucket.
    episode: one row of a batch.
    seen: of the model's `trace` of it, B = 1; without a memory 'logits_BTO' alone.
  """
  from matplotlib.figure import Figure  # half a second that nothing else need pay

  T = int(episode['valid_BT'].sum())
  answered_T = episode['weights_BT'][0, :T, None]
  chance_TO = 1 / (1 + np.exp(-np.asarray(seen['logits_BTO'][0, :T], np.float64)))
  panels = [
    ('inputs', episode['inputs_BTI'][0, :T], 'gray_r'),
    ('targets', episode['target_bits_BTO'][0, :T] * answered_T, 'gray_r'),
    ('answers', chance_TO * answered_T, 'gray_r'),
  ]
  for name, title in (('write_BTHS', 'write weightings'), ('read_BTHS', 'read weightings')):
    if name in seen:
      heads_HTS = np.asarray(seen[name][0, :T]).swapaxes(0, 1)
      titles = [title] if len(heads_HTS) == 1 else [f'{title}, head {h + 1}' for h in range(len(heads_HTS))]
      panels += [(title, weights_TS, 'gray') for title, weights_TS in zip(titles, heads_HTS, strict=True)]
  heights = [1.0, 1.0, 1.0] + [2.2] * (len(panels) - 3) + [2.2] * ('memory_BTSW' in seen)
  figure = Figure(figsize=(6 + T / 12, 1.3 * sum(heights)), dpi=100, layout='constrained')
  all_axes = np.atleast_1d(figure.subplots(len(heights), 1, height_ratios=heights))
  for axes, (title, values_TX, colours) in zip(all_axes, panels, strict=False):
    low, high = min(0.0, float(values_TX.min())), max(1.0, float(values_TX.max()))
    axes.imshow(values_TX.T, aspect='auto', cmap=colours, vmin=low, vmax=high, interpolation='nearest')
    axes.set_title(title, loc='left', fontsize=9)
  all_axes[len(panels) - 1].set_xlabel('step')
  if 'memory_BTSW' in seen:
    axes = all_axes[-1]
    memory_WS = np.asarray(seen['memory_BTSW'][0, T - 1]).T
    bound = float(np.quantile(np.abs(memory_WS), 0.98)) or 1.0  # one row that is written again and again hides no other
    shown = axes.imshow(
      memory_WS, aspect='auto', cmap='coolwarm', vmin=-bound, vmax=bound, interpolation='nearest'
    )  # fmt: skip
    axes.set_title('memory after the last step', loc='left', fontsize=9)
    axes.set_xlabel('row')
    figure.colorbar(shown, ax=axes, pad=0.01, extend='both')
  with path.open('wb') as file:
    figure.savefig(file)
