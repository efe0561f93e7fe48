"""Attention scores of the RNN models, local windows, and soft and hard attention.

A score function compares each source position with a query. `SCORES` maps names to classes.

Additive and concat are one family of functions with two parameterisations. Bahdanau has a matrix for each side, its own
width and a bias. The query is the state BEFORE the step, the keys are of both directions, and v starts at 0. Luong has
one matrix over both, the width of the query and no bias; the query is the state AFTER the step. His own runs, which did
poorly (perplexity 6.7 to 7.1, footnote 15), fixed half of that matrix at the identity, hence 'concat_identity'.

Window: all of the source ('global'), or D positions on either side of a centre. The centre is t itself ('local_m'), or
S sigmoid(v tanh(W q)) with a Gaussian of standard deviation D / 2 around it ('local_p'), where S is the length of the
row's source (Luong et al., section 3.2, equations 9 and 10). Positions count from 0. Deviation: past the end of the
source local_m stays at its last position, where the paper's window would be empty.

Reading: 'soft' is the mean under the weights, 'hard' one sampled position (Xu et al. 2015, arXiv 1502.03044,
sections 4.1 and 4.2).

Weights are float32 in every compute type. Masked keys get weight exactly 0, also in fully masked rows.

Axes: T queries, S keys; D width of a query, E of a key, A of the alignment, X of the compared vectors.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_choice
from lmx.layers.masked_softmax import masked_softmax
from lmx.types import Array, Params

WINDOWS = ('global', 'local_m', 'local_p')
READINGS = ('soft', 'hard')
Shapes = dict[str, tuple[int, ...]]  # of the parameters, by name
_LEAST = 1e-8  # lower bound of a product of two norms


class Sizes(NamedTuple):
  """Sizes of the parameters of a score.

  Attributes:
    query: D.
    key: E.
    align: A of 'additive'.
    positions: source positions of 'location'.
  """

  query: int
  key: int
  align: int = 0
  positions: int = 0


def _wide(x: Array) -> Array:
  """Cast to at least float32: softmax, windows and sums use it in every compute type."""
  return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def product(x: Array, matrix: Array) -> Array:
  """Return x times a matrix, in the type of x."""
  return jnp.matmul(x, matrix.astype(x.dtype))


def similarity(query_BTE: Array, keys_BSE: Array) -> Array:
  """Return the cosine of each query with each key, (B, T, S) float32 (Graves et al. 2014, equation 6)."""
  query_BTE, keys_BSE = _wide(query_BTE), _wide(keys_BSE)
  dots_BTS = jnp.einsum('BTE,BSE->BTS', query_BTE, keys_BSE)
  squares_BTS = jnp.sum(query_BTE**2, -1)[..., None] * jnp.sum(keys_BSE**2, -1)[:, None]
  return dots_BTS * jax.lax.rsqrt(jnp.maximum(squares_BTS, _LEAST**2))


class Score:
  """Score in three parts, so that key products are computed once, before the loop over queries.

  Attributes:
    needs_equal_widths: query and key must be equally wide.
    has_matrix: the query is multiplied by `matrix` before it is compared.
  """

  needs_equal_widths = False
  has_matrix = False

  def __call__(self, params: Params, query_BTD: Array, keys_BSE: Array) -> Array:
    """Return the scores (B, T, S) of every query and key."""
    query_BTX = query_BTD
    if self.has_matrix:
      query_BTX = product(query_BTD, self.matrix(params, query_BTD.shape[-1]))
    return self.compare(params, query_BTX, self.keys(params, keys_BSE))

  def shapes(self, sizes: Sizes) -> Shapes:
    """Return {name: shape} of the parameters."""
    return {}

  def keys(self, params: Params, keys_BSE: Array) -> Array:
    """Return the projected keys keys_BSX."""
    return keys_BSE

  def matrix(self, params: Params, D: int) -> Array:
    """Return the query's matrix, (D, X), if the score has one."""
    return params['query']

  def compare(self, params: Params, query_BTX: Array, keys_BSX: Array) -> Array:
    """Return the scores (B, T, S) from projected queries and keys: here their dot products."""
    wide = jnp.promote_types(query_BTX.dtype, jnp.float32)
    return jnp.einsum('BTX,BSX->BTS', query_BTX, keys_BSX, preferred_element_type=wide)


class Dot(Score):
  """q k (Luong et al. 2015, arXiv 1508.04025, section 3.1)."""

  needs_equal_widths = True


class ScaledDot(Dot):
  """q k / sqrt(D) (Vaswani et al. 2017, arXiv 1706.03762, equation 1)."""

  def compare(self, params: Params, query_BTX: Array, keys_BSX: Array) -> Array:
    return super().compare(params, query_BTX, keys_BSX) * query_BTX.shape[-1] ** -0.5


class General(Score):
  """q W k (Luong et al., section 3.1)."""

  def shapes(self, sizes: Sizes) -> Shapes:
    return {'matrix': (sizes.query, sizes.key)}

  def keys(self, params: Params, keys_BSE: Array) -> Array:
    return product(keys_BSE, params['matrix'].T)


class PlainCosine(Score):
  """cos(q, k), which has no parameters (Graves et al. 2014, arXiv 1410.5401, equation 6)."""

  needs_equal_widths = True

  def compare(self, params: Params, query_BTX: Array, keys_BSX: Array) -> Array:
    return similarity(query_BTX, keys_BSX)


class Cosine(Score):
  """b(q) cos(W q, k) with the key strength b(q) = log(1 + exp(u q + b)): content addressing.

  Graves et al. 2014, equation 6, and equation 5 for the strength.
  """

  has_matrix = True

  def shapes(self, sizes: Sizes) -> Shapes:
    return {'query': (sizes.query, sizes.key), 'strength': (sizes.query, 1), 'strength_bias': (1,)}

  def matrix(self, params: Params, D: int) -> Array:
    return jnp.concatenate([params['query'], params['strength']], axis=-1)

  def compare(self, params: Params, query_BTX: Array, keys_BSX: Array) -> Array:
    strength_BT1 = jax.nn.softplus(_wide(query_BTX[..., -1:]) + params['strength_bias'])
    return strength_BT1 * similarity(query_BTX[..., :-1], keys_BSX)


class Additive(Score):
  """v tanh(W q + U k + b) (Bahdanau et al. 2015, arXiv 1409.0473, appendix A.1.2).

  The paper omits the bias "to increase readability".
  """

  has_matrix = True

  def shapes(self, sizes: Sizes) -> Shapes:
    A = sizes.align
    return {'query': (sizes.query, A), 'key': (sizes.key, A), 'energy': (A,), 'bias': (A,)}

  def keys(self, params: Params, keys_BSE: Array) -> Array:
    return product(keys_BSE, params['key']) + params['bias'].astype(keys_BSE.dtype)[None, None]

  def compare(self, params: Params, query_BTX: Array, keys_BSX: Array) -> Array:
    # A product and a sum instead of an einsum, so that XLA fuses them with tanh and never stores its output.
    energy_X = params['energy'].astype(keys_BSX.dtype)[None, None, None]
    t_BTSX = jnp.tanh(query_BTX[:, :, None] + keys_BSX[:, None])
    return jnp.sum(_wide(t_BTSX * energy_X), axis=-1)


class Concat(Additive):
  """v tanh(W [q; k]) (Luong et al., section 3.1)."""

  def shapes(self, sizes: Sizes) -> Shapes:
    return {'matrix': (sizes.query + sizes.key, sizes.query), 'energy': (sizes.query,)}

  def keys(self, params: Params, keys_BSE: Array) -> Array:
    return product(keys_BSE, params['matrix'][-keys_BSE.shape[-1] :])

  def matrix(self, params: Params, D: int) -> Array:
    return params['matrix'][:D]


class ConcatIdentity(Concat):
  """v tanh(W q + k): concat with the part of W that multiplies k fixed at the identity."""

  def shapes(self, sizes: Sizes) -> Shapes:
    return {'matrix': (sizes.query, sizes.key), 'energy': (sizes.key,)}

  def keys(self, params: Params, keys_BSE: Array) -> Array:
    return keys_BSE


class Location(Score):
  """W q, one score per source position in the order of the keys (Luong et al., equation 8), up to S positions."""

  has_matrix = True

  def shapes(self, sizes: Sizes) -> Shapes:
    return {'query': (sizes.query, sizes.positions)}

  def compare(self, params: Params, query_BTX: Array, keys_BSX: Array) -> Array:
    S, longest = keys_BSX.shape[1], query_BTX.shape[-1]
    if S > longest:
      raise InputError(
        f'model.S: got {longest} with model.score=location and {S} source positions; set model.S to at least {S}'
      )
    return _wide(query_BTX[..., :S])


SCORES: dict[str, Score] = {
  'cosine': Cosine(),
  'cosine_plain': PlainCosine(),
  'additive': Additive(),
  'concat': Concat(),
  'concat_identity': ConcatIdentity(),
  'location': Location(),
  'general': General(),
  'dot': Dot(),
  'scaled_dot': ScaledDot(),
}


def get(name: str) -> Score:
  """Return the score `name`; raise InputError with the nearest name if there is none."""
  check_choice('model.score', name, SCORES)
  return SCORES[name]


def shapes(name: str, window: str, sizes: Sizes) -> Shapes:
  """Return {name: shape} of the parameters of a score and its window ('centre_query' and 'centre' of local_p).

  Raises:
    InputError: no such score, or it needs equal widths of query and key.
  """
  score = get(name)
  if score.needs_equal_widths and sizes.query != sizes.key:
    raise InputError(
      f'model.score: got {name} with queries of width {sizes.query} and keys of {sizes.key}; expected equal widths'
    )
  found = score.shapes(sizes)
  if window == 'local_p':
    found |= {'centre_query': (sizes.query, sizes.query), 'centre': (sizes.query,)}
  return found


def monotonic_centre(position_BT: Array, count_B: Array) -> Array:
  """Return the centres (B, T) float32 of local_m: the query's own position, or the last one of the source."""
  return jnp.clip(position_BT, 0, jnp.maximum(count_B - 1, 0)[:, None]).astype(jnp.float32)


def predictive_centre(params: Params, hidden_BTD: Array, count_B: Array) -> Array:
  """Return the centres (B, T) float32 of local_p: S sigmoid(v tanh(W q)), equation 9; `hidden_BTD` is W q."""
  hidden_BTD = jnp.tanh(_wide(hidden_BTD))
  share_BT = jax.nn.sigmoid(jnp.sum(hidden_BTD * params['centre'][None, None], axis=-1))
  return count_B[:, None].astype(share_BT.dtype) * share_BT


def window_mask(centre_BT: Array, S: int, reach: int) -> Array:
  """Return True for the positions at most `reach` from the centre, (B, T, S)."""
  return jnp.abs(jnp.arange(S, dtype=centre_BT.dtype) - centre_BT[..., None]) <= reach


def gaussian(centre_BT: Array, S: int, reach: int) -> Array:
  """Return exp(-(s - p)^2 / (2 sigma^2)) with sigma = reach / 2, (B, T, S) float32: equation 10."""
  distance_BTS = jnp.arange(S, dtype=centre_BT.dtype) - centre_BT[..., None]
  return jnp.exp(-(distance_BTS**2) / (2 * (reach / 2) ** 2))


def align(
  window: str,
  scores_BTS: Array,
  valid_BS: Array,
  *,
  centre_BT: Array | None = None,
  reach: int = 0,
) -> Array:
  """Return the attention weights of the source positions, (B, T, S) float32.

  Args:
    window: one of WINDOWS. Local weights are normalised inside the window; local_p multiplies them by the Gaussian
      and, as in the paper, does not normalise again.
    scores_BTS: from a score.
    valid_BS: False at masked keys.
    centre_BT: from `monotonic_centre` or `predictive_centre`, for local windows.
    reach: D, positions on either side of the centre.
  """
  seen_BTS = jnp.broadcast_to(valid_BS[:, None], scores_BTS.shape)
  if window == 'global':
    return masked_softmax(scores_BTS, seen_BTS)
  assert centre_BT is not None
  S = scores_BTS.shape[-1]
  a_BTS = masked_softmax(scores_BTS, seen_BTS & window_mask(centre_BT, S, reach))
  return a_BTS * gaussian(centre_BT, S, reach) if window == 'local_p' else a_BTS


def noise(key: Array, shape: tuple[int, ...]) -> Array:
  """Return Gumbel noise: the argmax of log weights plus noise is a sample from the weights."""
  return jax.random.gumbel(key, shape, jnp.float32)


def draw(a_BTS: Array, noise_BTS: Array | None) -> tuple[Array, Array]:
  """Sample one position for each query: (one-hot weights (B, T, S) without a gradient, its log-probability (B, T)).

  Args:
    a_BTS: weights, which need not sum to 1.
    noise_BTS: from `noise`; None takes the most probable position.
  """
  total_BT1 = jnp.sum(a_BTS, axis=-1, keepdims=True)
  seen_BTS = a_BTS > 0
  log_BTS = jnp.log(jnp.where(seen_BTS, a_BTS, 1.0)) - jnp.log(jnp.where(total_BT1 > 0, total_BT1, 1.0))
  ranked_BTS = jnp.where(seen_BTS, log_BTS if noise_BTS is None else log_BTS + noise_BTS, -jnp.inf)
  best_BTS = jax.nn.one_hot(jnp.argmax(ranked_BTS, axis=-1), a_BTS.shape[-1]) * seen_BTS
  return jax.lax.stop_gradient(best_BTS), jnp.sum(best_BTS * log_BTS, axis=-1)


def entropy(a_BTS: Array) -> Array:
  """Return the entropy of each query's weights in nats, (B, T) float32."""
  total_BT1 = jnp.sum(a_BTS, axis=-1, keepdims=True)
  p_BTS = a_BTS / jnp.where(total_BT1 > 0, total_BT1, 1.0)
  return -jnp.sum(p_BTS * jnp.log(jnp.where(p_BTS > 0, p_BTS, 1.0)), axis=-1)


def unevenness(a_BTS: Array, valid_BS: Array, weights_BT: Array) -> Array:
  """Return the doubly stochastic penalty, (1 - sum_t a_ts)^2 summed over rows and positions (Xu, equation 14)."""
  paid_BS = jnp.einsum('BTS,BT->BS', a_BTS, weights_BT.astype(jnp.float32))
  there_BS = valid_BS & (jnp.max(weights_BT, axis=1, keepdims=True) > 0)
  return jnp.sum(jnp.where(there_BS, (1.0 - paid_BS) ** 2, 0.0))
