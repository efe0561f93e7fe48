"""Model defaults that depend on the machine's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lmx import types
from lmx.kernels.implementations import kernel


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
