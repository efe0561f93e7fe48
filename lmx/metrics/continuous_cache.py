"""Continuous cache pointer: Grave, Joulin & Usunier 2017 (arXiv 1612.04426), section 3, as AWD-LSTM uses it.

The output h_i of each of the last `window` steps is stored with its next word w_i+1. With
p_cache(w) = sum over stored i of softmax_i(theta h_t . h_i) [w_i+1 = w], the model's probability becomes
(1 - lam) p(w) + lam p_cache(w) (equations 3 and 5). No parameter is learned.

Deviation: a partly filled cache is used; the code released with AWD-LSTM waits until it is full.

Axes: W window, S the window and the T new steps after it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lmx.types import Array


class Config(NamedTuple):
  """window (number of stored steps), lam (weight of the cache) and theta (flatness: 0 counts words)."""

  window: int
  lam: float
  theta: float


class State(NamedTuple):
  """Cache of each row: outputs, their next words, and the number of filled slots of W."""

  outputs_BWD: Array
  words_BW: Array
  used_B: Array


def config(values: tuple[float, ...]) -> Config | None:
  """Return Config from (window, lam, theta) of `evaluation.cache`, None from ()."""
  return Config(int(values[0]), *values[1:]) if values else None


def init(cfg: Config, batch_size: int, width: int) -> State:
  """Return an empty cache."""
  return State(
    jnp.zeros((batch_size, cfg.window, width), jnp.float32),
    jnp.zeros((batch_size, cfg.window), jnp.int32),
    jnp.zeros(batch_size, jnp.int32),
  )


def mix(cfg: Config, state: State, output_BTD: Array, targets_BT: Array, nll_BT: Array) -> tuple[Array, State]:
  """Mix the cache into the probabilities of the targets.

  Args:
    state: from `init` or the previous call.
    output_BTD: the model's outputs, without dropout.
    targets_BT: their next words.
    nll_BT: the model's negative log-likelihoods of the targets, in nats.

  Returns:
    (negative log-likelihoods of the mixture, state).
  """
  B, T = targets_BT.shape
  output_BTD = output_BTD.astype(jnp.float32)
  keys_BSD = jnp.concatenate([state.outputs_BWD, output_BTD], axis=1)
  words_BS = jnp.concatenate([state.words_BW, targets_BT], axis=1)
  back_TS = (
    cfg.window + jnp.arange(T)[:, None] - jnp.arange(cfg.window + T)[None]
  )  # steps from the stored to the new one
  used_BS = jnp.arange(cfg.window + T)[None] >= cfg.window - state.used_B[:, None]
  cached_BTS = ((back_TS > 0) & (back_TS <= cfg.window))[None] & used_BS[:, None]
  scores_BTS = cfg.theta * jnp.einsum('BTD,BSD->BTS', output_BTD, keys_BSD)
  weights_BTS = jax.nn.softmax(jnp.where(cached_BTS, scores_BTS, -1e30), axis=-1)
  p_BT = jnp.sum(weights_BTS * (words_BS[:, None] == targets_BT[..., None]), axis=-1, where=cached_BTS)
  mixed_BT = -jnp.log((1.0 - cfg.lam) * jnp.exp(-nll_BT) + cfg.lam * p_BT)
  after = State(keys_BSD[:, T:], words_BS[:, T:], jnp.minimum(state.used_B + T, cfg.window))
  return jnp.where(jnp.any(cached_BTS, axis=-1), mixed_BT, nll_BT), after
