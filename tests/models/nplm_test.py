"""The neural probabilistic language model: its sizes, against NumPy, its window, and the paper's way to train it."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.models import registry
from lmx.optim import build
from tests import drawn
from tests.reference import nplm as reference

nplm = registry.get('nplm')

B, T = 3, 9
LENGTHS = (9, 4, 1)
SHAPES = [{'n': 4}, {'n': 2}, {'n': 5, 'direct': False}, {'n': 3, 'h': 0}]
DECAY, GROUPS = 0.3, ((r'/bias$', 1.0, 0.0), ('.*', 1.0, 1.0))


def config(**changes):
  return registry.config('nplm', 'tiny', **{'V': 17, 'm': 3, 'h': 6, **changes})


def restated(cfg, params):
  """The parameters under the paper's names, float64."""
  p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  table_VD, layer = p['output']['table'], p.get('layer_00')
  return {
    'C': p['embed']['table'],
    'H': layer and layer['kernel'].T,
    'd': layer and layer['bias'],
    'U': table_VD[:, : cfg.h] if cfg.h else None,
    'W': table_VD[:, cfg.h :] if cfg.direct else None,
    'b': p['output']['bias'],
  }


def params_of(cfg):
  return drawn.params(nplm.init, cfg, std=drawn.by_size())


@pytest.mark.parametrize('variant', [v for v in nplm.VARIANTS if v != 'tiny'])
def test_parameter_counts_match_the_papers_formula(variant):
  cfg = registry.config('nplm', variant)
  V, n, m, h = cfg.V, cfg.n, cfg.m, cfg.h
  count = sum(x.size for x in jax.tree.leaves(drawn.shapes(nplm.init, cfg)))
  # Section 2: |V| (1 + nm + h) + h (1 + (n - 1) m); without W, |V| (n - 1) m fewer.
  assert count == V * (1 + n * m + h) + h * (1 + (n - 1) * m) - (0 if cfg.direct else V * (n - 1) * m)


@pytest.mark.parametrize('changes', SHAPES)
def test_equals_numpy(changes):
  cfg = config(**changes)
  params, exact = params_of(cfg), restated(cfg, params_of(cfg))
  rng = np.random.default_rng(1)
  tokens_BT, targets_BT = rng.integers(0, cfg.V, (2, B, T)).astype(np.int32)
  before = [[1, 2, 3, 4], [5], []]  # words that the state already holds
  state = nplm.init_state(cfg, B)
  if state:
    S = cfg.n - 2
    state = {'context_BS': np.array([([-1] * S + words)[-S:] for words in before], np.int32)}
  else:
    before = [[], [], []]
  batch = {'tokens_BT': tokens_BT, 'valid_BT': np.arange(T) < np.array(LENGTHS)[:, None]}

  @jax.jit
  def run(params, batch, state):
    features, after = nplm.apply(cfg, params, batch, state)
    return nplm.nll(cfg, params, features, targets_BT), after

  nll_BT, after = run(params, batch, state)
  for b, length in enumerate(LENGTHS):
    words = before[b][-(cfg.n - 2) :] if cfg.n > 2 else []
    for t in range(length):
      words = [*words, int(tokens_BT[b, t])]
      expected = -np.log(reference.probabilities(exact, words, cfg.n)[targets_BT[b, t]])
      np.testing.assert_allclose(nll_BT[b, t], expected, rtol=1e-5, atol=1e-5)
    if state:
      np.testing.assert_array_equal(after['context_BS'][b], ([-1] * cfg.n + words)[-(cfg.n - 2) :])


@pytest.mark.parametrize('changes', SHAPES)
def test_word_reaches_the_n_minus_1_predictions_after_it_and_no_others(changes):
  cfg = config(**changes)
  tokens_BT = np.random.default_rng(2).integers(0, cfg.V, (B, T)).astype(np.int32)
  state = nplm.init_state(cfg, B)
  run = jax.jit(lambda tokens_BT: nplm.apply(cfg, params_of(cfg), {'tokens_BT': tokens_BT}, state)[0].last_BTD)
  other_BT = tokens_BT.copy()
  other_BT[:, 2] = (other_BT[:, 2] + 1) % cfg.V
  changed_T = np.abs(np.asarray(run(other_BT)) - run(tokens_BT)).max((0, 2)) > 0
  assert changed_T.tolist() == [2 <= t < 2 + cfg.n - 1 for t in range(T)]


def loss_of(cfg, params, tokens_BT, targets_BT, state):
  features, _ = nplm.apply(cfg, params, {'tokens_BT': tokens_BT}, state)
  return jnp.mean(nplm.nll(cfg, params, features, targets_BT))


def examples(cfg, count):
  """Windows of n - 1 words with a target each, as (tokens, targets, state) of `count` rows of one position."""
  words = np.random.default_rng(3).integers(0, cfg.V, (count, cfg.n)).astype(np.int32)
  return words, words[:, -2:-1], words[:, -1:], {'context_BS': words[:, : cfg.n - 2]}


def updates(cfg, params, batches, rate, decrease=0.01):
  """Trains by lmx's own 'sgd' on a list of (tokens, targets, state)."""
  optim = build.Config(
    optimizer='sgd', lr=rate, weight_decay=DECAY, groups=GROUPS, schedule='inverse_time', decrease=decrease
  )
  tx = build.make(optim, {'model': params}, functools.partial(nplm.depth, cfg), cfg.N, 1, 1)
  gradient = jax.grad(lambda p, batch: loss_of(cfg, p['model'], *batch))

  def body(carry, step_and_batch):
    params, opt_state = carry
    i, batch = step_and_batch
    change, opt_state = tx.update(gradient(params, batch), opt_state, params, step=i, lr_scale=1.0)
    return (jax.tree.map(jnp.add, params, change), opt_state), None

  @jax.jit
  def train(params, batches):
    steps = np.arange(len(batches[0]), dtype=np.int32)
    return jax.lax.scan(body, (params, tx.init(params)), (steps, batches))[0][0]['model']

  return train({'model': params}, jax.tree.map(lambda *x: np.stack(x), *batches))


@pytest.mark.parametrize('changes', [{'n': 4}, {'n': 5, 'direct': False}, {'n': 3, 'h': 0}])
def test_training_matches_the_papers_gradient_ascent(changes):
  """Example after example, with the rate of section 4.1 and a decay that spares the biases."""
  cfg = config(**changes)
  params = params_of(cfg)
  words, tokens_BT, targets_BT, state = examples(cfg, 12)
  rows = [slice(i, i + 1) for i in range(12)]
  batches = [(tokens_BT[r], targets_BT[r], {'context_BS': state['context_BS'][r]}) for r in rows]
  found = restated(cfg, updates(cfg, params, batches, 0.2))
  p = restated(cfg, params)
  for i, row in enumerate(words.tolist()):
    p = reference.ascend(p, row[:-1], row[-1], cfg.n, 0.2 / (1 + 0.01 * i), DECAY)
  for name, value in p.items():
    if value is not None:
      np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


def test_batch_at_b_times_the_rate_is_near_b_examples_one_by_one():
  """The difference falls with the square of the rate, so the two have the same limit."""
  cfg, size = config(n=4), 16
  params = params_of(cfg)
  _, tokens_BT, targets_BT, state = examples(cfg, size)
  rows = [slice(i, i + 1) for i in range(size)]
  one_by_one = [(tokens_BT[r], targets_BT[r], {'context_BS': state['context_BS'][r]}) for r in rows]
  gap, moved = [], []
  flat = lambda tree: np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]).astype(np.float64)
  for rate in (0.01, 0.005):
    slow = flat(updates(cfg, params, one_by_one, rate, 0.0))
    fast = flat(updates(cfg, params, [(tokens_BT, targets_BT, state)], rate * size, 0.0))
    gap.append(np.linalg.norm(fast - slow))
    moved.append(np.linalg.norm(slow - flat(params)))
  assert gap[0] < 0.15 * moved[0] and gap[1] < 0.6 * gap[0] / moved[0] * moved[1]


def test_every_layer_is_returned_on_request():
  cfg = config(n=4)
  batch = {'tokens_BT': np.zeros((B, T), np.int32)}
  features, _ = jax.jit(lambda p: nplm.apply(cfg, p, batch, nplm.init_state(cfg, B), all_layers=True))(params_of(cfg))
  x_BTE, hidden_BTD = features.layers
  np.testing.assert_array_equal(features.last_BTD, np.concatenate([hidden_BTD, x_BTE], -1))


def test_depth():
  assert [nplm.depth(config(), (name, 'bias')) for name in ('embed', 'layer_00', 'output')] == [0, 1, 2]
  assert nplm.depth(config(h=0), ('output', 'bias')) == 1


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'n': 1}, 'model.n: got 1'),
    ({'m': 0}, 'model.m: got 0'),
    ({'h': -1}, 'model.h: got -1'),
    ({'h': 0, 'direct': False}, 'model.direct: got false'),
  ],
)
def test_invalid_settings_are_rejected(changes, message):
  with pytest.raises(InputError, match=message):
    config(**changes)
