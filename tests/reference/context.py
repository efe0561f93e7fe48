"""Relative effective context length, Dai et al. 2019 (arXiv 1901.02860), appendix C, one token at a time."""

from __future__ import annotations

import math


def baseline(losses, c, t):
  """b(c, t) of losses[model][c][t]."""
  return min(one[c][t] for one in losses)


def hard(losses, c, share):
  """T: the tokens of largest b(c, t)."""
  tokens = range(len(losses[0][c]))
  ranked = sorted(tokens, key=lambda t: (-baseline(losses, c, t), t))
  return ranked[: max(1, round(share * len(ranked)))]


def relative_loss(losses, i, c, longer, share):
  """f_i(c, c')."""
  places = hard(losses, c, share)
  return sum(min(baseline(losses, c, t), losses[i][longer][t]) for t in places) / len(places)


def gains(losses, i, c, longer, share):
  """(g_i(c, c'), exp f_i(c, c) - exp f_i(c, c'))."""
  short, long = (math.exp(relative_loss(losses, i, c, other, share)) for other in (c, longer))
  return (short - long) / short, short - long


def recl(losses, i, lengths, share, threshold=0.01):
  """The first of the lengths whose next one gains too little; the last where each gains enough."""
  c = 0
  while c + 1 < len(lengths) and gains(losses, i, c, c + 1, share)[0] >= threshold:
    c += 1
  return lengths[c]
