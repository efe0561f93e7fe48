"""Constraints on the next token of one text, with lists and loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def apply(
  logits: np.ndarray,
  text: Sequence[int],
  count: int,
  *,
  ends: Sequence[int] = (),
  forbidden: Sequence[int] = (),
  forbidden_first: Sequence[int] = (),
  bad_words: Sequence[Sequence[int]] = (),
  min_tokens: int = 0,
  no_repeat_ngram: int = 0,
  repetition_penalty: float = 1.0,
) -> np.ndarray:
  """The scores of the token after `text`, of which the last `count` ids are the continuation."""
  text, scores = list(text), np.array(logits, np.float64)
  for token in set(text):
    scores[token] *= repetition_penalty if scores[token] < 0 else 1 / repetition_penalty
  n = no_repeat_ngram
  known = {tuple(text[i : i + n]) for i in range(len(text) - n + 1)} if n else set()
  for token in range(len(scores)):
    following = [*text, token]
    single = [token] in [list(word) for word in bad_words] and token not in ends
    completes = any(len(word) > 1 and following[-len(word) :] == list(word) for word in bad_words)
    if (
      (n and tuple(following[len(following) - n :]) in known)
      or (single or completes)
      or (token in ends and count < min_tokens)
      or token in forbidden
      or (token in forbidden_first and count == 0)
    ):
      scores[token] = -np.inf
  return scores
