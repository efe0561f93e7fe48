"""Aggregated co-occurrent feature module (Zhang, Zhang, Wang and Xie 2019, "Co-occurrent Features in Semantic
Segmentation", CVPR, section 3), a multi-head attention among the positions of a feature map.

Queries and keys are one map of the features x. Keys and values may be of feature maps that are averaged over 3x3
positions at every second one, so that there are a quarter as many. For each of H heads and m mixture components, which
divide the query's width m K:

  q_t = W x_t + b,   k_s = W z_s + b,   v_s = V z_s + c,   z = mean over 3x3 of x,
  pi = softmax_i(w_i . mean_t q_t),   a_ts = sum_i pi_i softmax_s(q_ti . k_si / sqrt(m K)),
  y_t = norm(U [sum_s a_ts v_s]) + x_t

a_ts is the probability of the co-occurrent feature s at the target t, a mixture of softmaxes (Yang et al. 2018, arXiv
1711.03953) whose prior pi is of the whole image. With m = 1 there is no prior.

The paper's equations leave these choices open; they follow the released code (`ACFModule` in
zhanghang1989/PyTorch-Encoding): the sizes (K = D / H for values, m K for queries and keys), biases of both maps and
none of U, one prior matrix for all heads, the average without positions of the padding, dropout 0.1 on the softmaxes
before they are mixed, and the root of the whole width m K. `temperature` 'split' divides by the square root of K, the
width of the dot product. W and V are normal with variance 2 / (D + width of a head), the prior uniform in +-1/sqrt(m),
all else uniform in +-1/sqrt(inputs).

Axes: H heads, M mixture components, K width of a component and of a value, T positions of the queries, S of the keys.
"""

from __future__ import annotations

from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from lmx.layers import normalization
from lmx.layers.normalization import Rows
from lmx.ops.dense import dot, einsum
from lmx.ops.dropout import dropout
from lmx.placement import constrain
from lmx.types import Array, Params

TEMPERATURES = ('released', 'split')
Temperature = Literal['released', 'split']


def init(cfg: normalization.Config, D: int, H: int, m: int, key: Array) -> Params:
  """Initialise query {'kernel': (D, H, M, K), 'bias'}, value {'kernel': (D, H, K), 'bias'}, out {'kernel': (H, K, D),
  'norm': see `normalization.init`} and, if m > 1, prior (M, M, K): the logit's weights of each component."""
  K = D // H
  query_key, query_bias_key, value_key, value_bias_key, prior_key, out_key = jax.random.split(key, 6)
  uniform = lambda k, size, *shape: jax.random.uniform(k, shape, jnp.float32, -(size**-0.5), size**-0.5)
  normal = lambda k, size, *shape: (2.0 / size) ** 0.5 * jax.random.normal(k, shape, jnp.float32)
  params: dict[str, Any] = {
    'query': {'kernel': normal(query_key, D + m * K, D, H, m, K), 'bias': uniform(query_bias_key, D, H, m, K)},
    'value': {'kernel': normal(value_key, D + K, D, H, K), 'bias': uniform(value_bias_key, D, H, K)},
    'out': {'kernel': uniform(out_key, H * K, H, K, D), 'norm': normalization.init(cfg, D)},
  }
  if m > 1:
    params['prior'] = uniform(prior_key, m, m, m, K)
  return params


def average_pool(x_BYXD: Array) -> Array:
  """Average-pool 3x3 positions with stride 2; padding is not counted."""
  return nn.avg_pool(x_BYXD, (3, 3), (2, 2), ((1, 1), (1, 1)), count_include_pad=False)


def _project(params: Params, x_BTD: Array) -> Array:
  return dot(x_BTD, params['kernel'], 1) + params['bias'].astype(x_BTD.dtype)


def positions(x_BYXD: Array) -> Array:
  """Flatten feature maps to (B, T, D)."""
  return x_BYXD.reshape(x_BYXD.shape[0], -1, x_BYXD.shape[-1])


def prior(weights_NMK: Array, q_BTHMK: Array) -> Array:
  """Return pi, the probability of each mixture component N of each head, (B, H, N), from the mean query."""
  mean_BHMK = jnp.mean(q_BTHMK.astype(jnp.float32), axis=1)
  return jax.nn.softmax(jnp.einsum('BHMK,NMK->BHN', mean_BHMK, weights_NMK), axis=-1)


def softmaxes(q_BTHMK: Array, k_BSHMK: Array, temperature: Temperature) -> Array:
  """Return the softmax of each mixture component over the keys, (B, H, M, T, S) float32."""
  *_, M, K = q_BTHMK.shape
  width = M * K if temperature == 'released' else K
  scores_BHMTS = einsum('BTHMK,BSHMK->BHMTS', q_BTHMK * width**-0.5, k_BSHMK)
  return jax.nn.softmax(constrain(scores_BHMTS, 'BHMTS'), axis=-1)


def weights(
  params: Params,
  x_BTD: Array,
  keys_BSD: Array,
  *,
  temperature: Temperature = 'released',
  rate: float = 0.0,
  key: Array | None = None,
) -> Array:
  """Return a, the probability of the co-occurrent features of every position, (B, H, T, S) float32.

  Args:
    params: from `init`.
    x_BTD: features of the targets.
    keys_BSD: features of the keys: the targets' or averages of them.
    temperature: 'released' or 'split', see above.
    rate: dropout rate of the softmaxes.
    key: PRNG key of dropout; None at evaluation.
  """
  q_BTHMK, k_BSHMK = _project(params['query'], x_BTD), _project(params['query'], keys_BSD)
  a_BHMTS = dropout(softmaxes(q_BTHMK, k_BSHMK, temperature), rate, key)
  if 'prior' not in params:
    return a_BHMTS[:, :, 0]
  return jnp.einsum('BHMTS,BHM->BHTS', a_BHMTS, prior(params['prior'], q_BTHMK))


def keys(x_BYXD: Array, pooled: bool) -> Array:
  """Return the input features of keys and values, (B, S, D), averaged if `pooled`."""
  return positions(average_pool(x_BYXD) if pooled else x_BYXD)


def apply(
  cfg: normalization.Config,
  params: Params,
  x_BYXD: Array,
  rows: Rows,
  *,
  pooled: bool = True,
  temperature: Temperature = 'released',
  rate: float = 0.1,
  key: Array | None = None,
) -> tuple[Array, Params]:
  """Return (feature maps with their co-occurrent context, running statistics).

  Args:
    cfg: the normalisation.
    params: from `init`.
    x_BYXD: feature maps.
    rows: see `normalization.Rows`.
    pooled: average keys and values over 3x3 positions.
    temperature: see `weights`.
    rate: dropout rate of the softmaxes.
    key: PRNG key of dropout; None at evaluation.
  """
  keys_BSD = keys(x_BYXD, pooled)
  a_BHTS = weights(params, positions(x_BYXD), keys_BSD, temperature=temperature, rate=rate, key=key)
  v_BSHK = _project(params['value'], keys_BSD)
  context_BTHK = jnp.einsum('BHTS,BSHK->BTHK', a_BHTS.astype(v_BSHK.dtype), v_BSHK)
  y_BYXD = dot(context_BTHK, params['out']['kernel'], 2).reshape(x_BYXD.shape)
  y_BYXD, statistics = normalization.normalize(cfg, params['out']['norm'], y_BYXD, rows)
  return y_BYXD + x_BYXD, {'out': {'norm': statistics}}
