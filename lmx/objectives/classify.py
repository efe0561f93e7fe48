"""Classification of rows, a document or two texts, with any model; see lmx/objectives/rows.py for the encoding.

softmax over the logits of the classes (Howard and Ruder 2018, section 3.3; Devlin et al. 2019, section 4.1; Radford et
al. 2018, equations 3 to 5). With two classes, F1 of the `positive` one and Matthews' correlation (Matthews 1975) are
computed too, as for GLUE's MRPC, QQP and CoLA. Both are 0 where they are undefined, as in scikit-learn.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lmx import documents
from lmx.errors import InputError, InputWarning, check_choice, check_least, nearest
from lmx.metrics.by_class import MACRO_F1
from lmx.metrics.metric import ACCURACY, ERROR_PERCENT, Metric
from lmx.objectives import row_objective, rows
from lmx.objectives.row_objective import MOST_BY_CLASS
from lmx.types import Array, Batch, Model, Output, Params, State

METRICS = (
  ERROR_PERCENT,
  ACCURACY,
  MACRO_F1,
  Metric('f1', True, headline=',.3f'),
  Metric('matthews', True, headline=',.3f'),
  Metric('accuracy_f1', True, headline=',.3f', shown=False),
  Metric('accuracy_class_*', True, shown=False),
  Metric('lm_nll', False, shown=False),
  Metric('majority_accuracy', None, '.1%', shown=False),
)
HEADLINES = ('error_percent', 'accuracy', 'f1', 'matthews')
EVALUATION = PREDICTION = ROWS = 'classification'
UNIT = 'documents'  # unit of the loss's weight
ACROSS_ROWS = True  # batch normalisation: `loss` takes `axis`
model_batch, init = rows.model_batch, rows.init
terms, weights, protocol, labels = (
  row_objective.terms,
  row_objective.weights,
  row_objective.protocol,
  row_objective.labels,
)


@dataclasses.dataclass(frozen=True)
class Config(rows.Config):
  """Options of the objective, in addition to those of `rows.Config`.

  Attributes:
    classes: number of classes; 0 takes it from the data set's labels.
    metric: headline metric, one of HEADLINES.
    positive: the class whose F1 is computed, of two; '' is the second by the alphabet. The metric's line names it.
    positive_index: its index, from the data set's labels.
  """

  classes: int = 0
  metric: str = 'error_percent'
  positive: str = ''
  positive_index: int = 1

  def __post_init__(self) -> None:
    super().__post_init__()
    check_least('objective', self, classes=0, positive_index=0)
    check_choice('objective.metric', self.metric, HEADLINES)
    if self.classes > 2 and self.metric in ('f1', 'matthews'):
      raise InputError(f'objective.metric: got "{self.metric}" with {self.classes} classes; expected 2 classes')

  @property
  def outputs(self) -> int:  # type: ignore[override]
    """The number of classes."""
    return row_objective.check_classes(self)


def resolve(cfg: Config, manifest: Any) -> Config:
  """Return the config completed by the labels of a data set; warn of labels that are scores.

  Raises:
    InputError: the data set has no labels, or they differ from the config's.
  """
  names = row_objective.resolve_classes(cfg, manifest, 'classify')
  if _are_scores(names):
    warnings.warn(
      f'data.label: got {len(names):,} numeric labels, such as {names[-1]}; expected classes; for scores on a '
      'scale set objective.name=regress, objective.metric=pearson and data.scores=True',
      InputWarning,
      stacklevel=2,
    )
  _warn_alike(names)
  index = _positive_index(cfg.positive, names) if cfg.positive else 1
  return dataclasses.replace(cfg, classes=len(names), positive_index=index)


def _positive_index(positive: str, names: Sequence[str]) -> int:
  """Return the index of `objective.positive`; the command line reads true and false in any case as Python's."""
  name = positive if positive in names else documents.compose(documents.label_name(positive))
  alike = [i for i, other in enumerate(names) if other.lower() == name.lower()] if name in ('True', 'False') else []
  if name not in names and len(alike) != 1:
    raise InputError(f'objective.positive: the data set has no label "{positive}"{nearest(name, names)}')
  return names.index(name) if name in names else alike[0]


def _warn_alike(names: Sequence[str]) -> None:
  """Warn about labels that differ only in case or Unicode form, such as True and true in two files."""
  if alike := documents.labels_alike(names):
    shown = f'{", ".join(alike[:6])}{", ..." if len(alike) > 6 else ""}'
    note = f'data.label: got labels that differ only in case or Unicode form, which are different classes: {shown}'
    warnings.warn(note, InputWarning, stacklevel=3)


def _are_scores(names: Sequence[str]) -> bool:
  """Return True if labels are scores: all are numbers, and one is fractional or there are over 20."""
  try:
    numbers = [float(name) for name in names]
  except ValueError:
    return False
  return len(numbers) > 20 or any(number % 1 for number in numbers)


def labelled(cfg: Config) -> dict[str, tuple[int, ...]]:
  """Return the leaves of the head with an axis over labels -> these axes."""
  last, axis = f'block_{len(cfg.head)}', 1 if cfg.activation == 'maxout' else 0
  return {f'{last}/kernel': (axis + 1,), f'{last}/bias': (axis,)}


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
  """Return the negative log-likelihood of the labels in nats.

  Args:
    params: {'model': ..., 'objective': the head}.
    batch: that of `rows.read`, and labels_B.
    state: passed through; every row starts from a fresh state.
    key: PRNG key of dropout; None at evaluation, when batch normalisation uses the running statistics.
    axis: see `lmx.layers.normalization.batch_norm`.

  Returns:
    Output with sums {'nll'} and, with `lm_weight`, 'lm'; metrics 'nll', 'accuracy' and, at evaluation,
    'accuracy_class_<i>' and 'predicted_class_<i>' of up to 50 labels and, of two, 'is_positive',
    'predicted_positive' and 'right_positive'.
  """
  outputs = rows.read(cfg, model, model_cfg, params, batch, key, axis)
  logits_BC, weights_B, labels_B = outputs.scores_BGC[:, 0], batch['row_weights_B'], batch['labels_B']
  (total, right_B), count = row_objective.label_nll(logits_BC, batch), weights(cfg, batch)['nll']
  metrics = {'accuracy': (jnp.sum(right_B), count)}
  best_B = jnp.argmax(logits_BC, -1)
  if key is None and cfg.classes <= MOST_BY_CLASS:
    for c in range(cfg.classes):
      is_B = labels_B == c
      metrics[f'accuracy_class_{c}'] = (jnp.sum(right_B * is_B), jnp.sum(weights_B * is_B))
      metrics[f'predicted_class_{c}'] = (jnp.sum(weights_B * (best_B == c)), count)
  if key is None and cfg.classes == 2:
    is_B, predicted_B = labels_B == cfg.positive_index, best_B == cfg.positive_index
    for name, selected_B in (('is', is_B), ('predicted', predicted_B), ('right', is_B & predicted_B)):
      metrics[f'{name}_positive'] = (jnp.sum(selected_B * weights_B), count)
  return row_objective.output(cfg, outputs, batch, state, total, metrics)


def predict(cfg: Config, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return ({'logits_BC': logits of the classes, float32}, state)."""
  return {'logits_BC': rows.read(cfg, model, model_cfg, params, batch, None).scores_BGC[:, 0]}, state


def headline(cfg: Config, metrics: Any) -> str:
  """Return the headline metric."""
  del metrics
  return cfg.metric


def report(cfg: Config, totals: Mapping[str, tuple[float, float]], counts: Any) -> dict[str, float]:
  """Return {'loss', 'accuracy', 'error_percent', 'accuracy_class_<i>' if the split has the class}, with two classes
  'f1', 'matthews' and 'accuracy_f1' (the mean of accuracy and F1), which are fractions, and with an auxiliary loss
  'lm_nll'."""
  del counts
  shown = {name: pair for name, pair in totals.items() if not name.startswith('predicted_class_')}
  metrics = row_objective.error_report(cfg, shown)
  if 'is_positive' not in metrics:
    return metrics
  shares = [metrics.pop(f'{name}_positive') for name in ('right', 'predicted', 'is')]
  binary = binary_metrics(*shares)
  return metrics | binary | {'accuracy_f1': (metrics['accuracy'] + binary['f1']) / 2}


def positive(cfg: Config, names: Sequence[str]) -> str:
  """Return the label of the class whose F1 is computed."""
  return str(names[cfg.positive_index])


def undefined(cfg: Config, totals: Mapping[str, tuple[float, float]], names: Sequence[str], split: str) -> list[str]:
  """Return a note if F1 and Matthews' correlation are 0 only because the split has one class."""
  if 'is_positive' not in totals or totals['is_positive'][0] not in (0.0, totals['is_positive'][1]):
    return []
  has = f'has {"only rows" if totals["is_positive"][0] else "no row"} of class "{positive(cfg, names)}"'
  return [f'f1, matthews: split {split} {has}; undefined values are 0, as in scikit-learn']


def by_class(
  cfg: Config, totals: Mapping[str, tuple[float, float]], names: Sequence[str] | None
) -> dict[str, list[float]]:
  """Return {label: (right, predicted, true)} of up to 50 labels, whose names are given in their order."""
  if cfg.classes > MOST_BY_CLASS:
    return {}
  pairs = [(totals[f'accuracy_class_{c}'], totals[f'predicted_class_{c}'][0]) for c in range(cfg.classes)]
  return row_objective.named([(right, predicted, true) for (right, true), predicted in pairs], names)


def binary_metrics(right: float, predicted: float, actual: float) -> dict[str, float]:
  """Return F1 and Matthews' correlation of one class, each 0 where it is undefined, as in scikit-learn.

  Args:
    right: true positives as a share of all rows.
    predicted: predicted positives as a share of all rows.
    actual: actual positives as a share of all rows.
  """
  scale = math.sqrt(predicted * (1 - predicted) * actual * (1 - actual))
  return {
    'f1': 2 * right / (predicted + actual) if predicted + actual else 0.0,
    'matthews': (right - predicted * actual) / scale if scale else 0.0,
  }


def summarize(cfg: Config, outputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
  """Return 'majority_class', the most frequent class, and 'majority_accuracy', that of always predicting it.

  With up to 50 classes also 'confusion': counts of rows by actual class (rows) and predicted class (columns).

  Args:
    outputs: 'logits_BC' from `predict` and 'truth', of all rows.
  """
  sizes = np.bincount(outputs['truth'].astype(np.int64), minlength=cfg.classes)
  most = {'majority_class': int(np.argmax(sizes)), 'majority_accuracy': float(sizes.max() / sizes.sum())}
  if cfg.classes > MOST_BY_CLASS:
    return most
  counts = np.zeros((cfg.classes, cfg.classes), np.int64)
  np.add.at(counts, (outputs['truth'], np.argmax(outputs['logits_BC'], axis=1)), 1)
  return {**most, 'confusion': counts.tolist()}


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch of documents."""
  del cfg
  return rows.shapes(batch_size, length) | {'labels_B': jax.ShapeDtypeStruct((batch_size,), jnp.int32)}
