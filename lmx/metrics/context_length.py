"""Relative effective context length: Dai et al. 2019 (arXiv 1901.02860), section 4.3 and appendix C.

Measures how far back the models of a group use their context. l_i(c, t) is the loss of model i at token t given c
previous tokens, b(c, t) = min_i l_i(c, t) the best of the group, and T the share r of all tokens where b(c, t) is
largest,

  f_i(c, c') = mean over T of min(b(c, t), l_i(c', t))
  g_i(c, c') = (exp f_i(c, c) - exp f_i(c, c')) / exp f_i(c, c)

RECL is the first c of c, c + step, ... at which g_i(c, c + step) is below a threshold of 0.01. The paper prints neither
the first c nor the step: its table has whole hundreds (and 128 for a model of windows of 128).

If every gain up to the longest measured length reaches the threshold, the result is that length and a lower
bound. Of equal losses the earlier token counts as harder.

Axes: G models of a group, L context lengths, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lmx.errors import InputError

THRESHOLD = 0.01  # appendix C
SHARES = (0.1, 0.5, 1.0)  # r of table 8


class Gains(NamedTuple):
  """Gains for each pair of neighbouring lengths (c, c').

  Attributes:
    relative_GL: g_i(c, c'), one less than the lengths.
    perplexity_GL: exp f_i(c, c) - exp f_i(c, c'), plotted in figure 3.
  """

  relative_GL: np.ndarray
  perplexity_GL: np.ndarray


class EffectiveLength(NamedTuple):
  """RECL of a model in tokens; `at_least` if contexts longer than the measured ones might gain too."""

  length: int
  at_least: bool


def hardest_tokens(baseline_T: np.ndarray, share: float) -> np.ndarray:
  """Return the indices of the tokens with the largest baseline loss, a given share but at least one."""
  if not 0 < share <= 1:
    raise InputError(f'share of the hardest tokens: got {share}; expected more than 0 and at most 1')
  return np.argsort(-baseline_T, kind='stable')[: max(1, round(share * len(baseline_T)))]


def gains(nll_GLT: np.ndarray, share: float) -> Gains:
  """Return the gain of each model from each longer context over the best of the group at the previous one.

  Args:
    nll_GLT: losses in nats of every model at every context length, in increasing order.
    share: r.

  Raises:
    InputError: other axes, fewer than two lengths, no token, or a loss that is NaN or infinite.
  """
  nll_GLT = np.asarray(nll_GLT, np.float64)
  if nll_GLT.ndim != 3 or nll_GLT.shape[1] < 2 or not nll_GLT.size:
    raise InputError(f'losses: got shape {nll_GLT.shape}; expected (models, at least 2 lengths, tokens)')
  if np.isnan(nll_GLT).any():
    raise InputError('losses: got NaN; expected numbers')
  short, long = [], []
  for shorter_GT, longer_GT in zip(nll_GLT[:, :-1].swapaxes(0, 1), nll_GLT[:, 1:].swapaxes(0, 1), strict=True):
    baseline_T = shorter_GT.min(axis=0)
    indices = hardest_tokens(baseline_T, share)
    # f_i(c, c) is the mean baseline for every model, because no loss at c is lower.
    rows = np.concatenate([baseline_T[None], np.minimum(baseline_T, longer_GT)])[:, indices].mean(axis=1)
    short.append(rows[0])
    long.append(rows[1:])
  short_L, long_GL = np.asarray(short), np.stack(long, axis=1)
  relative_GL = -np.expm1(long_GL - short_L)
  return Gains(relative_GL, np.exp(short_L) * relative_GL)


def recl(
  nll_GLT: np.ndarray, lengths: Sequence[int], share: float, threshold: float = THRESHOLD
) -> list[EffectiveLength]:
  """Return the RECL of every model of a group.

  Args:
    nll_GLT: losses in nats.
    lengths: the contexts, in tokens, in equal steps.
    share: r.
    threshold: gains below this do not count.

  Raises:
    InputError: see `gains`; or the lengths do not rise in equal steps, or their number is not that of the losses.
  """
  relative_GL = gains(nll_GLT, share).relative_GL
  steps = set(np.diff(lengths).tolist())
  if len(lengths) != relative_GL.shape[1] + 1 or len(steps) != 1 or min(steps) < 1:
    raise InputError(
      f'context lengths: got {list(lengths)}; expected one for each of the losses, rising in equal steps'
    )
  results = []
  for relative_L in relative_GL:
    below = np.flatnonzero(relative_L < threshold)
    results.append(EffectiveLength(int(lengths[below[0] if below.size else -1]), not below.size))
  return results
