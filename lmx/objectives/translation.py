"""Translation: log p(y_1 .. y_T | source) = sum_t log p(y_t | y_<t, source), with label smoothing in training.

Label smoothing (Szegedy et al. 2016, arXiv 1512.00567, section 7; Vaswani et al. 2017, section 5.4) hurts perplexity,
so the likelihood without it is reported, also in training. `validation` selects the validation loss for early stopping
(`train.patience`) and the best checkpoint; fairseq, with which many published results were obtained, uses the
smoothed one. Stateless: pairs are independent.

Hard attention samples source positions, through which no gradient flows. `reinforce` adds the gradient of the expected
likelihood (Xu et al. 2015, arXiv 1502.03044, section 4.1, by Williams' REINFORCE), with a moving average as the
baseline and the entropy of the positions: - lambda_r (R - b) sum_t log p(s_t) - lambda_e sum_t H_t. Deviation: the
reward R of a row is the mean of its tokens' log-probabilities, not their sum, so that one baseline suits all lengths.
The average is a statistic of the parameters over the global batch, hence ACROSS_ROWS.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lmx import objectives
from lmx.errors import InputError, check_choice, check_least, check_range
from lmx.layers import rnn_attention
from lmx.metrics import language, translation
from lmx.metrics.metric import Metric
from lmx.ops import softmax_loss
from lmx.types import Array, Batch, Features, Model, Output, Params, State

METRICS = (
  language.PERPLEXITY_PER_TOKEN,
  Metric('token_accuracy', True, '.1%'),
  Metric('smoothed_loss', False, shown=False),
  *translation.METRICS,
  Metric('exact_match', True, '.1%', shown=False),
)
EVALUATION, SAMPLES, ROWS = 'translation', 'translations', 'translation'
ACROSS_ROWS = True  # the baseline of hard attention: `loss` takes `axis`
FORMS = ('paper', 'released')
VALIDATION = ('nll', 'smoothed')


@dataclasses.dataclass(frozen=True)
class Config(objectives.Config):
  """Options of the objective, in addition to those of `objectives.Config`.

  Attributes:
    smoothing: probability that label smoothing takes from the label, 0.1 in Vaswani et al. 2017; 0 is none.
    smoothing_form: 'paper' spreads it over the whole vocabulary, 'released' (tensor2tensor) over the other tokens.
    validation: validation loss for early stopping and the best checkpoint: 'nll', without
      smoothing, or 'smoothed', the training loss (fairseq's --patience and checkpoint_best).
    reinforce: lambda_r, for models with hard attention; 0 disables REINFORCE.
    entropy: lambda_e.
    baseline_decay: decay of the moving average of the reward.
  """

  smoothing: float = 0.0
  smoothing_form: str = 'paper'
  validation: str = 'nll'
  reinforce: float = 0.0
  entropy: float = 0.0
  baseline_decay: float = 0.9  # arXiv 1502.03044, section 4.1

  def __post_init__(self) -> None:
    super().__post_init__()
    if not 0 <= self.smoothing < 1:
      raise InputError(f'objective.smoothing: got {self.smoothing}; expected at least 0 and below 1')
    check_choice('objective.smoothing_form', self.smoothing_form, FORMS)
    check_choice('objective.validation', self.validation, VALIDATION)
    if self.validation == 'smoothed' and not self.smoothing:
      raise InputError(
        'objective.validation: got "smoothed" with objective.smoothing=0; set objective.smoothing or the value "nll"'
      )
    check_least('objective', self, reinforce=0, entropy=0)
    check_range('objective.baseline_decay', self.baseline_decay, 0, 1)

  @property
  def is_hard(self) -> bool:
    """Return True if the loss has the terms of hard attention."""
    return self.reinforce > 0 or self.entropy > 0


def init(cfg: Config, model: Model, model_cfg: Any, key: Array) -> Params:
  """Initialise the baseline of hard attention, or return {}; InputError if the model does not read a source."""
  del key
  if model.READS != 'source':
    raise InputError(f'model.name: got {model.name}; expected an encoder-decoder, which objective "translation" needs')
  # The reward of uniform predictions.
  return {'baseline': jnp.full((), -math.log(model_cfg.V), jnp.float32)} if cfg.is_hard else {}


def terms(cfg: Config) -> tuple[str, ...]:
  """Return the loss term's name, by `validation`."""
  return (cfg.validation,)


def weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """Return {term: number of target tokens, end of sentence included}."""
  return {cfg.validation: jnp.sum(batch['weights_BT'], dtype=jnp.float32)}


def loss(
  cfg: Config,
  model: Model,
  model_cfg: Any,
  params: Params,
  batch: Batch,
  state: State,
  key: Array | None = None,
  *,
  axis: str | None = None,
) -> Output:
  """Return the cross-entropy in nats, smoothed in training (with a key), and always if `validation` is 'smoothed'.

  Args:
    params: {'model': ..., 'objective': from `init`}.
    batch: source_BS, source_valid_BS, tokens_BT, targets_BT, weights_BT, and the model's other inputs.
    state: ().
    key: PRNG key of dropout and hard attention, None at evaluation.
    axis: `pmap` axis over which the rows are sharded, None where they are not.

  Returns:
    Output with sums {term: the cost, with the terms of hard attention if enabled}, metrics {'nll': (sum
    without smoothing, tokens), 'accuracy': (correct predictions, tokens)}, 'smoothed' (the cost, tokens)
    if that is the term and 'entropy' (of the alignments, tokens) with hard attention, the state, and the baseline.
  """
  body = params['model']
  features, _ = model.apply(model_cfg, body, batch, model.init_state(model_cfg, len(batch['tokens_BT'])), key)
  cost, nll_BT, right_BT = _scores(cfg, model, model_cfg, body, features, batch, key is not None)
  total = lambda x_BT: jnp.sum(x_BT * batch['weights_BT'], dtype=jnp.float32)
  ((term, tokens),) = weights(cfg, batch).items()
  metrics = {term: (cost, tokens), 'nll': (total(nll_BT), tokens), 'accuracy': (total(right_BT), tokens)}
  if not cfg.is_hard:
    return Output({term: cost}, metrics, state, features=features)
  drawn_BT, entropy_BT, baseline = _hard_attention_terms(
    cfg, features, nll_BT, batch['weights_BT'], params['objective'], axis
  )
  metrics['entropy'] = (total(entropy_BT), tokens)
  statistics = None if key is None else {'objective': {'baseline': baseline}}
  return Output({term: cost + total(drawn_BT)}, metrics, state, statistics, features)


def _hard_attention_terms(
  cfg: Config, features: Features, nll_BT: Array, weights_BT: Array, params: Params, axis: str | None
) -> tuple[Array, Array, Array]:
  """Return (terms of hard attention (B, T), entropy (B, T), the baseline after the batch)."""
  if features.choice_BT is None or features.alignment_BTS is None:
    raise InputError(
      'objective.reinforce and objective.entropy need hard attention, which this model lacks; set '
      'model.reading=hard (bahdanau, luong), or both to 0'
    )
  count_B = jnp.sum(weights_BT, axis=1)
  reward_B = jax.lax.stop_gradient(-jnp.sum(nll_BT * weights_BT, axis=1) / jnp.maximum(count_B, 1.0))
  sums = jnp.stack([jnp.sum(reward_B), jnp.sum(count_B > 0, dtype=jnp.float32)])
  rewards, rows = sums if axis is None else jax.lax.psum(sums, axis)
  old = jax.lax.stop_gradient(params['baseline'])
  new = jnp.where(rows > 0, cfg.baseline_decay * old + (1 - cfg.baseline_decay) * rewards / jnp.maximum(rows, 1.0), old)
  entropy_BT = rnn_attention.entropy(features.alignment_BTS)
  gain_BT = cfg.reinforce * (reward_B - old)[:, None] * features.choice_BT
  return -gain_BT - cfg.entropy * entropy_BT, entropy_BT, new


def smoothed_cross_entropy(
  logits_BTV: Array, targets_BT: Array, eps: float, form: str = 'paper', V: int = 0
) -> tuple[Array, Array]:
  """Return the cross-entropy with smoothed labels (Szegedy et al. 2016, arXiv 1512.00567, section 7), and without.

  No log-probabilities are formed: with logits z and their log-sum-exp L, the label costs L - z_label, and all tokens
  together V L - sum(z).

  Args:
    logits_BTV: logits, float32.
    targets_BT: labels.
    eps: probability taken from the label.
    form: 'paper' spreads it over all V tokens, the label included; 'released' (tensor2tensor) over the other V - 1.
    V: number of tokens; 0: that of the logits. Logits from V on are padding (lmx/layout.py).

  Returns:
    (smoothed cross-entropy, negative log-likelihood), each (B, T) float32 in nats.
  """
  rows, V = logits_BTV.shape[-1], V or logits_BTV.shape[-1]
  norm_BT = jax.nn.logsumexp(logits_BTV, axis=-1)
  nll_BT = norm_BT - softmax_loss.target_logits(logits_BTV, targets_BT)
  counted_BTV = logits_BTV if rows == V else jnp.where(jnp.arange(rows) < V, logits_BTV, 0.0)
  every_BT = norm_BT - jnp.sum(counted_BTV, axis=-1) / V  # mean over the vocabulary
  if form == 'released':
    return (1 - eps) * nll_BT + eps / (V - 1) * (V * every_BT - nll_BT), nll_BT
  return (1 - eps) * nll_BT + eps * every_BT, nll_BT


def _scores(
  cfg: Config, model: Model, model_cfg: Any, params: Params, features: Features, batch: Batch, train: bool
) -> tuple[Array, Array, Array]:
  """Return (sum of the costs; negative log-likelihood, True where the prediction is correct, both (B, T) float32)."""
  smoothing = cfg.smoothing if train or cfg.validation == 'smoothed' else 0.0

  def chunk_loss(x_BMD: Array, targets_BM: Array) -> tuple[Array, tuple[Array, Array]]:
    logits_BMV = model.logits(model_cfg, params, Features(x_BMD))
    cost_BM, nll_BM = smoothed_cross_entropy(logits_BMV, targets_BM, smoothing, cfg.smoothing_form, model_cfg.V)
    return cost_BM, (nll_BM, softmax_loss.is_best(logits_BMV, targets_BM))

  cost, (nll_BT, right_BT) = softmax_loss.weighted_sum(
    chunk_loss, features.last_BTD, batch['targets_BT'], batch['weights_BT']
  )
  return cost, nll_BT, right_BT


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return the logits of the next token under teacher forcing: ({'logits_BTV': (B, T, V) float32}, state)."""
  begin = model.init_state(model_cfg, len(batch['tokens_BT']))
  features, _ = model.apply(model_cfg, params['model'], batch, begin)
  return {'logits_BTV': model.logits(model_cfg, params['model'], features)}, state


def report(cfg: Config, totals: Mapping[str, tuple[float, float]], counts: Mapping[str, int]) -> dict[str, float]:
  """Return the loss (nats a target token, without smoothing), perplexity and accuracy per target token, and
  'smoothed_loss' if `validation` selects it."""
  del counts  # the split's counts cover both sides
  smoothed = {'smoothed_loss': objectives.mean(totals['smoothed'])} if cfg.validation == 'smoothed' else {}
  return language.report(*totals['nll'], {}) | {'token_accuracy': objectives.mean(totals['accuracy'])} | smoothed


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Return the metric's protocol: teacher forcing."""
  del cfg, data, batches
  return ['each token of the reference predicted from those before it, the end of the sentence among them']


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return shapes of source_BS, source_valid_BS, tokens_BT, targets_BT, weights_BT, valid_BT; S = T."""
  del cfg
  types = {
    'source_BS': jnp.int32,
    'source_valid_BS': jnp.bool_,
    'tokens_BT': jnp.int32,
    'targets_BT': jnp.int32,
    'weights_BT': jnp.float32,
    'valid_BT': jnp.bool_,
  }
  return {name: jax.ShapeDtypeStruct((batch_size, length), dtype) for name, dtype in types.items()}
