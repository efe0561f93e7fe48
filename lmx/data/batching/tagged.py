"""Sentences with word labels, one per row, in batches of similar length (see `bucketed`).

If words are split into subwords, the first subword has the label of its word and the others are not scored (Devlin et
al. 2019, section 5.3). With form 'bert' a row is [CLS] sentence [SEP]. In a semantic role data set a row is a sentence
with one predicate, whose word (or first subword) has 1 in `predicate_BT`.

With context 'document' the row also has the words around the sentence in its document of the file ("the maximal
document context provided by the data", section 5.3 of Devlin et al. 2019, which does not state how rows are filled).
As many fit into the row are on its left and on its right, in equal parts until the document begins or ends, then more
on the other side; only whole words are read. Each sentence is scored in its own row, and the words around it have
no loss and are not counted.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from lmx.data.batching import bucketed
from lmx.data.batching.base import sizes
from lmx.data.tokenizers.base import RowTemplate, row_template
from lmx.errors import InputError, check_choice

CHARACTERS = 'may'
SENTENCES = True


@dataclasses.dataclass(frozen=True)
class Config(bucketed.Config):
  """Sentences with word labels; the attributes of `bucketed.Config`, and

  Attributes:
    form: 'plain' is only the sentence, 'bert' puts it between [CLS] and [SEP], 'template' between the special tokens of
      the tokenizer of imported weights.
    context: 'sentence' is only the sentence; 'document', of form 'bert', adds the words around it in its document, up
      to `data.length` positions (`data.eval_length` in evaluation).
  """

  name: str = 'tagged'
  form: str = 'plain'
  context: str = 'sentence'

  def __post_init__(self) -> None:
    super().__post_init__()
    check_choice('data.batching.form', self.form, ('plain', 'bert', 'template'))
    check_choice('data.batching.context', self.context, ('sentence', 'document'))
    if self.context == 'document' and self.form != 'bert':
      raise InputError(
        f'data.batching.context: got "document" with data.batching.form "{self.form}"; expected "bert"; set one of them'
      )


def check(data: Any) -> None:
  """Raise InputError if the `data` section does not fit."""
  if data.batching.form == 'bert' and data.tokenizer != 'wordpiece':
    raise InputError(
      f'data.tokenizer: got "{data.tokenizer}" with data.batching.form "bert"; expected "wordpiece", '
      'with [CLS] and [SEP]'
    )
  if data.batching.context == 'document' and data.rules.predicates:
    raise InputError(
      f'data.batching.context: got "document" with data set {data.dataset}, which has a sentence once for each '
      'predicate; expected "sentence"; omit it'
    )


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Tagged:
  """Return the batches of a split according to the `data` section."""
  tokenizer = corpus.tokenizer
  return Tagged(
    corpus.splits[split],
    *sizes(data, train),
    template=template(data.batching.form, tokenizer),
    end_id=tokenizer.eos_id,
    cfg=data.batching,
    vocab_size=tokenizer.vocab_size,
    seed=seed,
    train=train,
    shuffle=data.shuffle,
  )


def template(form: str, tokenizer: Any) -> RowTemplate:
  """Return the special tokens of a row."""
  if form == 'template':
    return tokenizer.template(1)
  return row_template([(tokenizer.cls_id,), (tokenizer.sep_id,)] if form == 'bert' else [(), ()])


class Tagged(bucketed.Bucketed):
  """Batches with tokens_BT, valid_BT, labels_BT, weights_BT, row_weights_B, index_B, and predicate_BT if rows have one.

  `weights_BT` is 1 at the start of a word, and `labels_BT` is meaningful only there.

  Args:
    split: a Split with token labels; its document labels, if any, are the indices of their predicates.
    batch_size: rows of the global batch.
    length: maximum number of positions per row; every sentence must fit, so that every word is scored.
    template: special tokens of a row.
    end_id: end-of-text id of a document in the corpus, removed here; None for nothing.
    cfg: the `batching` section.
    vocab_size: size of the tokenizer's vocabulary.
    seed: seed of the order.
    train: endless shuffled epochs; else one pass.
    shuffle: shuffle; else sentences keep the corpus order.
  """

  def __init__(
    self,
    split: Any,
    batch_size: int,
    length: int,
    *,
    template: RowTemplate,
    end_id: int | None,
    cfg: Config,
    vocab_size: int,
    seed: int,
    train: bool,
    shuffle: bool = True,
  ):
    if split.token_labels is None:
      raise InputError(
        f'data.batching: got "tagged" with {split.title}, which has no word labels; expected a data set such as wnut17'
      )
    super().__init__(split, batch_size, length, vocab_size=vocab_size, seed=seed, train=train, shuffle=shuffle)
    self._template, self._token_labels = template, np.asarray(split.token_labels)
    self._begin, end = self._documents(split, end_id)
    self._predicates = (
      None if split.labels is None else _predicate_tokens(self._token_labels, self._begin, split.labels)
    )
    longest = int((end - self._begin).max()) + template.special
    if longest > length:
      raise InputError(f'data.length: got {length}; expected at least {longest}, the longest sentence of {split.title}')
    self._own = self._begin, end  # of the sentences
    if cfg.context == 'document':
      starts = np.flatnonzero(self._token_labels >= 0)
      self._begin, end = _windows(self._begin, end, split.file_documents, starts, length - template.special)
    self._sizes = end - self._begin + template.special
    self._arrange(cfg, 'documents')

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray, length: int = 0) -> dict[str, np.ndarray]:
    size_B1, (before, after) = self._sizes[example_B][:, None], self._template.ids
    column_T = np.arange(length or self.length)
    valid_BT = (column_T < size_B1) & live_B[:, None]
    inside_BT = valid_BT & (column_T >= len(before)) & (column_T < size_B1 - len(after))
    at_BT = np.where(inside_BT, self._begin[example_B][:, None] + column_T - len(before), 0)
    tokens_BT, labels_BT = self._read(at_BT), self._token_labels[at_BT]
    types_BT = np.full_like(tokens_BT, self._template.texts[0])
    for n, (ids, types) in enumerate(zip(self._template.ids, self._template.types, strict=True)):
      for i, (token, kind) in enumerate(zip(ids, types, strict=True)):
        is_here_BT = column_T == (size_B1 - len(ids) + i if n else i)
        tokens_BT, types_BT = np.where(is_here_BT, token, tokens_BT), np.where(is_here_BT, kind, types_BT)
    begin_B1, end_B1 = (edge[example_B][:, None] for edge in self._own)
    counts_BT = inside_BT & (labels_BT >= 0) & (at_BT >= begin_B1) & (at_BT < end_B1)
    further = {}
    if any(self._template.texts + sum(self._template.types, ())):
      further['types_BT'] = np.where(valid_BT, types_BT, 0).astype(np.int32)
    if self._predicates is not None:
      further['predicate_BT'] = (inside_BT & (at_BT == self._predicates[example_B][:, None])).astype(np.int32)
    return dict(
      **further,
      tokens_BT=np.where(valid_BT, tokens_BT, 0).astype(np.int32),
      valid_BT=valid_BT,
      labels_BT=np.where(counts_BT, labels_BT, 0).astype(np.int32),
      weights_BT=counts_BT.astype(np.float32),
      row_weights_B=live_B.astype(np.float32),
    )


def _windows(
  begin: np.ndarray, end: np.ndarray, file_documents: np.ndarray, starts: np.ndarray, room: int
) -> tuple[np.ndarray, np.ndarray]:
  """Return the start and end of each row's tokens: a sentence and the whole words around it in its document.

  Args:
    begin, end: of each sentence; the sentences are consecutive.
    file_documents: the document of each sentence, ascending.
    starts: the positions where words start, ascending.
    room: maximum number of tokens of a row.
  """
  last = np.searchsorted(file_documents, file_documents, 'right') - 1
  before, after = begin - begin[np.searchsorted(file_documents, file_documents)], end[last] - end
  free = room - (end - begin)
  left = np.minimum(before, np.maximum(free // 2, free - after))
  right = np.minimum(after, free - left)
  whole_left = starts[np.searchsorted(starts, begin - left)]
  whole_right = starts[np.searchsorted(starts, end + right, 'right') - 1]
  return whole_left, np.where(right < after, whole_right, end + right)


def _predicate_tokens(token_labels: np.ndarray, begin: np.ndarray, predicates: np.ndarray) -> np.ndarray:
  """Return the position in the split of each predicate's first token, given the indices of its word."""
  starts = np.flatnonzero(token_labels >= 0)  # of words
  return starts[np.searchsorted(starts, begin) + np.asarray(predicates)]
