"""Ends of texts are scored as every causal model scores them in the whole text, by any of the models."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx.models import registry
from lmx.objectives import cloze, last_word
from tests import drawn

B, G, T, P, V = 3, 2, 9, 3, 20


def batch(rng):
  """Two sequences a row, of different lengths, each with an end of one to three tokens."""
  ends_BG = rng.integers(1, P + 1, (B, G))
  size_BG = rng.integers(P + 1, T + 1, (B, G))
  tokens_BGS = rng.integers(1, V, (B, G, T + 1))
  place_P = np.arange(P)
  live_BGP = place_P < ends_BG[..., None]
  positions_BGP = np.where(live_BGP, size_BG[..., None] - ends_BG[..., None] + place_P, 0)
  targets_BGP = np.take_along_axis(tokens_BGS[..., 1:], positions_BGP, axis=-1)
  return {
    'tokens_BGT': tokens_BGS[..., :-1],
    'valid_BGT': np.arange(T) < size_BG[..., None],
    'positions_BGP': positions_BGP,
    'targets_BGP': np.where(live_BGP, targets_BGP, 0),
    'weights_BGP': live_BGP.astype(np.float32),
    'labels_B': rng.integers(0, G, B),
    'row_weights_B': np.array([1, 1, 0], np.float32),
  }


@pytest.mark.parametrize('name', ['gpt2', 'rnn_lm', 'awd_lstm', pytest.param('gpt', marks=pytest.mark.slow)])
def test_ends_are_scored_as_in_the_whole_text(name):
  model, cfg = registry.get(name), registry.config(name, 'tiny', V=V)
  params = {'model': drawn.params(model.init, cfg), 'objective': {}}
  given = batch(np.random.default_rng(0))

  @jax.jit
  def log_p(tokens_BT):
    features, _ = model.apply(cfg, params['model'], {'tokens_BT': tokens_BT}, model.init_state(cfg, B * G))
    return jax.nn.log_softmax(model.logits(cfg, params['model'], features))

  score_BG, log_p_BGTV = np.zeros((B, G)), np.asarray(log_p(given['tokens_BGT'].reshape(-1, T))).reshape(B, G, T, V)
  for b, g, p in zip(*np.nonzero(given['weights_BGP']), strict=True):
    score_BG[b, g] += log_p_BGTV[b, g, given['positions_BGP'][b, g, p], given['targets_BGP'][b, g, p]]
  both = jax.jit(lambda *args: [f(cloze.Config(), model, cfg, *args, ()) for f in (cloze.predict, cloze.loss)])
  (predicted, _), out = both(params, given)
  np.testing.assert_allclose(predicted['logits_BC'], score_BG, rtol=1e-4, atol=1e-4)
  right = score_BG[:2].argmax(1) == given['labels_B'][:2]  # the third row only fills up
  np.testing.assert_allclose(out.metrics['accuracy'], (right.sum(), 2))
  log_p_B = score_BG - np.log(np.exp(score_BG).sum(1, keepdims=True))
  np.testing.assert_allclose(out.sums['nll'], -sum(log_p_B[b, given['labels_B'][b]] for b in range(2)), rtol=1e-4)


def test_rows_that_fill_up_cost_nothing_in_last_words():
  model, cfg = registry.get('gpt2'), registry.config('gpt2', 'tiny', V=V)
  params = {'model': drawn.params(model.init, cfg), 'objective': {}}
  given = batch(np.random.default_rng(1))
  rows = {key.replace('_BG', '_B'): x[:, 0] for key, x in given.items() if '_BG' in key}
  rows['row_weights_B'] = given['row_weights_B']
  rows['weights_BP'][2] = 0  # as the batching makes them
  rows['stops_BW'] = np.tile(np.arange(1, V // 2), (B, 1))
  loss = jax.jit(last_word.loss, static_argnums=(0, 1, 2))
  out = loss(last_word.Config(), model, cfg, params, rows, ())
  some = loss(last_word.Config(), model, cfg, params, {key: x[:2] for key, x in rows.items()}, ())
  for name in ('nll', 'accuracy', 'filtered_accuracy'):
    np.testing.assert_allclose(out.metrics[name], some.metrics[name], rtol=1e-5)
  assert out.metrics['nll'][1] == 2
