"""Causal language modelling: log p(w_1 .. w_T) = sum_t log p(w_t | w_<t).

Stateful (truncated back-propagation through time, Mikolov et al. 2010): the state of a row is carried to the next
batch, without a gradient, unless `reset_B` resets it. Stateless: every batch starts from a fresh state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lmx import objectives
from lmx.metrics import language
from lmx.types import Array, Batch, Features, Model, Output, Params, State

METRICS = language.METRICS
EVALUATION, SAMPLES, ROWS = 'language_model', 'text', 'language_model'


@dataclasses.dataclass(frozen=True)
class Config(objectives.Config):
  """Options of the objective, in addition to those of `objectives.Config`.

  Attributes:
    stateful: carry the model's state (LSTM carry, segment memory) from batch to batch.
  """

  stateful: bool = True


def weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """Return {'nll': number of tokens predicted}."""
  del cfg
  return {'nll': jnp.sum(batch['weights_BT'], dtype=jnp.float32)}


def loss(
  cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State, key: Array | None = None
) -> Output:
  """Return the negative log-likelihood in nats.

  Args:
    params: {'model': ...}.
    batch: tokens_BT, targets_BT, weights_BT; reset_B (optional), and the model's other inputs.
    state: the model's state, initially `model.init_state(...)`.
    key: PRNG key of dropout, None at evaluation.

  Returns:
    Output with sums {'nll'}, metrics {'nll': (sum, tokens)} and the state after the batch.
  """
  begin = objectives.begin(cfg.stateful, model, model_cfg, batch, state)
  features, end = model.apply(model_cfg, params['model'], batch, begin, key)
  total = objectives.summed_nll(model, model_cfg, params['model'], features, batch['targets_BT'], batch['weights_BT'])
  metrics = {'nll': (total, weights(cfg, batch)['nll'])}
  return Output({'nll': total}, metrics, end if cfg.stateful else state, features=features)


def score(
  cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State
) -> tuple[Array, Features, State]:
  """Evaluate: negative log-likelihood of each target in nats, (B, T) float32, features, state after the batch."""
  begin = objectives.begin(cfg.stateful, model, model_cfg, batch, state)
  features, end = model.apply(model_cfg, params['model'], batch, begin)
  nll_BT = model.nll(model_cfg, params['model'], features, batch['targets_BT'])
  return nll_BT, features, end if cfg.stateful else state


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return the logits of the next token: ({'logits_BTV': (B, T, V) float32}, state)."""
  begin = objectives.begin(cfg.stateful, model, model_cfg, batch, state)
  features, end = model.apply(model_cfg, params['model'], batch, begin)
  return {'logits_BTV': model.logits(model_cfg, params['model'], features)}, end


def headline(cfg: Config, metrics: Mapping[str, float]) -> str:
  """Return the metric that is comparable between tokenizers, see `language.headline`."""
  del cfg
  return language.headline(metrics)


def captions(cfg: Config, metrics: Mapping[str, float], labels: Sequence[str]) -> dict[str, str]:
  """Return '' for an overflowing word perplexity, as byte-level models have early in training."""
  del cfg, labels
  return {'perplexity_per_word': ''} if language.is_astronomical(metrics) else {}


def report(cfg: Config, totals: Mapping[str, tuple[float, float]], counts: Mapping[str, int]) -> dict[str, float]:
  """Return perplexity per token and per word and bits per character and byte, with the split's own counts."""
  del cfg
  return language.report(*totals['nll'], counts)


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Return the metric's protocol: whether the state is carried over, and the overlap of windows."""
  words = []
  if batches.stateful and cfg.stateful:
    words.append('state carried over the whole split')
  stride = getattr(data.batching, 'stride', 0)
  if stride == 1:
    words.append('a window ending at every token, of which the last position is predicted (of the first window all)')
  elif stride:
    words.append(f'a window every {stride} tokens, each token predicted once')
  if not getattr(data.batching, 'ends', True):
    words.append('ends of documents not predicted')
  if data.detokenize:
    words.append('detokenised, counted by the units of the original')
  return words


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of tokens_BT, targets_BT, weights_BT."""
  del cfg
  types = {'tokens_BT': jnp.int32, 'targets_BT': jnp.int32, 'weights_BT': jnp.float32}
  return {name: jax.ShapeDtypeStruct((batch_size, length), dtype) for name, dtype in types.items()}
