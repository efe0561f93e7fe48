"""Permutation language modelling (Yang et al. 2019, arXiv 1906.08237, equations 3 to 5).

Tokens at P positions of a row are predicted in an order drawn at random, each from those before it in the order and
from those that all may see. The model's memory of the row's earlier segments is carried on, without a gradient.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from lmx import objectives
from lmx.errors import InputError
from lmx.metrics import language
from lmx.types import Array, Batch, Features, Output, Params, State

SAMPLES = 'gaps'


@dataclasses.dataclass(frozen=True)
class Config:
  """Options of the objective.

  Attributes:
    stateful: carry the memory from batch to batch.
  """

  stateful: bool = True


def init(cfg: Config, model, model_cfg, key: Array) -> Params:
  """No head of its own: the output layer belongs to the model."""
  del cfg, model, model_cfg, key
  return {}


def terms(cfg: Config) -> tuple[str, ...]:
  """One term: ('plm',)."""
  del cfg
  return ('plm',)


def weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """{'plm': number of tokens predicted}."""
  del cfg
  return {'plm': jnp.sum(batch['weights_BP'], dtype=jnp.float32)}


def _features(cfg: Config, model, model_cfg, params, batch, state, key=None) -> tuple[Features, State]:
  """Features of the predicted positions alone, and the state to carry on."""
  begin = objectives.begin(cfg.stateful, model, model_cfg, batch, state)
  features, end = model.apply(model_cfg, params['model'], batch, begin, key)
  if features.query_BPD is None:
    raise InputError('permutation_lm needs a model with a query stream, such as xlnet, and data.batching=permutations')
  return features._replace(last_BTD=features.query_BPD), end if cfg.stateful else state


def loss(
  cfg: Config, model, model_cfg, params: Params, batch: Batch, state: State, key: Array | None = None
) -> Output:
  """Negative log-likelihood of the predicted tokens in nats.

  Args:
    params: {'model': ...}.
    batch: tokens_BT, order_BT, positions_BP, targets_BP, weights_BP; reset_B (optional) and whatever the model reads.
    state: the model's memory.
    key: randomness of dropout; None at evaluation, when the accuracy is measured as well.

  Returns:
    Output with sums {'plm'}, metrics {'plm', and at evaluation 'plm_accuracy'}, and the memory after the batch.
  """
  features, end = _features(cfg, model, model_cfg, params, batch, state, key)
  count = weights(cfg, batch)['plm']
  total, right = objectives.predicted(model, model_cfg, params['model'], features, batch, measure=key is None)
  accuracy = {} if right is None else {'plm_accuracy': (right, count)}
  return Output({'plm': total}, {'plm': (total, count)} | accuracy, end)


def predict(cfg: Config, model, model_cfg, params: Params, batch: Batch, state: State):
  """({'logits_BPV': scores of the predicted tokens}, state)."""
  features, end = _features(cfg, model, model_cfg, params, batch, state)
  return {'logits_BPV': model.logits(model_cfg, params['model'], features)}, end


def headline(cfg: Config) -> str:
  """'predicted_perplexity', which is per predicted token."""
  del cfg
  return 'predicted_perplexity'


def report(cfg: Config, totals: Mapping[str, tuple[float, float]], counts: Mapping[str, int]) -> dict[str, float]:
  """The loss, the perplexity of the predicted tokens, and how many are right."""
  del cfg, counts
  total, weight = totals['plm']
  found = {'loss': total / weight if weight else math.nan, 'predicted_perplexity': language.perplexity(total, weight)}
  if 'plm_accuracy' in totals:
    right, weight = totals['plm_accuracy']
    found['plm_accuracy'] = right / weight if weight else math.nan
  return found


def protocol(cfg: Config, data, batches) -> list[str]:
  """What is predicted, and whether the memory goes on."""
  del data
  words = [f'{batches.predictions} tokens of a row predicted in a random order']
  return words + (['memory carried over the whole split'] if batches.stateful and cfg.stateful else [])


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """The keys of a batch with one token in six predicted."""
  del cfg
  lengths = {'T': (length,), 'P': (max(1, length // 6),)}
  types = {
    'tokens_BT': jnp.int32, 'types_BT': jnp.int32, 'order_BT': jnp.int32, 'positions_BP': jnp.int32,
    'targets_BP': jnp.int32, 'weights_BP': jnp.float32,
  }  # fmt: skip
  return {name: jax.ShapeDtypeStruct((batch_size, *lengths[name[-1]]), dtype) for name, dtype in types.items()}
