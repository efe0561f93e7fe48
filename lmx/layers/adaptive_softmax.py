"""Adaptive embeddings and adaptive softmax: clusters of the vocabulary, with narrower tables for rarer tokens.

Grave et al. 2017 (arXiv 1609.04309, section 4) partition the vocabulary, sorted by frequency, into clusters. The head
has the tokens of the first cluster and one class for each other: p(token) = p(cluster) p(token | cluster). Baevski &
Auli 2019 (arXiv 1809.10853, section 3) tie the tables of input and output; cluster i is `div_val`^i times narrower than
the first, with a projection to the model's width. Without cutoffs it is the usual softmax with tied weights.

`log_probabilities` is the equation. `nll` computes the logits of a tail only at positions whose target is in its
cluster, block by block (lmx/kernels/adaptive_softmax.py); the result is exact.

Axes: E width of the first cluster, I tokens of a cluster, J width of its table.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_choice, check_range
from lmx.kernels import adaptive_softmax as kernels
from lmx.kernels import chunked_loss
from lmx.kernels.mixed_product import dot
from lmx.kernels.table import append, split
from lmx.layers import embedding as tables
from lmx.layers import softmax
from lmx.placement import constrain
from lmx.types import Array, Params, Table

TIES = ('all', 'but_first', 'none')


class Cluster(NamedTuple):
  """Tokens `start` to `end - 1`, in a table of `width` columns."""

  start: int
  end: int
  width: int


@dataclasses.dataclass(frozen=True)
class Sizes:
  """Sizes of the tables.

  Attributes:
    V: vocabulary size.
    D: the model's width.
    E: width of the first cluster's table.
    cutoffs: first token of each cluster but the first; () is one cluster.
    div_val: factor by which each cluster's table is narrower than the previous one.
    tie_projections: projections shared by input and output: 'all', 'but_first' (the first cluster has two) or 'none'.
      With div_val > 1 there is one projection per cluster. Otherwise there is one for all where E is not D, and only
      'none' adds a second.
    project_same: with div_val > 1, also project a cluster's table that has the width of the model.
  """

  V: int
  D: int
  E: int
  cutoffs: tuple[int, ...] = ()
  div_val: int = 1
  tie_projections: str = 'all'
  project_same: bool = True

  def __post_init__(self) -> None:
    check_choice('model.tie_projections', self.tie_projections, TIES)
    check_range('model.div_val', self.div_val, 1)
    edges = [0, *self.cutoffs, *([self.V] if self.V else [])]  # V is 0 until the data gives it
    if any(a >= b for a, b in zip(edges, edges[1:], strict=False)):
      raise InputError(
        f'model.cutoffs: got {self.cutoffs}; expected increasing numbers below the vocabulary size of {self.V}'
      )
    if self.E // self.div_val ** len(self.cutoffs) < 1:
      count = len(self.cutoffs) + 1
      raise InputError(
        f'model.div_val: got {self.div_val}; the table of the last of {count} clusters has width 0; lower it'
      )

  @property
  def clusters(self) -> tuple[Cluster, ...]:
    """The clusters, most frequent tokens first."""
    edges = [0, *self.cutoffs, self.V]
    return tuple(Cluster(edges[i], edges[i + 1], self.E // self.div_val**i) for i in range(len(edges) - 1))

  @property
  def tables(self) -> tuple[tuple[str, int, int], ...]:
    """(name suffix, rows, columns) of each table: one without a suffix where all are equally wide."""
    if self.div_val == 1:
      return (('', self.V, self.E),)
    return tuple((f'_{i}', cluster.end - cluster.start, cluster.width) for i, cluster in enumerate(self.clusters))

  def projects(self, i: int, *, again: bool = False) -> bool:
    """Return True if table i has a projection, or with `again` if the output has its own."""
    own = self.tie_projections == 'none' or (self.tie_projections == 'but_first' and i == 0 and self.div_val > 1)
    width = self.tables[i][2]
    there = width != self.D or (self.div_val > 1 and self.project_same)
    return there and (own or not again)


def init(
  sizes: Sizes, key: Array, std: float, projection_std: float, *, cluster_std: float | None = None
) -> tuple[Params, Params]:
  """Initialise the parameters: tables and projections are normal, biases 0.

  Args:
    sizes: sizes of the tables.
    key: PRNG key.
    std: standard deviation of the tables.
    projection_std: standard deviation of the projections.
    cluster_std: standard deviation of the head's kernel of the cluster classes; None is `std`.

  Returns:
    (input, output). The input has 'tokens' (V, E) and 'projection' (E, D), with a suffix _i for each cluster where
    widths differ. The output has 'bias' (V,), 'projection' where it is not tied to the input's, and with several
    clusters 'clusters' {'kernel' (clusters - 1, E), 'bias'}.
  """
  normal = lambda key, shape, std: std * jax.random.normal(key, shape, jnp.float32)
  embed: dict[str, Any] = {}
  output: dict[str, Any] = {}
  for i, (ending, rows, columns) in enumerate(sizes.tables):
    keys = jax.random.split(jax.random.fold_in(key, i), 3)
    embed[f'tokens{ending}'] = normal(keys[0], (rows, columns), std)
    output[f'bias{ending}'] = jnp.zeros(rows, jnp.float32)
    if sizes.projects(i):
      embed[f'projection{ending}'] = normal(keys[1], (columns, sizes.D), projection_std)
    if sizes.projects(i, again=True):
      output[f'projection{ending}'] = normal(keys[2], (columns, sizes.D), projection_std)
  if sizes.cutoffs:
    count = len(sizes.cutoffs)
    deviation = std if cluster_std is None else cluster_std
    kernel = normal(jax.random.fold_in(key, count + 1), (count, sizes.E), deviation)
    output['clusters'] = {'kernel': kernel, 'bias': jnp.zeros(count, jnp.float32)}
  return embed, output


def lookup(sizes: Sizes, embedding: Params, ids_BT: Array, dtype: str) -> Array:
  """Return embeddings of the model's width, (B, T, D) in `dtype`."""
  parts, start = [], 0
  for ending, rows, _ in sizes.tables:
    x_BTJ = tables.lookup(embedding[f'tokens{ending}'], ids_BT - start, dtype)
    if len(sizes.tables) > 1:
      x_BTJ = jnp.where(_is_in_cluster(Cluster(start, start + rows, 0), ids_BT)[..., None], x_BTJ, 0)
    projection_JD = embedding.get(f'projection{ending}')
    parts.append(x_BTJ if projection_JD is None else constrain(dot(x_BTJ, projection_JD, 1), 'B'))
    start += rows
  return sum(parts[1:], parts[0])


def _is_in_cluster(cluster: Cluster, ids_BT: Array) -> Array:
  return (ids_BT >= cluster.start) & (ids_BT < cluster.end)


class _Table(NamedTuple):
  """Output matrix of a cluster: logits are x · projection^T · rows^T + bias."""

  projection_JD: Array | None
  rows_IJ: Table
  bias_I: Array

  def logits(self, x_BTD: Array) -> Array:
    """Return the logits of the cluster's tokens, (B, T, I) float32."""
    if self.projection_JD is not None:
      x_BTD = constrain(dot(x_BTD, self.projection_JD.T, 1), 'B')
    return softmax.tied_logits(x_BTD, self.rows_IJ, self.bias_I)


def _tables(sizes: Sizes, embedding: Params, output: Params) -> list[_Table]:
  """Return the tables of the head, with the classes of the other clusters at its end, and of each tail."""
  tables, count = [], len(sizes.clusters)
  if sizes.div_val > 1:
    endings = [f'_{i}' for i in range(count)]
    parts = [(embedding[f'tokens{ending}'], output[f'bias{ending}']) for ending in endings]
  else:
    endings, lengths = [''] * count, [cluster.end - cluster.start for cluster in sizes.clusters]
    parts = list(zip(split(embedding['tokens'], lengths), split(output['bias'], lengths), strict=True))
  for i, (ending, (rows_IJ, bias_I)) in enumerate(zip(endings, parts, strict=True)):
    if i == 0 and sizes.cutoffs:
      rows_IJ = append(rows_IJ, output['clusters']['kernel'])
      bias_I = jnp.concatenate([bias_I, output['clusters']['bias']])
    name = f'projection{ending}'
    tables.append(_Table(output.get(name, embedding.get(name)), rows_IJ, bias_I))
  return tables


def log_probabilities(sizes: Sizes, embedding: Params, output: Params, x_BTD: Array) -> Array:
  """Return log p of every token, (B, T, V) float32; without cutoffs the logits."""
  head, *tails = _tables(sizes, embedding, output)
  head_BTV = head.logits(x_BTD)
  if not tails:
    return head_BTV
  head_BTV = jax.nn.log_softmax(head_BTV)
  first = sizes.clusters[0].end
  parts = [head_BTV[..., :first]]
  for i, tail in enumerate(tails):
    parts.append(head_BTV[..., first + i, None] + jax.nn.log_softmax(tail.logits(x_BTD)))
  return jnp.concatenate(parts, axis=-1)


def nll(
  sizes: Sizes,
  embedding: Params,
  output: Params,
  x_BTD: Array,
  targets_BT: Array,
  *,
  block: int = 0,
) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32.

  Args:
    sizes: sizes of the tables.
    embedding: parameters of the embedding.
    output: parameters of the output.
    x_BTD: last hidden layer.
    targets_BT: ids.
    block: positions in a block of a tail, see `lmx.kernels.adaptive_softmax.block_size`.
  """
  head, *tails = _tables(sizes, embedding, output)
  entry_BT = targets_BT
  for i, cluster in enumerate(sizes.clusters[1:]):
    entry_BT = jnp.where(_is_in_cluster(cluster, targets_BT), sizes.clusters[0].end + i, entry_BT)
  head_nll = lambda x_BMD, targets_BM: softmax.cross_entropy(head.logits(x_BMD), targets_BM)
  nll_BT = chunked_loss.map_chunks(head_nll, x_BTD, entry_BT)
  for tail, cluster in zip(tails, sizes.clusters[1:], strict=True):
    inside_BT, local_BT = _is_in_cluster(cluster, targets_BT), targets_BT - cluster.start
    nll_BT += kernels.selected_loss(
      _tail_nll, tail, x_BTD, local_BT, inside_BT, classes=cluster.end - cluster.start, block=block
    )
  return nll_BT


def _tail_nll(table: _Table, x_BTD: Array, targets_BT: Array, inside_BT: Array) -> Array:
  """Return the negative log-likelihood within a cluster, 0 for targets outside it."""
  return jnp.where(inside_BT, softmax.cross_entropy(table.logits(x_BTD), targets_BT), 0.0)
