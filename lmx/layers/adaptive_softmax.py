"""Adaptive softmax: clusters of the vocabulary (Grave et al. 2017, arXiv 1609.04309, section 4).

The vocabulary, sorted by frequency, is partitioned into clusters. The head has the tokens of the first cluster and one
class for each other: p(token) = p(cluster) p(token | cluster). Without cutoffs it is the usual softmax.

`nll` computes a tail's logits only at positions whose target is in its cluster.

Axes: I tokens of a cluster, J width of its table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lmx.errors import InputError
from lmx.layers import softmax
from lmx.ops import adaptive_softmax, softmax_loss
from lmx.ops.dense import dot
from lmx.ops.table import append, split
from lmx.placement import constrain
from lmx.types import Array, Params, Table


class Cluster(NamedTuple):
  """Output matrix of a cluster: logits are x · projection^T · rows^T + bias."""

  rows_IJ: Table
  bias_I: Array
  projection_JD: Array | None = None

  def logits(self, x_BTD: Array) -> Array:
    """Return the logits of the cluster's tokens, (B, T, I) float32."""
    if self.projection_JD is not None:
      x_BTD = constrain(dot(x_BTD, self.projection_JD.T, 1), 'B')
    return softmax.tied_logits(x_BTD, self.rows_IJ, self.bias_I)


def bounds(cutoffs: Sequence[int], V: int) -> list[int]:
  """Return the first token of each cluster, and V if it is known (not 0).

  Raises:
    InputError: the cutoffs do not increase, or are not below V.
  """
  edges = [0, *cutoffs, *([V] if V else [])]
  if any(a >= b for a, b in zip(edges, edges[1:], strict=False)):
    raise InputError(
      f'model.cutoffs: got {tuple(cutoffs)}; expected increasing values below the vocabulary size of {V}'
    )
  return edges


def split_table(
  rows_VJ: Table, bias_V: Array, edges: Sequence[int], projection_JD: Array | None = None
) -> list[Cluster]:
  """Split a table of one width into clusters; rows after the last cutoff are padding."""
  lengths = [b - a for a, b in zip(edges, edges[1:], strict=False)]
  parts = zip(split(rows_VJ, lengths), jax.lax.split(bias_V[: edges[-1]], lengths), strict=True)
  return [Cluster(rows_IJ, bias_I, projection_JD) for rows_IJ, bias_I in parts]


def with_classes(clusters: list[Cluster], classes: Params | None) -> list[Cluster]:
  """Append the classes of the other clusters, {'kernel' (clusters - 1, J), 'bias'}, to the first, the head."""
  if classes is None:
    return clusters
  head, *tails = clusters
  rows_IJ, bias_I = append(head.rows_IJ, classes['kernel']), jnp.concatenate([head.bias_I, classes['bias']])
  return [head._replace(rows_IJ=rows_IJ, bias_I=bias_I), *tails]


def log_probabilities(clusters: list[Cluster], x_BTD: Array) -> Array:
  """Return log p of every token, (B, T, V) float32; with one cluster the logits."""
  head, *tails = clusters
  head_BTV = head.logits(x_BTD)
  if not tails:
    return head_BTV
  head_BTV = jax.nn.log_softmax(head_BTV)
  first = len(head.bias_I) - len(tails)
  parts = [head_BTV[..., :first]]
  for i, tail in enumerate(tails):
    parts.append(head_BTV[..., first + i, None] + jax.nn.log_softmax(tail.logits(x_BTD)))
  return jnp.concatenate(parts, axis=-1)


def nll(clusters: list[Cluster], x_BTD: Array, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32.

  Args:
    clusters: the head, from `with_classes`, and the tails.
    x_BTD: last hidden layer.
    targets_BT: ids.
  """
  head, *tails = clusters
  first = start = len(head.bias_I) - len(tails)
  V = first + sum(len(tail.bias_I) for tail in tails)
  class_BT, selected = targets_BT, []
  for i, tail in enumerate(tails):
    local_BT, size = targets_BT - start, len(tail.bias_I)
    inside_BT = (local_BT >= 0) & (local_BT < size)
    class_BT = jnp.where(inside_BT, first + i, class_BT)
    selected.append((tail, local_BT, inside_BT, (start, start + size, V)))
    start += size
  head_nll = lambda x_BMD, targets_BM: softmax.cross_entropy(head.logits(x_BMD), targets_BM)
  nll_BT = softmax_loss.token_losses(head_nll, x_BTD, class_BT)
  for tail, local_BT, inside_BT, words in selected:
    nll_BT += adaptive_softmax.selected_losses(_tail_nll, tail, x_BTD, local_BT, inside_BT, words=words)
  return nll_BT


def _tail_nll(tail: Cluster, x_BTD: Array, targets_BT: Array, inside_BT: Array) -> Array:
  """Return the negative log-likelihood within a cluster, 0 for targets outside it."""
  return jnp.where(inside_BT, softmax.cross_entropy(tail.logits(x_BTD), targets_BT), 0.0)
