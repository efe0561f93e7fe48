"""A decoder's block against the restatement; the stack of them with a source."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.layers import decoder_block, transformer
from lmx.layers.decoder_block import Source
from lmx.ops import masks
from lmx.ops.masks import AttentionMask
from tests import drawn
from tests.reference import transformer as reference

B, T, D, H = 2, 9, 16, 4


def make(norm='post', kind='normal', hidden=24, bias=True, rate=0.0) -> decoder_block.DecoderBlock:
  init = transformer.Init(kind, 0.4, 0.3)
  heads = dict(heads=H, kernel_init=init, bias=bias, rate=rate)
  attention, cross = transformer.SelfAttention(causal=True, **heads), decoder_block.CrossAttention(**heads)
  mlp = transformer.Mlp(hidden, 'relu', init, rate)
  return decoder_block.DecoderBlock(attention, mlp, norm, 1e-5, 0.0, cross=cross)


def draw(block, layers=2):
  """Parameters of layers, in which every term counts, and their input."""
  params = [drawn.params(decoder_block.init_block, block, D, std=0.3, seed=i) for i in range(layers)]
  return params, np.random.default_rng(9).standard_normal((B, T, D), np.float32)


S = 6
SOURCE_VALID = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]], bool)
SOURCE_MASK = AttentionMask(None, np.zeros((B, T), np.int32), np.where(SOURCE_VALID, 0, masks.PADDING))
SOURCE_BSD = np.random.default_rng(2).standard_normal((B, S, D), np.float32)


@pytest.mark.parametrize('norm', ['pre', 'post'])
def test_cross_attention_block_matches_reference(norm):
  block = make(norm)
  (params,), x_BTD = draw(block, 1)
  run = lambda x: block.apply({'params': params}, x_BTD, AttentionMask(), source=Source(x, SOURCE_MASK))[0]
  keys = lambda x: decoder_block.source_keys(block, params, x)
  found, before = jax.jit(lambda x: (run(x), run(keys(x))))(SOURCE_BSD)
  p = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
  for b in range(B):
    x, source = np.asarray(x_BTD[b], np.float64), np.asarray(SOURCE_BSD[b], np.float64)
    parts = (
      (lambda x: reference.attention(x, p['attention'], True, np.ones(T, bool)), 'norm_1'),
      (lambda x, given=(source, p['cross'], SOURCE_VALID[b]): reference.cross_attention(x, *given)[0], 'norm_cross'),
      (lambda x: reference.mlp(x, p['mlp'], 'relu'), 'norm_2'),
    )
    for part, name in parts:
      normalise = lambda x, name=name: reference.layer_norm(x, p[name], 1e-5)
      x = x + part(normalise(x)) if norm == 'pre' else normalise(x + part(x))
    np.testing.assert_allclose(found[b], x, rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(before, found, rtol=1e-6, atol=1e-6)


def test_cross_attention_key_biases_get_no_gradient():
  """They add the same to every score, so that what back-propagation would find is noise."""
  block = make('pre', bias=True)
  (params,), x_BTD = draw(block, 1)
  run = lambda params: jnp.sum(
    jnp.sin(block.apply({'params': params}, x_BTD, AttentionMask(), source=Source(x_BTD[:, :S]))[0])
  )
  gradient = jax.jit(jax.grad(run))(params)['cross']['kv']['bias']
  assert not np.any(gradient[0]) and np.abs(gradient[1]).max() > 1e-3


def test_blocks_without_biases_and_glorots_deviation():
  block = make(hidden=64, kind='glorot', bias=False)
  init = jax.jit(decoder_block.init_block, static_argnums=(0, 1))
  params = jax.device_get(init(block, 32, jax.random.key(0)))
  kernels = {
    'attention/qkv': (32, 32),
    'attention/out': (32, 32),
    'cross/q': (32, 32),
    'cross/kv': (32, 32),
    'cross/out': (32, 32),
    'mlp/in': (32, 64),
    'mlp/out': (64, 32),
  }
  for name, (inputs, outputs) in kernels.items():
    part = _at(params, name.split('/'))
    assert ('bias' in part) == name.startswith('mlp')
    limit = (6 / (inputs + outputs)) ** 0.5
    assert 0.97 * limit < np.abs(part['kernel']).max() <= limit
    assert abs(np.std(part['kernel']) - limit / 3**0.5) < 0.04 * limit


def test_scan_and_remat_of_layers_with_a_source():
  block = make(kind='glorot', bias=False, rate=0.2)
  params, x_BTD = draw(block)
  weight_BTD = np.random.default_rng(3).standard_normal(x_BTD.shape, np.float32) / B / T

  def loss(params, source_BSD, options):
    y, _, _ = transformer.stack(
      block,
      params,
      x_BTD,
      AttentionMask(),
      key=jax.random.key(2),
      sources=[Source(source_BSD, SOURCE_MASK)] * len(params),
      **dict(options),
    )
    return jnp.sum(weight_BTD * y)

  run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)), static_argnums=2)
  plain, other = run(params, SOURCE_BSD, ()), run(params, SOURCE_BSD, (('scan', True), ('remat', 'full')))
  for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(other), strict=True):
    np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)


def _at(tree, path):
  for part in path:
    tree = tree[part]
  return tree
