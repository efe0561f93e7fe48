"""Bidirectional language modelling (Peters et al. 2018, arXiv 1802.05365, section 3.1).

sum_t log p(w_t | w_<t) + log p(w_t | w_>t), where the second term has its own stream in reverse order. Both are means
per word, and the loss is their sum. The released code uses half of it times the number of steps; the
experiments' optimizer settings compensate for that.

In training the loss is a sampled softmax over `samples` words and the target, if the vocabulary is larger. Its metrics
are 'sampled_nll_forward' and 'sampled_nll_backward'; they are not logarithms of a perplexity. Evaluation uses the full
softmax. The state of a row is carried to the next batch without a gradient, unless `reset_B` resets it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lmx import objectives
from lmx.errors import check_range
from lmx.layers import char_cnn
from lmx.metrics import language
from lmx.metrics.metric import Metric
from lmx.types import Array, Batch, Features, Model, Output, Params, State

METRICS = (
  Metric('perplexity_average', False),
  *(Metric(f'perplexity_{direction}', False, shown=False) for direction in ('forward', 'backward')),
)
ROWS = 'totals'
_WAYS = ('forward', 'backward')


@dataclasses.dataclass(frozen=True)
class Config(objectives.Config):
  """Options of the objective, in addition to those of `objectives.Config`.

  Attributes:
    samples: sampled words per update and direction, in addition to the targets; 0, or a vocabulary that is not larger,
      gives the full softmax.
    correct_target: correct the target's logit by its expected count too, as TensorFlow does (`elmo.sampled_loss`).
    stateful: carry the model's state from batch to batch.
  """

  samples: int = 8192  # released options: n_negative_samples_batch
  correct_target: bool = True
  stateful: bool = True

  def __post_init__(self) -> None:
    super().__post_init__()
    check_range('objective.samples', self.samples, 0)


def terms(cfg: Config) -> tuple[str, ...]:
  """Return ('forward', 'backward')."""
  del cfg
  return _WAYS


def weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """Return the number of words predicted in each direction."""
  del cfg
  count = jnp.sum(batch['weights_BT'], dtype=jnp.float32)  # a row's two streams have equal length
  return dict.fromkeys(_WAYS, count)


def loss(
  cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State, key: Array | None = None
) -> Output:
  """Return the negative log-likelihoods in nats.

  Args:
    params: {'model': ...}.
    batch: characters_BTC, targets_BT of the forward stream, backward_characters_BTC, backward_targets_BT of the
      backward one, each in its reading order, and weights_BT; reset_B (optional).
    state: the model's, of both directions.
    key: PRNG key of dropout and of the sampled words, None at evaluation.

  Returns:
    Output with sums {'forward', 'backward'} and metrics of these names; those of a sampled loss are
    'sampled_nll_forward' and 'sampled_nll_backward'.
  """
  keys = [None] * 3 if key is None else list(jax.random.split(key, 3))
  begin = objectives.begin(cfg.stateful, model, model_cfg, batch, state)
  features, end = model.apply(model_cfg, params['model'], batch, begin, keys[0])
  sampled = key is not None and _is_sampled(cfg, model_cfg)
  targets = (batch['targets_BT'], batch['backward_targets_BT'])
  count, sums, metrics = weights(cfg, batch), {}, {}
  halves = jnp.split(features.last_BTD, 2, axis=-1)
  for direction, x_BTP, targets_BT, k in zip(_WAYS, halves, targets, keys[1:], strict=True):
    one = Features(x_BTP)
    if sampled:
      nll_BT = model.sampled_nll(
        model_cfg, params['model'], one, targets_BT, k, cfg.samples, correct_target=cfg.correct_target
      )
      sums[direction] = jnp.sum(nll_BT * batch['weights_BT'], dtype=jnp.float32)
    else:
      sums[direction] = objectives.summed_nll(model, model_cfg, params['model'], one, targets_BT, batch['weights_BT'])
    metrics[f'sampled_nll_{direction}' if sampled else direction] = (sums[direction], count[direction])
  return Output(sums, metrics, end if cfg.stateful else state, features=features)


def read_rows(cfg: Config, model: Model, model_cfg: Any, batch: Batch, key: Array) -> dict[str, Array]:
  """Return the ids (R,) of the rows that the sampled loss reads of each table; {} where it is not sampled.

  Args:
    batch: as in `loss`.
    key: as in `loss`.
  """
  if not _is_sampled(cfg, model_cfg):
    return {}
  drawn = [model.draw(k, model_cfg.V, cfg.samples) for k in jax.random.split(key, 3)[1:]]
  ids_R = jnp.concatenate([*drawn, batch['targets_BT'].ravel(), batch['backward_targets_BT'].ravel()])
  return dict.fromkeys(model.ROW_TABLES, ids_R)


def _is_sampled(cfg: Config, model_cfg: Any) -> bool:
  return 0 < cfg.samples < int(model_cfg.V)


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return the logits of the next word in the forward direction, ({'logits_BTV': (B, T, V) float32}, state)."""
  begin = objectives.begin(cfg.stateful, model, model_cfg, batch, state)
  features, end = model.apply(model_cfg, params['model'], batch, begin)
  return {'logits_BTV': model.logits(model_cfg, params['model'], features)}, end


def report(cfg: Config, totals: Mapping[str, tuple[float, float]], counts: Mapping[str, int]) -> dict[str, float]:
  """Return {'loss', 'perplexity_forward', 'perplexity_backward', 'perplexity_average'}, sentence ends included.

  The average is exp of the mean of the two log-losses, as the released code prints it.
  """
  del cfg, counts
  forward, backward = totals['forward'], totals['backward']
  perplexities = {f'perplexity_{direction}': language.perplexity(*totals[direction]) for direction in _WAYS}
  average = language.perplexity(forward[0] + backward[0], forward[1] + backward[1])
  loss = objectives.mean(forward) + objectives.mean(backward)
  return {'loss': loss, **perplexities, 'perplexity_average': average}


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Return the metric's protocol: the counted tokens, and whether the state is carried over."""
  del batches
  words = ['full softmax over the vocabulary', 'ends of sentences counted']
  words += ['per subword'] * (data.tokenizer != 'words')
  return words + ['state carried over the whole split'] * cfg.stateful


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch of two streams, 50 characters a word as released."""
  del cfg
  leaf = lambda dtype, *sizes: jax.ShapeDtypeStruct((batch_size, length, *sizes), dtype)
  characters = leaf(jnp.int32, char_cnn.WORD_LENGTH)
  return {
    'characters_BTC': characters,
    'backward_characters_BTC': characters,
    'targets_BT': leaf(jnp.int32),
    'backward_targets_BT': leaf(jnp.int32),
    'weights_BT': leaf(jnp.float32),
  }
