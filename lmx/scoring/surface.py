"""Tokens and the text that they are of: surprisals of words, the spelling of unknown words, changes by the tokenizer.

A word is what stands between white space in the text; its punctuation belongs to it. A token belongs to the word in
which it begins. White space before a word belongs to that word, as in byte-level BPE, and white space at the end to the
last one. The end of a text is a word of its own. Tokenizers that change the text before they split it (rules `fastai`
and `double` of words) have no offsets: each of their tokens is a word.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from lmx.metrics.language import Unknown
from lmx.scoring.rows import Row
from lmx.scoring.scorer import Scorer

_WORD = re.compile(r'\S+')


class Word(NamedTuple):
  """Word of a text.

  Attributes:
    word: the word.
    surprisal: -log p in nats, the sum over its tokens; None if none of them is predicted.
  """

  word: str
  surprisal: float | None


def words(scorer: Scorer, text: str, row: Row, log_p_T: np.ndarray) -> list[Word]:
  """Return the words of a text; the surprisals sum to minus the sum of the log-probabilities.

  Args:
    scorer: scorer of the row.
    text: the text.
    row: the text as a row.
    log_p_T: log-probability of each token, NaN if it is not predicted.
  """
  spans_T2 = scorer.spans(text, row)
  if spans_T2 is None:
    parts, index_T = scorer.tokens(row), np.arange(len(row.ids_T))
  else:
    found = [match.span() for match in _WORD.finditer(text)]
    parts = [text[begin:end] for begin, end in found]
    ends = np.asarray([end for _, end in found])
    index_T = np.minimum(np.searchsorted(ends, spans_T2[:, 0], 'right'), len(parts) - 1)
    if scorer.end:
      parts, index_T[-1] = [*parts, scorer.tokens(row)[-1]], len(parts)
  predicted_T = ~np.isnan(log_p_T)
  totals = np.bincount(index_T[predicted_T], -log_p_T[predicted_T], len(parts))
  counts = np.bincount(index_T[predicted_T], minlength=len(parts))
  return [Word(part, float(totals[i]) if counts[i] else None) for i, part in enumerate(parts)]


def unknown(scorer: Scorer, text: str, row: Row) -> Unknown:
  """Return the number of unknown words of a text and of their UTF-8 bytes.

  A word that is written like the unknown word, as the `<unk>` of Penn Treebank, is known.
  """
  unknown_T = scorer.is_unknown(row)
  if not unknown_T.any():
    return Unknown(0, 0)
  if row.words is not None:
    surfaces = [word for word, is_unknown in zip(row.words, unknown_T, strict=True) if is_unknown]
  else:
    surfaces = _surfaces(scorer, text, row, unknown_T)
  others = [surface for surface in surfaces if surface != '<unk>']
  return Unknown(len(others), sum(len(surface.encode()) for surface in others))


def _surfaces(scorer: Scorer, text: str, row: Row, unknown_T: np.ndarray) -> list[str]:
  spans_T2 = scorer.spans(text, row)
  if spans_T2 is None:
    parts = scorer.tokenizer.split(text)  # type: ignore[attr-defined]  # words
    return [parts[i] for i in np.flatnonzero(unknown_T[: len(parts)])]
  return [text[begin:end] for begin, end in spans_T2[unknown_T].tolist()]


def is_changed(scorer: Scorer, text: str, row: Row) -> bool:
  """Return whether the tokenizer changes a text but for white space, as lower-casing does; unknown words aside."""
  if scorer.is_unknown(row).any():
    return False
  read = scorer.tokenizer.decode(scorer.tokenizer.encode(text).tolist())
  return ''.join(read.split()) != ''.join(text.split())
