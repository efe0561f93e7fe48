"""Scores of a text under ELMo's bidirectional language model (Peters et al. 2018, arXiv 1802.05365, section 3.1).

    forward   sum_t log p(w_t | <S>, w_1 .. w_{t-1})          backward  sum_t log p(w_t | </S>, w_T .. w_{t+1})

Each is a log-likelihood. Their sum, which the model maximises, is the logarithm of no probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lmx.data.tokenizers import word_characters
from lmx.runs.restore import RestoredRun
from lmx.scoring import rows as row_batches
from lmx.scoring.program import compiled
from lmx.scoring.rows import Done, Row, Scored
from lmx.types import Array, Batch, Features, Model, Params


def _scored(model: Model, cfg: Any, params: Params, batch: Batch) -> tuple[Array, Array]:
  """Return the log-probabilities of both directions, (B, T) float32 each, in their reading orders."""
  inputs = {name: batch[name] for name in ('characters_BTC', 'backward_characters_BTC')}
  features, _ = model.apply(cfg, params, inputs, model.init_state(cfg, len(batch['targets_BT'])))
  halves = jnp.split(features.last_BTD, 2, axis=-1)
  targets = batch['targets_BT'], batch['backward_targets_BT']
  first, second = (-model.nll(cfg, params, Features(x), y) for x, y in zip(halves, targets, strict=True))
  return first, second


def score(
  loaded: RestoredRun,
  rows: Sequence[Row],
  *,
  direction: str = 'both',
  done: Done = row_batches.ignore,
) -> list[Scored]:
  """Score rows.

  Args:
    loaded: a run of ELMo.
    rows: texts, `ids_T` the word ids of lmx/data/tokenizers/word_characters.py, with the characters_TC of all but the
      end of the sentence. A row with an end has its score last: </S> forward, <S> backward, or the sum of both.
    direction: 'forward', 'backward' or 'both', the sum.
    done: reports progress.
  """
  size_C = loaded.run.data.characters
  begin_C, end_C = word_characters.character_ids([b'', b''], size_C)
  begin_C[1], end_C[1] = word_characters.BEGIN_SENTENCE, word_characters.END_SENTENCE
  begin_C[2] = end_C[2] = word_characters.END_WORD
  function = compiled(_scored, loaded)
  scored: list[Any] = [None] * len(rows)
  spelled = [np.asarray(row.characters_TC) for row in rows]
  counts = [*map(len, spelled)]  # tokens without the end
  for some, size, length in row_batches.batches([count + 1 for count in counts], classes=2 * loaded.cfg.V):
    chosen = [rows[i] for i in some]
    batch = {}
    for prefix, first_C, last, step in (
      ('', begin_C, word_characters.END, 1),
      ('backward_', end_C, word_characters.BEGIN, -1),
    ):
      read = [np.concatenate([first_C[None], spelled[i][::step]]) for i in some]
      batch[f'{prefix}characters_BTC'] = row_batches.pad(read, size, length)
      batch[f'{prefix}targets_BT'] = row_batches.pad(
        [np.append(row.ids_T[: counts[i]][::step], last) for i, row in zip(some, chosen, strict=True)], size, length
      )
    ways = jax.device_get(function(loaded.params['model'], batch))
    for b, (i, row) in enumerate(zip(some, chosen, strict=True)):
      forward_T, backward_T = (way[b, : len(row.ids_T)].astype(np.float64) for way in ways)
      backward_T[: counts[i]] = backward_T[: counts[i]][::-1].copy()
      scored[i] = Scored({'forward': forward_T, 'backward': backward_T, 'both': forward_T + backward_T}[direction])
    done(sum(len(rows[i].ids_T) for i in some))
  return scored
