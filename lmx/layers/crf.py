"""Linear-chain conditional random field (Lafferty et al. 2001; on top of an LSTM: Huang et al. 2015, arXiv 1508.01991).

The score of a path y over n positions is start[y_1] + sum_t x_t[y_t] + sum_t transitions[y_(t-1), y_t] + end[y_n]; its
probability is the softmax over all paths. Positions that are not valid come last in their row and belong to no path.
The sums over paths are taken by the forward algorithm, the best path by Viterbi's.

Axes: L labels; transitions are from the first axis to the second.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lmx.types import Array, Params

_NEVER = -1e9  # score of what is forbidden: finite, so that no difference of two is NaN


def init(key: Array, labels: int) -> Params:
  """{'transitions': (L, L), 'start': (L,), 'end': (L,)}, normal with deviation 0.1."""
  shapes = {'transitions': (labels, labels), 'start': (labels,), 'end': (labels,)}
  keys = jax.random.split(key, len(shapes))
  return {n: 0.1 * jax.random.normal(k, s, jnp.float32) for k, (n, s) in zip(keys, shapes.items(), strict=True)}


def _time_first(x_BTL: Array, valid_BT: Array) -> tuple[Array, Array]:
  return x_BTL.swapaxes(0, 1).astype(jnp.float32), valid_BT.T


def log_partition(params: Params, x_BTL: Array, valid_BT: Array) -> Array:
  """Logarithm of the sum over all paths of exp(score), (B,)."""
  x_TBL, valid_TB = _time_first(x_BTL, valid_BT)

  def step(total_BL, inputs):
    x_BL, valid_B = inputs
    new_BL = jax.nn.logsumexp(total_BL[:, :, None] + params['transitions'], axis=1) + x_BL
    return jnp.where(valid_B[:, None], new_BL, total_BL), None

  total_BL, _ = jax.lax.scan(step, params['start'] + x_TBL[0], (x_TBL[1:], valid_TB[1:]))
  return jax.nn.logsumexp(total_BL + params['end'], axis=-1)


def score(params: Params, x_BTL: Array, labels_BT: Array, valid_BT: Array) -> Array:
  """Score of one path in each row, (B,)."""
  x_BT = jnp.take_along_axis(x_BTL.astype(jnp.float32), labels_BT[..., None], axis=-1)[..., 0]
  moves_BT = params['transitions'][labels_BT[:, :-1], labels_BT[:, 1:]]
  last_B = jnp.maximum(jnp.sum(valid_BT, axis=1) - 1, 0)
  ends_B = params['start'][labels_BT[:, 0]] + params['end'][jnp.take_along_axis(labels_BT, last_B[:, None], 1)[:, 0]]
  inside = jnp.sum(jnp.where(valid_BT, x_BT, 0.0), axis=1)
  return inside + jnp.sum(jnp.where(valid_BT[:, 1:], moves_BT, 0.0), axis=1) + ends_B


def nll(params: Params, x_BTL: Array, labels_BT: Array, valid_BT: Array) -> Array:
  """Negative log-likelihood of a row's labels in nats, (B,) float32; 0 for a row without valid positions."""
  found_B = log_partition(params, x_BTL, valid_BT) - score(params, x_BTL, labels_BT, valid_BT)
  return jnp.where(jnp.any(valid_BT, axis=1), found_B, 0.0)


def decode(params: Params, x_BTL: Array, valid_BT: Array, allowed: tuple[Array, Array] | None = None) -> Array:
  """The best path of each row, (B, T) int32; 0 where not valid.

  Args:
    params: of `init`.
    x_BTL: scores of the labels.
    valid_BT: bool, valid positions first.
    allowed: (moves (L, L), starts (L,)) bool: what a path may contain; None: everything.
  """
  x_TBL, valid_TB = _time_first(x_BTL, valid_BT)
  moves, start = params['transitions'], params['start']
  if allowed is not None:
    moves, start = jnp.where(allowed[0], moves, _NEVER), jnp.where(allowed[1], start, _NEVER)

  def forward(best_BL, inputs):
    x_BL, valid_B = inputs
    through_BLL = best_BL[:, :, None] + moves
    new_BL = jnp.max(through_BLL, axis=1) + x_BL
    from_BL = jnp.where(valid_B[:, None], jnp.argmax(through_BLL, axis=1), jnp.arange(x_BL.shape[-1]))
    return jnp.where(valid_B[:, None], new_BL, best_BL), from_BL

  best_BL, from_TBL = jax.lax.scan(forward, start + x_TBL[0], (x_TBL[1:], valid_TB[1:]))
  last_B = jnp.argmax(best_BL + params['end'], axis=-1)

  def back(label_B, from_BL):
    before_B = jnp.take_along_axis(from_BL, label_B[:, None], axis=1)[:, 0]
    return before_B, label_B

  first_B, rest_TB = jax.lax.scan(back, last_B, from_TBL, reverse=True)
  path_BT = jnp.concatenate([first_B[None], rest_TB]).T
  return jnp.where(valid_BT, path_BT, 0).astype(jnp.int32)
