"""Pooling over time looks at the positions that count, and at nothing else."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx.layers import pooling
from lmx.objectives import rows as rows_lib
from tests.reference import ulmfit

B, T, D = 4, 9, 5
KINDS = (*rows_lib.POOLINGS, 'min')
pool = jax.jit(pooling.pool, static_argnums=0)


def case():
  rng = np.random.default_rng(0)
  x_BTD = rng.normal(size=(B, T, D)).astype(np.float32)
  begin, end = np.array([0, 2, 4, 8]), np.array([9, 7, 5, 9])
  kept_BT = (np.arange(T) >= begin[:, None]) & (np.arange(T) < end[:, None])
  return x_BTD, kept_BT, [x_BTD[b, begin[b] : end[b]] for b in range(B)]


def test_each_pooling_matches_its_definition():
  x_BTD, kept_BT, rows = case()
  plain = {
    'concat': ulmfit.concat_pool,
    'last': lambda h: h[-1],
    'max': lambda h: h.max(0),
    'min': lambda h: h.min(0),
    'mean': lambda h: h.mean(0),
    'first': lambda h: h[0],
  }
  assert set(plain) == set(KINDS)
  for kind, function in plain.items():
    np.testing.assert_allclose(pool(kind, x_BTD, kept_BT), np.stack([function(h) for h in rows]), rtol=1e-6)


@pytest.mark.parametrize('kind', KINDS)
def test_padding_tokens_change_nothing(kind):
  x_BTD, kept_BT, _ = case()
  found = pool(kind, x_BTD, kept_BT)
  for filler in (0.0, 1e9, -1e9, np.nan):
    other_BTD = np.where(kept_BT[..., None], x_BTD, np.float32(filler))
    np.testing.assert_array_equal(pool(kind, other_BTD, kept_BT), found)


@pytest.mark.parametrize('kind', KINDS)
def test_row_without_tokens_is_zero(kind):
  found = pool(kind, np.ones((1, T, D), np.float32), np.zeros((1, T), bool))
  np.testing.assert_array_equal(found, 0.0)
