"""Pseudo-log-likelihood (PLL) of a text under a masked language model (Salazar et al. 2020, arXiv 1910.14659).

    PLL(w_1 .. w_T) = sum_t log p(w_t | w_1 .. w_{t-1}, [MASK], w_{t+1} .. w_T)                        (equation 1)

`pll_word_l2r` also masks the later tokens of the word of w_t, so that a word of several tokens does not give itself
away (Kauf and Ivanova 2023, arXiv 2305.10588, section 2). Neither is the logarithm of a probability.

A text of T tokens is T rows with one predicted position each; logits are computed at these positions only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lmx.decoding.generate import window
from lmx.errors import InputError
from lmx.runs.restore import RestoredRun
from lmx.scoring import rows as row_batches
from lmx.scoring.program import compiled
from lmx.scoring.rows import Done, Row, Scored
from lmx.types import Array, Batch, Model, Params

TOKENS = 16_384  # positions of a batch, of which only one in a row has logits


class Text(NamedTuple):
  """A text between its special tokens.

  Attributes:
    ids_T: all tokens.
    types_T: their segments.
    first: position of the text's first token.
  """

  ids_T: np.ndarray
  types_T: np.ndarray
  first: int


def read(loaded: RestoredRun, row: Row) -> Text:
  """Return a row as the model reads it in pre-training. Raises InputError if it is longer than its positions."""
  tokenizer, most = loaded.tokenizer, window(loaded.run.measured)
  before, after = (
    {i: segment for name, segment in side.items() if (i := getattr(tokenizer, name)) is not None}
    for side in loaded.model.SPECIAL_TOKENS
  )
  ids_T = np.asarray([*before, *row.ids_T, *after], np.int32)
  if most and len(ids_T) > most:
    raise InputError(f'{row.name}: got {len(ids_T):,} tokens; expected at most {most:,}, the positions; divide it')
  types_T = np.asarray([*before.values(), *[0] * len(row.ids_T), *after.values()], np.int32)
  return Text(ids_T, types_T, len(before))


def _scored(model: Model, cfg: Any, params: Params, batch: Batch) -> Array:
  """Return the log-probability of each row's target at its masked position, (B,) float32."""
  inputs = {name: batch[name] for name in ('tokens_BT', 'types_BT', 'valid_BT')}
  features, _ = model.apply(cfg, params, inputs, ())
  last_B1D = jnp.take_along_axis(features.last_BTD, batch['positions_B'][:, None, None], axis=1)
  return -model.nll(cfg, params, features._replace(last_BTD=last_B1D), batch['targets_B'][:, None])[:, 0]


def score(
  loaded: RestoredRun, rows: Sequence[Row], *, word_l2r: bool = False, done: Done = row_batches.ignore
) -> list[Scored]:
  """Score rows by pseudo-log-likelihood.

  Args:
    loaded: a run of a masked language model.
    rows: texts, without context.
    word_l2r: also mask the rest of the word to the right of the predicted token.
    done: reports progress.

  Raises:
    InputError: the tokenizer has no mask, or a row is longer than the model's positions.
  """
  mask = loaded.tokenizer.mask_id
  if mask is None:
    raise InputError(f'{loaded.workdir}: got a tokenizer without a mask; expected one to score by pseudo-likelihood')
  texts = [read(loaded, row) for row in rows]
  # (row, predicted position, end of what is masked) of every masked row
  masked = [(i, *span) for i, row in enumerate(rows) for span in _spans(loaded, row, word_l2r)]
  function = compiled(_scored, loaded)
  log_p = np.empty(len(masked))
  lengths = [len(texts[i].ids_T) for i, *_ in masked]
  for some, size, length in row_batches.batches(lengths, most=window(loaded.run.measured), tokens=TOKENS):
    read_rows, positions_B, targets_B = [], np.zeros(size, np.int32), np.zeros(size, np.int32)
    for b, (i, t, end) in enumerate(masked[k] for k in some):
      ids_T, _, first = texts[i]
      positions_B[b], targets_B[b] = first + t, ids_T[first + t]
      read_rows.append(np.concatenate([ids_T[: first + t], np.full(end - t, mask), ids_T[first + end :]]))
    batch = {
      'tokens_BT': row_batches.pad(read_rows, size, length),
      'types_BT': row_batches.pad([texts[masked[k][0]].types_T for k in some], size, length),
      'valid_BT': row_batches.valid([lengths[k] for k in some], size, length),
      'targets_B': targets_B,
      'positions_B': positions_B,
    }
    log_p[some] = jax.device_get(function(loaded.params['model'], batch))[: len(some)]
    done(len(some))
  return split(log_p, rows)


def split(log_p: np.ndarray, rows: Sequence[Row]) -> list[Scored]:
  """Return the scores of all tokens of all rows, row by row."""
  ends = np.cumsum([len(row.ids_T) for row in rows])[:-1]
  return [Scored(part) for part in np.split(log_p, ends)]


def _spans(loaded: RestoredRun, row: Row, word_l2r: bool) -> list[tuple[int, int]]:
  """Return (position, end of the masked tokens) for each token of a row."""
  count = len(row.ids_T)
  if not word_l2r:
    return [(t, t + 1) for t in range(count)]
  starts = np.flatnonzero(loaded.tokenizer.starts_word(row.ids_T))
  ends = np.append(starts[1:], count)
  return [(t, int(ends[np.searchsorted(starts, t, 'right') - 1])) for t in range(count)]
