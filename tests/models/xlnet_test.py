"""XLNet: what a prediction depends on, the equations of the two streams, memory, segments and directions."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.models import xlnet as model
from tests import drawn
from tests.reference import xlnet as reference

SMALL = model.Config(
  V=29, D=16, F=24, H=2, N=2, dropout=0.0, dropout_attention=0.0, init_std=0.3, fidelity='paper', gelu='erf'
)
T = 8


def params_of(cfg):
  return drawn.params(model.init, cfg, std=drawn.by_size(2))


def tokens(rows=1, seed=0, length=T):
  return np.random.default_rng(seed).integers(0, SMALL.V, (rows, length)).astype(np.int32)


@functools.partial(jax.jit, static_argnums=0)
def run(cfg, params, batch, state=()):
  return model.apply(cfg, params, batch, state, all_layers=True)


ORDERS = {
  'left to right': np.arange(1, T + 1),
  'right to left': np.arange(T, 0, -1),
  'any': np.array([3, 7, 1, 8, 2, 5, 4, 6]),
  'some seen by all': np.array([0, 2, 0, 0, 3, 1, 0, 0]),
}


@pytest.mark.parametrize('order', ORDERS)
def test_prediction_depends_on_exactly_the_tokens_before_it_in_the_order(order):
  """Every position is changed in turn; in two layers too, and never its own token reaches the query stream."""
  params, order_T = params_of(SMALL), ORDERS[order].astype(np.int32)
  predicted = np.flatnonzero(order_T)
  batch = {
    'order_BT': np.tile(order_T, (T, 1)),
    'positions_BP': np.tile(predicted, (T, 1)).astype(np.int32),
    'types_BT': np.tile(np.arange(T) // 5, (T, 1)).astype(np.int32),
  }
  same_TT = np.tile(tokens(), (T, 1))
  changed_TT = (same_TT + np.eye(T, dtype=np.int32)) % SMALL.V  # row j has another token at j
  before, _ = run(SMALL, params, batch | {'tokens_BT': same_TT})
  after, _ = run(SMALL, params, batch | {'tokens_BT': changed_TT})
  before, after = jax.device_get((before, after))
  moved = lambda name: (np.abs(getattr(after, name) - getattr(before, name)).max(-1) > 0).T  # (position, changed)
  np.testing.assert_array_equal(moved('query_BPD'), order_T[None] < order_T[predicted, None])
  np.testing.assert_array_equal(moved('last_BTD'), order_T[None] <= order_T[:, None])


def test_two_streams_match_the_papers_equations():
  """Appendix A.2, token by token, over two segments with a memory, three segments of text, one row read backward."""
  cfg = dataclasses.replace(SMALL, M=6)
  params, state = params_of(cfg), model.init_state(cfg, 2)
  memory = [[np.zeros((0, cfg.D))] * cfg.N for _ in range(2)]
  for seed in range(2):
    rng = np.random.default_rng(seed)
    order_BT = np.stack([rng.permutation(T) // 2, rng.permutation(T)]).astype(np.int32)
    order_BT[0] = np.where(order_BT[0] > 0, np.argsort(np.argsort(order_BT[0], kind='stable')), 0)
    positions_BP = np.stack([np.sort(rng.choice(np.flatnonzero(row), 3, replace=False)) for row in order_BT])
    batch = {
      'tokens_BT': tokens(2, seed),
      'order_BT': order_BT,
      'positions_BP': positions_BP.astype(np.int32),
      'types_BT': np.sort(rng.integers(0, 3, (2, T)), 1).astype(np.int32),
      'backward_B': np.array([False, True]),
    }
    features, state = run(cfg, params, batch, state)
    for b in range(2):
      h, g, memory[b] = reference.row(
        params, {k: v[b] for k, v in batch.items()}, memory[b], cfg.M, -1 if batch['backward_B'][b] else 1
      )
      np.testing.assert_allclose(features.last_BTD[b], h, rtol=1e-4, atol=1e-5)
      np.testing.assert_allclose(features.query_BPD[b], g, rtol=1e-4, atol=1e-5)


def test_released_memory_starts_as_visible_zeros():
  batch = {'tokens_BT': tokens()}
  cfg = dataclasses.replace(SMALL, M=5)
  params = params_of(cfg)
  paper, _ = run(cfg, params, batch, model.init_state(cfg, 1))
  alone, _ = run(SMALL, params, batch)
  np.testing.assert_allclose(paper.last_BTD, alone.last_BTD, rtol=1e-5, atol=1e-5)
  released = dataclasses.replace(cfg, fidelity='released')
  found, _ = run(released, params, batch, model.init_state(released, 1))
  assert np.abs(np.asarray(found.last_BTD) - paper.last_BTD).max() > 1e-2


def test_first_reuse_positions_are_remembered_without_a_gradient():
  cfg = dataclasses.replace(SMALL, M=6, reuse=4)
  params = params_of(cfg)
  features, state = run(cfg, params, {'tokens_BT': tokens()}, model.init_state(cfg, 1))
  assert state['filled_B'].tolist() == [4]
  for layer, kept in zip(features.layers, state['layers'], strict=False):
    kept = np.asarray(kept)
    np.testing.assert_array_equal(kept[:, 2:], np.asarray(layer)[:, :4])
    assert not kept[:, :2].any()
  batch = {'tokens_BT': tokens(1, 1)}

  @jax.jit
  @jax.value_and_grad
  def loss(layers):
    return jnp.sum(run(cfg, params, batch, state | {'layers': layers})[0].last_BTD ** 3)

  moved = jax.tree.map(lambda x: np.asarray(x) + 0.1, state['layers'])
  (here, gradient), (there, _) = loss(state['layers']), loss(moved)
  assert here != there and all(not np.any(x) for x in jax.tree.leaves(gradient))


def test_segment_scores_depend_only_on_a_difference():
  """So there may be any number of them (section 2.5)."""
  params = params_of(SMALL)
  given = lambda types: {'tokens_BT': tokens(), 'types_BT': np.array([types], np.int32)}
  segments = [0, 0, 0, 1, 1, 2, 2, 2], [7, 7, 7, 3, 3, 4, 4, 4], [0] * T
  first, other, one = (np.asarray(run(SMALL, params, given(types))[0].last_BTD) for types in segments)
  np.testing.assert_array_equal(first, other)
  assert np.abs(first - one).max() > 1e-3


def test_reversed_text_gives_the_same_losses():
  """Reversed tokens with negated distances: the same outputs, reversed."""
  params, text = params_of(SMALL), tokens()
  last = lambda tokens_BT, **more: np.asarray(run(SMALL, params, {'tokens_BT': tokens_BT, **more})[0].last_BTD)
  forward, reverse_BT = last(text), text[:, ::-1]
  np.testing.assert_allclose(last(reverse_BT, backward_B=np.array([True]))[:, ::-1], forward, rtol=1e-5, atol=1e-5)
  assert np.abs(last(reverse_BT)[:, ::-1] - forward).max() > 1e-2


def test_biases_may_be_shared():
  cfg = dataclasses.replace(SMALL, untie=False)
  params = params_of(cfg)
  assert set(params['bias']) == {'u', 'v', 's'} and not {'u', 'v', 's'} & set(params['layer_00']['attention'])
  own = params_of(SMALL)
  for i in range(cfg.N):
    own[f'layer_{i:02d}']['attention'] |= params['bias']
  shared = own | {'bias': params['bias']}
  for i in range(cfg.N):
    layer = dict(shared[f'layer_{i:02d}'])
    layer['attention'] = {k: v for k, v in layer['attention'].items() if k not in 'uvs'}
    shared[f'layer_{i:02d}'] = layer
  batch = {'tokens_BT': tokens(), 'types_BT': np.array([[0] * 4 + [1] * 4], np.int32)}
  np.testing.assert_allclose(
    run(cfg, shared, batch)[0].last_BTD, run(SMALL, own, batch)[0].last_BTD, rtol=1e-5, atol=1e-5
  )


@pytest.mark.parametrize(
  'wrong, words', [(dict(D=18, H=4), 'divisible by model.H = 4'), (dict(fidelity='release'), 'did you mean "released"')]
)
def test_invalid_settings_are_rejected(wrong, words):
  with pytest.raises(InputError, match=words):
    dataclasses.replace(SMALL, **wrong)


def test_packed_documents_are_rejected():
  batch = {'tokens_BT': tokens(), 'documents_BT': np.zeros((1, T), np.int32)}
  with pytest.raises(InputError, match='packed documents'):
    model.apply(SMALL, params_of(SMALL), batch, ())
