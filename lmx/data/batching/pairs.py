"""Sentence pairs with masked tokens, following BERT's data code.

Devlin et al. 2018 (arXiv 1810.04805), and the code released with it, create_pretraining_data.py: see `pair_spans`.
Deviations: the released code truncates pairs token by token, here all excess is removed at once with the same
distribution. The pairs of all duplicates form one epoch, which is shuffled again each time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx.data import noise
from lmx.data.batching.base import Batches, sizes
from lmx.errors import InputError, check_choice, check_least, check_share

SENTENCES = True


@dataclasses.dataclass(frozen=True)
class Config:
  """Sentence pairs.

  Attributes:
    masking: 'static' masks an example the same way in all epochs (BERT as released), 'dynamic' draws a new mask each
      epoch; 'left_to_right' masks nothing and predicts every token from those before it (LTR of section 5.1), for
      which the model must be causal.
    dupe_factor: number of times that pairs are sampled from the training split; all of them form one epoch.
    mask_prob: share of tokens per row that are predicted.
    max_predictions: maximum number of predictions per row; BERT's are 20 at length 128, 77 at 512.
    whole_word: mask all subwords of a word together.
    mask_share: share of the predicted tokens that become [MASK] (appendix C.2).
    random_share: share that become a random token; the others stay.
    random_specials: True if a random replacement may be a special token (as released).
    short_seq_prob: share of documents whose pairs have a random shorter target length.
    random_next_prob: share of pairs with a random second segment.
  """

  name: str = 'pairs'
  masking: str = 'static'
  dupe_factor: int = 10
  mask_prob: float = 0.15
  max_predictions: int = 20
  whole_word: bool = False
  mask_share: float = 0.8
  random_share: float = 0.1
  random_specials: bool = True
  short_seq_prob: float = 0.1
  random_next_prob: float = 0.5

  def __post_init__(self) -> None:
    check_choice('data.batching.masking', self.masking, ('static', 'dynamic', 'left_to_right'))
    check_least('data.batching', self, max_predictions=1, dupe_factor=1)
    for name in ('mask_prob', 'mask_share', 'random_share', 'short_seq_prob', 'random_next_prob'):
      check_share(f'data.batching.{name}', getattr(self, name))
    if self.mask_share + self.random_share > 1:
      raise InputError(
        f'data.batching.random_share: got {self.random_share} with mask_share {self.mask_share}; expected a sum of at '
        'most 1'
      )
    if self.masking == 'left_to_right':
      for name in ('mask_prob', 'max_predictions', 'whole_word', 'mask_share', 'random_share', 'random_specials'):
        if getattr(self, name) != getattr(type(self), name):
          raise InputError(
            f'data.batching.{name}: got {getattr(self, name)} with masking "left_to_right", which masks nothing; '
            'omit it'
          )


def check(data: Any) -> None:
  """Raise InputError if the `data` section does not fit."""
  shortest = min(data.length, data.eval_length or data.length)
  if shortest < 5:
    raise InputError(f'data.length: got {shortest}; expected at least 5 for sentence pairs')


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Pairs:
  """Return the batches of a split according to the `data` section. Evaluation has each pair once, with its own mask."""
  cfg = data.batching
  return Pairs(
    corpus.splits[split],
    *sizes(data, train),
    tokenizer=corpus.tokenizer,
    seed=seed,
    train=train,
    shuffle=data.shuffle,
    duplicates=cfg.dupe_factor if train else 1,
    dynamic=train and cfg.masking == 'dynamic',
    left_to_right=cfg.masking == 'left_to_right',
    mask_prob=cfg.mask_prob,
    max_predictions=cfg.max_predictions,
    whole_word=cfg.whole_word,
    mask_share=cfg.mask_share,
    random_share=cfg.random_share,
    random_specials=cfg.random_specials,
    short_seq_prob=cfg.short_seq_prob,
    random_next_prob=cfg.random_next_prob,
  )


class Spans(NamedTuple):
  """Sentence pairs as spans of the token array: segment A, segment B, and True if B is random."""

  a_start_I: np.ndarray
  a_length_I: np.ndarray
  b_start_I: np.ndarray
  b_length_I: np.ndarray
  random_I: np.ndarray


def pair_spans(
  offsets: np.ndarray,
  sentences: np.ndarray,
  length: int,
  random: np.random.Generator,
  *,
  short_seq_prob: float,
  random_next_prob: float,
) -> Spans:
  """Return sentence pairs by the rules of BERT's data code, for all documents at once.

  A document gets a target length: `length` - 3, or with `short_seq_prob` a random one from 2 to that. Whole sentences
  are collected until they reach it; a random number of them, at least one and not all, is segment A. With
  `random_next_prob`, or if there is only one sentence, B starts at a random sentence of another document and continues
  until the target is reached; the unused sentences are put back. If the other document is the same one, it is sampled
  again, up to ten times in all. Otherwise B is the rest. What exceeds `length` - 3 is removed from the longer segment,
  token by token at the front or the end. So a document with one sentence always gets a random next one.

  Args:
    offsets: starts of the documents and the end of the last one.
    sentences: starts of the sentences and the end of the last one.
    length: T, with room for [CLS] and two [SEP].
    random: random generator.
    short_seq_prob: 0.1 as released.
    random_next_prob: 0.5 as released.
  """
  limit = length - 3
  start_S = np.union1d(sentences, offsets)
  first_D, last_D = np.searchsorted(start_S, offsets[:-1]), np.searchsorted(start_S, offsets[1:])
  first_D, last_D = first_D[last_D > first_D], last_D[last_D > first_D]
  D = len(first_D)
  short_D = random.random(D) < short_seq_prob
  target_D = np.where(short_D, random.integers(2, limit, D, endpoint=True), limit)
  document, at, parts = np.arange(D), first_D, []
  while len(document):  # one pair from every document that has sentences left
    target = target_D[document]
    end = np.searchsorted(start_S, start_S[at] + target)
    end = np.minimum(np.maximum(end, at + 1), last_D[document])
    draw = random.random((3, len(document)))
    split = at + 1 + (draw[0] * (end - at - 1)).astype(np.int64)
    is_random = (end - at == 1) | (draw[1] < random_next_prob)
    other = random.integers(D, size=len(document))
    for _ in range(9):
      same = other == document
      other[same] = random.integers(D, size=int(same.sum()))
    start = first_D[other] + (draw[2] * (last_D - first_D)[other]).astype(np.int64)
    stop = np.searchsorted(start_S, start_S[start] + target - (start_S[split] - start_S[at]))
    stop = np.minimum(np.maximum(stop, start + 1), last_D[other])
    parts.append(
      np.stack(
        [
          start_S[at],
          start_S[split],
          start_S[np.where(is_random, start, split)],
          start_S[np.where(is_random, stop, end)],
          is_random,
        ]
      )
    )
    at = np.where(is_random, split, end)
    alive = at < last_D[document]
    document, at = document[alive], at[alive]
  table = np.concatenate(parts, axis=1)
  a, a_end, b, b_end, is_random = table[:, np.argsort(table[0], kind='stable')]
  return _truncate(a, a_end - a, b, b_end - b, is_random.astype(bool), limit, random)


def _truncate(
  a: np.ndarray,
  a_len: np.ndarray,
  b: np.ndarray,
  b_len: np.ndarray,
  is_random: np.ndarray,
  limit: int,
  random: np.random.Generator,
) -> Spans:
  """Truncate pairs to `limit` tokens: the longer segment (B on a tie) loses a token, randomly at the front or end."""
  over = np.maximum(a_len + b_len - limit, 0)
  uneven = np.minimum(over, np.abs(a_len - b_len))
  rest = over - uneven
  cut_a = np.where(a_len > b_len, uneven, 0) + rest // 2
  cut_b = np.where(a_len > b_len, 0, uneven) + (rest + 1) // 2
  position = np.int64 if max(a.max(), b.max()) >= 2**32 else np.uint32
  return Spans(
    (a + random.binomial(cut_a, 0.5)).astype(position),
    (a_len - cut_a).astype(np.int32),
    (b + random.binomial(cut_b, 0.5)).astype(position),
    (b_len - cut_b).astype(np.int32),
    is_random,
  )


class Pairs(Batches):
  """Sentence pairs with masked tokens, following BERT's data code (`pair_spans`, `noise.mask_tokens`).

  An epoch has the pairs of all `duplicates`, each with its own draws. Static masking is fixed per pair, as in
  the released code's record files; dynamic masking is new each epoch.
  """

  def __init__(
    self,
    split: Any,
    batch_size: int,
    length: int,
    *,
    tokenizer: Any,
    seed: int,
    train: bool,
    shuffle: bool = True,
    duplicates: int = 1,
    dynamic: bool = False,
    left_to_right: bool = False,
    mask_prob: float = 0.15,
    max_predictions: int = 20,
    whole_word: bool = False,
    mask_share: float = 0.8,
    random_share: float = 0.1,
    random_specials: bool = True,
    short_seq_prob: float = 0.1,
    random_next_prob: float = 0.5,
  ):
    super().__init__(
      split, batch_size, length, vocab_size=tokenizer.vocab_size, seed=seed, train=train, shuffle=shuffle
    )
    documents = int((np.diff(split.offsets) > 0).sum())
    if split.sentences is None or documents < 2:
      what = 'no sentences' if split.sentences is None else f'{documents} document(s)'
      raise InputError(f'{split.title}: got {what}; expected sentences and at least 2 documents for sentence pairs')
    spans = [
      pair_spans(
        split.offsets,
        split.sentences,
        length,
        noise.generator(seed, 'pairs', n),
        short_seq_prob=short_seq_prob,
        random_next_prob=random_next_prob,
      )
      for n in range(duplicates)
    ]
    self._spans = Spans(*map(np.concatenate, zip(*spans, strict=True)))
    self._ids = {name: getattr(tokenizer, f'{name}_id') for name in ('pad', 'cls', 'sep', 'mask')}
    missing = [name for name, i in self._ids.items() if i is None]
    if missing:
      raise InputError(
        f'data.tokenizer: got one without the special tokens {", ".join(missing)}; expected them for '
        'sentence pairs; set data.tokenizer=wordpiece, or data.special_tokens=("<pad>","<cls>","<sep>","<mask>") with '
        'data.tokenizer=bpe'
      )
    self._dynamic, self._mask_prob, self._max_predictions = dynamic, mask_prob, max_predictions
    self._left_to_right, self._shares = left_to_right, {'mask_share': mask_share, 'random_share': random_share}
    vocabulary = np.arange(tokenizer.vocab_size)
    # Tokenized as text after [CLS]: WordPiece marks continuations in the subword, so one table fits every position.
    self._starts_V = tokenizer.starts_word(np.append(tokenizer.cls_id, vocabulary))[1:] if whole_word else None
    self._replacements = vocabulary if random_specials else np.setdiff1d(vocabulary, _specials(tokenizer))
    lengths = self._spans.a_length_I.astype(np.int64) + self._spans.b_length_I + 3
    self.passes = duplicates
    self._set_size(len(lengths), int(lengths.sum()), f'about {batch_size * length}')

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    a_B, n_B, b_B, m_B, random_B = (x[example_B, None].astype(np.int64) for x in self._spans)
    column_BT = np.arange(self.length)[None] + 0 * n_B
    first_BT = (column_BT > 0) & (column_BT <= n_B)
    second_BT = (column_BT > n_B + 1) & (column_BT < n_B + m_B + 2)
    valid_BT = column_BT < n_B + m_B + 3
    position_BT = np.where(first_BT, a_B + column_BT - 1, b_B + column_BT - n_B - 2)
    words_BT = first_BT | second_BT
    tokens_BT = np.where(valid_BT, self._ids['sep'], self._ids['pad']).astype(np.int32)
    tokens_BT[:, 0] = self._ids['cls']
    tokens_BT[words_BT] = self._read(position_BT[words_BT])
    if self._left_to_right:
      batch = noise.predict_next(tokens_BT, valid_BT)
    else:
      batch = self._mask(tokens_BT, (n_B + m_B + 3)[:, 0], words_BT, example_B, epoch if self._dynamic else 0)
    batch['weights_BP'] *= live_B[:, None]
    types_BT = (valid_BT & (column_BT > n_B + 1)).astype(np.int32)
    return batch | dict(
      types_BT=types_BT,
      valid_BT=valid_BT,
      next_B=random_B[:, 0].astype(np.int32),
      row_weights_B=live_B.astype(np.float32),
    )

  def _mask(
    self, tokens_BT: np.ndarray, lengths_B: np.ndarray, words_BT: np.ndarray, example_B: np.ndarray, epoch: int
  ) -> dict[str, np.ndarray]:
    counters = ((epoch, int(example)) for example in example_B)
    return noise.mask_tokens(
      tokens_BT,
      lengths_B,
      words_BT,
      noise.uniform(self._seed, 'mask', counters, self.length + 2 * self._max_predictions),
      mask_id=self._ids['mask'],
      replacements=self._replacements,
      mask_prob=self._mask_prob,
      max_predictions=self._max_predictions,
      starts_BT=None if self._starts_V is None else self._starts_V[tokens_BT],
      **self._shares,
    )


def _specials(tokenizer: Any) -> Sequence[int]:
  ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
  return [i for i in ids if i is not None]
