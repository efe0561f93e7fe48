"""Transformers with quaternion matrices (Tay et al. 2019, arXiv 1906.04393, sections 2 and 3).

A vector of width D is D / 4 quaternions r + x i + y j + z k. Its first quarter holds all r, the next all
x, then y and z. With i^2 = j^2 = k^2 = ijk = -1 the Hamilton product of two quaternions is bilinear in their
components. So the product W * Q of a matrix and a vector of quaternions (section 2) is a product with a real
matrix of 4 x 4 blocks, which are W_r, W_x, W_y and W_z with signs. It has d_in d_out / 4 weights. As |pq| = |p||q|, a
single quaternion only rotates and scales.

`Linear` builds the real matrix and computes one product. Forward and backward of 512 x 512 tokens and widths took 24 ms
on one core, against 29 ms as sixteen block products and 25 ms with an ordinary matrix.

Attention (section 3.2): queries, keys and values are quaternions. The product of a query and a key is a quaternion,
and each of its components is a score. So there are four softmaxes, each of which averages one component of
the values (`scores='component'`). Component c of sum_n q_n k_n is an ordinary product of q with the permuted and signed
components of k. So it is one of four heads with a quarter of the values each, and every backend of
lmx/ops/attention.py applies (`views`). `scores='whole'` is one softmax over the sum of all components (the real
part of q times the conjugate of k): ordinary attention between quaternion projections.

Nonlinear functions, normalisation and dropout act on each component separately ("split activation").

This follows the released code (vanzytay/QuaternionTransformers); the paper's own text was not available, and statements
about it are from notes on it. Where the paper leaves a choice, or the code differs:
- `grouping`: which quarters of a head are its components. 'quaternion': a head has an equal share of every component.
  'contiguous': as released, heads are contiguous slices of the vector. So a head lies within one component of
  the projection (two heads in each, of eight), and its quarters are used as components.
- `initial`: 'glorot' samples all weights i.i.d., which the paper found no worse (section 3), with the
  variance 2 / (d_in + d_out) of Glorot's rule for the real matrix. 'released': uniform with variance
  2 / (d_in / 4 + d_out) in feed-forward networks; in attention normal with variance 1 / D, and for queries 1 / D^2.
  'polar_glorot', 'polar_he' are those of Parcollet et al. 2019 (arXiv 1806.04418): w = |w| (cos t + u sin t) with t
  uniform in [-pi, pi] and u a unit imaginary quaternion (three uniform samples from [0, 1], normalised). |w| is from a
  chi distribution with four degrees of freedom (in their code: Rayleigh's) times s, where s^2 is 2 / (d_in + d_out) or
  2 / d_in, the mean variance of a component.
- `scores`: the released code uses 'component' only on request (self_attention_type).
- `bias`: the released quaternion networks have none.
- The released code multiplies by the conjugate of W, which is the same family of functions.
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
from lmx.layers import decoder_block, sinusoids, transformer
from lmx.layers.block import Block
from lmx.ops import attention
from lmx.ops.rematerialisation import Policy
from lmx.types import Array

KINDS = ('full', 'partial', 'none')
SCORES = ('component', 'whole')
GROUPINGS = ('quaternion', 'contiguous')
INITIALS = ('glorot', 'released', 'polar_glorot', 'polar_he')
# e_a e_b = SIGNS[a][b] e_(a ^ b), where e is 1, i, j, k and ^ the bitwise exclusive or of their numbers.
SIGNS = ((1, 1, 1, 1), (1, -1, 1, -1), (1, -1, -1, 1), (1, 1, -1, -1))
EPS = 1e-6  # epsilon of layer normalisation, tensor2tensor


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches shared by the models of this paper.

  Attributes:
    V: vocabulary size.
    D: width.
    F: width of the feed-forward networks.
    H: heads.
    quaternion: 'full' (every matrix), 'partial' (those of attention) or 'none' (the ordinary Transformer).
    scores: 'component' or 'whole'; this and the next three as in the docstring of lmx/layers/quaternion.py.
    grouping: 'quaternion' or 'contiguous', which quarters of a head are its components.
    initial: initialisation of quaternion weights, one of INITIALS.
    bias: use biases in quaternion feed-forward networks; the released code has none.
    norm: 'pre' (tensor2tensor since version 2) or 'post' (Vaswani et al. 2017).
    positions: layout of the sinusoids, one of lmx.layers.sinusoids.LAYOUTS.
    dropout: dropout rate of the sums of embeddings and positions, and of the output of each sub-layer.
    dropout_attention: dropout rate of the attention probabilities.
    dropout_relu: dropout rate inside the feed-forward networks.
    dtype: compute type.
    attention: backend, one of lmx.ops.attention.BACKENDS.
    scan: compile one layer and loop over it.
    remat: activations that are kept for the backward pass, see lmx/ops/rematerialisation.py.
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
  remat: Policy = 'none'

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
      expected = f'even and divisible by H = {self.H} heads' + (' of whole quaternions' if parts == 4 else '')
      raise InputError(f'model.D: got {self.D}; expected a number that is {expected}')
    if self.quaternion == 'full' and self.F % 4:
      raise InputError(f'model.F: got {self.F}; expected a multiple of 4')


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
  """Attention of quaternions; with `component` there is a softmax for each component of the scores."""

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
  """Feed-forward network with quaternion matrices."""

  grouping: str = 'quaternion'
  initial: str = 'glorot'


def block(cfg: Config, *, causal: bool) -> Block:
  """Return an encoder layer of section 3.2: quaternion where `cfg.quaternion` is set, else the ordinary one."""
  attention = _attention(cfg, transformer.SelfAttention, SelfAttention, causal=causal)
  return Block(attention, _mlp(cfg), cfg.norm, EPS, cfg.dropout, cfg.dtype)


def decoder(cfg: Config) -> decoder_block.DecoderBlock:
  """Return a decoder layer."""
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
  """Return the real matrix (4X, .., 4Y) of the product W * Q, from the components of W (4, X, .., Y)."""
  rows = [jnp.concatenate([SIGNS[b ^ c][b] * w_CXY[b ^ c] for c in range(4)], axis=-1) for b in range(4)]
  return jnp.concatenate(rows)


def views(q_BTHK: Array, k_BSHK: Array, v_BSHK: Array) -> tuple[Array, Array, Array]:
  """Return queries, keys and values of `scores='component'`: four heads per head, one for each component of its scores.

  Args:
    q_BTHK: queries, where K is four components of K / 4 quaternions, as for keys and values.
    k_BSHK: keys.
    v_BSHK: values.

  Returns:
    (the queries repeated four times (B, T, 4H, K); keys (B, S, 4H, K), whose product with a query is that component of
    the sum of the Hamilton products; the components of the values (B, S, 4H, K / 4)).
  """
  K = q_BTHK.shape[-1]
  flat = lambda heads: jnp.stack(heads, axis=3).reshape(*heads[0].shape[:2], -1, heads[0].shape[-1])
  k = jnp.split(k_BSHK, 4, axis=-1)
  keys = [jnp.concatenate([SIGNS[a][a ^ c] * k[a ^ c] for a in range(4)], axis=-1) for c in range(4)]
  return flat([q_BTHK] * 4), flat(keys), v_BSHK.reshape(*v_BSHK.shape[:2], -1, K // 4)


class Linear(transformer.Projection):
  """Product of a quaternion matrix with x, whose axes of inputs and outputs are (D,) or (heads, K).

  `grouping` and `initial` are those of `SelfAttention`.
  """

  grouping: str = 'quaternion'
  initial: str = 'glorot'

  def matrix(self) -> Array:
    """Return the real matrix, (*inputs, *outputs) in the compute type, from weights (4, d_in / 4, .., d_out / 4)."""
    outputs = self.outputs[self.fused > 1 :]  # of each of the concatenated matrices
    inner, to_inputs = self._split(self.inputs)
    outer, to_outputs = self._split(outputs)
    side = (self.fused,) * (self.fused > 1)
    shape = (4, math.prod(inner) // 4, *side, math.prod(outer) // 4)
    w_CXY = jnp.asarray(self.param('quaternions', self._weights, shape)).astype(self.dtype)
    n = len(inner)
    order = (*to_inputs, *range(n, n + len(side)), *(n + len(side) + i for i in to_outputs))
    return real(w_CXY).reshape(*inner, *side, *outer).transpose(order).reshape(*self.inputs, *self.outputs)

  def _split(self, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], Sequence[int]]:
    """Return (the axes of a vector, components first; the permutation of these that gives `sizes`)."""
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
  """Return weights (4, ..) in polar form, see the module's docstring, with mean variance `scale` squared."""
  length_key, axis_key, angle_key = jax.random.split(key, 3)
  length = scale * jnp.linalg.norm(jax.random.normal(length_key, shape, jnp.float32), axis=0)
  axis = jax.random.uniform(axis_key, (3, *shape[1:]), jnp.float32)
  angle = jax.random.uniform(angle_key, shape[1:], jnp.float32, -math.pi, math.pi)
  axis = axis / jnp.linalg.norm(axis, axis=0)
  return jnp.concatenate([(length * jnp.cos(angle))[None], length * jnp.sin(angle) * axis])
