"""A kernel of attention in interpret mode against the equation, with the same dropout."""

from __future__ import annotations

import jax
import numpy as np

from lmx.ops import attention

KEY = jax.random.key(5)


def both(kernel, arrays, mask, out, causal, rate):
  """Values and gradients of a kernel and of the equation; `out` are cotangents, 0 where values are arbitrary."""
  options = dict(causal=causal, rate=rate, key=KEY)
  serve = {
    'kernel': lambda *x: kernel(*x, mask, interpret=True, **options),
    'equation': lambda *x: attention.attend.equation(*x, mask, **options),
  }

  def run(name, *x):
    found, pull = jax.vjp(serve[name], *x)
    return found * (out != 0), pull(out)

  return [run(name, *arrays) for name in serve]


def assert_equal(found, expected):
  for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
