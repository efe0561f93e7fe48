"""Classification of documents on top of any model.

Howard and Ruder 2018, arXiv 1801.06146 (ULMFiT), section 3.3: concat pooling [h_T; max; mean] over the document, two
blocks of batch normalisation, dropout and a linear layer with ReLU between them, softmax; and BPTT for text
classification: a document is read in windows of `bptt` tokens with the state carried over, and the gradient goes back
into the windows whose hidden states are pooled, each by itself, as the state is passed on without a gradient.

Batch normalisation makes rows depend on one another, so this objective has ACROSS_ROWS and is told by `axis` among
which devices a batch is divided; a microbatch (`optim.accumulate`) is normalised by itself. The running statistics are
leaves of params['objective'], see lmx/layers/normalize.py.

The head is fastai's `PoolingLinearClassifier`, whose linear layers today have no bias (`head_bias=False`), while those
of the released code have one.
Deviation: PyTorch draws dropout from another generator.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_choice, check_least, check_range
from lmx.layers.normalize import batch_norm, init_batch_norm
from lmx.layers.pooling import POOLINGS, pool
from lmx.layers.regularize import dropout, split
from lmx.types import Array, Batch, Output, Params, State

SAMPLES = 'none'
UNIT = 'documents'  # what the weight of the loss counts
ACROSS_ROWS = True  # batch normalisation: `loss` takes `axis`
MOST_BY_CLASS = 50  # classes up to which the accuracy of each is reported


@dataclasses.dataclass(frozen=True)
class Config:
  """Options of the objective.

  Attributes:
    classes: number of classes; 0 takes it from the data set's labels.
    pooling: 'concat', 'last', 'max', 'mean', 'first', or 'pooled' (the model's own summary of the row).
    head: widths of the head's hidden layers; () is one linear layer.
    normalize: batch normalisation before each linear layer.
    head_bias: whether linear layers have a bias.
    dropout_pooled: rate on the pooled features.
    dropout_head: rate before each later linear layer.
    bptt: tokens of a window; 0 reads a document in one.
    pooled_length: only windows that begin at most so many tokens before the document's end are pooled, and get a
      gradient; 0 pools all.
    remat: recompute a window's activations in the backward pass.
  """

  classes: int = 0
  pooling: str = 'concat'
  head: tuple[int, ...] = (50,)  # section 4.1
  normalize: bool = True
  head_bias: bool = True
  dropout_pooled: float = 0.4  # section 4.1, "0.4 to layers"
  dropout_head: float = 0.1  # released code, train_clas.py
  bptt: int = 70  # section 4.1
  pooled_length: int = 0
  remat: bool = False

  def __post_init__(self):
    check_choice('objective.pooling', self.pooling, (*POOLINGS, 'pooled'))
    for name in ('dropout_pooled', 'dropout_head'):
      check_range(f'objective.{name}', getattr(self, name), 0, 1)
    check_least('objective', self, classes=0, bptt=0, pooled_length=0)
    for width in self.head:
      check_range('objective.head', width, 1)


def settle(cfg: Config, manifest: Any) -> Config:
  """The config with the number of classes of a data set; InputError if it has none, or another number is given."""
  names = manifest['label_names']
  if len(names) < 2:
    raise InputError(
      f'data set {manifest["dataset"]["name"]} has {len(names)} labels; objective "classify" needs labelled documents'
    )
  if cfg.classes not in (0, len(names)):
    raise InputError(f'objective.classes is {cfg.classes}, but the data set has {len(names)}: {", ".join(names)}')
  return dataclasses.replace(cfg, classes=len(names))


def _width(cfg: Config, model, model_cfg) -> int:
  """Width of the pooled features, found by tracing one token."""
  if cfg.classes < 2:
    raise InputError(f'objective.classes is {cfg.classes}; a classifier needs at least 2')

  def one_token(key):
    token = jnp.zeros((1, 1), jnp.int32)
    batch = {'tokens_BT': token, 'valid_BT': jnp.ones((1, 1), bool), 'characters_BTC': jnp.zeros((1, 1, 50), jnp.int32)}
    return _pooled(cfg, model, model_cfg, model.init(model_cfg, key), batch, None)

  return jax.eval_shape(one_token, jax.random.key(0)).shape[-1]


def init(cfg: Config, model, model_cfg, key: Array) -> Params:
  """The head: {'block_0': {'norm', 'kernel', 'bias'}, ...}, uniform in +-1/sqrt(width in) as PyTorch draws it."""
  widths = [_width(cfg, model, model_cfg), *cfg.head, cfg.classes]
  params: dict[str, Any] = {}
  for i, block_key in enumerate(jax.random.split(key, len(widths) - 1)):
    width_in, width = widths[i : i + 2]
    kernel_key, bias_key = jax.random.split(block_key)
    draw = lambda k, *shape, s=width_in**-0.5: jax.random.uniform(k, shape, jnp.float32, -s, s)
    block: dict[str, Any] = {'kernel': draw(kernel_key, width_in, width)}
    if cfg.head_bias:
      block['bias'] = draw(bias_key, width)
    if cfg.normalize:
      block['norm'] = init_batch_norm(width_in)
    params[f'block_{i}'] = block
  return params


def terms(cfg: Config) -> tuple[str, ...]:
  """One term: ('nll',)."""
  del cfg
  return ('nll',)


def weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """{'nll': number of documents}."""
  del cfg
  return {'nll': jnp.sum(batch['row_weights_B'], dtype=jnp.float32)}


def _windows(cfg: Config, batch: Batch) -> tuple[Batch, int]:
  """The batch padded on the right to whole windows, and their number."""
  T = batch['tokens_BT'].shape[1]
  size = cfg.bptt or T
  count = -(-T // size)
  if count == 1:
    return batch, 1
  pad = lambda x: jnp.pad(x, ((0, 0), (0, count * size - T), *((0, 0),) * (x.ndim - 2)))
  return {k: pad(x) if _over_time(k) else x for k, x in batch.items()}, count


def _over_time(key: str) -> bool:
  """Whether a key of a batch has positions as its second axis: tokens_BT, characters_BTC."""
  return key.rpartition('_')[2].startswith('BT')


def encode(cfg: Config, model, model_cfg, params: Params, batch: Batch, key: Array | None):
  """Runs the model over documents from a fresh state, window by window.

  Args:
    params: the model's.
    batch: tokens_BT, valid_BT and whatever the model reads of each position.
    key: randomness of dropout, drawn anew for each window; None at evaluation.

  Returns:
    (features of the output before its dropout (B, T', D), the model's summary or None, which of the T' positions are
    tokens of the document), T' being T rounded up to whole windows.
  """
  padded, count = _windows(cfg, batch)
  B = padded['tokens_BT'].shape[0]
  state = model.init_state(model_cfg, B)
  if count > 1 and not jax.tree.leaves(state):
    raise InputError('objective.bptt divides the documents, but the model carries no state; set objective.bptt=0')
  whole = lambda x: x.last_BTD if x.raw_BTD is None else x.raw_BTD

  def window(rows: Batch, state: State, key: Array | None):
    features, state = model.apply(model_cfg, params, rows, jax.lax.stop_gradient(state), key)
    return (whole(features), features.pooled_BD), state

  if count == 1:
    (x_BTD, pooled_BD), _ = window(padded, state, key)
    return x_BTD, pooled_BD, padded['valid_BT']
  cut = lambda x: jnp.moveaxis(x.reshape((B, count, -1) + x.shape[2:]), 1, 0)
  rows = {k: cut(x) for k, x in padded.items() if _over_time(k)}
  keys = None if key is None else jax.random.split(key, count)
  read = jax.checkpoint(window) if cfg.remat else window

  def body(state, at):
    (x_BTD, _), state = read(at[0], state, at[1])
    return state, x_BTD

  _, x_NBTD = jax.lax.scan(body, state, (rows, keys))
  x_BTD = jnp.moveaxis(x_NBTD, 0, 1).reshape((B, -1) + x_NBTD.shape[3:])
  return x_BTD, None, padded['valid_BT']


def _pooled(cfg: Config, model, model_cfg, params: Params, batch: Batch, key: Array | None) -> Array:
  """Features of each document, (B, D) or (B, 3D) float32."""
  x_BTD, pooled_BD, valid_BT = encode(cfg, model, model_cfg, params, batch, key)
  if cfg.pooling == 'pooled':
    if pooled_BD is None:
      raise InputError('objective.pooling is "pooled", but the model has no summary of the row (or bptt divides it)')
    return pooled_BD.astype(jnp.float32)
  kept_BT = valid_BT
  if cfg.pooled_length:
    position_T = jnp.arange(valid_BT.shape[1])
    begin_T = position_T // cfg.bptt * cfg.bptt if cfg.bptt else jnp.zeros_like(position_T)
    length_B1 = jnp.sum(valid_BT, axis=1, keepdims=True)
    last_T = length_B1 - 1 - (length_B1 - 1) % (cfg.bptt or valid_BT.shape[1])  # the last window always counts
    kept_BT = valid_BT & ((length_B1 - begin_T <= cfg.pooled_length) | (begin_T == last_T))
  return pool(cfg.pooling, x_BTD, kept_BT)


def _head(cfg: Config, params: Params, x_BD: Array, weights_B: Array, key: Array | None, axis: str | None):
  """(logits_BC, running statistics of each block, or None)."""
  found: dict[str, Any] = {}
  for i, block_key in enumerate(split(key, len(cfg.head) + 1)):
    block = params[f'block_{i}']
    if i:
      x_BD = jax.nn.relu(x_BD)
    if cfg.normalize:
      x_BD, statistics = batch_norm(block['norm'], x_BD, weights_B, training=key is not None, axis=axis)
      found[f'block_{i}'] = {'norm': statistics}
    x_BD = dropout(x_BD, cfg.dropout_head if i else cfg.dropout_pooled, block_key) @ block['kernel']
    if cfg.head_bias:
      x_BD = x_BD + block['bias']
  return x_BD, None if key is None or not found else {'objective': found}


def _logits(cfg: Config, model, model_cfg, params: Params, batch: Batch, key: Array | None, axis: str | None = None):
  body_key, head_key = split(key, 2)
  x_BD = _pooled(cfg, model, model_cfg, params['model'], batch, body_key)
  return _head(cfg, params['objective'], x_BD, batch['row_weights_B'], head_key, axis)


def loss(
  cfg: Config, model, model_cfg, params: Params, batch: Batch, state: State, key: Array | None = None,
  *, axis: str | None = None,
) -> Output:  # fmt: skip
  """Negative log-likelihood of the labels in nats.

  Args:
    params: {'model': ..., 'objective': the head}.
    batch: tokens_BT, valid_BT, labels_B, row_weights_B (0 is a row of padding) and whatever the model reads.
    state: passed through; every document begins anew.
    key: randomness of dropout; None at evaluation, when batch normalisation uses the running statistics.
    axis: see `lmx.layers.normalize.batch_norm`.

  Returns:
    Output with sums {'nll'}, metrics {'nll', 'accuracy'} and, at evaluation, 'accuracy_class_<i>' of up to 50 labels.
  """
  logits_BC, statistics = _logits(cfg, model, model_cfg, params, batch, key, axis)
  weights_B, labels_B = batch['row_weights_B'], batch['labels_B']
  log_p_B = jnp.take_along_axis(jax.nn.log_softmax(logits_BC), labels_B[:, None], axis=1)[:, 0]
  total, count = -jnp.sum(log_p_B * weights_B), weights(cfg, batch)['nll']
  right_B = (jnp.argmax(logits_BC, -1) == labels_B) * weights_B
  metrics = {'nll': (total, count), 'accuracy': (jnp.sum(right_B), count)}
  if key is None and cfg.classes <= MOST_BY_CLASS:
    for c in range(cfg.classes):
      is_B = labels_B == c
      metrics[f'accuracy_class_{c}'] = (jnp.sum(right_B * is_B), jnp.sum(weights_B * is_B))
  return Output({'nll': total}, metrics, state, statistics)


def predict(cfg: Config, model, model_cfg, params: Params, batch: Batch, state: State):
  """({'logits_BC': scores of the classes, float32}, state)."""
  return {'logits_BC': _logits(cfg, model, model_cfg, params, batch, None)[0]}, state


def headline(cfg: Config) -> str:
  """The metric shown first."""
  del cfg
  return 'error_percent'


def report(cfg: Config, totals: dict[str, tuple[float, float]], counts: Any) -> dict[str, float]:
  """{'loss', 'accuracy', 'error_percent', 'accuracy_class_<i>' where the split has the class}."""
  del cfg, counts
  means = {name: total / weight for name, (total, weight) in totals.items() if weight}
  loss = means.pop('nll', float('nan'))
  return {'loss': loss, 'error_percent': 100 * (1 - means.get('accuracy', float('nan'))), **means}


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Words on how documents were read, and how many."""
  del batches
  read = f'in windows of {cfg.bptt} with the state carried over' if cfg.bptt else 'whole'
  words = [f'documents read {read}, {cfg.pooling} pooling']
  if cfg.pooled_length:
    words.append(f'windows from {cfg.pooled_length} tokens before the end on pooled')
  if data.fraction < 1:
    words.append(f'only {data.fraction:.0%} of the documents')
  return words


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """A batch of documents."""
  del cfg
  leaf = lambda dtype, *sizes: jax.ShapeDtypeStruct((batch_size, *sizes), dtype)
  return {
    'tokens_BT': leaf(jnp.int32, length),
    'valid_BT': leaf(jnp.bool_, length),
    'labels_B': leaf(jnp.int32),
    'row_weights_B': leaf(jnp.float32),
  }
