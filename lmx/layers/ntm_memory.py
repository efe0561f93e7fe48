"""The memory of the Neural Turing Machine: addressing, reading and writing.

Graves, Wayne & Danihelka 2014 (arXiv 1410.5401), section 3, equations 2 to 9. A weighting is formed by content
(`content_weights`), interpolated with the previous one (`interpolate`), shifted (`shift`) and sharpened (`sharpen`);
`address` does all four. All are pure functions in float32.

Deviations: norms in the cosine are sqrt(|u|^2 + eps^2), which is differentiable at zero. Sharpening is the softmax of
gamma log w, with log w at least log(TINY): equation 9 without overflow.

Axes: S rows of the memory (the paper's N), W width of a row (its M), K shifts.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lmx.types import Array

TINY = 1e-30


class Addressing(NamedTuple):
  """Addressing parameters of the heads (section 3.3), in the ranges of the equations.

  Attributes:
    key_BHW: k, any values.
    strength_BH: beta, above 0.
    gate_BH: g, between 0 and 1.
    shift_BHK: s, sums to 1; entry j moves by j - (K - 1) / 2 rows.
    gamma_BH: at least 1.
  """

  key_BHW: Array
  strength_BH: Array
  gate_BH: Array
  shift_BHK: Array
  gamma_BH: Array


def sizes(width: int, shifts: int) -> tuple[int, ...]:
  """Return the size of each field of Addressing for one head, for rows of `width` and K `shifts`."""
  return width, 1, 1, shifts, 1


def addressing(raw: tuple[Array, ...]) -> Addressing:
  """Map unbounded outputs, (B, H, size) each: softplus for beta and gamma - 1, sigmoid for g, softmax for s."""
  key_BHW, strength_BH1, gate_BH1, shift_BHK, gamma_BH1 = raw
  return Addressing(
    key_BHW,
    jax.nn.softplus(strength_BH1[..., 0]),
    jax.nn.sigmoid(gate_BH1[..., 0]),
    jax.nn.softmax(shift_BHK, axis=-1),
    1.0 + jax.nn.softplus(gamma_BH1[..., 0]),
  )


def similarity(key_BHW: Array, memory_BSW: Array, eps: float) -> Array:
  """Return the cosine of each key with each row, (B, H, S): equation 6."""
  length = lambda x: jnp.sqrt(jnp.sum(x * x, axis=-1) + eps * eps)
  product_BHS = jnp.einsum('BHW,BSW->BHS', key_BHW, memory_BSW)
  return product_BHS / (length(key_BHW)[..., None] * length(memory_BSW)[:, None])


def content_weights(key_BHW: Array, strength_BH: Array, memory_BSW: Array, eps: float) -> Array:
  """Return the weighting by content, (B, H, S): equation 5."""
  return jax.nn.softmax(strength_BH[..., None] * similarity(key_BHW, memory_BSW, eps), axis=-1)


def interpolate(content_BHS: Array, before_BHS: Array, gate_BH: Array) -> Array:
  """Interpolate between content weighting (gate 1) and the previous weighting (gate 0): equation 7."""
  return before_BHS + gate_BH[..., None] * (content_BHS - before_BHS)


def shift(weights_BHS: Array, shift_BHK: Array) -> Array:
  """Convolve circularly with the distribution over shifts: equation 8."""
  K = shift_BHK.shape[-1]
  moved = (jnp.roll(weights_BHS, j - (K - 1) // 2, axis=-1) * shift_BHK[..., j, None] for j in range(K))
  return sum(moved, jnp.zeros_like(weights_BHS))


def sharpen(weights_BHS: Array, gamma_BH: Array) -> Array:
  """Return w^gamma, normalised to sum 1: equation 9."""
  return jax.nn.softmax(gamma_BH[..., None] * jnp.log(jnp.maximum(weights_BHS, TINY)), axis=-1)


def address(head: Addressing, before_BHS: Array, memory_BSW: Array, eps: float) -> Array:
  """Return the next weighting of each head, (B, H, S): equations 5 to 9, figure 2."""
  content_BHS = content_weights(head.key_BHW, head.strength_BH, memory_BSW, eps)
  gated_BHS = interpolate(content_BHS, before_BHS, head.gate_BH)
  return sharpen(shift(gated_BHS, head.shift_BHK), head.gamma_BH)


def read(weights_BHS: Array, memory_BSW: Array) -> Array:
  """Return the read vector of each head, (B, H, W): equation 2."""
  return jnp.einsum('BHS,BSW->BHW', weights_BHS, memory_BSW)


def write(weights_BHS: Array, erase_BHW: Array, add_BHW: Array, memory_BSW: Array) -> Array:
  """Return the memory after all heads have erased and then all have added: equations 3 and 4."""
  for h in range(weights_BHS.shape[1]):
    memory_BSW = memory_BSW * (1.0 - weights_BHS[:, h, :, None] * erase_BHW[:, h, None, :])
  return memory_BSW + jnp.einsum('BHS,BHW->BSW', weights_BHS, add_BHW)
