"""Defaults of a model that depend on the kernels of a machine."""

from __future__ import annotations

from typing import Any

from lmx import types
from lmx.kernels import attention


class Model(types.Model):
  """Model whose field `attention`, if it has one, selects a backend of dot-product attention."""

  def settle(self, cfg: Any, /) -> Any:
    """Return the Config with the attention backend of this machine in place of 'auto'; see `attention.settle`."""
    is_dot_product = 'attention' in self.Config.__dataclass_fields__ and not self.ATTENTION
    return attention.settle(cfg) if is_dot_product else cfg
