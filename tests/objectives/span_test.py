"""Answers as spans on top of a model: the loss by hand, places that count, and errors."""

from __future__ import annotations

import types

import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.objectives import span
from lmx.types import Features

X = np.random.default_rng(0).normal(size=(3, 6, 2)).astype(np.float32)
VALID = np.arange(6) < np.array([[6], [4], [5]])
BATCH = {
  'tokens_BT': np.zeros((3, 6), np.int32), 'valid_BT': VALID,
  'starts_B': np.array([2, 0, 1]), 'ends_B': np.array([3, 0, 1]),
  'row_weights_B': np.array([1, 1, 0], np.float32), 'x': X,
}  # fmt: skip
MODEL = types.SimpleNamespace(  # its features are the scores themselves
  init_state=lambda cfg, rows: (),
  apply=lambda cfg, params, batch, state, key=None: (Features(jnp.asarray(batch['x'])), ()),
)
PARAMS = {'model': {}, 'objective': {'kernel': jnp.eye(2), 'bias': jnp.zeros(2)}}


def test_the_loss_is_the_mean_of_both_ends_over_real_places():
  out = span.loss(span.Config(), MODEL, None, PARAMS, BATCH, ())
  expected = 0.0
  for b, (start, end) in enumerate(((2, 3), (0, 0))):
    x = X[b, : VALID[b].sum()].astype(np.float64)
    log_p = x - np.log(np.exp(x).sum(0))
    expected -= (log_p[start, 0] + log_p[end, 1]) / 2
  np.testing.assert_allclose(out.sums['nll'], expected, rtol=1e-5)
  assert span.weights(span.Config(), BATCH) == {'nll': 2.0}
  right = {**BATCH, 'starts_B': np.array([X[b, :n, 0].argmax() for b, n in enumerate((6, 4, 5))]),
           'ends_B': np.array([X[b, :n, 1].argmax() for b, n in enumerate((6, 4, 5))])}  # fmt: skip
  assert span.loss(span.Config(), MODEL, None, PARAMS, right, ()).metrics['accuracy'] == (2.0, 2.0)
  scores = span.predict(span.Config(), MODEL, None, PARAMS, BATCH, ())[0]['scores_BT2']
  assert (np.asarray(scores)[~VALID] == span.NEVER).all()


def test_data_without_answers_is_refused():
  with pytest.raises(InputError, match='has no answers that are spans'):
    span.settle(span.Config(), {'dataset': {'name': 'x'}})
