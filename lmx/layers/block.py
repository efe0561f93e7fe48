"""Transformer layer (Vaswani et al. 2017, arXiv 1706.03762, section 3.1), pre-norm or post-norm."""

from __future__ import annotations

from typing import Any

import flax.linen as nn

from lmx.layers.transformer import Norm, layer_keys
from lmx.ops import dropout
from lmx.types import Array


class Block(nn.Module):
  """Attention and feed-forward network, each with a residual connection.

  Attributes:
    attention: `SelfAttention`, or a module with the same arguments.
    mlp: `Mlp`, or a module with the same arguments.
    norm: 'pre': x + f(norm(x)); 'post': norm(x + f(x)).
    eps: epsilon of layer normalisation.
    rate: dropout rate of f.
    dtype: compute type.
  """

  attention: nn.Module
  mlp: nn.Module
  norm: str
  eps: float
  rate: float = 0.0
  dtype: str = 'float32'

  @nn.compact
  def __call__(
    self,
    x_BTD: Array,
    mask: Any,
    cache: Any = None,
    position_BT: Array | None = None,
    key: Array | None = None,
  ) -> tuple[Array, Any]:
    keys = layer_keys(key)
    f_BTD, cache = self.attention(self.before('norm_1', x_BTD), mask, cache, position_BT, keys.attention)
    x_BTD = self.add('norm_1', x_BTD, f_BTD, keys.residual_1)
    f_BTD = self.mlp(self.before('norm_2', x_BTD), keys.mlp)
    return self.add('norm_2', x_BTD, f_BTD, keys.residual_2), cache

  def before(self, name: str, x_BTD: Array) -> Array:
    """Return norm(x) if pre-norm, else x."""
    return Norm(self.eps, self.dtype, name=name)(x_BTD) if self.norm == 'pre' else x_BTD

  def add(self, name: str, x_BTD: Array, f_BTD: Array, key: Array | None) -> Array:
    """Return x + dropout(f), normalised if post-norm."""
    x_BTD = x_BTD + dropout.dropout(f_BTD, self.rate, key)
    return Norm(self.eps, self.dtype, name=name)(x_BTD) if self.norm == 'post' else x_BTD
