"""Transformer decoder layer (Vaswani et al. 2017, arXiv 1706.03762, section 3.1), with cross-attention.

Its source is the encoder's output, or keys and values precomputed from it (`source_keys`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from lmx.layers import transformer
from lmx.layers.block import Block
from lmx.layers.kv_cache import Cache
from lmx.layers.transformer import Projection, SelfAttention, layer_keys
from lmx.ops.masks import AttentionMask
from lmx.placement import constrain
from lmx.types import Array, Params


class Source(NamedTuple):
  """Source of a decoder layer.

  Attributes:
    states: the encoder's output (B, S, D), or the keys and values from `source_keys`.
    mask: attention mask of target queries and source keys.
  """

  states: Array | Cache
  mask: AttentionMask = AttentionMask()


class CrossAttention(SelfAttention):
  """Multi-head attention to a source: kernels q (D, H, K), kv (D, 2, H, K) of keys and values, and out (H, K, D)."""

  kind = 'cross'

  @nn.compact
  def __call__(self, x_BTD: Array, source: Source, key: Array | None) -> Array:  # type: ignore[override]
    q_BTHK = constrain(self.project_q(x_BTD), 'BTHK')
    states = source.states
    k_BSHK, v_BSHK = states if isinstance(states, tuple) else self.project_kv(states)
    k_BSHK, v_BSHK = constrain(k_BSHK, 'BSHK'), constrain(v_BSHK, 'BSHK')
    return self.attend(q_BTHK, k_BSHK, v_BSHK, source.mask, key)

  def project_q(self, x_BTD: Array) -> Array:
    """Return the queries, (B, T, H, K)."""
    D = x_BTD.shape[-1]
    return self.project((D,), (self.heads, D // self.heads), name='q')(x_BTD)

  def project_kv(self, source_BSD: Array) -> Cache:
    """Return the keys and values of the source, each (B, S, H, K)."""
    return self.to_kv(source_BSD.shape[-1], name='kv')(source_BSD)

  def source_keys(self, params: Params, source_BSD: Array) -> Cache:
    """Apply `project_kv` with the module's parameters."""
    to_kv: Any = self.to_kv(source_BSD.shape[-1], parent=None)
    return to_kv.apply({'params': params['kv']}, source_BSD)

  def to_kv(self, D: int, **fields: Any) -> Projection:
    """Return the projection of the source; as in self-attention, the keys' bias gets no gradient."""
    return self.project((D,), (2, self.heads, D // self.heads), fused=2, idle=0, **fields)


class DecoderBlock(Block):
  """Self-attention, cross-attention (`cross`) and feed-forward network; otherwise as `block.Block`."""

  cross: nn.Module = CrossAttention(1)

  @nn.compact
  def __call__(
    self,
    x_BTD: Array,
    mask: AttentionMask,
    cache: Cache | None = None,
    position_BT: Array | None = None,
    key: Array | None = None,
    source: Source | None = None,
  ) -> tuple[Array, Cache | None]:
    keys = layer_keys(key)
    f_BTD, cache = self.attention(self.before('norm_1', x_BTD), mask, cache, position_BT, keys.attention)
    x_BTD = self.add('norm_1', x_BTD, f_BTD, keys.residual_1)
    f_BTD = self.cross(self.before('norm_cross', x_BTD), source, keys.cross)
    x_BTD = self.add('norm_cross', x_BTD, f_BTD, keys.residual_cross)
    f_BTD = self.mlp(self.before('norm_2', x_BTD), keys.mlp)
    return self.add('norm_2', x_BTD, f_BTD, keys.residual_2), cache


def init_block(block: DecoderBlock, width: int, key: Array, *, dtype: str = 'float32') -> Params:
  """Initialise the parameters of one layer: attention, cross, mlp, norm_1, norm_cross, norm_2."""
  return transformer.init_block(block, width, key, dtype=dtype, source=Source(jnp.zeros((1, 1, width), dtype)))


def source_keys(block: DecoderBlock, params: Params, source_BSD: Array) -> Cache:
  """Return the keys and values of a block for the encoder's output, each (B, S, H, K)."""
  cross: Any = block.cross
  return cross.source_keys(params['cross'], source_BSD)
