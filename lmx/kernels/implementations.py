"""Fast implementations of the operations of lmx/ops, which the engine's placements carry (lmx/placement.py).

The implementation of `dot` in lmx/ops/dense.py is `dot` in lmx/kernels/dense.py. As a model's file, it is imported when
it is first needed. Each supports every platform and shape: it selects a kernel or computes the operation's equation.
`Model` has the model defaults that depend on the machine's kernels.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import jax

from lmx import ops, types
from lmx.errors import check_choice
from lmx.ops.operation import Operation


@functools.cache
def find(operation: Operation) -> Callable[..., Any]:
  """Return the implementation of an operation: the function of its name in the kernel file of its file's name.

  Its operations have this name in a profile.
  """
  equation = operation.equation
  implementation: Callable[..., Any] = getattr(kernel(equation.__module__.rpartition('.')[2]), equation.__name__)
  return jax.named_scope(equation.__name__)(implementation)


@functools.cache
def find_except(names: tuple[str, ...]) -> Callable[[Operation], Callable[..., Any] | None]:
  """Return `find` without the operations of these names, which compute their equations.

  Raises:
    InputError: there is no such operation.
  """
  if not names:
    return find
  files = [importlib.import_module(f'lmx.ops.{module.name}') for module in pkgutil.iter_modules(ops.__path__)]
  known = sorted({one.equation.__name__ for file in files for one in vars(file).values() if isinstance(one, Operation)})
  for name in names:
    check_choice('parallel.equations', name, known)
  return lambda operation: None if operation.equation.__name__ in names else find(operation)


def kernel(name: str) -> Any:
  """Return a module of this package."""
  return importlib.import_module(f'lmx.kernels.{name}')


class Model(types.Model):
  """Model with the kernels that suit this machine."""

  def settle(self, cfg: Any, /) -> Any:
    """Return the Config with 'auto' replaced by this machine's implementation, which a resumed run keeps."""
    is_dot_product = 'attention' in self.Config.__dataclass_fields__ and not self.ATTENTION
    name = self.SETTLES or ('attention' if is_dot_product else '')
    return kernel(name).settle(cfg) if name else cfg

  def fused_updates(self, cfg: Any, batch: types.Batch) -> Callable[..., Any] | None:
    """Return the function that applies all updates of a batch of `rows` at once; None if this machine has none."""
    return kernel(self.SETTLES).choose(cfg, batch) if self.SETTLES == 'window_updates' else None
