"""Gradual unfreezing: what is frozen does not move, moments go on, and every rate is the formula's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx import layout
from lmx.errors import InputError
from lmx.optim import build
from tests.reference import ulmfit

N, EPOCH, TOTAL = 2, 10, 100
NAMES = ('head', 'layer_01', 'layer_00', 'embed')  # groups 0, 1, 2, 3
STAGES = ((1, 1.0, 1.0, 1 / 3), (2, 1.0, 0.5, 1 / 3), (0, 0.0, 0.2, 0.1))


def params():
  rng = np.random.default_rng(0)
  leaf = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
  body = {name: {'kernel': leaf(3, 2), 'bias': leaf(2)} for name in ('embed', 'layer_00', 'layer_01', 'output')}
  return {'model': body, 'objective': {'block_0': {'kernel': leaf(2, 2)}}}


def depth(path):
  return {'embed': 0, 'layer_00': 1, 'layer_01': 2, 'output': 3}[path[0]]


def leaves(tree, name):
  if name == 'head':
    return jax.tree.leaves([tree['objective'], tree['model']['output']])
  return jax.tree.leaves(tree['model'][name])


def run(cfg, steps, start=0, state=None, values=None):
  """Parameters after each update, and the optimizer's state, with gradients that depend on the update."""
  values = params() if values is None else values
  tx = build.make(cfg, values, depth, N, TOTAL, EPOCH)
  state = tx.init(values) if state is None else state

  @jax.jit
  def update(values, state, step):
    grads = jax.tree.map(lambda x: jnp.sin(3.0 * x + step), values)
    change, state = tx.update(grads, state, values, step=step)
    return jax.tree.map(jnp.add, values, change), state

  seen = [values]
  for step in range(start, start + steps):
    values, state = update(values, state, jnp.int32(step))
    seen.append(values)
  return seen, state


DEFAULT = (('adamw', 'unfreeze_every'), ('sgd', 'stages'))


@pytest.mark.parametrize(
  ('optimizer', 'how'),
  [
    pytest.param(optimizer, how, marks=() if (optimizer, *how)[:2] in DEFAULT else pytest.mark.slow)
    for optimizer in ('adam', 'adamw', 'bert_adam', 'sgd')
    for how in ({'unfreeze_every': 1.0}, {'stages': STAGES, 'schedule': 'slanted_triangular'})
  ],
)
def test_frozen_group_does_not_move_at_all(optimizer, how):
  cfg = build.Config(optimizer=optimizer, lr=0.1, weight_decay=0.1, clip_norm=0.5, momentum=0.9, **how)
  seen, _ = run(cfg, 40)
  first = {'head': 0, 'layer_01': EPOCH, 'layer_00': 2 * EPOCH, 'embed': 2 * EPOCH if 'stages' in how else 3 * EPOCH}
  for name in NAMES:
    for step in range(40):
      for before, after in zip(leaves(seen[step], name), leaves(seen[step + 1], name), strict=True):
        same = np.asarray(before).tobytes() == np.asarray(after).tobytes()
        assert same == (step < first[name]), (name, step)


def test_chain_thaw_trains_one_group_at_a_time_and_then_all():
  """Felbo et al. 2017, section 3.3: the new layer, then each from the first on, then all."""
  stages = ((-1, 0.2, 1.0, 0.1), (-4, 0.2, 1.0, 0.1), (-3, 0.2, 1.0, 0.1), (-2, 0.2, 1.0, 0.1), (0, 0.0, 1.0, 0.1))
  seen, _ = run(build.Config(optimizer='adam', lr=0.1, schedule='slanted_triangular', stages=stages), 10)
  moves = lambda name, step: not all(map(jnp.array_equal, leaves(seen[step], name), leaves(seen[step + 1], name)))
  trained = [[name for name in NAMES if moves(name, step)] for step in range(0, 10, 2)]
  assert trained == [['head'], ['embed'], ['layer_00'], ['layer_01'], list(NAMES)]


@pytest.mark.parametrize('optimizer', ['adam', 'bert_adam', 'sgd'])
def test_unfrozen_group_starts_with_fresh_optimizer_state(optimizer):
  """Its moments and its count of updates are its own: the first update of Adam has the size of the rate."""
  cfg = build.Config(optimizer=optimizer, lr=0.1, b1=0.7, b2=0.99, momentum=0.9, unfreeze_every=1.0)
  gradual, _ = run(cfg, 30)
  plain = build.Config(optimizer=optimizer, lr=0.1, b1=0.7, b2=0.99, momentum=0.9)
  alone, _ = run(plain, 20, start=EPOCH)
  for i in range(20):
    for a, b in zip(leaves(gradual[EPOCH + i], 'layer_01'), leaves(alone[i], 'layer_01'), strict=True):
      np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_groups_trained_from_the_start_are_not_disturbed_by_those_that_join():
  with jax.disable_jit():  # operation by operation, so that two programs do not round differently
    plain, _ = run(build.Config(optimizer='adam', lr=0.1), 15)
    gradual, _ = run(build.Config(optimizer='adam', lr=0.1, unfreeze_every=1.0), 15)
  for a, b in zip(plain, gradual, strict=True):
    for x, y in zip(leaves(a, 'head'), leaves(b, 'head'), strict=True):
      np.testing.assert_array_equal(x, y)


def test_frozen_gradients_do_not_count_for_clipping():
  cfg = build.Config(optimizer='sgd', lr=1.0, clip_norm=0.1, unfreeze_every=1.0)
  seen, _ = run(cfg, 1)
  change = [np.asarray(b - a) for a, b in zip(leaves(seen[0], 'head'), leaves(seen[1], 'head'), strict=True)]
  assert np.sqrt(sum((x**2).sum() for x in change)) == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize('cut_at', [7, 10, 25])
def test_resume_needs_only_the_saved_state(cut_at):
  """Stopped and taken up again in the middle of a stage, a run is the run that went on, bit by bit."""
  cfg = build.Config(optimizer='adam', lr=0.1, weight_decay=0.1, unfreeze_every=1.0, layer_decay=1 / 2.6)
  whole, _ = run(cfg, 35)
  part, state = run(cfg, cut_at)
  rest, _ = run(cfg, 35 - cut_at, start=cut_at, state=jax.tree.map(np.asarray, state), values=part[-1])
  jax.tree.map(np.testing.assert_array_equal, rest[-1], whole[-1])


def test_slanted_triangle_is_equation_3():
  cfg = build.Config(lr=0.01, schedule='slanted_triangular', cut_fraction=0.1, ratio=32.0)
  rate = build.rate(cfg, 100, 10)
  for t in range(100):
    assert float(rate(t)) == pytest.approx(0.01 * ulmfit.stlr(t, 100, 0.1, 32.0), rel=1e-5)
  assert float(rate(0)) == pytest.approx(0.01 / 32) and float(rate(10)) == pytest.approx(0.01)


@pytest.mark.parametrize('how', ['every', 'stages'])
def test_rate_of_every_group_and_step(how):
  """With unit gradients and plain SGD an update is the rate itself."""
  fields = {'unfreeze_every': 1.0} if how == 'every' else {'stages': STAGES, 'ratio': 8.0}
  cfg = build.Config(optimizer='sgd', lr=0.01, layer_decay=1 / 2.6, schedule='slanted_triangular', **fields)
  values = params()
  tx, ones = build.make(cfg, values, depth, N, TOTAL, EPOCH), jax.tree.map(jnp.ones_like, values)
  update = jax.jit(lambda step: tx.update(ones, tx.init(values), values, step=step)[0])
  for t in range(TOTAL):
    change = update(jnp.int32(t))
    for group, name in enumerate(NAMES):
      if how == 'every':
        wanted = ulmfit.stlr(t, TOTAL, 0.1, 32.0) if group <= t // EPOCH else 0.0
      else:
        stage = min(t // EPOCH, 2)
        _, _, factor, cut = STAGES[stage]
        length = EPOCH if stage < 2 else TOTAL - 2 * EPOCH
        wanted = factor * ulmfit.stlr(t - stage * EPOCH, length, cut, 8.0) if group <= stage or stage == 2 else 0.0
      for x in leaves(change, name):
        np.testing.assert_allclose(x, -0.01 * wanted / 2.6**group, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'unfreeze_every': -1.0}, 'optim.unfreeze_every: got -1.0'),
    ({'stages': ((1, 1.0, 1.0, 0.1),)}, 'the last one must have 0 epochs'),
    ({'stages': ((1, 0.0, 1.0, 0.1), (0, 0.0, 1.0, 0.1))}, 'the last one must have 0 epochs'),
    ({'stages': ((1, 1.0, 1.0),)}, 'four numbers'),
    ({'stages': ((1, 0.0, 1.0, 1.5),)}, 'is out of range'),
    ({'stages': STAGES, 'schedule': 'constant'}, 'expected optim.schedule=slanted_triangular'),
    ({'stages': STAGES, 'unfreeze_every': 1.0}, 'and optim.unfreeze_every=0'),
  ],
)
def test_invalid_config_is_an_input_error(fields, message):
  with pytest.raises(InputError, match=message):
    build.Config(**{'schedule': 'slanted_triangular', **fields})


def test_metrics_of_each_group_are_its_rate_and_gradient_norm():
  cfg = build.Config(optimizer='adam', lr=0.5, schedule='constant', layer_decay=0.5, unfreeze_every=1.0)
  metrics = build.metrics_by_group(cfg, params(), depth, N, EPOCH)
  grads, names = params(), ('output_and_objective', 'layer_01', 'layer_00', 'embed')
  for step in (0, EPOCH):
    found = jax.jit(metrics)(grads, jnp.int32(step), jnp.float32(0.5))
    assert {*found} == {f'{metric}_of_{name}' for metric in ('lr', 'grad_norm') for name in names}
    for group, (name, label) in enumerate(zip(NAMES, names, strict=True)):
      is_trained = group < 1 + step // EPOCH
      assert found[f'lr_of_{label}'] == pytest.approx(0.5 * 0.5**group * is_trained)
      norm = np.sqrt(sum(np.sum(np.square(x)) for x in leaves(grads, name)))
      np.testing.assert_allclose(found[f'grad_norm_of_{label}'], norm, rtol=1e-6)
  assert build.metrics_by_group(build.Config(), params(), depth, N, EPOCH) is None
  groups = (('bias', 1.0, 0.0), ('.*', 1.0, 1.0))  # of the weight decay only
  assert build.metrics_by_group(build.Config(groups=groups), params(), depth, N, EPOCH) is None


def test_metrics_of_groups_are_equal_for_stacked_layers():
  values = params()
  values['model'] = {name: values['model'][name] for name in ('embed', 'layer_00', 'layer_01')}
  stacked = layout.Layout(stacked=True)
  cfg = build.Config(layer_decay=0.5, layer_decay_form='by_depth_of_biases')
  plain = build.metrics_by_group(cfg, values, depth, N, EPOCH)(values, jnp.int32(0), jnp.float32(1))
  other = build.metrics_by_group(cfg, values, depth, N, EPOCH, stacked)
  found = other(stacked.store(values), jnp.int32(0), jnp.float32(1))
  assert {*found} == {*plain} and len(plain) == 8
  for name, value in plain.items():
    np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)
