"""Labelled documents, one per row, in batches of similar length.

A row is the start symbol and the document without its own end-of-text. The start symbol is the tokenizer's end-of-text
id, which a language model trained on `streams` has read before each document. Without such an id a row is the document.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from lmx.data.batching import bucketed
from lmx.data.batching.base import is_labelled, note_of_truncation, sizes
from lmx.errors import InputError

CHARACTERS = 'may'


@dataclasses.dataclass(frozen=True)
class Config(bucketed.Config):
  """Labelled documents; the attributes of `bucketed.Config`."""

  name: str = 'documents'


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Documents:
  """Return the batches of a split according to the `data` section. Raises InputError for rows of several texts."""
  if (texts := corpus.manifest.get('texts', 1)) > 1:
    raise InputError(
      f'data.batching: got "documents" with rows of {texts} texts; expected rows of one; name one in data.texts, '
      'or choose a model of pairs with data.batching "texts"'
    )
  return Documents(
    corpus.splits[split],
    *sizes(data, train),
    vocab_size=corpus.tokenizer.vocab_size,
    seed=seed,
    train=train,
    shuffle=data.shuffle,
    cfg=data.batching,
    start_id=corpus.tokenizer.eos_id,
  )


class Documents(bucketed.Bucketed):
  """Batches with tokens_BT, valid_BT, labels_B or scores_B, row_weights_B and index_B.

  Documents without a label have label -1, or score NaN; they can only be predicted.

  Args:
    split: a Split whose documents have labels.
    batch_size: rows of the global batch.
    length: maximum number of tokens per row; longer documents keep their last tokens.
    start_id: id that starts a row and ends a document in the corpus; None for no id.
    cfg: the `batching` section.
    vocab_size: size of the tokenizer's vocabulary.
    seed: seed of the order.
    train: endless shuffled epochs; else one pass.
    shuffle: shuffle; else documents keep the corpus order.
  """

  def __init__(
    self,
    split: Any,
    batch_size: int,
    length: int,
    *,
    start_id: int | None,
    cfg: Config,
    vocab_size: int,
    seed: int,
    train: bool,
    shuffle: bool = True,
  ):
    super().__init__(split, batch_size, length, vocab_size=vocab_size, seed=seed, train=train, shuffle=shuffle)
    self._start_id = start_id
    self._begin, self._end = self._documents(split, start_id)
    full = self._end - self._begin + (start_id is not None)
    self._sizes = np.minimum(full, length)
    if truncated := int((self._end - self._begin > length).sum()):
      self.notes = note_of_truncation(
        f'{truncated:,} of {len(full):,} documents of {split.title} are longer than {length} and keep only their end',
        train=train,
      )
    self._labels = np.full(len(self._begin), -1) if split.labels is None else np.asarray(split.labels)
    missing = np.flatnonzero(~is_labelled(self._labels))
    self.unlabelled = len(missing)
    if train and self.unlabelled:
      raise InputError(
        f'{split.title}: got {len(missing):,} documents without a label (number {missing[0] + 1} is the '
        'first); expected a label for each in data.batching "documents"; add the labels, or remove the '
        'documents'
      )
    self._arrange(cfg, 'documents')

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray, length: int = 0) -> dict[str, np.ndarray]:
    document_B, size_B1 = example_B, self._sizes[example_B][:, None]
    column_T = np.arange(length or self.length)
    live_BT = (column_T < size_B1) & live_B[:, None]
    position_BT = self._end[document_B][:, None] - size_B1 + column_T  # aligned to the document's end
    first_BT = position_BT < self._begin[document_B][:, None]  # the start symbol, if there is room for it
    tokens_BT = self._read(np.clip(position_BT, 0, self._tokens.size - 1))
    if self._start_id is not None:
      tokens_BT = np.where(first_BT, self._start_id, tokens_BT)
    scored = self._labels.dtype.kind == 'f'
    labels_B = np.where(live_B, self._labels[document_B], 0).astype(np.float32 if scored else np.int32)
    return {
      'tokens_BT': np.where(live_BT, tokens_BT, 0).astype(np.int32),
      'valid_BT': live_BT,
      'scores_B' if scored else 'labels_B': labels_B,
      'row_weights_B': live_B.astype(np.float32),
    }
