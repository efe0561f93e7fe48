"""Bidirectional attention flow (Seo et al. 2017, arXiv 1611.01603) and self-attention (Clark and Gardner 2018, arXiv
1710.10723), in NumPy float64, one row, one word and one score at a time.

Inputs hold the valid words of a row alone. The parameters are lmx's.
"""

from __future__ import annotations

import numpy as np

from tests.reference import recurrent


def score(params, h, u):
  """w · [h; u; h * u], the three concatenated."""
  w = np.concatenate([params['query'], params['key'], params['product']])
  return w @ np.concatenate([h, u, h * u])


def softmax(scores, nothing=None):
  """Shares of scores, beside `nothing`, a score that is in the denominator alone."""
  exps = [np.exp(s) for s in scores]
  total = sum(exps) + (0 if nothing is None else np.exp(nothing))
  return [e / total for e in exps]


def flow(params, h_TD, u_SD):
  """[h; a; h * a; h * c] of each word of a passage (equations 1 to 4)."""
  a_TD, best = [], []
  for h in h_TD:
    scores = [score(params, h, u) for u in u_SD]
    a_TD.append(sum((p * u for p, u in zip(softmax(scores), u_SD, strict=True)), np.zeros(len(h))))
    best.append(max(scores, default=0.0))
  c = sum(p * h for p, h in zip(softmax(best), h_TD, strict=True))
  return np.stack([np.concatenate([h, a, h * a, h * c]) for h, a in zip(h_TD, a_TD, strict=True)])


def self_attention(params, x_TD):
  """[a; x; x * a] of each word, a from the other words."""
  rows = []
  for t, x in enumerate(x_TD):
    others = [y for s, y in enumerate(x_TD) if s != t]
    shares = softmax([score(params['attention'], x, y) for y in others], params.get('nothing'))
    a = sum((p * y for p, y in zip(shares, others, strict=True)), np.zeros(len(x)))
    rows.append(np.concatenate([a, x, x * a]))
  return np.stack(rows)


def both_ways(params, cell, x_TD):
  """A recurrent layer in each direction from zeros, their outputs side by side."""
  outputs = []
  for direction, order in (('forward', x_TD), ('backward', x_TD[::-1])):
    own = params[direction]
    D = own['recurrent'].shape[0]
    carry, found = (np.zeros(D),) * (2 if cell == 'lstm' else 1), []
    for x in order:
      carry = recurrent.step(cell, own, x, carry)
      found.append(carry[0])
    outputs.append(np.stack(found if direction == 'forward' else found[::-1]))
  return np.concatenate(outputs, -1)


def linear(params, x_TD):
  return np.maximum(x_TD @ params['kernel'] + params['bias'], 0)


def model(params, cell, x_TE, x_SE):
  """The last layer from the input vectors of a passage and a question; Seo et al.'s where there is a fourth layer."""
  h_TD, u_SD = (both_ways(params['layer_00'], cell, x) for x in (x_TE, x_SE))
  g_TD = flow(params['layer_01']['attention'], h_TD, u_SD)
  if 'layer_03' in params:
    m_TD = both_ways(params['layer_03'], cell, both_ways(params['layer_02'], cell, g_TD))
    return np.concatenate([g_TD, m_TD], -1)
  own, x_TD = params['layer_02'], linear(params['layer_01']['linear'], g_TD)
  return x_TD + linear(own['linear'], self_attention(own, both_ways(own, cell, x_TD)))
