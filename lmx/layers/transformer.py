"""Parts of the Transformer's layer (Vaswani et al. 2017, arXiv 1706.03762, section 3), and the stack of layers.

A block (one layer) is a Linen module of the model's file or of lmx/layers/block.py. Its arguments are (x, mask,
cache, position, key) and its results (x, cache). `init_block` initialises its parameters and `stack` applies it.
All randomness comes from explicit keys, and a key/value cache is an argument and a result.

Layer normalisation (Ba et al. 2016, arXiv 1607.06450) uses float32 statistics and the biased variance.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx.layers import kv_cache
from lmx.layers.kv_cache import Cache
from lmx.ops import attention, dense, dropout, layer_loop, rematerialisation
from lmx.ops.masks import AttentionMask
from lmx.placement import constrain
from lmx.types import Array, Params, record_attention


@dataclasses.dataclass(frozen=True)
class Init:
  """Initialisation of kernels; biases are 0.

  Attributes:
    kind: 'normal'; 'truncated', normal within two deviations; 'fan_in', normal with `std` divided by the square
      root of a kernel's inputs; 'glorot', uniform with variance 2 / (inputs + outputs) (Glorot & Bengio 2010, equation
      16), where queries, keys and values are separate matrices.
    std: standard deviation.
    residual_std: standard deviation of the projections onto the residual path; None is `std`.
  """

  kind: str = 'normal'
  std: float = 0.0
  residual_std: float | None = None

  def draw(self, key: Array, shape: tuple[int, ...], inputs: int, outputs: int, residual: bool) -> Array:
    """Return a kernel of matrices with the given numbers of inputs and outputs."""
    if self.kind == 'glorot':
      limit = math.sqrt(6 / (inputs + outputs))
      return jax.random.uniform(key, shape, jnp.float32, -limit, limit)
    std = self.residual_std if residual and self.residual_std is not None else self.std
    # Linen's truncated normal can correct for the deviation lost in truncation; here `std` is that of the
    # normal before truncation, as in TensorFlow's truncated_normal_initializer.
    normal = nn.initializers.truncated_normal if self.kind == 'truncated' else nn.initializers.normal
    return normal(std / (math.sqrt(inputs) if self.kind == 'fan_in' else 1.0))(key, shape)


# GELU: Hendrycks & Gimpel 2016, arXiv 1606.08415.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
  'relu': jax.nn.relu,
  'swish': jax.nn.swish,
  'gelu_erf': functools.partial(jax.nn.gelu, approximate=False),
  'gelu_tanh': functools.partial(jax.nn.gelu, approximate=True),
  'gelu_sigmoid': lambda x: x * jax.nn.sigmoid(1.702 * x),
}


class Norm(nn.Module):
  """Layer normalisation with scale and, unless `bias` is False, bias over the last axis."""

  eps: float
  dtype: str = 'float32'
  bias: bool = True

  @nn.compact
  def __call__(self, x_BTD: Array) -> Array:
    D = x_BTD.shape[-1]
    scale_D = self.param('scale', nn.initializers.ones, (D,))
    bias_D = self.param('bias', nn.initializers.zeros, (D,)) if self.bias else None
    return dense.layer_norm(x_BTD, scale_D, bias_D, self.eps).astype(self.dtype)


class Projection(nn.Module):
  """Product of the last axes of x with a kernel of any shape, plus a bias; a tuple of products if `fused`.

  Attributes:
    inputs: sizes of the axes of x that are contracted.
    outputs: sizes of the axes that replace them.
    kernel_init: initialisation of the kernel.
    residual: the output is added to the residual path.
    fused: number of matrices concatenated in the kernel, along the first of the outputs.
    idle: index along the first of the outputs at which the bias gets no gradient, if any.
    bias: use a bias.
    dtype: compute type.
  """

  inputs: tuple[int, ...]
  outputs: tuple[int, ...]
  kernel_init: Init
  residual: bool = False
  fused: int = 1
  idle: int | None = None
  bias: bool = True
  dtype: str = 'float32'

  @nn.compact
  def __call__(self, x: Array) -> Any:
    kernel = self.matrix()
    bias = self.param('bias', nn.initializers.zeros, self.outputs) if self.bias else None
    if self.fused == 1:
      return dense.affine(x, kernel, bias, len(self.inputs))
    return dense.split_affine(x, kernel, bias, len(self.inputs), self.idle)

  def matrix(self) -> Array:
    """Return the kernel, (*inputs, *outputs)."""
    return self.param('kernel', self._draw, (*self.inputs, *self.outputs))

  def _draw(self, key: Array, shape: tuple[int, ...]) -> Array:
    outputs = math.prod(self.outputs) // self.fused
    return self.kernel_init.draw(key, shape, math.prod(self.inputs), outputs, self.residual)


class SelfAttention(nn.Module):
  """Multi-head self-attention: one fused kernel (D, 3, H, K) for queries, keys and values, one (H, K, D) back.

  Attributes:
    heads: H.
    kernel_init: initialisation of the kernels.
    causal: mask keys after the query.
    backend: one of `attention.BACKENDS`.
    rate: dropout rate of the probabilities.
    bias: use biases.
    dtype: compute type.
  """

  heads: int
  kernel_init: Init = Init()
  causal: bool = False
  backend: str = 'auto'
  rate: float = 0.0
  bias: bool = True
  dtype: str = 'float32'
  kind = 'self'  # of `AttentionWeights`

  @nn.compact
  def __call__(
    self, x_BTD: Array, mask: AttentionMask, cache: Cache | None, position_BT: Array | None, key: Array | None
  ) -> tuple[Array, Cache | None]:
    q_BTHK, k_BSHK, v_BSHK = self.project_qkv(x_BTD)
    if cache is not None and position_BT is not None:
      k_BSHK, v_BSHK = cache = kv_cache.write(cache, k_BSHK, v_BSHK, position_BT)
    return self.attend(q_BTHK, k_BSHK, v_BSHK, mask, key), cache

  def project_qkv(self, x_BTD: Array) -> tuple[Array, ...]:
    """Return queries, keys and values, each (B, T, H, K)."""
    # A bias of the keys adds a constant to all scores of a query, so its gradient is exactly 0. Back-propagation would
    # give rounding noise instead, which Adam scales up to full-size updates.
    shape = 3, self.heads, x_BTD.shape[-1] // self.heads
    qkv = self.project(x_BTD.shape[-1:], shape, fused=3, idle=1, name='qkv')(x_BTD)
    return tuple(constrain(x, 'BTHK') for x in qkv)

  def project(self, inputs: tuple[int, ...], outputs: tuple[int, ...], **fields: Any) -> Projection:
    """Return a projection with this module's initialisation, biases and type."""
    return Projection(inputs, outputs, self.kernel_init, bias=self.bias, dtype=self.dtype, **fields)

  def attend(self, q_BTHK: Array, k_BSHK: Array, v_BSHK: Array, mask: AttentionMask, key: Array | None) -> Array:
    """Return attention and its output projection, (B, T, D)."""
    H, K = v_BSHK.shape[2:]
    q, k, v = self.views(q_BTHK, k_BSHK, v_BSHK)
    record_attention(self.kind, lambda: attention.probabilities(q, k, mask, self.causal))
    o_BTHK = attention.attend(q, k, v, mask, causal=self.causal, backend=self.backend, rate=self.rate, key=key)
    o_BTHK = constrain(o_BTHK.reshape(*q_BTHK.shape[:3], K), 'BTHK')
    return self.project((H, K), (H * K,), residual=True, name='out')(o_BTHK)

  def views(self, q_BTHK: Array, k_BSHK: Array, v_BSHK: Array) -> tuple[Array, Array, Array]:
    """Return the queries, keys and values of the softmaxes; a subclass may return several per head."""
    return q_BTHK, k_BSHK, v_BSHK


class Mlp(nn.Module):
  """Position-wise feed-forward network (section 3.3): kernels (D, F) and (F, D), with dropout at `rate` in between.

  `activation` is one of `ACTIVATIONS`.
  """

  hidden: int
  activation: str
  kernel_init: Init = Init()
  rate: float = 0.0
  bias: bool = True
  dtype: str = 'float32'

  @nn.compact
  def __call__(self, x_BTD: Array, key: Array | None) -> Array:
    D, F = x_BTD.shape[-1], self.hidden
    h_BTF = constrain(self.project((D,), (F,), name='in')(x_BTD), 'BTF')
    h_BTF = dense.activate(h_BTF, ACTIVATIONS[self.activation])
    return self.project((F,), (D,), residual=True, name='out')(dropout.dropout(h_BTF, self.rate, key))

  def project(self, inputs: tuple[int, ...], outputs: tuple[int, ...], **fields: Any) -> Projection:
    """Return a projection with this module's initialisation, biases and type."""
    return Projection(inputs, outputs, self.kernel_init, bias=self.bias, dtype=self.dtype, **fields)


class Keys(NamedTuple):
  """PRNG keys of the dropouts of one layer; all None at evaluation."""

  attention: Array | None
  residual_1: Array | None
  cross: Array | None
  residual_cross: Array | None
  mlp: Array | None
  residual_2: Array | None


def layer_keys(key: Array | None) -> Keys:
  """Split the key of a layer."""
  attention, residual_1, residual_2 = dropout.split(key, 3)
  cross, residual_cross, mlp = dropout.split(None if key is None else jax.random.fold_in(key, 1), 3)
  return Keys(attention, residual_1, cross, residual_cross, mlp, residual_2)


def init_block(
  block: nn.Module, width: int, key: Array, *, mask: Any = None, dtype: str = 'float32', **source: Any
) -> Params:
  """Initialise the parameters of one layer: attention, mlp, norm_1, norm_2."""
  return layer_loop.init(
    block, key, jnp.zeros((1, 1, width), dtype), AttentionMask() if mask is None else mask, **source
  )


def stack(
  block: nn.Module,
  layers: Sequence[Params],
  x_BTD: Array,
  mask: Any,
  *,
  caches: Sequence[Any] | None = None,
  position_BT: Array | None = None,
  key: Array | None = None,
  sources: Sequence[Any] | None = None,
  scan: bool = False,
  remat: rematerialisation.Policy = 'none',
) -> tuple[Array, tuple[Cache, ...] | None, tuple[Array, ...]]:
  """Apply the layers one after another.

  Args:
    block: the layer.
    layers: parameters of each layer.
    x_BTD: input of the first layer.
    mask: an `AttentionMask`, or another argument of the block's attention.
    caches: cache or memory of each layer, or None.
    position_BT: position of each token in the caches.
    key: PRNG key of dropout, or None.
    sources: for each layer the source of a `DecoderBlock`.
    scan: compile one layer, see lmx/ops/layer_loop.py.
    remat: activations that are kept for the backward pass, see lmx/ops/rematerialisation.py.

  Returns:
    (output, caches, input and output of every layer: N + 1 arrays (B, T, D)).
  """

  def layer(x_BTD: Array, layer_inputs: Any) -> tuple[Array, Any]:
    params, cache, key, source = layer_inputs
    source_args = {} if source is None else {'source': source}
    x_BTD, cache = layer_loop.apply(block, params, x_BTD, mask, cache, position_BT, key, **source_args)
    return constrain(x_BTD, 'BTD'), (cache, x_BTD)

  none = [None] * len(layers)
  inputs = list(zip(caches or none, dropout.split(key, len(layers)), sources or none, strict=True))
  last_BTD, outputs = layer_loop.loop(layer, x_BTD, layers, inputs, scan=scan, remat=remat)
  new = None if caches is None else tuple(cache for cache, _ in outputs)
  return last_BTD, new, (x_BTD, *(y_BTD for _, y_BTD in outputs))
