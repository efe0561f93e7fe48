"""Fast implementations of the operations of lmx/ops, which the engine's placements carry (lmx/placement.py).

Each serves every platform and shape: it chooses a kernel, or computes the operation's equation. Its module is imported
where a model first computes the operation.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Implementation:
  """Function that is imported at its first call.

  Attributes:
    path: its dotted name.
  """

  path: str

  def __call__(self, *args: Any, **named: Any) -> Any:
    """Call the function."""
    return self.function(*args, **named)

  @functools.cached_property
  def function(self) -> Callable[..., Any]:
    """The function itself."""
    module, _, name = self.path.rpartition('.')
    return getattr(importlib.import_module(module), name)


_KERNELS = {  # operation of lmx/ops -> function of lmx/kernels
  'dense.einsum': 'mixed_product.einsum',
  'dense.dot': 'mixed_product.dot',
  'dense.dot_with_memory': 'mixed_product.dot_with_memory',
  'dense.affine': 'mixed_product.affine',
  'dense.split_affine': 'mixed_product.split_affine',
  'dropout.drop': 'hash_dropout.drop',
  'table.take': 'table.take',
  'table.select': 'table.select',
  'table.split': 'table.split',
  'table.append': 'table.append',
  'table.product': 'table.product',
  'attention.attend': 'attention.attend',
  'relative_attention.attend': 'relative_attention.attend',
  'relative_attention.distance_vectors': 'relative_attention.distance_vectors',
  'relative_attention.choose_vectors': 'relative_attention.choose_vectors',
  'relative_attention.distance_products': 'relative_attention.distance_products',
  'sparse_attention.attend_heads': 'sparse_attention.attend_heads',
  'sparse_attention.softmax': 'sparse_attention.softmax',
  'softmax_loss.target_logits': 'chunked_loss.target_logits',
  'softmax_loss.is_best': 'chunked_loss.is_best',
  'softmax_loss.token_losses': 'chunked_loss.map_chunks',
  'softmax_loss.selected_losses': 'adaptive_softmax.selected_losses',
  'softmax_loss.weighted_sum': 'chunked_loss.weighted_sum',
  'rnn.loop': 'recurrent.loop',
  'rnn.scan': 'recurrent_scan.scan',
  'projected_lstm.loop': 'projected_lstm.loop',
  'neighbours.gather': 'neighbours.gather',
  'neighbours.spread': 'neighbours.spread',
}
IMPLEMENTATIONS = tuple(
  (f'lmx.ops.{operation}', Implementation(f'lmx.kernels.{function}')) for operation, function in _KERNELS.items()
)
