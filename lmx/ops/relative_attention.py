"""Relative attention of Transformer-XL and XLNet, over the keys of a memory and of a segment.

Dai et al. 2019 (arXiv 1901.02860), section 3.3, and Yang et al. 2019 (arXiv 1906.08237), section 2.5. For a query at
distance d from a key, the score is the sum of three products, divided by sqrt(K):

  content    (q + u) · k    terms (a) and (c) of Dai et al.
  position   (q + v) · r_d  terms (b) and (d), r_d = W_r R_d, where R are the sinusoids of Vaswani et al. 2017
  segment    (q + s) · e    XLNet only; e is one of two vectors: key and query are in the same segment, or not

The vectors r_d are equal in all rows, (R, H, K), or differ, (B, R, H, K).

Axes: S = M + T keys, R distances, from S - 1 downwards.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lmx.ops import dropout
from lmx.ops.dense import add, dot, einsum
from lmx.ops.operation import Operation
from lmx.ops.visible import MASKED, Segments, Visible
from lmx.types import Array, record_attention

# Implementations, see lmx/kernels/relative_attention.py; 'xla' is the equation.
BACKENDS = ('auto', 'xla', 'blocked', 'rows', 'scan')


def content_scores(q_BTHK: Array, u_HK: Array | None, k_BSHK: Array) -> Array:
  """Return (q + u) · k / sqrt(K), (B, H, T, S) float32; u None is 0."""
  return einsum('BTHK,BSHK->BHTS', scale_queries(q_BTHK, u_HK), k_BSHK)


def position_scores(
  q_BTHK: Array,
  v_HK: Array | None,
  r_RHK: Array,
  keys: int,
  *,
  bias_HR: Array | None = None,
  positions_BP: Array | None = None,
) -> Array:
  """Return (q + v) · r_d / sqrt(K), (B, H, T, S) float32; v None is 0.

  Args:
    q_BTHK: queries, the last of which is at the last key.
    v_HK: bias of the queries.
    r_RHK: vectors of the distances.
    keys: number of keys, S.
    bias_HR: bias of each distance, added to the products.
    positions_BP: positions of P further queries, appended to the others; R is then S + T - 1.
  """
  q_BTHK = scale_queries(q_BTHK, v_HK)
  T = q_BTHK.shape[1] - (0 if positions_BP is None else positions_BP.shape[1])
  scores_BHTR = distance_products(q_BTHK[:, :T], r_RHK)
  if bias_HR is not None:
    scores_BHTR += q_BTHK.shape[-1] ** -0.5 * bias_HR[None, :, None]
  scores_BHTS = shift(scores_BHTR, keys)
  if positions_BP is None:
    return scores_BHTS
  scores_BPHR = distance_products(q_BTHK[:, T:], r_RHK).swapaxes(1, 2)
  window = lambda row_HR, position: jax.lax.dynamic_slice_in_dim(row_HR, T - 1 - position, keys, axis=1)
  scores_BPHS = jax.vmap(jax.vmap(window))(scores_BPHR, positions_BP)
  return jnp.concatenate([scores_BHTS, scores_BPHS.swapaxes(1, 2)], axis=2)


@Operation
def distance_vectors(encoding_RD: Array, kernel_DHK: Array) -> Array:
  """Return r_d = W_r R_d for every distance, (R, H, K), in the type of R_d, which gets no gradient."""
  return dot(jax.lax.stop_gradient(encoding_RD), kernel_DHK, 1)


@Operation
def choose_vectors(condition_B: Array, r_RHK: Array, other_RHK: Array) -> Array:
  """Return the vectors of each row, (B, R, H, K): the first where the condition is True."""
  return jnp.where(condition_B[:, None, None, None], r_RHK, other_RHK)


@Operation
def distance_products(q_BTHK: Array, r_RHK: Array) -> Array:
  """Return q · r_d for every query and distance, (B, H, T, R) float32."""
  r_BRHK = jnp.broadcast_to(r_RHK, (len(q_BTHK), *r_RHK.shape[-3:]))
  return einsum('BTHK,BRHK->BHTR', q_BTHK, r_BRHK)


def shift(x_XTR: Array, S: int | None = None) -> Array:
  """Shift row t left by T - 1 - t, by padding and reshaping (Dai et al. 2019, appendix B), without a gather.

  Column c of a row holds distance R' - c for some R'. Afterwards column s holds the distance of key s. Columns
  shifted in on the right belong to keys after the query, unless R is S + T - 1 or more.

  Returns:
    The first S columns, (..., T, S); all without `S`.
  """
  *X, T, R = x_XTR.shape
  padded = jnp.pad(x_XTR, [(0, 0)] * (len(X) + 1) + [(1, 0)])
  return padded.reshape(*X, R + 1, T)[..., 1:, :].reshape(*X, T, R)[..., :S]


def segment_scores(q_BTHK: Array, segments: Segments) -> Array:
  """Return (q + s) · e / sqrt(K), (B, H, T, S) float32; e[1] where key and query are in different segments."""
  scores_BHT2 = einsum('BTHK,CHK->BHTC', scale_queries(q_BTHK, segments.s_HK), segments.e_2HK)
  other_BTS = segments.query_BT[:, :, None] != segments.key_BS[:, None]
  return jnp.where(other_BTS[:, None], scores_BHT2[..., 1:], scores_BHT2[..., :1])


def scale_queries(q_BTHK: Array, bias_HK: Array | None) -> Array:
  """Return (q + bias) / sqrt(K)."""
  biased_BTHK = q_BTHK if bias_HK is None else add(q_BTHK, bias_HK)
  return biased_BTHK * q_BTHK.shape[-1] ** -0.5


def causal(T: int, S: int, filled_B: Array | None = None, farthest: int | None = None) -> Visible:  # noqa: N803
  """Return the keys that T queries, at the last of S positions, attend to.

  Args:
    T: number of queries.
    S: number of keys.
    filled_B: number of the last positions of the memory, of S - T, that are filled; None: all.
    farthest: maximum distance of a key; None: any.
  """
  last_1T = S - T + jnp.arange(T, dtype=jnp.int32)[None]
  first_BT = jnp.zeros_like(last_1T) if farthest is None else last_1T - farthest
  if filled_B is not None:
    first_BT = jnp.maximum(first_BT, S - T - filled_B[:, None])
  return Visible(jnp.arange(S, dtype=jnp.int32)[None], first_BT, last_1T, (filled_B, farthest))


def weighted_values(
  scores_BHTS: Array,
  mask_BTS: Array | None,
  value_BSHK: Array,
  rate: float = 0.0,
  key: Array | None = None,
  *,
  empty_rows: bool = False,
) -> Array:
  """Return softmax(scores) · values, (B, T, H, K), with dropout of the probabilities.

  A mask of None masks nothing. With `empty_rows` the output of a query whose keys are all masked is 0.
  """
  if mask_BTS is not None:
    scores_BHTS = jnp.where(mask_BTS[:, None], scores_BHTS, MASKED)
  p_BHTS = jax.nn.softmax(scores_BHTS, axis=-1)
  if mask_BTS is not None and empty_rows:
    p_BHTS = jnp.where(mask_BTS[:, None], p_BHTS, 0.0)
  record_attention('self', lambda: p_BHTS)
  p_BHTS = dropout.dropout(p_BHTS, rate, key)
  return jnp.einsum('BHTS,BSHK->BTHK', p_BHTS.astype(value_BSHK.dtype), value_BSHK)


@Operation
def attend(
  q_BTHK: Array,
  k_BSHK: Array,
  value_BSHK: Array,
  r_RHK: Array,
  u_HK: Array,
  v_HK: Array,
  visible: Visible | None = None,
  *,
  segments: Segments | None = None,
  positions_BP: Array | None = None,
  empty_rows: bool = False,
  backend: str = 'auto',
  rate: float = 0.0,
  key: Array | None = None,
) -> Array:
  """Return attention of T queries, or T + P, to S keys: (B, T, H, K).

  Args:
    q_BTHK: queries, the last of which is at the last key.
    k_BSHK: keys.
    value_BSHK: values.
    r_RHK: vectors of the distances.
    u_HK: bias of the queries in content scores.
    v_HK: bias of the queries in position scores.
    visible: keys that each query attends to; None: all.
    segments: segments of queries and keys, and vectors of their scores; None: no such scores.
    positions_BP: positions of P further queries, after the others, as in `position_scores`.
    empty_rows: whether some query may see no key, whose output is then 0.
    backend: one of BACKENDS.
    rate: dropout rate of the probabilities.
    key: PRNG key of dropout; None at evaluation.
  """
  del backend  # this is every backend's equation
  scores_BHTS = content_scores(q_BTHK, u_HK, k_BSHK)
  scores_BHTS += position_scores(q_BTHK, v_HK, r_RHK, k_BSHK.shape[1], positions_BP=positions_BP)
  if segments is not None:
    scores_BHTS += segment_scores(q_BTHK, segments)
  mask_BTS = None if visible is None else visible.mask()
  return weighted_values(scores_BHTS, mask_BTS, value_BSHK, rate, key, empty_rows=empty_rows)
