"""Zero-shot measurement (Radford et al. 2019, sections 3.1 to 3.3) restated, a token at a time, over any function that
gives the scores of the next token after some."""

from __future__ import annotations

import numpy as np


def log_softmax(scores_V):
  shifted_V = scores_V - scores_V.max()
  return shifted_V - np.log(np.exp(shifted_V).sum())


def of_end(scores, context, end, stops=()):
  """(log-probability of the tokens `end` after `context`; is each of them the most probable one; is it without `stops`
  in the first place)."""
  total, right, filtered = 0.0, True, True
  for n, token in enumerate(end):
    scores_V = scores([*context, *end[:n]])
    total += log_softmax(scores_V)[token]
    right &= int(np.argmax(scores_V)) == token
    if n == 0 and len(stops):
      scores_V = np.where(np.isin(np.arange(len(scores_V)), stops), -np.inf, scores_V)
    filtered &= int(np.argmax(scores_V)) == token
  return total, right, filtered


def last_words(scores, rows, stops):
  """(perplexity, accuracy, accuracy with the filter) of rows (context, word), ids both."""
  found = [of_end(scores, context, word, stops) for context, word in rows]
  total, right, filtered = (np.mean([one[n] for one in found]) for n in range(3))
  return np.exp(-total), right, filtered


def windows(scores_of_all, tokens, length, stride):
  """Summed negative log-likelihood of all tokens but the first, read in windows: each begins `stride` tokens after the
  one before, and predicts what that did not. `scores_of_all` gives the scores after every token of a window."""
  total, done, start = 0.0, 0, 0
  while done < len(tokens) - 1:
    window = tokens[start : start + length]
    targets = tokens[start + 1 : start + len(window) + 1]
    scores_TV = scores_of_all(window)
    for t, target in enumerate(targets):
      if start + t >= done:
        total -= log_softmax(scores_TV[t])[target]
    done, start = start + len(targets), start + stride
  return total
