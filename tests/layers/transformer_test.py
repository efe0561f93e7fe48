"""Blocks against the restatement; the stack's loops, recomputation and cache against the plain stack."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers import kv_cache, transformer
from lmx.layers.block import Block
from lmx.layers.masks import AttentionMask
from lmx.layers.transformer import Init
from tests.reference import transformer as reference

B, T, D, H = 2, 9, 16, 4


def make(norm='pre', causal=True, kind='normal', std=0.4, residual_std=0.3, hidden=24, activation='gelu_tanh', **rates):
  init = Init(kind, std, residual_std)
  attention = transformer.SelfAttention(H, init, causal=causal, rate=rates.get('attention_rate', 0.0))
  mlp = transformer.Mlp(hidden, activation, init, rate=rates.get('hidden_rate', 0.0))
  return Block(attention, mlp, norm, 1e-5, rates.get('residual_rate', 0.0))


def shaken(params, seed=5):
  """Biases and scales too, so that every term counts."""
  leaves, tree = jax.tree.flatten(params)
  keys = jax.random.split(jax.random.key(seed), len(leaves))
  return tree.unflatten([x + 0.2 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)])


def draw(block, layers=3):
  keys = jax.random.split(jax.random.key(0), layers)
  params = [shaken(transformer.init_block(block, D, k), i) for i, k in enumerate(keys)]
  return params, jax.random.normal(jax.random.key(1), (B, T, D))


def test_layer_norm_equals_restatement_far_from_zero():
  x = 50.0 + jax.random.normal(jax.random.key(0), (B, T, D))
  params = {'scale': np.linspace(0.5, 2, D), 'bias': np.linspace(-1, 1, D)}
  found = transformer.layer_norm(x, jnp.asarray(params['scale']), jnp.asarray(params['bias']), 1e-5)
  np.testing.assert_allclose(found, reference.layer_norm(np.asarray(x, np.float64), params, 1e-5), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('form', ['tanh', 'erf', 'sigmoid'])
def test_gelu_equals_restatement(form):
  x = np.linspace(-6, 6, 101)
  np.testing.assert_allclose(transformer.gelu(jnp.asarray(x), form), reference.gelu(x, form), rtol=1e-5, atol=1e-6)


def test_deviations_by_fan_in():
  block = make(hidden=1600, kind='fan_in', std=0.5, residual_std=0.25)
  params = transformer.init_block(block, 256, jax.random.key(0))
  wanted = {
    ('attention', 'qkv'): 0.5 / 16,
    ('attention', 'out'): 0.25 / 16,
    ('mlp', 'in'): 0.5 / 16,
    ('mlp', 'out'): 0.25 / 40,
  }
  for (part, name), std in wanted.items():
    assert np.std(params[part][name]['kernel']) == pytest.approx(std, rel=0.02), (part, name)


@pytest.mark.parametrize('norm', ['pre', 'post'])
@pytest.mark.parametrize('causal', [True, False])
def test_block_equals_restatement(norm, causal):
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


@pytest.mark.parametrize('options', [dict(scan=True), dict(remat=True), dict(scan=True, remat=True)])
def test_scan_and_remat_change_nothing(options):
  block = make(attention_rate=0.2, residual_rate=0.2, std=0.2, residual_std=0.1)
  params, x_BTD = draw(block)
  weight_BTD = jax.random.normal(jax.random.key(3), x_BTD.shape) / B / T

  def loss(params, options):
    y, _, seen = transformer.stack(block, params, x_BTD, AttentionMask(), key=jax.random.key(2), **dict(options))
    return jnp.sum(weight_BTD * y), seen

  run = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
  plain, other = run(params, ()), run(params, tuple(options.items()))
  for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(other), strict=True):
    np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)


def test_remat_computes_the_layers_again():
  """The backward pass is handed fewer numbers."""
  block = make()
  params, x_BTD = draw(block)

  def saved(remat):
    run = lambda params: transformer.stack(block, params, x_BTD, AttentionMask(), remat=remat)[0]
    return sum(leaf.size for leaf in jax.tree.leaves(jax.vjp(run, params)[1]))

  assert saved(True) < 0.7 * saved(False)


@pytest.mark.parametrize('scan', [False, True])
def test_cache_gives_what_one_pass_gives(scan):
  block = make()
  params, x_BTD = draw(block)
  whole, _, _ = transformer.stack(block, params, x_BTD, AttentionMask())
  empty = jnp.zeros((B, T, H, D // H))
  caches, parts = tuple((empty, empty) for _ in params), []
  for t in (slice(0, 4), slice(4, 5), slice(5, T)):
    position_BT = jnp.broadcast_to(jnp.arange(T)[None, t], (B, t.stop - t.start))
    y, caches, _ = transformer.stack(
      block,
      params,
      x_BTD[:, t],
      AttentionMask(query_position_BT=position_BT),
      caches=caches,
      position_BT=position_BT,
      scan=scan,
    )
    parts.append(y)
  np.testing.assert_allclose(jnp.concatenate(parts, 1), whole, rtol=1e-5, atol=1e-5)


def test_write_puts_rows_at_their_positions_and_drops_what_is_beyond():
  cache = (jnp.zeros((2, 4, 1, 1)), jnp.zeros((2, 4, 1, 1)))
  new = jnp.arange(1.0, 5.0).reshape(2, 2, 1, 1)
  k, v = kv_cache.write(cache, new, -new, jnp.array([[0, 1], [3, 4]]))
  np.testing.assert_array_equal(k[..., 0, 0], [[1, 2, 0, 0], [0, 0, 0, 3]])
  np.testing.assert_array_equal(v, -k)


@pytest.mark.parametrize('rate', ['attention_rate', 'residual_rate', 'hidden_rate'])
def test_each_dropout_needs_a_key_and_changes_the_output(rate):
  plain, dropped = make(), make(**{rate: 0.5})
  params, x_BTD = draw(plain)
  run = lambda block, key: jax.jit(lambda key: transformer.stack(block, params, x_BTD, AttentionMask(), key=key)[0])(
    key
  )
  np.testing.assert_array_equal(run(dropped, None), run(plain, None))
  first, again, other = (run(dropped, jax.random.key(k)) for k in (0, 0, 1))
  np.testing.assert_array_equal(first, again)
  assert not np.allclose(first, run(plain, None), atol=1e-3)
  assert not np.allclose(first, other, atol=1e-3)


def test_deviations_of_the_kernels():
  block = make(hidden=256, std=0.02, residual_std=0.005)
  params = transformer.init_block(block, 128, jax.random.key(0))
  deviation = lambda *path: float(np.std(_at(params, path)))
  assert abs(deviation('attention', 'qkv', 'kernel') - 0.02) < 1e-3
  assert abs(deviation('mlp', 'in', 'kernel') - 0.02) < 1e-3
  assert abs(deviation('attention', 'out', 'kernel') - 0.005) < 3e-4
  assert abs(deviation('mlp', 'out', 'kernel') - 0.005) < 3e-4
  cut = transformer.init_block(make(kind='truncated', std=0.02, residual_std=None), 128, jax.random.key(0))
  assert np.abs(cut['mlp']['in']['kernel']).max() <= 0.04
  assert abs(np.std(cut['mlp']['in']['kernel']) - 0.02 * 0.8796) < 1e-3


def test_depth_counts_from_the_embeddings():
  names = (('embed', 'tokens'), ('layer_00', 'mlp'), ('layer_11', 'norm_1'), ('norm', 'scale'))
  assert [transformer.depth(n, 12) for n in names] == [0, 1, 12, 13]


def _at(tree, path):
  for part in path:
    tree = tree[part]
  return tree
