"""Factorized attention against index sets; what each position sees, documents, gradients, memory, the cache."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.kernels import attention as kernels
from lmx.kernels import sparse_attention as sparse_kernels
from lmx.kernels import splash_attention
from lmx.layers import sparse_attention as cached
from lmx.ops import attention, sparse_attention
from lmx.ops.masks import AttentionMask
from tests import placed
from tests.reference import sparse_transformer as reference

B, H, K = 2, 4, 5
PLANS = [
  sparse_attention.Plan(pattern, sets, 4, 2, fidelity)
  for pattern in sparse_attention.PATTERNS
  for sets in sparse_attention.SETS
  for fidelity in sparse_attention.FIDELITIES
  if (pattern, sets, fidelity) not in (('strided', 'second', 'released'), ('fixed', 'first', 'released'))  # alike
]
# By default every set of each pattern in one of the fidelities.
every_plan = pytest.mark.parametrize(
  'plan',
  [plan if i % 2 == i // 7 else pytest.param(plan, marks=pytest.mark.slow) for i, plan in enumerate(PLANS)],
  ids=lambda plan: '-'.join(map(str, plan)),
)


def draw(T, heads=H, batch=B, width=K):
  return np.random.default_rng(T).standard_normal((3, batch, T, heads, width), np.float32)


@functools.partial(jax.jit, static_argnums=4)
def attend(q, k, v, look, plan):
  return sparse_attention.attend(q, k, v, look, plan)


def expected(qkv, plan, documents_BT=None):
  exact = np.asarray(qkv, np.float64)
  return np.stack(
    [
      reference.attend(
        *exact[:, b],
        plan.pattern,
        plan.sets,
        plan.stride,
        plan.summary,
        plan.fidelity == 'released',
        None if documents_BT is None else documents_BT[b],
      )
      for b in range(exact.shape[1])
    ]
  )


@every_plan
def test_equals_the_mean_over_the_index_sets(plan):
  for T in (3, 18) if plan.sets in ('merged', 'heads') else (18,):
    qkv = draw(T)
    np.testing.assert_allclose(
      attend(*qkv, AttentionMask(), plan), expected(qkv, plan), rtol=1e-5, atol=1e-5, err_msg=str(T)
    )


EDGES = [
  sparse_attention.Plan('strided', 'merged', 1, 1, 'paper'),
  sparse_attention.Plan('strided', 'first', 1, 1, 'released'),
  sparse_attention.Plan('fixed', 'second', 3, 3, 'released'),
  sparse_attention.Plan('fixed', 'merged', 3, 1, 'paper'),
]


def test_stride_of_one_and_columns_as_wide_as_the_block():
  for plan in EDGES:
    qkv = draw(10)
    np.testing.assert_allclose(
      attend(*qkv, AttentionMask(), plan), expected(qkv, plan), rtol=1e-5, atol=1e-5, err_msg=str(plan)
    )


@every_plan
def test_attention_excludes_other_documents_and_padding(plan):
  T, qkv = 18, draw(18)
  documents_BT = np.array([[0] * 7 + [1] * 11, [0] * 2 + [3] * 9 + [4] * 7])
  valid_BT = np.arange(T) < np.array([[T], [15]])
  look = AttentionMask(None, documents_BT, np.where(valid_BT, documents_BT, -1))
  found = np.asarray(attend(*qkv, look, plan))
  np.testing.assert_allclose(found[valid_BT], expected(qkv, plan, documents_BT)[valid_BT], rtol=1e-5, atol=1e-5)


@every_plan
def test_position_attends_only_to_its_set(plan):
  """Values that are the rows of an identity put out the probabilities themselves."""
  T = 14
  q, k, _ = draw(T, batch=1, width=T)
  rows = np.broadcast_to(np.eye(T, dtype=np.float32)[None, :, None], q.shape)
  found = np.asarray(attend(q, k, rows, AttentionMask(), plan))[0]
  for i in range(T):
    for h in range(H):
      wanted = reference.chosen(i, h, H, *plan[:4], plan.fidelity == 'released')
      assert set(np.flatnonzero(found[i, h])) == wanted, (i, h)
      assert found[i, h].sum() == pytest.approx(float(bool(wanted)), abs=1e-5)


@pytest.mark.parametrize('plan', [plan for plan in PLANS if plan.sets in ('merged', 'heads')][::2], ids=str)
def test_gradients_match_the_masked_softmax(plan):
  """With what the cache uses, a mask over all keys, computed elsewhere; finite where sets are empty."""
  T, qkv = 11, draw(11)
  weight = np.random.default_rng(1).standard_normal(qkv[0].shape, np.float32)

  def masked(q, k, v):
    mask = cached.allowed(jnp.arange(T)[None, None, :, None], jnp.arange(T), H, plan)
    a = jnp.where(mask, jnp.einsum('BTHK,BSHK->BHTS', q, k) * K**-0.5, -1e30)
    p = jnp.where(mask, jax.nn.softmax(a), 0.0)
    return jnp.sum(weight * jnp.einsum('BHTS,BSHK->BTHK', p, v))

  ours = lambda q, k, v: jnp.sum(weight * sparse_attention.attend(q, k, v, AttentionMask(), plan))
  gradients = jax.jit(lambda *qkv: [jax.grad(f, argnums=(0, 1, 2))(*qkv) for f in (ours, masked)])(*qkv)
  for a, b in zip(*gradients, strict=True):
    assert np.isfinite(a).all() and np.abs(a).max() > 0.1
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@every_plan
def test_cache_gives_the_same_for_any_positions(plan):
  """Rows at positions of their own, more queries than the stride, and places of the cache not yet written."""
  T, qkv = 18, draw(18)
  whole = np.asarray(attend(*qkv, AttentionMask(), plan))
  start_B, size = np.array([3, 8]), 9
  position_BT = start_B[:, None] + np.arange(size)
  q = np.take_along_axis(np.asarray(qkv[0]), position_BT[..., None, None], axis=1)
  blank = np.arange(T + 2)[None] < (start_B + size)[:, None]
  k, v = (np.where(blank[..., None, None], np.pad(x, ((0, 0), (0, 2), (0, 0), (0, 0))), np.float32(9)) for x in qkv[1:])
  found = jax.jit(cached.attend_cached, static_argnums=4)(q, k, v, position_BT, plan)
  wanted = np.take_along_axis(whole, position_BT[..., None, None], axis=1)
  np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_half_precision_has_its_softmax_in_float32():
  plan = sparse_attention.Plan('fixed', 'merged', 4, 2, 'paper')
  qkv = draw(16)
  found = attend(*qkv.astype(jnp.bfloat16), AttentionMask(), plan)
  assert found.dtype == jnp.bfloat16
  np.testing.assert_allclose(np.asarray(found, np.float32), expected(qkv, plan), rtol=0.05, atol=0.05)
  made = str(
    jax.make_jaxpr(lambda q: sparse_attention.attend(q, q, q, AttentionMask(), plan))(qkv[0].astype(jnp.bfloat16))
  )
  assert set(re.findall(r':(\w+)\[[\d,]*\] = exp ', made)) == {'f32'}


T_LONG, HEADS = 2048, 2


def compiled(layer):
  """The compiled gradient of a layer of attention over T_LONG positions with HEADS heads."""
  shape = jax.ShapeDtypeStruct((1, T_LONG, HEADS, 8), jnp.float32)
  gradient = jax.grad(lambda q, k, v: jnp.sum(layer(q, k, v) ** 2), argnums=(0, 1, 2))
  return jax.jit(gradient).lower(shape, shape, shape).compile()


def largest(program) -> int:
  """Entries of the largest array anywhere in a compiled program, inside fusions too."""
  shapes = re.findall(r'\b(?:pred|[suf]\d+|bf16)\[([\d,]+)\]', program.as_text())
  return max(int(np.prod([int(n) for n in shape.split(',')])) for shape in shapes)


@pytest.mark.parametrize('pattern', sparse_attention.PATTERNS)
def test_no_t_by_t_array_is_materialised(pattern):
  for sets in ('merged', 'second'):
    plan = sparse_attention.Plan(pattern, sets, 64, 8, 'released')
    program = compiled(lambda q, k, v, plan=plan: sparse_attention.attend(q, k, v, AttentionMask(), plan))
    assert largest(program) < T_LONG**2 // 2, plan
    assert program.memory_analysis().temp_size_in_bytes < 4 * HEADS * T_LONG**2, plan


def test_dense_attention_makes_one():
  """So the test above can fail."""
  dense = compiled(lambda q, k, v: attention.attend(q, k, v, AttentionMask(), causal=True, backend='xla'))
  assert largest(dense) >= HEADS * T_LONG**2
  assert dense.memory_analysis().temp_size_in_bytes > 4 * HEADS * T_LONG**2


def gradients(plan, qkv, mask):
  """Values and gradients of `attend` as compiled here."""
  weight = draw(qkv.shape[2], width=qkv.shape[-1])[0]

  def total(q, k, v):
    out = sparse_attention.attend(q, k, v, mask, plan)
    return jnp.sum(out * weight), out

  return jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))(*qkv)


@pytest.mark.parametrize(
  'plan,platform',
  [
    (sparse_attention.Plan('fixed', 'merged', 16, 4, 'paper'), 'tpu'),
    (sparse_attention.Plan('strided', 'merged', 16, 1, 'paper'), 'gpu'),
    *[
      pytest.param(sparse_attention.Plan(pattern, sets, 16, 4, 'released'), platform, marks=pytest.mark.slow)
      for pattern, sets, platform in (
        ('fixed', 'merged', 'tpu'),
        ('fixed', 'second', 'tpu'),
        ('fixed', 'heads', 'tpu'),
        ('fixed', 'merged', 'gpu'),
        ('fixed', 'second', 'gpu'),
        ('strided', 'heads', 'gpu'),
      )
    ],
  ],
)
def test_kernels_and_chunks_equal_the_products(monkeypatch, plan, platform):
  """On several devices; documents are groups, whose first positions have no summary."""
  monkeypatch.setattr(splash_attention, 'attention', functools.partial(splash_attention.attention, interpret=True))
  monkeypatch.setattr(kernels, 'KERNEL_FROM', 1)
  monkeypatch.setattr(kernels, 'ROWS_TO', 0)
  monkeypatch.setattr(sparse_kernels, 'SCORES', 2**11)
  qkv, documents_BT = draw(70, width=8), jnp.asarray(np.arange(70)[None] // np.array([[23], [70]]))
  mask = AttentionMask(None, documents_BT, documents_BT)
  plain = gradients(plan, qkv, mask)
  with placed.on(platform, data=2, tensor=2):
    fast = gradients(plan, qkv, mask)
  for a, b in zip(jax.tree.leaves(fast), jax.tree.leaves(plain), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_long_texts_use_tpu_kernel_or_gpu_chunks(monkeypatch):
  plan, x = sparse_attention.Plan('fixed', 'merged', 128, 32, 'released'), jnp.zeros((1, 1024, 2, 8))
  monkeypatch.setattr(sparse_kernels, 'SCORES', 2**18)

  def program(platform):
    with placed.on(platform):
      return str(jax.make_jaxpr(lambda x: sparse_attention.attend(x, x, x, AttentionMask(), plan))(x))

  assert 'splash_mha_fwd' in program('tpu') and 'pallas' not in program('gpu')
  assert 'scan' in program('gpu') and 'scan' not in program('cpu')
