"""Loss of selected tokens, those of a tail of the adaptive softmax (lmx/layers/adaptive_softmax.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lmx.ops.operation import Operation
from lmx.types import Array


@Operation
def selected_losses(
  loss: Callable[..., Array], table: Any, x_BTD: Array, targets_BT: Array, selected_BT: Array, *, words: Sequence[int]
) -> Array:
  """Return `loss(table, x_BTD, targets_BT, selected_BT)`, (B, T) float32.

  Args:
    loss: loss of tokens, 0 where they are not selected; it closes over no arrays.
    table: pytree of its parameters.
    x_BTD: last hidden layer.
    targets_BT: classes; arbitrary where not selected.
    selected_BT: bool.
    words: first and one past the last of the tail's words, and the number of all.
  """
  del words
  return loss(table, x_BTD, targets_BT, selected_BT)
