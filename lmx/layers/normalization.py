"""Batch normalisation (Ioffe and Szegedy 2015, arXiv 1502.03167) as a pure function.

The running mean and variance are parameters without gradients: training returns their new values, and the step writes
them into the parameters after the update (`Output.statistics`). So they are saved, resumed, averaged and loaded like
every other parameter, and evaluation is a function of parameters and batch only.

Statistics are those of the global batch: under `jit` arrays are global, under `pmap` sums are `psum` over `axis`.
Padding rows have weight 0. As in PyTorch the batch is normalised by the variance with denominator n, and the running
variance uses denominator n - 1.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lmx.types import Array, Params


def init_batch_norm(width: int) -> Params:
  """Return {'scale', 'bias', 'mean', 'variance'}, each (D,): the identity, but for epsilon."""
  ones, zeros = jnp.ones(width, jnp.float32), jnp.zeros(width, jnp.float32)
  return {'scale': ones, 'bias': zeros, 'mean': zeros, 'variance': ones}


def batch_norm(
  params: Params,
  x_BD: Array,
  weights_B: Array,
  *,
  training: bool,
  momentum: float = 0.1,  # PyTorch's and fastai's
  eps: float = 1e-5,  # PyTorch's and fastai's
  axis: str | None = None,
) -> tuple[Array, Params | None]:
  """Normalise each column by the batch's mean and variance, or by the running ones at evaluation.

  Args:
    params: from `init_batch_norm`.
    x_BD: rows, float32.
    weights_B: 1 for real rows, 0 for padding.
    training: use the statistics of the batch.
    momentum: weight of the new statistics in the running ones.
    eps: added to the variance.
    axis: `pmap` axis over which the batch is sharded; None where the array is global.

  Returns:
    (y_BD, the updated running {'mean', 'variance'}, or None when not training).
  """
  if not training:
    mean_D, variance_D = params['mean'], params['variance']
    statistics = None
  else:
    total = lambda x: x if axis is None else jax.lax.psum(x, axis)
    count = jnp.maximum(total(jnp.sum(weights_B)), 1.0)
    mean_D = total(jnp.sum(weights_B[:, None] * x_BD, axis=0)) / count
    variance_D = total(jnp.sum(weights_B[:, None] * jnp.square(x_BD - mean_D), axis=0)) / count
    unbiased_D = variance_D * count / jnp.maximum(count - 1.0, 1.0)
    running = lambda old, new: (1.0 - momentum) * old + momentum * jax.lax.stop_gradient(new)
    statistics = {
      'mean': running(params['mean'], mean_D),
      'variance': running(params['variance'], unbiased_D),
    }
  scale_D = params['scale'] * jax.lax.rsqrt(variance_D + eps)
  return (x_BD - mean_D) * scale_D + params['bias'], statistics
