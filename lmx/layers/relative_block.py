"""Self-attention that counts positions from the query, over a segment and a memory of what came before it.

Dai et al. 2019 (arXiv 1901.02860), section 3.2: the keys of a layer are made from [memory; x], the memory being the
layer's inputs for the M positions before, without a gradient. Section 3.3: with d the distance from a query back to a
key, the score is (q + u) · k + (q + v) · r(d), where r(d) = W_r R(d) and R are the sinusoids of Vaswani et al. 2017:
the paper's terms (a) q · k, (b) q · r, (c) u · k and (d) v · r, of which (a, c) and (b, d) are one product each.

The scores are made in lmx/layers/relative_attention.py. `RelativeAttention` takes the place of the self-attention of a
`transformer.Block`; what all its layers share comes in the place of a mask, as a `Reach`. A memory is the layer's
inputs (B, M, D), or, where parameters stay as they are (decoding), the keys and values already made of them.

Axes: S = M + T keys.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx.layers import attention, relative_attention
from lmx.layers.masks import PADDING, AttentionMask
from lmx.layers.transformer import Projection, SelfAttention
from lmx.types import Array

POSITIONS = ('sinusoids', 'shaw', 'absolute')


class Reach(NamedTuple):
  """What the layers have in common.

  Attributes:
    encoding_SD: R of the distances S - 1 to 0 (a layer takes the last it needs); None without sinusoids of distances.
    filled_B: how many of the memory's last places are to be looked at, or None for all.
    count_B: real tokens of each row of the segment, or None for all.
    u_HK: bias of the queries to keys, None where each layer has its own.
    v_HK: bias of the queries to distances, likewise.
  """

  encoding_SD: Array | None = None
  filled_B: Array | None = None
  count_B: Array | None = None
  u_HK: Array | None = None
  v_HK: Array | None = None


def remember(memory_BMX: Array, new_BTX: Array, count_B: Array | None) -> Array:
  """The memory after a segment, of whose rows `count_B` tokens are real: its last M places, without a gradient."""
  M, T = memory_BMX.shape[1], new_BTX.shape[1]
  both = jax.lax.stop_gradient(jnp.concatenate([memory_BMX, new_BTX.astype(memory_BMX.dtype)], axis=1))
  if count_B is None:
    return both[:, T:]
  place_BM = count_B[:, None] + jnp.arange(M, dtype=jnp.int32)
  return jnp.take_along_axis(both, place_BM.reshape(*place_BM.shape, *(1,) * (both.ndim - 2)), axis=1)


def _places(filled_B: Array | None, B: int, T: int, S: int) -> AttentionMask:  # noqa: N803
  """The same memory for attention that does not count from the query: its empty places are padding."""
  if filled_B is None:
    return AttentionMask()
  position_BT = jnp.broadcast_to(S - T + jnp.arange(T, dtype=jnp.int32), (B, T))
  there_BS = jnp.arange(S)[None] >= S - T - filled_B[:, None]
  return AttentionMask(position_BT, jnp.zeros((B, T), jnp.int32), jnp.where(there_BS, 0, PADDING))


class RelativeAttention(SelfAttention):
  """Multi-head attention over [memory; x]: kernels qkv (D, 3, H, K), r (D, H, K) and out (H, K, D).

  Attributes:
    untied: u and v are this layer's own.
    positions: 'sinusoids'; 'shaw': a learned vector and bias for each distance and head in the place of r(d) and v
      (Shaw et al. 2018, arXiv 1803.02155, as in Transformer-XL's ablation and its code); 'absolute': none here.
    clamp: 'shaw': greatest distance that has a vector of its own.
    farthest: greatest distance that a query looks at; None: any.
  """

  untied: bool = False
  positions: str = 'sinusoids'
  clamp: int = 0
  farthest: int | None = None

  @nn.compact
  def __call__(self, x_BTD: Array, look: Any, cache: Any, position_BT: Any, key: Array | None) -> tuple[Array, Any]:
    del position_BT
    D, (H, K) = x_BTD.shape[2], (self.heads, x_BTD.shape[2] // self.heads)
    qkv_DCHK = self.param('qkv', nn.initializers.normal(self.std), (D, 3, H, K)).astype(self.drawn['dtype'])
    project = lambda x_BSD, c: jnp.einsum('BSD,DHK->BSHK', x_BSD, qkv_DCHK[:, c])
    q_BTHK = project(x_BTD, 0)
    k_BSHK, v_BSHK = new = project(x_BTD, 1), project(x_BTD, 2)
    if cache is not None:  # projected by itself, as no gradient goes into it
      kept = isinstance(cache, tuple)  # keys and values
      old = cache if kept else (project(cache.astype(x_BTD.dtype), 1), project(cache.astype(x_BTD.dtype), 2))
      k_BSHK, v_BSHK = (jnp.concatenate(both, axis=1) for both in zip(old, new, strict=True))
      pairs = zip(cache, new, strict=True) if kept else [(cache, x_BTD)]
      remembered = tuple(remember(*pair, look.count_B) for pair in pairs)
      cache = remembered if kept else remembered[0]
    S = k_BSHK.shape[1]
    filled_B = look.filled_B if S > x_BTD.shape[1] else None
    options: dict[str, Any] = dict(backend=self.backend, rate=self.rate, key=key)
    if self.positions == 'absolute':
      places = _places(filled_B, x_BTD.shape[0], x_BTD.shape[1], S)
      o_BTHK = attention.attend(q_BTHK, k_BSHK, v_BSHK, places, causal=True, **options)
    else:
      a_BTHK, b_BTHK, r_SHK, bias_HS = self._distances(q_BTHK, S, look)
      mask = relative_attention.Mask(filled_B, self.farthest)
      o_BTHK = relative_attention.attend(a_BTHK, b_BTHK, k_BSHK, v_BSHK, r_SHK, bias_HS, mask, **options)
    return Projection((H, K), (D,), self.residual_std, **self.drawn, name='out')(o_BTHK), cache

  def _distances(self, q_BTHK: Array, S: int, look: Reach) -> tuple[Array, Array, Array, Array | None]:
    """(queries for keys, queries for distances, vectors of the distances S - 1 to 0, biases of these)."""
    H, K = q_BTHK.shape[2:]
    biased = lambda bias_HK: q_BTHK + bias_HK.astype(q_BTHK.dtype)
    own = lambda name, shape: self.param(name, nn.initializers.normal(self.std), shape)
    if self.positions == 'shaw':
      row_S = jnp.minimum(jnp.arange(S - 1, -1, -1), self.clamp)
      r_SHK = own('distances', (self.clamp + 1, H, K))[row_S].astype(q_BTHK.dtype)
      return biased(own('u', (H, K))), q_BTHK, r_SHK, own('distance_bias', (self.clamp + 1, H))[row_S].T
    u_HK, v_HK = (own('u', (H, K)), own('v', (H, K))) if self.untied else (look.u_HK, look.v_HK)
    encoding_SD: Any = look.encoding_SD
    D = encoding_SD.shape[1]
    r_SHK = Projection((D,), (H, K), self.std, **self.drawn, name='r')(encoding_SD[-S:])
    return biased(u_HK), biased(v_HK), r_SHK, None
