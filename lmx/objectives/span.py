"""Extractive question answering: the answer as a span of the passage, with any model. A window without the answer has
its span at [CLS]. The loss is the mean of the negative log-likelihoods of start and end, with one of three heads:

  bert   a linear layer scores start and end at all positions of the row (Devlin et al. 2019, arXiv 1810.04805,
         sections 4.2 and 4.3)
  xlnet  the end is scored given the start, the true one in training and each of the `begins` best in prediction,
         both over the positions of the passage and [CLS]; a third layer predicts answerability, and its cross-
         entropy times `null_weight` is added to the loss (Yang et al. 2019, arXiv 1906.08237; span_head.py)
  bidaf  an LSTM reads the expected start before the end is scored (Seo et al. 2017, arXiv 1611.01603; flow_head.py),
         for the model bidaf without self-attention

Exact match and F1 need the text and are computed on whole questions (lmx/prediction/question_answering.py). The
accuracy here counts windows with both ends right.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_choice, check_least, check_range
from lmx.layers import flow_head, span_head
from lmx.layers.span_head import NEVER
from lmx.metrics import squad
from lmx.metrics.metric import ACCURACY, ERROR_PERCENT, Metric
from lmx.objectives import head_input, row_objective
from lmx.ops.dropout import split
from lmx.types import Array, Batch, Features, Model, Output, Params, State

METRICS = (ERROR_PERCENT, ACCURACY, Metric('null_accuracy', True, '.1%', shown=False), *squad.METRICS)
EVALUATION = PREDICTION = ROWS = 'question_answering'
UNIT = 'windows'  # unit of the loss's weight
terms, weights, report = row_objective.terms, row_objective.weights, row_objective.error_report
HEADS = ('bert', 'xlnet', 'bidaf')


@dataclasses.dataclass(frozen=True)
class Config(head_input.Config, row_objective.Terms):
  """Options of the objective, in addition to those of `head_input.Config`.

  Attributes:
    head: 'bert', 'xlnet' or 'bidaf', see the module's docstring.
    sum_ends: train on the sum of both negative log-likelihoods, as Seo et al. 2017 (equation 5) and document-qa, not on
      their mean, as BERT. Losses of validations are means.
    init_std: standard deviation of the head's kernels (normal, of 'bert' truncated).
    begins: 'xlnet': number of best starts for which ends are scored.
    ends: 'xlnet': number of best ends of each.
    null_weight: 'xlnet': weight of the answerability loss.
    eps: 'xlnet': epsilon of layer normalisation.
    dropout: 'xlnet': dropout rate within the answerability layer; 'bidaf': of the head's LSTM and linear layers.
  """

  head: str = 'bert'
  sum_ends: bool = False
  init_std: float = 0.02  # the released configurations' initializer_range and init_std
  begins: int = 5  # start_n_top, zihangdai/xlnet, run_squad.py
  ends: int = 5  # end_n_top
  null_weight: float = 0.5  # run_squad.py
  eps: float = 1e-12  # tf.contrib.layers.layer_norm
  dropout: float = 0.1

  @property
  def auxiliary_terms(self) -> tuple[str, ...]:
    """The term of answerability, for XLNet's head."""
    return ('null',) if self.head == 'xlnet' else ()

  def __post_init__(self) -> None:
    super().__post_init__()
    check_choice('objective.head', self.head, HEADS)
    check_range('objective.init_std', self.init_std, 0)
    check_range('objective.dropout', self.dropout, 0, 1)
    check_least('objective', self, begins=1, ends=1, null_weight=0, eps=0)
    if self.head == 'bidaf' and not self.is_last_layer:
      raise InputError(
        f'objective.head: got "bidaf" with objective.features "{self.features}" and objective.lstm_layers '
        f'{self.lstm_layers}; expected "last" and 0, because it reads the model\'s own layers'
      )


def resolve(cfg: Config, manifest: Any) -> Config:
  """Return the config unchanged; raise InputError if the data set has no answers."""
  if not manifest.get('spans'):
    name = manifest['dataset']['name']
    raise InputError(f'data set {name} has no answers that are spans; objective "span" needs a set such as squad')
  return cfg


def _one_token(cfg: Config, model: Model, model_cfg: Any) -> Features:
  """Return the shapes of the model's features of one token."""

  def one_token(key: Array) -> Features:
    batch = head_input.one_token(model, model_cfg, shapes(Config(), 1, 1))
    return _features(cfg, model, model_cfg, {'model': model.init(model_cfg, key)}, batch, None)

  return jax.eval_shape(one_token, jax.random.key(0))


def init(cfg: Config, model: Model, model_cfg: Any, key: Array) -> Params:
  """Initialise the head: {'kernel' (D, 2), 'bias' (2,)}, start and end, or that of `lmx.layers.span_head.init`; and
  `head_input.init`; or that of `lmx.layers.flow_head.init`."""
  features = _one_token(cfg, model, model_cfg)
  if cfg.head == 'bidaf':
    g_BTD, m_BTD = _flow(features)
    return flow_head.init(g_BTD.shape[-1], m_BTD.shape[-1], key)
  read, width, layers = head_input.sizes(cfg, features)
  below = head_input.init(cfg, width, layers, key)
  if cfg.head == 'xlnet':
    return {**span_head.init(read, cfg.init_std, key), **below}
  kernel = cfg.init_std * jax.random.truncated_normal(key, -2.0, 2.0, (read, 2), jnp.float32)
  return {'kernel': kernel, 'bias': jnp.zeros(2, jnp.float32), **below}


def _features(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, key: Array | None) -> Features:
  """Return the model's features, for the head 'bidaf' with all layers."""
  begin = model.init_state(model_cfg, batch['tokens_BT'].shape[0])
  flows = cfg.head == 'bidaf'
  return head_input.apply(cfg, model, model_cfg, params, batch, begin, key, all_layers=flows)[0]


def _flow(features: Features) -> tuple[Array, Array]:
  """Return the attention's result G and the modelling layer M, before dropout. Raises InputError if there are none."""
  layers = features.layers or ()
  if len(layers) < 3 or layers[-3].shape[-1] + layers[-1].shape[-1] != features.last_BTD.shape[-1]:
    raise InputError(
      'objective.head: got "bidaf" with a model without its modelling layer; expected the model bidaf with '
      'model.self_attention=False; set objective.head=bert'
    )
  return layers[-3], layers[-1]


def _scores(cfg: Config, params: Params, features: Features, batch: Batch, key: Array | None) -> Array:
  """Return the logits of start and end at every valid position, (B, T, 2) float32."""
  head = params['objective']
  if cfg.head == 'bidaf':
    g_BTD, m_BTD = (x_BTD.astype(jnp.float32) for x_BTD in _flow(features))
    x_BT2 = flow_head.scores(head, g_BTD, m_BTD, batch['valid_BT'], cfg.dropout, key)
  else:
    x_BT2 = _read(cfg, params, features, batch) @ head['kernel'] + head['bias']
  return jnp.where(batch['valid_BT'][..., None], x_BT2, NEVER)


def _read(cfg: Config, params: Params, features: Features, batch: Batch) -> Array:
  """Return a vector for every position, (B, T, D) float32."""
  return head_input.read(cfg, params['objective'], features, batch['valid_BT']).astype(jnp.float32)


def _gather(x_BTD: Array, position_BK: Array) -> Array:
  return jnp.take_along_axis(x_BTD, position_BK[..., None], axis=1)


def _answer_mask(batch: Batch) -> Array:
  """Return True where an answer may start or end: in the passage and at [CLS]."""
  position_T = jnp.arange(batch['tokens_BT'].shape[1])
  return batch['valid_BT'] & (batch['passage_BT'] | (position_T == batch['null_B'][:, None]))


def loss(
  cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State, key: Array | None = None
) -> Output:
  """Return the mean of the negative log-likelihoods of start and end in nats.

  Args:
    params: {'model': ..., 'objective': the head}.
    batch: tokens_BT, valid_BT, types_BT, starts_B, ends_B, row_weights_B; for XLNet's head also passage_BT and null_B.
    state: passed through; windows are independent.
    key: PRNG key of dropout; None at evaluation.

  Returns:
    Output with sums {'nll'} and, for XLNet's head, {'null'}; metrics of the same, 'accuracy': both ends are right, and
    for XLNet's head 'null_accuracy', the accuracy of answerability.
  """
  body_key, head_key = split(key, 2)
  features, weights_B = _features(cfg, model, model_cfg, params, batch, body_key), batch['row_weights_B']
  extra: dict[str, Array] = {}
  measured: dict[str, tuple[Array, Array]] = {}
  if cfg.head == 'xlnet':
    x_BTD = _read(cfg, params, features, batch)
    x_BT2, extra, measured = _score_given_start(cfg, params['objective'], x_BTD, batch, head_key)
  else:
    x_BT2 = _scores(cfg, params, features, batch, head_key)
  ends_B2 = jnp.stack([batch['starts_B'], batch['ends_B']], axis=1)
  log_p_B12 = jnp.take_along_axis(jax.nn.log_softmax(x_BT2, axis=1), ends_B2[:, None], axis=1)
  total, count = -jnp.sum(jnp.mean(log_p_B12, axis=(1, 2)) * weights_B), weights(cfg, batch)['nll']
  right_B = jnp.all(jnp.argmax(x_BT2, axis=1) == ends_B2, axis=1)
  metrics = {'nll': (total, count), 'accuracy': (jnp.sum(right_B * weights_B), count), **measured}
  return Output({'nll': 2 * total if cfg.sum_ends else total, **extra}, metrics, state, features=features)


def _score_given_start(cfg: Config, head: Params, x_BTD: Array, batch: Batch, key: Array | None) -> Any:
  """Return (logits of start, and of end given the true start (B, T, 2); XLNet's extra sums and metrics)."""
  mask_BT, weights_B = _answer_mask(batch), batch['row_weights_B']
  begins_BT = span_head.start_scores(head, x_BTD, mask_BT)
  ends_BT = span_head.end_scores(head, x_BTD, _gather(x_BTD, batch['starts_B'][:, None]), mask_BT, cfg.eps)[:, 0]
  odds_B = span_head.no_answer_logit(head, x_BTD, begins_BT, batch['null_B'], cfg.dropout, key)
  is_B = batch['starts_B'] == batch['null_B']
  entropy_B = jax.nn.softplus(jnp.where(is_B, -odds_B, odds_B))
  total, count = cfg.null_weight * jnp.sum(entropy_B * weights_B), jnp.sum(weights_B, dtype=jnp.float32)
  right = jnp.sum(((odds_B > 0) == is_B) * weights_B)
  x_BT2, measured = jnp.stack([begins_BT, ends_BT], axis=2), {'null': (total, count), 'null_accuracy': (right, count)}
  return x_BT2, {'null': total}, measured


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return the scores from which an answer is chosen.

  Returns:
    ({'scores_BT2': of start and end}, state), or for XLNet's head ({'begin_BK', 'end_BKE': best positions,
    'scores_BKE': log-probabilities of both, 'odds_B': log-odds of no answer}, state).
  """
  features = _features(cfg, model, model_cfg, params, batch, None)
  if cfg.head != 'xlnet':
    return {'scores_BT2': _scores(cfg, params, features, batch, None)}, state
  x_BTD = _read(cfg, params, features, batch)
  head, mask_BT, T = params['objective'], _answer_mask(batch), x_BTD.shape[1]
  begins_BT = span_head.start_scores(head, x_BTD, mask_BT)
  first_BK, begin_BK = jax.lax.top_k(jax.nn.log_softmax(begins_BT), min(cfg.begins, T))
  ends_BKT = jax.nn.log_softmax(span_head.end_scores(head, x_BTD, _gather(x_BTD, begin_BK), mask_BT, cfg.eps))
  last_BKE, end_BKE = jax.lax.top_k(ends_BKT, min(cfg.ends, T))
  odds_B = span_head.no_answer_logit(head, x_BTD, begins_BT, batch['null_B'], 0.0, None)
  scores_BKE = first_BK[..., None] + last_BKE
  return {'begin_BK': begin_BK, 'end_BKE': end_BKE, 'scores_BKE': scores_BKE, 'odds_B': odds_B}, state


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Return the metric's protocol: the windows of a passage."""
  del cfg
  return [f'{batches.examples:,} windows {data.batching.stride} tokens apart']


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch of windows."""
  leaf = lambda dtype, *sizes: jax.ShapeDtypeStruct((batch_size, *sizes), dtype)
  extra = {'passage_BT': leaf(jnp.bool_, length), 'null_B': leaf(jnp.int32)} if cfg.head == 'xlnet' else {}
  return {
    'tokens_BT': leaf(jnp.int32, length),
    'valid_BT': leaf(jnp.bool_, length),
    'types_BT': leaf(jnp.int32, length),
    'starts_B': leaf(jnp.int32),
    'ends_B': leaf(jnp.int32),
    'row_weights_B': leaf(jnp.float32),
    **extra,
  }
