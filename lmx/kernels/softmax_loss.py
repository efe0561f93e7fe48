"""Softmax losses computed in chunks along time, so that the (B, T, V) logits are never stored.

Equal to the loss of all tokens at once (lmx/ops/softmax_loss.py). `weighted_sum` needs only a sum, so a chunk's
gradient is computed together with its loss. `token_losses` returns the loss of every token, so the backward pass
recomputes a chunk's logits, a fourth matrix product. On a CPU that is still faster than storing them, because memory is
slower than the cores.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lmx import placement
from lmx.kernels import devices
from lmx.ops import softmax_loss
from lmx.ops.visible import MASKED
from lmx.types import Array

CPU_CHUNK = 512  # tokens per chunk on a CPU: fastest of 83 to 4096 at V = 8k, 16k and 50k
CHUNK = 8192  # elsewhere: 1.6 GB of float32 logits at V = 50k; twice as many in bfloat16


def target_logits(logits_BTV: Array, targets_BT: Array) -> Array:
  """Compute `softmax_loss.target_logits`.

  The gradient of this gather is a scatter-add into zeros. On a GPU that costs another pass over the logits, so there
  ids are compared instead, which XLA fuses with the log-sum-exp gradient.
  """
  return (_compared if devices.is_platform('gpu') else softmax_loss.target_logits.equation)(logits_BTV, targets_BT)


_compared = jax.custom_vjp(softmax_loss.target_logits.equation)


def _compared_forward(logits_BTV: Array, targets_BT: Array) -> tuple[Array, tuple[Array, Array]]:
  return softmax_loss.target_logits.equation(logits_BTV, targets_BT), (
    targets_BT,
    jnp.zeros((0, logits_BTV.shape[-1]), logits_BTV.dtype),
  )


def _compared_backward(residuals: tuple[Array, Array], bar_BT: Array) -> tuple[Array, None]:
  targets_BT, like_0V = residuals
  ids_BTV = jax.lax.broadcasted_iota(targets_BT.dtype, (*targets_BT.shape, like_0V.shape[1]), targets_BT.ndim)
  return jnp.where(ids_BTV == targets_BT[..., None], bar_BT[..., None], 0).astype(like_0V.dtype), None


_compared.defvjp(_compared_forward, _compared_backward)


def log_normalizer(logits_BTV: Array) -> Array:
  """Compute `softmax_loss.log_normalizer`; on a GPU maximum and sum in one pass over the logits."""
  return (_in_one_pass if devices.is_platform('gpu') else softmax_loss.log_normalizer.equation)(logits_BTV)


@jax.custom_vjp
def _in_one_pass(logits_BTV: Array) -> Array:
  return _one_pass_forward(logits_BTV)[0]


def _one_pass_forward(logits_BTV: Array) -> tuple[Array, tuple[Array, ...]]:
  """Reduce pairs of a maximum and a sum relative to it, as FlashAttention does; the residuals are logits and pairs."""

  def add(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    most = jnp.maximum(a[0], b[0])
    return most, a[1] * jnp.exp(a[0] - most) + b[1] * jnp.exp(b[0] - most)

  start = jnp.array(MASKED, jnp.float32), jnp.zeros((), jnp.float32)
  pairs = logits_BTV.astype(jnp.float32), jnp.ones(logits_BTV.shape, jnp.float32)
  most_BT, sum_BT = jax.lax.reduce(pairs, start, add, (logits_BTV.ndim - 1,))
  return most_BT + jnp.log(sum_BT), (logits_BTV, most_BT, sum_BT)


def _one_pass_backward(residuals: tuple[Array, ...], bar_BT: Array) -> tuple[Array]:
  logits_BTV, most_BT, sum_BT = residuals
  return ((jnp.exp(logits_BTV - most_BT[..., None]) * (bar_BT / sum_BT)[..., None]).astype(logits_BTV.dtype),)


_in_one_pass.defvjp(_one_pass_forward, _one_pass_backward)


def is_best(logits_BTV: Array, targets_BT: Array) -> Array:
  """Compute `softmax_loss.is_best`.

  Several times faster on a CPU than argmax, because XLA does not vectorise its (value, index) pairs.
  """
  own_BT1 = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)
  before_BTV = jax.lax.broadcasted_iota(jnp.int32, logits_BTV.shape, logits_BTV.ndim - 1) < targets_BT[..., None]
  return jnp.all(jnp.where(before_BTV, logits_BTV < own_BT1, logits_BTV <= own_BT1), axis=-1).astype(jnp.float32)


def token_losses(
  score: Callable[[Array, Array], Any], x_BTD: Array, targets_BT: Array, chunk: int | None = None
) -> Any:
  """Compute `softmax_loss.token_losses` in chunks along time, which the backward pass recomputes.

  Args:
    score, x_BTD, targets_BT: as there.
    chunk: maximum number of tokens in a chunk (at least one time step of all rows); None: `CPU_CHUNK` or
      `CHUNK`, or all tokens without a placement. Fewer tokens than this are one chunk, and their logits are stored.
  """
  chunks = _split(chunk, x_BTD, targets_BT)
  if len(chunks[0]) == 1:
    return score(x_BTD, targets_BT)

  @functools.partial(jax.checkpoint, prevent_cse=False)
  def step(_: None, xs: tuple[Array, ...]) -> tuple[None, Array]:
    return None, score(*xs)

  _, losses = jax.lax.scan(step, None, chunks)
  return _join(losses, targets_BT.shape)


def _split(chunk: int | None, *arrays_BT: Array) -> tuple[Array, ...]:
  """Split (B, T, ...) into chunks of time, the last one zero-padded: each (chunks, B, times, ...)."""
  B, T = arrays_BT[0].shape[:2]
  if chunk is None and placement.current() is None:
    chunk = B * T
  elif chunk is None:
    chunk = CPU_CHUNK if devices.is_platform('cpu') else CHUNK * 4 // jnp.dtype(devices.placed().logits).itemsize
  steps = -(-T // max(1, chunk * devices.row_shards(B) // B))
  size = -(-T // steps)  # time steps in a chunk, balanced
  steps = -(-T // size)

  def split(x_BT: Array) -> Array:
    # Time becomes the leading axis instead of rows, because rows may be sharded over devices.
    x_padded = jnp.pad(x_BT, ((0, 0), (0, steps * size - T)) + ((0, 0),) * (x_BT.ndim - 2))
    return x_padded.reshape(B, steps, size, *x_BT.shape[2:]).swapaxes(0, 1)

  return tuple(map(split, arrays_BT))


def _join(tree: Any, shape: tuple[int, ...]) -> Any:
  """Concatenate time chunks to (B, T, ...)."""
  B, T = shape
  return jax.tree.map(lambda y: y.swapaxes(0, 1).reshape(B, -1, *y.shape[3:])[:, :T], tree)


def weighted_sum(
  score: Callable[[Array, Array], tuple[Array, Any]],
  x_BTD: Array,
  targets_BT: Array,
  weights_BT: Array,
  chunk: int | None = None,
) -> tuple[Array, Any]:
  """Compute `softmax_loss.weighted_sum`, with its gradient in the forward pass, so logits are computed once.

  The cotangent of a sum is a scalar, by which the backward pass multiplies the gradient. So there are three matrix
  products, where `token_losses` has four, and only the gradient is stored.

  Args:
    score, x_BTD, targets_BT, weights_BT: as there; parameters in the closure of `score` get gradients too.
    chunk: as in `token_losses`.
  """
  xs = _split(chunk, x_BTD, targets_BT, weights_BT)
  closed, consts = jax.closure_convert(score, xs[0][0], xs[1][0])

  def chunk_total(x_BMD: Array, consts: Any, targets_BM: Array, weights_BM: Array) -> tuple[Array, Any]:
    costs_BM, metrics = closed(x_BMD, targets_BM, *consts)
    return jnp.sum(costs_BM * weights_BM, dtype=jnp.float32), metrics

  @jax.custom_vjp
  def run(x_NBMD: Array, consts: Any, targets_NBM: Array, weights_NBM: Array) -> tuple[Array, Any]:
    def step(sum_: Array, xs: tuple[Array, ...]) -> tuple[Array, Any]:
      cost, metrics = chunk_total(xs[0], consts, *xs[1:])
      return sum_ + cost, metrics

    return jax.lax.scan(step, jnp.zeros((), jnp.float32), (x_NBMD, targets_NBM, weights_NBM))

  def forward(x_NBMD: Array, consts: Any, targets_NBM: Array, weights_NBM: Array) -> tuple[Any, Any]:
    def step(sums: tuple[Array, Any], xs: tuple[Array, ...]) -> tuple[tuple[Array, Any], tuple[Any, Array]]:
      (cost, metrics), (x_bar, bars) = jax.value_and_grad(chunk_total, (0, 1), has_aux=True)(xs[0], consts, *xs[1:])
      return jax.tree.map(jnp.add, sums, (cost, bars)), (metrics, x_bar)

    start = jnp.zeros((), jnp.float32), jax.tree.map(jnp.zeros_like, consts)
    (cost, bars), (metrics, x_bars) = jax.lax.scan(step, start, (x_NBMD, targets_NBM, weights_NBM))
    return (cost, metrics), (x_bars, bars)

  def backward(bars: Any, cotangents: Any) -> tuple[Any, ...]:
    x_bars, consts_bars = jax.tree.map(lambda bar: (cotangents[0] * bar).astype(bar.dtype), bars)
    return x_bars, consts_bars, None, None

  run.defvjp(forward, backward)
  cost, metrics = run(xs[0], consts, *xs[1:])
  return cost, jax.lax.stop_gradient(_join(metrics, targets_BT.shape))
