"""Spans in a sequence of labels, evaluated as in CoNLL (Tjong Kim Sang and De Meulder 2003, conlleval).

Labels are 'O', 'B-type' and 'I-type'. A span starts at a B, and at an I that does not continue a span of the same type;
it ends before the next label that is not an I of its type. A predicted span is right if some true span has the same
first and last position and type. That is seqeval's default mode, not its strict one, where a span needs its B. So IOB1
and IOB2 labels are evaluated alike; schemes that also mark ends (BIOES) are not supported. All counts are computed on
arrays, so that they can be summed over batches and devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lmx.errors import InputError
from lmx.metrics.metric import Metric
from lmx.types import Array

METRICS = tuple(Metric(f'span_{name}', True, ',.2f', shown=False) for name in ('f1', 'precision', 'recall'))  # percent


class Scheme(NamedTuple):
  """Labels as two tables: the index of the type (0 is outside), and True if the label always starts a span.

  `names` are the R types by index, '' first.
  """

  type_L: np.ndarray
  begin_L: np.ndarray
  names: tuple[str, ...]


def marks_span(name: str) -> bool:
  """Return True if a label is O, or B- or I- before a name."""
  return name == 'O' or name[:2] in ('B-', 'I-') and len(name) > 2


def is_scheme(names: Sequence[str]) -> bool:
  """Return True if the labels mark spans: O, and B- and I- before names."""
  return 'O' in names and len(names) > 1 and all(map(marks_span, names))


def scheme(names: Sequence[str]) -> Scheme:
  """Return the tables of the labels in their order; raise InputError if they do not mark spans."""
  if not is_scheme(names):
    raise InputError(f'labels of spans: got {", ".join(names)}; expected O, B-type and I-type')
  types = sorted({name[2:] for name in names} - {''})
  number = {name: 1 + i for i, name in enumerate(types)}
  type_L = np.array([0 if n == 'O' else number[n[2:]] for n in names])
  return Scheme(type_L, np.array([n.startswith('B-') for n in names]), ('', *types))


def allowed_transitions(names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
  """Return (moves (L, L), starts (L,)): an I follows only a B or I of its type."""
  kinds = scheme(names)
  inside_L = (kinds.type_L > 0) & ~kinds.begin_L
  same_LL = kinds.type_L[:, None] == kinds.type_L
  return ~inside_L | same_LL, ~inside_L


def find_spans(kinds: Scheme, labels_BT: Array, valid_BT: Array) -> tuple[Array, Array, Array]:
  """Return (starts, last position of the span that covers the position, type), each (B, T)."""
  type_BT = jnp.where(valid_BT, jnp.asarray(kinds.type_L)[labels_BT], 0)
  begin_BT = jnp.asarray(kinds.begin_L)[labels_BT]
  before_BT = jnp.pad(type_BT[:, :-1], ((0, 0), (1, 0)))
  start_BT = (type_BT > 0) & (begin_BT | (before_BT != type_BT))
  after_BT = jnp.pad(type_BT[:, 1:], ((0, 0), (0, 1)))
  next_starts_BT = jnp.pad(start_BT[:, 1:], ((0, 0), (0, 1)))
  ends_BT = (type_BT > 0) & ((after_BT != type_BT) | next_starts_BT)
  T = labels_BT.shape[1]
  end_BT = jax.lax.cummin(jnp.where(ends_BT, jnp.arange(T), T), axis=1, reverse=True)
  return start_BT, end_BT, type_BT


def count_spans(kinds: Scheme, predicted_BT: Array, true_BT: Array, valid_BT: Array) -> Array:
  """Return the counts of correct, predicted and true spans per type, (3, R) float32.

  Args:
    kinds: from `scheme`.
    predicted_BT: predicted labels, int32.
    true_BT: true labels.
    valid_BT: bool; other positions are outside.
  """
  start_BT, end_BT, type_BT = find_spans(kinds, predicted_BT, valid_BT)
  true_start_BT, true_end_BT, true_type_BT = find_spans(kinds, true_BT, valid_BT)
  right_BT = start_BT & true_start_BT & (end_BT == true_end_BT) & (type_BT == true_type_BT)
  counted = (right_BT, type_BT), (start_BT, type_BT), (true_start_BT, true_type_BT)
  return jnp.stack([count_types(selected_BT, of_BT, len(kinds.names)) for selected_BT, of_BT in counted])


def count_types(selected_BT: Array, type_BT: Array, types: int) -> Array:
  """Return how often each type is selected, (R,) float32."""
  return jnp.zeros(types, jnp.float32).at[type_BT].add(selected_BT.astype(jnp.float32))


def compute_scores(right: float, predicted: float, true: float) -> dict[str, float]:
  """Return {'span_precision', 'span_recall', 'span_f1'} in percent; 0 where nothing is predicted or true."""
  precision = 100 * right / predicted if predicted else 0.0
  recall = 100 * right / true if true else 0.0
  both = precision + recall
  return {'span_precision': precision, 'span_recall': recall, 'span_f1': 2 * precision * recall / both if both else 0.0}
