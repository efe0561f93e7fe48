"""Operation: an equation that a placement may compute by another implementation.

  @Operation
  def dot(x, y):
    return x @ y

Without a placement `dot(x, y)` computes the equation. In a `Placement` whose `implementation(dot)` is f it computes
f(x, y), which has the same value. The engine's placements find f by the name of the operation
(lmx/kernels/implementations.py). An implementation that serves only some platforms or shapes calls `dot.equation` for
the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from lmx import placement

P = ParamSpec('P')
R = TypeVar('R')


class Operation(Generic[P, R]):
  """Decorator of an equation.

  Attributes:
    equation: the function without any placement.
  """

  def __init__(self, equation: Callable[P, R]):
    functools.update_wrapper(self, equation)
    self.equation = equation

  def __call__(self, *args: P.args, **named: P.kwargs) -> R:
    """Compute the current placement's implementation, or the equation."""
    here = placement.current()
    compute = None if here is None else here.implementation(self)
    return (compute or self.equation)(*args, **named)
