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

from lmx.errors import InputError
from lmx.runs.restore import RestoredRun
from lmx.scoring import masked
from lmx.scoring import rows as row_batches
from lmx.scoring.program import compiled
from lmx.scoring.rows import Done, Row, Scored
from lmx.types import Array, Batch, Features, Model, Params

LONGEST = 4096  # tokens that a row may have: all attend to one another in both streams, which takes gigabytes


def check_length(row: Row) -> None:
  """Raise InputError if a row has more than `LONGEST` tokens."""
  if (length := len(row.context_S) + len(row.ids_T)) > LONGEST:
    raise InputError(f'{row.name}: got {length:,} tokens; expected at most {LONGEST:,}, read at once; divide it')


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
  text_R = np.repeat(np.arange(len(rows)), [len(row.ids_T) for row in rows])
  position_R = np.concatenate([text.first + np.arange(len(row.ids_T)) for text, row in zip(texts, rows, strict=True)])
  lengths_R = np.asarray([len(text.ids_T) for text in texts])[text_R]
  log_p, function = np.empty(len(text_R)), compiled(_scored, loaded)
  for some, size, length in row_batches.batches(lengths_R):
    chosen = [texts[i] for i in text_R[some]]
    positions_B1 = row_batches.pad([position_R[some]], 1, size).T
    tokens_BT = row_batches.pad([text.ids_T for text in chosen], size, length)
    batch = {
      'tokens_BT': tokens_BT,
      'types_BT': row_batches.pad([text.types_T for text in chosen], size, length),
      'valid_BT': row_batches.valid(lengths_R[some], size, length),
      'order_BT': (np.arange(length) == positions_B1).astype(np.int32),
      'positions_BP': positions_B1,
      'targets_BP': np.take_along_axis(tokens_BT, positions_B1, axis=1),
    }
    log_p[some] = jax.device_get(function(loaded.params['model'], batch))[: len(some), 0]
    done(len(some))
  return masked.split(log_p, rows)
