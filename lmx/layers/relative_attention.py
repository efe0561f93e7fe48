"""Relative-attention layer parts (lmx/ops/relative_attention.py): distance vectors and segment memory.

Dai et al. 2019, arXiv 1901.02860, sections 3.2 and 3.3.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx.ops import relative_attention
from lmx.types import Array


class DistanceVectors(nn.Module):
  """Vectors r_d = W_r R_d of the distances, (R, H, K), in the type of R_d; W_r is normal."""

  outputs: tuple[int, int]
  std: float

  @nn.compact
  def __call__(self, encoding_RD: Array) -> Array:
    kernel_DHK = self.param('kernel', nn.initializers.normal(self.std), (encoding_RD.shape[-1], *self.outputs))
    return relative_attention.distance_vectors(encoding_RD, kernel_DHK)


def update_memory(memory_BMX: Array, new_BTX: Array, count_B: Array | None) -> Array:
  """Return the last M positions of [memory; new], without a gradient (Dai et al., section 3.2).

  `count_B` is the number of valid tokens in each row of `new_BTX`; None: all.
  """
  M, T = memory_BMX.shape[1], new_BTX.shape[1]
  extended = jax.lax.stop_gradient(jnp.concatenate([memory_BMX, new_BTX.astype(memory_BMX.dtype)], axis=1))
  if count_B is None:
    return extended[:, T:]
  position_BM = count_B[:, None] + jnp.arange(M, dtype=jnp.int32)
  return jnp.take_along_axis(extended, position_BM.reshape(*position_BM.shape, *(1,) * (extended.ndim - 2)), axis=1)
