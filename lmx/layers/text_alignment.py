"""Alignment of two texts by the dot products of their positions, which models of sentence pairs share.

Position t of a text x reads the text y as c_t = sum_s a_ts y_s, with a_t = softmax_s(x_t . y_s): McCann et al. 2017
(arXiv 1708.00107, section 5, biattention), Chen et al. 2017 (arXiv 1609.06038, equations 11 to 13, ESIM) and Wang et
al. 2019 (arXiv 1804.07461, appendix B.1, GLUE's baselines). The other direction is the same function of y and x.
"""

from __future__ import annotations

import jax.numpy as jnp

from lmx.layers.masked_softmax import masked_softmax
from lmx.types import Array, record_attention


def context(x_BTD: Array, y_BSD: Array, valid_BS: Array) -> Array:
  """Return the context c of each position of x in y, (B, T, D) in the type of y; zeros where y is empty.

  Args:
    x_BTD: positions that read, padding included.
    y_BSD: positions that are read.
    valid_BS: False at padding of y.
  """
  dtype = jnp.promote_types(x_BTD.dtype, jnp.float32)
  scores_BTS = jnp.einsum('BTD,BSD->BTS', x_BTD, y_BSD, preferred_element_type=dtype)
  weights_BTS = masked_softmax(scores_BTS, jnp.broadcast_to(valid_BS[:, None], scores_BTS.shape))
  record_attention('cross', lambda: weights_BTS)
  return jnp.einsum('BTS,BSD->BTD', weights_BTS.astype(y_BSD.dtype), y_BSD)
