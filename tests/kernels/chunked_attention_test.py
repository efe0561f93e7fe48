"""The loop over chunks of queries against the equation, and where it is selected."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx import placement
from lmx.kernels import attention as choice
from lmx.kernels import chunked_attention as kernels
from lmx.kernels import patterns
from lmx.ops import attention, masks
from tests import placed
from tests.kernels.splash_attention_test import H, case


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
  """Several chunks and segments, the last chunk shorter."""
  monkeypatch.setattr(kernels, 'SCORES', 2**10)
  monkeypatch.setattr(kernels, 'LEAST', 8)


def both(arrays, mask, out, causal, rate):
  """Values and gradients of the loop and of the equation."""
  options = dict(causal=causal, rate=rate, key=jax.random.key(3))

  def run(serve, *x):
    found, pull = jax.vjp(lambda *x: serve(*x, mask, **options), *x)
    return found * (out != 0), pull(out)

  return [run(serve, *arrays) for serve in (kernels.attention, attention.attend.equation)]


def assert_equal(found, expected):
  for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_compressed_keys_with_dropout_equal_the_equation():
  arrays, mask, out = case(50, 17)
  mask = dataclasses.replace(mask, pattern=patterns.Compressed(3))
  assert_equal(*jax.jit(lambda *x: both(x, mask, out, True, 0.3))(*arrays))


def test_sharded_rows_and_heads_equal_the_equation_without_collectives():
  arrays, mask, out = case(50, groups=True)
  mesh = placed.at('gpu', data=2, fsdp=2, tensor=2)
  shard = lambda x: jax.device_put(x, jax.NamedSharding(mesh.mesh, mesh.spec(x.shape, 'BTHK')))
  arrays = [shard(x) for x in arrays]
  with placement.scope(mesh):
    compiled = jax.jit(lambda *x: both(x, mask, out, True, 0.3)).lower(*arrays).compile()
  assert_equal(*compiled(*arrays))
  text = compiled.as_text()
  assert 'f32[1,1,' in text and not any(name in text for name in ('all-gather', 'all-reduce', 'all-to-all'))


def test_chunks_of_causal_queries_read_no_keys_after_them():
  plan, mask = kernels.Plan(True, 0.0, 64, 8), masks.AttentionMask()
  assert [keys for _, keys in plan.segments(mask, 64, 64)] == [16, 32, 48, 64]
  assert [(len(firsts), keys) for firsts, keys in plan._replace(causal=False).segments(mask, 64, 64)] == [(8, 64)]
  mask = masks.AttentionMask(pattern=patterns.Compressed(3))
  assert [keys for _, keys in plan.segments(mask, 64, 22)] == [6, 11, 16, 22]


def test_auto_never_drops_by_plain_products_on_a_gpu():
  def chosen(T, rate, dtype='bfloat16'):  # noqa: N803
    x = jax.ShapeDtypeStruct((8, T, H, 64), jnp.dtype(dtype))
    return choice.choose('auto', x, x, masks.AttentionMask(), rate)

  with placed.on('gpu', devices=8):
    assert chosen(128, 0.1) is chosen(4096, 0.1) is choice.triton
    assert chosen(128, 0.1, 'float32') is chosen(4096, 0.1, 'float32') is kernels.attention
    assert chosen(4096, 0.0) is choice.cudnn_or_chunked
    assert chosen(4096, 0.0, 'float32') is kernels.attention
    assert chosen(128, 0.0, 'float32') is attention.attend.equation
