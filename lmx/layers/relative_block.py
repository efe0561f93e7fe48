"""Post-norm blocks with a memory, and the stack of them (Dai et al. 2019, arXiv 1901.02860, section 3.2).

  x = norm(x + attention(x, memory))
  x = norm(x + W_2 f(W_1 x + b_1) + b_2)

Layer normalisation (Ba et al. 2016, arXiv 1607.06450) uses float32 statistics and the biased variance. Kernels are
normal with standard deviation `std`, biases 0. A block is a Linen module; `init` and `stack` take its parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx.kernels import mixed_product
from lmx.ops import dense, dropout, layer_loop, rematerialisation
from lmx.placement import constrain
from lmx.types import Array, Params


class Dense(nn.Module):
  """x · kernel, contracted over the last `axes` axes of x, plus an optional bias; in the type of x."""

  outputs: tuple[int, ...]
  std: float
  axes: int = 1
  bias: bool = False

  @nn.compact
  def __call__(self, x: Array) -> Array:
    inputs = x.shape[-self.axes :]
    kernel = self.param('kernel', nn.initializers.normal(self.std), (*inputs, *self.outputs))
    # Flatten the rows: to sum a gradient over two row axes, XLA on a CPU transposes an operand and takes twice as long.
    y = dense.dot(x.reshape(-1, *inputs), kernel, self.axes).reshape(*x.shape[: -self.axes], *self.outputs)
    return dense.add(y, self.param('bias', nn.initializers.zeros, self.outputs)) if self.bias else y


class DistanceVectors(nn.Module):
  """Vectors r_d = W_r R_d of the distances for `relative_attention.position_scores`, (G, R, H, K), in the type of R_d.

  They are equal for each of G shards of the batch's rows, see `mixed_product.dot_per_shard`.
  """

  outputs: tuple[int, int]
  std: float

  @nn.compact
  def __call__(self, encoding_RD: Array) -> Array:
    kernel_DHK = self.param('kernel', nn.initializers.normal(self.std), (encoding_RD.shape[-1], *self.outputs))
    return mixed_product.dot_per_shard(encoding_RD, kernel_DHK, 'DHK')


class LayerNorm(nn.Module):
  """(x - mean) / sqrt(variance + eps) * scale + bias over the last axis."""

  eps: float

  @nn.compact
  def __call__(self, x_BTD: Array) -> Array:
    scale_D = self.param('scale', nn.initializers.ones, x_BTD.shape[-1:])
    bias_D = self.param('bias', nn.initializers.zeros, x_BTD.shape[-1:])
    y_BTD = x_BTD.astype(jnp.float32)
    y_BTD -= jnp.mean(y_BTD, axis=-1, keepdims=True)
    y_BTD *= jax.lax.rsqrt(jnp.mean(jnp.square(y_BTD), axis=-1, keepdims=True) + self.eps)
    return (y_BTD * scale_D + bias_D).astype(x_BTD.dtype)


class Mlp(nn.Module):
  """Position-wise feed-forward network, W_2 f(W_1 x + b_1) + b_2, with dropout of f's output."""

  hidden: int
  activation: Callable[[Array], Array]
  std: float
  rate: float

  @nn.compact
  def __call__(self, x_BTD: Array, key: Array | None) -> Array:
    h_BTF = self.activation(constrain(Dense((self.hidden,), self.std, bias=True, name='in')(x_BTD), 'BTF'))
    h_BTF = dropout.dropout(h_BTF, self.rate, key)
    return Dense(x_BTD.shape[-1:], self.std, bias=True, name='out')(h_BTF)


class Block(nn.Module):
  """Attention and feed-forward network, each followed by a residual connection and layer normalisation.

  Attributes:
    attention: module with arguments (x, inputs, memory, key) that returns its output and the new memory.
    hidden: width of the feed-forward network.
    activation: f.
    eps: epsilon of layer normalisation.
    std: standard deviation of kernels.
    rate: dropout rate of the sub-layer outputs and inside the feed-forward network.
  """

  attention: nn.Module
  hidden: int
  activation: Callable[[Array], Array]
  eps: float
  std: float
  rate: float

  @nn.compact
  def __call__(self, x_BTD: Array, inputs: Any, memory: Any, key: Array | None) -> tuple[Array, Any]:
    attention_key, *residual_keys = dropout.split(key, 3)
    *_, hidden_key = dropout.split(None if key is None else jax.random.fold_in(key, 1), 3)
    y_BTD, memory = self.attention(x_BTD, inputs, memory, attention_key)
    x_BTD = LayerNorm(self.eps, name='norm_1')(x_BTD + dropout.dropout(y_BTD, self.rate, residual_keys[0]))
    y_BTD = Mlp(self.hidden, self.activation, self.std, self.rate, name='mlp')(x_BTD, hidden_key)
    return LayerNorm(self.eps, name='norm_2')(x_BTD + dropout.dropout(y_BTD, self.rate, residual_keys[1])), memory


def init(block: Block, x_BTD: Array, inputs: Any, key: Array) -> Params:
  """Initialise the parameters of one block (attention, mlp, norm_1, norm_2), from inputs of one token."""
  return layer_loop.init(block, key, x_BTD, inputs, None, None)


def stack(
  block: Block,
  layers: Sequence[Params],
  x_BTD: Array,
  inputs: Any,
  memories: Sequence[Any] | None,
  key: Array | None,
  *,
  scan: bool = False,
  remat: rematerialisation.Policy = 'none',
) -> tuple[Array, tuple[Any, ...] | None, list[Array]]:
  """Run the layers one after another.

  Args:
    block: the module of a layer.
    layers: parameters of each layer.
    x_BTD: input of the first layer.
    inputs: inputs of attention that all layers share.
    memories: memory of each layer, or None.
    key: PRNG key of dropout, or None.
    scan: compile one layer, see lmx/ops/layer_loop.py.
    remat: activations that are kept for the backward pass, see lmx/ops/rematerialisation.py.

  Returns:
    (output, new memories, output of every layer).
  """

  def layer(x_BTD: Array, layer_inputs: Any) -> tuple[Array, Any]:
    params, memory, key = layer_inputs
    y_BTD, memory = layer_loop.apply(block, params, constrain(x_BTD, 'BTD'), inputs, memory, key)
    return constrain(y_BTD, 'BTD'), (memory, y_BTD)

  more = list(zip(memories or [None] * len(layers), dropout.split(key, len(layers)), strict=True))
  x_BTD, outputs = layer_loop.loop(layer, x_BTD, layers, more, scan=scan, remat=remat)
  return x_BTD, None if memories is None else tuple(memory for memory, _ in outputs), [y_BTD for _, y_BTD in outputs]
