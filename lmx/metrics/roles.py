"""Arguments of a predicate in a sequence of labels, evaluated as by CoNLL-2005's srl-eval.pl (version of April 2005).

Labels are BIO of roles: B-A0, I-A0, B-R-A1, ... A span of the role C-X continues the last argument X before it, so
that both are one argument; without one before it, it is itself an argument X. A predicted argument is right if some
true one has its role and all of its spans, and no others. V, which is given as the predicate, does not count, nor does
C-V. Other roles, such as R-X, are separate roles. Spans are defined in lmx/metrics/spans.py.

Axes: S positions of the row, as T.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from lmx.metrics import spans
from lmx.types import Array


class Scheme(NamedTuple):
  """Labels as tables: see `spans.Scheme`; index of the role without C- (V is 0); True if the role begins with C-.

  `names` are the R roles by index, 'V' first.
  """

  spans: spans.Scheme
  role_L: np.ndarray
  continues_L: np.ndarray
  names: tuple[str, ...]


def scheme(names: Sequence[str]) -> Scheme:
  """Return the tables of the labels in their order; raise InputError if they do not mark spans."""
  types = [name[2:] for name in names]  # '' for O
  roles = [name.removeprefix('C-') for name in types]
  others = ('V', *sorted({*roles} - {'V'}))
  number = {role: i for i, role in enumerate(others)}
  role_L, continues_L = np.array([number[role] for role in roles]), np.array([name.startswith('C-') for name in types])
  return Scheme(spans.scheme(names), role_L, continues_L, others)


class _Arguments(NamedTuple):
  """Arguments of each row.

  Attributes:
    start_BT: True where a span starts.
    end_BT: last position of the span.
    role_BT: its role.
    head_BT: first position of its argument.
    counts_BT: True at the first position of an argument other than V.
  """

  start_BT: Array
  end_BT: Array
  role_BT: Array
  head_BT: Array
  counts_BT: Array


def _arguments(kinds: Scheme, labels_BT: Array, valid_BT: Array) -> _Arguments:
  start_BT, end_BT, _ = spans.find_spans(kinds.spans, labels_BT, valid_BT)
  role_BT, continues_BT = jnp.asarray(kinds.role_L)[labels_BT], jnp.asarray(kinds.continues_L)[labels_BT]
  position_T = jnp.arange(labels_BT.shape[1])
  until_BTS = start_BT[:, None] & (role_BT[:, :, None] == role_BT[:, None]) & (position_T <= position_T[:, None])
  is_first_BT = jnp.sum(until_BTS, axis=-1) == 1
  begins_BT = start_BT & (~continues_BT | is_first_BT)
  head_BT = jnp.max(jnp.where(until_BTS & begins_BT[:, None], position_T, -1), axis=-1)
  return _Arguments(start_BT, end_BT, role_BT, head_BT, begins_BT & (role_BT > 0))


def count_arguments(kinds: Scheme, predicted_BT: Array, true_BT: Array, valid_BT: Array) -> Array:
  """Return the counts of correct, predicted and true arguments per role, (3, R) float32; V has none.

  Args:
    kinds: from `scheme`.
    predicted_BT: predicted labels, int32.
    true_BT: true labels.
    valid_BT: bool; other positions are outside.
  """
  predicted, true = _arguments(kinds, predicted_BT, valid_BT), _arguments(kinds, true_BT, valid_BT)
  equal_BT = predicted.start_BT & true.start_BT & (predicted.end_BT == true.end_BT)
  equal_BT &= (predicted.role_BT == true.role_BT) & (predicted.head_BT == true.head_BT)
  position_S = jnp.arange(true_BT.shape[1])
  # Number of spans of the argument that starts at S.
  count = lambda one, spans_BT: jnp.sum(spans_BT[..., None] & (one.head_BT[..., None] == position_S), axis=1)
  equal_BS = count(true, equal_BT)
  right_BT = (count(true, true.start_BT) == equal_BS) & (count(predicted, predicted.start_BT) == equal_BS)
  counted = (right_BT & true.counts_BT, true), (predicted.counts_BT, predicted), (true.counts_BT, true)
  return jnp.stack([spans.count_types(selected, one.role_BT, len(kinds.names)) for selected, one in counted])
