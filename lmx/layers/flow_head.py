"""BiDAF's output layer: start of the answer, and end given the expected start.

Seo et al. 2017 (arXiv 1611.01603), section 2, item 6, as released (allenai/bi-att-flow, basic/model.py, lines 121 to
133). G is the attention's result, M the modelling layer, and (.) the elementwise product:

  start  w · [G; M]_t + b
  end    v · [G; M2]_t + c,  M2 = biLSTM([G; M; m; M (.) m]),  m = sum_t softmax(start)_t M_t

The paper's M2 is a biLSTM of M only. Only the released form has the paper's 2.6 million parameters: with 100 cells it
has 1,202,802, and the other 242,802. Dropout of single elements is before the LSTM and both linear layers.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lmx.layers import bidirectional, unit_scaling
from lmx.layers.masked_softmax import masked_softmax
from lmx.ops.dropout import dropout, split
from lmx.types import Array, Params


def init(G: int, M: int, key: Array) -> Params:
  """Initialise {'start', 'lstm', 'end'} for G and M of these widths, as TensorFlow does."""
  linear = lambda: {'kernel': jnp.zeros((G + M, 1), jnp.float32), 'bias': jnp.zeros(1, jnp.float32)}
  lstm = bidirectional.init(tuple(jax.random.split(key)), G + 3 * M, M // 2)
  return unit_scaling.redraw({'start': linear(), 'lstm': lstm, 'end': linear()}, key)


def scores(
  params: Params, g_BTD: Array, m_BTD: Array, valid_BT: Array, rate: float = 0.0, key: Array | None = None
) -> Array:
  """Return the scores of start and end at each position, (B, T, 2) float32.

  Args:
    params: from `init`.
    g_BTD: G, float32.
    m_BTD: M, float32.
    valid_BT: bool, positions that count, which come first.
    rate: dropout rate.
    key: PRNG key of dropout; None at evaluation.
  """
  start_key, lstm_key, end_key = split(key, 3)

  def linear(own: Params, x_BTD: Array, key: Array | None) -> Array:
    x_BTD = dropout(jnp.concatenate([g_BTD, x_BTD], -1), rate, key)
    return (x_BTD @ own['kernel'])[..., 0] + own['bias']

  start_BT = linear(params['start'], m_BTD, start_key)
  mean_BTD = jnp.broadcast_to(jnp.einsum('BT,BTD->BD', masked_softmax(start_BT, valid_BT), m_BTD)[:, None], m_BTD.shape)
  x_BTD = jnp.concatenate([g_BTD, m_BTD, mean_BTD, m_BTD * mean_BTD], -1)
  m2_BTD = bidirectional.layer(params['lstm'], dropout(x_BTD, rate, lstm_key), valid_BT)
  return jnp.stack([start_BT, linear(params['end'], m2_BTD, end_key)], axis=2)
