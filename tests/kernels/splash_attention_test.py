"""JAX's kernel for TPUs, in interpret mode: the equation's values and gradients, on one device and on several."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.kernels import attention as choice
from lmx.kernels import patterns
from lmx.kernels import splash_attention as kernels
from lmx.ops import attention, masks
from tests import placed

B, H, K = 4, 2, 8


def case(T, S=None, groups=False):
  """(queries, keys, values), mask, and cotangents of the output, zero at padding."""
  random, S = np.random.default_rng(T), S or T
  draw = lambda n: jnp.asarray(random.normal(size=(B, n, H, K)), jnp.float32)
  arrays, out = (draw(T), draw(S), draw(S)), draw(T)
  if not groups:
    return arrays, masks.AttentionMask(), out
  documents_BT = np.sort(random.integers(0, 3, (B, T)), axis=1)
  valid_BT = np.arange(T) < T - np.arange(B)[:, None]
  mask = masks.from_batch({'valid_BT': jnp.asarray(valid_BT), 'documents_BT': jnp.asarray(documents_BT)})
  return arrays, mask, out * valid_BT[:, :, None, None]


def both(arrays, mask, out, causal):
  """Values and gradients of the kernel and of the equation."""
  serve = {
    'kernel': lambda *x: kernels.attention(*x, mask, causal=causal, interpret=True),
    'equation': lambda *x: attention.attend.equation(*x, mask, causal=causal),
  }

  def run(name, *x):
    found, pull = jax.vjp(serve[name], *x)
    return found * (out != 0), pull(out)

  return [run(name, *arrays) for name in serve]


@pytest.mark.parametrize(
  'T,S,causal,groups,pattern',
  [
    pytest.param(384, None, True, False, None, marks=pytest.mark.slow),
    (150, None, True, True, None),
    pytest.param(150, None, False, False, None, marks=pytest.mark.slow),
    (60, 140, False, False, None),
    (300, 151, True, False, patterns.Compressed(2)),
  ],
)
def test_equals_the_equation(monkeypatch, T, S, causal, groups, pattern):
  monkeypatch.setattr(kernels, 'BLOCK', 128)  # so there are several blocks, of which causal ones are skipped
  monkeypatch.setattr(kernels, 'BACKWARD_BLOCK', 128)
  monkeypatch.setattr(kernels, 'FUSED', 2)  # of the longest row, queries' and keys' gradients are two kernels
  arrays, mask, out = case(T, S, groups)
  mask = dataclasses.replace(mask, pattern=pattern)
  found, expected = jax.jit(lambda *x: both(x, mask, out, causal))(*arrays)
  for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_each_device_computes_its_rows_and_heads():
  arrays, mask, out = case(130, groups=True)
  with placed.on('tpu', data=2, fsdp=2, tensor=2):
    traced = jax.jit(lambda *x: both(x, mask, out, True)).trace(*arrays)
    compiled = traced.lower().compile()
  assert 'shard_map' in str(traced.jaxpr)
  found, expected = compiled(*arrays)
  for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
  assert 'f32[1,1,256,8]' in compiled.as_text()  # one row and one head, padded to a block


@pytest.mark.parametrize(
  'change,words',
  [
    (dict(rate=0.1), 'no dropout'),
    (dict(mask=masks.AttentionMask(jnp.zeros((2, 256), jnp.int32))), 'cache of keys'),
    (dict(rows=3, devices=2), 'rows that the devices divide'),
    (dict(platform='gpu'), 'needs a TPU'),
  ],
)
def test_unsupported_attention_names_its_reason(change, words):
  given = dict(rate=0.0, mask=masks.AttentionMask(), rows=2, devices=1, platform='tpu') | change
  x = jax.ShapeDtypeStruct((given['rows'], 256, H, K), jnp.float32)
  with placed.on(given['platform'], devices=given['devices']):
    with pytest.raises(InputError, match=f'model.attention: got "splash".*{words}'):
      choice.choose('splash', x, x, given['mask'], given['rate'])
    assert choice.choose('auto', x, x, given['mask'], given['rate']) is not choice.splash


def test_auto_selects_it_on_a_tpu_for_long_rows():
  shape = lambda T: jax.ShapeDtypeStruct((2, T, H, K), jnp.bfloat16)
  chosen = lambda T: choice.choose('auto', shape(T), shape(T), masks.AttentionMask(), 0.0)
  for scope in (placed.on('tpu'), placed.on('tpu', devices=2)):
    with scope:
      assert chosen(choice.ROWS_TO + 1) is choice.splash and chosen(choice.ROWS_TO) is choice.rows


def test_operations_match_the_blocks_that_are_computed():
  """512 x 512 blocks of 1,024 positions forward; backward the keys are one block, so none is skipped."""
  shapes = [(3, 2, 8, 1024)] * 3
  name = f'jit(step)/{kernels.CAUSAL}/splash_mha_'
  score = 2 * 3 * 2 * 8 * 1024**2
  assert kernels.operations(f'{name}fwd_residuals', shapes) == 2 * score * 3 / 4
  assert kernels.operations(f'{name}dkv_no_residuals', shapes) == 5 * score
  assert kernels.operations('full_attention/splash_mha_fwd_residuals', shapes) == 2 * score
  long = [(3, 2, 8, 8192)] * 3
  whole = [kernels.operations(f'full_attention/splash_mha_{part}', long) / score / 64 for part in ('dkv', 'dq')]
  assert whole == [4, 3]
  assert kernels.operations(f'{name}fwd_residuals', [(2, 8, 1024)] * 3) == 2 * score / 4  # a single row
  compressed = f'jit(step)/{patterns.name(patterns.Compressed(4))}/splash_mha_fwd_residuals'
  assert kernels.operations(compressed, [(3, 2, 8, 2048), (3, 2, 8, 512)]) == 2 * score
  assert kernels.operations(compressed, [(3, 2, 8, 4096), (3, 2, 8, 1024)]) == 2 * score * 3
