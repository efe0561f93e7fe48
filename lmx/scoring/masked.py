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
  template = tokenizer.around(loaded.model.SPECIAL_TOKENS)
  ids_T, types_T = template.row(row.ids_T)
  if most and len(ids_T) > most:
    raise InputError(f'{row.name}: got {len(ids_T):,} tokens; expected at most {most:,}, the positions; divide it')
  return Text(ids_T, types_T, len(template.ids[0]))


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
  # Of every masked row R: its text, and the masked positions, of which the first is predicted.
  text_R = np.repeat(np.arange(len(rows)), [len(row.ids_T) for row in rows])
  begin_R = np.concatenate([text.first + np.arange(len(row.ids_T)) for text, row in zip(texts, rows, strict=True)])
  end_R = begin_R + 1
  if word_l2r:
    end_R = np.concatenate([text.first + _word_ends(loaded, row) for text, row in zip(texts, rows, strict=True)])
  lengths_R = np.asarray([len(text.ids_T) for text in texts])[text_R]
  function = compiled(_scored, loaded)
  log_p = np.empty(len(text_R))
  for some, size, length in row_batches.batches(lengths_R, most=window(loaded.run.measured)):
    chosen = [texts[i] for i in text_R[some]]
    tokens_BT = row_batches.pad([text.ids_T for text in chosen], size, length)
    positions_B, end_B = (row_batches.pad([part], 1, size)[0] for part in (begin_R[some], end_R[some]))
    at_BT = np.broadcast_to(np.arange(length), (size, length))
    masked_BT = (at_BT >= positions_B[:, None]) & (at_BT < end_B[:, None])
    batch = {
      'tokens_BT': np.where(masked_BT, np.int32(mask), tokens_BT),
      'types_BT': row_batches.pad([text.types_T for text in chosen], size, length),
      'valid_BT': row_batches.valid(lengths_R[some], size, length),
      'targets_B': np.take_along_axis(tokens_BT, positions_B[:, None], axis=1)[:, 0],
      'positions_B': positions_B,
    }
    log_p[some] = jax.device_get(function(loaded.params['model'], batch))[: len(some)]
    done(len(some))
  return split(log_p, rows)


def split(log_p: np.ndarray, rows: Sequence[Row]) -> list[Scored]:
  """Return the scores of all tokens of all rows, row by row."""
  ends = np.cumsum([len(row.ids_T) for row in rows])[:-1]
  return [Scored(part) for part in np.split(log_p, ends)]


def _word_ends(loaded: RestoredRun, row: Row) -> np.ndarray:
  """Return the end of the word of each token of a row, (T,)."""
  starts_T = loaded.tokenizer.starts_word(row.ids_T, joins_space=True)
  bounds = np.append(np.flatnonzero(starts_T), len(row.ids_T))
  return bounds[np.cumsum(starts_T)]
