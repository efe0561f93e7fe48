"""Blocks against the restatement; the stack's loops, recomputation and cache against the plain stack."""

from __future__ import annotations

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers import kv_cache, transformer
from lmx.layers.block import Block
from lmx.layers.transformer import Init
from lmx.ops import dense
from lmx.ops.masks import AttentionMask
from tests import drawn
from tests.reference import transformer as reference

B, T, D, H = 2, 9, 16, 4


def make(norm='pre', causal=True, kind='normal', std=0.4, residual_std=0.3, hidden=24, activation='gelu_tanh', **rates):
  init = Init(kind, std, residual_std)
  attention = transformer.SelfAttention(H, init, causal=causal, rate=rates.get('attention_rate', 0.0))
  mlp = transformer.Mlp(hidden, activation, init, rate=rates.get('hidden_rate', 0.0))
  return Block(attention, mlp, norm, 1e-5, rates.get('residual_rate', 0.0))


def draw(block, layers=2):
  """Parameters of layers, in which every term counts, and their input."""
  params = [drawn.params(transformer.init_block, block, D, std=0.3, seed=i) for i in range(layers)]
  return params, np.random.default_rng(9).standard_normal((B, T, D), np.float32)


@functools.partial(jax.jit, static_argnames=('block', 'scan', 'remat'))
def run_stack(block, params, x_BTD, key=None, **options):
  return transformer.stack(block, params, x_BTD, AttentionMask(), key=key, **options)[0]


def test_layer_norm_matches_reference_far_from_zero():
  x = 50.0 + np.random.default_rng(0).standard_normal((B, T, D), np.float32)
  params = {'scale': np.linspace(0.5, 2, D), 'bias': np.linspace(-1, 1, D)}
  found = jax.jit(dense.layer_norm, static_argnums=3)(x, params['scale'], params['bias'], 1e-5)
  np.testing.assert_allclose(found, reference.layer_norm(np.asarray(x, np.float64), params, 1e-5), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('form', ['tanh', 'erf', 'sigmoid'])
def test_gelu_matches_reference(form):
  x = np.linspace(-6, 6, 101)
  found = jax.jit(transformer.ACTIVATIONS[f'gelu_{form}'])(x)
  np.testing.assert_allclose(found, reference.gelu(x, form), rtol=1e-5, atol=1e-6)


def test_deviations_by_fan_in():
  block = make(hidden=1600, kind='fan_in', std=0.5, residual_std=0.25)
  init = jax.jit(transformer.init_block, static_argnums=(0, 1))
  params = jax.device_get(init(block, 256, jax.random.key(0)))
  wanted = {
    ('attention', 'qkv'): 0.5 / 16,
    ('attention', 'out'): 0.25 / 16,
    ('mlp', 'in'): 0.5 / 16,
    ('mlp', 'out'): 0.25 / 40,
  }
  for (part, name), std in wanted.items():
    assert np.std(params[part][name]['kernel']) == pytest.approx(std, rel=0.02), (part, name)


@pytest.mark.parametrize('norm,causal', [('pre', True), ('post', False)])
def test_block_matches_reference(norm, causal):
  block = make(norm=norm, causal=causal)
  (params,), x_BTD = draw(block, 1)
  found, _ = jax.jit(block.apply)({'params': params}, x_BTD, AttentionMask())
  p = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
  valid_T = np.ones(T, bool)
  for b in range(B):
    x = np.asarray(x_BTD[b], np.float64)
    if norm == 'pre':
      x = x + reference.attention(reference.layer_norm(x, p['norm_1'], 1e-5), p['attention'], causal, valid_T)
      x = x + reference.mlp(reference.layer_norm(x, p['norm_2'], 1e-5), p['mlp'], 'tanh')
    else:
      x = reference.layer_norm(x + reference.attention(x, p['attention'], causal, valid_T), p['norm_1'], 1e-5)
      x = reference.layer_norm(x + reference.mlp(x, p['mlp'], 'tanh'), p['norm_2'], 1e-5)
    np.testing.assert_allclose(found[b], x, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_scan_and_remat_change_nothing():
  """Neither values nor gradients; both together are tried on layers with a source."""
  block = make(attention_rate=0.2, residual_rate=0.2, std=0.2, residual_std=0.1)
  params, x_BTD = draw(block)
  weight_BTD = np.random.default_rng(3).standard_normal(x_BTD.shape, np.float32) / B / T

  @functools.partial(jax.jit, static_argnames=('scan', 'remat'))
  @functools.partial(jax.value_and_grad, has_aux=True)
  def run(params, **options):
    y, _, seen = transformer.stack(block, params, x_BTD, AttentionMask(), key=jax.random.key(2), **options)
    return jnp.sum(weight_BTD * y), seen

  plain = run(params)
  for options in (dict(scan=True), *(dict(remat=policy) for policy in ('full', 'attention', 'dots'))):
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(run(params, **options)), strict=True):
      np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5, err_msg=str(options))


def test_backward_pass_reads_what_the_policy_keeps():
  block, F = make(), 24
  params, x_BTD = draw(block)

  def kept(policy):
    """How often the backward pass reads arrays of each number of elements, apart from the parameters."""
    run = lambda params: transformer.stack(block, params, x_BTD, AttentionMask(), remat=policy)[0]
    count = lambda tree: collections.Counter(leaf.size for leaf in jax.tree.leaves(tree))
    return count(jax.eval_shape(lambda: jax.vjp(run, params)[1])) - count(params)

  rows, layers = B * T, len(params)
  scores = B * H * T * T
  plain, full, attention, dots = map(kept, ('none', 'full', 'attention', 'dots'))
  assert plain[scores] >= layers and plain[rows * F] >= layers
  assert not full[scores] and not full[rows * F] and not full[rows * 3 * D]
  assert attention[rows * D] - full[rows * D] == 4 * layers  # queries, keys, values and weighted values
  assert not attention[scores] and not attention[rows * F]
  assert dots[rows * 3 * D] == dots[rows * F] == layers and not dots[scores]


@pytest.mark.parametrize('scan', [False, True])
def test_cached_decoding_equals_one_pass(scan):
  block = make()
  params, x_BTD = draw(block)
  whole_BTD = run_stack(block, params, x_BTD)
  empty = np.zeros((B, T, H, D // H), np.float32)
  caches, parts = tuple((empty, empty) for _ in params), []

  @jax.jit
  def step(x_BtD, caches, position_BT):
    mask = AttentionMask(query_position_BT=position_BT)
    return transformer.stack(block, params, x_BtD, mask, caches=caches, position_BT=position_BT, scan=scan)[:2]

  for t in (slice(0, 4), slice(4, 5), slice(5, T)):
    y, caches = step(x_BTD[:, t], caches, np.broadcast_to(np.arange(T)[t], (B, t.stop - t.start)))
    parts.append(y)
  np.testing.assert_allclose(np.concatenate(parts, 1), whole_BTD, rtol=1e-5, atol=1e-5)


def test_write_sets_positions_and_drops_overflow():
  empty = np.zeros((2, 4, 1, 1), np.float32)
  new = np.arange(1, 5, dtype=np.float32).reshape(2, 2, 1, 1)
  k, v = map(np.asarray, jax.jit(kv_cache.write)((empty, empty), new, -new, np.array([[0, 1], [3, 4]])))
  np.testing.assert_array_equal(k[..., 0, 0], [[1, 2, 0, 0], [0, 0, 0, 3]])
  np.testing.assert_array_equal(v, -k)


@pytest.mark.parametrize('rate', ['attention_rate', 'residual_rate', 'hidden_rate'])
def test_each_dropout_needs_a_key_and_changes_the_output(rate):
  plain, dropped = make(), make(**{rate: 0.5})
  params, x_BTD = draw(plain, 1)
  run = functools.partial(run_stack, params=params, x_BTD=x_BTD)
  kept = run(plain)
  np.testing.assert_array_equal(run(dropped), kept)
  first, again, other = (run(dropped, key=jax.random.key(k)) for k in (0, 0, 1))
  np.testing.assert_array_equal(first, again)
  assert not np.allclose(first, kept, atol=1e-3)
  assert not np.allclose(first, other, atol=1e-3)


def test_deviations_of_the_kernels():
  block = make(hidden=256, std=0.02, residual_std=0.005)
  init = jax.jit(transformer.init_block, static_argnums=(0, 1))
  params = jax.device_get(init(block, 128, jax.random.key(0)))
  deviation = lambda *path: float(np.std(_at(params, path)))
  assert abs(deviation('attention', 'qkv', 'kernel') - 0.02) < 1e-3
  assert abs(deviation('mlp', 'in', 'kernel') - 0.02) < 1e-3
  assert abs(deviation('attention', 'out', 'kernel') - 0.005) < 3e-4
  assert abs(deviation('mlp', 'out', 'kernel') - 0.005) < 3e-4
  kind = make(kind='truncated', std=0.02, residual_std=None)
  cut = jax.device_get(init(kind, 128, jax.random.key(0)))
  assert np.abs(cut['mlp']['in']['kernel']).max() <= 0.04
  assert abs(np.std(cut['mlp']['in']['kernel']) - 0.02 * 0.8796) < 1e-3


def _at(tree, path):
  for part in path:
    tree = tree[part]
  return tree
