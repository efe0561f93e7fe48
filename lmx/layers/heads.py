"""Output layers: full softmax over a vocabulary whose matrix is the embedding (Press & Wolf 2017, arXiv 1608.05859).

Scores and loss are float32 whatever the compute type. The loss of many tokens is worked off in blocks along time, and
the backward pass computes a block's scores again instead of keeping all (B, T, V) of them. On a CPU that is faster
than keeping them, though it costs a fourth matrix product on top of three, because memory is slower than the cores.
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


def in_blocks(score: Callable[[Array, Array], Any], x_BTD: Array, targets_BT: Array, block: int | None = None) -> Any:
  """`score(x_BMD, targets_BM)`, a tree of (B, M) arrays, of a block of time after another, joined to (B, T).

  Args:
    score: forms the scores of a block; they are formed again in the backward pass.
    x_BTD: last hidden layer.
    targets_BT: what each position predicts.
    block: tokens in a block, at most (but at least one time step of all rows); None: `CPU_BLOCK` or `BLOCK`. Fewer
      tokens than this are one block, and their scores are kept.
  """
  if block is None:
    block = CPU_BLOCK if jax.default_backend() == 'cpu' else BLOCK
  B, T = targets_BT.shape
  steps = -(-T // max(1, block // B))
  if steps == 1:
    return score(x_BTD, targets_BT)
  size = -(-T // steps)  # time steps in a block, evened out
  steps = -(-T // size)
  pad = ((0, 0), (0, steps * size - T))
  # Time, not rows, goes to the front: rows may be divided over devices.
  x_NBMD = jnp.pad(x_BTD, (*pad, (0, 0))).reshape(B, steps, size, -1).swapaxes(0, 1)
  targets_NBM = jnp.pad(targets_BT, pad).reshape(B, steps, size).swapaxes(0, 1)

  @functools.partial(jax.checkpoint, prevent_cse=False)
  def step(_, xs):
    return None, score(*xs)

  _, found = jax.lax.scan(step, None, (x_NBMD, targets_NBM))
  return jax.tree.map(lambda y_NBM: y_NBM.swapaxes(0, 1).reshape(B, -1)[:, :T], found)


def tied_nll(
  x_BTD: Array, table_VD: Array, targets_BT: Array, bias_V: Array | None = None, *, block: int | None = None
) -> Array:
  """Negative log-likelihood of each target in nats, (B, T) float32; `block` as in `in_blocks`."""
  score = lambda x_BMD, targets_BM: cross_entropy(tied_logits(x_BMD, table_VD, bias_V), targets_BM)
  return in_blocks(score, x_BTD, targets_BT, block)
