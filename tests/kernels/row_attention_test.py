"""The kernel for TPUs with dropout, in interpret mode: the equation's values and gradients, with the same mask."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.kernels import attention as choice
from lmx.kernels import chunked_attention
from lmx.kernels import row_attention as kernels
from lmx.ops import attention, masks
from tests import placed
from tests.kernels import equality
from tests.kernels.equality import KEY, assert_equal
from tests.kernels.splash_attention_test import H, K, case

both = functools.partial(equality.both, kernels.attention)


@pytest.mark.parametrize(
  'T,S,causal,groups,rate',
  [
    pytest.param(256, None, True, False, 0.0, marks=pytest.mark.slow),
    (150, None, True, True, 0.3),
    (60, 140, False, False, 0.3),
  ],
)
def test_equals_the_equation(monkeypatch, T, S, causal, groups, rate):
  monkeypatch.setattr(kernels, 'SCORES', 128 * 128)  # so there are several blocks of queries
  arrays, mask, out = case(T, S, groups)
  assert_equal(*jax.jit(lambda *x: both(x, mask, out, causal, rate))(*arrays))


def packed(T, ends):
  """Arrays, a mask of two rows with documents that end at `ends`, the others padding, and cotangents."""
  arrays, _, out = case(T)
  at_2T = np.stack([np.searchsorted(row, np.arange(T), side='right') for row in ends])
  valid_2T = np.arange(T) < np.array([[row[-1]] for row in ends])
  mask = masks.from_batch({'valid_BT': jnp.asarray(valid_2T), 'documents_BT': jnp.asarray(at_2T, jnp.int32)})
  return [x[:2] for x in arrays], mask, out[:2] * valid_2T[:, :, None, None]


@pytest.mark.parametrize('causal', [True, False])
def test_packed_documents_equal_the_equation(monkeypatch, causal):
  monkeypatch.setattr(kernels, 'SCORES', 128 * 128)
  arrays, mask, out = packed(640, [[30, 256, 300, 640], [500, 520]])
  assert_equal(*jax.jit(lambda *x: both(x, mask, out, causal, 0.3))(*arrays))


@pytest.mark.parametrize('causal', [True, False])
def test_keys_of_other_documents_are_skipped(monkeypatch, causal):
  monkeypatch.setattr(kernels, 'SCORES', 128 * 128)
  (q, k, v), mask, _ = packed(512, [[128, 512], [384, 512]])
  options = dict(causal=causal, interpret=True)
  attend = jax.jit(lambda v: kernels.attention(q, k, v, mask, **options))
  without_first, without_last = attend(v.at[:, :128].set(np.nan)), attend(v.at[:, 384:].set(np.nan))
  assert np.isfinite(without_first[0, 128:]).all() and np.isfinite(without_first[1, 384:]).all()
  assert np.isfinite(without_last[0, :128]).all() and np.isfinite(without_last[1, :384]).all()
  assert np.isnan(without_first[1, :384]).all() and np.isnan(without_last[1, 384:]).all()


def test_group_range():
  query_BT = jnp.array([[0, 0, 0, 1, 1, 1, -2, -2], [0, 0, 1, 1, 2, 2, 3, 3]])
  key_BS = jnp.array([[0, 0, 0, 1, 1, -1, -2, -2], [0, 0, 1, 1, 2, 2, 3, 3]])
  first, after = np.moveaxis(np.asarray(kernels.group_range(query_BT, key_BS, 2)), 1, 0)
  np.testing.assert_array_equal(first, [[0, 0, 3, 0], [0, 2, 4, 6]])
  np.testing.assert_array_equal(after, [[3, 5, 5, 8], [2, 4, 6, 8]])


def test_gradients_have_the_type_of_their_arrays():
  arrays, _, out = case(128)
  half = [x.astype('bfloat16') for x in (*arrays, out)]
  run = lambda *x: kernels.attention(*x, masks.AttentionMask(), causal=True, rate=0.3, key=KEY, interpret=True)
  shapes = jax.eval_shape(lambda *x: jax.vjp(run, *x[:3])[1](x[3]), *half)
  assert [x.dtype for x in shapes] == ['bfloat16'] * 3


def test_dropout_mask_is_independent_of_sharding():
  arrays, mask, out = case(130, groups=True)
  with placed.on('tpu', data=2, fsdp=2, tensor=2):
    traced = jax.jit(lambda *x: both(x, mask, out, True, 0.3)).trace(*arrays)
    compiled = traced.lower().compile()
  assert 'shard_map' in str(traced.jaxpr)
  assert_equal(*compiled(*arrays))
  assert 'f32[1,1,8,256]' in compiled.as_text()  # one row and one head, padded to a block


def test_auto_selects_it_on_a_tpu():
  shape = lambda T: jax.ShapeDtypeStruct((2, T, H, K), np.float32)
  chosen = lambda T, backend='auto': choice.choose(backend, shape(T), shape(T), masks.AttentionMask(), 0.1)
  with placed.on('tpu', devices=2):
    assert chosen(choice.KERNEL_FROM) is chosen(choice.ROWS_TO) is choice.rows
    assert chosen(choice.KERNEL_FROM - 1) is attention.attend.equation
    assert chosen(choice.ROWS_TO + 1) is chunked_attention.attention
    with pytest.raises(InputError, match='model.attention: got "rows"'):
      chosen(choice.ROWS_TO + 1, 'rows')


def test_operations():
  shapes = [(3, 2, 8, 1024), (3, 2, 8, 512), (3, 2, 8, 512)]
  score = 2 * 3 * 2 * 8 * 1024 * 512
  assert kernels.operations(f'jit(step)/{kernels.FORWARD}/pallas_call', shapes) == 2 * score
  assert kernels.operations(f'jit(step)/{kernels.BACKWARD}/pallas_call', shapes) == 5 * score
