"""Several encoder-decoders as one model, which averages their next-token probabilities.

So greedy search, beam search, sampling and forced decoding serve an ensemble unchanged. The features of an ensemble
are its log-probabilities, log mean_k p_k(w | y_<t, source), and its alignment is the mean of its members'. Sutskever et
al. 2014 (arXiv 1409.3215) and Luong et al. 2015 (arXiv 1508.04025) do not state the form of their ensembles. Averaging
probabilities follows Zaremba et al. 2014 (arXiv 1409.2329), section 4.1.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx.types import Array, Batch, Features, Model, State


@dataclasses.dataclass(frozen=True)
class Config:
  """Configs of the members, and the limits that all of them keep.

  Attributes:
    parts: the members' Configs.
    V: vocabulary size.
    T: most positions of a text; None for no limit.
    longest: most tokens of a source; None for no limit.
    source_V: size of the source's vocabulary; 0 is V.
  """

  parts: tuple[Any, ...]
  V: int
  T: int | None = None
  longest: int | None = None
  source_V: int = 0


@dataclasses.dataclass(frozen=True)
class Ensemble(Model):
  """Model with tuples of its members' parameters and states.

  Attributes:
    models: modules of the members.
  """

  models: tuple[Model, ...]

  CAUSAL = True
  READS = 'source'
  __name__ = 'ensemble'

  def init_state(self, cfg: Config, batch_size: int, length: int = 0) -> State:
    """Return the initial state of each member."""
    return tuple(model.init_state(part, batch_size, length) for model, part in zip(self.models, cfg.parts, strict=True))

  def begin(self, cfg: Config, params: Any, batch: Batch, length: int) -> State:
    """Return the state of each member after the source."""
    each = zip(self.models, cfg.parts, params, strict=True)
    return tuple(model.begin(part, tree, batch, length) for model, part, tree in each)

  def apply(
    self, cfg: Config, params: Any, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
  ) -> tuple[Features, State]:
    """Return log-probabilities of every next token (B, T, V) as features, and the members' states."""
    log_p, states = [], []
    for model, part, tree, own in zip(self.models, cfg.parts, params, state, strict=True):
      features, end = model.apply(part, tree, batch, own, key)
      log_p.append(jax.nn.log_softmax(model.logits(part, tree, features)))
      states.append(end)
    return Features(jax.nn.logsumexp(jnp.stack(log_p), axis=0) - jnp.log(len(log_p))), tuple(states)

  def logits(self, cfg: Config, params: Any, features: Features) -> Array:
    """Return the log-probabilities, (B, T, V) float32."""
    del cfg, params
    return features.last_BTD

  def nll(self, cfg: Config, params: Any, features: Features, targets_BT: Array) -> Array:
    """Return the negative log-likelihood of each target in nats, (B, T) float32."""
    del cfg, params
    return -jnp.take_along_axis(features.last_BTD, targets_BT[..., None], axis=-1)[..., 0]

  def alignment(self, cfg: Config, params: Any, batch: Batch) -> Array:
    """Return the mean of the members' attention, (B, T, S) float32."""
    each = zip(self.models, cfg.parts, params, strict=True)
    return jnp.mean(jnp.stack([model.alignment(part, tree, batch) for model, part, tree in each]), axis=0)
