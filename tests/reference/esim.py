"""ESIM in NumPy float64, word by word (Chen et al. 2017, arXiv 1609.06038, equations 1 to 20)."""

from __future__ import annotations

import numpy as np

from tests.reference import recurrent, text_alignment


def lstm(p, x):
  """Outputs of one direction over the words of one text, (T, D)."""
  D = p['recurrent'].shape[0]
  h, c, outputs = np.zeros(D), np.zeros(D), []
  for x_t in x:
    i, f, g, o = np.split(x_t @ p['input'] + h @ p['recurrent'] + p['bias'], 4)
    c = recurrent.sigmoid(f) * c + recurrent.sigmoid(i) * np.tanh(g)
    h = recurrent.sigmoid(o) * np.tanh(c)
    outputs.append(h)
  return np.array(outputs).reshape(len(x), D)


def bilstm(p, x):
  return np.concatenate([lstm(p['forward'], x), lstm(p['backward'], x[::-1])[::-1]], axis=1)


def enhance(x, aligned):
  """[x; x~; x - x~; x x~] of each word."""
  return np.array([np.concatenate([a, b, a - b, a * b]) for a, b in zip(x, aligned, strict=True)])


def pool(v):
  """[mean; max] over words; zeros of an empty text."""
  return np.concatenate([v.sum(0) / len(v), v.max(0)]) if len(v) else np.zeros(2 * v.shape[1])


def pair(params, premise, hypothesis, outputs=(None, None)):
  """(composition of the premise (T, 2D), summary of the pair (8D,)).

  Args:
    params: layer_00, projection, layer_01.
    premise: input of the encoding, (T, E).
    hypothesis: likewise, (S, E).
    outputs: ELMo vectors at the output of the encoding of both texts.
  """
  encoded = []
  for x, more in zip((premise, hypothesis), outputs, strict=True):
    h = bilstm(params['layer_00'], x)
    encoded.append(h if more is None else np.concatenate([h, more], axis=1))
  composed = []
  for x, y in (encoded, encoded[::-1]):
    m = enhance(x, text_alignment.context(x, y)) if len(x) else np.zeros((0, 4 * x.shape[1]))
    projected = np.maximum(m @ params['projection']['kernel'] + params['projection']['bias'], 0)
    composed.append(bilstm(params['layer_01'], projected))
  return composed[0], np.concatenate([pool(v) for v in composed])
