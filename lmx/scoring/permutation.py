"""Scores of a text under XLNet (Yang et al. 2019, arXiv 1906.08237), with its query stream.

`left_to_right` takes the factorization order 1 .. T, a log-likelihood: log p(w_1 .. w_T) = sum_t log p(w_t | w_<t)
(equation 3 with the identity). `pll` predicts each token from all others, a pseudo-log-likelihood as in masked.py.

A row is the text alone from left to right, which sees nothing to its right; for `pll` it is text <sep> <cls>, as in
pre-training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from lmx.runs.restore import RestoredRun
from lmx.scoring import masked
from lmx.scoring import rows as row_batches
from lmx.scoring.program import compiled
from lmx.scoring.rows import Done, Row, Scored
from lmx.types import Array, Batch, Features, Model, Params


def _scored(model: Model, cfg: Any, params: Params, batch: Batch) -> Array:
  """Return the log-probability of the target of each predicted position, (B, P) float32."""
  inputs = {name: batch[name] for name in batch if name != 'targets_BP'}
  features, _ = model.apply(cfg, params, inputs, ())
  assert features.query_BPD is not None  # the batch has an order
  return -model.nll(cfg, params, Features(features.query_BPD), batch['targets_BP'])


def left_to_right(loaded: RestoredRun, rows: Sequence[Row], *, done: Done = row_batches.ignore) -> list[Scored]:
  """Score rows in the order of the text; `context_S` is visible to every token."""
  read = [np.concatenate([row.context_S, row.ids_T]).astype(np.int32) for row in rows]
  scored: list[Any] = [None] * len(rows)
  function = compiled(_scored, loaded)
  for some, size, length in row_batches.batches([len(ids) for ids in read], classes=loaded.cfg.V):
    ids = [read[i] for i in some]
    position_BT = np.broadcast_to(np.arange(length, dtype=np.int32), (size, length))
    context_B = np.asarray([len(rows[i].context_S) for i in some] + [0] * (size - len(ids)))
    # 0: visible to all, among them one another; then the rank in the order.
    order_BT = np.maximum(position_BT + 1 - context_B[:, None], 0)
    tokens_BT = row_batches.pad(ids, size, length)
    batch = {
      'tokens_BT': tokens_BT,
      'valid_BT': row_batches.valid([len(one) for one in ids], size, length),
      'order_BT': order_BT.astype(np.int32),
      'positions_BP': position_BT,
      'targets_BP': tokens_BT,
    }
    log_p_BP = jax.device_get(function(loaded.params['model'], batch))
    for b, i in enumerate(some):
      scored[i] = Scored(log_p_BP[b, context_B[b] : len(ids[b])].astype(np.float64))
    done(sum(len(rows[i].ids_T) for i in some))
  return scored


def pseudo(loaded: RestoredRun, rows: Sequence[Row], *, done: Done = row_batches.ignore) -> list[Scored]:
  """Score each token of the rows given all others."""
  texts = [masked.read(loaded, row) for row in rows]
  each = [(i, t) for i, row in enumerate(rows) for t in range(len(row.ids_T))]
  log_p, function = np.empty(len(each)), compiled(_scored, loaded)
  lengths = [len(texts[i].ids_T) for i, _ in each]
  for some, size, length in row_batches.batches(lengths, tokens=masked.TOKENS):
    chosen = [(texts[i], t) for i, t in (each[k] for k in some)]
    positions_B1 = np.zeros((size, 1), np.int32)
    positions_B1[: len(chosen), 0] = [text.first + t for text, t in chosen]
    tokens_BT = row_batches.pad([text.ids_T for text, _ in chosen], size, length)
    batch = {
      'tokens_BT': tokens_BT,
      'types_BT': row_batches.pad([text.types_T for text, _ in chosen], size, length),
      'valid_BT': row_batches.valid([lengths[k] for k in some], size, length),
      'order_BT': (np.arange(length) == positions_B1).astype(np.int32),
      'positions_BP': positions_B1,
      'targets_BP': np.take_along_axis(tokens_BT, positions_B1, axis=1),
    }
    log_p[some] = jax.device_get(function(loaded.params['model'], batch))[: len(some), 0]
    done(len(some))
  return masked.split(log_p, rows)
