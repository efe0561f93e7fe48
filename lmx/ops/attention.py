"""Scaled dot-product attention (Vaswani et al. 2017, arXiv 1706.03762, section 3.2.1, equation 1).

softmax(q k^T / sqrt(K)) v, with scores, softmax and its gradient in float32.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lmx.ops import dropout
from lmx.ops.dense import einsum
from lmx.ops.masks import AttentionMask
from lmx.ops.operation import Operation
from lmx.types import Array

# Implementations, see lmx/kernels/attention.py; 'xla' is the equation.
BACKENDS = ('auto', 'xla', 'cudnn', 'triton', 'splash', 'rows', 'blocked', 'chunked', 'numba', 'without_numba')


def probabilities(q_BTHK: Array, k_BSHK: Array, mask: AttentionMask, causal: bool) -> Array:
  """Return softmax(q k^T / sqrt(K)) over the keys that the mask allows, (B, H, T, S) float32."""
  (T, K), S = (q_BTHK.shape[1], q_BTHK.shape[3]), k_BSHK.shape[1]
  scores_BHTS = einsum('BTHK,BSHK->BHTS', q_BTHK * K**-0.5, k_BSHK)
  return jax.nn.softmax(mask.mask_scores(scores_BHTS, causal, (0, T), (0, S)), axis=-1)


@Operation
def attend(
  q_BTHK: Array,
  k_BSHK: Array,
  v_BSHK: Array,
  mask: AttentionMask,
  *,
  causal: bool,
  backend: str = 'auto',
  rate: float = 0.0,
  key: Array | None = None,
) -> Array:
  """Return the attention-weighted mean of the values; with a key, probabilities are dropped at `rate`.

  Args:
    q_BTHK: queries.
    k_BSHK: keys, at positions 0 .. S-1.
    v_BSHK: values, which may have another width.
    mask: attention mask.
    causal: mask keys after the query's position.
    backend: one of `BACKENDS`.
    rate: dropout rate of the probabilities.
    key: PRNG key of dropout; None at evaluation.

  Returns:
    (B, T, H, width of the values) in the type of the queries. The output of a query whose keys are all masked is
    finite but undefined.

  Raises:
    InputError: 'cudnn' was set and cannot run; the message gives the reason.
  """
  del backend  # this is every backend's equation
  p_BHTS = probabilities(q_BTHK, k_BSHK, mask, causal)
  if rate and key is not None:
    p_BHTS = jnp.where(dropout.mask_like(p_BHTS, rate, dropout.seed(key)), p_BHTS / (1.0 - rate), 0.0)
  return jnp.einsum('BHTS,BSHK->BTHK', p_BHTS.astype(v_BSHK.dtype), v_BSHK)
