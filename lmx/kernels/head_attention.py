"""Training attention compiled by Numba (lmx/kernels/native/attention.py), for one CPU and float32.

XLA computes attention's small products at a third of the speed of large ones, and writes scores and probabilities to
memory. Here a head's scores stay in the cache of its core. Nothing of the size (T, S) is stored: the backward pass
recomputes the probabilities from each query's maximum score and sum. The dropout mask is the one of lmx/ops/dropout.py,
as in all implementations.

Axes: those of lmx/kernels/attention.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lmx.kernels import native
from lmx.ops import dropout
from lmx.types import Array


class Plan(NamedTuple):
  """Compile-time constants.

  Attributes:
    evaluate: the attention without a gradient, see `attention`.
    causal: mask keys after the query.
    rate: dropout rate of the probabilities.
  """

  evaluate: Callable[..., Array]
  causal: bool
  rate: float


def attention(
  evaluate: Callable[..., Array],
  q_BTHK: Array,
  k_BSHK: Array,
  v_BSHK: Array,
  mask: Any,
  *,
  causal: bool,
  rate: float = 0.0,
  key: Array | None = None,
) -> Array:
  """Return `lmx.ops.attention.attend`.

  Args:
    evaluate: the attention where there is no gradient, of the other arguments.
    q_BTHK: queries.
    k_BSHK: keys.
    v_BSHK: values, which may have another width.
    mask: `lmx.ops.masks.AttentionMask`, without a pattern, of query t at position t.
    causal: mask keys after the query.
    rate: dropout rate of the probabilities.
    key: PRNG key of dropout.

  Raises:
    InputError: where there is a gradient, if Numba is missing or the processor lacks its instructions.
  """
  plan = Plan(evaluate, causal, 0.0 if key is None else rate)
  return _attention(plan, q_BTHK, k_BSHK, v_BSHK, mask, key)


def _operations() -> Any:
  return native.load('attention', 'model.attention', 'without_numba')


def _call(name: str, plan: Plan, shapes: list[tuple[int, ...]], size: int, *inputs: Any) -> Any:
  """Run an operation; each thread gets a workspace of `size` values."""
  q_BTHK, k_BSHK, v_BSHK, mask, seed_2, *more = inputs
  (B, T, H, K), S = q_BTHK.shape, k_BSHK.shape[1]
  groups = mask.query_group_BT, mask.key_group_BS
  is_grouped = groups[0] is not None and groups[1] is not None
  if not is_grouped:
    groups = jnp.zeros((1, T), jnp.int32), jnp.zeros((1, S), jnp.int32)
  spread = lambda x, length: jnp.broadcast_to(x, (B, length)).astype(jnp.int32)
  query_group_BT, key_group_BS = spread(groups[0], T), spread(groups[1], S)
  threads = native.count_threads(B * H)
  least = np.uint32(min(round(plan.rate * 2**32), 2**32 - 1)).astype(np.int32)  # hashes from this value on are kept
  integers = jnp.array([threads, B, H, plan.causal, is_grouped, least], jnp.int32)
  integers = jnp.concatenate([integers, jax.lax.bitcast_convert_type(seed_2, jnp.int32)])
  numbers = jnp.array([[K**-0.5, 1.0 / (1.0 - plan.rate)]], jnp.float32)
  results = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (*shapes, (threads, size))]
  flat = lambda x: x.reshape(*x.shape[:2], -1) if x.ndim == 4 else x
  call = jax.ffi.ffi_call(name, results, vmap_method='sequential')
  arrays = *map(flat, (q_BTHK, k_BSHK, v_BSHK)), query_group_BT, key_group_BS
  return call(*arrays, integers[None], numbers, *map(flat, more))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(plan: Plan, q_BTHK: Array, k_BSHK: Array, v_BSHK: Array, mask: Any, key: Array | None) -> Array:
  return plan.evaluate(q_BTHK, k_BSHK, v_BSHK, mask, causal=plan.causal, rate=plan.rate, key=key)


def _forward(
  plan: Plan, q_BTHK: Array, k_BSHK: Array, v_BSHK: Array, mask: Any, key: Array | None
) -> tuple[Array, tuple[Any, ...]]:
  """Return the output, and as residuals the inputs and the statistics of the softmax (2, B H T)."""
  attention = _operations()
  (B, T, H, K), S, W = q_BTHK.shape, k_BSHK.shape[1], v_BSHK.shape[-1]
  seed_2 = dropout.seed(key) if key is not None and plan.rate else jnp.zeros(2, jnp.uint32)
  inputs = q_BTHK, k_BSHK, v_BSHK, mask, seed_2
  size = attention.forward_size(S, K, W)
  o_BTX, stats, _ = _call(attention.FORWARD, plan, [(B, T, H * W), (2, B * H * T)], size, *inputs)
  return o_BTX.reshape(B, T, H, W), (*inputs, stats)


def _backward(plan: Plan, residuals: tuple[Any, ...], do_BTHK: Array) -> tuple[Array | None, ...]:
  attention = _operations()
  arrays = residuals[:3]
  shapes = [(*x.shape[:2], x.shape[2] * x.shape[3]) for x in arrays]
  size = attention.backward_size(arrays[1].shape[1], arrays[0].shape[3], arrays[2].shape[3])
  *gradients, _ = _call(attention.BACKWARD, plan, shapes, size, *residuals, do_BTHK)
  return *(g.reshape(x.shape) for g, x in zip(gradients, arrays, strict=True)), None, None


_attention.defvjp(_forward, _backward)
