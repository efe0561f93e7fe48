"""Rows of tokens in batches of similar length, for all methods of scoring."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

Done = Callable[[int], object]  # is called with the number of tokens scored since the last call

_TOKENS = 16_384  # positions of a batch
_CPU_TOKENS = 2048  # on a CPU, whose caches hold the activations of as many
_LOGITS = 1 << 25  # elements of a batch's logits
_STEP = 4  # rows are padded to a multiple of this, or to the next eighth of a power of two
_MANY = 1 << 19  # positions of rows of similar length from which they are not padded: that costs more than compiling


class Row(NamedTuple):
  """A text as a model reads it.

  Attributes:
    ids_T: tokens to score.
    context_S: tokens that are read before them and not scored.
    name: of the text, for messages, such as 'line 3'.
    words: the tokens in print, for models that read words by characters; None: the tokenizer prints the ids.
    characters_TC: the characters of these words but the end of the text, else None.
    starts_T: whether each of these words starts a word of the text; they may be subwords.
  """

  ids_T: np.ndarray
  context_S: np.ndarray = np.zeros(0, np.int32)
  name: str = ''
  words: Sequence[str] | None = None
  characters_TC: np.ndarray | None = None
  starts_T: np.ndarray | None = None


class Scored(NamedTuple):
  """Scores of the tokens of a row.

  Attributes:
    log_p_T: log-probability of each token in nats, float64; NaN for a token that the method does not predict.
    greedy: every predicted token is the most probable one; None where that was not asked for.
  """

  log_p_T: np.ndarray
  greedy: bool | None = None

  @property
  def sum(self) -> float:
    """Sum over the predicted tokens in nats, rounded once, so that equal terms in any order have equal sums."""
    return math.fsum(self.log_p_T[~np.isnan(self.log_p_T)])


def ignore(tokens: int) -> None:
  """Report no progress."""
  del tokens


def padded_length(length: int, most: int | None = None) -> int:
  """Return the length that a row is padded to: at most an eighth longer beyond 32, so that few shapes are compiled.

  Args:
    length: tokens of the row.
    most: positions of the model; None: any number.
  """
  step = max(_STEP, 1 << max(0, (length - 1).bit_length() - 3))
  padded = -(-length // step) * step
  return min(padded, most) if most else padded


def batches(
  lengths: Sequence[int] | np.ndarray, *, most: int | None = None, classes: int = 1
) -> Iterator[tuple[np.ndarray, int, int]]:
  """Yield (indices of the rows of a batch, number of its rows, its length), rows of similar length together.

  The number of rows is a power of two, and equal for all batches of a length; rows beyond the indices are padding.

  Args:
    lengths: tokens of each row.
    most: positions of the model; None: any number.
    classes: logits of a row, for all positions with a logit together divided by its length.
  """
  tokens = _CPU_TOKENS if jax.default_backend() == 'cpu' else _TOKENS
  padded = _padded_lengths(np.maximum(1, np.asarray(lengths, np.int64)), most)
  for length in np.unique(padded).tolist():
    indices = np.flatnonzero(padded == length)
    fit = max(1, min(tokens, _LOGITS // max(1, classes)) // length)
    rows = min(1 << (fit.bit_length() - 1), 1 << (len(indices) - 1).bit_length())
    for start in range(0, len(indices), rows):
      yield indices[start : start + rows], rows, length


def _padded_lengths(lengths: np.ndarray, most: int | None) -> np.ndarray:
  """Return the length of each padded row."""
  padded_of = np.asarray([padded_length(max(1, n), most) for n in range(int(lengths.max(initial=0)) + 1)])
  padded = padded_of[lengths]
  positions = np.bincount(padded, padded)
  return np.where(positions[padded] >= _MANY, lengths, padded)


def pad(arrays: Sequence[np.ndarray], rows: int, length: int, fill: int = 0) -> np.ndarray:
  """Return arrays (T, ...) as one of shape (rows, length, ...), int32, padded on the right with `fill`."""
  out = np.full((rows, length, *arrays[0].shape[1:]), fill, np.int32)
  for row, array in zip(out, arrays, strict=False):
    row[: len(array)] = array
  return out


def valid(lengths: Sequence[int] | np.ndarray, rows: int, length: int) -> np.ndarray:
  """Return which positions are tokens, (rows, length) bool; rows of padding have one, so that all see a token."""
  counts_B = np.ones(rows, np.int64)
  counts_B[: len(lengths)] = lengths
  return np.arange(length) < counts_B[:, None]
