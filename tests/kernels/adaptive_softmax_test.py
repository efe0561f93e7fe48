"""A loss at selected positions against the same loss of all positions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.kernels import adaptive_softmax as kernels
from tests import placed

B, T, D, CLASSES = 2, 9, 5, 6


def loss(table_DC, x_BTD, targets_BT, selected_BT):
  logits_BTC = x_BTD @ table_DC
  target_BT = jnp.take_along_axis(logits_BTC, targets_BT[..., None], axis=-1)[..., 0]
  return jnp.where(selected_BT, jax.nn.logsumexp(logits_BTC, axis=-1) - target_BT, 0.0)


@pytest.mark.parametrize('shards', [1, B])
def test_selected_equals_the_loss_of_all_positions(shards):
  """Outputs and gradients, with no, some and all positions selected."""
  rng = np.random.default_rng(0)
  draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)
  table_DC, x_BTD, weights_BT = draw(D, CLASSES), draw(B, T, D), draw(B, T)
  targets_BT = jnp.asarray(rng.integers(0, CLASSES, (B, T)))

  def both(f):
    total = lambda table_DC, x_BTD, selected_BT: jnp.sum(f(table_DC, x_BTD, targets_BT, selected_BT) * weights_BT)
    return jax.jit(jax.value_and_grad(total, argnums=(0, 1)))

  plain = both(loss)
  fast = both(lambda *given: kernels.selected_losses(loss, *given, words=(0, CLASSES, CLASSES), block=4))
  for share in (0.0, 0.3, 1.0):
    selected_BT = jnp.asarray(rng.random((B, T)) < share)
    expected = jax.tree.leaves(plain(table_DC, x_BTD, selected_BT))
    with placed.on(data=shards):
      found = fast(table_DC, x_BTD, selected_BT)
    for a, b in zip(jax.tree.leaves(found), expected, strict=True):
      np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_only_needed_blocks_are_computed():
  """Of 21 positions in blocks of 4: none for no selected position, one for 3, all six for 21."""
  for count, blocks in ((0, 0), (3, 1), (4, 1), (5, 2), (21, 6)):
    selected = np.zeros((1, 21), bool)
    selected[0, np.random.default_rng(0).permutation(21)[:count]] = True
    assert int(kernels._queue(jnp.asarray(selected), 4)[2]) == blocks


def test_blocks_stay_within_the_limits_of_logits():
  assert kernels.block_size(64_000, 1000) == 4000  # a 16th
  assert kernels.block_size(256, 1000) == kernels.LEAST
  with placed.on('cpu'):
    assert kernels.block_size(64_000, 2**16) == kernels.CPU_LOGITS // 2**16
  assert kernels.block_size(64_000, 1000, block=8) == 8
  assert kernels.block_size(64, 1000) == 64


def test_share_under_zipfs_law():
  frequencies = 1 / np.arange(1, 20_001)
  for first, end in ((0, 2_000), (2_000, 10_000), (10_000, 20_000)):
    share = frequencies[first:end].sum() / frequencies.sum()
    assert kernels.zipf_share(first, end, 20_000) == pytest.approx(share, abs=0.02)
