"""Binary outputs: each output of each step is 0 or 1, as in Graves et al. 2014 (arXiv 1410.5401, section 4).

The loss is the cross-entropy of all output bits, in nats, per sequence, so `bits_per_sequence` is the quantity of
the paper's learning curves. Every episode starts from a fresh state. The weight counts sequences.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from lmx import ranges
from lmx.errors import check_range
from lmx.metrics.metric import Metric
from lmx.objectives import mean, row_objective
from lmx.types import Array, Batch, Model, Output, Params, State

METRICS = (
  Metric('bits_per_sequence', False),
  *(Metric(name, False, shown=False) for name in ('bit_error_percent', 'sequence_error_percent')),
  Metric('bits_per_sequence_at_*', False),
  Metric('bit_error_percent_at_*', False, shown=False),
  Metric('optimal_bits_per_sequence', None),
)
SAMPLES, ROWS = 'memory', 'totals'
UNIT = 'sequences'
weights = row_objective.weights


@dataclasses.dataclass(frozen=True)
class Config(row_objective.Terms):
  """Options of the objective, in addition to those of `objectives.Config`.

  Attributes:
    lengths: sequence lengths that evaluation also reports separately.
  """

  lengths: Annotated[tuple[Annotated[int, ranges.Limits(1)], ...], ranges.Distinct(is_sorted=True)] = ()

  def __post_init__(self) -> None:
    super().__post_init__()
    for length in self.lengths:
      check_range('objective.lengths: one', length, 1)


def loss(
  cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State, key: Array | None = None
) -> Output:
  """Return the cross-entropy of the bits in nats.

  Args:
    params: {'model': ..., 'objective': {}}.
    batch: inputs_BTI, target_bits_BTO, weights_BT, row_weights_B, valid_BT; size_B for `lengths`; optional optimal_B.
    state: passed through; every episode starts from a fresh state.
    key: PRNG key of the model; None at evaluation, when errors are counted.

  Returns:
    Output with sums {'nll'}; metrics 'nll', at evaluation also 'bit_errors' (of the bits), 'sequence_errors' (sequences
    with a wrong bit), 'nll_at_<length>' and 'bit_errors_at_<length>', and 'optimal' in bits if the batch has it.
  """
  begin = model.init_state(model_cfg, batch['inputs_BTI'].shape[0])
  features, _ = model.apply(model_cfg, params['model'], batch, begin, key)
  targets_BTO, weights_BT = batch['target_bits_BTO'], batch['weights_BT']
  nll_B = jnp.sum(model.nll(model_cfg, params['model'], features, targets_BTO) * weights_BT, axis=1)
  count = weights(cfg, batch)['nll']
  metrics = {'nll': (jnp.sum(nll_B), count)}
  if key is None:
    guess_BTO = model.logits(model_cfg, params['model'], features) > 0
    wrong_B = jnp.sum((guess_BTO != (targets_BTO > 0.5)) * weights_BT[..., None], axis=(1, 2))
    bits_B = jnp.sum(weights_BT, axis=1) * targets_BTO.shape[-1]
    metrics['bit_errors'] = (jnp.sum(wrong_B), jnp.sum(bits_B))
    metrics['sequence_errors'] = (jnp.sum(wrong_B > 0, dtype=jnp.float32), count)
    for length in cfg.lengths:
      of_B = (batch['size_B'] == length) * batch['row_weights_B']
      metrics[f'nll_at_{length}'] = (jnp.sum(nll_B * of_B), jnp.sum(of_B))
      metrics[f'bit_errors_at_{length}'] = (jnp.sum(wrong_B * of_B), jnp.sum(bits_B * of_B))
    if 'optimal_B' in batch:
      metrics['optimal'] = (jnp.sum(batch['optimal_B'] * batch['row_weights_B']), count)
  return Output({'nll': metrics['nll'][0]}, metrics, state, features=features)


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return ({'bits_BTO': the more probable bits, int32, 'probability_BTO': of a 1}, state)."""
  del cfg
  begin = model.init_state(model_cfg, batch['inputs_BTI'].shape[0])
  features, _ = model.apply(model_cfg, params['model'], batch, begin)
  scores_BTO = model.logits(model_cfg, params['model'], features)
  return {'bits_BTO': (scores_BTO > 0).astype(jnp.int32), 'probability_BTO': jax.nn.sigmoid(scores_BTO)}, state


def report(cfg: Config, totals: Mapping[str, tuple[float, float]], counts: Mapping[str, int]) -> dict[str, float]:
  """Return {'loss', 'bits_per_sequence', 'bit_error_percent', 'sequence_error_percent'}; for each of `lengths` in the
  data the first two errors at that length; 'optimal_bits_per_sequence' if known."""
  del counts
  mean_of = lambda name: mean(totals[name])
  metrics = {
    'loss': mean_of('nll'),
    'bits_per_sequence': mean_of('nll') / math.log(2),
    'bit_error_percent': 100 * mean_of('bit_errors'),
    'sequence_error_percent': 100 * mean_of('sequence_errors'),
  }
  for length in cfg.lengths:
    if totals[f'nll_at_{length}'][1]:
      metrics[f'bits_per_sequence_at_{length}'] = mean_of(f'nll_at_{length}') / math.log(2)
      metrics[f'bit_error_percent_at_{length}'] = 100 * mean_of(f'bit_errors_at_{length}')
  return metrics | ({'optimal_bits_per_sequence': mean_of('optimal')} if 'optimal' in totals else {})


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Return the metric's protocol: the task and the lengths of its sequences."""
  del cfg
  task, longest = data.batching.task, data.eval_length or data.length
  tested = ', '.join(map(str, data.batching.test_lengths))
  return [f'{task} of {data.batching.min_length or "few"} to {longest} items'] + [f'in test {tested}'] * bool(tested)


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch of the paper's copy task: 10 inputs, 9 outputs."""
  del cfg
  leaf = lambda dtype, *sizes: jax.ShapeDtypeStruct((batch_size, *sizes), dtype)
  return {
    'inputs_BTI': leaf(jnp.float32, length, 10),
    'target_bits_BTO': leaf(jnp.float32, length, 9),
    'weights_BT': leaf(jnp.float32, length),
    'valid_BT': leaf(jnp.bool_, length),
    'size_B': leaf(jnp.int32),
    'row_weights_B': leaf(jnp.float32),
  }
