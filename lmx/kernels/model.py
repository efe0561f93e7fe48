"""Model defaults that depend on the machine's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lmx import types
from lmx.kernels import attention, recurrent, window_updates

_SETTLE = {  # field of a Config -> function that replaces its 'auto'
  'attention': attention.settle,
  'backend': recurrent.settle,
  'update_kernel': window_updates.settle,
}


class Model(types.Model):
  """Model with the kernels that suit this machine."""

  def settle(self, cfg: Any, /) -> Any:
    """Return the Config with 'auto' replaced by this machine's implementation, which a resumed run keeps."""
    is_dot_product = 'attention' in self.Config.__dataclass_fields__ and not self.ATTENTION
    field = self.SETTLES or ('attention' if is_dot_product else '')
    return _SETTLE[field](cfg) if field else cfg

  def fused_updates(self, cfg: Any, batch: types.Batch) -> Callable[..., Any] | None:
    """Return the function that applies all updates of a batch of `rows` at once; None if this machine has none."""
    return window_updates.choose(cfg, batch) if self.SETTLES == 'update_kernel' else None
