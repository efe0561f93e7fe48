"""Adaptive embeddings and softmax: frequent words wide and cheap to reach, rare words narrow and behind a door.

Grave et al. 2017 (arXiv 1609.04309, section 4) divide the vocabulary, sorted by frequency, into clusters: the first
one's words and one entry for each other cluster form the head, p(word) = p(cluster) p(word | cluster). Baevski & Auli
2019 (arXiv 1809.10853, section 3) give input and output the same tables, cluster i `div_val`^i times narrower than the
first; a projection takes each to the model's width. Without cutoffs it is the usual softmax with tied weights.

The loss is exact whatever the words of a batch are. A tail's scores are formed only for the positions whose word is in
it: these are brought to the front and worked off in blocks of fixed size, as many as there are, in a loop that both
passes run (`_inside`). Shapes are static, no position is dropped, and the cost follows the words that came.

Axes: L positions of a group (all of a batch on one device, those of a row where rows may be divided over devices), G
groups, M positions of a block, E width of the first cluster, I words of a cluster, J width of its table.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_choice, check_range
from lmx.layers import softmax
from lmx.types import Array, Params

TIES = ('all', 'but_first', 'none')
CPU_SCORES, SCORES = 2**24, 2**28  # of a block of a tail, at most, on a CPU and elsewhere
LEAST = 128  # positions of a block, at least where it may have them: fewer would wait for the table's rows


class Cluster(NamedTuple):
  """Words `start` to `end - 1`, in a table of `width` columns."""

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
    cutoffs: where clusters after the first begin; () is one cluster.
    div_val: how many times narrower each cluster is than the one before.
    tie_projections: projections that input and output share: 'all', 'but_first' (the first cluster has two) or 'none'.
      There are projections, one a cluster, where div_val > 1; else one for all, where E is not D, and then only 'none'
      makes a second.
    project_same: a table of a cluster that is as wide as the model has a projection too, where div_val > 1.
  """

  V: int
  D: int
  E: int
  cutoffs: tuple[int, ...] = ()
  div_val: int = 1
  tie_projections: str = 'all'
  project_same: bool = True

  def __post_init__(self):
    check_choice('model.tie_projections', self.tie_projections, TIES)
    check_range('model.div_val', self.div_val, 1)
    edges = [0, *self.cutoffs, *([self.V] if self.V else [])]  # V is 0 until the data says it
    if any(a >= b for a, b in zip(edges, edges[1:], strict=False)):
      raise InputError(f'model.cutoffs {self.cutoffs} must rise, and end below the vocabulary of {self.V} entries')
    if self.E // self.div_val ** len(self.cutoffs) < 1:
      raise InputError(f'model.div_val = {self.div_val} leaves the last of {len(self.cutoffs) + 1} clusters no width')

  @property
  def clusters(self) -> tuple[Cluster, ...]:
    """The clusters, that of the most frequent words first."""
    edges = [0, *self.cutoffs, self.V]
    return tuple(Cluster(edges[i], edges[i + 1], self.E // self.div_val**i) for i in range(len(edges) - 1))

  @property
  def tables(self) -> tuple[tuple[str, int, int], ...]:
    """(ending of the names, rows, columns) of each table: one without an ending where all are as wide."""
    if self.div_val == 1:
      return (('', self.V, self.E),)
    return tuple((f'_{i}', cluster.end - cluster.start, cluster.width) for i, cluster in enumerate(self.clusters))

  def projects(self, i: int, *, again: bool = False) -> bool:
    """Whether table i has a projection, or `again`: the output one of its own."""
    own = self.tie_projections == 'none' or (self.tie_projections == 'but_first' and i == 0 and self.div_val > 1)
    width = self.tables[i][2]
    there = width != self.D or (self.div_val > 1 and self.project_same)
    return there and (own or not again)


def init(
  sizes: Sizes, key: Array, std: float, projection_std: float, *, cluster_std: float | None = None
) -> tuple[Params, Params]:
  """Draw normal tables and projections; biases are 0.

  Args:
    sizes: of the tables.
    key: randomness.
    std: deviation of the tables.
    projection_std: deviation of the projections.
    cluster_std: deviation of the kernel of the clusters' entries in the head; None is `std`.

  Returns:
    input {'tokens' (V, E), 'projection' (E, D)}, with an ending _i for each cluster if these differ in width; output
    {'bias' (V,), 'projection' where it is not that of the input, 'clusters' {'kernel' (clusters - 1, E), 'bias'} where
    there are several}.
  """
  normal = lambda key, shape, std: std * jax.random.normal(key, shape, jnp.float32)
  given: dict[str, Any] = {}
  output: dict[str, Any] = {}
  for i, (ending, rows, columns) in enumerate(sizes.tables):
    keys = jax.random.split(jax.random.fold_in(key, i), 3)
    given[f'tokens{ending}'] = normal(keys[0], (rows, columns), std)
    output[f'bias{ending}'] = jnp.zeros(rows, jnp.float32)
    if sizes.projects(i):
      given[f'projection{ending}'] = normal(keys[1], (columns, sizes.D), projection_std)
    if sizes.projects(i, again=True):
      output[f'projection{ending}'] = normal(keys[2], (columns, sizes.D), projection_std)
  if sizes.cutoffs:
    count = len(sizes.cutoffs)
    deviation = std if cluster_std is None else cluster_std
    kernel = normal(jax.random.fold_in(key, count + 1), (count, sizes.E), deviation)
    output['clusters'] = {'kernel': kernel, 'bias': jnp.zeros(count, jnp.float32)}
  return given, output


def lookup(sizes: Sizes, given: Params, ids_BT: Array, dtype: str) -> Array:
  """Embeddings in the model's width, (B, T, D) in `dtype`."""
  found, start = [], 0
  for ending, rows, _ in sizes.tables:
    x_BTJ = jnp.take(given[f'tokens{ending}'], ids_BT - start, axis=0, mode='clip').astype(dtype)
    if len(sizes.tables) > 1:
      x_BTJ = jnp.where(_within(Cluster(start, start + rows, 0), ids_BT)[..., None], x_BTJ, 0)
    projection_JD = given.get(f'projection{ending}')
    found.append(x_BTJ if projection_JD is None else x_BTJ @ projection_JD.astype(dtype))
    start += rows
  return sum(found[1:], found[0])


def _within(cluster: Cluster, ids_BT: Array) -> Array:
  return (ids_BT >= cluster.start) & (ids_BT < cluster.end)


class _Table(NamedTuple):
  """What scores the entries of a cluster: x · projection^T · rows^T + bias."""

  projection_JD: Array | None
  rows_IJ: Array
  bias_I: Array

  def scores(self, x_BTD: Array) -> Array:
    """(B, T, I) float32."""
    if self.projection_JD is not None:
      x_BTD = x_BTD @ self.projection_JD.astype(x_BTD.dtype).T
    return softmax.tied_logits(x_BTD, self.rows_IJ, self.bias_I)


def _tables(sizes: Sizes, given: Params, output: Params) -> list[_Table]:
  """For the head, with the entries of the other clusters at its end, and for each tail."""
  tables, count = [], len(sizes.clusters)
  if sizes.div_val > 1:
    endings = [f'_{i}' for i in range(count)]
    parts = [(given[f'tokens{ending}'], output[f'bias{ending}']) for ending in endings]
  else:  # `split`, whose gradient is put together, and not added up as that of slices
    endings, words = [''] * count, [cluster.end - cluster.start for cluster in sizes.clusters]
    both = (jax.lax.split(given['tokens'], words), jax.lax.split(output['bias'], words))
    parts = list(zip(*both, strict=True))
  for i, (ending, (rows_IJ, bias_I)) in enumerate(zip(endings, parts, strict=True)):
    if i == 0 and sizes.cutoffs:
      rows_IJ = jnp.concatenate([rows_IJ, output['clusters']['kernel']])
      bias_I = jnp.concatenate([bias_I, output['clusters']['bias']])
    name = f'projection{ending}'
    tables.append(_Table(output.get(name, given.get(name)), rows_IJ, bias_I))
  return tables


def log_probabilities(sizes: Sizes, given: Params, output: Params, x_BTD: Array) -> Array:
  """log p of every word, (B, T, V) float32; without cutoffs the scores themselves."""
  head, *tails = _tables(sizes, given, output)
  head_BTV = head.scores(x_BTD)
  if not tails:
    return head_BTV
  head_BTV = jax.nn.log_softmax(head_BTV)
  first = sizes.clusters[0].end
  parts = [head_BTV[..., :first]]
  for i, tail in enumerate(tails):
    parts.append(head_BTV[..., first + i, None] + jax.nn.log_softmax(tail.scores(x_BTD)))
  return jnp.concatenate(parts, axis=-1)


def nll(
  sizes: Sizes, given: Params, output: Params, x_BTD: Array, targets_BT: Array, *, block: int = 0, together: Any = None
) -> Array:
  """Negative log-likelihood of each target in nats, (B, T) float32.

  Args:
    sizes: of the tables.
    given: the input's parameters.
    output: the output's.
    x_BTD: last hidden layer.
    targets_BT: ids.
    block: positions of a tail that are worked off at a time; 0: a 16th of all, or `LEAST` if that is more, but no more
      than `CPU_SCORES` or `SCORES` allow.
    together: look for a tail's words in all rows at once, which takes fewer blocks; None: on a single device.
  """
  B, T, D = x_BTD.shape
  head, *tails = _tables(sizes, given, output)
  entry_BT = targets_BT
  for i, cluster in enumerate(sizes.clusters[1:]):
    entry_BT = jnp.where(_within(cluster, targets_BT), sizes.clusters[0].end + i, entry_BT)
  score = lambda x_BMD, targets_BM: softmax.cross_entropy(head.scores(x_BMD), targets_BM)
  nll_BT = softmax.in_blocks(score, x_BTD, entry_BT)
  together = jax.device_count() == 1 if together is None else together
  groups = 1 if together else B
  for tail, cluster in zip(tails, sizes.clusters[1:], strict=True):
    most = (CPU_SCORES if jax.default_backend() == 'cpu' else SCORES) // (cluster.end - cluster.start)
    size = min(max(1, (block or min(most, max(LEAST, B * T // 16))) // groups), B * T // groups)
    flat = lambda x: x.reshape(groups, -1, *x.shape[2:])
    local_GL = flat(targets_BT - cluster.start)
    nll_BT += _inside(size, tail, flat(x_BTD), local_GL, flat(_within(cluster, targets_BT))).reshape(B, T)
  return nll_BT


def _score(table: _Table, x_GMD: Array, target_GM: Array, live_GM: Array) -> Array:
  """Negative log-likelihood within a cluster, 0 where not live."""
  return jnp.where(live_GM, softmax.cross_entropy(table.scores(x_GMD), target_GM), 0.0)


def _queue(inside_GL: Array, size: int) -> tuple[Array, Array, Array]:
  """(places of a group with those inside first, padded to whole blocks; how many are inside; blocks needed)."""
  order_GL = jnp.argsort(~inside_GL, axis=1, stable=True)
  count_G = jnp.sum(inside_GL, axis=1)
  padded_GL = jnp.pad(order_GL, ((0, 0), (0, -order_GL.shape[1] % size)))
  return padded_GL, count_G, -(-jnp.max(count_G) // size)


def _block(size: int, p: Array, order_GL: Array, count_G: Array, x_GLD: Array, target_GL: Array):
  """(places, x, targets, live) of block p; a place that is not live lies outside."""
  place_GM = jax.lax.dynamic_slice_in_dim(order_GL, p * size, size, axis=1)
  live_GM = p * size + jnp.arange(size)[None] < count_G[:, None]
  x_GMD = jnp.take_along_axis(x_GLD, place_GM[..., None], axis=1)
  target_GM = jnp.where(live_GM, jnp.take_along_axis(target_GL, place_GM, axis=1), 0)
  return jnp.where(live_GM, place_GM, x_GLD.shape[1]), x_GMD, target_GM, live_GM


def _put(array: Array, place_GM: Array, values: Array) -> Array:
  return array.at[jnp.arange(len(array))[:, None], place_GM].set(values, mode='drop')


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _inside(size: int, table: _Table, x_GLD: Array, target_GL: Array, inside_GL: Array) -> Array:
  """Negative log-likelihood within a cluster of the positions inside it, `size` of each group at a time; else 0."""
  order_GL, count_G, blocks = _queue(inside_GL, size)

  def body(p, nll_GL):
    place_GM, *given = _block(size, p, order_GL, count_G, x_GLD, target_GL)
    return _put(nll_GL, place_GM, _score(table, *given))

  return jax.lax.fori_loop(0, blocks, body, jnp.zeros(target_GL.shape, jnp.float32))


def _inside_forward(size, table, x_GLD, target_GL, inside_GL):
  return _inside(size, table, x_GLD, target_GL, inside_GL), (table, x_GLD, target_GL, inside_GL)


def _inside_backward(size, residuals, g_GL):
  table, x_GLD, target_GL, inside_GL = residuals
  order_GL, count_G, blocks = _queue(inside_GL, size)

  def body(p, carry):
    d_table, dx_GLD = carry
    place_GM, x_GMD, target_GM, live_GM = _block(size, p, order_GL, count_G, x_GLD, target_GL)
    _, back = jax.vjp(lambda table, x_GMD: _score(table, x_GMD, target_GM, live_GM), table, x_GMD)
    more, dx_GMD = back(jnp.take_along_axis(g_GL, jnp.minimum(place_GM, g_GL.shape[1] - 1), axis=1))
    return jax.tree.map(jnp.add, d_table, more), _put(dx_GLD, place_GM, dx_GMD)

  start = jax.tree.map(jnp.zeros_like, (table, x_GLD))
  d_table, dx_GLD = jax.lax.fori_loop(0, blocks, body, start)
  return d_table, dx_GLD, None, None


_inside.defvjp(_inside_forward, _inside_backward)
