"""Transformers whose matrices multiply quaternions (Tay et al. 2019, arXiv 1906.04393, sections 2 and 3).

A vector of width D is D / 4 quaternions r + x i + y j + z k; its first quarter holds the r of all of them, the next the
x, then y and z. With i^2 = j^2 = k^2 = ijk = -1 the Hamilton product of two quaternions is bilinear in their
components, and so the product W * Q of a matrix and a vector of quaternions (section 2) is the product with a real
matrix of 4 x 4 blocks that are W_r, W_x, W_y and W_z with signs. It has d_in d_out / 4 weights. As |pq| = |p||q|, one
quaternion by itself only rotates and scales.

`Linear` builds the real matrix and takes one product. Forward and backward of 512 x 512 tokens and widths took 24 ms on
a core so, 29 ms as sixteen products of blocks, and 25 ms with an ordinary matrix.

Attention (section 3.2): queries, keys and values are quaternions. The product of a query with a key is a quaternion
too, and each of its components is a score of its own: four softmaxes, each of which takes the mean of one component of
the values (`scores='component'`). Component c of sum_n q_n k_n is an ordinary product of q with the components of k in
another order and with signs, so it is one head of four with its quarter of the values, and every backend of
lmx/layers/attention.py serves (`views`). `scores='whole'` is one softmax over the product of all components (the real
part of q times the conjugate of k): attention as it was, between quaternion projections.

Nonlinear functions, normalisation and dropout act on each component by itself ("split activation").

The released code (vanzytay/QuaternionTransformers) was read for this; the paper's own text was not at hand, and what is
said of it is from notes on it. Where it leaves a choice, or the code chose otherwise:
- `grouping`: which quarters of a head are its components. 'quaternion': a head has an equal share of every component.
  'contiguous': as released, heads are cut from the vector as it stands, so that all of a head lies in one component of
  the projection (two heads in each, of eight), and its quarters are taken for components.
- `initial`: 'glorot' draws all weights alike and independently, which the paper found no worse (section 3), with the
  variance 2 / (d_in + d_out) that Glorot's rule gives the real matrix. 'released': uniform with variance
  2 / (d_in / 4 + d_out) in feed-forward networks; in attention normal with variance 1 / D, and for queries 1 / D^2.
  'polar_glorot', 'polar_he' are those of Parcollet et al. 2019 (arXiv 1806.04418): w = |w| (cos t + u sin t) with t
  uniform in [-pi, pi], u a unit imaginary quaternion (three uniform draws from [0, 1], normalised), and |w| from a chi
  distribution with four degrees of freedom (in their code: Rayleigh's) times s, s^2 being 2 / (d_in + d_out) or
  2 / d_in, which is the mean variance of a component.
- `scores`: the released code takes 'component' only where it is asked for (self_attention_type).
- `bias`: the released quaternion networks have none.
- The released code multiplies by the conjugate of W, which is the same function of other parameters.

Axes: C components; X and Y quaternions on the two sides of a matrix.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_choice, check_least, check_range
from lmx.layers import attention, decoder_block, sinusoids, transformer
from lmx.layers.block import Block
from lmx.types import Array

KINDS = ('full', 'partial', 'none')
SCORES = ('component', 'whole')
GROUPINGS = ('quaternion', 'contiguous')
INITIALS = ('glorot', 'released', 'polar_glorot', 'polar_he')
# e_a e_b = SIGNS[a][b] e_(a ^ b), where e is 1, i, j, k and ^ the bitwise exclusive or of their numbers.
SIGNS = ((1, 1, 1, 1), (1, -1, 1, -1), (1, -1, -1, 1), (1, 1, -1, -1))
EPS = 1e-6  # of layer normalisation, tensor2tensor


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches that the models of this paper share.

  Attributes:
    V: vocabulary size.
    D: width.
    F: width of the feed-forward networks.
    H: heads.
    quaternion: 'full' (every matrix), 'partial' (those of attention) or 'none' (the ordinary Transformer).
    scores: 'component' or 'whole', see the docstring of lmx/layers/quaternion.py; as the three below.
    grouping: 'quaternion' or 'contiguous', which quarters of a head are its components.
    initial: how quaternion weights are drawn, one of INITIALS.
    bias: have biases in quaternion feed-forward networks; the released code has none.
    norm: 'pre' (tensor2tensor since version 2) or 'post' (Vaswani et al. 2017).
    positions: layout of the sinusoids, one of lmx.layers.sinusoids.LAYOUTS.
    dropout: of the sums of embeddings and positions, and of what is added to the residual path.
    dropout_attention: of attention probabilities.
    dropout_relu: inside the feed-forward networks.
    dtype: compute type.
    attention: backend, one of lmx.layers.attention.BACKENDS.
    scan: compile one layer and loop over it.
    remat: compute a layer's activations again in the backward pass.
  """

  V: int = 32_000
  D: int = 512
  F: int = 2048
  H: int = 8
  quaternion: str = 'full'
  scores: str = 'component'
  grouping: str = 'quaternion'
  initial: str = 'glorot'
  bias: bool = False
  norm: str = 'pre'
  positions: str = 'tensor2tensor'
  dropout: float = 0.1
  dropout_attention: float = 0.1
  dropout_relu: float = 0.1
  dtype: str = 'float32'
  attention: str = 'auto'
  scan: bool = False
  remat: bool = False

  def __post_init__(self) -> None:
    check_choice('model.quaternion', self.quaternion, KINDS)
    check_choice('model.scores', self.scores, SCORES)
    check_choice('model.grouping', self.grouping, GROUPINGS)
    check_choice('model.initial', self.initial, INITIALS)
    check_choice('model.norm', self.norm, ('post', 'pre'))
    check_choice('model.positions', self.positions, sinusoids.LAYOUTS)
    check_choice('model.attention', self.attention, attention.BACKENDS)
    for field in ('dropout', 'dropout_attention', 'dropout_relu'):
      check_range(f'model.{field}', getattr(self, field), 0, 1)
    check_least('model', self, D=1, F=1, H=1)
    parts = 1 if self.quaternion == 'none' else 4
    if self.D % (parts * self.H) or self.D % 2:
      wanted = f'even and divisible by H = {self.H} heads' + (' of whole quaternions' if parts == 4 else '')
      raise InputError(f'model.D is {self.D}; it must be {wanted}')
    if self.quaternion == 'full' and self.F % 4:
      raise InputError(f'model.F is {self.F}; it must be divisible by 4')


class _Projections:
  """Projections of quaternions.

  Attributes:
    grouping: one of GROUPINGS.
    initial: one of INITIALS, 'released' with '_attention' or '_hidden'.
  """

  kernel_init: transformer.Init
  bias: bool
  dtype: str
  grouping: str
  initial: str

  def project(self, inputs: tuple[int, ...], outputs: tuple[int, ...], **fields: Any) -> Linear:
    """Return a projection with this module's initialisation, biases and type."""
    fields |= {'grouping': self.grouping, 'initial': self.initial}
    return Linear(inputs, outputs, self.kernel_init, bias=self.bias, dtype=self.dtype, **fields)


class _Components(_Projections):
  """Attention of quaternions; `component` makes one softmax for each component of the scores."""

  component: bool

  def views(self, q_BTHK: Array, k_BSHK: Array, v_BSHK: Array) -> tuple[Array, Array, Array]:
    """Return the queries, keys and values of the softmaxes."""
    return views(q_BTHK, k_BSHK, v_BSHK) if self.component else (q_BTHK, k_BSHK, v_BSHK)


class SelfAttention(_Components, transformer.SelfAttention):
  """Self-attention between quaternions."""

  grouping: str = 'quaternion'
  initial: str = 'glorot'
  component: bool = True


class CrossAttention(_Components, decoder_block.CrossAttention):
  """Cross-attention between quaternions."""

  grouping: str = 'quaternion'
  initial: str = 'glorot'
  component: bool = True


class Mlp(_Projections, transformer.Mlp):
  """Feed-forward network of matrices of quaternions."""

  grouping: str = 'quaternion'
  initial: str = 'glorot'


def block(cfg: Config, *, causal: bool) -> Block:
  """Return an encoder's layer of section 3.2: quaternions where `cfg.quaternion` is set, else the Transformer's."""
  attention = _attention(cfg, transformer.SelfAttention, SelfAttention, causal=causal)
  return Block(attention, _mlp(cfg), cfg.norm, EPS, cfg.dropout, cfg.dtype)


def decoder(cfg: Config) -> decoder_block.DecoderBlock:
  """Return a decoder's layer."""
  attention = _attention(cfg, transformer.SelfAttention, SelfAttention, causal=True)
  cross = _attention(cfg, decoder_block.CrossAttention, CrossAttention)
  return decoder_block.DecoderBlock(attention, _mlp(cfg), cfg.norm, EPS, cfg.dropout, cfg.dtype, cross=cross)


def _attention(cfg: Config, ordinary: Any, quaternions: Any, **fields: Any) -> Any:
  fields |= dict(kernel_init=transformer.Init('glorot'), bias=False, dtype=cfg.dtype)
  fields |= dict(heads=cfg.H, backend=cfg.attention, rate=cfg.dropout_attention)
  if cfg.quaternion == 'none':
    return ordinary(**fields)
  initial = 'released_attention' if cfg.initial == 'released' else cfg.initial
  return quaternions(grouping=cfg.grouping, initial=initial, component=cfg.scores == 'component', **fields)


def _mlp(cfg: Config) -> transformer.Mlp:
  fields: dict[str, Any] = dict(kernel_init=transformer.Init('glorot'), rate=cfg.dropout_relu, dtype=cfg.dtype)
  if cfg.quaternion != 'full':
    return transformer.Mlp(cfg.F, 'relu', **fields)
  initial = 'released_hidden' if cfg.initial == 'released' else cfg.initial
  return Mlp(cfg.F, 'relu', bias=cfg.bias, grouping=cfg.grouping, initial=initial, **fields)


def real(w_CXY: Array) -> Array:
  """The real matrix (4X, .., 4Y) of the product W * Q, from the components of W (4, X, .., Y)."""
  rows = [jnp.concatenate([SIGNS[b ^ c][b] * w_CXY[b ^ c] for c in range(4)], axis=-1) for b in range(4)]
  return jnp.concatenate(rows)


def views(q_BTHK: Array, k_BSHK: Array, v_BSHK: Array) -> tuple[Array, Array, Array]:
  """Queries, keys and values of `scores='component'`: of each head four, one for each component of its scores.

  Args:
    q_BTHK: queries, whose K are four components of K / 4 quaternions, as those of keys and values are.
    k_BSHK: keys.
    v_BSHK: values.

  Returns:
    (the queries four times (B, T, 4H, K); keys (B, S, 4H, K) whose product with a query is that component of the sum of
    the Hamilton products; the components of the values (B, S, 4H, K / 4)).
  """
  K = q_BTHK.shape[-1]
  flat = lambda heads: jnp.stack(heads, axis=3).reshape(*heads[0].shape[:2], -1, heads[0].shape[-1])
  k = jnp.split(k_BSHK, 4, axis=-1)
  keys = [jnp.concatenate([SIGNS[a][a ^ c] * k[a ^ c] for a in range(4)], axis=-1) for c in range(4)]
  return flat([q_BTHK] * 4), flat(keys), v_BSHK.reshape(*v_BSHK.shape[:2], -1, K // 4)


class Linear(transformer.Projection):
  """The product of a matrix of quaternions with x, whose axes of inputs and outputs are (D,) or (heads, K).

  `grouping` and `initial` are those of `SelfAttention`.
  """

  grouping: str = 'quaternion'
  initial: str = 'glorot'

  def matrix(self) -> Array:
    """The real matrix, (*inputs, *outputs) in the compute type, from the weights (4, d_in / 4, .., d_out / 4)."""
    outputs = self.outputs[self.fused > 1 :]  # of each of the matrices side by side
    inner, to_inputs = self._split(self.inputs)
    outer, to_outputs = self._split(outputs)
    side = (self.fused,) * (self.fused > 1)
    shape = (4, math.prod(inner) // 4, *side, math.prod(outer) // 4)
    w_CXY = jnp.asarray(self.param('quaternions', self._weights, shape)).astype(self.dtype)
    n = len(inner)
    order = (*to_inputs, *range(n, n + len(side)), *(n + len(side) + i for i in to_outputs))
    return real(w_CXY).reshape(*inner, *side, *outer).transpose(order).reshape(*self.inputs, *self.outputs)

  def _split(self, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], Sequence[int]]:
    """(the axes of a vector, components first; the order of these in which it is read as `sizes`)."""
    if len(sizes) == 2 and self.grouping == 'quaternion':
      return (4, sizes[0], sizes[1] // 4), (1, 0, 2)
    return (4, math.prod(sizes) // 4), (0, 1)

  def _weights(self, key: Array, shape: tuple[int, ...]) -> Array:
    inputs, outputs = math.prod(self.inputs), math.prod(self.outputs) // self.fused
    variance = {
      'released_attention': 1 / inputs,
      'released_hidden': 2 / (inputs / 4 + outputs),
      'polar_he': 2 / inputs,
    }.get(self.initial, 2 / (inputs + outputs))
    if self.initial.startswith('polar'):
      return polar(key, shape, variance**0.5)
    if self.initial != 'released_attention':
      limit = (3 * variance) ** 0.5
      return jax.random.uniform(key, shape, jnp.float32, -limit, limit)
    w_CXY = variance**0.5 * jax.random.normal(key, shape, jnp.float32)
    if self.name == 'qkv':
      return w_CXY.at[:, :, 0].multiply(outputs**-0.5)
    return w_CXY * outputs**-0.5 if self.name == 'q' else w_CXY


def polar(key: Array, shape: tuple[int, ...], scale: float) -> Array:
  """Weights (4, ..) in polar form, see the module's docstring, of mean variance `scale` squared."""
  length_key, axis_key, angle_key = jax.random.split(key, 3)
  length = scale * jnp.linalg.norm(jax.random.normal(length_key, shape, jnp.float32), axis=0)
  axis = jax.random.uniform(axis_key, (3, *shape[1:]), jnp.float32)
  angle = jax.random.uniform(angle_key, shape[1:], jnp.float32, -math.pi, math.pi)
  axis = axis / jnp.linalg.norm(axis, axis=0)
  return jnp.concatenate([(length * jnp.cos(angle))[None], length * jnp.sin(angle) * axis])
