"""Batches as pure functions of (seed, step, row) over a split's token array.

`Windows` (and `streams.Streams`) are index arithmetic, `Packed` reads an index of pieces made once, `Pairs` a list of
sentence pairs made once (Devlin et al. 2018, arXiv 1810.04805, and the code released with it,
create_pretraining_data.py: `pair_spans` and its docstring). Any step costs the same to reach, and a row holds the same
whichever host asks for it.

Letters: B rows of the global batch, T positions, P predicted positions, L pieces of packed documents, I examples.
`index_B` is the number of the row's window, packed row or pair in its split (for streams, step in the epoch times
batch size plus row); -1 marks a row that only fills up the last batch of an evaluation.

Deviation of `Pairs`: sentences that the released code deletes token by token are cut at once, with the same
distribution; and the pairs of all duplicates form one epoch, shuffled anew each time it is read.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import grain
import numpy as np

from lmx.data import noise
from lmx.errors import InputError

_SHUFFLE_ROUNDS = 4  # of Grain's index permutation; its own default


class Batches(abc.ABC):
  """The batches of one split.

  Calling it with (step, rows) gives a dict of arrays for those rows of the global batch. In training any step from 0
  up may be asked for and epochs follow one another; in evaluation steps run from 0 to `steps - 1`.

  Attributes:
    steps: steps in an epoch of training, or in the whole evaluation.
    batch_size: rows of the global batch.
    length: T.
    stateful: whether row b of a step goes on where row b of the step before ended.
    examples: number of windows, packed rows or pairs in an epoch.
    tokens_per_epoch: positions that hold a token and not padding, over an epoch's examples.
  """

  stateful = False
  examples: int
  tokens_per_epoch: int

  def __init__(self, split: Any, batch_size: int, length: int, *, vocab_size: int, seed: int, train: bool,
               shuffle: bool = True):
    self.batch_size, self.length = batch_size, length
    self._tokens = np.asarray(split.tokens)  # of a memory map: a view, nothing is read
    self._split, self._vocab_size = split.name, vocab_size
    self._seed, self._train, self._shuffle = seed, train, shuffle and train
    if self._tokens.size < 2:
      raise InputError(f'split {split.name} has {self._tokens.size} tokens; at least 2 are needed')

  def _set(self, examples: int, tokens: int, needed: str) -> None:
    self.examples, self.tokens_per_epoch = examples, tokens
    self.steps = examples // self.batch_size if self._train else -(-examples // self.batch_size)
    if self.steps == 0:
      raise InputError(
        f'split {self._split} is too small for one batch of {self.batch_size} rows of {self.length}: '
        f'it has {self._tokens.size} tokens, {needed} are needed')

  def __call__(self, step: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
    """Returns the given rows of the batch of `step`."""
    epoch, local = self.epoch_of(step)
    if step < 0 or (epoch and not self._train):
      raise IndexError(f'step {step} of split {self._split}, which has {self.steps} steps')
    example_B = local * self.batch_size + np.arange(self.batch_size)[rows]
    live_B = example_B < self.examples
    example_B = np.minimum(example_B, self.examples - 1)
    if self._shuffle:
      key = self._epoch_seed('shuffle', epoch)
      permuted = (grain.experimental.index_shuffle(int(i), self.examples - 1, key, _SHUFFLE_ROUNDS) for i in example_B)
      example_B = np.fromiter(permuted, np.int64, len(example_B))
    batch = self._make(epoch, example_B, live_B)
    batch['index_B'] = np.where(live_B, example_B, -1).astype(np.int32)
    return batch

  def epoch_of(self, step: int) -> tuple[int, int]:
    """Returns the epoch of a step, and the number of the step within it."""
    return divmod(step, self.steps)

  def steps_in(self, epochs: float) -> int:
    """Returns the number of steps of the first `epochs` epochs, rounded."""
    return round(epochs * self.steps)

  def positions(self) -> int:
    """Returns the positions of an epoch, padding included."""
    return self.steps * self.batch_size * self.length

  @abc.abstractmethod
  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    """Builds the rows of the given examples; rows that are not live get weight 0."""

  def _epoch_seed(self, purpose: str, epoch: int) -> int:
    return int(noise.generator(self._seed, purpose, epoch).integers(2**32))

  def _read(self, position: np.ndarray) -> np.ndarray:
    """Returns the tokens at the positions as int32, after checking them against the vocabulary."""
    tokens = self._tokens[position]
    if tokens.size and not (0 <= tokens.min() and tokens.max() < self._vocab_size):
      bad = np.flatnonzero((tokens.ravel() < 0) | (tokens.ravel() >= self._vocab_size))[0]
      raise InputError(
        f'split {self._split} has token id {tokens.ravel()[bad]} at position {position.ravel()[bad]}, but the '
        f'vocabulary has {self._vocab_size} entries: the tokenizer is not the one that made this data')
    return tokens.astype(np.int32)

  def _next_tokens(self, start_B: np.ndarray, live_BT: np.ndarray) -> dict[str, np.ndarray]:
    """Reads inputs and next-token targets from `start_B` on, with weight 0 where not live."""
    last = self._tokens.size - 1
    tokens_BS = self._read(np.minimum(start_B[:, None] + np.arange(live_BT.shape[1] + 1), last))
    return dict(
      tokens_BT=np.where(live_BT, tokens_BS[:, :-1], 0), targets_BT=np.where(live_BT, tokens_BS[:, 1:], 0),
      weights_BT=live_BT.astype(np.float32))


class Windows(Batches):
  """Blocks of T tokens and their next tokens, for models without state.

  Training: the blocks of an epoch do not overlap, start at an offset drawn for the epoch, and come in an order drawn
  for the epoch (without `shuffle`: offset 0, in order); fewer than 2T tokens at the ends and fewer than B blocks are
  left out, other ones each epoch. Evaluation: every token but the first is predicted exactly once; with `stride` below
  T the blocks overlap and a token has at least T - stride tokens before it in its block, the first block's excepted.
  """

  def __init__(self, split: Any, batch_size: int, length: int, *, vocab_size: int, seed: int, train: bool,
               shuffle: bool = True, stride: int = 0):
    super().__init__(split, batch_size, length, vocab_size=vocab_size, seed=seed, train=train, shuffle=shuffle)
    self._predicted = self._tokens.size - 1
    self._stride = length if train else stride or length
    blocks = 1 + -(-max(self._predicted - length, 0) // self._stride)
    if train:
      blocks = max(self._tokens.size - length, 0) // length  # at least T offsets leave room for them
    self._offsets = self._predicted - blocks * length + 1
    self._set(blocks, blocks * length if train else self._predicted, str((batch_size + 1) * length))

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    offset = self._epoch_seed('offset', epoch) % self._offsets if self._shuffle else 0
    start_B = offset + example_B * self._stride
    column_T = np.arange(self.length)
    new_B = np.where(example_B > 0, self.length - self._stride, 0)  # first column not predicted by the block before
    inside_BT = start_B[:, None] + column_T < self._predicted
    batch = self._next_tokens(start_B, inside_BT)
    batch['weights_BT'] *= live_B[:, None] & (column_T >= new_B[:, None])
    return batch


def _best_fit(lengths_L: np.ndarray, capacity: int) -> np.ndarray:
  """Best-fit decreasing bin packing; returns the row of each piece. O(L): rows are kept by the room they have left."""
  row_L = np.zeros(len(lengths_L), np.int64)
  room: list[list[int]] = [[] for _ in range(capacity + 1)]
  there, rows = 0, 0  # bit r of `there`: some row has room r
  for piece in np.argsort(-lengths_L, kind='stable').tolist():
    n = int(lengths_L[piece])
    fitting = there >> n
    if fitting:
      left = n + (fitting & -fitting).bit_length() - 1
      row = room[left].pop()
      if not room[left]:
        there ^= 1 << left
    else:
      left, row, rows = capacity, rows, rows + 1
    row_L[piece] = row
    if left > n:
      room[left - n].append(row)
      there |= 1 << (left - n)
  return row_L


class Pieces(NamedTuple):
  """Packed documents: which targets fill which row. Sorted by row.

  Attributes:
    target_L: position in the split of the piece's first target.
    length_L: number of targets.
    opens_L: whether the piece opens its document, so that its first input is the start symbol.
    column_L: where in the row the piece begins.
    rows_R: first piece of each row, and the number of pieces (rows + 1 entries).
  """

  target_L: np.ndarray
  length_L: np.ndarray
  opens_L: np.ndarray
  column_L: np.ndarray
  rows_R: np.ndarray


def pack(offsets: np.ndarray, length: int, method: str, started: bool) -> Pieces:
  """Packs documents into rows of `length` targets.

  Args:
    offsets: starts of the documents and the end of the last one.
    length: T.
    method: 'split' lays the documents end to end and cuts every T; 'best_fit' cuts only documents longer than T and
      fills rows by best-fit decreasing.
    started: whether the first token of a document is predicted, from a start symbol; otherwise it is only an input.
  """
  first_D = offsets[:-1] + (0 if started else 1)
  size_D = np.maximum(offsets[1:] - first_D, 0)
  end_D = np.cumsum(size_D)  # in the documents' targets laid end to end
  if method == 'split':
    cuts_L = np.union1d(end_D, np.arange(0, end_D[-1], length))
    cuts_L = np.union1d(cuts_L, [0, end_D[-1]])
    begin_L, length_L = cuts_L[:-1], np.diff(cuts_L)
    document_L = np.searchsorted(end_D, begin_L, 'right')
    row_L = begin_L // length
  else:
    count_D = -(-size_D // length)
    document_L = np.repeat(np.arange(len(size_D)), count_D)
    nth_L = np.arange(len(document_L)) - np.repeat(np.cumsum(count_D) - count_D, count_D)
    begin_L = (end_D - size_D)[document_L] + nth_L * length
    length_L = np.minimum(length, end_D[document_L] - begin_L)
    row_L = _best_fit(length_L, length)
  order_L = np.argsort(row_L, kind='stable')
  row_L, begin_L, length_L, document_L = row_L[order_L], begin_L[order_L], length_L[order_L], document_L[order_L]
  within_L = begin_L - (end_D - size_D)[document_L]
  rows_R = np.searchsorted(row_L, np.arange(row_L[-1] + 2 if len(row_L) else 1))
  before_L = np.cumsum(length_L) - length_L
  return Pieces(
    first_D[document_L] + within_L, length_L.astype(np.int32), (within_L == 0) & started,
    (before_L - before_L[rows_R[:-1]][row_L]).astype(np.int32), rows_R)


class Packed(Batches):
  """Documents packed into rows of T: documents_BT numbers the pieces of a row from 1 (0 is padding), position_BT counts
  inside the piece, and a model attends within equal numbers only.

  Where the tokenizer has an end-of-text id it is the first input of every document, and every token of the split is
  predicted exactly once in an epoch; without one a document's first token is input only. The tail of a document cut at
  a row's end goes on with the token before the cut as its first input.
  """

  def __init__(self, split: Any, batch_size: int, length: int, *, vocab_size: int, seed: int, train: bool,
               shuffle: bool = True, method: str = 'best_fit', start_id: int | None = None):
    super().__init__(split, batch_size, length, vocab_size=vocab_size, seed=seed, train=train, shuffle=shuffle)
    self._pieces = pack(np.asarray(split.offsets), length, method, start_id is not None)
    self._start_id = start_id
    self._set(len(self._pieces.rows_R) - 1, int(self._pieces.length_L.sum()), f'about {batch_size * length}')

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    pieces, shape = self._pieces, (len(example_B), self.length)
    low_B, count_B = pieces.rows_R[example_B], np.diff(pieces.rows_R)[example_B]
    row_L = np.repeat(np.arange(len(example_B)), count_B)
    ordinal_L = np.arange(len(row_L)) - np.repeat(np.cumsum(count_B) - count_B, count_B)
    piece_L = low_B[row_L] + ordinal_L
    length_L = pieces.length_L[piece_L]
    each = np.repeat(np.arange(len(piece_L)), length_L)  # one entry for each token from here on
    within = np.arange(len(each)) - np.repeat(np.cumsum(length_L) - length_L, length_L)
    at = row_L[each], pieces.column_L[piece_L][each] + within
    target = pieces.target_L[piece_L][each] + within
    inputs = self._read(np.maximum(target - 1, 0))
    if self._start_id is not None:
      inputs = np.where(pieces.opens_L[piece_L][each] & (within == 0), self._start_id, inputs)
    values = dict(tokens_BT=inputs, targets_BT=self._read(target), documents_BT=ordinal_L[each] + 1, position_BT=within)
    batch = {name: np.zeros(shape, np.int32) for name in values}
    for name, value in values.items():
      batch[name][at] = value
    batch['weights_BT'] = np.zeros(shape, np.float32)
    batch['weights_BT'][at] = live_B[at[0]]
    return batch


class Spans(NamedTuple):
  """Sentence pairs as spans of the token array: segment A, segment B, and whether B is a random one."""

  a_start_I: np.ndarray
  a_length_I: np.ndarray
  b_start_I: np.ndarray
  b_length_I: np.ndarray
  random_I: np.ndarray


def pair_spans(offsets: np.ndarray, sentences: np.ndarray, length: int, random: np.random.Generator, *,
               short_seq_prob: float, random_next_prob: float) -> Spans:
  """Makes sentence pairs by the rules of BERT's data code, over all documents at once.

  A document gets a target length: `length` - 3, or with `short_seq_prob` a random one from 2 to that. Whole sentences
  are gathered until they reach it; a random number of them, at least one and not all, is segment A. With
  `random_next_prob`, or if there is one sentence only, B is taken from a random start in another document (drawn again
  up to ten times when it is the same one) until the target is reached, and the sentences not used are put back;
  otherwise B is the rest. What exceeds `length` - 3 is cut from the longer segment, token by token at the front or the
  end. A document with one sentence so always gives a random next one.

  Args:
    offsets: starts of the documents and the end of the last one.
    sentences: starts of the sentences and the end of the last one.
    length: T, with room for [CLS] and two [SEP].
    random: source of all draws.
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
  while len(document):  # one pair of every document that has sentences left
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
    parts.append(np.stack([
      start_S[at], start_S[split], start_S[np.where(is_random, start, split)],
      start_S[np.where(is_random, stop, end)], is_random]))
    at = np.where(is_random, split, end)
    alive = at < last_D[document]
    document, at = document[alive], at[alive]
  table = np.concatenate(parts, axis=1)
  a, a_end, b, b_end, is_random = table[:, np.argsort(table[0], kind='stable')]
  return _truncate(a, a_end - a, b, b_end - b, is_random.astype(bool), limit, random)


def _truncate(a: np.ndarray, a_len: np.ndarray, b: np.ndarray, b_len: np.ndarray, is_random: np.ndarray, limit: int,
              random: np.random.Generator) -> Spans:
  """Cuts pairs to `limit` tokens: the longer segment loses the next one (B on a tie), at the front or end by a coin."""
  over = np.maximum(a_len + b_len - limit, 0)
  uneven = np.minimum(over, np.abs(a_len - b_len))
  rest = over - uneven
  cut_a = np.where(a_len > b_len, uneven, 0) + rest // 2
  cut_b = np.where(a_len > b_len, 0, uneven) + (rest + 1) // 2
  position = np.int64 if max(a.max(), b.max()) >= 2**32 else np.uint32
  return Spans(
    (a + random.binomial(cut_a, 0.5)).astype(position), (a_len - cut_a).astype(np.int32),
    (b + random.binomial(cut_b, 0.5)).astype(position), (b_len - cut_b).astype(np.int32), is_random)


class Pairs(Batches):
  """Sentence pairs with masked tokens, as BERT's data code makes them (`pair_spans`, `noise.mask_tokens`).

  An epoch is the pairs of all `duplicates`, each made with draws of its own. Static noise belongs to the pair, as in
  the released code's record files; dynamic noise is new each epoch.
  """

  def __init__(self, split: Any, batch_size: int, length: int, *, tokenizer: Any, seed: int, train: bool,
               shuffle: bool = True, duplicates: int = 1, dynamic: bool = False, mask_prob: float = 0.15,
               max_predictions: int = 20, whole_word: bool = False, random_specials: bool = True,
               short_seq_prob: float = 0.1, random_next_prob: float = 0.5):
    super().__init__(
      split, batch_size, length, vocab_size=tokenizer.vocab_size, seed=seed, train=train, shuffle=shuffle)
    documents = int((np.diff(split.offsets) > 0).sum())
    if split.sentences is None or documents < 2:
      what = 'no sentences' if split.sentences is None else f'{documents} document(s)'
      raise InputError(f'split {split.name} has {what}; sentence pairs need sentences and at least 2 documents')
    made = [
      pair_spans(split.offsets, split.sentences, length, noise.generator(seed, 'pairs', n),
                 short_seq_prob=short_seq_prob, random_next_prob=random_next_prob) for n in range(duplicates)]
    self._spans = Spans(*map(np.concatenate, zip(*made, strict=True)))
    self._ids = {name: getattr(tokenizer, f'{name}_id') for name in ('pad', 'cls', 'sep', 'mask')}
    missing = [name for name, i in self._ids.items() if i is None]
    if missing:
      raise InputError(f'sentence pairs need a tokenizer with the special tokens {", ".join(missing)} (wordpiece)')
    self._dynamic, self._mask_prob, self._max_predictions = dynamic, mask_prob, max_predictions
    vocabulary = np.arange(tokenizer.vocab_size)
    # Read as a text after [CLS]: WordPiece marks continuations in the piece itself, so one table serves every place.
    self._starts_V = tokenizer.starts_word(np.append(tokenizer.cls_id, vocabulary))[1:] if whole_word else None
    self._replacements = vocabulary if random_specials else np.setdiff1d(vocabulary, _specials(tokenizer))
    lengths = self._spans.a_length_I.astype(np.int64) + self._spans.b_length_I + 3
    self._set(len(lengths), int(lengths.sum()), f'about {batch_size * length}')

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
    width = self.length + 2 * self._max_predictions
    counters = ((epoch if self._dynamic else 0, int(example)) for example in example_B)
    batch = noise.mask_tokens(
      tokens_BT, (n_B + m_B + 3)[:, 0], words_BT, noise.uniform(self._seed, 'mask', counters, width),
      mask_id=self._ids['mask'], replacements=self._replacements, mask_prob=self._mask_prob,
      max_predictions=self._max_predictions, starts_BT=None if self._starts_V is None else self._starts_V[tokens_BT])
    batch['weights_BP'] *= live_B[:, None]
    types_BT = (valid_BT & (column_BT > n_B + 1)).astype(np.int32)
    return batch | dict(
      types_BT=types_BT, valid_BT=valid_BT, next_B=random_B[:, 0].astype(np.int32),
      row_weights_B=live_B.astype(np.float32))


def _specials(tokenizer: Any) -> Sequence[int]:
  ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
  return [i for i in ids if i is not None]
