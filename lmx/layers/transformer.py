"""Transformer blocks (Vaswani et al. 2017, section 3), pre-norm or post-norm, and the stack of them.

A decoder's block has attention to a source between the other two parts. What it reads of the source is the encoder's
output, or, computed once and kept, the keys and values that it makes of that (`source_keys`).

A block is a Linen module whose parameters a model file draws and applies by `init_block` and `stack`; everything
random comes from explicit keys, and a key/value cache goes in as an argument and comes back as a result.
Initialisation: kernels are normal (or truncated normal) with deviation `std`, biases 0; the projections that end on
the residual path have their own deviation `residual_std`. With `glorot`, kernels are uniform with the variance
2 / (inputs + outputs) of each matrix (Glorot & Bengio 2010, equation 16), queries, keys and values being one each;
with `fan_in` both deviations are divided by the square root of a kernel's inputs.

Layer normalisation (Ba et al. 2016, arXiv 1607.06450) has its statistics in float32 and the biased variance.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx.layers import attention, dropout, embedding
from lmx.layers.masks import AttentionMask
from lmx.types import Array, Params

Cache = tuple[Array, Array]  # keys and values so far, each (B, S, H, K)
WHOLE = AttentionMask()  # every key of one group


def gelu(x: Array, form: str) -> Array:
  """GELU (Hendrycks & Gimpel 2016, arXiv 1606.08415): 'erf' exactly, 'tanh' and 'sigmoid' by their approximations."""
  if form == 'sigmoid':
    return x * jax.nn.sigmoid(1.702 * x)
  return jax.nn.gelu(x, approximate=form == 'tanh')


def activate(x: Array, name: str) -> Array:
  """'relu' (Vaswani et al. 2017, equation 2), or 'gelu_' and a form of `gelu`."""
  return jax.nn.relu(x) if name == 'relu' else gelu(x, name.removeprefix('gelu_'))


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
    bias: have one.
    glorot: draw the kernel uniformly (module docstring); `std` and `truncated` are not used then.
    fused: matrices side by side in the kernel, along the first of the outputs.
    fan_in: `std` is that of one input; the kernel's is divided by the square root of how many are summed over.
  """

  inputs: tuple[int, ...]
  outputs: tuple[int, ...]
  std: float
  truncated: bool = False
  dtype: str = 'float32'
  idle: int | None = None
  bias: bool = True
  glorot: bool = False
  fused: int = 1
  fan_in: bool = False

  @nn.compact
  def __call__(self, x: Array) -> Array:
    n = len(self.inputs)
    # One axis of rows: to sum a gradient over two, XLA on a CPU turns an operand around and takes twice as long.
    x_R = x.reshape(-1, *self.inputs)
    y = jax.lax.dot_general(x_R, self.matrix(), ((tuple(range(1, n + 1)), tuple(range(n))), ((), ())))
    y = y.reshape(*x.shape[: x.ndim - n], *self.outputs)
    if not self.bias:
      return y
    bias = self.param('bias', nn.initializers.zeros, self.outputs)
    if self.idle is not None:
      bias = jnp.asarray(bias).at[self.idle].set(jax.lax.stop_gradient(bias[self.idle]))
    return y + bias.astype(self.dtype).reshape((1,) * (x.ndim - n) + self.outputs)

  def matrix(self) -> Array:
    """What x is multiplied with, (*inputs, *outputs) in the compute type."""
    return self.param('kernel', self._draw, (*self.inputs, *self.outputs)).astype(self.dtype)

  def _draw(self, key: Array, shape: tuple[int, ...]) -> Array:
    if self.glorot:
      limit = math.sqrt(6 / (math.prod(self.inputs) + math.prod(self.outputs) / self.fused))
      return jax.random.uniform(key, shape, jnp.float32, -limit, limit)
    # Linen's truncated normal divides by the deviation lost in truncation when asked; here `std` is that of the
    # normal before truncation, as in TensorFlow's truncated_normal_initializer.
    draw = nn.initializers.truncated_normal if self.truncated else nn.initializers.normal
    return draw(self.std / (math.sqrt(math.prod(self.inputs)) if self.fan_in else 1.0))(key, shape)


def as_they_are(q_BTHK: Array, k_BSHK: Array, v_BSHK: Array) -> tuple[Array, Array, Array]:
  """Queries, keys and values with no change."""
  return q_BTHK, k_BSHK, v_BSHK


class SelfAttention(nn.Module):
  """Multi-head self-attention: one fused kernel (D, 3, H, K) for queries, keys and values, one (H, K, D) back.

  `drawn` are further arguments of each `linear`. `views` makes the queries, keys and values of what is attended with
  out of those of the heads; it may make several heads of one, each with a part of its values. Where the collection
  'alignment' is mutable, the probabilities (B, H, T, S) are put there.
  """

  heads: int
  causal: bool
  std: float
  residual_std: float
  backend: str
  rate: float
  drawn: Mapping[str, Any]
  linear: Callable[..., Projection] = Projection
  views: Callable[[Array, Array, Array], tuple[Array, Array, Array]] = as_they_are

  @nn.compact
  def __call__(
    self, x_BTD: Array, look: AttentionMask, cache: Cache | None, position_BT: Array | None, key: Array | None
  ) -> tuple[Array, Cache | None]:
    D = x_BTD.shape[-1]
    H, K = self.heads, D // self.heads
    # A bias of the keys adds the same to all scores of a query, so its gradient is exactly 0. Back-propagation would
    # give rounding noise in its place, which Adam blows up to updates of full size.
    qkv_BTCHK = self.linear((D,), (3, H, K), self.std, idle=1, fused=3, **self.drawn, name='qkv')(x_BTD)
    q_BTHK, k_BSHK, v_BSHK = (qkv_BTCHK[:, :, i] for i in range(3))
    if cache is not None and position_BT is not None:
      k_BSHK, v_BSHK = cache = write(cache, k_BSHK, v_BSHK, position_BT)
    qkv = self.views(q_BTHK, k_BSHK, v_BSHK)
    if self.is_mutable_collection('alignment'):
      self.sow('alignment', 'a_BHTS', attention.probabilities(*qkv[:2], look, self.causal))
    o_BTHK = attention.attend(*qkv, look, causal=self.causal, backend=self.backend, rate=self.rate, key=key)
    o_BTHK = o_BTHK.reshape(q_BTHK.shape)
    return self.linear((H, K), (D,), self.residual_std, **self.drawn, name='out')(o_BTHK), cache


def write(cache: Cache, k_BTHK: Array, v_BTHK: Array, position_BT: Array) -> Cache:
  """Puts keys and values into a cache at each token's position; positions beyond its end are dropped."""
  b_B1 = jnp.arange(k_BTHK.shape[0])[:, None]
  put = lambda old, new: old.at[b_B1, position_BT].set(new.astype(old.dtype), mode='drop')
  return put(cache[0], k_BTHK), put(cache[1], v_BTHK)


class CrossAttention(nn.Module):
  """Multi-head attention to a source: kernels (D, H, K) for queries, (D, 2, H, K) for keys and values, (H, K, D) back.

  Where the collection 'alignment' is mutable, the probabilities (B, H, T, S) are put there.
  """

  heads: int
  std: float
  residual_std: float
  backend: str
  rate: float
  drawn: Mapping[str, Any]
  linear: Callable[..., Projection] = Projection
  views: Callable[[Array, Array, Array], tuple[Array, Array, Array]] = as_they_are

  @nn.compact
  def __call__(self, x_BTD: Array, source: Array | Cache, look: AttentionMask, key: Array | None) -> Array:
    D = x_BTD.shape[-1]
    H, K = self.heads, D // self.heads
    q_BTHK = self.linear((D,), (H, K), self.std, **self.drawn, name='q')(x_BTD)
    k_BSHK, v_BSHK = source if isinstance(source, tuple) else _pair(self.to_source(D, name='kv')(source))
    qkv = self.views(q_BTHK, k_BSHK, v_BSHK)
    if self.is_mutable_collection('alignment'):
      self.sow('alignment', 'a_BHTS', attention.probabilities(*qkv[:2], look, False))
    o_BTHK = attention.attend(*qkv, look, causal=False, backend=self.backend, rate=self.rate, key=key)
    o_BTHK = o_BTHK.reshape(q_BTHK.shape)
    return self.linear((H, K), (D,), self.residual_std, **self.drawn, name='out')(o_BTHK)

  def to_source(self, D: int, **name: Any) -> Projection:
    """What makes keys and values from the source; as in self-attention, a bias of the keys gets no gradient."""
    return self.linear((D,), (2, self.heads, D // self.heads), self.std, idle=0, fused=2, **self.drawn, **name)


def _pair(kv_BSCHK: Array) -> Cache:
  return kv_BSCHK[:, :, 0], kv_BSCHK[:, :, 1]


class Mlp(nn.Module):
  """Position-wise feed-forward network, kernels (D, F) and (F, D); `rate` is the dropout of what is in between."""

  hidden: int
  activation: str
  std: float
  residual_std: float
  rate: float
  drawn: Mapping[str, Any]
  linear: Callable[..., Projection] = Projection

  @nn.compact
  def __call__(self, x_BTD: Array, key: Array | None) -> Array:
    D = x_BTD.shape[-1]
    h_BTF = activate(self.linear((D,), (self.hidden,), self.std, **self.drawn, name='in')(x_BTD), self.activation)
    h_BTF = dropout.dropout(h_BTF, self.rate, key)
    return self.linear((self.hidden,), (D,), self.residual_std, **self.drawn, name='out')(h_BTF)


class Block(nn.Module):
  """Attention and feed-forward network, each with a residual connection; in a decoder, attention to a source between.

  Attributes:
    norm: 'pre': x + f(norm(x)); 'post': norm(x + f(x)).
    activation: a name that `activate` knows.
    attention_rate: dropout of attention probabilities.
    residual_rate: dropout of what is added to the residual path.
    hidden_rate: dropout inside the feed-forward network.
    bias: biases of the projections of attention.
    glorot: how kernels are drawn, see the module's docstring.
    fan_in: deviations are those of one input, see `Projection`.
    cross: attend to a source.
    attention: what takes the place of `SelfAttention`, called with the same arguments (compressed_attention.py).
    linear: what takes the place of `Projection` in attention, called with the same arguments.
    views: of attention, see `SelfAttention` (lmx/layers/quaternion.py).
    hidden_linear: what takes the place of `Projection` in the feed-forward network.
    hidden_bias: biases of the projections of the feed-forward network.
    positions: rows of a table whose row at each token's position is added to the input (Al-Rfou et al. 2018, arXiv
      1808.04444); normal with deviation `std`. 0 is no table.
  """

  heads: int
  hidden: int
  causal: bool
  norm: str
  eps: float
  activation: str
  std: float = 0.0
  residual_std: float = 0.0
  truncated: bool = False
  backend: str = 'auto'
  attention_rate: float = 0.0
  residual_rate: float = 0.0
  dtype: str = 'float32'
  hidden_rate: float = 0.0
  bias: bool = True
  glorot: bool = False
  fan_in: bool = False
  cross: bool = False
  attention: Callable[..., Any] = SelfAttention
  linear: Callable[..., Projection] = Projection
  views: Callable[[Array, Array, Array], tuple[Array, Array, Array]] = as_they_are
  hidden_linear: Callable[..., Projection] = Projection
  hidden_bias: bool = True
  positions: int = 0

  @nn.compact
  def __call__(
    self,
    x_BTD: Array,
    look: AttentionMask,
    cache: Cache | None = None,
    position_BT: Array | None = None,
    key: Array | None = None,
    source: Array | Cache | None = None,
    source_look: AttentionMask = WHOLE,
  ) -> tuple[Array, Cache | None]:
    look_key, *add_keys = dropout.split(key, 3)
    across_key, add_across_key, hidden_key = dropout.split(None if key is None else jax.random.fold_in(key, 1), 3)
    stds, drawn = (self.std, self.residual_std), self._drawn()
    by = (*stds, self.backend, self.attention_rate, drawn, self.linear, self.views)
    attend = self.attention(self.heads, self.causal, *by, name='attention')
    mlp = Mlp(
      self.hidden,
      self.activation,
      *stds,
      self.hidden_rate,
      {**drawn, 'bias': self.hidden_bias},
      self.hidden_linear,
      name='mlp',
    )

    def add(x_BTD: Array, norm: str, part: Callable[[Array], Array], key: Array | None) -> Array:
      """The residual connection around a part, with the normalisation before or after it."""
      normalise = Norm(self.eps, self.dtype, name=norm)
      if self.norm == 'pre':
        return x_BTD + dropout.dropout(part(normalise(x_BTD)), self.residual_rate, key)
      return normalise(x_BTD + dropout.dropout(part(x_BTD), self.residual_rate, key))

    def itself(x_BTD: Array) -> Array:
      nonlocal cache
      y_BTD, cache = attend(x_BTD, look, cache, position_BT, look_key)
      return y_BTD

    if self.positions:
      table_TD = self.param('positions', nn.initializers.normal(self.std), (self.positions, x_BTD.shape[-1]))
      x_BTD = x_BTD + embedding.positions(table_TD, position_BT, x_BTD.shape[1], self.dtype)
    x_BTD = add(x_BTD, 'norm_1', itself, add_keys[0])
    if self.cross and source is not None:
      across = self.across(name='cross')
      x_BTD = add(x_BTD, 'norm_cross', lambda x_BTD: across(x_BTD, source, source_look, across_key), add_across_key)
    return add(x_BTD, 'norm_2', lambda x_BTD: mlp(x_BTD, hidden_key), add_keys[1]), cache

  def across(self, **name: Any) -> CrossAttention:
    """Its attention to the source."""
    by = (self.std, self.residual_std, self.backend, self.attention_rate, self._drawn(), self.linear, self.views)
    return CrossAttention(self.heads, *by, **name)

  def _drawn(self) -> dict[str, Any]:
    drawn = {'truncated': self.truncated, 'dtype': self.dtype, 'bias': self.bias}
    return drawn | {'glorot': self.glorot, 'fan_in': self.fan_in}


def init_block(block: Block, width: int, key: Array, look: Any = WHOLE) -> Params:
  """Draws the parameters of one block: attention, mlp, norm_1, norm_2; with a source also cross, norm_cross.

  `look` is of one token, where the block's attention takes another kind than `AttentionMask`.
  """
  return _drawn(block, width, key, look)


@functools.partial(jax.jit, static_argnums=(0, 1))  # so that blocks alike are traced once
def _drawn(block: Block, width: int, key: Array, look: Any) -> Params:
  x_BTD = jnp.zeros((1, 1, width), block.dtype)
  return block.init(key, x_BTD, look, source=x_BTD if block.cross else None)['params']


def source_keys(block: Block, params: Params, source_BSD: Array) -> Cache:
  """Keys and values that a block makes of a source, each (B, S, H, K), to be given to it in the place of the source."""
  make = block.across(parent=None).to_source(source_BSD.shape[-1], parent=None)
  kv_BSCHK: Any = make.apply({'params': params['cross']['kv']}, source_BSD)
  return _pair(kv_BSCHK)


def attended(
  block: Block,
  params: Params,
  x_BTD: Array,
  look: AttentionMask,
  source: Array | None = None,
  source_look: AttentionMask = WHOLE,
) -> dict[str, Array]:
  """What the heads of a block attend to: 'attention' to its input, 'cross' to a source; each (B, H, T, S) float32."""
  run = functools.partial(block.apply, source=source, source_look=source_look, mutable=['alignment'])
  _, found = run({'params': params}, x_BTD, look)
  return {part: weights['a_BHTS'][0] for part, weights in found['alignment'].items()}


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
  look: Any,
  *,
  caches: Sequence[Any] | None = None,
  position_BT: Array | None = None,
  key: Array | None = None,
  sources: Sequence[Array | Cache] | None = None,
  source_look: AttentionMask = WHOLE,
  scan: bool = False,
  remat: bool = False,
) -> tuple[Array, tuple[Cache, ...] | None, tuple[Array, ...]]:
  """Runs the layers one after the other.

  Args:
    block: what one layer computes.
    layers: parameters of each layer.
    x_BTD: input of the first layer.
    look: which keys a query may look at: a `AttentionMask`, unless the block's attention takes another kind.
    caches: of each layer, or None.
    position_BT: where in the caches the tokens belong.
    key: randomness of dropout, or None.
    sources: for each layer of a decoder the encoder's output, or keys and values from `source_keys`; else None.
    source_look: which of the source a query may look at.
    scan: compile one layer and loop over stacked parameters; shorter to compile, and copies the parameters.
    remat: compute a layer's activations again in the backward pass.

  Returns:
    (output, caches, input and output of every layer: N + 1 arrays (B, T, D)).
  """

  def layer(x_BTD: Array, params: Params, cache: Cache | None, key: Array | None, source: Array | Cache | None):
    return _layer(block, params, x_BTD, look, cache, position_BT, key, source, source_look)

  if remat:
    layer = jax.checkpoint(layer, prevent_cse=not scan)
  run = _scanned if scan else _unrolled
  return run(layer, x_BTD, layers, caches, dropout.split(key, len(layers)), sources)


@functools.partial(jax.jit, static_argnums=0)  # so that layers alike are traced once
def _layer(block: Block, params: Params, *inputs: Any) -> tuple[Array, Cache | None]:
  found: Any = block.apply({'params': params}, *inputs)
  return found


def _unrolled(layer: Callable, x_BTD: Array, layers: Sequence[Params], caches: Any, keys: Sequence[Any], sources: Any):
  nothing = [None] * len(layers)
  seen, new = [x_BTD], []
  for of_layer in zip(layers, caches or nothing, keys, sources or nothing, strict=True):
    x_BTD, cache = layer(x_BTD, *of_layer)
    seen.append(x_BTD)
    new.append(cache)
  return x_BTD, None if caches is None else tuple(new), tuple(seen)


def _scanned(layer: Callable, x_BTD: Array, layers: Sequence[Params], caches: Any, keys: Sequence[Any], sources: Any):
  pile = lambda trees: None if trees is None else jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
  keys_N = None if keys[0] is None else jnp.stack(keys)

  def step(x_BTD, of_layer):
    y_BTD, cache = layer(x_BTD, *of_layer)
    return y_BTD, (cache, y_BTD)

  last_BTD, (new, seen) = jax.lax.scan(step, x_BTD, (pile(layers), pile(caches), keys_N, pile(sources)))
  at = lambda tree, i: jax.tree.map(lambda leaf: leaf[i], tree)
  new = None if caches is None else tuple(at(new, i) for i in range(len(layers)))
  return last_BTD, new, (x_BTD, *(seen[i] for i in range(len(layers))))
