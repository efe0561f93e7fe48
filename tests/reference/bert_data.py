"""The rules of BERT's pre-training data in plain Python, one token and one sentence at a time.

Written from an understanding of create_pretraining_data.py of google-research/bert (Devlin et al. 2018, arXiv
1810.04805). Documents are lists of sentences, sentences lists of token ids.
"""

from __future__ import annotations

import dataclasses
import random


@dataclasses.dataclass
class Pair:
  """Two segments before any mask; `whole` is the length of the sentences they were cut from."""

  a: list[int]
  b: list[int]
  is_random: bool
  whole: int


def cut(a: list[int], b: list[int], limit: int, draw: random.Random) -> None:
  """Deletes tokens of the longer list (the second on a tie) at either end until both fit."""
  while len(a) + len(b) > limit:
    longer = a if len(a) > len(b) else b
    del longer[0 if draw.random() < 0.5 else -1]


def pairs_of_document(
  documents: list[list[list[int]]], d: int, length: int, draw: random.Random, short=0.1, random_next=0.5
) -> list[Pair]:
  """The pairs that one pass over document `d` gives."""
  limit = length - 3
  aim = draw.randint(2, limit) if draw.random() < short else limit
  made, sentence = [], 0
  while sentence < len(documents[d]):
    chunk = []
    while sentence < len(documents[d]) and sum(map(len, chunk)) < aim:
      chunk.append(documents[d][sentence])
      sentence += 1
    used = draw.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
    a, b = sum(chunk[:used], []), []
    is_random = len(chunk) == 1 or draw.random() < random_next
    if is_random:
      for _ in range(10):
        other = draw.randrange(len(documents))
        if other != d:
          break
      for text in documents[other][draw.randrange(len(documents[other])) :]:
        b = b + text
        if len(b) >= aim - len(a):
          break
      sentence -= len(chunk) - used
    else:
      b = sum(chunk[used:], [])
    whole = len(a) + len(b)
    cut(a, b, limit, draw)
    made.append(Pair(a, b, is_random, whole))
  return made


def mask(
  tokens: list[int],
  specials: set[int],
  draw: random.Random,
  *,
  mask_id: int,
  vocab_size: int,
  prob=0.15,
  most=20,
  continues=None,
) -> tuple[list[int], list[int], list[int]]:
  """Hides tokens; returns (noisy tokens, positions, original ids). `continues(id)` marks pieces inside a word."""
  words: list[list[int]] = []
  for i, token in enumerate(tokens):
    if token in specials:
      continue
    if words and continues is not None and continues(token):
      words[-1].append(i)
    else:
      words.append([i])
  draw.shuffle(words)
  wanted = min(most, max(1, round(len(tokens) * prob)))
  noisy, hidden = list(tokens), []
  for word in words:
    if len(hidden) + len(word) > wanted:
      continue
    for i in word:
      if draw.random() < 0.8:
        noisy[i] = mask_id
      elif draw.random() >= 0.5:
        noisy[i] = draw.randrange(vocab_size)
      hidden.append(i)
  hidden.sort()
  return noisy, hidden, [tokens[i] for i in hidden]
