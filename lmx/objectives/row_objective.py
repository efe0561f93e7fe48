"""Base of the objectives over rows: a class, a score, a choice or a mask for each row.

The loss is the mean of the task's term and, with a weight, that of an auxiliary term.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lmx import objectives
from lmx.errors import InputError
from lmx.types import Array, Batch, Output, State

MOST_BY_CLASS = 50  # maximum number of classes with per-class metrics


@dataclasses.dataclass(frozen=True)
class Terms(objectives.Config):
  """Names of the loss's terms: a base of the `Config` of these objectives; the attributes are `objectives.Config`'s."""

  term = 'nll'  # not a field
  reductions: ClassVar[tuple[str, ...]] = ('tokens', 'sum')  # 'tokens' is the mean over rows here

  @property
  def auxiliary_terms(self) -> tuple[str, ...]:
    """The auxiliary term, if it has a weight."""
    return ()


def resolve_classes(cfg: Any, manifest: Any, objective: str, advice: str = '') -> list[str]:
  """Return the labels of a data set.

  Raises:
    InputError: it has fewer than two, or another number than `cfg.classes`.
  """
  names: list[str] = manifest['label_names']
  if len(names) < 2:
    raise InputError(
      f'data set {manifest["dataset"]["name"]}: got {len(names)} labels; expected at least two, which objective '
      f'"{objective}" needs{advice}'
    )
  if cfg.classes not in (0, len(names)):
    raise InputError(f'objective.classes: got {cfg.classes}, but the data set has {len(names)}: {", ".join(names)}')
  return names


def check_classes(cfg: Any) -> int:
  """Return the number of classes. Raises InputError if it is not known yet."""
  if cfg.classes < 2:
    raise InputError(f'objective.classes: got {cfg.classes}; expected at least 2')
  return int(cfg.classes)


def labels(cfg: Any, recorded: Callable[[], list[str]]) -> list[str]:
  """Return a run's recorded labels, in logit order."""
  del cfg
  return recorded()


def terms(cfg: Terms) -> tuple[str, ...]:
  """Return the term of the task, and the auxiliary term if it has a weight."""
  return (cfg.term, *cfg.auxiliary_terms)


def weights(cfg: Terms, batch: Batch) -> dict[str, Array]:
  """Return the number of rows for the task, and of sequences for an auxiliary language model."""
  count = jnp.sum(batch['row_weights_B'], dtype=jnp.float32)
  sequences = batch['tokens_BGT'].shape[1] if 'tokens_BGT' in batch else 1
  return {cfg.term: count, **dict.fromkeys(cfg.auxiliary_terms, count * sequences)}


def output(
  cfg: Any, outputs: Any, batch: Batch, state: State, total: Array, metrics: Mapping[str, Any] | None = None
) -> Output:
  """Return the Output of a loss.

  Args:
    cfg: the objective's options.
    outputs: result of `rows.read`.
    batch: the batch.
    state: the state, passed through.
    total: summed loss of the task.
    metrics: further metrics.

  Returns:
    Output with the sums of `terms`, and metrics of the same names, `metrics` and with an auxiliary language model
    'lm_nll', its loss without the weight.
  """
  count = weights(cfg, batch)
  sums = {cfg.term: total}
  measured = dict(metrics or {})
  if outputs.lm_BG is not None:
    lm = jnp.sum(outputs.lm_BG * batch['row_weights_B'][:, None])
    sums['lm'], measured['lm_nll'] = cfg.lm_weight * lm, (lm, count['lm'])
  measured |= {term: (value, count[term]) for term, value in sums.items()}
  return Output(sums, measured, state, outputs.statistics, outputs.features)


def label_nll(scores_BC: Array, batch: Batch) -> tuple[Array, Array]:
  """Return the cross-entropy and accuracy of logits, by labels_B and row_weights_B.

  Returns:
    (sum of the negative log-likelihoods in nats; 1 for rows whose largest logit is the label's, (B,), 0 for padding).
  """
  weights_B, labels_B = batch['row_weights_B'], batch['labels_B']
  log_p_B = jnp.take_along_axis(jax.nn.log_softmax(scores_BC), labels_B[:, None], axis=1)[:, 0]
  return -jnp.sum(log_p_B * weights_B), (jnp.argmax(scores_BC, -1) == labels_B) * weights_B


def means(cfg: Terms, totals: Mapping[str, Any], counts: Any = None) -> dict[str, float]:
  """Return 'loss', NaN without rows, and the mean of every other metric that some row has."""
  del counts
  pairs = {name: pair for name, pair in totals.items() if isinstance(pair, tuple)}
  found = {name: float(total / weight) for name, (total, weight) in pairs.items() if weight}
  loss = sum(found.pop(term, math.nan) for term in terms(cfg))
  return {'loss': loss, **found}


def error_report(cfg: Terms, totals: Mapping[str, Any], counts: Any = None) -> dict[str, float]:
  """Return 'loss', 'error_percent', 'accuracy' and with an auxiliary language model 'lm_nll'."""
  del counts
  found = means(cfg, totals)
  return {'loss': found.pop('loss'), 'error_percent': 100 * (1 - found.get('accuracy', math.nan)), **found}


def protocol(cfg: Any, data: Any, batches: Any) -> list[str]:
  """Return the metric's protocol: how rows are read, and their number."""
  del batches
  windows = f'in windows of {cfg.bptt} with the state carried over' if cfg.bptt else 'whole'
  words = [f'documents read {windows}, {cfg.pooling} pooling']
  if cfg.pooled_length:
    words.append(f'windows from {cfg.pooled_length} tokens before the end on pooled')
  if data.train_documents:
    words.append(f'at most {data.train_documents:,} documents trained on')
  if data.fraction < 1:
    words.append(f'only {data.fraction:.0%} of the documents')
  return words


def named(counts: Sequence[Sequence[float]], names: Sequence[str] | None) -> dict[str, list[float]]:
  """Return {label: (right, predicted, true)} by label name; None uses label indices."""
  names = [str(c) for c in range(len(counts))] if names is None else names
  return {name: list(three) for name, three in zip(names, counts, strict=True)}
