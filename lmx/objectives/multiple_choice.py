"""Multiple choice with any model: each choice is encoded with its context and scored separately.

Softmax over the logits of a row's choices, each the product of its vector with a learned one (Devlin et al.
2019, section 4.4; Radford et al. 2018, section 3.3, with the auxiliary language model on every sequence). See
lmx/objectives/rows.py for the encoding. A bias of the last layer adds a constant to all choices and gets no
gradient.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_least
from lmx.metrics.metric import ACCURACY, ERROR_PERCENT, Metric
from lmx.objectives import row_objective, rows
from lmx.types import Array, Batch, Model, Output, Params, State

METRICS = (ACCURACY, ERROR_PERCENT, Metric('lm_nll', False, shown=False))
EVALUATION = PREDICTION = ROWS = 'classification'
UNIT = 'rows'  # unit of the loss's weight
ACROSS_ROWS = True  # batch normalisation: `loss` takes `axis`
model_batch, init = rows.model_batch, rows.init
terms, weights, report = row_objective.terms, row_objective.weights, row_objective.error_report


@dataclasses.dataclass(frozen=True)
class Config(rows.Config):
  """Options of the objective, in addition to those of `rows.Config`.

  Attributes:
    choices: number of choices of a row; 0 takes it from the data set.
    one_mask: the head's dropout has one mask for all choices of a row (openai/finetune-transformer-lm, train.py).
  """

  choices: int = 0
  one_mask: bool = False

  def __post_init__(self) -> None:
    super().__post_init__()
    check_least('objective', self, choices=0)


def resolve(cfg: Config, manifest: Any) -> Config:
  """Set the data set's number of choices in the config; raise InputError if it has none, or if they differ."""
  choices = manifest.get('choices', 0)
  if not choices:
    raise InputError(
      f'data set {manifest["dataset"]["name"]} has no choices; objective "multiple_choice" needs a set '
      'such as swag, race or story_cloze'
    )
  if cfg.choices not in (0, choices):
    raise InputError(f'objective.choices: got {cfg.choices}, but the data set has {choices}')
  return dataclasses.replace(cfg, choices=choices)


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
  """Return the negative log-likelihood of the right choices in nats.

  Args:
    params: {'model': ..., 'objective': the head}.
    batch: that of `rows.read` with an axis G of choices, and labels_B, the right ones.
    state: passed through; every row starts from a fresh state.
    key: PRNG key of dropout; None at evaluation.
    axis: see `lmx.layers.normalization.batch_norm`.

  Returns:
    Output with sums {'nll'} and, with `lm_weight`, 'lm'; metrics of the same and 'accuracy'.
  """
  outputs = rows.read(cfg, model, model_cfg, params, batch, key, axis, summed=False, one_mask=cfg.one_mask)
  (total, right_B), count = row_objective.label_nll(outputs.scores_BGC[..., 0], batch), weights(cfg, batch)['nll']
  return row_objective.output(cfg, outputs, batch, state, total, {'accuracy': (jnp.sum(right_B), count)})


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return ({'logits_BC': logits of the choices, float32}, state)."""
  outputs = rows.read(cfg, model, model_cfg, params, batch, None, summed=False)
  return {'logits_BC': outputs.scores_BGC[..., 0]}, state


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Return the metric's protocol: how rows are read, and their number."""
  return [f'{cfg.choices} choices', *row_objective.protocol(cfg, data, batches)]


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch of rows with choices."""
  G = cfg.choices or 2
  leaf = lambda dtype, *sizes: jax.ShapeDtypeStruct((batch_size, *sizes), dtype)
  return {
    'tokens_BGT': leaf(jnp.int32, G, length),
    'valid_BGT': leaf(jnp.bool_, G, length),
    'row_weights_B': leaf(jnp.float32),
    'labels_B': leaf(jnp.int32),
  }
