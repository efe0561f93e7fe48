"""XLNet's spans and borders (arXiv 1906.08237, section 2.3; released data_utils.py), drawn by NumPy's `choice`.

A run that resumes must draw what it drew before, so that these are also the order and kind of the draws.
"""

import numpy as np


def choose_spans(length, count, random, starts_T=None, *, context=6, longest=5):
  """Return bool (T,) with `count` chosen tokens; see `lmx.data.noise.choose_spans`."""
  chosen_T, at, left = np.zeros(length, bool), 0, count
  odds = 1.0 / np.arange(1, longest + 1)
  while left and at < length:
    n = min(random.choice(longest, p=odds / odds.sum()) + 1, left)
    before = random.integers(n * context)
    start = at + before
    while starts_T is not None and start < length and not starts_T[start]:
      start += 1
    if start + n >= length:
      break
    chosen_T[start : start + n] = True
    left, at = left - n, start + n + n * context - before
  rest = np.flatnonzero(~chosen_T)
  chosen_T[random.permutation(rest)[:left]] = True
  return chosen_T


def draw_border(borders, random, start, end, backward, low, high):
  """Return one of all `borders` of the text that is between `low` and `high` of a stream, or None."""
  inside = borders[(borders > start) & (borders < end)] - start
  if backward:
    inside = (end - start - inside)[::-1]
  inside = inside[(inside > low) & (inside < high)]
  return random.choice(inside) if inside.size else None
