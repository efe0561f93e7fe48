"""Random orthogonal matrices against JAX's."""

from __future__ import annotations

import functools

import jax
import numpy as np

from lmx.layers import orthogonal


def test_matrices_are_those_of_jax():
  for rows, columns, count in ((9, 4, 3), (4, 4, 1), (3, 5, 2)):
    key = jax.random.key(rows)
    found = jax.jit(functools.partial(orthogonal.draw, rows=rows, columns=columns, count=count))(key)
    np.testing.assert_array_equal(found, jax.random.orthogonal(key, rows, (count,), m=columns))
