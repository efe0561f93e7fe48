"""The encoder with every score and window beside its equations; that each score can look elsewhere; and refusals."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lmx.errors import InputError
from lmx.layers import rnn_attention
from lmx.models import registry
from lmx.objectives import tag
from lmx.types import Features
from tests import drawn
from tests.reference import self_attention as reference

self_attention = registry.get('self_attention')

B, T = 2, 7
LENGTHS = (7, 3)
SIZES = dict(V=19, D=8, F=12, N=1, A=5, S=9, reach=2, dropout=0.0)


def config(**changes):
  return registry.config('self_attention', 'tiny', **(SIZES | changes))


def exact(tree):
  return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


@functools.partial(jax.jit, static_argnums=0)
def outputs(cfg, params, batch):
  weights = self_attention.attention_weights(cfg, params, batch)
  a_NBTS = jnp.stack([one.weights_BHTS[:, 0] for one in weights])
  return self_attention.apply(cfg, params, batch, ())[0].last_BTD, a_NBTS


@pytest.mark.parametrize(
  'changes',
  [
    *({'score': score} for score in rnn_attention.SCORES if score != 'additive'),
    {'score': 'additive', 'N': 2},
    {'score': 'dot', 'projected': True, 'N': 2},
    {'score': 'location', 'window': 'local_m'},
    {'score': 'general', 'window': 'local_p', 'projected': True},
  ],
  ids=lambda changes: '-'.join(map(str, changes.values())),
)
def test_outputs_and_weights_match_the_equations_per_sentence(changes):
  cfg = config(**changes)
  params = drawn.params(self_attention.init, cfg, std=drawn.by_size(2))
  tokens_BT = np.random.default_rng(1).integers(0, cfg.V, (B, T)).astype(np.int32)
  valid_BT = np.arange(T) < np.array(LENGTHS)[:, None]
  last_BTD, a_NBTS = outputs(cfg, params, {'tokens_BT': tokens_BT, 'valid_BT': valid_BT})
  assert a_NBTS.shape == (cfg.N, B, T, T) and a_NBTS.dtype == jnp.float32
  for b, n in enumerate(LENGTHS):
    last_TD, a_NTS = reference.encode(cfg, exact(params), tokens_BT[b, :n])
    np.testing.assert_allclose(last_BTD[b, :n], last_TD, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(a_NBTS[:, b, :n, :n], a_NTS, rtol=1e-5, atol=1e-5)
    assert not np.asarray(a_NBTS[:, b, :, n:]).any()
    assert np.ptp(a_NTS, axis=1).max() > 1e-3  # the queries do not all look alike


@pytest.mark.slow
@pytest.mark.parametrize('score', rnn_attention.SCORES)
def test_every_score_learns_to_attend_to_the_first_word(score):
  """The label of every word is the kind of the first one, which no layer but attention can know.

  By dot alone a position finds hardly more than itself: there queries and keys are projected.
  """
  cfg = config(score=score, projected=score == 'dot', D=32, F=64, A=16, N=1)
  objective = tag.Config(labels=('a', 'b', 'c'), crf=False)
  optimizer = optax.adam(3e-3)

  def loss(params, batch):
    return tag.loss(objective, self_attention, cfg, params, batch, ()).sums['nll'] / batch['labels_BT'].size

  def step(carry, key):
    params, moments = carry
    tokens_BT = jax.random.randint(key, (64, T), 0, cfg.V)
    labels_BT = jnp.broadcast_to(tokens_BT[:, :1] % 3, tokens_BT.shape)
    whole = jnp.ones(tokens_BT.shape)
    batch = {'tokens_BT': tokens_BT, 'labels_BT': labels_BT, 'valid_BT': whole > 0, 'weights_BT': whole}
    value, gradients = jax.value_and_grad(loss)(params, batch)
    updates, moments = optimizer.update(gradients, moments)
    return (optax.apply_updates(params, updates), moments), value

  @jax.jit
  def train(key):
    params = {
      'model': self_attention.init(cfg, key),
      'objective': tag.init(objective, self_attention, cfg, key),
    }
    return jax.lax.scan(step, (params, optimizer.init(params)), jax.random.split(key, 600))[1]

  losses = np.asarray(train(jax.random.key(0)))
  alone = (T - 1) / T * np.log(3)  # the least loss if only the first word knows itself
  assert losses[-20:].mean() < 0.75 * alone < alone < losses[:5].mean()


def test_invalid_settings_are_rejected():
  for field, value, message in (
    ('D', 7, 'model.D: got 7'),
    ('reach', 0, 'model.reach: got 0'),
  ):
    with pytest.raises(InputError, match=message):
      config(**{field: value})
  cfg = config(score='location', S=5)
  params = drawn.params(self_attention.init, cfg)
  batch = {'tokens_BT': np.zeros((B, T), np.int32)}
  with pytest.raises(InputError, match='model.S: got 5'):
    self_attention.apply(cfg, params, batch, ())
  with pytest.raises(InputError, match='packed documents'):
    self_attention.apply(config(), params, {**batch, 'documents_BT': batch['tokens_BT']}, ())
  features = Features(np.zeros((B, T, cfg.D), np.float32))
  for call in (self_attention.logits, lambda *args: self_attention.nll(*args, batch['tokens_BT'])):
    with pytest.raises(InputError, match='predicts no words'):
      call(cfg, params, features)
