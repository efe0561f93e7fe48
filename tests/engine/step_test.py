"""The step against its definition, on a toy model with a carried state and dropout; options against the plain step."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lmx import objectives
from lmx.engine import sharding
from lmx.engine import state as state_lib
from lmx.engine import step as step_lib
from lmx.errors import InputError
from lmx.optim import averaging, build
from lmx.types import Features, Model, Objective, Output
from tests import engine_cases

causal_lm = objectives.get('causal_lm')

V, D, ROWS, LENGTH = 23, 8, 16, 5
TRAIN_KEY = jax.random.key(7)


@dataclasses.dataclass(frozen=True)
class ToyConfig:
  """Dropout rate of the toy."""

  dropout: float = 0.0


def toy_init(cfg, key):
  del cfg
  keys = jax.random.split(key, 2)
  return {
    'embed': jax.random.normal(keys[0], (V, D)),
    'output': {'kernel': jax.random.normal(keys[1], (D, V)), 'bias': jnp.zeros(V)},
  }


def toy_apply(cfg, params, batch, state, key=None):
  x_BTD = jnp.tanh(params['embed'][batch['tokens_BT']] + state['h_BD'][:, None])
  if key is not None and cfg.dropout:
    x_BTD = x_BTD * jax.random.bernoulli(key, 1 - cfg.dropout, x_BTD.shape)
  return Features(x_BTD), {'h_BD': x_BTD[:, -1]}


def toy_logits(cfg, params, features):
  del cfg
  return features.last_BTD @ params['output']['kernel'] + params['output']['bias']


def toy_nll(cfg, params, features, targets_BT):
  return optax.softmax_cross_entropy_with_integer_labels(toy_logits(cfg, params, features), targets_BT)


def toy_state(cfg, rows, length=0):
  return {'h_BD': jnp.zeros((rows, D))}


def toy_depth(path):
  return 2 * (path[0] == 'output')


TOY = Model()
vars(TOY).update(init=toy_init, init_state=toy_state, apply=toy_apply, logits=toy_logits, nll=toy_nll)


@functools.cache
def toy_start():
  return jax.tree.map(np.asarray, jax.jit(functools.partial(toy_init, None))(jax.random.key(0)))


def batch(step=0):
  rng = np.random.default_rng(step)
  tokens = rng.integers(0, V, (ROWS, LENGTH + 1)).astype(np.int32)
  weights_BT = rng.integers(0, 2, (ROWS, LENGTH)).astype(np.float32)
  weights_BT[-3:] = 0.0
  return {'tokens_BT': tokens[:, :-1], 'targets_BT': tokens[:, 1:], 'weights_BT': weights_BT}


class Toy:
  """A compiled step and what it starts from."""

  def __init__(
    self, dropout=0.0, accumulate=1, engine=None, donate=False, reduction='tokens', has_groups=False, **optim
  ):
    self.cfg = build.Config(**({'optimizer': 'adamw', 'lr': 0.1, 'ema': 0.9} | optim))
    self.model_cfg = ToyConfig(dropout)
    self.engine = engine or sharding.Engine(sharding.Config(data=1), jax.devices()[:1])
    params = {'model': toy_start(), 'objective': {}}
    self.tx = build.make(self.cfg, params, toy_depth, 1, 10, 10)
    self.objective = (causal_lm, causal_lm.Config(reduction=reduction))
    create = lambda p: state_lib.create(p, self.tx, averaging.init(p, self.cfg.ema))
    self.state = self.engine.build(create, params)
    self.rows = self.engine.build_rows(lambda: TOY.init_state(None, ROWS), ROWS)
    step = step_lib.make_train_step(
      TOY,
      self.model_cfg,
      *self.objective,
      self.tx,
      build.rate(self.cfg, 10, 10),
      accumulate=accumulate,
      ema=self.cfg.ema,
      by_group=build.metrics_by_group(self.cfg, params, toy_depth, 1, 10) if has_groups else None,
    )
    self.step = self.engine.compile_train(step, self.state, donate=donate)
    self.key = self.engine.replicate(TRAIN_KEY)

  def run(self, *steps, state=None, rows=None, change=None):
    """Takes a step on each batch numbered; returns the state, the rows' state and the last metrics."""
    state, rows = state or self.state, rows or self.rows
    for i in steps:
      data = batch(i) | (change or {})
      state, rows, metrics = self.step(state, rows, self.engine.put_batch(data), self.key)
    return state, rows, metrics


@functools.cache
def plain_toy():
  """The toy without options, whose step is compiled once."""
  return Toy()


def equal(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)


def close(a, b, atol=1e-6):
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=atol), a, b)


def test_one_update_matches_the_mean_loss():
  toy = plain_toy()
  data = batch()

  def mean_loss(params):
    features, _ = toy_apply(toy.model_cfg, params['model'], data, TOY.init_state(None, ROWS))
    nll_BT = toy_nll(None, params['model'], features, data['targets_BT'])
    return jnp.sum(nll_BT * data['weights_BT']) / np.sum(data['weights_BT'])

  before = toy.state.params

  @jax.jit
  def update(before):
    loss, grads = jax.value_and_grad(mean_loss)(before)
    updates, _ = toy.tx.update(grads, toy.tx.init(before), before, step=0)
    return loss, optax.tree.norm(grads), optax.apply_updates(before, updates)

  loss, norm, expected = update(before)
  after, rows, metrics = toy.run(0)
  close(after.params, expected)
  np.testing.assert_allclose(metrics['loss'], loss, rtol=1e-6)
  np.testing.assert_allclose(metrics['grad_norm'], norm, rtol=1e-5)
  np.testing.assert_allclose(metrics['nll'][0] / metrics['nll'][1], loss, rtol=1e-6)
  assert metrics['nll'][1] == np.sum(data['weights_BT'])
  assert bool(metrics['finite']) and int(after.step) == 1
  assert float(jnp.abs(rows['h_BD']).max()) > 0


def test_metrics_by_group_change_no_bit():
  options = dict(dropout=0.5, layer_decay=0.5, layer_decay_form='by_depth_of_biases')
  without, _, _ = Toy(**options).run(0, 1)
  found, _, metrics = Toy(has_groups=True, **options).run(0, 1)
  equal(found, without)
  of_embed, of_output = metrics['grad_norm_of_embed'], metrics['grad_norm_of_output']
  np.testing.assert_allclose(np.hypot(of_embed, of_output), metrics['grad_norm'], rtol=1e-6)
  assert metrics['lr_of_embed'] == 0.25 * metrics['lr'] and metrics['lr_of_output'] == metrics['lr']


def test_average_follows_the_parameters():
  toy = plain_toy()
  first, rows, _ = toy.run(0)
  second, _, _ = toy.run(1, state=first, rows=rows)
  wanted = jax.tree.map(lambda a, b: (0.9 * a + b) / 1.9, first.params, second.params)
  close(averaging.value(second.ema, second.params), wanted)


def test_lr_scale_scales_update_and_metric():
  toy = Toy(optimizer='sgd', schedule='linear')
  half = dataclasses.replace(toy.state, lr_scale=toy.engine.replicate(np.float32(0.5)))
  whole, _, metrics = toy.run(0)
  scaled, _, scaled_metrics = toy.run(0, state=half)
  move = jax.tree.map(jnp.subtract, whole.params, toy.state.params)
  close(jax.tree.map(jnp.subtract, scaled.params, toy.state.params), jax.tree.map(lambda x: x / 2, move))
  assert (float(metrics['lr']), float(scaled_metrics['lr'])) == pytest.approx((0.1, 0.05))


@functools.cache
def selecting_toy():
  """A toy as on several devices and accelerators: each number is selected from the updates and what was before."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(step_lib.devices, 'is_one_device', lambda platform: False)
    toy = Toy()
    toy.run(0)  # traces the step
  return toy


def test_one_cpu_update_matches_other_devices():
  seen = []
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(jax.lax, 'cond', lambda *args, cond=jax.lax.cond: seen.append(1) or cond(*args))
    found = Toy().run(0, 1)
    assert seen
    seen.clear()
    expected = selecting_toy().run(0, 1)
  assert not seen
  equal((found[0].params, found[0].opt_state, found[1]), (expected[0].params, expected[0].opt_state, expected[1]))


@pytest.mark.parametrize('make', [plain_toy, selecting_toy])
@pytest.mark.parametrize('where', ['loss', 'gradient'])
def test_non_finite_update_is_skipped(where, make):
  toy = make()
  state, rows, _ = toy.run(0, 1)
  weights_BT = batch(2)['weights_BT']
  # The second overflows only in the square of the gradient's norm.
  weights_BT[0, 0] = np.nan if where == 'loss' else 1.0
  change = {'weights_BT': weights_BT}
  if where == 'gradient':
    model = state.params['model']
    output = {'kernel': model['output']['kernel'] * 1e25, 'bias': jnp.zeros(V)}
    state = state.replace(params={'model': model | {'output': output}, 'objective': {}})
  after, rows_after, metrics = toy.run(2, state=state, rows=rows, change=change)
  assert not bool(metrics['finite'])
  assert bool(jnp.isfinite(metrics['loss'])) == (where == 'gradient')
  equal((after.params, after.opt_state, after.ema), (state.params, state.opt_state, state.ema))
  equal(rows_after, rows)
  assert int(after.step) == int(state.step) + 1


def test_empty_batch_has_no_loss():
  _, _, metrics = plain_toy().run(0, change={'weights_BT': np.zeros((ROWS, LENGTH), np.float32)})
  assert float(metrics['loss']) == 0.0 and bool(metrics['finite'])


def test_accumulation_equals_one_step():
  plain, split = plain_toy().run(0, 1, 2), Toy(accumulate=4).run(0, 1, 2)
  close(split[0].params, plain[0].params)
  close(split[1], plain[1])  # the rows' state comes back in order
  close(split[2], plain[2], atol=1e-4)


def test_statistics_ignore_padding_rows():
  """Of microbatches of 2, 1 and no rows."""

  def gradient(params, weights, data, rows, key):
    return params, jnp.float32(0), {}, rows, {'mean': data['x_B'][0] * jnp.ones(2)}

  data = {'index_B': jnp.array([0, 1, -1, 3, -1, -1]), 'x_B': jnp.array([3.0, 6.0, 100.0, 3.0, 6.0, 100.0])}
  *_, found = step_lib._accumulate(gradient, 3, None, {}, {}, data, {}, TRAIN_KEY)
  np.testing.assert_allclose(found['mean'], [4.0, 4.0])


def test_row_r_is_in_microbatch_r_mod_k():
  seen = []

  def gradient(params, weights, data, rows, key):
    seen.append(data['tokens_BT'].shape)
    return params, jnp.float32(0), {'first': data['index_B'][0]}, {'h_BD': data['index_B'] * 10}, None

  index_B = jnp.arange(ROWS)
  data = {'index_B': index_B, 'tokens_BT': jnp.zeros((ROWS, LENGTH))}
  _, _, metrics, rows, _ = step_lib._accumulate(gradient, 4, None, {}, {}, data, {'h_BD': jnp.zeros(ROWS)}, TRAIN_KEY)
  assert set(seen) == {(4, LENGTH)}
  assert int(metrics['first']) == 0 + 1 + 2 + 3
  np.testing.assert_array_equal(rows['h_BD'], index_B * 10)


def test_dropout_differs_by_step_and_microbatch_and_not_by_run():
  toy = Toy(dropout=0.5)
  later = dataclasses.replace(toy.state, step=jnp.int32(1))
  losses = [float(toy.run(0, state=s)[2]['loss']) for s in (toy.state, toy.state, later)]
  assert losses[0] == losses[1] != losses[2]
  # Two microbatches of equal rows: with one mask for both, their sums would be equal.
  twice = {k: np.repeat(v[: ROWS // 2], 2, axis=0) for k, v in batch(0).items()}
  _, rows, _ = Toy(dropout=0.5, accumulate=2).run(0, change=twice)
  assert np.abs(rows['h_BD'][0::2] - rows['h_BD'][1::2]).max() > 0.1


def test_dropout_does_not_depend_on_the_device_count_under_jit():
  one = Toy(dropout=0.5).run(0, 1)
  eight = Toy(dropout=0.5, engine=sharding.Engine(sharding.Config())).run(0, 1)
  close(one[0].params, eight[0].params)


def test_dropout_differs_between_devices_under_pmap():
  toy = Toy(dropout=0.5, engine=sharding.Engine(sharding.Config('pmap')))
  same = {k: np.repeat(v[:1], ROWS, axis=0) for k, v in batch(0).items()}
  state, rows, _ = toy.run(0, change=same)
  _, rows = toy.engine.to_global(state, rows, ROWS)
  assert len(np.unique(np.asarray(rows['h_BD'])[::2], axis=0)) == 8


def test_accumulation_under_pmap_uses_the_same_rows():
  plain = plain_toy().run(0, 1)
  toy = Toy(accumulate=2, engine=sharding.Engine(sharding.Config('pmap')))
  state, rows, _ = toy.run(0, 1)
  state, rows = toy.engine.to_global(state, rows, ROWS)
  close(state.params, plain[0].params)
  close(rows, plain[1])


@pytest.mark.parametrize('mode', ['jit', 'pmap'])
def test_donation_frees_the_old_state_and_changes_nothing(mode):
  engine = sharding.Engine(sharding.Config(mode))
  kept, given = Toy(engine=engine), Toy(engine=engine, donate=True)
  old = given.state
  close(given.run(0, 1)[0].params, kept.run(0, 1)[0].params, atol=0)
  assert old.params['model']['embed'].is_deleted()
  assert not kept.state.params['model']['embed'].is_deleted()


@pytest.mark.parametrize('mode', ['jit', 'pmap'])
def test_batch_missing_objective_inputs_is_rejected(mode):
  toy = Toy(engine=sharding.Engine(sharding.Config(mode)))
  evaluate = toy.engine.compile_eval(step_lib.make_eval_step(TOY, toy.model_cfg, *toy.objective))
  part = toy.engine.put_batch({k: x for k, x in batch().items() if k != 'weights_BT'})
  for run in (lambda: toy.step(toy.state, toy.rows, part, toy.key), lambda: evaluate(toy.state.params, toy.rows, part)):
    with pytest.raises(InputError, match='data.batching: got .*"weights_BT"'):
      run()
  whole = toy.engine.put_batch(batch())
  with pytest.raises(KeyError, match='output'):  # of the parameters: a mistake in the code
    evaluate({'model': {'embed': toy.state.params['model']['embed']}, 'objective': {}}, toy.rows, whole)


def test_evaluation_has_no_dropout_and_changes_no_parameter():
  toy = Toy(dropout=0.5)
  step = toy.engine.compile_eval(step_lib.make_eval_step(TOY, toy.model_cfg, *toy.objective))
  found, rows = step(toy.state.params, toy.rows, batch())
  plain, _ = step_lib.make_eval_step(TOY, ToyConfig(0.0), *toy.objective)(toy.state.params, toy.rows, batch())
  np.testing.assert_allclose(found['nll'], plain['nll'], rtol=1e-6)
  assert float(found['nll'][1]) == np.sum(batch()['weights_BT'])
  assert float(jnp.abs(rows['h_BD']).max()) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'change'),
  [
    ('gpt2', {'remat': 'full'}),
    ('transformer_xl', {'remat': 'attention'}),
    ('transformer_xl', {'remat': 'dots', 'scan': True}),
    ('gpt2', {'scan': True}),
    ('rnn_lm', {'remat': True}),
  ],
)
def test_rematerialisation_and_scan_change_nothing(name, change):
  found = engine_cases.train(name, sharding.Config(data=1), devices=1, model=change)
  assert engine_cases.deviation(engine_cases.one_device(name), engine_cases.flat(found)) < 1e-5


@pytest.mark.slow
def test_bfloat16_is_finite_and_close():
  name = 'gpt2'
  found = engine_cases.train(name, sharding.Config(data=1), devices=1, model={'dtype': 'bfloat16'})
  wanted = engine_cases.one_device(name)["['losses']"]
  assert all(x.dtype == np.float32 and np.isfinite(x).all() for x in jax.tree.leaves(found['params']))
  np.testing.assert_allclose(found['losses'], wanted, atol=0.02)
  assert not np.array_equal(found['losses'], wanted)


@pytest.mark.parametrize(
  ('name', 'mode', 'devices', 'groups', 'lengths'),
  [
    ('transformer', 'jit', 1, 4, (10,)),
    *(
      pytest.param(*case, (3, 10, 11), marks=pytest.mark.slow)
      for case in (
        ('transformer', 'jit', 1, 4),
        ('bilstm', 'jit', 1, 4),
        ('bidaf', 'jit', 1, 4),
        ('gpt', 'jit', 2, 4),
        ('gpt', 'pmap', 2, 4),
        ('ulmfit', 'pmap', 2, 1),
      )
    ),
  ],
)
def test_length_groups_change_nothing(name, mode, devices, groups, lengths):
  """A source that may be the longer side; labels and characters of each place; two sequences a row with an auxiliary
  loss; batch normalisation, for which all devices must take the same length."""
  cfg = sharding.Config(mode, data=devices)
  found = engine_cases.train(name, cfg, devices=devices, lengths=lengths, optim={'accumulate': groups})
  wanted = {k: v for k, v in engine_cases.one_device(name).items() if not k.startswith("['eval']")}
  assert engine_cases.deviation(wanted, engine_cases.flat(found)) < 1e-5


@pytest.mark.parametrize(('groups', 'devices'), [(1, 1), (2, 1), (4, 1), (1, 2), (4, 2)])
def test_each_group_is_as_long_as_its_longest_row_needs(groups, devices):
  """On any of the devices, as there may be sums over them on the way."""
  sizes_B = np.random.default_rng(3).permutation([1, 2, 3, 3, 4, 5, 5, 6, 7, 8, 9, 9, 9, 10, 12, 12])
  lengths, T = (4, 8, 9, 40), 12
  rows = {'valid_BGT': np.arange(T) < np.stack([sizes_B, sizes_B // 2], 1)[:, :, None], 'number_B': np.arange(16)}
  rows['tokens_BGT'] = np.where(rows['valid_BGT'], 7, 0)

  def loss(cfg, model, model_cfg, params, batch, state, key):
    tokens = batch['tokens_BGT']
    places = jnp.full(len(tokens), tokens.shape[2])
    metrics = {'kept': jnp.sum(tokens == 7), 'places': jnp.sum(places), 'numbers': jnp.sum(batch['number_B'])}
    return Output({'nll': params['w'] * 1.0}, metrics, state)

  objective = Objective()
  vars(objective).update(__name__='objective', loss=loss, weights=lambda cfg, batch: {'nll': jnp.ones(())})
  params = {'w': jnp.ones(())}
  options = build.Config(lr=0.1)
  tx = build.make(options, params, lambda path: 0, 1, 10, 10)
  update = step_lib.make_train_step(
    TOY, None, objective, causal_lm.Config(), tx, build.rate(options, 10, 10), accumulate=groups, lengths=lengths
  )
  start = state_lib.create(params, tx, None)
  rows = jax.tree.map(jnp.asarray, rows)
  if devices == 1:
    _, _, metrics = jax.jit(update)(start, (), rows, TRAIN_KEY)
  else:
    shares = jax.tree.map(lambda x: x.reshape((devices, -1) + x.shape[1:]), rows)
    every = jax.pmap(functools.partial(update, axis='data'), axis_name='data', in_axes=(None, None, 0, None))
    metrics = jax.tree.map(lambda x: x[0], every(start, (), shares, TRAIN_KEY)[2])
  parts = np.split(np.sort(sizes_B.reshape(devices, -1)), groups, axis=1)
  wanted = sum(part.size * next(n for n in (4, 8, 9, 12) if n >= part.max()) for part in parts)
  assert int(metrics['places']) == wanted
  found = step_lib.microbatch_shapes(rows, groups, lengths, devices)
  assert sum(n * length for n, length in found) == wanted and len(found) == groups
  assert int(metrics['kept']) == rows['valid_BGT'].sum() and int(metrics['numbers']) == 120


def test_accumulation_of_a_real_model_with_two_denominators():
  found = engine_cases.train('bert', sharding.Config(data=2), devices=2, optim={'accumulate': 4})
  assert engine_cases.deviation(engine_cases.one_device('bert'), engine_cases.flat(found)) < 1e-5
