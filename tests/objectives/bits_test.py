"""Bits per sequence: sums against their definition, one length at a time, and rows of padding."""

from __future__ import annotations

import jax
import numpy as np

from lmx.models import registry
from lmx.objectives import bits
from tests import drawn

ntm = registry.get('ntm')

B, T = 4, 7


def case():
  cfg = registry.config('ntm', 'tiny', D=8, rows=6, width=4)
  rng = np.random.default_rng(0)
  lengths_B = np.array([7, 5, 6, 0])
  valid_BT = np.arange(T) < lengths_B[:, None]
  batch = {
    'inputs_BTI': rng.integers(0, 2, (B, T, cfg.I)).astype(np.float32),
    'target_bits_BTO': rng.integers(0, 2, (B, T, cfg.O)).astype(np.float32),
    'weights_BT': (valid_BT & (np.arange(T) > 1)).astype(np.float32),
    'valid_BT': valid_BT,
    'row_weights_B': (lengths_B > 0).astype(np.float32),
    'size_B': np.array([3, 2, 3, 0], np.int32),
    'optimal_B': np.array([1.0, 2.0, 6.0, 50.0], np.float32),
  }
  return cfg, {'model': drawn.params(ntm.init, cfg), 'objective': {}}, batch


def test_metrics_equal_their_definition():
  cfg, params, batch = case()
  options = bits.Config(lengths=(2, 3, 9))
  both = jax.jit(lambda *args: [f(options, ntm, cfg, *args, ()) for f in (bits.loss, bits.predict)])
  out, (predicted, _) = both(params, batch)
  p = np.asarray(predicted['probability_BTO'], np.float64)
  y, w = batch['target_bits_BTO'], batch['weights_BT'][..., None]
  cost_B = -np.sum((y * np.log2(p) + (1 - y) * np.log2(1 - p)) * w, (1, 2))
  wrong_B = np.sum(((p > 0.5) != (y > 0.5)) * w, (1, 2))
  np.testing.assert_array_equal(predicted['bits_BTO'], p > 0.5)
  totals = {name: tuple(map(float, pair)) for name, pair in out.metrics.items()}
  found = bits.report(options, totals, {})
  expected = {
    'bits_per_sequence': cost_B[:3].mean(),
    'loss': cost_B[:3].mean() * np.log(2),
    'bit_error_percent': 100 * wrong_B.sum() / (w.sum() * cfg.O),
    'sequence_error_percent': 100 * np.mean(wrong_B[:3] > 0),
    'bits_per_sequence_at_2': cost_B[1],
    'bits_per_sequence_at_3': (cost_B[0] + cost_B[2]) / 2,
    'bit_error_percent_at_2': 100 * wrong_B[1] / (w[1].sum() * cfg.O),
    'bit_error_percent_at_3': 100 * (wrong_B[0] + wrong_B[2]) / (w[[0, 2]].sum() * cfg.O),
    'optimal_bits_per_sequence': 3.0,
  }
  assert found.keys() == expected.keys()  # nothing of length 9, which no row has
  for name, value in expected.items():
    np.testing.assert_allclose(found[name], value, rtol=1e-5, err_msg=name)
  assert bits.weights(options, batch) == {'nll': 3.0}


def test_training_measures_only_the_loss():
  cfg, params, batch = case()

  def run(key):
    out = bits.loss(bits.Config(lengths=(2,)), ntm, cfg, params, batch, ('kept',), key)
    assert out.state == ('kept',)
    return out.sums, out.metrics

  sums, metrics = jax.eval_shape(run, jax.random.key(0))
  assert set(metrics) == set(sums) == {'nll'}
