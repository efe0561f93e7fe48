"""Output layers: full softmax over a vocabulary whose matrix is the embedding (Press & Wolf 2017, arXiv 1608.05859).

Scores and loss are float32 whatever the compute type. The loss of many tokens is worked off in blocks along time, and
all (B, T, V) scores are never kept: where a sum is wanted (`summed`), a block's gradient is formed with its loss; where
the loss of every token is (`in_blocks`), the backward pass computes a block's scores again, a fourth matrix product on
top of three, which on a CPU is still faster than keeping them because memory is slower than the cores.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lmx.types import Array

CPU_BLOCK = 512  # tokens in one block on a CPU, the best of 83 to 4096 at V = 8k, 16k and 50k
BLOCK = 8192  # elsewhere: 1.6 GB of scores at V = 50k


def tied_logits(x_BTD: Array, table_VD: Array, bias_V: Array | None = None) -> Array:
  """Scores x · table + bias in the type of x, accumulated in float32: (B, T, V) float32."""
  y_BTV = jnp.einsum('...D,VD->...V', x_BTD, table_VD.astype(x_BTD.dtype), preferred_element_type=jnp.float32)
  return y_BTV if bias_V is None else y_BTV + bias_V.reshape((1,) * (y_BTV.ndim - 1) + (-1,))


def cross_entropy(logits_BTV: Array, targets_BT: Array) -> Array:
  """Negative log-likelihood of each target in nats, (B, T) float32."""
  target_BT = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)[..., 0]
  return jax.nn.logsumexp(logits_BTV, axis=-1) - target_BT


def smoothed(logits_BTV: Array, targets_BT: Array, eps: float, form: str = 'paper') -> tuple[Array, Array]:
  """Cross-entropy with smoothed labels (Szegedy et al. 2016, arXiv 1512.00567, section 7), and without.

  No log-probability is formed: with z the scores and L their log-sum-exp, the target costs L - z_target, and all
  entries together V L - sum(z).

  Args:
    logits_BTV: scores, float32.
    targets_BT: the right entries.
    eps: probability that is taken from the target.
    form: 'paper' spreads it over all V entries, the target among them; 'released' (tensor2tensor) over the other V - 1.

  Returns:
    (smoothed cross-entropy, negative log-likelihood), each (B, T) float32 in nats.
  """
  V = logits_BTV.shape[-1]
  norm_BT = jax.nn.logsumexp(logits_BTV, axis=-1)
  nll_BT = norm_BT - jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)[..., 0]
  every_BT = norm_BT - jnp.mean(logits_BTV, axis=-1)  # mean over the vocabulary
  if form == 'released':
    return (1 - eps) * nll_BT + eps / (V - 1) * (V * every_BT - nll_BT), nll_BT
  return (1 - eps) * nll_BT + eps * every_BT, nll_BT


def best(logits_BTV: Array, targets_BT: Array) -> Array:
  """Whether each target has the greatest score, of equal ones the first, as argmax has it: (B, T) float32.

  Several times as fast on a CPU as argmax, whose pairs of score and place XLA does not vectorise.
  """
  own_BT1 = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)
  before_BTV = jax.lax.broadcasted_iota(jnp.int32, logits_BTV.shape, logits_BTV.ndim - 1) < targets_BT[..., None]
  return jnp.all(jnp.where(before_BTV, logits_BTV < own_BT1, logits_BTV <= own_BT1), axis=-1).astype(jnp.float32)


def in_blocks(score: Callable[[Array, Array], Any], x_BTD: Array, targets_BT: Array, block: int | None = None) -> Any:
  """`score(x_BMD, targets_BM)`, a tree of (B, M) arrays, of a block of time after another, joined to (B, T).

  Args:
    score: forms the scores of a block; they are formed again in the backward pass.
    x_BTD: last hidden layer.
    targets_BT: what each position predicts.
    block: tokens in a block, at most (but at least one time step of all rows); None: `CPU_BLOCK` or `BLOCK`. Fewer
      tokens than this are one block, and their scores are kept.
  """
  blocks = _cut(block, x_BTD, targets_BT)
  if len(blocks[0]) == 1:
    return score(x_BTD, targets_BT)

  @functools.partial(jax.checkpoint, prevent_cse=False)
  def step(_, xs):
    return None, score(*xs)

  _, found = jax.lax.scan(step, None, blocks)
  return _joined(found, targets_BT.shape)


def _cut(block: int | None, *arrays_BT: Array) -> tuple[Array, ...]:
  """Blocks of time of (B, T, ...), the last one filled up with zeros: each (blocks, B, times, ...)."""
  if block is None:
    block = CPU_BLOCK if jax.default_backend() == 'cpu' else BLOCK
  B, T = arrays_BT[0].shape[:2]
  steps = -(-T // max(1, block // B))
  size = -(-T // steps)  # times in a block, evened out
  steps = -(-T // size)

  def cut(x_BT: Array) -> Array:
    # Time, not rows, goes to the front: rows may be divided over devices.
    padded = jnp.pad(x_BT, ((0, 0), (0, steps * size - T)) + ((0, 0),) * (x_BT.ndim - 2))
    return padded.reshape(B, steps, size, *x_BT.shape[2:]).swapaxes(0, 1)

  return tuple(map(cut, arrays_BT))


def _joined(tree: Any, shape: tuple[int, ...]) -> Any:
  """Blocks of time put together again, to (B, T, ...)."""
  B, T = shape
  return jax.tree.map(lambda y: y.swapaxes(0, 1).reshape(B, -1, *y.shape[3:])[:, :T], tree)


def summed(
  score: Callable[[Array, Array], tuple[Array, Any]],
  x_BTD: Array,
  targets_BT: Array,
  weights_BT: Array,
  block: int | None = None,
) -> tuple[Array, Any]:
  """A weighted sum of costs whose gradient is formed on the way forward, so that no block's scores are formed twice.

  As what goes backward through a sum is one number, the gradient needs but be multiplied by it in the end. That leaves
  three products of matrices where `in_blocks` has four, and nothing but the gradient is kept.

  Args:
    score: (costs, a tree of what is measured beside them) of a block, each (B, M), from `x_BMD` and `targets_BM`; the
      parameters that it closes over have gradients too.
    x_BTD: last hidden layer.
    targets_BT: what each position predicts.
    weights_BT: of the costs; they have no gradient.
    block: as in `in_blocks`.

  Returns:
    (the sum, float32; what is measured, (B, T), without gradients).
  """
  xs = _cut(block, x_BTD, targets_BT, weights_BT)
  closed, consts = jax.closure_convert(score, xs[0][0], xs[1][0])

  def total(x_BMD: Array, consts: Any, targets_BM: Array, weights_BM: Array) -> tuple[Array, Any]:
    costs_BM, measured = closed(x_BMD, targets_BM, *consts)
    return jnp.sum(costs_BM * weights_BM, dtype=jnp.float32), measured

  @jax.custom_vjp
  def run(x_NBMD: Array, consts: Any, targets_NBM: Array, weights_NBM: Array) -> tuple[Array, Any]:
    def step(sum_, xs):
      cost, measured = total(xs[0], consts, *xs[1:])
      return sum_ + cost, measured

    return jax.lax.scan(step, jnp.zeros((), jnp.float32), (x_NBMD, targets_NBM, weights_NBM))

  def forward(x_NBMD: Array, consts: Any, targets_NBM: Array, weights_NBM: Array) -> tuple[Any, Any]:
    def step(sums, xs):
      (cost, measured), (x_bar, bars) = jax.value_and_grad(total, (0, 1), has_aux=True)(xs[0], consts, *xs[1:])
      return jax.tree.map(jnp.add, sums, (cost, bars)), (measured, x_bar)

    start = jnp.zeros((), jnp.float32), jax.tree.map(jnp.zeros_like, consts)
    (cost, bars), (measured, x_bars) = jax.lax.scan(step, start, (x_NBMD, targets_NBM, weights_NBM))
    return (cost, measured), (x_bars, bars)

  def backward(bars: Any, given: Any) -> tuple[Any, ...]:
    x_bars, consts_bars = jax.tree.map(lambda bar: (given[0] * bar).astype(bar.dtype), bars)
    return x_bars, consts_bars, None, None

  run.defvjp(forward, backward)
  cost, measured = run(xs[0], consts, *xs[1:])
  return cost, jax.lax.stop_gradient(_joined(measured, targets_BT.shape))


def tied_nll(
  x_BTD: Array, table_VD: Array, targets_BT: Array, bias_V: Array | None = None, *, block: int | None = None
) -> Array:
  """Negative log-likelihood of each target in nats, (B, T) float32; `block` as in `in_blocks`."""
  score = lambda x_BMD, targets_BM: cross_entropy(tied_logits(x_BMD, table_VD, bias_V), targets_BM)
  return in_blocks(score, x_BTD, targets_BT, block)
