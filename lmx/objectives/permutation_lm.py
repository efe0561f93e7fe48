"""Permutation language modelling (Yang et al. 2019, arXiv 1906.08237, equations 3 to 5).

Tokens at P positions of a row are predicted in a random factorisation order, each from those before it in the order and
from those visible to all. The model's memory of the row's earlier segments is carried over, without a gradient.

`next_sentence` adds BERT's task (table 6, row 8: "+ next-sent pred"). The release has no code for it. Here the logits
come from the content stream's state at CLS, the last token of a row, through a tanh layer, as in fine-tuning.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lmx import objectives
from lmx.errors import InputError
from lmx.metrics import language
from lmx.metrics.metric import Metric
from lmx.objectives import next_sentence
from lmx.types import Array, Batch, Features, Model, Output, Params, State

METRICS = (
  Metric('predicted_perplexity', False),
  Metric('plm_accuracy', True, '.1%', shown=False),
  next_sentence.ACCURACY,
  *(Metric(f'{term}_loss', False, shown=False) for term in ('plm', 'nsp')),
)
SAMPLES, ROWS = 'gaps', 'totals'


@dataclasses.dataclass(frozen=True)
class Config(objectives.Config):
  """Options of the objective, in addition to those of `objectives.Config`.

  Attributes:
    stateful: carry the memory from batch to batch.
    next_sentence: also predict whether segment B follows segment A.
  """

  stateful: bool = True
  next_sentence: bool = False


def init(cfg: Config, model: Model, model_cfg: Any, key: Array) -> Params:
  """Return {}: the output layer is the model's. With `next_sentence` 'summary' {'kernel' (D, D), 'bias'} and 'nsp'."""
  del model
  if not cfg.next_sentence:
    return {}
  D, std, (summary_key, head_key) = model_cfg.D, model_cfg.init_std, jax.random.split(key)
  kernel = std * jax.random.normal(summary_key, (D, D), jnp.float32)
  summary = {'kernel': kernel, 'bias': jnp.zeros(D, jnp.float32)}
  return {'summary': summary, 'nsp': next_sentence.init(D, std, head_key)}


def terms(cfg: Config) -> tuple[str, ...]:
  """Return ('plm',), or ('plm', 'nsp')."""
  return ('plm', 'nsp') if cfg.next_sentence else ('plm',)


def weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """Return {'plm': number of tokens predicted, 'nsp': rows}."""
  totals = {'plm': jnp.sum(batch['weights_BP'], dtype=jnp.float32)}
  return totals | ({'nsp': next_sentence.weight(batch)} if cfg.next_sentence else {})


def _features(
  cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State, key: Array | None = None
) -> tuple[Features, Features, State]:
  """Return the features of the predicted positions, those of all positions, and the next state."""
  begin = objectives.begin(cfg.stateful, model, model_cfg, batch, state)
  features, end = model.apply(model_cfg, params['model'], batch, begin, key)
  if features.query_BPD is None:
    raise InputError('permutation_lm needs a model with a query stream, such as xlnet, and data.batching=permutations')
  return features._replace(last_BTD=features.query_BPD), features, end if cfg.stateful else state


def _next_logits(params: Params, features: Features) -> Array:
  layer, x_BD = params['objective']['summary'], features.last_BTD[:, -1]  # the content stream at CLS
  return next_sentence.logits(
    params['objective']['nsp'], jnp.tanh(x_BD.astype(jnp.float32) @ layer['kernel'] + layer['bias'])
  )


def loss(
  cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State, key: Array | None = None
) -> Output:
  """Return the negative log-likelihood of the predicted tokens in nats.

  Args:
    params: {'model': ..., 'objective': from `init`}.
    batch: tokens_BT, order_BT, positions_BP, targets_BP, weights_BP; with `next_sentence` next_B and row_weights_B;
      reset_B (optional), and the model's other inputs.
    state: the model's memory.
    key: PRNG key of dropout; None at evaluation, when the accuracy is computed too.

  Returns:
    Output with sums of the terms, metrics of the same names, at evaluation 'plm_accuracy' and 'nsp_accuracy', and the
    memory after the batch.
  """
  features, all_features, end = _features(cfg, model, model_cfg, params, batch, state, key)
  count = weights(cfg, batch)['plm']
  total, right = objectives.prediction_nll(model, model_cfg, params['model'], features, batch, measure=key is None)
  sums, metrics = {'plm': total}, {'plm': (total, count)}
  if right is not None:
    metrics['plm_accuracy'] = (right, count)
  if cfg.next_sentence:
    sums['nsp'], more = next_sentence.loss(_next_logits(params, all_features), batch, measure=key is None)
    metrics |= more
  return Output(sums, metrics, end, features=all_features)


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return ({'logits_BPV': logits of the predicted tokens, 'next_logits_B2'}, state)."""
  features, all_features, end = _features(cfg, model, model_cfg, params, batch, state)
  predictions = {'logits_BPV': model.logits(model_cfg, params['model'], features)}
  return predictions | ({'next_logits_B2': _next_logits(params, all_features)} if cfg.next_sentence else {}), end


def report(cfg: Config, totals: Mapping[str, tuple[float, float]], counts: Mapping[str, int]) -> dict[str, float]:
  """Return the loss, the perplexity of the predicted tokens, and the accuracies of tokens and rows."""
  del counts
  mean = {name: objectives.mean(pair) for name, pair in totals.items()}
  metrics = {'loss': sum(mean[term] for term in terms(cfg))}
  metrics['predicted_perplexity'] = language.perplexity(*totals['plm'])
  metrics |= {name: value for name, value in mean.items() if name.endswith('accuracy')}
  return metrics | ({'plm_loss': mean['plm'], 'nsp_loss': mean['nsp']} if cfg.next_sentence else {})


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Return the metric's protocol: the number of predicted tokens, and whether the memory is carried over."""
  del data
  words = [f'{batches.predictions} tokens of a row predicted in a random order']
  return words + (['memory carried over the whole split'] if batches.stateful and cfg.stateful else [])


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch with one token in six predicted."""
  lengths = {'T': (length,), 'P': (max(1, length // 6),), 'B': ()}
  types = {
    'tokens_BT': jnp.int32,
    'types_BT': jnp.int32,
    'order_BT': jnp.int32,
    'positions_BP': jnp.int32,
    'targets_BP': jnp.int32,
    'weights_BP': jnp.float32,
    **(next_sentence.SHAPES if cfg.next_sentence else {}),
  }
  return {name: jax.ShapeDtypeStruct((batch_size, *lengths[name[-1]]), dtype) for name, dtype in types.items()}
