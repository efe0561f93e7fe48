"""The kernels for GPUs with dropout, in interpret mode: the equation's values and gradients, with the same mask."""

from __future__ import annotations

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.kernels import attention as choice
from lmx.kernels import chunked_attention, triton
from lmx.kernels import triton_attention as kernels
from lmx.ops import attention, masks, patterns
from tests import placed
from tests.kernels import equality
from tests.kernels.equality import KEY, assert_equal
from tests.kernels.splash_attention_test import case

both = functools.partial(equality.both, kernels.attention)


@pytest.mark.parametrize(
  'T,S,causal,groups,rate',
  [
    (128, None, True, False, 0.0),  # whole blocks
    (150, None, True, True, 0.3),
    (60, 140, False, False, 0.3),
    (7, None, False, True, 0.0),  # a block larger than the rows
  ],
)
def test_equals_the_equation(T, S, causal, groups, rate):
  arrays, mask, out = case(T, S, groups)
  assert_equal(*jax.jit(lambda *x: both(x, mask, out, causal, rate))(*arrays))


def test_values_may_have_another_width():
  (q, k, v), mask, out = case(40)
  v, out = (jnp.concatenate([x, 2 * x, x], axis=-1) for x in (v, out))
  assert_equal(*jax.jit(lambda *x: both(x, mask, out, True, 0.3))(q, k, v))


def test_later_keys_are_not_read():
  (q, k, v), mask, _ = case(256)
  found = kernels.attention(q, k, v.at[:, kernels.BLOCK :].set(np.nan), mask, causal=True, interpret=True)
  assert np.isfinite(found[:, : kernels.BLOCK]).all() and np.isnan(found[:, kernels.BLOCK :]).all()


def test_dropout_mask_is_independent_of_sharding():
  arrays, mask, out = case(70, groups=True)
  with placed.on('gpu', data=2, fsdp=2, tensor=2):
    traced = jax.jit(lambda *x: both(x, mask, out, True, 0.3)).trace(*arrays)
    compiled = traced.lower().compile()
  assert 'shard_map' in str(traced.jaxpr)
  assert_equal(*compiled(*arrays))


def test_gradients_have_the_type_of_their_arrays():
  arrays, _, out = case(70)
  half = [x.astype('bfloat16') for x in (*arrays, out)]
  run = lambda *x: kernels.attention(*x, masks.AttentionMask(), causal=True, rate=0.3, key=KEY, interpret=True)
  shapes = jax.eval_shape(lambda *x: jax.vjp(run, *x[:3])[1](x[3]), *half)
  assert [x.dtype for x in shapes] == ['bfloat16'] * 3


@pytest.mark.parametrize('causal, pairs', [(True, 3), (False, 4)])
def test_kernels_declare_the_blocks_that_they_compute(causal, pairs, monkeypatch):
  costs = {}
  monkeypatch.setattr(
    triton,
    'call',
    lambda body, cost, name, call=triton.call, **options: (
      costs.update({name: cost}) or call(body, cost, name=name, **options)
    ),
  )
  (q, k, v), mask, _ = case(2 * kernels.BLOCK)
  run = lambda *x: jnp.sum(kernels.attention(*x, mask, causal=causal, interpret=True))
  jax.eval_shape(jax.grad(run, (0, 1, 2)), *(jnp.pad(x, ((0, 0),) * 3 + ((0, 8),)) for x in (q, k, v)))
  product = 2 * 4 * 2 * pairs * kernels.BLOCK**2 * 16
  assert {name: cost.operations // product for name, cost in costs.items()} == {
    kernels.FORWARD: 2,
    kernels.KEYS: 4,
    kernels.QUERIES: 3,
  }
  heads, groups, norms = 4 * 4 * 128 * 2 * 16, 2 * 4 * 4 * 128, 4 * 4 * 2 * 128
  assert costs[kernels.FORWARD].moved == 4 * heads + groups + norms + 4 * 4
  assert costs[kernels.KEYS].moved == 6 * heads + groups + 2 * norms + 4 * 4


def test_cost_is_in_the_metadata():
  x = jnp.zeros((16, 16))
  run = triton.call(lambda a, b: None, triton.Cost(7, 8), name='x', warps=4, stages=2, out_shape=x, interpret=True)
  (call,) = [one for one in jax.make_jaxpr(run)(x).jaxpr.eqns if one.primitive.name == 'pallas_call']
  assert triton.declared(dict(call.params['metadata'])) == (7, 8) and triton.declared({}) is None
  assert json.loads(dict(call.params['metadata'])['cost']) == [7, 8]


def test_auto_selects_them_for_dropout_on_a_gpu():
  def chosen(backend='auto', rate=0.1, **change):
    given = dict(dtype='bfloat16', K=64, rows=2, mask=masks.AttentionMask()) | change
    x = jax.ShapeDtypeStruct((given['rows'], 32, 2, given['K']), given['dtype'])
    return choice.choose(backend, x, x, given['mask'], rate)

  cached = masks.AttentionMask(query_position_BT=jnp.zeros((2, 32), jnp.int32))
  with placed.on('gpu', devices=2):
    assert chosen() is chosen('triton') is choice.triton
    assert chosen(rate=0.0) is choice.cudnn_or_chunked
    for change, words in (
      (dict(dtype='float32'), 'bfloat16 or float16'),
      (dict(K=40), 'head width of 16'),
      (dict(rows=3), 'rows that the devices divide'),
      (dict(mask=cached), 'not a cache'),
      (dict(mask=masks.AttentionMask(pattern=patterns.Compressed(3))), 'no masks by a pattern'),
    ):
      with pytest.raises(InputError, match=f'model.attention: got "triton", which .*{words}'):
        chosen('triton', **change)
      assert chosen(**change) is chunked_attention.attention, words
  with placed.on('tpu'), pytest.raises(InputError, match='needs a GPU'):
    chosen('triton')


@pytest.mark.parametrize('T,S,causal,groups,rate', [(150, None, True, True, 0.3), (60, 140, False, False, 0.1)])
def test_compiled_equals_the_equation(T, S, causal, groups, rate):
  if jax.default_backend() != 'gpu':
    pytest.skip('Triton needs a GPU')
  arrays, mask, out = case(T, S, groups)
  *arrays, out = (jnp.pad(x, ((0, 0),) * 3 + ((0, 8),)).astype('bfloat16') for x in (*arrays, out))
  options = dict(causal=causal, rate=rate, key=KEY)

  def run(attend):
    found, pull = jax.vjp(lambda *x: attend(*x, mask, **options), *arrays)
    return found * (out != 0), pull(out)

  found, expected = jax.jit(lambda: (run(kernels.attention), run(attention.attend.equation)))()
  for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    np.testing.assert_allclose(a, b, atol=0.02 * np.abs(b).max())
