"""The answer to a question as a span of a passage (Devlin et al. 2019, arXiv 1810.04805, sections 4.2 and 4.3).

A linear layer gives each token a score of beginning and one of ending the answer; the loss is the mean of the two
negative log-likelihoods over all places of the row, and a question that its window does not answer begins and ends at
[CLS]. Exact match and F1 need the text and are measured on whole questions (lmx/answers.py); what is counted here, over
windows, is how often both ends are right.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_range
from lmx.types import Array, Batch, Output, Params, State

SAMPLES = 'none'
UNIT = 'windows'  # what the weight of the loss counts
NEVER = -1e9  # score of places that are none of the passage


@dataclasses.dataclass(frozen=True)
class Config:
  """Options of the objective.

  Attributes:
    init_std: deviation of the linear layer's kernel (truncated normal).
  """

  init_std: float = 0.02  # the released configuration's initializer_range

  def __post_init__(self):
    check_range('objective.init_std', self.init_std, 0)


def settle(cfg: Config, manifest: Any) -> Config:
  """The config as it is; InputError if the data set has no answers."""
  if not manifest.get('spans'):
    name = manifest['dataset']['name']
    raise InputError(f'data set {name} has no answers that are spans; objective "span" needs a set such as squad')
  return cfg


def _width(model, model_cfg) -> int:
  """Width of the features, found by tracing one token."""

  def one_token(key):
    batch = {'tokens_BT': jnp.zeros((1, 1), jnp.int32)}
    return model.apply(model_cfg, model.init(model_cfg, key), batch, model.init_state(model_cfg, 1))[0].last_BTD

  return jax.eval_shape(one_token, jax.random.key(0)).shape[-1]


def init(cfg: Config, model, model_cfg, key: Array) -> Params:
  """The head: {'kernel' (D, 2), 'bias' (2,)}, begin and end."""
  kernel = cfg.init_std * jax.random.truncated_normal(key, -2.0, 2.0, (_width(model, model_cfg), 2), jnp.float32)
  return {'kernel': kernel, 'bias': jnp.zeros(2, jnp.float32)}


def terms(cfg: Config) -> tuple[str, ...]:
  """One term: ('nll',)."""
  del cfg
  return ('nll',)


def weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """{'nll': number of windows}."""
  del cfg
  return {'nll': jnp.sum(batch['row_weights_B'], dtype=jnp.float32)}


def _scores(model, model_cfg, params: Params, batch: Batch, key: Array | None) -> Array:
  """Scores of begin and end at every valid place, (B, T, 2) float32."""
  begin = model.init_state(model_cfg, batch['tokens_BT'].shape[0])
  features, _ = model.apply(model_cfg, params['model'], batch, begin, key)
  x_BT2 = features.last_BTD.astype(jnp.float32) @ params['objective']['kernel'] + params['objective']['bias']
  return jnp.where(batch['valid_BT'][..., None], x_BT2, NEVER)


def loss(
  cfg: Config, model, model_cfg, params: Params, batch: Batch, state: State, key: Array | None = None
) -> Output:
  """Mean of the negative log-likelihoods of begin and end in nats.

  Args:
    params: {'model': ..., 'objective': the head}.
    batch: tokens_BT, valid_BT, types_BT, starts_B, ends_B, row_weights_B.
    state: passed through; every window is read by itself.
    key: randomness of dropout; None at evaluation.

  Returns:
    Output with sums {'nll'}, metrics 'nll' and 'accuracy': both ends are right.
  """
  x_BT2, weights_B = _scores(model, model_cfg, params, batch, key), batch['row_weights_B']
  ends_B2 = jnp.stack([batch['starts_B'], batch['ends_B']], axis=1)
  log_p_B12 = jnp.take_along_axis(jax.nn.log_softmax(x_BT2, axis=1), ends_B2[:, None], axis=1)
  total, count = -jnp.sum(jnp.mean(log_p_B12, axis=(1, 2)) * weights_B), weights(cfg, batch)['nll']
  right_B = jnp.all(jnp.argmax(x_BT2, axis=1) == ends_B2, axis=1)
  return Output({'nll': total}, {'nll': (total, count), 'accuracy': (jnp.sum(right_B * weights_B), count)}, state)


def predict(cfg: Config, model, model_cfg, params: Params, batch: Batch, state: State):
  """({'scores_BT2': of begin and end, float32}, state)."""
  del cfg
  return {'scores_BT2': _scores(model, model_cfg, params, batch, None)}, state


def headline(cfg: Config) -> str:
  """The metric shown first."""
  del cfg
  return 'error_percent'


def report(cfg: Config, totals: Mapping[str, tuple[float, float]], counts: Any) -> dict[str, float]:
  """{'loss', 'accuracy', 'error_percent'}, over windows."""
  del cfg, counts
  mean = lambda name: totals[name][0] / totals[name][1] if totals[name][1] else float('nan')
  return {'loss': mean('nll'), 'accuracy': mean('accuracy'), 'error_percent': 100 * (1 - mean('accuracy'))}


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """How passages were read."""
  del cfg
  return [f'{batches.examples:,} windows {data.batching.stride} tokens apart']


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """A batch of windows."""
  del cfg
  leaf = lambda dtype, *sizes: jax.ShapeDtypeStruct((batch_size, *sizes), dtype)
  return {
    'tokens_BT': leaf(jnp.int32, length), 'valid_BT': leaf(jnp.bool_, length), 'types_BT': leaf(jnp.int32, length),
    'starts_B': leaf(jnp.int32), 'ends_B': leaf(jnp.int32), 'row_weights_B': leaf(jnp.float32),
  }  # fmt: skip
