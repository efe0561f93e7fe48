"""AWD-LSTM: Merity, Keskar & Socher 2018, "Regularizing and Optimizing LSTM Language Models" (arXiv 1708.02182).

Section 2: DropConnect on the recurrent weights, one mask per forward pass. Section 4.2: locked dropout of the
embedding, between the layers and of the output. 4.3: embedding dropout of whole words. 4.4: tied output.
4.5: embeddings narrower than the hidden layers; the last layer has the width of the embedding, as the tied output
requires. 4.6: `penalties`, the activation regularisation alpha * mean(dropped output squared) and the temporal one
beta * mean((h_t - h_t+1) squared) of the output before dropout. Both are means over elements, as released; the
paper writes L2 norms. Section 3 (NT-ASGD) is lmx/optim/averaging.py, section 4.1 (random BPTT lengths)
lmx/data/batching/streams.py, the continuous cache of section 6 lmx/metrics/continuous_cache.py. With `cutoffs` the
softmax is adaptive, over clusters of the same table (Merity et al. 2018, arXiv 1803.08240, section 3).

Parameters, tied, 1150-1150-400: 24,221,600 at V = 10,000 (Penn Treebank), 33,556,078 at V = 33,278 (WikiText-2). Each
LSTM has PyTorch's two biases. Cell 'qrnn' is the alternative of the released code: window 2 in the first
layer, 1 in the others, DropConnect on all of its weights. At V = 267,735 (WikiText-103) it has 153,886,638
parameters (wt103_qrnn); the paper prints 151M, which a window of 1 in the first layer gives.
Deviation: the released code samples one mask per GPU; 'pmap' samples one per device, 'jit' one for all.

Axes: E embedding width, D width of the hidden layers but the last; T time, the leading axis inside the layers.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import InputError, check_choice, check_least, check_range
from lmx.layers import adaptive_softmax, embedding, recurrent, softmax
from lmx.layers.locked_dropout import locked_dropout
from lmx.ops import rnn
from lmx.ops.dropout import drop, dropout, seed, split
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'causal_lm'
VOCABULARY = ('embed/table', 'output/table', 'output/bias')
TIED = ('embed/table',)
SETTLES = 'rnn'


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches. The defaults are the released code's for Penn Treebank.

  Attributes:
    V: vocabulary size.
    E: embedding width, with `tied` also the width of the last layer.
    D: width of the other layers.
    N: number of layers.
    cell: 'lstm' or 'qrnn'.
    tied: use the embedding as the output matrix.
    cutoffs: first token of each cluster of the adaptive softmax but the first; () is the usual softmax.
    dropout_input: locked dropout rate of the embedding, the input of the first layer.
    dropout_hidden: locked dropout rate between the layers.
    dropout_output: locked dropout rate before the output layer.
    dropout_embedding: dropout rate of whole words.
    dropout_weight: DropConnect rate of the recurrent weights.
    alpha: factor of the activation penalty, in training only.
    beta: factor of the temporal activation penalty, in training only.
    init_range: embedding (and untied output) uniform in +-init_range. LSTM layers are uniform in +-1/sqrt(their width),
      QRNN layers in +-1/sqrt(their inputs), biases too; the output bias is 0.
    dtype: compute type.
    backend: implementation of the LSTM's loop: 'scan', 'custom', 'cudnn', 'xla' or, to train on one CPU, 'numba'
      (`pip install "lmx[numba]"`), see lmx/kernels/rnn.py. A run that begins with 'auto' has 'numba' or 'xla'.
    remat: recompute a layer's activations in the backward pass.
  """

  V: int = 10_000
  E: int = 400
  D: int = 1150
  N: int = 3
  cell: str = 'lstm'
  tied: bool = True
  cutoffs: tuple[int, ...] = ()
  dropout_input: float = 0.4
  dropout_hidden: float = 0.25
  dropout_output: float = 0.4
  dropout_embedding: float = 0.1
  dropout_weight: float = 0.5
  alpha: float = 2.0  # section 5
  beta: float = 1.0  # section 5
  init_range: float = 0.1  # section 5
  dtype: str = 'float32'
  backend: str = 'auto'
  remat: bool = False

  def __post_init__(self) -> None:
    check_choice('model.cell', self.cell, ('lstm', 'qrnn'))
    check_choice('model.backend', self.backend, rnn.BACKENDS)
    adaptive_softmax.bounds(self.cutoffs, self.V)
    for field in dataclasses.fields(self):
      if field.name.startswith('dropout'):
        check_range(f'model.{field.name}', getattr(self, field.name), 0, 1)
    check_least('model', self, E=1, D=1, N=1, alpha=0, beta=0, init_range=0)
    if self.cell == 'qrnn' and self.backend != 'auto':
      raise InputError(f'model.backend: got "{self.backend}" with model.cell=qrnn; expected "auto", its only backend')


_WT103 = dict(V=267_735, cutoffs=(2800, 20_000, 76_000))


def _plain(rate: float, **changes: float) -> dict[str, float]:
  """Return one dropout rate of input and output, and none of embedding and weights; no penalties."""
  off = dict(dropout_embedding=0.0, dropout_weight=0.0, alpha=0.0, beta=0.0)
  return dict(dropout_input=rate, dropout_output=rate, **off, **changes)


# Dropout rates as released (README and defaults of main.py); the paper's are in experiments/awd_lstm.
VARIANTS: dict[str, dict[str, Any]] = {
  'ptb': dict(V=10_000),
  'wt2': dict(V=33_278, dropout_input=0.65, dropout_hidden=0.2),
  'ptb_qrnn': dict(V=10_000, cell='qrnn', D=1550, N=4, dropout_hidden=0.3, dropout_weight=0.1),  # its README
  'wt2_qrnn': dict(V=33_278, cell='qrnn', D=1550, N=4, dropout_hidden=0.2, dropout_weight=0.1),
  # Its README and main.py; the LSTM of Grave et al. 2017 (arXiv 1612.04426), which prints only D and dropout.
  'wt103_qrnn': dict(**_WT103, cell='qrnn', D=2500, N=4, **_plain(0.1, dropout_hidden=0.1)),
  'wt103_lstm': dict(**_WT103, E=1024, D=1024, N=1, tied=False, init_range=0.05, **_plain(0.25)),
  'enwik8': dict(
    V=205,
    D=1840,
    dropout_input=0.1,
    dropout_hidden=0.1,
    dropout_output=0.4,
    dropout_embedding=0.0,
    dropout_weight=0.2,
    alpha=0.0,
    beta=0.0,
  ),
  'ptb_characters': dict(
    V=50,
    E=200,
    D=1000,
    dropout_input=0.1,
    dropout_hidden=0.25,
    dropout_output=0.1,
    dropout_embedding=0.0,
    alpha=0.0,
    beta=0.0,
  ),
  'tiny': dict(V=61, E=24, D=32, N=2, init_range=0.3),
}


def _window(i: int) -> int:
  """Return the number of inputs that a step of QRNN layer i reads."""
  return 1 if i else 2


def widths(cfg: Config) -> list[tuple[int, int]]:
  """Return (input width, output width) of each layer."""
  out = [cfg.D] * (cfg.N - 1) + [cfg.E if cfg.tied else cfg.D]
  return list(zip([cfg.E, *out[:-1]], out, strict=True))


def init(cfg: Config, key: Array) -> Params:
  """Initialise the parameters: embed/table, layer_00 .., output/bias, and output/table if not tied.

  With cutoffs also output/clusters: 'kernel' and 'bias' of the head's classes, which begin at 0 as released.
  """
  embed_key, output_key, *keys = jax.random.split(key, cfg.N + 2)
  table = lambda k, rows, width: jax.random.uniform(k, (rows, width), jnp.float32, -cfg.init_range, cfg.init_range)
  params: dict[str, Any] = {'embed': {'table': table(embed_key, cfg.V, cfg.E)}}
  for i, ((width_in, width), k) in enumerate(zip(widths(cfg), keys, strict=True)):
    if cfg.cell == 'qrnn':
      params[layout.layer_name(i)] = init_qrnn(k, width_in, width, _window(i))
    else:
      params[layout.layer_name(i)] = recurrent.init('lstm', k, width_in, width, scale=width**-0.5, bias='double')
  params['output'] = {'bias': jnp.zeros(cfg.V, jnp.float32)}
  if not cfg.tied:
    params['output']['table'] = table(output_key, cfg.V, cfg.D)
  if cfg.cutoffs:
    kernel = jnp.zeros((len(cfg.cutoffs), cfg.E if cfg.tied else cfg.D), jnp.float32)
    params['output']['clusters'] = {'kernel': kernel, 'bias': kernel[:, 0]}
  return params


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """Return zero carries, one per layer, rows leading; `length` is unused, the carry has one size for any length."""
  del length
  if cfg.cell == 'qrnn':
    return tuple(init_qrnn_carry(batch_size, *both, _window(i)) for i, both in enumerate(widths(cfg)))
  return tuple(recurrent.init_carry('lstm', batch_size, width) for _, width in widths(cfg))


def word_dropout(x_TBD: Array, tokens_TB: Array, V: int, rate: float, key: Array | None) -> Array:
  """Zero the embedding of whole words, sampled once per batch, and divide the others by 1 - rate (section 4.3).

  Equivalent to dropping rows of the embedding table, without a copy of the table.

  Args:
    x_TBD: embeddings of `tokens_TB`, with the axes in the same order.
    tokens_TB: token ids.
    V: vocabulary size.
    rate: probability that a word is dropped.
    key: PRNG key; None disables dropout.
  """
  if key is None or rate == 0.0:
    return x_TBD
  mask_V = drop(jnp.ones((1, V), x_TBD.dtype), rate, seed(key))[0]
  return x_TBD * jnp.take(mask_V, tokens_TB, mode='clip')[..., None]


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the layers over `tokens_BT`.

  Args:
    batch: tokens_BT; valid_BT (optional, padding on the right): invalid steps leave the state unchanged.
    state: from `init_state` or the previous call.
    key: PRNG key of all dropouts, None at evaluation.
    all_layers: also return the embedding and the output of each layer, before dropout.

  Returns:
    (Features with last_BTD, the input of the output layer after dropout, and raw_BTD before dropout; state).
  """
  word_key, input_key, output_key, *keys = split(key, 3 + 2 * cfg.N)
  valid_BT = batch.get('valid_BT')
  valid_TB = None if valid_BT is None else valid_BT.T
  tokens_TB = batch['tokens_BT'].T
  x_TBD = embedding.lookup(params['embed']['table'], tokens_TB, cfg.dtype, 'TB')
  layers, carries = [x_TBD], []
  x_TBD = word_dropout(x_TBD, tokens_TB, cfg.V, cfg.dropout_embedding, word_key)
  x_TBD = locked_dropout(x_TBD, cfg.dropout_input, input_key, 0)

  def block(params: Params, x_TBD: Array, carry: Any, weight_key: Any, i: int) -> Any:
    if cfg.cell == 'qrnn':
      params = {**params, 'input': dropout(params['input'], cfg.dropout_weight, weight_key)}
      return qrnn(params, x_TBD, carry, valid_TB, window=_window(i), dtype=cfg.dtype)
    params = {**params, 'recurrent': dropout(params['recurrent'], cfg.dropout_weight, weight_key)}
    return recurrent.layer('lstm', params, x_TBD, carry, valid_TB, dtype=cfg.dtype, backend=cfg.backend)

  if cfg.remat:
    block = jax.checkpoint(block, static_argnums=4)
  for i in range(cfg.N):
    x_TBD, carry = layout.run(block, params, i, x_TBD, state[i], keys[2 * i], i)
    layers.append(x_TBD)
    carries.append(carry)
    if i < cfg.N - 1:
      x_TBD = locked_dropout(x_TBD, cfg.dropout_hidden, keys[2 * i + 1], 0)
  last_TBD = locked_dropout(x_TBD, cfg.dropout_output, output_key, 0)
  outputs = tuple(x.swapaxes(0, 1) for x in layers) if all_layers else None
  return Features(last_TBD.swapaxes(0, 1), layers=outputs, raw_BTD=x_TBD.swapaxes(0, 1)), tuple(carries)


def _valid(batch: Batch) -> tuple[Array, Array]:
  """Return as float32 (valid_BT, 1 where both a step and the next one are valid (B, T - 1))."""
  whole_BT = jnp.ones(batch['tokens_BT'].shape, bool)
  if 'index_B' in batch:  # -1 is a row of padding
    whole_BT &= batch['index_B'][:, None] >= 0
  valid_BT = batch.get('valid_BT', whole_BT).astype(jnp.float32)
  return valid_BT, valid_BT[:, 1:] * valid_BT[:, :-1]


def penalty_weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """Return the weights of `penalties`: the number of valid steps, and of valid pairs of consecutive steps."""
  valid_BT, pairs_BT = _valid(batch)
  weights = {}
  if cfg.alpha:
    weights['activation'] = jnp.sum(valid_BT)
  if cfg.beta:
    weights['slowness'] = jnp.sum(pairs_BT)
  return weights


def penalties(cfg: Config, params: Params, features: Features, batch: Batch) -> dict[str, Array]:
  """Return the penalties of section 4.6 summed over steps, under the names of `penalty_weights`.

  Args:
    params: unused.
    features: from `apply` in training.
    batch: of the same call.

  Returns:
    'activation': alpha times the mean square of each step's dropped output; 'slowness': beta times the mean squared
    difference of consecutive steps' outputs before dropout; float32 scalars.
  """
  del params
  valid_BT, pairs_BT = _valid(batch)
  sums = {}
  if cfg.alpha:
    last_BTD = features.last_BTD.astype(jnp.float32)
    sums['activation'] = cfg.alpha * jnp.sum(jnp.mean(last_BTD**2, axis=-1) * valid_BT)
  if cfg.beta:
    assert features.raw_BTD is not None  # always set by `apply`
    raw_BTD = features.raw_BTD.astype(jnp.float32)
    sums['slowness'] = cfg.beta * jnp.sum(jnp.mean((raw_BTD[:, 1:] - raw_BTD[:, :-1]) ** 2, axis=-1) * pairs_BT)
  return sums


def _output(cfg: Config, params: Params) -> tuple[Array, Array]:
  """Return (table_VD, bias_V) of the output layer."""
  return params['embed' if cfg.tied else 'output']['table'], params['output']['bias']


def _clusters(cfg: Config, params: Params) -> list[adaptive_softmax.Cluster]:
  parts = adaptive_softmax.split_table(*_output(cfg, params), adaptive_softmax.bounds(cfg.cutoffs, cfg.V))
  return adaptive_softmax.with_classes(parts, params['output']['clusters'])


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of the next token, (B, T, V) float32; with cutoffs, log-probabilities."""
  if cfg.cutoffs:
    return adaptive_softmax.log_probabilities(_clusters(cfg, params), features.last_BTD)
  return softmax.tied_logits(features.last_BTD, *_output(cfg, params), size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  if cfg.cutoffs:
    return adaptive_softmax.nll(_clusters(cfg, params), features.last_BTD, targets_BT)
  table_VD, bias_V = _output(cfg, params)
  return softmax.tied_nll(features.last_BTD, table_VD, targets_BT, bias_V, size=cfg.V)


def init_qrnn(key: Array, width_in: int, width: int, window: int) -> Params:
  """Initialise a QRNN layer, uniform in +-1/sqrt(window E), as PyTorch's linear layer.

  Returns:
    {'input': (window E, 3 D), rows of the latest input first, 'bias': (3 D,)}.
  """
  weight_key, bias_key = jax.random.split(key)
  scale = (window * width_in) ** -0.5
  uniform = lambda k, *shape: jax.random.uniform(k, shape, jnp.float32, -scale, scale)
  return {'input': uniform(weight_key, window * width_in, 3 * width), 'bias': uniform(bias_key, 3 * width)}


def init_qrnn_carry(batch_size: int, width_in: int, width: int, window: int) -> tuple[Array, ...]:
  """Return the carry before the first step: zeros, (c_BD,), and with window 2 the last input x_BE; float32."""
  c_BD = jnp.zeros((batch_size, width), jnp.float32)
  return (c_BD,) if window == 1 else (c_BD, jnp.zeros((batch_size, width_in), jnp.float32))


def forget_mult(f_TBD: Array, z_TBD: Array, c_BD: Array) -> Array:
  """Return c_t = f_t z_t + (1 - f_t) c_t-1 for all t, (T, B, D), by an associative scan of log2 T rounds."""

  def join(first: Any, second: Any) -> Any:
    return first[0] * second[0], second[0] * first[1] + second[1]

  kept_TBD, new_TBD = jax.lax.associative_scan(join, (1.0 - f_TBD, f_TBD * z_TBD))
  return new_TBD + kept_TBD * c_BD[None]


def qrnn(
  params: Params,
  x_TBE: Array,
  carry: tuple[Array, ...],
  valid_TB: Array | None = None,
  *,
  window: int,
  dtype: str = 'float32',
) -> tuple[Array, tuple[Array, ...]]:
  """Run a quasi-recurrent layer with fo-pooling over time (Bradbury et al. 2017, arXiv 1611.01576, section 2).

  z, f, o = tanh, sigmoid, sigmoid of a convolution over the last `window` inputs; c_t = f_t (.) z_t + (1 - f_t) (.)
  c_t-1; h_t = o_t (.) c_t. As in the released layer, f gates the new value, where equation 3 has 1 - f.

  Args:
    params: from `init_qrnn`.
    x_TBE: inputs, time first.
    carry: from `init_qrnn_carry` or an earlier call.
    valid_TB: bool, padding on the right; an invalid step leaves the carry unchanged. None: all are valid.
    window: number of inputs that a step reads, 1 or 2.
    dtype: type of the products.

  Returns:
    (h_TBD in `dtype`, carry after the last step in float32).
  """
  x_TBE = x_TBE.astype(dtype)
  source, last = x_TBE, carry[1:]
  if window == 2:
    inputs = jnp.concatenate([carry[1][None].astype(dtype), x_TBE])
    source = jnp.concatenate([x_TBE, inputs[:-1]], axis=-1)
    count_B = jnp.full(x_TBE.shape[1], len(x_TBE)) if valid_TB is None else jnp.sum(valid_TB, axis=0)
    last = (jnp.take_along_axis(inputs, count_B[None, :, None], axis=0)[0].astype(jnp.float32),)
  gates = jnp.matmul(source, params['input'].astype(dtype), preferred_element_type=jnp.float32) + params['bias']
  z_TBD, f_TBD, o_TBD = jnp.split(gates, 3, axis=-1)
  f_TBD = jax.nn.sigmoid(f_TBD)
  if valid_TB is not None:
    f_TBD = jnp.where(valid_TB[..., None], f_TBD, 0.0)
  c_TBD = forget_mult(f_TBD, jnp.tanh(z_TBD), carry[0])
  h_TBD = jax.nn.sigmoid(o_TBD) * c_TBD
  return h_TBD.astype(dtype), (c_TBD[-1], *last)
