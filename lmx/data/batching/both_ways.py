"""Batches for a bidirectional language model: two streams of whole sentences, each in its reading order.

As in ELMo's released code (Peters et al. 2018, arXiv 1802.05365; `BidirectionalLMDataset`): sentence w_1 .. w_n is
read forward as <S> w_1 .. w_n with targets w_1 .. w_n </S>, and backward as </S> w_n .. w_1 with targets w_n .. w_1
<S>. Both streams read the sentences in the same order. Row b of a step continues row b of the previous step, so both
states can be carried over. A state that is never reset can reach a regime that is unreachable from an empty state
(docs/notes/elmo.md); `reset_every` makes training include empty states. Deviations: sentences keep the data's order in
every epoch; and both directions read the same sentences at the same time, where the released code samples different
files.

With `documents` each document of a task's data set is one sentence, such as a passage of SQuAD or a premise of SNLI. A
document that repeats, as passages do for each of their questions, is read once.

Line ends and text ends are not words here: the sentence end replaces them. It also replaces the white space around a
sentence in byte-level BPE, except for the space that its first subword starts with.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from lmx.data.batching.base import Batches, sizes
from lmx.data.tokenizers import word_characters
from lmx.data.tokenizers.word_characters import WordCharacters
from lmx.errors import InputError, check_choice, check_range

CHARACTERS = 'must'
SENTENCES = True


@dataclasses.dataclass(frozen=True)
class Config:
  """Streams of sentences, forward and backward.

  Attributes:
    reset_every: in training, each row starts from an empty state every this many updates, in turn. 0: only at the start
      of an epoch, as in the released code.
    documents: documents that are read as one sentence each, instead of the data set's sentences: 'all', or 'first', the
      first of each example, such as the passage of a question; '' for none.
  """

  name: str = 'both_ways'
  reset_every: int = 0
  documents: str = ''

  def __post_init__(self) -> None:
    check_range('data.batching.reset_every', self.reset_every, 0)
    check_choice('data.batching.documents', self.documents, ('', 'all', 'first'))


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> BothWays:
  """Return the batches of a split according to the `data` section."""
  tokenizer, documents, own = corpus.tokenizer, data.batching.documents, corpus.splits[split]
  return BothWays(
    documents_as_sentences(own, data.documents_per_example if documents == 'first' else 1) if documents else own,
    *sizes(data, train),
    vocab_size=tokenizer.vocab_size,
    seed=seed,
    train=train,
    reset_every=data.batching.reset_every if train else 0,
    words=word_characters.create(tokenizer, data.characters),
    skipped=word_characters.boundaries(tokenizer),
    trim_start=tokenizer.kind != 'words',
  )


def documents_as_sentences(split: Any, every: int) -> Any:
  """Return a split whose sentences are its documents 0, `every`, 2 `every`, ..., of equal ones the first."""
  parts: dict[bytes, np.ndarray] = {}
  for begin, end in zip(split.offsets[:-1:every].tolist(), split.offsets[1::every].tolist(), strict=True):
    part = np.asarray(split.tokens[begin:end])
    parts.setdefault(part.tobytes(), part)
  offsets = np.cumsum([0, *map(len, parts.values())])
  tokens = np.concatenate([*parts.values()])
  return dataclasses.replace(split, tokens=tokens, offsets=offsets, sentences=offsets, labels=None, token_labels=None)


class BothWays(Batches):
  """Batches with characters_BTC, targets_BT, backward_characters_BTC, backward_targets_BT, weights_BT, reset_B.

  Positions are assigned to the rows in order, so that each is predicted once an epoch. Only the last step of an epoch
  is padded (weight 0), and the state is never carried over padding.

  Args:
    split: a Split with sentence starts.
    batch_size: rows of the global batch.
    length: T.
    words: word and character ids of the tokenizer.
    vocab_size: size of the tokenizer's vocabulary.
    skipped: ids of the tokenizer that are not words: end of line and end of text.
    trim_start: skip these ids at the start of a sentence too; words have them only at its end.
    reset_every: updates after which a row begins from an empty state; 0 for never.
  """

  stateful = True

  def __init__(
    self,
    split: Any,
    batch_size: int,
    length: int,
    *,
    words: WordCharacters,
    skipped: tuple[int, ...],
    vocab_size: int,
    seed: int,
    train: bool,
    reset_every: int = 0,
    trim_start: bool = False,
  ):
    super().__init__(split, batch_size, length, vocab_size=vocab_size, seed=seed, train=train, shuffle=False)
    if split.sentences is None:
      raise InputError(
        f'data.batching: got "both_ways" with {split.title}, which has no sentences; expected a data set with '
        'sentences, and a tokenizer that encodes them one by one: not "unigram" and no data.prefix_space; or set '
        'data.batching.documents=all to read each document as one sentence'
      )
    self._words, self._reset_every = words, reset_every
    sentences = np.asarray(split.sentences, np.int64)
    self._first_S, self._count_S = self._trim(sentences, skipped, trim_start)
    self._start_S = np.cumsum(np.append(0, self._count_S + 1))  # first position of each sentence, and the total
    total = int(self._start_S[-1])
    self._starts = np.arange(batch_size + 1) * total // batch_size
    steps = -(-int(np.diff(self._starts).max()) // length)
    enough = not train or total >= batch_size * length
    self._set_size(steps * batch_size if enough else 0, total, str(batch_size * length))

  def _trim(self, sentences: np.ndarray, skipped: tuple[int, ...], trim_start: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return (first word, number of words) of each non-empty sentence, without skipped ids at its ends."""
    first_S, stop_S = sentences[:-1].copy(), sentences[1:].copy()
    while True:
      last_S = np.asarray(self._tokens[np.maximum(stop_S - 1, 0)])
      ends_S = (stop_S > first_S) & np.isin(last_S, skipped)
      if not ends_S.any():
        break
      stop_S[ends_S] -= 1
    while trim_start:
      next_S = np.asarray(self._tokens[np.minimum(first_S, len(self._tokens) - 1)])
      begins_S = (stop_S > first_S) & np.isin(next_S, skipped)
      if not begins_S.any():
        break
      first_S[begins_S] += 1
    some_S = stop_S > first_S
    return first_S[some_S], (stop_S - first_S)[some_S]

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    del epoch
    step_B, row_B = np.divmod(example_B, self.batch_size)
    position_BT = (self._starts[row_B] + step_B * self.length)[:, None] + np.arange(self.length)
    inside_BT = position_BT < self._starts[row_B + 1][:, None]
    position_BT = np.minimum(position_BT, self._start_S[-1] - 1)
    sentence_BT = np.searchsorted(self._start_S, position_BT, 'right') - 1
    nth_BT = position_BT - self._start_S[sentence_BT]  # 0 reads the special token
    first_BT, count_BT = self._first_S[sentence_BT], self._count_S[sentence_BT]
    boundaries = self._words.boundaries
    batch = {}
    for prefix, read, target, begin, end in (
      ('', first_BT + nth_BT - 1, first_BT + nth_BT, boundaries[0], word_characters.END),
      (
        'backward_',
        first_BT + count_BT - nth_BT,
        first_BT + count_BT - 1 - nth_BT,
        boundaries[1],
        word_characters.BEGIN,
      ),
    ):
      read_BT = self._read(np.where(nth_BT > 0, read, first_BT))
      characters_BTC = np.where((nth_BT > 0)[..., None], self._words.character_ids(read_BT), begin)
      target_BT = self._words.word_ids(self._read(np.where(nth_BT < count_BT, target, first_BT)))
      batch[f'{prefix}characters_BTC'] = np.where(inside_BT[..., None], characters_BTC, 0).astype(np.int32)
      batch[f'{prefix}targets_BT'] = np.where(inside_BT & (nth_BT < count_BT), target_BT, end * inside_BT)
    reset_B = step_B == 0
    if self._reset_every:
      reset_B |= (step_B + row_B) % self._reset_every == 0
    return batch | dict(weights_BT=(inside_BT & live_B[:, None]).astype(np.float32), reset_B=reset_B)
