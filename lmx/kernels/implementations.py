"""Fast implementations of the operations of lmx/ops, which the engine's placements carry (lmx/placement.py).

Each supports every platform and shape: it selects a kernel or computes the operation's equation.
"""

from __future__ import annotations

from lmx.kernels import adaptive_softmax, chunked_loss, hash_dropout, mixed_product, recurrent, recurrent_scan
from lmx.kernels import attention as attention_kernels
from lmx.kernels import neighbours as neighbour_kernels
from lmx.kernels import projected_lstm as projected_kernels
from lmx.kernels import relative_attention as relative_kernels
from lmx.kernels import sparse_attention as sparse_kernels
from lmx.kernels import table as table_kernels
from lmx.ops import (
  attention,
  dense,
  dropout,
  neighbours,
  projected_lstm,
  relative_attention,
  rnn,
  softmax_loss,
  sparse_attention,
  table,
)

IMPLEMENTATIONS = (
  (dense.einsum, mixed_product.einsum),
  (dense.dot, mixed_product.dot),
  (dense.dot_with_memory, mixed_product.dot_with_memory),
  (dense.affine, mixed_product.affine),
  (dense.split_affine, mixed_product.split_affine),
  (dropout.drop, hash_dropout.drop),
  (table.take, table_kernels.take),
  (table.select, table_kernels.select),
  (table.split, table_kernels.split),
  (table.append, table_kernels.append),
  (table.product, table_kernels.product),
  (attention.attend, attention_kernels.attend),
  (relative_attention.attend, relative_kernels.attend),
  (relative_attention.distance_vectors, relative_kernels.distance_vectors),
  (relative_attention.choose_vectors, relative_kernels.choose_vectors),
  (relative_attention.distance_products, relative_kernels.distance_products),
  (sparse_attention.attend_heads, sparse_kernels.attend_heads),
  (sparse_attention.softmax, sparse_kernels.softmax),
  (softmax_loss.target_logits, chunked_loss.target_logits),
  (softmax_loss.is_best, chunked_loss.is_best),
  (softmax_loss.token_losses, chunked_loss.map_chunks),
  (softmax_loss.selected_losses, adaptive_softmax.selected_losses),
  (softmax_loss.weighted_sum, chunked_loss.weighted_sum),
  (rnn.loop, recurrent.loop),
  (rnn.scan, recurrent_scan.scan),
  (projected_lstm.loop, projected_kernels.loop),
  (neighbours.gather, neighbour_kernels.gather),
  (neighbours.spread, neighbour_kernels.spread),
)
