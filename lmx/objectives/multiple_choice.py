"""Multiple choice with any model: each choice is encoded with its context and scored separately.

Softmax over the logits of a row's choices, each the product of its vector with a learned one (Devlin et al.
2019, section 4.4; Radford et al. 2018, section 3.3, with the auxiliary language model on every sequence). See
lmx/objectives/rows.py for the encoding. A bias of the last layer adds a constant to all choices and gets no
gradient.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_least
from lmx.objectives import rows
from lmx.types import Array, Batch, Model, Output, Params, State

SAMPLES = 'none'
UNIT = 'rows'  # unit of the loss's weight
ACROSS_ROWS = True  # batch normalisation: `loss` takes `axis`
model_batch = rows.model_batch


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
  """Return the config with the data set's number of choices; raise InputError if it has none, or another number."""
  choices = manifest.get('choices', 0)
  if not choices:
    raise InputError(
      f'data set {manifest["dataset"]["name"]} has no choices; objective "multiple_choice" needs a set '
      'such as swag, race or story_cloze'
    )
  if cfg.choices not in (0, choices):
    raise InputError(f'objective.choices: got {cfg.choices}, but the data set has {choices}')
  return dataclasses.replace(cfg, choices=choices)


def init(cfg: Config, model: Model, model_cfg: Any, key: Array) -> Params:
  """Initialise the head, see `rows.init`."""
  return rows.init(cfg, 1, model, model_cfg, key)


def terms(cfg: Config) -> tuple[str, ...]:
  """Return ('nll',), and 'lm' if the auxiliary loss has a weight."""
  return rows.terms(cfg, 'nll')


def weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """Return {'nll': number of rows}, and 'lm': number of sequences."""
  return rows.weights(cfg, 'nll', batch)


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
  (total, right_B), count = rows.label_nll(outputs.scores_BGC[..., 0], batch), weights(cfg, batch)['nll']
  extra, extra_metrics = rows.auxiliary(cfg, outputs, batch)
  metrics = {'nll': (total, count), 'accuracy': (jnp.sum(right_B), count), **extra_metrics}
  return Output({'nll': total, **extra}, metrics, state, outputs.statistics, outputs.features)


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return ({'logits_BC': logits of the choices, float32}, state)."""
  outputs = rows.read(cfg, model, model_cfg, params, batch, None, summed=False)
  return {'logits_BC': outputs.scores_BGC[..., 0]}, state


def headline(cfg: Config) -> str:
  """Return the headline metric."""
  del cfg
  return 'accuracy'


def report(cfg: Config, totals: Mapping[str, tuple[float, float]], counts: Any) -> dict[str, float]:
  """Return {'loss', 'accuracy', 'error_percent'}, and with an auxiliary loss 'lm_nll'."""
  del counts
  means = {name: total / weight for name, (total, weight) in totals.items() if weight}
  loss = means.pop('nll', float('nan')) + means.pop('lm', 0.0)
  return {'loss': loss, 'error_percent': 100 * (1 - means.get('accuracy', float('nan'))), **means}


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Return the metric's protocol: how rows are read, and their number."""
  del batches
  return [f'{cfg.choices} choices', *rows.protocol(cfg, data)]


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
