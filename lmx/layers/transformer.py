"""Transformer blocks (Vaswani et al. 2017, section 3), pre-norm or post-norm, and the stack of them.

A block is a Linen module whose parameters a model file draws and applies by `init_block` and `stack`; everything
random comes from explicit keys, and a key/value cache goes in as an argument and comes back as a result.
Initialisation: kernels are normal (or truncated normal) with deviation `std`, biases 0; the two projections that end
on the residual path have their own deviation `residual_std`.

Layer normalisation (Ba et al. 2016, arXiv 1607.06450) has its statistics in float32 and the biased variance.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx.layers import attention, regularize
from lmx.layers.masks import Look
from lmx.types import Array, Params

Cache = tuple[Array, Array]  # keys and values so far, each (B, S, H, K)


def gelu(x: Array, form: str) -> Array:
  """GELU (Hendrycks & Gimpel 2016, arXiv 1606.08415): 'erf' exactly, 'tanh' by their approximation."""
  return jax.nn.gelu(x, approximate=form == 'tanh')


class Norm(nn.Module):
  """Layer normalisation with scale and bias over the last axis."""

  eps: float
  dtype: str = 'float32'

  @nn.compact
  def __call__(self, x_BTD: Array) -> Array:
    D = x_BTD.shape[-1]
    scale_D = self.param('scale', nn.initializers.ones, (D,))
    bias_D = self.param('bias', nn.initializers.zeros, (D,))
    return layer_norm(x_BTD, scale_D, bias_D, self.eps).astype(self.dtype)


def layer_norm(x_BTD: Array, scale_D: Array, bias_D: Array, eps: float) -> Array:
  """(x - mean) / sqrt(variance + eps) * scale + bias over the last axis, float32."""
  x_BTD = x_BTD.astype(jnp.float32)
  lift = (1,) * (x_BTD.ndim - 1) + (-1,)
  centred_BTD = x_BTD - jnp.mean(x_BTD, axis=-1, keepdims=True)
  inverse_BT1 = jax.lax.rsqrt(jnp.mean(jnp.square(centred_BTD), axis=-1, keepdims=True) + eps)
  return centred_BTD * inverse_BT1 * scale_D.reshape(lift) + bias_D.reshape(lift)


class Projection(nn.Module):
  """A product over the last axes of x with a kernel of any shape, plus a bias.

  Attributes:
    inputs: sizes of the axes of x that are summed over.
    outputs: sizes of the axes that take their place.
    idle: index of the first of these axes at which the bias gets no gradient, if any.
  """

  inputs: tuple[int, ...]
  outputs: tuple[int, ...]
  std: float
  truncated: bool = False
  dtype: str = 'float32'
  idle: int | None = None

  @nn.compact
  def __call__(self, x: Array) -> Array:
    draw = nn.initializers.truncated_normal if self.truncated else nn.initializers.normal
    # Linen's truncated normal divides by the deviation lost in truncation when asked; here `std` is that of the
    # normal before truncation, as in TensorFlow's truncated_normal_initializer.
    kernel = self.param('kernel', draw(self.std), (*self.inputs, *self.outputs))
    bias = self.param('bias', nn.initializers.zeros, self.outputs)
    if self.idle is not None:
      bias = jnp.asarray(bias).at[self.idle].set(jax.lax.stop_gradient(bias[self.idle]))
    n = len(self.inputs)
    axes = (tuple(range(x.ndim - n, x.ndim)), tuple(range(n)))
    y = jax.lax.dot_general(x, kernel.astype(self.dtype), (axes, ((), ())))
    return y + bias.astype(self.dtype).reshape((1,) * (x.ndim - n) + self.outputs)


class SelfAttention(nn.Module):
  """Multi-head self-attention: one fused kernel (D, 3, H, K) for queries, keys and values, one (H, K, D) back."""

  heads: int
  causal: bool
  std: float
  residual_std: float
  truncated: bool
  backend: str
  rate: float
  dtype: str

  @nn.compact
  def __call__(
    self, x_BTD: Array, look: Look, cache: Cache | None, position_BT: Array | None, key: Array | None
  ) -> tuple[Array, Cache | None]:
    D = x_BTD.shape[-1]
    H, K = self.heads, D // self.heads
    # A bias of the keys adds the same to all scores of a query, so its gradient is exactly 0. Back-propagation would
    # give rounding noise in its place, which Adam blows up to updates of full size.
    qkv_BTCHK = Projection((D,), (3, H, K), self.std, self.truncated, self.dtype, idle=1, name='qkv')(x_BTD)
    q_BTHK, k_BSHK, v_BSHK = (qkv_BTCHK[:, :, i] for i in range(3))
    if cache is not None and position_BT is not None:
      k_BSHK, v_BSHK = cache = write(cache, k_BSHK, v_BSHK, position_BT)
    o_BTHK = attention.attend(
      q_BTHK, k_BSHK, v_BSHK, look, causal=self.causal, backend=self.backend, rate=self.rate, key=key
    )
    out = Projection((H, K), (D,), self.residual_std, self.truncated, self.dtype, name='out')
    return out(o_BTHK), cache


def write(cache: Cache, k_BTHK: Array, v_BTHK: Array, position_BT: Array) -> Cache:
  """Puts keys and values into a cache at each token's position; positions beyond its end are dropped."""
  b_B1 = jnp.arange(k_BTHK.shape[0])[:, None]
  put = lambda old, new: old.at[b_B1, position_BT].set(new.astype(old.dtype), mode='drop')
  return put(cache[0], k_BTHK), put(cache[1], v_BTHK)


class Mlp(nn.Module):
  """Position-wise feed-forward network with GELU, kernels (D, F) and (F, D)."""

  hidden: int
  gelu: str
  std: float
  residual_std: float
  truncated: bool
  dtype: str

  @nn.compact
  def __call__(self, x_BTD: Array) -> Array:
    D = x_BTD.shape[-1]
    h_BTF = Projection((D,), (self.hidden,), self.std, self.truncated, self.dtype, name='in')(x_BTD)
    out = Projection((self.hidden,), (D,), self.residual_std, self.truncated, self.dtype, name='out')
    return out(gelu(h_BTF, self.gelu))


class Block(nn.Module):
  """Attention and feed-forward network, each with a residual connection.

  Attributes:
    norm: 'pre': x + f(norm(x)); 'post': norm(x + f(x)).
    gelu: 'tanh' or 'erf'.
    attention_rate: dropout of attention probabilities.
    residual_rate: dropout of what is added to the residual path.
  """

  heads: int
  hidden: int
  causal: bool
  norm: str
  eps: float
  gelu: str
  std: float
  residual_std: float
  truncated: bool = False
  backend: str = 'auto'
  attention_rate: float = 0.0
  residual_rate: float = 0.0
  dtype: str = 'float32'

  @nn.compact
  def __call__(
    self,
    x_BTD: Array,
    look: Look,
    cache: Cache | None = None,
    position_BT: Array | None = None,
    key: Array | None = None,
  ) -> tuple[Array, Cache | None]:
    probabilities, first, second = regularize.split(key, 3)
    shared = (self.std, self.residual_std, self.truncated)
    attend = SelfAttention(
      self.heads, self.causal, *shared, self.backend, self.attention_rate, self.dtype, name='attention'
    )
    mlp = Mlp(self.hidden, self.gelu, *shared, self.dtype, name='mlp')
    norm_1, norm_2 = (Norm(self.eps, self.dtype, name=f'norm_{i}') for i in (1, 2))
    drop = functools.partial(regularize.dropout, rate=self.residual_rate)
    if self.norm == 'pre':
      y_BTD, cache = attend(norm_1(x_BTD), look, cache, position_BT, probabilities)
      x_BTD = x_BTD + drop(y_BTD, key=first)
      return x_BTD + drop(mlp(norm_2(x_BTD)), key=second), cache
    y_BTD, cache = attend(x_BTD, look, cache, position_BT, probabilities)
    x_BTD = norm_1(x_BTD + drop(y_BTD, key=first))
    return norm_2(x_BTD + drop(mlp(x_BTD), key=second)), cache


def init_block(block: Block, width: int, key: Array) -> Params:
  """Draws the parameters of one block: attention, mlp, norm_1, norm_2."""
  return block.init(key, jnp.zeros((1, 1, width), block.dtype), Look())['params']


def name(i: int) -> str:
  """The parameter name of layer i."""
  return f'layer_{i:02d}'


def depth(path: tuple[str, ...], n_layers: int) -> int:
  """Layer number of a parameter: 0 in 'embed', i + 1 in layer i, N + 1 anywhere else."""
  if path[0] == 'embed':
    return 0
  return int(path[0].removeprefix('layer_')) + 1 if path[0].startswith('layer_') else n_layers + 1


def stack(
  block: Block,
  layers: Sequence[Params],
  x_BTD: Array,
  look: Look,
  *,
  caches: Sequence[Cache] | None = None,
  position_BT: Array | None = None,
  key: Array | None = None,
  scan: bool = False,
  remat: bool = False,
) -> tuple[Array, tuple[Cache, ...] | None, tuple[Array, ...]]:
  """Runs the layers one after the other.

  Args:
    block: what one layer computes.
    layers: parameters of each layer.
    x_BTD: input of the first layer.
    look: which keys a query may look at.
    caches: of each layer, or None.
    position_BT: where in the caches the tokens belong.
    key: randomness of dropout, or None.
    scan: compile one layer and loop over stacked parameters; shorter to compile, and copies the parameters.
    remat: compute a layer's activations again in the backward pass.

  Returns:
    (output, caches, input and output of every layer: N + 1 arrays (B, T, D)).
  """

  def layer(params: Params, x_BTD: Array, cache: Cache | None, key: Array | None):
    return block.apply({'params': params}, x_BTD, look, cache, position_BT, key)

  if remat:
    layer = jax.checkpoint(layer, prevent_cse=not scan)
  keys = regularize.split(key, len(layers))
  run = _scanned if scan else _unrolled
  return run(layer, layers, x_BTD, caches, keys)


def _unrolled(layer: Callable, layers: Sequence[Params], x_BTD: Array, caches: Any, keys: Sequence[Any]):
  seen, new = [x_BTD], []
  for i, params in enumerate(layers):
    x_BTD, cache = layer(params, x_BTD, None if caches is None else caches[i], keys[i])
    seen.append(x_BTD)
    new.append(cache)
  return x_BTD, None if caches is None else tuple(new), tuple(seen)


def _scanned(layer: Callable, layers: Sequence[Params], x_BTD: Array, caches: Any, keys: Sequence[Any]):
  pile = lambda trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
  xs = (pile(layers), None if caches is None else pile(caches), None if keys[0] is None else jnp.stack(keys))

  def step(x_BTD, xs):
    y_BTD, cache = layer(xs[0], x_BTD, xs[1], xs[2])
    return y_BTD, (cache, y_BTD)

  last_BTD, (new, seen) = jax.lax.scan(step, x_BTD, xs)
  at = lambda tree, i: jax.tree.map(lambda leaf: leaf[i], tree)
  new = None if caches is None else tuple(at(new, i) for i in range(len(layers)))
  return last_BTD, new, (x_BTD, *(seen[i] for i in range(len(layers))))
