"""Operations against formulas, counts against papers, memory against what is really there."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from lmx import host, objectives
from lmx.engine import flops, peaks
from lmx.models import registry
from lmx.objectives import causal_lm
from lmx.types import Model, Objective, Output

LABELS = {
  'dataset': {'name': 'any'},
  'label_names': ['0', '1'],
  'token_label_names': ['B-x', 'I-x', 'O'],
  'spans': True,
}


def _task(name: str, variant: str = 'tiny', **changes) -> flops.Task:
  model = registry.get(name)
  return flops.Task(model, registry.config(name, variant, **changes), *objectives.default(model, LABELS))


def _shape(*sizes: int) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(sizes, jnp.float32)


def test_products_loops_and_branches():
  product = lambda a, b: a @ b
  a, b = _shape(3, 5), _shape(5, 5)
  assert flops.flops(product, a, b) == 2 * 3 * 5 * 5
  loop = lambda a, b: jax.lax.scan(lambda x, _: (x @ b, None), a, None, length=7)[0]
  assert flops.flops(loop, a, b) == 7 * 2 * 3 * 5 * 5
  branch = lambda a, b: jax.lax.cond(jnp.sum(a) > 0, lambda: a @ b, lambda: a @ b @ b)
  assert flops.flops(branch, a, b) == 2 * 2 * 3 * 5 * 5
  own_gradient = jax.custom_vjp(product)
  own_gradient.defvjp(lambda a, b: (product(a, b), None), lambda _, g: (g, g))
  own_tangent = jax.custom_jvp(product)
  own_tangent.defjvp(lambda primals, tangents: (product(*primals), tangents[0]))
  for wrapped in (jax.jit(product), jax.checkpoint(product), own_gradient, own_tangent):
    assert flops.flops(wrapped, a, b) == 2 * 3 * 5 * 5, wrapped
  batched = lambda a, b: jnp.einsum('BTD,BSD->BTS', a, b)
  assert flops.flops(batched, _shape(2, 4, 8), _shape(2, 6, 8)) == 2 * 2 * 4 * 6 * 8


def test_convolution():
  convolve = lambda x, w: jax.lax.conv_general_dilated(x, w, (1,), 'VALID', dimension_numbers=('NWC', 'WIO', 'NWC'))
  assert flops.flops(convolve, _shape(2, 10, 3), _shape(4, 3, 6)) == 2 * (2 * 7 * 6) * 4 * 3


def test_shard_map_function_counts_once_per_shard():
  mesh = jax.make_mesh((4, 2), ('a', 'b'), axis_types=(AxisType.Auto,) * 2)
  rows, whole = PartitionSpec('a'), PartitionSpec()
  sharded = jax.shard_map(lambda a, b: a @ b, mesh=mesh, in_specs=(rows, whole), out_specs=rows, axis_names={'a'})
  assert flops.flops(sharded, _shape(8, 5), _shape(5, 3)) == 2 * 8 * 5 * 3


def test_rematerialised_flops_are_counted():
  f = lambda w, x: jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ w))
  plain = flops.flops(jax.grad(f), _shape(5, 5), _shape(3, 5))
  again = flops.flops(jax.grad(jax.checkpoint(f)), _shape(5, 5), _shape(3, 5))
  assert plain == 5 * 150 and again > plain  # 2 forward, 2 for the weights, 1 for the inner input


def test_gpt2_flops_match_formula():
  task = _task('gpt2')
  cfg, T = task.cfg, 16
  # Per layer 4 D^2 (attention) + 8 D^2 (feed-forward), the scores and their sum 2 T D, and the output V D.
  multiply = cfg.N * (12 * cfg.D**2 + 2 * T * cfg.D) + cfg.V * cfg.D
  assert flops.flops_per_token(task, 2, T, training=False) == 2 * multiply
  assert flops.flops_per_token(task, 2, T, training=True) == pytest.approx(6 * multiply, rel=0.01)


@pytest.mark.parametrize(('cell', 'gates'), [('rnn', 1), ('gru', 3), ('lstm', 4)])
def test_rnn_flops_match_formula(cell, gates):
  task = _task('rnn_lm', cell=cell, E=16, D=16)
  multiply = task.cfg.N * gates * 2 * 16**2 + 16 * task.cfg.V
  assert flops.flops_per_token(task, 3, 5, training=False) == 2 * multiply
  assert flops.flops_per_token(task, 3, 5, training=True) == pytest.approx(6 * multiply, rel=0.01)


def test_convolution_flops_match_formula():
  """Of a pixel, as a pixel is a position of an image."""
  task = _task('cfnet', head='fcn', pool=False, auxiliary_width=0, blocks=(1, 1), widths=(4, 4), block='basic')
  task = dataclasses.replace(task, objective_cfg=dataclasses.replace(task.objective_cfg, auxiliary=0.0))
  # 7x7 of 3 to 6 channels at half the size; at a fourth 9 (6 x 4 + 4 x 4) and 6 x 4 of the shortcut; at an eighth
  # 9 (4 x 4 + 4 x 4) and 4 x 4, the head 9 (4 x 16), and the classifier 16 C; then the interpolation of C classes.
  C = task.objective_cfg.classes
  multiply = 49 * 18 / 4 + (9 * 40 + 24) / 16 + (9 * 32 + 16 + 9 * 64 + 16 * C) / 64
  multiply += C * (4 * 32 * 4 + 32 * 32 * 4) / 32**2  # 4 x 4 to 32 x 4, then to 32 x 32
  assert flops.flops_per_token(task, 3, 32, training=False) == 2 * multiply


def test_scan_over_layers_has_equal_flops():
  task = _task('gpt2')
  looped = dataclasses.replace(task, cfg=dataclasses.replace(task.cfg, scan=True))
  count = lambda task: flops.flops(jax.value_and_grad(task.loss), *task.arguments(2, 16))
  assert count(task) == count(looped)


@pytest.mark.parametrize('name', ['bert', 'gpt2', 'rnn_lm'])
def test_memory_counts_live_arrays(name):
  task = _task(name)
  params = task.shapes()
  found = flops.memory(task, 3, 8)
  bytes_of = lambda tree: sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
  assert found['parameters'] == found['gradients'] == bytes_of(params)
  assert found['optimizer'] == 2 * found['parameters']
  assert found['state'] == bytes_of(task.model.init_state(task.cfg, 3, 8))
  assert sum(count for _, _, count in flops.rows(params)) == flops.count(params) == bytes_of(params) // 4


class _Toy(Model):
  """tanh(x W) U, of which the backward pass needs the hidden layer alone."""

  HEADS = ()
  init = staticmethod(lambda cfg, key: {'w': jnp.zeros((5, 7)), 'u': jnp.zeros((7, 3))})
  init_state = staticmethod(lambda cfg, batch, length=0: ())


class _Squares(Objective):
  """Sum of what the toy puts out."""

  init = staticmethod(lambda cfg, model, model_cfg, key: {})
  shapes = staticmethod(lambda cfg, batch, length: causal_lm.shapes(causal_lm.Config(), batch, length))

  @staticmethod
  def loss(cfg, model, model_cfg, params, batch, state, key=None):
    x_BTD = jnp.broadcast_to(batch['weights_BT'][..., None], (*batch['weights_BT'].shape, 5))
    y = jnp.tanh(x_BTD @ params['model']['w']) @ params['model']['u']
    return Output({'nll': jnp.sum(y)}, {}, ())


def test_activation_memory_counts_residuals():
  # x (5 wide), tanh(x W) (7 wide) and nothing else; the parameters are counted elsewhere.
  assert flops.activations(flops.Task(_Toy(), None, _Squares(), None), 2, 4) in (4 * 2 * 4 * n for n in (12, 19))


def test_activation_memory_grows_with_batch_and_shrinks_with_remat():
  plain = flops.activations(_task('gpt2'), 4, 32)
  assert 1.9 < plain / flops.activations(_task('gpt2'), 2, 32) < 2.1
  assert flops.activations(_task('gpt2', remat='full'), 4, 32) < 0.8 * plain


def test_random_batches_fit_the_loss():
  for name in registry.names():
    task = _task(name)
    batch = flops.random_batch(task, 2, 8)
    shapes = task.arguments(2, 8)[1]
    assert {k: (v.shape, v.dtype) for k, v in batch.items()} == {k: (v.shape, v.dtype) for k, v in shapes.items()}
    assert jax.eval_shape(task.loss, task.shapes(), batch, task.model.init_state(task.cfg, 2)).shape == ()
    limits, V = {'positions': 8, 'images': 256}, getattr(task.cfg, 'V', 2)
    assert all(np.all((v >= 0) & (v < limits.get(k.split('_')[0], V))) for k, v in batch.items())


@pytest.mark.parametrize(
  ('kind', 'peak'),
  [
    ('NVIDIA H100 80GB HBM3', 989e12),
    ('NVIDIA H100 PCIe', 756e12),
    ('NVIDIA A100-SXM4-40GB', 312e12),
    ('TPU v5 lite', 197e12),
    ('TPU v5p', 459e12),
    ('TPU v4', 275e12),
    ('cpu', None),
  ],
)
def test_peak_flops_by_device(kind, peak):
  assert peaks.peak_flops(kind) == peak


def test_planned_memory_covers_arguments():
  compiled = jax.jit(lambda x: x + 1).lower(_shape(256, 256)).compile()
  assert flops.compiled_memory(compiled) >= 2 * 256 * 256 * 4
  assert host.process_peak() > 2**20
