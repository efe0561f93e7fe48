"""XLNet's head for question answering: start of the answer, end given the start, and answerability.

Yang et al. 2019 (arXiv 1906.08237) do not describe the head; this is `get_qa_outputs` of zihangdai/xlnet,
function_builder.py. x are the vectors of a row, s is that of the answer's first token, and c that of the
classification token:

  begin  w · x_t
  end    v · norm(tanh(E [x_t; s]))
  none   u · dropout(tanh(A [sum_t softmax(begin)_t x_t; c]))

E [x; s] is computed as E_1 x + E_2 s, so that rows are not repeated for each candidate start.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx.ops.dropout import dropout
from lmx.types import Array, Params

NEVER = -1e9  # score of positions that cannot be chosen


def init(D: int, std: float, key: Array) -> Params:
  """Initialise {'begin', 'end_in', 'end_norm', 'end_out', 'none_in', 'none_out'}, kernels normal with `std`."""
  shapes = {'begin': (D, 1), 'end_in': (2 * D, D), 'end_out': (D, 1), 'none_in': (2 * D, D), 'none_out': (D, 1)}
  params: dict[str, Any] = {'end_norm': {'scale': jnp.ones(D, jnp.float32), 'bias': jnp.zeros(D, jnp.float32)}}
  for (name, shape), k in zip(shapes.items(), jax.random.split(key, len(shapes)), strict=True):
    params[name] = {'kernel': std * jax.random.normal(k, shape, jnp.float32)}
    if name != 'none_out':  # use_bias=False
      params[name]['bias'] = jnp.zeros(shape[1], jnp.float32)
  return params


def _linear(params: Params, x: Array) -> Array:
  return x @ params['kernel'] + params['bias']


def start_scores(params: Params, x_BTD: Array, mask_BT: Array) -> Array:
  """Return the start score of each position, (B, T) float32, NEVER outside `mask_BT`."""
  return jnp.where(mask_BT, _linear(params['begin'], x_BTD)[..., 0], NEVER)


def end_scores(params: Params, x_BTD: Array, begin_BKD: Array, mask_BT: Array, eps: float) -> Array:
  """Return the end score of each position, (B, K, T) float32, for K start positions with vectors `begin_BKD`."""
  D, kernel = x_BTD.shape[-1], params['end_in']['kernel']
  x_BKTD = (x_BTD @ kernel[:D])[:, None] + (begin_BKD @ kernel[D:])[:, :, None] + params['end_in']['bias']
  norm = nn.LayerNorm(epsilon=eps, use_fast_variance=False)
  x_BKTD = jnp.asarray(norm.apply({'params': params['end_norm']}, jnp.tanh(x_BKTD)))
  return jnp.where(mask_BT[:, None], _linear(params['end_out'], x_BKTD)[..., 0], NEVER)


def no_answer_logit(
  params: Params, x_BTD: Array, begins_BT: Array, token_B: Array, rate: float, key: Array | None
) -> Array:
  """Return the log-odds that there is no answer, (B,) float32.

  Args:
    x_BTD: vectors of the row, float32.
    begins_BT: start scores from `start_scores`.
    token_B: position of the classification token.
    rate: dropout rate.
    key: PRNG key of dropout; None at evaluation.
  """
  begin_BD = jnp.einsum('BT,BTD->BD', jax.nn.softmax(begins_BT), x_BTD)
  token_BD = jnp.take_along_axis(x_BTD, token_B[:, None, None], axis=1)[:, 0]
  x_BD = jnp.tanh(_linear(params['none_in'], jnp.concatenate([begin_BD, token_BD], axis=-1)))
  return (dropout(x_BD, rate, key) @ params['none_out']['kernel'])[:, 0]
