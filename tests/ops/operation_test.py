"""An operation computes the equation, or the implementation of the current placement."""

from __future__ import annotations

import dataclasses

from lmx import placement
from lmx.kernels.implementations import IMPLEMENTATIONS
from lmx.ops.operation import Operation
from tests import placed


@Operation
def double(x):
  """Return 2 x."""
  return 2 * x


def test_last_implementation_of_the_placement_replaces_the_equation():
  plain = dataclasses.replace(placed.at(), implementations=())
  found = [double(3)]
  for pairs in ((), ((double, lambda x: -x),), ((double, lambda x: -x), (double, lambda x: x + 1))):
    with placement.scope(dataclasses.replace(plain, implementations=pairs)):
      found.append(double(x=3))
  assert found == [6, 6, -3, 4]
  assert double.__name__ == 'double' and double.equation(3) == 6


def test_every_operation_has_one_implementation():
  operations = [operation for operation, _ in IMPLEMENTATIONS]
  assert len(set(operations)) == len(operations)
