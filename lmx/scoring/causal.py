"""Log-likelihood of a text under a causal model: log p(w_1 .. w_T | c) = sum_t log p(w_t | c, w_<t).

The context c is a start symbol, a text, or nothing; then the first token is not predicted, and its score is NaN. The
state (LSTM carry, segment memory) is empty at the start of a row, or that after a stream (`Stream`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lmx.decoding.generate import window
from lmx.errors import InputError
from lmx.ops import softmax_loss
from lmx.runs.restore import RestoredRun
from lmx.scoring import rows as row_batches
from lmx.scoring.program import compiled
from lmx.scoring.rows import Done, Row, Scored
from lmx.types import Array, Batch, Model, Params, State

_SEGMENT = 512  # tokens of a stream that are read at a time


def _scored(
  model: Model, cfg: Any, params: Params, batch: Batch, state: State, *, greedy: bool
) -> tuple[Array, Array | None]:
  """Return the log-probability of each target, (B, T) float32, and with `greedy` whether no token is more probable."""
  if not jax.tree.leaves(state):
    state = model.init_state(cfg, len(batch['tokens_BT']))
  features, _ = model.apply(cfg, params, {name: batch[name] for name in ('tokens_BT', 'valid_BT')}, state)
  log_p_BT = -model.nll(cfg, params, features, batch['targets_BT'])
  best_BT = softmax_loss.is_best(model.logits(cfg, params, features), batch['targets_BT']) if greedy else None
  return log_p_BT, best_BT


def score(
  loaded: RestoredRun,
  rows: Sequence[Row],
  *,
  greedy: bool = False,
  state: State = (),
  done: Done = row_batches.ignore,
) -> list[Scored]:
  """Score rows under a causal model.

  Args:
    loaded: the run.
    rows: texts; each with at least one token.
    greedy: also return whether all tokens of a row are the most probable ones.
    state: of one row after a stream, see `read_stream`; () is the empty state.
    done: reports progress.

  Returns:
    `Scored` of each row.

  Raises:
    InputError: a row is longer than the model's positions.
  """
  most = window(loaded.run.measured)
  for row in rows:
    check_length(row, most)
  read = [np.concatenate([row.context_S, row.ids_T]).astype(np.int32) for row in rows]
  scored_rows: list[Any] = [None] * len(rows)
  function = compiled(_scored, loaded, greedy=greedy)
  lengths = [max(1, len(ids) - 1) for ids in read]
  carried = bool(jax.tree.leaves(state))
  for some, size, length in row_batches.batches(lengths, most=most, classes=loaded.cfg.V):
    ids = [read[i] for i in some]
    batch = {
      'tokens_BT': row_batches.pad([one[:-1] for one in ids], size, length),
      'targets_BT': row_batches.pad([one[1:] for one in ids], size, length),
      'valid_BT': row_batches.valid([len(one) - 1 for one in ids], size, length),
    }
    begin = jax.tree.map(lambda x, size=size: jnp.repeat(x, size, axis=0), state) if carried else ()
    log_p_BT, best_BT = jax.device_get(function(loaded.params['model'], batch, begin))
    for b, i in enumerate(some):
      before, count = len(rows[i].context_S), len(rows[i].ids_T)
      log_p_T = np.full(count, np.nan)
      predicted = slice(max(before - 1, 0), before - 1 + count)
      log_p_T[count - (predicted.stop - predicted.start) :] = log_p_BT[b, predicted]
      scored_rows[i] = Scored(log_p_T, bool(best_BT[b, predicted].all()) if greedy else None)
    done(sum(len(rows[i].ids_T) for i in some))
  return scored_rows


def check_length(row: Row, most: int | None) -> None:
  """Raise InputError if a row is longer than the model's positions; None: any number."""
  length = len(row.context_S) + len(row.ids_T) - 1
  if most and length > most:
    raise InputError(
      f'{row.name}: got {length + 1:,} tokens with the start; expected at most {most + 1:,}, because the model has '
      f'{most:,} positions; divide it'
    )


def _read(model: Model, cfg: Any, params: Params, batch: Batch, state: State) -> State:
  """Return the state after a segment."""
  return model.apply(cfg, params, batch, state)[1]


def read_stream(loaded: RestoredRun, ids: np.ndarray) -> State:
  """Return the state of one row after a stream of tokens, (T,) int32; () of a model that carries none.

  A model with positions has no such state: give it the end of the stream as each row's context.
  """
  model, cfg = loaded.model, loaded.run.measured
  state = model.init_state(cfg, 1)
  if window(cfg) or not jax.tree.leaves(state) or not len(ids):
    return ()

  step = compiled(_read, loaded)
  for start in range(0, len(ids), _SEGMENT):
    part = ids[start : start + _SEGMENT]
    valid_BT = (np.arange(_SEGMENT) < len(part))[None]
    batch = {'tokens_BT': row_batches.pad([part], 1, _SEGMENT), 'valid_BT': valid_BT}
    state = step(loaded.params['model'], batch, state)
  return state
