"""Quasi-recurrent layer (Bradbury et al. 2017, arXiv 1611.01576, section 2) in NumPy float64: one row, step by step."""

from __future__ import annotations

import numpy as np

from tests.reference.recurrent import sigmoid


def layer(params, x_TE, carry, length, window):
  """Outputs (length, D) and carry of one row, of which the first `length` steps count."""
  c = carry[0]
  before = carry[1] if window == 2 else None
  outputs = []
  for x in x_TE[:length]:
    seen = np.concatenate([x, before]) if window == 2 else x
    z, f, o = np.split(seen @ params['input'] + params['bias'], 3)
    c = sigmoid(f) * np.tanh(z) + (1 - sigmoid(f)) * c
    outputs.append(sigmoid(o) * c)
    before = x
  return np.stack(outputs), (c, before) if window == 2 else (c,)
