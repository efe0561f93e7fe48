"""One device = eight devices under jit = eight under pmap = parameters in pieces; and what the layout refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.checkpoint import manager
from lmx.engine import distributed, sharding, state
from lmx.errors import InputError
from lmx.kernels import softmax_loss
from lmx.optim import averaging
from tests import engine_cases

MODELS = sorted(engine_cases.SIZES)
# By default: a carried state, two terms; under jit an average and penalties too. `slow` has all.
ON_EIGHT = {
  'jit': ('rnn_lm', 'awd_lstm', 'bert'),
  'pmap': ('rnn_lm', 'bert'),
}
IN_PIECES = ('rnn_lm', 'bert')


def models(default: tuple[str, ...], *more: str):
  return [pytest.param(name, *more, marks=() if name in default else pytest.mark.slow) for name in MODELS]


TOLERANCE = 1e-5


@pytest.mark.parametrize('name,mode', [case for mode, names in ON_EIGHT.items() for case in models(names, mode)])
def test_eight_devices_match_one_device(name, mode):
  found = engine_cases.flat(engine_cases.train(name, sharding.Config(mode), evaluate=name == 'rnn_lm'))
  assert engine_cases.deviation(engine_cases.one_device(name), found) < TOLERANCE


def test_gradients_reduced_in_bfloat16_match_float32_rounded():
  """By an update of plain SGD at rate 1."""
  optim = dict(optimizer='sgd', lr=1.0, weight_decay=0.0, ema=0.0, schedule='constant', warmup_steps=0)
  start = jax.tree.leaves(engine_cases.start('gpt2'))
  exact, rounded = (
    jax.tree.leaves(engine_cases.train('gpt2', sharding.Config(reduce_dtype=dtype), optim=optim, steps=1)['params'])
    for dtype in ('float32', 'bfloat16')
  )
  for before, a, b in zip(start, exact, rounded, strict=True):
    change, error = np.linalg.norm(a - before), np.linalg.norm(a - b)
    assert 0 < error < 2**-8 * change


def test_losses_with_fsdp_gradients_reduced_in_bfloat16_match_float32():
  model = {'N': 1, 'tied': False, 'dtype': 'bfloat16'}
  start = engine_cases.start('gpt2', **model)
  optim = dict(optimizer='sgd', lr=0.5, weight_decay=0.0, ema=0.0, schedule='constant', warmup_steps=0)
  exact, rounded = (
    engine_cases.train('gpt2', sharding.Config(data=2, fsdp=4, reduce_dtype=x), first=start, model=model, optim=optim)
    for x in ('float32', 'bfloat16')
  )
  assert rounded['sharded'] == exact['sharded'] and rounded['losses'][0] == exact['losses'][0]
  np.testing.assert_allclose(rounded['losses'], exact['losses'], rtol=0, atol=5e-4)
  trees = start, exact['params'], rounded['params']
  for before, a, b in zip(*map(jax.tree.leaves, trees), strict=True):
    change, error = np.linalg.norm(a - before), np.linalg.norm(a - b)
    assert 0 < error < 2**-7 * change


@pytest.mark.parametrize('name', models(IN_PIECES))
def test_sharded_parameters_equal_unsharded(name):
  result = engine_cases.train(name, sharding.Config(data=2, fsdp=2, tensor=2))
  assert engine_cases.deviation(engine_cases.one_device(name), engine_cases.flat(result)) < TOLERANCE
  moments = [path for path in result['sharded'] if path.startswith('[1]')]
  assert len(result['sharded']) >= 6 and len(moments) >= len(result['sharded']) / 2


@pytest.mark.parametrize(
  'mesh', [pytest.param({'tensor': 2}, marks=pytest.mark.slow), {'fsdp': 2, 'tensor': 4}], ids=str
)
def test_loss_of_vocabulary_shards_equals_one_device(mesh, monkeypatch):
  monkeypatch.setattr(softmax_loss, 'CPU_CHUNK', 16)  # in several chunks
  found = engine_cases.flat(engine_cases.train('gpt2', sharding.Config(**mesh)))
  assert engine_cases.deviation(engine_cases.one_device('gpt2'), found) < TOLERANCE


def shapes():
  params = {'model': {'layer_00': {'kernel': jnp.zeros((64, 128)), 'bias': jnp.zeros(128), 'odd': jnp.zeros((63, 65))}}}
  return {'params': params, 'opt_state': ({'mu': params}, jnp.zeros((), jnp.int32)), 'step': jnp.zeros(())}


def specs(cfg, devices=8):
  engine = sharding.Engine(cfg, jax.devices()[:devices])
  found = engine.shardings(shapes())
  return {jax.tree_util.keystr(p): s.spec for p, s in jax.tree_util.tree_leaves_with_path(found)}


def test_fsdp_shards_the_largest_divisible_axis():
  found = specs(sharding.Config(data=1, fsdp=8))
  kernel = "['model']['layer_00']['kernel']"
  assert found[f"['params']{kernel}"] == sharding.PartitionSpec(None, 'fsdp')
  assert found[f"['opt_state'][0]['mu']{kernel}"] == sharding.PartitionSpec(None, 'fsdp')
  for whole in ('bias', 'odd'):
    assert not any(found[f"['params']['model']['layer_00']['{whole}']"])
  small = specs(sharding.Config(data=1, fsdp=8, min_size=64 * 128 + 1))
  assert not any(small[f"['params']{kernel}"])


def test_sharding_rules_take_precedence_and_must_divide():
  rules = ((r'^model/layer_\d+/kernel$', ('tensor', None)),)
  found = specs(sharding.Config(data=1, fsdp=4, tensor=2, rules=rules))
  for where in ("['params']", "['opt_state'][0]['mu']"):
    assert found[f"{where}['model']['layer_00']['kernel']"] == sharding.PartitionSpec('tensor', None)
  for rules, message in (
    ((('nothing', ('fsdp',)),), 'not the first match of any parameter'),
    ((('odd', ('tensor',)),), 'does not divide 63'),
    ((('bias', (None, 'tensor')),), 'has 2 dimensions'),
  ):
    with pytest.raises(InputError, match=message):
      specs(sharding.Config(data=1, fsdp=4, tensor=2, rules=rules))


def test_rules_of_stacked_layers_apply_to_every_layer():
  state = {'model': {'layers_00_02': {'kernel': jax.ShapeDtypeStruct((3, 64, 128), np.float32)}}, 'objective': {}}
  config = lambda regex: sharding.Config(data=1, fsdp=4, tensor=2, rules=((regex, ('tensor', None)),))
  found = sharding.Engine(config(r'layer_\d+/kernel')).shardings(state)['model']['layers_00_02']['kernel']
  assert found.spec == sharding.PartitionSpec(None, 'tensor', None)
  with pytest.raises(InputError, match='a rule for model/layer_01/kernel'):
    sharding.Engine(config('layer_01/kernel')).shardings(state)


@pytest.mark.parametrize(('cfg', 'devices'), [({}, 8), ({'mode': 'pmap'}, 8), ({'fsdp': 2, 'tensor': 4}, 2)])
def test_indivisible_rows_are_padded(cfg, devices):
  engine = sharding.Engine(sharding.Config(**cfg))
  for rows in (0, devices - 1, 4 * devices + 1):
    with pytest.raises(InputError, match=f'got {rows} rows'):
      engine.process_rows(rows)


@pytest.mark.parametrize('mode', ['jit', 'pmap'])
def test_checkpoint_has_no_padding_rows(mode):
  """The state of 6 rows that 8 devices pad to 8, sharded by the first axis that they divide, else whole."""
  engine = sharding.Engine(sharding.Config(mode=mode))
  create = lambda: {'a': 1.0 + jnp.arange(8 * 16).reshape(8, 16), 'b': 1.0 + jnp.arange(8)}
  _, stored = engine.to_global((), engine.build_rows(create, 8), 6)
  jax.tree.map(np.testing.assert_array_equal, stored, jax.tree.map(lambda x: x[:6], create()))
  _, shapes = engine.abstract((), stored)
  for name, axes in (('a', (None, ('data', 'fsdp'))), ('b', ())):
    assert shapes[name].sharding.spec == sharding.PartitionSpec(*axes)
    assert stored[name].sharding.is_equivalent_to(shapes[name].sharding, stored[name].ndim)
  _, again = engine.to_global(*engine.from_global((), stored, 8), 8)
  for name, x in create().items():
    np.testing.assert_array_equal(again[name], np.where(np.arange(8).reshape((8,) + (1,) * (x.ndim - 1)) < 6, x, 0))


def test_single_process_owns_all_rows():
  for cfg in (sharding.Config(), sharding.Config('pmap'), sharding.Config(fsdp=2, tensor=4)):
    assert sharding.Engine(cfg).process_rows(16) == slice(0, 16)


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'mode': 'pjit'}, 'parallel.mode: got "pjit"'),
    ({'mode': 'pmap', 'fsdp': 2}, 'parallel.mode: got'),
    ({'mode': 'pmap', 'tensor': 2}, 'parallel.mode: got'),
    ({'fsdp': 0}, 'parallel.fsdp: got 0'),
    ({'data': 0}, 'parallel.data: got 0'),
    ({'rules': (('.*', ('model',)),)}, 'unknown axis "model"'),
    ({'reduce_dtype': 'bf16'}, 'parallel.reduce_dtype: unknown "bf16"'),
    ({'reduce_dtype': 'bfloat16', 'tensor': 2}, 'parallel.reduce_dtype: got "bfloat16"'),
  ],
)
def test_invalid_config_is_an_input_error(fields, message):
  with pytest.raises(InputError, match=message):
    sharding.Config(**fields)


@pytest.mark.parametrize(
  ('fields', 'sizes'),
  [
    ({}, (8, 1, 1)),
    ({'fsdp': -1}, (1, 8, 1)),
    ({'fsdp': -1, 'tensor': 2}, (1, 4, 2)),
    ({'data': 2, 'fsdp': -1}, (2, 4, 1)),
    ({'data': 2, 'fsdp': 2}, (2, 2, 1)),
  ],
)
def test_axis_of_minus_one_takes_remaining_devices(fields, sizes):
  engine = sharding.Engine(sharding.Config(**fields))
  assert tuple(engine.mesh.shape.values()) == sizes and engine.row_shards == sizes[0] * sizes[1]


@pytest.mark.parametrize(
  ('fields', 'sizes'), [({}, (8, 1, 1)), ({'fsdp': -1}, (2, 4, 1)), ({'fsdp': 2, 'tensor': 2}, (2, 2, 2))]
)
def test_slices_are_along_data(fields, sizes, monkeypatch):
  monkeypatch.setattr(sharding, '_slice', lambda device: device.id % 2)
  devices = sharding.Engine(sharding.Config(**fields)).mesh.devices
  assert devices.shape == sizes
  halves = devices[: sizes[0] // 2], devices[sizes[0] // 2 :]
  assert [[device.id for device in half.flat] for half in halves] == [[0, 2, 4, 6], [1, 3, 5, 7]]
  with pytest.raises(InputError, match='parallel.data: got'):
    sharding.Engine(sharding.Config(data=1, fsdp=-1))


def test_host_rows_are_contiguous():
  """TPUs are numbered along the slice, not by host: here two hosts of 2 x 2 chips in a slice of 2 x 4."""

  class Chip:
    platform = 'tpu'

    def __init__(self, number: int, host: int):
      self.id, self.process_index = number, host

  chips = [Chip(number, host) for number, host in enumerate((0, 0, 1, 1, 0, 0, 1, 1))]
  mesh = sharding._mesh('jit', chips, (2, 4, 1))
  assert [chip.process_index for chip in mesh.devices.flat] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_optimizer_state_and_average_are_sharded_over_data():
  """Parameters are not: every device computes with all of them."""
  leaf = jax.ShapeDtypeStruct((64, 48), np.float32)
  odd, small = jax.ShapeDtypeStruct((9, 1001), np.float32), jax.ShapeDtypeStruct((8,), np.float32)
  tree = {'model': {'kernel': leaf, 'odd': odd, 'bias': small}}
  average = averaging.Average(tree, jax.ShapeDtypeStruct((), np.float32))
  train_state = state.TrainState(jax.ShapeDtypeStruct((), np.int32), tree, (tree, tree), average, small)
  of = lambda tree: {name: x.spec for name, x in tree['model'].items()}
  for cfg, kernel, moment in (
    (dict(), (None, None), ('data', None)),
    (dict(shard_optimizer=False), (None, None), (None, None)),
    (dict(data=2, fsdp=4), ('fsdp', None), (('fsdp', 'data'), None)),
  ):
    placed = sharding.Engine(sharding.Config(**cfg)).shardings(train_state)
    same = lambda spec, axes: tuple(spec) + (None,) * (2 - len(spec)) == axes
    assert same(of(placed.params)['kernel'], kernel)
    assert tuple(placed.ema.weight.spec) == ()
    for moments in (*placed.opt_state, placed.ema.mean):
      assert same(of(moments)['kernel'], moment)
      assert same(of(moments)['odd'], (None, None)) and same(of(moments)['bias'], (None, None))


@pytest.mark.parametrize('is_sharded', [False, True])
def test_average_is_restored_in_either_sharding(is_sharded, tmp_path):
  """From a checkpoint with a replicated average to a sharded one and the reverse; evaluated values are bit-equal."""
  kernel = jax.random.normal(jax.random.key(0), (64, 48))
  make = lambda kernel: averaging.Average({'model': {'kernel': kernel, 'bias': kernel[0]}}, jnp.float32(0.5))
  create = lambda kernel: state.TrainState(jnp.int32(1), make(kernel).mean, (), make(kernel), jnp.float32(1))
  saving, reading = (sharding.Engine(sharding.Config(shard_optimizer=x)) for x in (is_sharded, not is_sharded))
  saved = saving.build(create, kernel)
  with manager.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(1, saving.to_global(saved, (), 0), {})
    abstract = reading.abstract(jax.eval_shape(create, kernel), ())
    (restored, _), _, _ = checkpoints.restore(abstract)
  replicated = [x.ema.mean['model']['kernel'].sharding.is_fully_replicated for x in (saved, restored)]
  assert replicated == [not is_sharded, is_sharded]
  for engine, found in ((saving, saved), (reading, restored)):
    params = engine.gather_average(averaging.value(found.ema, found.params))
    for name, x in make(2 * kernel).mean['model'].items():  # divided by the weight
      assert params['model'][name].sharding.is_fully_replicated
      np.testing.assert_array_equal(params['model'][name], x)


@pytest.mark.parametrize('fields', [{'data': 9}, {'fsdp': 3}, {'tensor': 16}])
def test_mismatched_mesh_axes_are_rejected(fields):
  with pytest.raises(InputError, match='but there are 8'):
    sharding.Engine(sharding.Config(**fields))


def test_initialize_rejects_partial_settings(monkeypatch):
  for name in ('LMX_COORDINATOR', 'LMX_NUM_PROCESSES', 'LMX_PROCESS_ID'):
    monkeypatch.delenv(name, raising=False)
  assert not distributed.initialize()
  monkeypatch.setenv('LMX_COORDINATOR', 'localhost:1')
  monkeypatch.setenv('LMX_NUM_PROCESSES', 'two')
  with pytest.raises(InputError, match="LMX_NUM_PROCESSES: got 'two'"):
    distributed.initialize()
