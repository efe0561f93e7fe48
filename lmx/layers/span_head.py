"""Head of XLNet for questions: the start of an answer, its end given the start, and whether there is one.

Yang et al. 2019 (arXiv 1906.08237) name the task and not the head; this is `get_qa_outputs` of zihangdai/xlnet,
function_builder.py. With x the vectors of a row, s that of the place where the answer begins and c that of the
classification token,

  begin  w · x_t
  end    v · norm(tanh(E [x_t; s]))
  none   u · dropout(tanh(A [sum_t softmax(begin)_t x_t; c]))

E [x; s] is formed as E_1 x + E_2 s, so that no row is repeated for the beginnings that are tried.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx.layers.dropout import dropout
from lmx.types import Array, Params

NEVER = -1e9  # score of places that cannot be
EPS = 1e-12  # of layer normalisation, tf.contrib.layers.layer_norm


def init(D: int, std: float, key: Array) -> Params:
  """{'begin', 'end_in', 'end_norm', 'end_out', 'none_in', 'none_out'}, kernels normal with deviation `std`."""
  shapes = {'begin': (D, 1), 'end_in': (2 * D, D), 'end_out': (D, 1), 'none_in': (2 * D, D), 'none_out': (D, 1)}
  params: dict[str, Any] = {'end_norm': {'scale': jnp.ones(D, jnp.float32), 'bias': jnp.zeros(D, jnp.float32)}}
  for (name, shape), k in zip(shapes.items(), jax.random.split(key, len(shapes)), strict=True):
    params[name] = {'kernel': std * jax.random.normal(k, shape, jnp.float32)}
    if name != 'none_out':  # use_bias=False
      params[name]['bias'] = jnp.zeros(shape[1], jnp.float32)
  return params


def _linear(params: Params, x: Array) -> Array:
  return x @ params['kernel'] + params['bias']


def begins(params: Params, x_BTD: Array, among_BT: Array) -> Array:
  """Scores of beginning at each place, (B, T) float32, NEVER where not among those that may be."""
  return jnp.where(among_BT, _linear(params['begin'], x_BTD)[..., 0], NEVER)


def ends(params: Params, x_BTD: Array, begin_BKD: Array, among_BT: Array) -> Array:
  """Scores of ending at each place, (B, K, T) float32, for K beginnings, of which the vectors are given."""
  D, kernel = x_BTD.shape[-1], params['end_in']['kernel']
  x_BKTD = (x_BTD @ kernel[:D])[:, None] + (begin_BKD @ kernel[D:])[:, :, None] + params['end_in']['bias']
  norm = nn.LayerNorm(epsilon=EPS, use_fast_variance=False)
  x_BKTD = jnp.asarray(norm.apply({'params': params['end_norm']}, jnp.tanh(x_BKTD)))
  return jnp.where(among_BT[:, None], _linear(params['end_out'], x_BKTD)[..., 0], NEVER)


def none(params: Params, x_BTD: Array, begins_BT: Array, token_B: Array, rate: float, key: Array | None) -> Array:
  """Log-odds of there being no answer, (B,) float32.

  Args:
    x_BTD: vectors of the row, float32.
    begins_BT: of `begins`.
    token_B: place of the classification token.
    rate: of dropout.
    key: its randomness; None at evaluation.
  """
  begin_BD = jnp.einsum('BT,BTD->BD', jax.nn.softmax(begins_BT), x_BTD)
  token_BD = jnp.take_along_axis(x_BTD, token_B[:, None, None], axis=1)[:, 0]
  x_BD = jnp.tanh(_linear(params['none_in'], jnp.concatenate([begin_BD, token_BD], axis=-1)))
  return (dropout(x_BD, rate, key) @ params['none_out']['kernel'])[:, 0]
