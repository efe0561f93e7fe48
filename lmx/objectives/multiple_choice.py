"""Multiple choice on top of any model: each choice is read with its context and scored by itself.

A softmax over the scores of a row's choices, each the product of its vector with one that is learned (Devlin et al.
2019, section 4.4; Radford et al. 2018, section 3.3, with the auxiliary language model on every sequence). See
lmx/objectives/rows.py for how a sequence is read; a bias of the last layer adds the same to all choices and learns
nothing.
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
UNIT = 'rows'  # what the weight of the loss counts
ACROSS_ROWS = True  # batch normalisation: `loss` takes `axis`
model_batch = rows.model_batch


@dataclasses.dataclass(frozen=True)
class Config(rows.Config):
  """Options of the objective, beside those of `rows.Config`.

  Attributes:
    choices: of a row; 0 takes them from the data set.
    one_mask: the head's dropout has one mask for all choices of a row (openai/finetune-transformer-lm, train.py).
  """

  choices: int = 0
  one_mask: bool = False

  def __post_init__(self) -> None:
    super().__post_init__()
    check_least('objective', self, choices=0)


def settle(cfg: Config, manifest: Any) -> Config:
  """The config with the number of choices of a data set; InputError if it has none, or another number is given."""
  found = manifest.get('choices', 0)
  if not found:
    raise InputError(
      f'data set {manifest["dataset"]["name"]} has no choices; objective "multiple_choice" needs a set '
      'such as swag, race or story_cloze'
    )
  if cfg.choices not in (0, found):
    raise InputError(f'objective.choices is {cfg.choices}, but the data set has {found}')
  return dataclasses.replace(cfg, choices=found)


def init(cfg: Config, model: Model, model_cfg: Any, key: Array) -> Params:
  """The head, see `rows.init`."""
  return rows.init(cfg, 1, model, model_cfg, key)


def terms(cfg: Config) -> tuple[str, ...]:
  """('nll',), and 'lm' where the auxiliary loss has a weight."""
  return rows.terms(cfg, 'nll')


def weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """{'nll': number of rows}, and 'lm' that of sequences."""
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
  """Negative log-likelihood of the right choices in nats.

  Args:
    params: {'model': ..., 'objective': the head}.
    batch: as `rows.read` has it with an axis G of choices, and labels_B, the right ones.
    state: passed through; every row begins anew.
    key: randomness of dropout; None at evaluation.
    axis: see `lmx.layers.normalization.batch_norm`.

  Returns:
    Output with sums {'nll'} and, with `lm_weight`, 'lm'; metrics of the same and 'accuracy'.
  """
  found = rows.read(cfg, model, model_cfg, params, batch, key, axis, together=False, one_mask=cfg.one_mask)
  (total, right_B), count = rows.picked(found.scores_BGC[..., 0], batch), weights(cfg, batch)['nll']
  extra, measured = rows.auxiliary(cfg, found, batch)
  metrics = {'nll': (total, count), 'accuracy': (jnp.sum(right_B), count), **measured}
  return Output({'nll': total, **extra}, metrics, state, found.statistics, found.features)


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """({'logits_BC': scores of the choices, float32}, state)."""
  found = rows.read(cfg, model, model_cfg, params, batch, None, together=False)
  return {'logits_BC': found.scores_BGC[..., 0]}, state


def headline(cfg: Config) -> str:
  """The metric shown first."""
  del cfg
  return 'accuracy'


def report(cfg: Config, totals: Mapping[str, tuple[float, float]], counts: Any) -> dict[str, float]:
  """{'loss', 'accuracy', 'error_percent'}, and with an auxiliary loss 'lm_nll'."""
  del counts
  means = {name: total / weight for name, (total, weight) in totals.items() if weight}
  loss = means.pop('nll', float('nan')) + means.pop('lm', 0.0)
  return {'loss': loss, 'error_percent': 100 * (1 - means.get('accuracy', float('nan'))), **means}


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Words on how rows were read, and how many."""
  del batches
  return [f'{cfg.choices} choices', *rows.protocol(cfg, data)]


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """A batch of rows with choices."""
  G = cfg.choices or 2
  leaf = lambda dtype, *sizes: jax.ShapeDtypeStruct((batch_size, *sizes), dtype)
  return {
    'tokens_BGT': leaf(jnp.int32, G, length),
    'valid_BGT': leaf(jnp.bool_, G, length),
    'row_weights_B': leaf(jnp.float32),
    'labels_B': leaf(jnp.int32),
  }
