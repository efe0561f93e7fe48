"""Sentences with a label for every word, one a row, in batches of sentences of like length (see `documents`)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from lmx.data.batching import documents
from lmx.data.batching.base import sizes
from lmx.errors import InputError

CHARACTERS = 'may'
SENTENCES = True


@dataclasses.dataclass(frozen=True)
class Config(documents.Config):
  """Sentences with a label for every word; the attributes are those of `documents.Config`."""

  name: str = 'tagged'


def of(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Tagged:
  """The batches of a split by the `data` section."""
  return Tagged(
    corpus.splits[split], *sizes(data, train), vocab_size=corpus.tokenizer.vocab_size, seed=seed, train=train,
    shuffle=data.shuffle, buckets=data.batching.buckets)


class Tagged(documents.Documents):
  """Batches with tokens_BT, valid_BT, labels_BT, weights_BT, row_weights_B and index_B.

  Args as of `Documents`; every sentence must fit into `length`, so that every word counts.
  """

  def __init__(self, split: Any, batch_size: int, length: int, **options: Any):
    if split.token_labels is None:
      raise InputError(f'split {split.name} has no labels of words; data.batching "tagged" needs a set such as wnut17')
    unlabelled = dataclasses.replace(split, labels=np.zeros(len(split.offsets) - 1, np.int32))
    super().__init__(unlabelled, batch_size, length, start_id=None, **options)
    self._token_labels = np.asarray(split.token_labels)
    longest = int(np.diff(split.offsets).max())
    if longest > length:
      raise InputError(f'split {split.name} has a sentence of {longest} words; set data.length to that at least')

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    batch = super()._make(epoch, example_B, live_B)
    valid_BT = batch['valid_BT']
    del batch['labels_B']  # of documents
    at_BT = self._begin[example_B][:, None] + np.arange(valid_BT.shape[1])
    labels_BT = self._token_labels[np.minimum(at_BT, self._token_labels.size - 1)]
    labels_BT = np.where(valid_BT, labels_BT, 0).astype(np.int32)
    return batch | dict(labels_BT=labels_BT, weights_BT=valid_BT.astype(np.float32))
