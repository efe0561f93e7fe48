"""word2vec's objectives: negative sampling and hierarchical softmax (see lmx/models/word2vec.py).

Negative sampling (Mikolov et al. 2013, arXiv 1310.4546, equation 4): a pair of a hidden vector h and a centre w costs
  -log s(h . y_w) - sum over k samples of the noise of log s(-h . y_n),
where samples equal to w have weight 0, as in word2vec.c. Sampled for each pair (`pair_negatives_BJTWK`) that is the
formula. Shared by all pairs of an update (`negatives_BJM`, Ji et al. 2016, arXiv 1604.04661) each of the M samples has
the weight k / M, which has the same expectation and becomes matrix products.

Hierarchical softmax (Mikolov et al. 2013, arXiv 1301.3781, section 2.1; Morin & Bengio 2005): a pair costs
-log s(+-h . y_n) at each node n on the path from the root to the leaf w, + where the path goes left.

The terms are sums over pairs (skip-gram) or centres (CBOW), and `lmx.engine.sparse_step` applies the gradient of the
sum, so that an update moves vectors like the papers' sequence of updates of one pair.

Axes: those of the model; W = 2 window context slots of one centre (1 with CBOW), K negatives of a pair, R top nodes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lmx.metrics.metric import LOSS
from lmx.objectives import mean
from lmx.ops import neighbours
from lmx.types import Array, Batch, Output, Params, State

METRICS = (LOSS,)  # per pair or centre, noise words included: comparable only at equal settings
SAMPLES = 'neighbours'
Vectors = tuple[Array, Array, Array]  # hidden vectors, and the output vectors of `rows`


@dataclasses.dataclass(frozen=True)
class Config:
  """No options: the batch determines the loss."""

  reduction = 'tokens'  # not a field: the sparse step only sums


def weights(cfg: Config, batch: Batch) -> dict[str, Array]:
  """Return {'nll': number of centres}."""
  del cfg
  return {'nll': jnp.sum(batch['window_BJT'] > 0, dtype=jnp.float32)}


def loss(
  cfg: Config, model: Any, model_cfg: Any, params: Params, batch: Batch, state: State, key: Array | None = None
) -> Output:
  """Return the negative log-likelihood in nats.

  Args:
    params: {'model': ...}.
    batch: tokens_BJS, documents_BJS, window_BJT, and negatives_BJM, pair_negatives_BJTWK or top_BJTR, path_BJM,
      owner_BJM, sign_BJM (lmx/data/batching/skipgrams.py).
    state: ().

  Returns:
    Output with sums {'nll'} and metrics {'nll': (sum, pairs or centres)}.
  """
  features, state = model.apply(model_cfg, params['model'], batch, state, key)
  first, second = model.outputs(model_cfg, params['model'], batch)
  vectors = features.last_BTD, first, second
  tree = model.hierarchical(batch)
  if model_cfg.architecture == 'cbow':
    uses = model.has_context(batch)
    total = _cbow_tree(batch, vectors, uses) if tree else _cbow_negative(model, model_cfg, batch, vectors, uses)
  else:
    uses = model.near(batch)
    total = (
      _skipgram_tree(model, batch, vectors, uses)
      if tree
      else _skipgram_negative(model, model_cfg, batch, vectors, uses)
    )
  return Output({'nll': total}, {'nll': (total, jnp.sum(uses, dtype=jnp.float32))}, state, features=features)


def predict(cfg: Config, model: Any, model_cfg: Any, params: Params, batch: Batch, state: State) -> tuple[Any, State]:
  """Return the logits of every output row: ({'scores': (B, J, S or T, V) float32}, state)."""
  del cfg
  features, state = model.apply(model_cfg, params['model'], batch, state)
  return {'scores': model.logits(model_cfg, params['model'], features)}, state


def report(cfg: Config, totals: Mapping[str, tuple[float, float]], counts: Mapping[str, int]) -> dict[str, float]:
  """Return {'loss': mean over pairs (skip-gram) or centres (CBOW)}, in nats."""
  del cfg, counts
  return {'loss': mean(totals['nll'])}


def protocol(cfg: Config, data: Any, batches: Any) -> list[str]:
  """Return the metric's protocol: the negative samples, the window and the subsampling, on which the loss depends."""
  del cfg, batches
  options = data.batching
  noise = f'{options.negative} noise words' if options.negative else 'hierarchical softmax'
  return [
    f'loss of a pair (skip-gram) or centre (CBOW), {noise}',
    f'window {options.window}, subsampling {options.sample:g}',
  ]


def shapes(cfg: Config, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]:
  """Return shapes with `length` words a row, updates of 32, window 5 and 32 shared noise words: the data's defaults."""
  del cfg
  T = min(length, 32)
  lead = (batch_size, -(-length // T))
  sizes = {'tokens_BJS': T + 10, 'documents_BJS': T + 10, 'window_BJT': T, 'negatives_BJM': 32}
  structs = {name: jax.ShapeDtypeStruct((*lead, size), jnp.int32) for name, size in sizes.items()}
  return structs | {'weights_BJM': jax.ShapeDtypeStruct((*lead, 32), jnp.float32)}


def _score(h: Any, y: Any, form: str) -> Array:
  return jnp.einsum(form, h, y, preferred_element_type=jnp.float32)


@jax.custom_vjp
def _loss(score: Array, weight: Array, positive: Array) -> Array:
  """Return the sum of -positive log s(score) - (weight - positive) log s(-score); only the scores have a gradient."""
  return _loss_forward(score, weight, positive)[0]


def _loss_forward(score: Any, weight: Any, positive: Any) -> Any:
  # log(1 + e^x) from the logistic function that the gradient needs anyway, in a third of jax.nn.softplus's time.
  other = jax.nn.sigmoid(-score)
  softplus = jnp.maximum(score, -jnp.log(jnp.maximum(other, jnp.finfo(score.dtype).tiny)))
  total = jnp.sum(weight * softplus - positive * score, dtype=jnp.float32)
  return total, weight * (1.0 - other) - positive


def _loss_backward(slope: Any, cotangent: Any) -> Any:
  # A skipped update has cotangent 0 and must get gradient 0 even for non-finite scores.
  return jax.lax.optimization_barrier(jnp.where(cotangent == 0, 0.0, cotangent * slope)), None, None


_loss.defvjp(_loss_forward, _loss_backward)


def _skipgram_negative(model: Any, model_cfg: Any, batch: Batch, vectors: Vectors, near_BJWT: Array) -> Array:
  x_BJSD, y_BJTD, noise = vectors
  pairs_BJST = model.pairs(near_BJWT)
  centre_BJT = model.centres(batch, batch['tokens_BJS'])
  total = _loss(_score(x_BJSD, y_BJTD, '...SD,...TD->...ST'), pairs_BJST, pairs_BJST)
  ids = model.noise(model_cfg, batch)
  if 'negatives_BJM' not in batch:
    T = centre_BJT.shape[-1]
    slot_TW = jnp.arange(T)[:, None] + _neighbours((x_BJSD.shape[-2] - T) // 2)
    return total + _pair_noise(ids, x_BJSD[..., slot_TW, :], noise, near_BJWT.swapaxes(-2, -1), centre_BJT)
  other_BJTM = (centre_BJT[..., None] != ids[..., None, :]).astype(jnp.float32)
  weight_BJSM = neighbours.spread(near_BJWT, other_BJTM * batch['weights_BJM'][..., None, :])
  return total + _loss(_score(x_BJSD, noise, '...SD,...MD->...SM'), weight_BJSM, jnp.float32(0))


def _neighbours(window: int) -> Array:
  """Return the positions of a centre's 2 window neighbours, relative to the first of them."""
  slot_W = jnp.arange(2 * window)
  return slot_W + (slot_W >= window)


def _cbow_negative(model: Any, model_cfg: Any, batch: Batch, vectors: Vectors, live_BJT: Array) -> Array:
  h_BJTD, y_BJTD, noise = vectors
  centre_BJT = model.centres(batch, batch['tokens_BJS'])
  total = _loss(_score(h_BJTD, y_BJTD, '...TD,...TD->...T'), live_BJT, live_BJT)
  ids = model.noise(model_cfg, batch)
  if 'negatives_BJM' not in batch:
    return total + _pair_noise(ids, h_BJTD[..., None, :], noise, live_BJT[..., None], centre_BJT)
  other_BJTM = centre_BJT[..., None] != ids[..., None, :]
  weight_BJTM = other_BJTM * live_BJT[..., None] * batch['weights_BJM'][..., None, :]
  return total + _loss(_score(h_BJTD, noise, '...TD,...MD->...TM'), weight_BJTM, jnp.float32(0))


def _pair_noise(ids_BJTWK: Array, h_BJTWD: Array, y_BJTWKD: Array, uses_BJTW: Array, centre_BJT: Array) -> Array:
  """Return the noise term, with separate samples for each pair."""
  score_BJTWK = _score(h_BJTWD, y_BJTWKD, '...TWD,...TWKD->...TWK')
  weight_BJTWK = uses_BJTW[..., None] * (ids_BJTWK != centre_BJT[..., None, None])
  return _loss(score_BJTWK, weight_BJTWK, jnp.float32(0))


def _skipgram_tree(model: Any, batch: Batch, vectors: Vectors, near_BJWT: Array) -> Array:
  x_BJSD, top_RD, below_BJMD = vectors
  top_BJTR, sign_BJM = batch['top_BJTR'].astype(jnp.float32), batch['sign_BJM'].astype(jnp.float32)
  weight_BJSR = neighbours.spread(near_BJWT, jnp.abs(top_BJTR))
  left_BJSR = neighbours.spread(near_BJWT, jnp.maximum(top_BJTR, 0.0))
  total = _loss(_score(x_BJSD, top_RD, '...SD,RD->...SR'), weight_BJSR, left_BJSR)
  weight_BJSM = model.path_pairs(near_BJWT, batch['owner_BJM']) * jnp.abs(sign_BJM)[..., None, :]
  score_BJSM = _score(x_BJSD, below_BJMD, '...SD,...MD->...SM')
  return total + _loss(score_BJSM, weight_BJSM, weight_BJSM * (sign_BJM > 0)[..., None, :])


def _cbow_tree(batch: Batch, vectors: Vectors, live_BJT: Array) -> Array:
  h_BJTD, top_RD, below_BJMD = vectors
  top_BJTR, sign_BJM = batch['top_BJTR'].astype(jnp.float32), batch['sign_BJM'].astype(jnp.float32)
  weight_BJTR = jnp.abs(top_BJTR) * live_BJT[..., None]
  left_BJTR = jnp.maximum(top_BJTR, 0.0) * live_BJT[..., None]
  total = _loss(_score(h_BJTD, top_RD, '...TD,RD->...TR'), weight_BJTR, left_BJTR)
  # One gather of matrix rows, because XLA's gather along an inner axis is many times slower.
  T = live_BJT.shape[-1]
  first_BJ1 = T * jnp.arange(live_BJT.size // T).reshape(live_BJT.shape[:-1] + (1,))
  take = lambda rows: rows.at[batch['owner_BJM'] + first_BJ1].get(mode='promise_in_bounds')
  weight_BJM = jnp.abs(sign_BJM) * take(live_BJT.reshape(-1))
  score_BJM = _score(take(h_BJTD.reshape(-1, h_BJTD.shape[-1])), below_BJMD, '...D,...D->...')
  return total + _loss(score_BJM, weight_BJM, weight_BJM * (sign_BJM > 0))
