"""An operation computes the equation, or the implementation of the current placement."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

from lmx import ops, placement
from lmx.kernels import implementations
from lmx.ops.operation import Operation
from tests import placed


@Operation
def double(x):
  """Return 2 x."""
  return 2 * x


def test_implementation_of_the_placement_replaces_the_equation():
  found = [double(3)]
  for implementations_of in ({}, {double: lambda x: -x}):
    with placement.scope(dataclasses.replace(placed.at(), implementation=implementations_of.get)):
      found.append(double(x=3))
  assert found == [6, 6, -3]
  assert double.__name__ == 'double' and double.equation(3) == 6


def test_every_operation_has_an_implementation():
  files = [importlib.import_module(f'lmx.ops.{module.name}') for module in pkgutil.iter_modules(ops.__path__)]
  operations = [(file, one) for file in files for one in vars(file).values() if isinstance(one, Operation)]
  assert len(operations) > 20
  for file, operation in operations:
    implementation = implementations.find(operation)
    assert implementation.__name__ == operation.__name__, f'{file.__name__}.{operation.__name__}'
