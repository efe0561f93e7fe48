"""word2vec: CBOW and skip-gram, word vectors that predict neighbouring words.

Papers: Mikolov, Chen, Corrado & Dean 2013, "Efficient Estimation of Word Representations in Vector Space" (arXiv
1301.3781; 2013a): the two architectures of section 3, hierarchical softmax over a Huffman tree
(`data.batching.negative=0`). Mikolov, Sutskever, Chen, Corrado & Dean 2013 (arXiv 1310.4546; 2013b): negative sampling
(equation 4). Where the papers are silent this follows the released word2vec.c: the initialisation, and the gradient of
CBOW, which reaches every context word unscaled though the forward pass takes their mean (`cbow_gradient='c'`; 'mean'
is the true gradient).

As in word2vec.c, skip-gram predicts the centre from each of its context words. Over a corpus the pairs are the same.
The model reads windows instead of sequences (`READS`). `apply` returns one hidden vector per context slot (skip-gram)
or centre (CBOW), and no next-word logits (`WORDS`); the loss is lmx/objectives/skipgram.py.
Both tables are accessed only by row (`rows`, `ROW_TABLES`), so the cost of a training step does not depend on V.
Deviation: the logistic function is exact, where word2vec.c has a table, truncated at +-6.

Axes: J sequential updates of a step (the sparse step passes one at a time, without the axis); T centres of an
update; S = T + 2 window context slots, of which slot t + window is centre t; M noise words of an update, or nodes below
the top of the tree; R top nodes; W = 2 window context slots of a centre; K noise words of a pair.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import check_choice, check_least
from lmx.layers import embedding
from lmx.ops import neighbours
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = False
READS = 'windows'
WORDS = False
OBJECTIVE = 'skipgram'
HEADS = ('output',)
VOCABULARY = ('embed/table',)
ROW_TABLES = ('embed/table', 'output/table')
SETTLES = 'window_updates'


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: vocabulary size.
    D: width of the vectors.
    architecture: 'skipgram' or 'cbow'.
    cbow_gradient: 'c' or 'mean', see the module's docstring.
    dtype: compute type.
    update_kernel: on one CPU, in float32, with shared noise words or a tree, 'numba' computes the updates of a batch in
      one operation (`pip install "lmx[numba]"`) and 'xla' as everywhere else; 'auto' becomes the first if Numba is
      there when a run begins.
  """

  V: int = 10_000
  D: int = 100
  architecture: str = 'skipgram'
  cbow_gradient: str = 'c'
  dtype: str = 'float32'
  update_kernel: str = 'auto'

  N = 0  # no layer between the two tables

  def __post_init__(self) -> None:
    check_choice('model.architecture', self.architecture, ('skipgram', 'cbow'))
    check_choice('model.cbow_gradient', self.cbow_gradient, ('c', 'mean'))
    check_choice('model.update_kernel', self.update_kernel, ('auto', 'xla', 'numba'))
    check_least('model', self, D=1)


VARIANTS = {
  'skipgram': dict(architecture='skipgram', D=300),  # 2013b, section 3
  'cbow': dict(architecture='cbow', D=300),
  'tiny': dict(V=61, D=16),
}


def init(cfg: Config, key: Array) -> Params:
  """Initialise word vectors uniformly in +-1 / (2 D) and output vectors to zero, as word2vec.c does.

  With hierarchical softmax the V - 1 inner nodes have the first rows of the output table; the last row is unused.
  """
  half = 0.5 / cfg.D
  table = jax.random.uniform(key, (cfg.V, cfg.D), jnp.float32, -half, half)
  return {'embed': {'table': table}, 'output': {'table': jnp.zeros((cfg.V, cfg.D), jnp.float32)}}


def rows(cfg: Config, batch: Batch) -> dict[str, Any]:
  """Return the ids of the rows that a batch reads: {'embed/table': (B, J, S), 'output/table': two arrays}.

  With negative sampling the output rows of an update are its centres (B, J, T) and its noise words (`noise`). With
  hierarchical softmax they are the top nodes of the tree (R,) and the lower nodes on the centres' paths (B, J, M).
  """
  tokens_BJS = batch['tokens_BJS']
  if hierarchical(batch):
    parts = jnp.arange(batch['top_BJTR'].shape[-1], dtype=tokens_BJS.dtype), batch['path_BJM']
  else:
    parts = centres(batch, tokens_BJS), noise(cfg, batch)
  return {'embed/table': tokens_BJS, 'output/table': parts}


def hierarchical(batch: Batch) -> bool:
  """Return True if the batch has paths through the tree instead of negative samples; the data selects the output."""
  return 'top_BJTR' in batch


def noise(cfg: Config, batch: Batch) -> Array:
  """Return the noise words: (B, J, M) shared by an update, or (B, J, T, W, K), of which CBOW uses one slot a centre."""
  if 'negatives_BJM' in batch:
    return batch['negatives_BJM']
  found_BJTWK = batch['pair_negatives_BJTWK']
  return found_BJTWK[..., :1, :] if cfg.architecture == 'cbow' else found_BJTWK


def centres(batch: Batch, x_BJS: Array) -> Array:
  """Return the centres among the context slots, (B, J, T)."""
  return _slots(batch, x_BJS, 0)


def _slots(batch: Batch, x_BJS: Array, offset: int) -> Array:
  """Return the slots at `offset` from each centre, (B, J, T)."""
  T = batch['window_BJT'].shape[-1]
  first = (x_BJS.shape[-1] - T) // 2 + offset
  return x_BJS[..., first : first + T]


def near(batch: Batch) -> Array:
  """Return 1 where a neighbour of a centre is in its window, else 0: float32 (B, J, W, T).

  A centre's window (`window_BJT`, 0 for padding) ends with its sentence (`documents_BJS`, 0 for padding).
  """
  documents_BJS, window_BJT = batch['documents_BJS'], batch['window_BJT']
  window = (documents_BJS.shape[-1] - window_BJT.shape[-1]) // 2
  centre_BJT = centres(batch, documents_BJS)
  near_WBJT = [
    (abs(offset) <= window_BJT) & (_slots(batch, documents_BJS, offset) == centre_BJT)
    for offset in range(-window, window + 1)
    if offset
  ]
  # The barrier keeps XLA from recomputing this in every loop that reads it, which took half of the step time.
  return jax.lax.optimization_barrier(jnp.stack(near_WBJT, axis=-2).astype(jnp.float32))


def bounds(near_BJWT: Array) -> tuple[Array, Array]:
  """Return the first and the last slot in the window of each centre, (B, J, T); the centre itself without context."""
  window, T = near_BJWT.shape[-2] // 2, near_BJWT.shape[-1]
  slot_T = jnp.arange(T) + window
  before_BJT, after_BJT = (jnp.sum(x, axis=-2).astype(jnp.int32) for x in jnp.split(near_BJWT, 2, axis=-2))
  return jax.lax.optimization_barrier((slot_T - before_BJT, slot_T + after_BJT))


def pairs(near_BJWT: Array) -> Array:
  """Return 1 where a context slot is in the window of a centre, else 0: float32 (B, J, S, T)."""
  return _pairs(near_BJWT, *bounds(near_BJWT), jnp.arange(near_BJWT.shape[-1]))


def path_pairs(near_BJWT: Array, owner_BJM: Array) -> Array:
  """Return 1 where a context slot is in the window of a path slot's centre, else 0: float32 (B, J, S, M)."""
  first, last = (jnp.take_along_axis(x, owner_BJM, axis=-1, mode='promise_in_bounds') for x in bounds(near_BJWT))
  return _pairs(near_BJWT, first, last, owner_BJM)


def _pairs(near_BJWT: Array, first: Array, last: Array, centre: Array) -> Array:
  W, T = near_BJWT.shape[-2:]
  slot_S1 = jnp.arange(T + W)[:, None]
  is_pair = (slot_S1 >= first[..., None, :]) & (slot_S1 <= last[..., None, :])
  is_pair &= slot_S1 != centre[..., None, :] + W // 2
  return jax.lax.optimization_barrier(is_pair.astype(jnp.float32))


def has_context(batch: Batch) -> Array:
  """Return 1 where a centre has a context word, else 0: float32 (B, J, T); the nearest slots decide."""
  documents_BJS = batch['documents_BJS']
  previous, centre, following = (_slots(batch, documents_BJS, offset) for offset in (-1, 0, 1))
  has_BJT = (batch['window_BJT'] > 0) & ((previous == centre) | (following == centre))
  return jax.lax.optimization_barrier(has_BJT.astype(jnp.float32))


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Return the hidden vectors: with skip-gram the context words', with CBOW the mean of each centre's context.

  Args:
    batch: tokens_BJS, documents_BJS, window_BJT.
    state: ().
    key: unused, there is no dropout.
    all_layers: also return the vectors of the context words.

  Returns:
    (Features with (B, J, S, D), or (B, J, T, D) with CBOW; ()).
  """
  del key
  x_BJSD = embedding.lookup(params['embed']['table'], batch['tokens_BJS'], cfg.dtype)
  h = x_BJSD
  if cfg.architecture == 'cbow':
    near_BJWT = near(batch).astype(x_BJSD.dtype)
    count_BJT = jnp.maximum(jnp.sum(near_BJWT, axis=-2), 1)
    sum_BJTD = neighbours.gather(near_BJWT, x_BJSD)
    h = sum_BJTD / count_BJT[..., None]
    if cfg.cbow_gradient == 'c':
      h = jax.lax.stop_gradient(h) + (sum_BJTD - jax.lax.stop_gradient(sum_BJTD))
  return Features(h, layers=(x_BJSD, h) if all_layers else None), state


def outputs(cfg: Config, params: Params, batch: Batch) -> tuple[Array, Array]:
  """Return the output vectors of `rows`, (..., D) each."""
  return embedding.lookup(params['output']['table'], rows(cfg, batch)['output/table'], cfg.dtype)


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of every output row, a word or a node: (..., V) float32."""
  table_VD = params['output']['table'][: cfg.V].astype(features.last_BTD.dtype)
  return jnp.einsum('...D,VD->...V', features.last_BTD, table_VD, preferred_element_type=jnp.float32)


def nll(cfg: Config, params: Params, features: Features, targets: Array) -> Array:
  """Return -log sigmoid(logit) of one output row for each hidden vector, in nats: float32, shaped like `targets`."""
  y = embedding.lookup(params['output']['table'], targets, cfg.dtype)
  score = jnp.einsum('...D,...D->...', features.last_BTD, y, preferred_element_type=jnp.float32)
  return jax.nn.softplus(-score)
