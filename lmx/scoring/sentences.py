"""Scores of sentences: texts in, a `Score` for each out, in nats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lmx.errors import InputError
from lmx.scoring.scorer import Scorer

_CHUNK = 20_000  # texts whose rows are sorted by length together


class Score(NamedTuple):
  """Score of a text.

  Attributes:
    text: the text.
    tokens: its T tokens.
    log_p_T: log-probability of each token in nats, float64; NaN for the first one where no start symbol precedes it.
    starts_T: whether each token starts a word.
    unknown_T: whether each token is an unknown word.
  """

  text: str
  tokens: list[str]
  log_p_T: np.ndarray
  starts_T: np.ndarray
  unknown_T: np.ndarray

  @property
  def sum(self) -> float:
    """Sum over the predicted tokens, in nats."""
    return float(np.nansum(self.log_p_T))

  @property
  def predicted(self) -> int:
    """Number of predicted tokens."""
    return int(np.count_nonzero(~np.isnan(self.log_p_T)))


def score(scorer: Scorer, texts: Sequence[str], *, first: int = 1, where: str = 'line') -> Iterator[Score]:
  """Yield the score of each text, in order.

  Args:
    scorer: the model and the method.
    texts: at least one token each.
    first: number of the first text, for messages.
    where: what a text is, for messages.

  Raises:
    InputError: a text has no token, is too long, or has a score that is not finite.
  """
  for start in range(0, len(texts), _CHUNK):
    some = texts[start : start + _CHUNK]
    rows = [scorer.row(text, f'{where} {first + start + i}') for i, text in enumerate(some)]
    for text, row, scored in zip(some, rows, scorer.score(rows), strict=True):
      unscored = int(scorer.start == 'none' and not len(row.context_S))
      if not np.isfinite(scored.log_p_T[unscored:]).all():
        raise InputError(f'{row.name}: got a score that is not finite; expected finite parameters; see lmx describe')
      yield Score(
        text,
        scorer.tokens(row),
        scored.log_p_T,
        scorer.starts_word(row),
        scorer.is_unknown(row),
      )
