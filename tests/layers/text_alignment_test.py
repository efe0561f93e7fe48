"""The alignment of two texts against NumPy, with padding and empty texts."""

from __future__ import annotations

import jax
import numpy as np

from lmx.layers import text_alignment
from tests.reference import text_alignment as reference

B, T, S, D = 3, 5, 4, 6
LENGTHS = (4, 2, 0)  # of y


def texts():
  rng = np.random.default_rng(0)
  return rng.standard_normal((B, T, D)), rng.standard_normal((B, S, D)), np.arange(S) < np.array(LENGTHS)[:, None]


def test_alignment_is_dot_product_attention_to_the_other_text():
  x_BTD, y_BSD, valid_BS = texts()
  found = jax.jit(text_alignment.context)(x_BTD.astype(np.float32), y_BSD.astype(np.float32), valid_BS)
  for b, n in enumerate(LENGTHS):
    np.testing.assert_allclose(found[b], reference.context(x_BTD[b], y_BSD[b, :n]), rtol=1e-5, atol=1e-5)


def test_empty_text_gives_zeros_and_a_finite_gradient():
  x_BTD, y_BSD, valid_BS = (np.asarray(a, np.float32) if a.dtype != bool else a for a in texts())
  total = lambda x, y: text_alignment.context(x, y, valid_BS).sum()
  for gradient_BTD in jax.jit(jax.grad(total, argnums=(0, 1)))(x_BTD, y_BSD):
    assert np.isfinite(gradient_BTD).all() and np.abs(gradient_BTD[0]).max() > 0 and not gradient_BTD[2].any()
