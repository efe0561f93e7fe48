"""Encoder and head of the objectives over rows of text: a vector for each row, and its scores, with any model.

Howard and Ruder 2018, arXiv 1801.06146 (ULMFiT), section 3.3. Concat pooling [h_T; max; mean] over the document; two
blocks of batch normalisation, dropout and a linear layer, with ReLU between them. BPTT for text classification: a
document is read in windows of `bptt` tokens with the state carried over. The gradient reaches the windows
whose hidden states are pooled, each separately, because the state has no gradient. The head is fastai's
`PoolingLinearClassifier`, whose linear layers today have no bias (`head_bias=False`), while those of the released code
have one.

Devlin et al. 2019, arXiv 1810.04805, section 4.1 (BERT): the pooler's vector, dropout and one linear layer:
pooling='pooled', head=(), normalize=False, init_std=0.02, bptt=0. Radford et al. 2018, equations 3 to 5 (GPT): the last
token's state, dropout and one linear layer: the same with pooling='last', and an auxiliary language modelling loss on
the rows with weight `lm_weight`, lambda = 0.5. Yang et al. 2019, arXiv 1906.08237 (XLNet; zihangdai/xlnet,
modeling.py): the last token's state, a tanh layer of the same width, dropout and one linear layer: pooling='last',
head=(0,), activation='tanh'. McCann et al. 2017, arXiv 1708.00107, section 5 (lmx/models/bcn.py): three maxout layers
(Goodfellow et al. 2013, arXiv 1302.4389) with batch normalisation, the last of which gives the logits:
activation='maxout', head=(1200, 600). Their kernels are (D, pieces, width).

A row may be several sequences, keys with an axis G after the rows (`tokens_BGT`): both orders of two texts, whose
vectors are summed, or the choices of a question, which are scored separately.

Batch normalisation couples rows, so these objectives set ACROSS_ROWS, and `axis` is the `pmap` axis over which a batch
is sharded. A microbatch (`optim.accumulate`) is normalised separately. The running statistics are leaves of
params['objective'], see lmx/layers/normalization.py.

Deviation: PyTorch has another random generator for dropout.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_choice, check_least, check_range
from lmx.layers import char_cnn, pooling
from lmx.layers.normalization import batch_norm, init_batch_norm
from lmx.objectives import head_input, row_objective
from lmx.ops.dropout import dropout, split
from lmx.types import Array, Batch, Features, Model, Params, State

POOLINGS = ('concat', 'last', 'max', 'mean', 'first')
ACTIVATIONS = {'relu': jax.nn.relu, 'tanh': jnp.tanh}


@dataclasses.dataclass(frozen=True)
class Config(head_input.Config, row_objective.Terms):
  """Encoding and scoring of rows; the attributes are those of `head_input.Config`, and

  Attributes:
    pooling: 'concat', 'last', 'max', 'mean', 'first', or 'pooled' (the model's own summary of the row).
    head: widths of the head's hidden layers, 0 for the width of the pooled features; () is one linear layer.
    activation: 'relu' or 'tanh', between the head's layers, or 'maxout', of all of them, the last included.
    pieces: number of linear functions per maxout unit.
    normalize: batch normalisation before each linear layer.
    head_bias: use biases in linear layers.
    init_std: standard deviation of the head's kernels (normal), with biases 0; 0 initialises both as PyTorch does.
    dropout_pooled: dropout rate of the pooled features.
    dropout_head: dropout rate before each later linear layer.
    bptt: tokens of a window; 0 encodes a row in one.
    pooled_length: pool only windows that begin at most so many tokens before the row's end, and only these have a
      gradient; 0 pools all.
    remat: recompute a window's activations in the backward pass.
    lm_weight: weight of the auxiliary causal language modelling loss, the mean over a row's tokens.
  """

  pooling: str = 'concat'
  head: tuple[int, ...] = (50,)  # arXiv 1801.06146, section 4.1
  activation: str = 'relu'
  pieces: int = 4  # AllenNLP, biattentive_classification_network_elmo.jsonnet
  normalize: bool = True
  head_bias: bool = True
  init_std: float = 0.0
  dropout_pooled: float = 0.4  # arXiv 1801.06146, section 4.1, "0.4 to layers"
  dropout_head: float = 0.1  # released code, train_clas.py
  bptt: int = 70  # arXiv 1801.06146, section 4.1
  pooled_length: int = 0
  remat: bool = False
  lm_weight: float = 0.0

  outputs = 1  # not a field: scores of a sequence
  is_scored = False  # labels are scores on a scale

  @property
  def auxiliary_terms(self) -> tuple[str, ...]:
    """The term of the auxiliary language model, if it has a weight."""
    return ('lm',) if self.lm_weight else ()

  def __post_init__(self) -> None:
    super().__post_init__()
    check_choice('objective.pooling', self.pooling, (*POOLINGS, 'pooled'))
    if not self.is_last_layer and self.pooling == 'pooled':
      raise InputError(
        'objective.pooling: got "pooled", which needs the last layer; set another pooling for these features'
      )
    if not self.is_last_layer and self.bptt:
      raise InputError('objective.bptt: got rows split into windows; LSTM layers above the model need objective.bptt=0')
    for name in ('dropout_pooled', 'dropout_head'):
      check_range(f'objective.{name}', getattr(self, name), 0, 1)
    check_least('objective', self, pieces=1, bptt=0, pooled_length=0, init_std=0, lm_weight=0)
    for width in self.head:
      check_range('objective.head', width, 0)
    check_choice('objective.activation', self.activation, (*ACTIVATIONS, 'maxout'))
    if self.activation != 'maxout' and self.pieces != Config.pieces:
      raise InputError(f'objective.pieces: got {self.pieces} with activation "{self.activation}"; expected "maxout"')
    if self.lm_weight and self.bptt:
      raise InputError('objective.lm_weight: got a value above 0 with rows split into windows; set objective.bptt=0')


class Read(NamedTuple):
  """Scores and statistics of a batch.

  Attributes:
    scores_BGC: logits, float32; G is 1 unless rows are several sequences.
    statistics: statistics of batch normalisation, see `Output`; None at evaluation.
    lm_BG: language modelling loss of each sequence, nats a token; None without `lm_weight`.
    features: pooled features of every sequence, for the model's penalties.
  """

  scores_BGC: Array
  statistics: Params | None
  lm_BG: Array | None
  features: Features | None = None


def _trace(cfg: Config, model: Model, model_cfg: Any) -> Any:
  """Return the shapes of the pooled features, or with layers above the model those of its features, of one token."""

  def one_token(key: Array) -> Any:
    characters = jax.ShapeDtypeStruct((1, 1, char_cnn.WORD_LENGTH), jnp.int32)
    batch = head_input.one_token(model, model_cfg, shapes(1, 1) | {'characters_BTC': characters})
    params = {'model': model.init(model_cfg, key)}
    if cfg.is_last_layer:
      return pool_rows(cfg, model, model_cfg, {**params, 'objective': {}}, batch, None)[0]
    return head_input.apply(cfg, model, model_cfg, params, batch, model.init_state(model_cfg, 1), None)[0]

  return jax.eval_shape(one_token, jax.random.key(0))


def init(cfg: Config, model: Model, model_cfg: Any, key: Array) -> Params:
  """Initialise the head: {'block_0': {'norm', 'kernel', 'bias'}, ...}, uniform in +-1/sqrt(input width) as in PyTorch,
  or normal if `init_std` is set; and `head_input.init`."""
  params: dict[str, Any] = {}
  outputs = cfg.outputs
  traced = _trace(cfg, model, model_cfg)
  if cfg.is_last_layer:
    D = traced.shape[-1]
  else:
    D, below, layers = head_input.sizes(cfg, traced)
    D *= 3 if cfg.pooling == 'concat' else 1
    params |= head_input.init(cfg, below, layers, key)
  widths = [D, *(width or D for width in cfg.head), outputs]
  for i, block_key in enumerate(jax.random.split(key, len(widths) - 1)):
    width_in, width = widths[i : i + 2]
    shape = (cfg.pieces, width) if cfg.activation == 'maxout' else (width,)
    kernel_key, bias_key = jax.random.split(block_key)
    draw = lambda k, *shape, s=width_in**-0.5: jax.random.uniform(k, shape, jnp.float32, -s, s)
    block: dict[str, Any] = {'kernel': draw(kernel_key, width_in, *shape)}
    if cfg.head_bias:
      block['bias'] = draw(bias_key, *shape)
    if cfg.init_std:
      block = {name: jnp.zeros_like(x) for name, x in block.items()}
      block['kernel'] = cfg.init_std * jax.random.normal(kernel_key, (width_in, *shape), jnp.float32)
    if cfg.normalize:
      block['norm'] = init_batch_norm(width_in)
    params[f'block_{i}'] = block
  return params


def sequences(batch: Batch) -> tuple[Batch, int]:
  """Return (the batch with one sequence a row, sequences of a row): keys whose axes begin with BG lose the G."""
  grouped = {key: x for key, x in batch.items() if key.rpartition('_')[2].startswith('BG')}
  if not grouped:
    return batch, 1
  G = next(iter(grouped.values())).shape[1]
  flat = {key.replace('_BG', '_B', 1): x.reshape((-1,) + x.shape[2:]) for key, x in grouped.items()}
  return {**{key: x for key, x in batch.items() if key not in grouped}, **flat}, G


def _windows(cfg: Config, batch: Batch) -> tuple[Batch, int]:
  """Pad the batch on the right to whole windows; return it and their number."""
  T = batch['tokens_BT'].shape[1]
  size = cfg.bptt or T
  count = -(-T // size)
  if count == 1:
    return batch, 1
  pad = lambda x: jnp.pad(x, ((0, 0), (0, count * size - T), *((0, 0),) * (x.ndim - 2)))
  return {k: pad(x) if _over_time(k) else x for k, x in batch.items()}, count


def _over_time(key: str) -> bool:
  """Return True if a batch key's second axis is positions: tokens_BT, characters_BTC."""
  return key.rpartition('_')[2].startswith('BT')


def encode(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, key: Array | None) -> Any:
  """Run the model over rows from a fresh state, window by window.

  Args:
    params: {'model': ..., 'objective': the head}.
    batch: tokens_BT, valid_BT, and the model's other inputs at each position.
    key: PRNG key of dropout, split for each window; None at evaluation.

  Returns:
    (features of the output before its dropout (B, T', D), the model's summary or None, True where the T' positions are
    tokens of the row, Features if the row is a single window), where T' is T rounded up to whole windows.
  """
  padded_batch, count = _windows(cfg, batch)
  B = padded_batch['tokens_BT'].shape[0]
  state = model.init_state(model_cfg, B)
  if count > 1 and not jax.tree.leaves(state):
    raise InputError(
      'objective.bptt: got rows of several windows, but the model carries no state; set objective.bptt=0'
    )

  def window(rows: Batch, state: State, key: Array | None) -> Any:
    features, state = head_input.apply(cfg, model, model_cfg, params, rows, jax.lax.stop_gradient(state), key)
    return _output(features), state

  if count == 1:
    features, _ = head_input.apply(cfg, model, model_cfg, params, padded_batch, state, key)
    x_BTD = _output(features)
    if not cfg.is_last_layer:
      x_BTD = head_input.read(cfg, params['objective'], features, padded_batch['valid_BT'])
    return x_BTD, features.pooled_BD, padded_batch['valid_BT'], features
  to_windows = lambda x: jnp.moveaxis(x.reshape((B, count, -1) + x.shape[2:]), 1, 0)
  rows = {k: to_windows(x) for k, x in padded_batch.items() if _over_time(k)}
  keys = None if key is None else jax.random.split(key, count)
  read = jax.checkpoint(window) if cfg.remat else window

  def body(state: State, inputs: Any) -> Any:
    return read(inputs[0], state, inputs[1])[::-1]

  _, x_NBTD = jax.lax.scan(body, state, (rows, keys))
  x_BTD = jnp.moveaxis(x_NBTD, 0, 1).reshape((B, -1) + x_NBTD.shape[3:])
  return x_BTD, None, padded_batch['valid_BT'], None


def _output(features: Features) -> Array:
  return features.last_BTD if features.raw_BTD is None else features.raw_BTD


def pool_rows(
  cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, key: Array | None
) -> tuple[Array, Features, Features | None]:
  """Return (a vector of each row, (B, D) or (B, 3D) float32; pooled features; Features if it is one window)."""
  x_BTD, pooled_BD, valid_BT, features = encode(cfg, model, model_cfg, params, batch, key)
  output_BTD = x_BTD if cfg.is_last_layer or features is None else _output(features)
  own_BTD = output_BTD[:, : batch['tokens_BT'].shape[1]]
  row_features = (features or Features(own_BTD))._replace(last_BTD=own_BTD, raw_BTD=own_BTD)
  if cfg.pooling == 'pooled':
    if pooled_BD is None:
      raise InputError('objective.pooling: got "pooled", but the model has no summary of the row (or bptt divides it)')
    if getattr(model_cfg, 'causal', False):
      raise InputError(
        'objective.pooling: got "pooled" with a causal model, whose first token attends to no other; set "last"'
      )
    return pooled_BD.astype(jnp.float32), row_features, features
  return pooling.pool(cfg.pooling, x_BTD, _pooled_positions(cfg, valid_BT)), row_features, features


def _pooled_positions(cfg: Config, valid_BT: Array) -> Array:
  """Return True at positions that are pooled, by `pooled_length`."""
  if not cfg.pooled_length:
    return valid_BT
  position_T = jnp.arange(valid_BT.shape[1])
  begin_T = position_T // cfg.bptt * cfg.bptt if cfg.bptt else jnp.zeros_like(position_T)
  length_B1 = jnp.sum(valid_BT, axis=1, keepdims=True)
  last_T = length_B1 - 1 - (length_B1 - 1) % (cfg.bptt or valid_BT.shape[1])  # the last window is always pooled
  return valid_BT & ((length_B1 - begin_T <= cfg.pooled_length) | (begin_T == last_T))


def model_batch(cfg: Config, batch: Batch) -> Batch:
  """Return the batch with one sequence a row, valid where it is pooled."""
  flat, _ = sequences(batch)
  return {**flat, 'valid_BT': _pooled_positions(cfg, flat['valid_BT'])}


def _head(
  cfg: Config, params: Params, x_BD: Array, weights_B: Array, key: Array | None, axis: str | None, share: int
) -> Any:
  """Return (logits, running statistics of each block, or None); every `share` adjacent rows share a dropout mask."""
  statistics_by_block: dict[str, Any] = {}
  for i, block_key in enumerate(split(key, len(cfg.head) + 1)):
    block = params[f'block_{i}']
    if i and cfg.activation != 'maxout':
      x_BD = ACTIVATIONS[cfg.activation](x_BD)
    if cfg.normalize:
      x_BD, statistics = batch_norm(block['norm'], x_BD, weights_B, training=key is not None, axis=axis)
      statistics_by_block[f'block_{i}'] = {'norm': statistics}
    x_BD = _shared_dropout(x_BD, cfg.dropout_head if i else cfg.dropout_pooled, block_key, share)
    x_BD = jnp.tensordot(x_BD, block['kernel'], 1)
    if cfg.head_bias:
      x_BD = x_BD + block['bias']
    if cfg.activation == 'maxout':
      x_BD = jnp.max(x_BD, axis=1)
  return x_BD, None if key is None or not statistics_by_block else {'objective': statistics_by_block}


def _shared_dropout(x_BD: Array, rate: float, key: Array | None, share: int) -> Array:
  if share == 1 or key is None:
    return dropout(x_BD, rate, key)
  mask_BD = dropout(jnp.ones((x_BD.shape[0] // share, x_BD.shape[1]), x_BD.dtype), rate, key)
  return x_BD * jnp.repeat(mask_BD, share, axis=0)


def read(
  cfg: Config,
  model: Model,
  model_cfg: Any,
  params: Params,
  batch: Batch,
  key: Array | None,
  axis: str | None = None,
  *,
  summed: bool = True,
  one_mask: bool = False,
) -> Read:
  """Encode and score every row.

  Args:
    params: {'model': ..., 'objective': the head}.
    batch: tokens_BT, valid_BT, row_weights_B (0 for padding) and the model's other inputs; or the keys with G.
    key: PRNG key of dropout; None at evaluation, when batch normalisation uses the running statistics.
    axis: see `lmx.layers.normalization.batch_norm`.
    summed: sum the vectors of a row's sequences (G is then 1); otherwise score each separately.
    one_mask: the head's dropout has one mask for all sequences of a row.
  """
  body_key, head_key = split(key, 2)
  flat, G = sequences(batch)
  x_BD, own, features = pool_rows(cfg, model, model_cfg, params, flat, body_key)
  lm_BG = _lm(model, model_cfg, params['model'], features, flat).reshape(-1, G) if cfg.lm_weight else None
  weights_B = batch['row_weights_B']
  if G > 1 and summed:
    x_BD, G = jnp.sum(x_BD.reshape(-1, G, x_BD.shape[-1]), axis=1), 1
  elif G > 1:
    weights_B = jnp.repeat(weights_B, G)
  scores_BC, statistics = _head(cfg, params['objective'], x_BD, weights_B, head_key, axis, G if one_mask else 1)
  return Read(scores_BC.reshape(-1, G, scores_BC.shape[-1]), statistics, lm_BG, own)


def _lm(model: Model, model_cfg: Any, params: Params, features: Features | None, batch: Batch) -> Array:
  """Return the mean negative log-likelihood of each sequence's tokens given those before, (B,) float32 nats."""
  if features is None or not model.CAUSAL:
    raise InputError(
      'objective.lm_weight: got a value above 0 with a model that is not causal; set objective.lm_weight=0'
    )
  targets_BT = jnp.roll(batch['tokens_BT'], -1, axis=1)
  later_BT = batch['valid_BT'] & (jnp.arange(targets_BT.shape[1]) > 0)[None]  # every token but the first is a target
  counts_BT = jnp.roll(later_BT, -1, axis=1).astype(jnp.float32)
  nll_BT = model.nll(model_cfg, params, features, targets_BT)
  return jnp.sum(nll_BT * counts_BT, axis=1) / jnp.maximum(jnp.sum(counts_BT, axis=1), 1)


def shapes(batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch of rows, without labels."""
  leaf = lambda dtype, *sizes: jax.ShapeDtypeStruct((batch_size, *sizes), dtype)
  return {'tokens_BT': leaf(jnp.int32, length), 'valid_BT': leaf(jnp.bool_, length), 'row_weights_B': leaf(jnp.float32)}
