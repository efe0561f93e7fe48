"""Fast implementations of the operations of lmx/ops, which the engine's placements carry (lmx/placement.py).

The implementation of `dot` in lmx/ops/dense.py is `dot` in lmx/kernels/dense.py. As a model's file, it is imported when
it is first needed. Each supports every platform and shape: it selects a kernel or computes the operation's equation.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from lmx.ops.operation import Operation


@functools.cache
def find(operation: Operation) -> Callable[..., Any]:
  """Return the implementation of an operation: the function of its name in the kernel file of its file's name."""
  implementation: Callable[..., Any] = getattr(kernel(operation.__module__.rpartition('.')[2]), operation.__name__)
  return implementation


def kernel(name: str) -> Any:
  """Return a module of this package."""
  return importlib.import_module(f'lmx.kernels.{name}')
