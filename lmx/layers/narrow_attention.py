"""Multi-head attention whose queries and keys differ in width from its values (Vaswani et al. 2017, table 3, rows B).

Queries, keys and values have a kernel each: q and k (D, H, K), v (D, H, D / H). Keys have no bias, which would add a
constant to all scores of a query.
"""

from __future__ import annotations

from typing import Any

from lmx.layers import decoder_block, transformer
from lmx.layers.kv_cache import Cache
from lmx.layers.transformer import Projection
from lmx.placement import constrain
from lmx.types import Array, Params


class _Narrow:
  """Projections of queries, keys and values; `key_width` is K."""

  heads: int
  kernel_init: transformer.Init
  bias: bool
  dtype: str
  key_width: int

  def project_one(self, part: str, D: int, **fields: Any) -> Projection:
    """Return the projection of 'q', 'k' or 'v'."""
    outputs = self.heads, D // self.heads if part == 'v' else self.key_width
    bias = self.bias and part != 'k'
    return Projection((D,), outputs, self.kernel_init, bias=bias, dtype=self.dtype, name=part, **fields)


class SelfAttention(_Narrow, transformer.SelfAttention):
  """Self-attention with keys of width `key_width`."""

  key_width: int = 1

  def project_qkv(self, x_BTD: Array) -> tuple[Array, ...]:
    """Return queries and keys (B, T, H, K), and values (B, T, H, D / H)."""
    return tuple(constrain(self.project_one(part, x_BTD.shape[-1])(x_BTD), 'BTHK') for part in 'qkv')


class CrossAttention(_Narrow, decoder_block.CrossAttention):
  """Cross-attention with keys of width `key_width`."""

  key_width: int = 1

  def project_q(self, x_BTD: Array) -> Array:
    """Return the queries, (B, T, H, K)."""
    return self.project_one('q', x_BTD.shape[-1])(x_BTD)

  def project_kv(self, source_BSD: Array) -> Cache:
    """Return the keys (B, S, H, K) and values (B, S, H, D / H) of the source."""
    D = source_BSD.shape[-1]
    return self.project_one('k', D)(source_BSD), self.project_one('v', D)(source_BSD)

  def source_keys(self, params: Params, source_BSD: Array) -> Cache:
    """Apply `project_kv` with the module's parameters."""
    k, v = (self.project_one(part, source_BSD.shape[-1], parent=None) for part in 'kv')
    apply: Any = lambda projection, part: projection.apply({'params': params[part]}, source_BSD)
    return apply(k, 'k'), apply(v, 'v')
