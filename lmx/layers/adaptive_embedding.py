"""Adaptive embeddings, tied to an adaptive softmax or not: narrower tables for rarer tokens.

Baevski & Auli 2019 (arXiv 1809.10853, section 3) tie the tables of input and output; cluster i is `div_val`^i times
narrower than the first, with a projection to the model's width. Without cutoffs it is one table.

Axes: E width of the first cluster, I tokens of a cluster, J width of its table.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_choice, check_range
from lmx.layers import adaptive_softmax
from lmx.layers import embedding as tables
from lmx.layers.adaptive_softmax import Cluster
from lmx.ops.dense import dot
from lmx.placement import constrain
from lmx.types import Array, Params

TIES = ('all', 'but_first', 'none', 'head', 'clusters')


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
      With div_val > 1 there is one projection per cluster. Otherwise there is one for all where E is not D; 'none'
      adds a second for the output, 'head' one for its first cluster only, 'clusters' one for each of its clusters.
    project_same: with div_val > 1, also project a cluster's table that has the width of the model.
    tied: use the tables as the output matrices.
  """

  V: int
  D: int
  E: int
  cutoffs: tuple[int, ...] = ()
  div_val: int = 1
  tie_projections: str = 'all'
  project_same: bool = True
  tied: bool = True

  def __post_init__(self) -> None:
    check_choice('model.tie_projections', self.tie_projections, TIES if self.div_val == 1 else TIES[:3])
    check_range('model.div_val', self.div_val, 1)
    adaptive_softmax.bounds(self.cutoffs, self.V)
    if self.E // self.div_val ** len(self.cutoffs) < 1:
      count = len(self.cutoffs) + 1
      raise InputError(f'model.div_val: got {self.div_val}; the last of {count} clusters would have width 0; lower it')

  @property
  def tables(self) -> tuple[tuple[str, int, int], ...]:
    """(name suffix, rows, columns) of each table; a single one without suffix if all widths are equal."""
    if self.div_val == 1:
      return (('', self.V, self.E),)
    edges = adaptive_softmax.bounds(self.cutoffs, self.V)
    return tuple((f'_{i}', edges[i + 1] - edges[i], self.E // self.div_val**i) for i in range(len(edges) - 1))

  def projects(self, i: int, *, again: bool = False) -> bool:
    """Return True if table i has a projection, or with `again` if the output has its own."""
    own = self.tie_projections == 'none' or (self.tie_projections == 'but_first' and i == 0 and self.div_val > 1)
    there = self.tables[i][2] != self.D or (self.div_val > 1 and self.project_same)
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
    widths differ. The output has 'bias' (V,), 'tokens' and 'projection' where they are not tied to the input's, and
    with several clusters 'clusters' {'kernel' (clusters - 1, E), 'bias'}.
  """
  normal = lambda key, shape, std: std * jax.random.normal(key, shape, jnp.float32)
  embed: dict[str, Any] = {}
  output: dict[str, Any] = {}
  for i, (ending, rows, columns) in enumerate(sizes.tables):
    keys = jax.random.split(jax.random.fold_in(key, i), 3)
    embed[f'tokens{ending}'] = normal(keys[0], (rows, columns), std)
    output[f'bias{ending}'] = jnp.zeros(rows, jnp.float32)
    if not sizes.tied:
      output[f'tokens{ending}'] = normal(jax.random.fold_in(keys[0], 1), (rows, columns), std)
    if sizes.projects(i):
      embed[f'projection{ending}'] = normal(keys[1], (columns, sizes.D), projection_std)
    if sizes.projects(i, again=True):
      output[f'projection{ending}'] = normal(keys[2], (columns, sizes.D), projection_std)
  output_projections = {'head': 1, 'clusters': len(sizes.cutoffs) + 1}.get(sizes.tie_projections, 0)
  for i in range(output_projections if sizes.E != sizes.D else 0):
    output[f'projection_{i}'] = normal(jax.random.fold_in(key, 1000 + i), (sizes.E, sizes.D), projection_std)
  if sizes.cutoffs:
    count, deviation = len(sizes.cutoffs), std if cluster_std is None else cluster_std
    kernel = normal(jax.random.fold_in(key, count + 1), (count, sizes.E), deviation)
    output['clusters'] = {'kernel': kernel, 'bias': jnp.zeros(count, jnp.float32)}
  return embed, output


def lookup(sizes: Sizes, embedding: Params, ids_BT: Array, dtype: str) -> Array:
  """Return embeddings of the model's width, (B, T, D) in `dtype`."""
  parts, start = [], 0
  for ending, rows, _ in sizes.tables:
    x_BTJ = tables.lookup(embedding[f'tokens{ending}'], ids_BT - start, dtype)
    if len(sizes.tables) > 1:
      x_BTJ = jnp.where(((ids_BT >= start) & (ids_BT < start + rows))[..., None], x_BTJ, 0)
    projection_JD = embedding.get(f'projection{ending}')
    parts.append(x_BTJ if projection_JD is None else constrain(dot(x_BTJ, projection_JD, 1), 'B'))
    start += rows
  return sum(parts[1:], parts[0])


def clusters(sizes: Sizes, embedding: Params, output: Params) -> list[Cluster]:
  """Return the output's clusters: the head, ending in the classes of the other clusters, and the tails."""
  read = lambda name: output.get(name, embedding.get(name))
  if sizes.div_val == 1:
    edges = adaptive_softmax.bounds(sizes.cutoffs, sizes.V)
    parts = adaptive_softmax.split_table(read('tokens'), output['bias'], edges, read('projection'))
    parts = [p._replace(projection_JD=output.get(f'projection_{i}', p.projection_JD)) for i, p in enumerate(parts)]
  else:
    endings = [ending for ending, _, _ in sizes.tables]
    parts = [Cluster(read(f'tokens{e}'), output[f'bias{e}'], read(f'projection{e}')) for e in endings]
  return adaptive_softmax.with_classes(parts, output.get('clusters'))
