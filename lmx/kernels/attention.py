"""Implementations of scaled dot-product attention, all equal to `lmx.ops.attention.attend`.

- 'xla': the equation, over all rows and heads. It stores the (B, H, T, S) probabilities for the backward pass.
- 'blocked': a loop over rows, heads and query blocks, so that the scores fit a CPU's cache. The
  backward pass recomputes them from the saved log-normalisers (Rabe & Staats 2021, arXiv 2112.05682; Dao et al. 2022,
  arXiv 2205.14135). Key blocks after all of a block's queries are skipped. Because rows are sequential,
  it is for one device; 'xla' is for a batch that is sharded over devices.
- 'cudnn': `jax.nn.dot_product_attention(implementation='cudnn')`, within the limits of `cudnn_obstacle`.
- 'triton': kernels for GPUs with dropout (lmx/kernels/triton_attention.py), within the limits of `triton_obstacle`.
- 'splash': JAX's kernel for TPUs (lmx/kernels/splash_attention.py), within the limits of `splash_obstacle`.
- 'rows': a kernel for TPUs with dropout (lmx/kernels/row_attention.py), within the limits of `rows_obstacle`.
- 'chunked': a loop over query chunks, each for all rows and heads (lmx/kernels/chunked_attention.py). Its memory
  is linear in the length, for every mask, type and width; for GPUs and TPUs where no kernel serves.
- 'numba': operations that Numba compiles (lmx/kernels/head_attention.py), in float32 on a single CPU device, where
  there is a gradient and at least `NUMBA_FROM` scores per head; else as 'without_numba', so that what was trained on a
  CPU can be used elsewhere.
- 'without_numba': the first of 'cudnn' and, with dropout, 'triton' on a GPU, 'rows' and 'splash' on a TPU from
  `KERNEL_FROM` queries on, within limits; 'blocked' on a single CPU device for at least `BLOCKED_FROM` scores a head;
  'chunked' on other platforms for at least `CHUNKED_FROM`, and on a GPU always with dropout; else 'xla'.
- 'auto': as 'without_numba'; a run begins with one of 'numba' and 'without_numba' in its place (`settle`).

'xla', 'triton', 'rows', 'blocked', 'chunked' and 'numba' have dropout of the probabilities, with the same mask
(lmx/ops/dropout.py). cuDNN's dropout uses another mask and has no public interface in JAX.

Axes: G rows x heads, Q and C queries and keys of a block.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lmx.errors import InputError
from lmx.kernels import chunked_attention, devices, head_attention, native
from lmx.kernels.patterns import reach
from lmx.ops import attention, dropout
from lmx.ops.masks import AttentionMask
from lmx.types import Array

AUTOMATIC = ('auto', 'numba', 'without_numba')  # select by device and shapes
BLOCKED_FROM = 2**16  # 'auto' selects 'blocked' on a CPU from this many scores (T x S) per head
NUMBA_FROM = 2**12  # 'numba' is faster than XLA from this many scores per head
CHUNKED_FROM = 2**20  # 'auto' selects 'chunked' on other platforms from this many scores per head
KERNEL_FROM = 256  # 'auto' selects a TPU kernel from this many queries
TRITON_WIDTHS = (16, 32, 64, 128)  # of a head
ROWS_TO = 1024  # maximum number of keys of 'rows': a block of whole score rows fits on chip
_QUERIES = 64  # minimum number of queries in a block

Block = tuple[int, int]  # first and end position of a block


Implementation = Callable[..., Array]  # takes the arguments of `attention.attend` except `backend`


def choose(
  backend: str, q_BTHK: Array, k_BSHK: Array | jax.ShapeDtypeStruct, mask: AttentionMask, rate: float
) -> Implementation:
  """Return the implementation that `backend` selects at these shapes and the current placement.

  Raises:
    InputError: a kernel was set outside its limits.
  """
  here, scores = devices.placed(), q_BTHK.shape[1] * k_BSHK.shape[1]
  if backend in ('numba', 'without_numba'):
    alike = q_BTHK.dtype == k_BSHK.dtype == jnp.float32 and q_BTHK.shape[::2] == k_BSHK.shape[::2]
    is_plain = alike and mask.pattern is None and mask.aligned()
    fits = is_plain and devices.is_one_device('cpu') and scores >= NUMBA_FROM
    return numba if fits and backend == 'numba' else choose('auto', q_BTHK, k_BSHK, mask, rate)
  obstacles = {
    'cudnn': cudnn_obstacle(q_BTHK, mask, rate),
    'triton': triton_obstacle(q_BTHK, mask),
    'rows': rows_obstacle(q_BTHK, k_BSHK, mask),
    'splash': splash_obstacle(q_BTHK, mask, rate),
  }
  if obstacles.get(backend):
    raise InputError(
      f'model.attention: got "{backend}", which {obstacles[backend]}; set model.attention to "auto" or "xla"'
    )
  if backend != 'auto':
    return BY_NAME[backend]
  if not obstacles['cudnn']:
    return cudnn_or_chunked
  if rate and not obstacles['triton']:
    return triton
  if q_BTHK.shape[1] >= KERNEL_FROM and not (obstacles['rows'] and obstacles['splash']):
    return splash if obstacles['rows'] else rows
  if here.platform != 'cpu' and (scores >= CHUNKED_FROM or here.platform == 'gpu' and rate):
    return chunked_attention.attention
  if devices.is_one_device('cpu') and scores >= BLOCKED_FROM:
    return blocked
  return attention.attend.equation


def settle(cfg: Any) -> Any:
  """Return a model's config with the backend that a resumed run keeps: for 'auto', 'numba' where a CPU can run it.

  Else it is 'without_numba'.
  """
  if cfg.attention != 'auto':
    return cfg
  fits = cfg.dtype == 'float32' and native.has_products()
  return dataclasses.replace(cfg, attention='numba' if fits else 'without_numba')


def _elsewhere(platform: str) -> str | None:
  """Return the obstacle that the current placement is on another platform, or None."""
  here = devices.placed().platform
  return None if here == platform else f'needs a {platform.upper()}, and the device here is {here}'


def splash_obstacle(q_BTHK: Array, mask: AttentionMask, rate: float) -> str | None:
  """Return why the splash kernel cannot run, as a clause for the error message; None if it can."""
  return (
    f'has no dropout of the attention probabilities, but the rate is {rate}' if rate else _tpu_obstacle(q_BTHK, mask)
  )


def rows_obstacle(q_BTHK: Array, k_BSHK: Array | jax.ShapeDtypeStruct, mask: AttentionMask) -> str | None:
  """Return why the row kernel cannot run, as a clause for the error message; None if it can."""
  S = k_BSHK.shape[1]
  return f'needs at most {ROWS_TO} keys, not {S}' if S > ROWS_TO else _tpu_obstacle(q_BTHK, mask)


def _tpu_obstacle(q_BTHK: Array, mask: AttentionMask) -> str | None:
  if devices.row_shards(q_BTHK.shape[0]) != devices.placed().row_shards:
    return f'needs rows that the devices divide, not {q_BTHK.shape[0]}'
  if not mask.aligned():
    return 'needs query t at position t, not a cache of keys'
  return _elsewhere('tpu')


def cudnn_obstacle(q_BTHK: Array, mask: AttentionMask, rate: float) -> str | None:
  """Return why cuDNN's fused attention cannot run, as a clause for the error message; None if it can."""
  K = q_BTHK.shape[3]
  if not devices.is_platform('gpu'):
    return _elsewhere('gpu')
  if q_BTHK.dtype not in (jnp.bfloat16, jnp.float16):
    return f'needs dtype bfloat16 or float16, not {q_BTHK.dtype}'
  if rate:
    return f'has no dropout of the attention probabilities, but the rate is {rate}'
  if mask.pattern is not None:
    return 'has no masks by a pattern, as of memory-compressed attention'
  if K % 8 or K > 128:
    return f'needs a head width that is a multiple of 8 and at most 128, not {K}'
  return None


def triton_obstacle(q_BTHK: Array, mask: AttentionMask) -> str | None:
  """Return why the Triton kernels cannot run, as a clause for the error message; None if they can."""
  K, here = q_BTHK.shape[3], devices.placed()
  if not devices.is_platform('gpu'):
    return _elsewhere('gpu')
  if q_BTHK.dtype not in (jnp.bfloat16, jnp.float16):
    return f'needs dtype bfloat16 or float16, not {q_BTHK.dtype}'
  if K not in TRITON_WIDTHS:
    return f'needs a head width of {", ".join(map(str, TRITON_WIDTHS))}, not {K}'
  if not mask.aligned():
    return 'needs query t at position t, not a cache of keys'
  if mask.pattern is not None:
    return 'has no masks by a pattern, as of memory-compressed attention'
  if devices.row_shards(q_BTHK.shape[0]) != here.row_shards:
    return f'needs rows that the devices divide, not {q_BTHK.shape[0]}'
  return None


def attend(
  q_BTHK: Array,
  k_BSHK: Array,
  v_BSHK: Array,
  mask: AttentionMask,
  *,
  causal: bool,
  backend: str = 'auto',
  rate: float = 0.0,
  key: Array | None = None,
) -> Array:
  """Compute `attention.attend` by the implementation that `backend` selects.

  Raises:
    InputError: 'cudnn' was set and cannot run; the message gives the reason.
  """
  rate = 0.0 if key is None else rate
  compute = choose(backend, q_BTHK, k_BSHK, mask, rate)
  return compute(q_BTHK, k_BSHK, v_BSHK, mask, causal=causal, rate=rate, key=key)


def numba(*arrays: Any, **options: Any) -> Array:
  """Compute attention by operations that Numba compiles, and by `attend` where there is no gradient."""
  return head_attention.attention(attend, *arrays, **options)


def rows(*arrays: Any, **options: Any) -> Array:
  """Compute attention by the kernel for TPUs with dropout."""
  from lmx.kernels import row_attention  # imports Pallas, which takes a second

  return _widened(row_attention.attention, *arrays, **options)


def triton(*arrays: Any, **options: Any) -> Array:
  """Compute attention by the kernels for GPUs with dropout."""
  from lmx.kernels import triton_attention  # imports Pallas, which takes a second

  return triton_attention.attention(*arrays, **options)


def splash(*arrays: Any, causal: bool, **_: Any) -> Array:
  """Compute attention by JAX's kernel for TPUs, without dropout."""
  from lmx.kernels import splash_attention  # imports Pallas, which takes a second

  return _widened(splash_attention.attention, *arrays, causal=causal)


def _widened(
  compute: Implementation, q_BTHK: Array, k_BSHK: Array, v_BSHK: Array, mask: AttentionMask, **options: Any
) -> Array:
  """Compute attention by a kernel that needs values as wide as keys: narrower ones are padded with zeros."""
  width = v_BSHK.shape[-1]
  v_BSHK = jnp.pad(v_BSHK, ((0, 0), (0, 0), (0, 0), (0, k_BSHK.shape[-1] - width)))
  return compute(q_BTHK, k_BSHK, v_BSHK, mask, **options)[..., :width]


def cudnn(*arrays: Any, causal: bool, **_: Any) -> Array:
  """Compute attention by NVIDIA's fused kernel, without dropout.

  Raises:
    InputError: this cuDNN release or GPU lacks the kernel.
  """
  try:
    return _cudnn(*arrays, causal=causal)
  except RuntimeError as error:
    raise InputError(f'model.attention: got "cudnn", which fails here ({error}); set it to "auto"') from None


def cudnn_or_chunked(*arrays: Any, causal: bool, **_: Any) -> Array:
  """Compute attention by `cudnn`, or by query chunks where this cuDNN release or GPU lacks the kernel."""
  try:
    return _cudnn(*arrays, causal=causal)
  except RuntimeError:
    return chunked_attention.attention(*arrays, causal=causal)


def _cudnn(q_BTHK: Array, k_BSHK: Array, v_BSHK: Array, mask: AttentionMask, *, causal: bool) -> Array:
  """Compute attention by NVIDIA's fused kernel. Its gradient needs even lengths, so others are padded."""
  (B, T, *_), S, width = q_BTHK.shape, k_BSHK.shape[1], v_BSHK.shape[-1]
  mask_BTS = mask.allowed(causal, (0, T), (0, S)) if mask.explicit() else None
  options: dict[str, Any] = {'is_causal': causal}
  if mask_BTS is not None:
    options = {'mask': jnp.pad(mask_BTS[:, None], ((0, 0), (0, 0), (0, T % 2), (0, S % 2)))}
  elif T % 2 or S % 2:
    options |= {'query_seq_lengths': jnp.full(B, T, jnp.int32), 'key_value_seq_lengths': jnp.full(B, S, jnp.int32)}
  widen = k_BSHK.shape[-1] - width  # cuDNN needs values as wide as keys
  pad = lambda x, more: jnp.pad(x, ((0, 0), (0, x.shape[1] % 2), (0, 0), (0, more)))
  o_BTHK = jax.nn.dot_product_attention(
    pad(q_BTHK, 0), pad(k_BSHK, 0), pad(v_BSHK, widen), implementation='cudnn', **options
  )
  return o_BTHK[:, :T, :, :width]


class Plan(NamedTuple):
  """Compile-time constants of the blocked kernel.

  Attributes:
    causal: mask keys after the query.
    rate: dropout rate of the probabilities.
    heads: H.
  """

  causal: bool
  rate: float
  heads: int

  def blocks(self, mask: AttentionMask, T: int, S: int) -> list[tuple[Block, Block]]:
    """Return (first, end) of the queries of each block and of the keys that it may attend to."""
    size = max(_QUERIES, -(-T // 8))  # few blocks, because each one is compiled separately
    spans = [(t, min(t + size, T)) for t in range(0, T, size)]
    return [(span, (0, reach(mask, self.causal, span[1], S))) for span in spans]


def blocked(
  q_BTHK: Array,
  k_BSHK: Array,
  v_BSHK: Array,
  mask: AttentionMask,
  *,
  causal: bool,
  rate: float = 0.0,
  key: Array | None = None,
) -> Array:
  """Compute attention head by head and query block by query block."""
  B, T, H, _ = q_BTHK.shape
  to_front = lambda x: x.swapaxes(1, 2).reshape(B * H, x.shape[1], -1)
  seed_2 = dropout.seed(key) if key is not None and rate else None
  plan = Plan(causal, rate, H)
  o_GTK = _blocked(plan, to_front(q_BTHK), to_front(k_BSHK), to_front(v_BSHK), mask, seed_2)
  return o_GTK.reshape(B, H, T, -1).swapaxes(1, 2)


def _scores(plan: Plan, g: Array, q_QK: Array, k_CK: Array, mask: AttentionMask, queries: Block, keys: Block) -> Array:
  """Return the scores (Q, C) of a block in float32, with masked keys far below all others."""
  a_QC = jnp.einsum('QK,CK->QC', q_QK, k_CK, preferred_element_type=jnp.float32) * q_QK.shape[-1] ** -0.5
  row: AttentionMask = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, g // plan.heads, 1), mask)
  return row.mask_scores(a_QC[None, None], plan.causal, queries, keys)[0, 0]


def _factor(plan: Plan, g: Array, T: int, seed_2: Any, queries: Block, keys: Block) -> Array:
  """Return a block's dropout factors, (Q, C): 0 or 1 / (1 - rate)."""
  rows_Q = g.astype(jnp.uint32) * jnp.uint32(T) + jnp.arange(queries[0], queries[1], dtype=jnp.uint32)
  keep_QC = dropout.mask(seed_2, plan.rate, rows_Q, jnp.arange(keys[0], keys[1], dtype=jnp.uint32))
  return jnp.where(keep_QC, 1.0 / (1.0 - plan.rate), 0.0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _blocked(plan: Plan, q_GTK: Array, k_GSK: Array, v_GSK: Array, mask: AttentionMask, seed_2: Any) -> Array:
  return _blocked_forward(plan, q_GTK, k_GSK, v_GSK, mask, seed_2)[0]


def _blocked_forward(
  plan: Plan, q_GTK: Array, k_GSK: Array, v_GSK: Array, mask: AttentionMask, seed_2: Any
) -> tuple[Array, tuple[Any, ...]]:
  """Return the output (G, T, K), and as residuals the inputs, the output and log-normalisers (G, T)."""
  T, S = q_GTK.shape[1], k_GSK.shape[1]

  def head(xs: tuple[Array, ...]) -> tuple[Array, ...]:
    g, q_TK, k_SK, v_SK = xs
    outputs, norms = [], []
    for queries, keys in plan.blocks(mask, T, S):
      v_CK = v_SK[slice(*keys)]
      a_QC = _scores(plan, g, q_TK[slice(*queries)], k_SK[slice(*keys)], mask, queries, keys)
      m_Q1 = jnp.max(a_QC, axis=-1, keepdims=True)
      e_QC = jnp.exp(a_QC - m_Q1)
      z_Q1 = jnp.sum(e_QC, axis=-1, keepdims=True)
      if plan.rate:
        e_QC = e_QC * _factor(plan, g, T, seed_2, queries, keys)
      o_QK = jnp.einsum('QC,CK->QK', e_QC.astype(v_CK.dtype), v_CK, preferred_element_type=jnp.float32)
      outputs.append((o_QK / z_Q1).astype(v_CK.dtype))
      norms.append((m_Q1 + jnp.log(z_Q1))[:, 0])
    return jnp.concatenate(outputs), jnp.concatenate(norms)

  o_GTK, n_GT = jax.lax.map(head, (jnp.arange(len(q_GTK)), q_GTK, k_GSK, v_GSK))
  return o_GTK, (q_GTK, k_GSK, v_GSK, mask, seed_2, o_GTK, n_GT)


def _blocked_backward(plan: Plan, residuals: tuple[Any, ...], do_GTK: Array) -> tuple[Array | None, ...]:
  q_GTK, k_GSK, v_GSK, mask, seed_2, o_GTK, n_GT = residuals
  T, S = q_GTK.shape[1], k_GSK.shape[1]
  dtype, scale = q_GTK.dtype, q_GTK.shape[-1] ** -0.5

  def head(xs: tuple[Array, ...]) -> tuple[Array, ...]:
    g, q_TK, k_SK, v_SK, o_TK, n_T, do_TK = xs
    delta_T = jnp.sum(do_TK.astype(jnp.float32) * o_TK.astype(jnp.float32), axis=-1)
    dk_SK, dv_SK = jnp.zeros(k_SK.shape, jnp.float32), jnp.zeros(v_SK.shape, jnp.float32)
    dqs = []
    for queries, keys in plan.blocks(mask, T, S):
      q_QK, do_QK, k_CK, v_CK = q_TK[slice(*queries)], do_TK[slice(*queries)], k_SK[slice(*keys)], v_SK[slice(*keys)]
      a_QC = _scores(plan, g, q_QK, k_CK, mask, queries, keys)
      p_QC = jnp.exp(a_QC - n_T[slice(*queries), None])
      dp_QC = jnp.einsum('QK,CK->QC', do_QK, v_CK, preferred_element_type=jnp.float32)
      dropped_QC = p_QC
      if plan.rate:
        f_QC = _factor(plan, g, T, seed_2, queries, keys)
        dropped_QC, dp_QC = p_QC * f_QC, dp_QC * f_QC
      ds_QC = (p_QC * (dp_QC - delta_T[slice(*queries), None]) * scale).astype(dtype)
      dqs.append(jnp.einsum('QC,CK->QK', ds_QC, k_CK))
      product = functools.partial(jnp.einsum, 'QC,QK->CK', preferred_element_type=jnp.float32)
      dk_SK = dk_SK.at[slice(*keys)].add(product(ds_QC, q_QK))
      dv_SK = dv_SK.at[slice(*keys)].add(product(dropped_QC.astype(dtype), do_QK))
    return jnp.concatenate(dqs), dk_SK.astype(dtype), dv_SK.astype(dtype)

  dq_GTK, dk_GSK, dv_GSK = jax.lax.map(head, (jnp.arange(len(q_GTK)), q_GTK, k_GSK, v_GSK, o_GTK, n_GT, do_GTK))
  return dq_GTK, dk_GSK, dv_GSK, None, None


_blocked.defvjp(_blocked_forward, _blocked_backward)

BY_NAME: dict[str, Implementation] = {  # values of model.attention that leave no choice
  'xla': attention.attend.equation,
  'blocked': blocked,
  'chunked': chunked_attention.attention,
  'cudnn': cudnn,
  'triton': triton,
  'rows': rows,
  'splash': splash,
}
