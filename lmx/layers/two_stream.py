"""Attention of two streams in any factorisation order (Yang et al. 2019, arXiv 1906.08237, sections 2.3 to 2.6).

The content stream h is an ordinary Transformer's: position t of the text sees the tokens whose place in the order is
not after its own. The query stream g, which has rows only at positions that are predicted, sees those strictly before,
and not its own token. Both use the same weights, and keys and values are made of [memory; h] alone. So both go through
a layer as one array [h; g], T + P rows long; only attention tells them apart.

The order is a number for each position (a batch's `order_BT`): tokens that all may see have 0, the others the places 1,
2, ... in which they are predicted. Positions are counted from the query as in Transformer-XL (relative_block.py),
here in both directions; for rows that are read from their end distances change sign. To the score comes a segment term,
(q + s) · e, e being one of two vectors: for keys of the query's own segment and of any other (section 2.5).

Axes: X = T + P rows of both streams, S = M + T keys, R = S + T - 1 distances, from S - 1 to 1 - T.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx.layers import dropout, masks, relative_attention
from lmx.layers.relative_block import remember
from lmx.layers.transformer import Projection, SelfAttention
from lmx.types import Array, Batch


class Streams(NamedTuple):
  """What all layers have in common.

  Attributes:
    encoding_RD: sinusoids of the distances S - 1 to 1 - T.
    positions_BP: positions of the query stream, or None without one.
    seen_BXS: which keys each row may look at (`visible`), or None for all.
    other_BXS: whether a key is of another segment than the row (`other_segment`), or None without segments.
    count_B: real tokens of each row, or None for all.
    backward_B: rows that are read from their end, or None.
    biases: {'u', 'v', 's'} (H, K) of all layers, None where each has its own.
  """

  encoding_RD: Array
  positions_BP: Array | None = None
  seen_BXS: Array | None = None
  other_BXS: Array | None = None
  count_B: Array | None = None
  backward_B: Array | None = None
  biases: Any = None


def visible(batch: Batch, M: int, filled_B: Array | None) -> Array | None:
  """Which keys each row of [h; g] may look at, (B, X, S); None where all may.

  Args:
    batch: tokens_BT; order_BT with positions_BP, and valid_BT, where there are any.
    M: places of the memory.
    filled_B: how many of its last places hold something; None: all.
  """
  order_BT, valid_BT = batch.get('order_BT'), batch.get('valid_BT')
  if order_BT is None and valid_BT is None and (filled_B is None or not M):
    return None
  B, T = batch['tokens_BT'].shape
  place_BT = jnp.zeros((B, T), jnp.int32) if order_BT is None else order_BT
  seen_BXT = place_BT[:, None] <= place_BT[:, :, None]
  if order_BT is not None:
    own_BP = jnp.take_along_axis(order_BT, batch['positions_BP'], axis=1)
    seen_BXT = jnp.concatenate([seen_BXT, order_BT[:, None] < own_BP[:, :, None]], axis=1)
  if valid_BT is not None:
    seen_BXT &= valid_BT[:, None]
  if not M:
    return seen_BXT
  filled_B = jnp.full(B, M, jnp.int32) if filled_B is None else filled_B
  memory_BM = jnp.arange(M)[None] >= M - filled_B[:, None]
  memory_BXM = jnp.broadcast_to(memory_BM[:, None], (*seen_BXT.shape[:2], M))
  return jnp.concatenate([memory_BXM, seen_BXT], axis=2)


def other_segment(batch: Batch, M: int) -> Array | None:
  """Whether a key is of another segment than the row of [h; g], (B, X, S); None without `types_BT`.

  A memory of M places is of segment 0.
  """
  types_BT = batch.get('types_BT')
  if types_BT is None:
    return None
  rows_BX = types_BT
  if 'order_BT' in batch:
    rows_BX = jnp.concatenate([rows_BX, jnp.take_along_axis(types_BT, batch['positions_BP'], axis=1)], axis=1)
  return rows_BX[:, :, None] != jnp.pad(types_BT, ((0, 0), (M, 0)))[:, None]


def _by_row(shape: str, b_BTHK: Array, r: Array) -> Array:
  """Products with the vectors of distances, of all rows alike (R, H, K) or of each (B, R, H, K)."""
  form = f'BTHK,{"B" if r.ndim == 4 else ""}RHK->{shape}'
  return jnp.einsum(form, b_BTHK, r, preferred_element_type=jnp.float32)


def distances(b_BXHK: Array, r: Array, T: int, S: int, positions_BP: Array | None) -> Array:
  """Scores of distances, each at its key: (B, H, X, S) float32.

  Args:
    b_BXHK: queries of both streams.
    r: vectors of the distances S - 1 to 1 - T, (R, H, K) or (B, R, H, K).
    T: rows of the content stream.
    S: keys.
    positions_BP: positions of the rows of the query stream, or None.
  """
  found_BHTS = relative_attention.shift(_by_row('BHTR', b_BXHK[:, :T], r), S)
  if positions_BP is None:
    return found_BHTS
  rows_BPHR = _by_row('BTHR', b_BXHK[:, T:], r)
  cut = lambda row_HR, position: jax.lax.dynamic_slice_in_dim(row_HR, T - 1 - position, S, axis=1)
  query_BPHS = jax.vmap(jax.vmap(cut))(rows_BPHR, positions_BP)
  return jnp.concatenate([found_BHTS, query_BPHS.swapaxes(1, 2)], axis=2)


class TwoStreamAttention(SelfAttention):
  """Multi-head attention of [h; g] to [memory; h]: kernels qkv (D, 3, H, K), r (D, H, K), out (H, K, D).

  Attributes:
    untied: u, v and s are this layer's own.
    keep: of the content stream the first so many positions are remembered (reuse_len of the release); 0: all.
  """

  untied: bool = True
  keep: int = 0

  @nn.compact
  def __call__(self, x_BXD: Array, look: Any, cache: Any, position_BT: Any, key: Array | None) -> tuple[Array, Any]:
    del position_BT
    P = 0 if look.positions_BP is None else look.positions_BP.shape[1]
    X, D = x_BXD.shape[1:]
    H, K = self.heads, D // self.heads
    T, dtype, scale = X - P, self.drawn['dtype'], K**-0.5
    h_BTD = x_BXD[:, :T]
    own = lambda name, *shape: self.param(name, nn.initializers.normal(self.std), shape).astype(dtype)
    qkv_DCHK = own('qkv', D, 3, H, K)
    project = lambda x_BSD, c: jnp.einsum('BSD,DHK->BSHK', x_BSD, qkv_DCHK[:, c])
    q_BXHK, k_BSHK, v_BSHK = project(x_BXD, 0), project(h_BTD, 1), project(h_BTD, 2)
    if cache is not None:  # projected by itself, as no gradient goes into it
      memory_BMD = cache.astype(dtype)
      k_BSHK = jnp.concatenate([project(memory_BMD, 1), k_BSHK], axis=1)
      v_BSHK = jnp.concatenate([project(memory_BMD, 2), v_BSHK], axis=1)
      kept = self.keep or T
      cache = remember(cache, h_BTD[:, :kept], None if look.count_B is None else jnp.minimum(look.count_B, kept))
    S = k_BSHK.shape[1]
    biases = look.biases if not self.untied else {name: own(name, H, K) for name in ('u', 'v', 's')}
    biased = lambda name: (q_BXHK + biases[name].astype(dtype)) * scale
    product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
    to_r = Projection((D,), (H, K), self.std, **self.drawn, name='r')
    r = to_r(look.encoding_RD)
    if look.backward_B is not None:  # of a distance -d: the sines change sign
      sign_D = jnp.where(jnp.arange(D) < D // 2, -1, 1).astype(dtype)
      r = jnp.where(look.backward_B[:, None, None, None], to_r(look.encoding_RD * sign_D)[None], r[None])
    a_BHXS = product('BXHK,BSHK->BHXS', biased('u'), k_BSHK) + distances(biased('v'), r, T, S, look.positions_BP)
    types_2HK = own('types', 2, H, K)
    if look.other_BXS is not None:
      e_BHX2 = product('BXHK,CHK->BHXC', biased('s'), types_2HK)
      a_BHXS += jnp.where(look.other_BXS[:, None], e_BHX2[..., 1:], e_BHX2[..., :1])
    if look.seen_BXS is not None:
      a_BHXS = jnp.where(look.seen_BXS[:, None], a_BHXS, masks.HIDDEN)
    p_BHXS = jax.nn.softmax(a_BHXS, axis=-1)
    if look.seen_BXS is not None:  # the first in the order may see no key at all, and then not all of them alike
      p_BHXS = jnp.where(look.seen_BXS[:, None], p_BHXS, 0.0)
    p_BHXS = dropout.dropout(p_BHXS, self.rate, key)
    o_BXHK = jnp.einsum('BHXS,BSHK->BXHK', p_BHXS.astype(dtype), v_BSHK)
    return Projection((H, K), (D,), self.residual_std, **self.drawn, name='out')(o_BXHK), cache
