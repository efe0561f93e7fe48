"""Rows whose end is predicted: a last word (LAMBADA), or one ending of several (the Children's Book Test).

A row's sequence is its context followed by its continuation. A row with choices is one sequence per choice, and its
keys have an axis G after the rows. P is the length of the split's longest continuation. If a context is too long, its
first tokens are truncated; it starts without a special token. Order and buckets are as in `bucketed`.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

from lmx.data import stop_words
from lmx.data.batching import bucketed
from lmx.data.batching.base import sizes
from lmx.errors import InputError, InputWarning


@dataclasses.dataclass(frozen=True)
class Config(bucketed.Config):
  """Rows whose end is predicted; the attributes of `bucketed.Config`, and

  Attributes:
    stop_words: add the ids of stop words, so that a last word is also predicted without them.
  """

  name: str = 'continuations'
  stop_words: bool = True


def check(data: Any) -> None:
  """Raise InputError if the `data` section does not fit."""
  if data.reverse:
    raise InputError('data.reverse: got True; expected False with data.batching "continuations"')


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Continuations:
  """Return the batches of a split according to the `data` section."""
  cfg, tokenizer, manifest = data.batching, corpus.tokenizer, corpus.manifest
  documents, choices = manifest.get('texts', 1), manifest.get('choices', 0)
  if documents != (2 + choices if choices else 2) or manifest.get('scores'):
    raise InputError(
      f'data.batching: got "continuations" with data set {data.dataset}; expected rows of a context and '
      'its continuation, or choices of it, as in lambada and cbt/cn'
    )
  stops = stop_words.token_ids(tokenizer) if cfg.stop_words and not choices else None
  return Continuations(
    corpus.splits[split],
    *sizes(data, train),
    documents=documents,
    choices=choices,
    end_id=tokenizer.eos_id,
    label_names=manifest['label_names'],
    stops=stops,
    cfg=cfg,
    vocab_size=tokenizer.vocab_size,
    seed=seed,
    train=train,
    shuffle=data.shuffle,
  )


class Continuations(bucketed.Bucketed):
  """Batches with tokens_BT, valid_BT, positions_BP, targets_BP, weights_BP, row_weights_B and index_B; the first five
  as tokens_BGT, ... with labels_B if a row has choices; and, on request, stops_BW, ids of stop words.

  Args:
    split: a Split in which each row is `documents` consecutive documents.
    batch_size: rows of the global batch.
    length: largest number of input tokens of a sequence, all but the last.
    documents: documents per row: its context and continuation, or context, question and choices.
    choices: number of choices per row, 0 for none.
    end_id: end-of-text id of the corpus's documents, removed here; None for no id.
    label_names: names of the labels, each the index of a choice.
    stops: ids of stop words (W,), or None.
    cfg: the `batching` section.
    vocab_size: size of the tokenizer's vocabulary.
    seed: seed of the order.
    train: endless shuffled epochs; else one pass.
    shuffle: shuffle; else rows keep the table's order.
  """

  def __init__(
    self,
    split: Any,
    batch_size: int,
    length: int,
    *,
    documents: int,
    choices: int,
    end_id: int | None,
    label_names: list[str],
    stops: np.ndarray | None,
    cfg: Config,
    vocab_size: int,
    seed: int,
    train: bool,
    shuffle: bool = True,
  ):
    super().__init__(split, batch_size, length, vocab_size=vocab_size, seed=seed, train=train, shuffle=shuffle)
    begin, end = self._documents(split, end_id)
    self._begin_IN, self._size_IN = begin.reshape(-1, documents), (end - begin).reshape(-1, documents)
    self._choices, self._stops = choices, stops
    self._ends = list(range(2, documents)) if choices else [1]  # documents that may end a sequence
    self._before = [0, 1] if choices else [0]  # documents at its start
    follows_IG = self._size_IN[:, self._ends]
    context_I = self._size_IN[:, self._before].sum(axis=1)
    self._check(follows_IG, context_I)
    self._room = int(follows_IG.max())
    self._kept_IG = np.minimum(context_I[:, None], length + 1 - follows_IG)
    self._sizes = (self._kept_IG + follows_IG).max(axis=1) - 1
    truncated = int((self._kept_IG < context_I[:, None]).any(axis=1).sum())
    if truncated:
      warnings.warn(
        f'{truncated:,} of {len(context_I):,} rows of {split.title} are longer than {length} tokens; their '
        'contexts are truncated at the start',
        InputWarning,
        stacklevel=3,
      )
    self._labels = _labels(split, documents, label_names) if choices else None
    self.unlabelled = 0 if self._labels is None else int((self._labels < 0).sum())
    self._arrange(cfg, 'rows')

  def _check(self, follows_IG: np.ndarray, context_I: np.ndarray) -> None:
    """Raise InputError if a row has nothing to predict, no context, or no room for it."""
    wrong = [
      (int(i), what)
      for bad_I, what in (
        (follows_IG.min(axis=1) < 1, 'nothing to predict'),
        (context_I < 1, 'no context before the tokens to predict'),
        (
          follows_IG.max(axis=1) > self.length,
          f'{follows_IG.max()} tokens to predict, but data.length is {self.length}; increase it',
        ),
      )
      for i in np.flatnonzero(bad_I)
    ]
    if wrong:
      raise InputError(f'{self._title}, row {wrong[0][0] + 1}: it has {wrong[0][1]}')

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray, length: int = 0) -> dict[str, np.ndarray]:
    T = length or self.length
    sequences = [self._sequence(g, example_B, live_B, T) for g in range(len(self._ends))]
    batch = sequences[0]
    if self._choices:
      batch = {key: np.stack([sequence[key] for sequence in sequences], axis=1) for key in batch}
      batch = {key.replace('_B', '_BG', 1): x for key, x in batch.items()}
    if self._labels is not None:
      batch['labels_B'] = np.where(live_B, self._labels[example_B], 0).astype(np.int32)
    if self._stops is not None:
      batch['stops_BW'] = np.tile(self._stops, (len(example_B), 1))
    return batch | {'row_weights_B': live_B.astype(np.float32)}

  def _sequence(self, g: int, example_B: np.ndarray, live_B: np.ndarray, T: int) -> dict[str, np.ndarray]:
    """Return sequence g of each row."""
    B, P = len(example_B), self._room
    tokens_BT, size_B = np.zeros((B, T), np.int32), np.zeros(B, np.int64)
    positions_BP, targets_BP = np.zeros((B, P), np.int32), np.zeros((B, P), np.int32)
    weights_BP = np.zeros((B, P), np.float32)
    for b in np.flatnonzero(live_B):
      i = example_B[b]
      context = self._document(i, self._before)[-self._kept_IG[i, g] :]
      follows = self._document(i, [self._ends[g]])
      size_B[b] = len(context) + len(follows) - 1
      tokens_BT[b, : size_B[b]] = np.concatenate([context, follows[:-1]])
      positions_BP[b, : len(follows)] = len(context) - 1 + np.arange(len(follows))
      targets_BP[b, : len(follows)], weights_BP[b, : len(follows)] = follows, 1
    valid_BT = np.arange(T) < size_B[:, None]
    return dict(
      tokens_BT=tokens_BT, valid_BT=valid_BT, positions_BP=positions_BP, targets_BP=targets_BP, weights_BP=weights_BP
    )

  def _document(self, i: int, numbers: list[int]) -> np.ndarray:
    """Return the concatenated ids of some documents in a row."""
    return np.concatenate([self._read(self._begin_IN[i, n] + np.arange(self._size_IN[i, n])) for n in numbers])


def _labels(split: Any, documents: int, names: list[str]) -> np.ndarray:
  """Return the number of each row's correct choice, -1 if it is unknown."""
  if split.labels is None:
    return np.full((len(split.offsets) - 1) // documents, -1)
  return np.asarray([int(names[n]) if n >= 0 else -1 for n in np.asarray(split.labels)[::documents]])
