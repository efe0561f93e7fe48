"""Self-attention with any score in NumPy float64, one sentence, one query and one key at a time."""

from __future__ import annotations

import math

import numpy as np

from tests.reference import alignment, transformer


def look(cfg, p, x_TD) -> np.ndarray:
  """Weights (T, T): a row for each query (Cheng et al. 2016, equations 6 and 7, and the equations of the scores)."""
  queries, keys = (
    (x_TD @ p['project_query']['kernel'], x_TD @ p['project_key']['kernel']) if cfg.projected else (x_TD, x_TD)
  )
  T = len(x_TD)
  scores_TS = alignment.scores(cfg.score, p, queries, keys)
  return np.array([alignment.weights(cfg.window, p, scores_TS[t], queries[t], t, T, cfg.reach) for t in range(T)])


def encode(cfg, params, tokens_T):
  """(output (T, D), weights (N, T, T)) of a sentence without padding."""
  x = math.sqrt(cfg.D) * params['embed']['tokens'][tokens_T] + transformer.positions(len(tokens_T), cfg.D)
  weights = []
  for i in range(cfg.N):
    layer = params[f'layer_{i:02d}']
    a_TS = look(cfg, layer['attention'], x)
    contexts = np.array([sum(a * value for a, value in zip(row, x, strict=True)) for row in a_TS])
    out = layer['attention']['out']
    x = transformer.layer_norm(x + contexts @ out['kernel'] + out['bias'], layer['norm_1'], 1e-6)
    x = transformer.layer_norm(x + transformer.mlp(x, layer['mlp'], 'relu'), layer['norm_2'], 1e-6)
    weights.append(a_TS)
  return x, np.array(weights)
