"""Prediction of a text's last word: LAMBADA (Paperno et al. 2016) as in Radford et al. (2019, section 3.3).

Perplexity is that of whole words: the product of the likelihoods of a word's tokens. A word counts as predicted if each
of its tokens is the most probable one given those before it. A second accuracy excludes tokens that are stop words
(lmx/data/stop_words.py) from the word's first position. That is the paper's filter, whose words and details are not
published; a word that begins with such a token counts as wrong there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lmx.metrics import language
from lmx.metrics.metric import ACCURACY, Metric
from lmx.objectives import continuation, mean, row_objective
from lmx.ops import softmax_loss
from lmx.types import Array, Batch, Model, Output, Params, State

METRICS = (ACCURACY, Metric('filtered_accuracy', True, '.1%'), Metric('perplexity_of_last_word', False))
UNIT = 'words'  # unit of the loss's weight
ROWS = 'totals'
model_batch, weights = continuation.model_batch, row_objective.weights


@dataclasses.dataclass(frozen=True)
class Config(row_objective.Terms):
  """Only the options of `objectives.Config`."""


def loss(
  cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State, key: Array | None = None
) -> Output:
  """Return the negative log-likelihood of the last words in nats.

  Args:
    params: {'model': ...}.
    batch: tokens_BT, valid_BT, positions_BP, targets_BP, weights_BP, row_weights_B; stops_BW (optional).
    state: passed through; every row starts from a fresh state.
    key: PRNG key of dropout; None at evaluation, when accuracies are computed too.

  Returns:
    Output with sums {'nll'} and metrics {'nll', 'accuracy', 'filtered_accuracy' if there are stop words}.
  """
  features, all_features, flat, _ = continuation.features(model, model_cfg, params['model'], batch, key)
  total = jnp.sum(continuation.nll(model, model_cfg, params['model'], features, flat))
  count = weights(cfg, batch)['nll']
  metrics = {'nll': (total, count)}
  if key is None:
    logits_BPV = model.logits(model_cfg, params['model'], features)
    metrics['accuracy'] = (jnp.sum(_is_correct(logits_BPV, batch) * batch['row_weights_B']), count)
    if 'stops_BW' in batch:
      right_B = _is_correct(_exclude(logits_BPV, batch['stops_BW']), batch)
      metrics['filtered_accuracy'] = (jnp.sum(right_B * batch['row_weights_B']), count)
  return Output({'nll': total}, metrics, state, features=all_features)


def _is_correct(logits_BPV: Array, batch: Batch) -> Array:
  """Return True where every token of a row's last word is the most probable one, (B,)."""
  right_BP = softmax_loss.is_best(logits_BPV, batch['targets_BP'])
  return jnp.all((right_BP > 0) | (batch['weights_BP'] == 0), axis=1)


def _exclude(logits_BPV: Array, stops_BW: Array) -> Array:
  """Return the logits with some tokens excluded from the first position."""
  first_BV = logits_BPV[:, 0]
  first_BV = first_BV.at[jnp.arange(len(stops_BW))[:, None], stops_BW].set(-jnp.inf)
  return logits_BPV.at[:, 0].set(first_BV)


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return ({'logits_BPV': logits of the tokens of the last words}, state)."""
  del cfg
  features, *_ = continuation.features(model, model_cfg, params['model'], batch, None)
  return {'logits_BPV': model.logits(model_cfg, params['model'], features)}, state


def report(cfg: Config, totals: Mapping[str, tuple[float, float]], counts: Mapping[str, int]) -> dict[str, float]:
  """Return {'loss' in nats a word, 'perplexity_of_last_word', 'accuracy', and 'filtered_accuracy' if computed}."""
  del cfg, counts
  means = {name: mean(pair) for name, pair in totals.items()}
  return {'loss': means.pop('nll'), 'perplexity_of_last_word': language.perplexity(*totals['nll']), **means}


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Return the metric's protocol: the predicted word, and which words are skipped."""
  del cfg, batches
  words = ['the last word of a text, right if all of its pieces are']
  return words + (['filtered: without stop words as its first piece'] if data.batching.stop_words else [])


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch of texts."""
  del cfg
  return continuation.shapes(batch_size, length)
