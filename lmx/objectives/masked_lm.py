"""Masked language modelling with next sentence prediction (Devlin et al. 2019, arXiv 1810.04805, section 3.1).

The loss is the mean negative log-likelihood of the masked tokens plus that of the next-sentence label (appendix A.2:
"the training loss is the sum of the mean masked LM likelihood and the mean next sentence prediction likelihood").
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
  Metric('masked_perplexity', False),
  Metric('mlm_accuracy', True, '.1%'),
  next_sentence.ACCURACY,
  *(Metric(f'{term}_loss', False, shown=False) for term in ('mlm', 'nsp')),
)
SAMPLES, ROWS = 'gaps', 'totals'


@dataclasses.dataclass(frozen=True)
class Config(objectives.Config):
  """Options of the objective, in addition to those of `objectives.Config`.

  Attributes:
    next_sentence: predict whether segment B follows segment A; otherwise the term and its head are omitted.
    init_std: standard deviation of the next-sentence head's kernel.
  """

  next_sentence: bool = True
  init_std: float = 0.02  # the released configuration's initializer_range


def init(cfg: Config, model: Model, model_cfg: Any, key: Array) -> Params:
  """Initialise the next-sentence head: {'nsp': {'kernel' (D, 2), 'bias' (2,)}}, or {}."""
  del model
  if not cfg.next_sentence:
    return {}
  return {'nsp': next_sentence.init(model_cfg.D, cfg.init_std, key)}


def terms(cfg: Config) -> tuple[str, ...]:
  """Return ('mlm', 'nsp'), or ('mlm',)."""
  return ('mlm', 'nsp') if cfg.next_sentence else ('mlm',)


def weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """Return {'mlm': masked tokens, 'nsp': rows}."""
  totals = {'mlm': jnp.sum(batch['weights_BP'], dtype=jnp.float32)}
  if cfg.next_sentence:
    totals['nsp'] = next_sentence.weight(batch)
  return totals


def _gather_masked(features: Features, batch: Batch) -> Features:
  """Return the features of the masked positions only, (B, P, D)."""
  last_BPD = jnp.take_along_axis(features.last_BTD, batch['positions_BP'][..., None], axis=1)
  return features._replace(last_BTD=last_BPD)


def _next_logits(model_cfg: Any, params: Params, features: Features) -> Array:
  if features.pooled_BD is None or getattr(model_cfg, 'causal', False):
    what = (
      'a model without a pooler' if features.pooled_BD is None else 'a causal model, whose first token sees no other'
    )
    raise InputError(f'objective.next_sentence: got true with {what}; set objective.next_sentence=false')
  return next_sentence.logits(params['objective']['nsp'], features.pooled_BD)


def loss(
  cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State, key: Array | None = None
) -> Output:
  """Return the masked LM and next sentence losses in nats.

  Args:
    params: {'model': ..., 'objective': {'nsp': ...}}.
    batch: tokens_BT with masks (none from left to right), positions_BP, targets_BP, weights_BP, next_B, row_weights_B,
      other inputs of the model.
    state: passed through.
    key: PRNG key of dropout; None at evaluation, when the two accuracies are computed too.

  Returns:
    Output with sums {'mlm', 'nsp'} and metrics {'mlm', 'nsp', 'mlm_accuracy', 'nsp_accuracy'}.
  """
  features, state = model.apply(model_cfg, params['model'], batch, state, key)
  masked = _gather_masked(features, batch)
  count = weights(cfg, batch)
  total, right = objectives.prediction_nll(model, model_cfg, params['model'], masked, batch, measure=key is None)
  sums, metrics = {'mlm': total}, {'mlm': (total, count['mlm'])}
  if right is not None:
    metrics['mlm_accuracy'] = (right, count['mlm'])
  if cfg.next_sentence:
    sums['nsp'], more = next_sentence.loss(_next_logits(model_cfg, params, features), batch, measure=key is None)
    metrics |= more
  return Output(sums, metrics, state, features=features)


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return ({'logits_BPV': logits of the masked tokens, 'next_logits_B2'}, state)."""
  features, state = model.apply(model_cfg, params['model'], batch, state)
  predictions = {'logits_BPV': model.logits(model_cfg, params['model'], _gather_masked(features, batch))}
  if cfg.next_sentence:
    predictions['next_logits_B2'] = _next_logits(model_cfg, params, features)
  return predictions, state


def report(cfg: Config, totals: Mapping[str, tuple[float, float]], counts: Mapping[str, int]) -> dict[str, float]:
  """Return the loss, the perplexity of the masked tokens, and the losses and accuracies of both terms."""
  del counts
  mean = {name: objectives.mean(pair) for name, pair in totals.items()}
  losses_and_accuracies = {name if name.endswith('accuracy') else f'{name}_loss': value for name, value in mean.items()}
  loss = sum(mean[term] for term in terms(cfg))
  return {'loss': loss, 'masked_perplexity': language.perplexity(*totals['mlm']), **losses_and_accuracies}


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Return the metric's protocol: the share of masked tokens."""
  del cfg, batches
  if data.batching.masking == 'left_to_right':
    return ['every token predicted from those before it']
  return [f'{data.batching.mask_prob:.0%} of the tokens masked, one mask an example']


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch of sentence pairs, with 15% of the positions masked (section 3.1)."""
  del cfg
  sizes = {'T': (length,), 'P': (max(1, round(0.15 * length)),), 'B': ()}
  types = {
    'tokens_BT': jnp.int32,
    'types_BT': jnp.int32,
    'valid_BT': jnp.bool_,
    'positions_BP': jnp.int32,
    'targets_BP': jnp.int32,
    'weights_BP': jnp.float32,
    **next_sentence.SHAPES,
  }
  return {name: jax.ShapeDtypeStruct((batch_size, *sizes[name[-1]]), dtype) for name, dtype in types.items()}
