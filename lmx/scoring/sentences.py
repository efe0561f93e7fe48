"""Scores of sentences: texts in, a `Score` for each out, in nats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lmx.errors import InputError
from lmx.metrics.language import Unknown
from lmx.reporting import waiting
from lmx.scoring import surface
from lmx.scoring.rows import Row, Scored
from lmx.scoring.scorer import Scorer
from lmx.scoring.surface import Word

_CHUNK = 20_000  # texts whose rows are sorted by length together


class Score(NamedTuple):
  """Score of a text.

  Attributes:
    text: the text.
    tokens: its T tokens.
    log_p_T: log-probability of each token in nats, float64; NaN for the first one where no start symbol precedes it.
    starts_T: whether each token starts a word.
    unknown_T: whether each token is an unknown word.
    words: surprisal of each word, None unless `detail` is 'words'.
    unknown: unknown words that are to be spelled, None without `detail`.
    is_changed: the tokenizer changes the text, such as by lower-casing; False without `detail`.
  """

  text: str
  tokens: list[str]
  log_p_T: np.ndarray
  starts_T: np.ndarray
  unknown_T: np.ndarray
  words: list[Word] | None = None
  unknown: Unknown | None = None
  is_changed: bool = False

  @property
  def sum(self) -> float:
    """Sum over the predicted tokens, in nats."""
    return Scored(self.log_p_T).sum

  @property
  def predicted(self) -> int:
    """Number of predicted tokens."""
    return int(np.count_nonzero(~np.isnan(self.log_p_T)))


def score(
  scorer: Scorer,
  texts: Sequence[str],
  *,
  first: int = 1,
  where: str = 'line',
  numbers: Sequence[int] = (),
  detail: str = '',
  leading_space: bool = False,
  title: str = '',
) -> Iterator[Score]:
  """Yield the score of each text, in order.

  Args:
    scorer: the model and the method.
    texts: at least one token each.
    first: number of the first text, for messages.
    where: what a text is, for messages.
    numbers: numbers of the texts, for messages, if they are not consecutive.
    detail: 'text': also return the unknown words, and whether the tokenizer changes the text; 'words': these and the
      surprisal of each word (surface.py).
    leading_space: score the texts as if a space preceded them.
    title: title of a progress bar; '' for none.

  Raises:
    InputError: a text is empty or too long, before any is scored; or it has a score that is not finite.
  """
  space = ' ' * leading_space
  rows = []
  for i, text in enumerate(texts):
    name = f'{where} {numbers[i] if numbers else first + i}'
    _check_text(text, name)
    rows.append(scorer.row(space + text, name))
  with waiting.Bar(sum(len(row.ids_T) for row in rows), title, ' tokens') as bar:
    for start in range(0, len(rows), _CHUNK):
      some = rows[start : start + _CHUNK]
      scored_rows = scorer.score(some, done=bar.update)
      for text, row, scored in zip(texts[start : start + _CHUNK], some, scored_rows, strict=True):
        yield _score(scorer, text, space, row, scored, detail)


def _score(scorer: Scorer, text: str, space: str, row: Row, scored: Scored, detail: str) -> Score:
  unscored = int(scorer.start == 'none' and not len(row.context_S))
  if not np.isfinite(scored.log_p_T[unscored:]).all():
    raise InputError(f'{row.name}: got a score that is not finite; expected finite parameters; see lmx describe')
  tokens, starts_T = scorer.tokens(row), scorer.starts_word(row)
  found = Score(text, tokens, scored.log_p_T, starts_T, scorer.is_unknown(row))
  if not detail:
    return found
  read = space + text
  words = surface.words(scorer, read, row, scored.log_p_T) if detail == 'words' else None
  unknown, is_changed = surface.unknown(scorer, read, row), surface.is_changed(scorer, read, row)
  return found._replace(words=words, unknown=unknown, is_changed=is_changed)


def _check_text(text: str, name: str) -> None:
  if not text.strip():
    raise InputError(f'{name}: got an empty text; expected at least one word; remove the line')
  try:
    text.encode()
  except UnicodeEncodeError:
    raise InputError(f'{name}: got half a surrogate pair; expected whole characters') from None
