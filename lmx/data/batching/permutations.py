"""Rows of XLNet (Yang et al. 2019, arXiv 1906.08237, sections 2.3 and 3.1): factorization orders of contiguous text.

A row of T tokens is [text, A, SEP, B, SEP, CLS]. The text is `reuse` tokens that continue the row's stream, and segment
A continues from there. Segment B follows A or (`random_next_prob`) starts elsewhere. If no sentence ends within reach
of A, B always starts elsewhere, as released (data_utils.py, `_split_a_and_b`). The next step starts `reuse` tokens
later, and its memory covers the first `reuse` tokens of this one. Both parts have predicted spans, each with its own
order; the first does not see the second (released data_utils.py).

`order_BT` encodes the attention mask (lmx/models/xlnet.py): 0 in the first part if all there may attend to it,
else the token's rank in the order from 1 on; the same in the second from T + 1 on. SEP and CLS have ranks too,
and are not predicted, as released. With `bidirectional` the second half of the rows read the first half's text in
reverse, flagged by `backward_B`.

As released, spans start at subwords that start a word, and at punctuation and special tokens, and are chosen in text
order if a row is read in reverse.

Deviations: a segment that is too long only loses tokens of B; and the spans are sampled again each epoch, where the
release stores them in its records.
"""

from __future__ import annotations

import dataclasses
import functools
import string
from typing import Any

import numpy as np

from lmx.data import noise
from lmx.data.batching.base import Batches, sizes, special_token_id
from lmx.errors import InputError, check_choice, check_least, check_share

SPANS = ('released', 'paper', 'single')
_PUNCTUATION = frozenset(string.punctuation)


@dataclasses.dataclass(frozen=True)
class Config:
  """Factorization orders.

  Attributes:
    reuse: number of contiguous text tokens per row that are cached in the memory; 0 is half of data.length.
    chunk: number of tokens that are permuted among themselves, at most `reuse`; 0 is `reuse`.
    predictions: number of predicted tokens per row; 0 is one in `context`, 85 of 512 as in the release.
    spans: 'released' and 'paper' predict spans (lmx/data/noise.py), 'single' single tokens.
    context: K; spans cover 1/K of the tokens.
    bidirectional: read half of the rows in reverse.
    random_next_prob: share of rows whose segment B does not follow A, among those in which a sentence ends within reach
      of A; 0 makes every B follow.
    unbroken: segment B of the other rows: 'random', or 'drawn', which also applies random_next_prob.
  """

  name: str = 'permutations'
  reuse: int = 0
  chunk: int = 0
  predictions: int = 0
  spans: str = 'released'
  context: int = 6
  bidirectional: bool = True
  random_next_prob: float = 0.5
  unbroken: str = 'random'

  def __post_init__(self) -> None:
    check_choice('data.batching.spans', self.spans, SPANS)
    check_least('data.batching', self, reuse=0, chunk=0, predictions=0, context=1)
    check_share('data.batching.random_next_prob', self.random_next_prob)
    check_choice('data.batching.unbroken', self.unbroken, ('random', 'drawn'))


def check(data: Any) -> None:
  """Raise InputError if the `data` section does not fit."""
  cfg = data.batching
  for length in {data.length, data.eval_length or data.length}:
    reuse = cfg.reuse or length // 2
    if length - reuse < 5 or cfg.chunk > reuse:
      raise InputError(
        f'data.length: got {length} with data.batching.chunk = {cfg.chunk}; expected a length of at least {reuse + 5}, '
        f'data.batching.reuse = {reuse} and two segments, and a chunk of at most {reuse}'
      )
    most = 2 * min(reuse, length - reuse - 3)
    if not 2 <= _predictions(cfg, length) <= most:
      raise InputError(
        f'data.batching.predictions: got {_predictions(cfg, length)} tokens of a row of {length}; expected 2 to '
        f'{most}, which both parts share'
      )
  if cfg.bidirectional and (data.batch_size % 2 or data.eval_batch_size % 2):
    raise InputError(
      'data.batch_size: got an odd data.batch_size or data.eval_batch_size with '
      'data.batching.bidirectional; expected even ones'
    )


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Permutations:
  """Return the batches of a split according to the `data` section."""
  return Permutations(
    corpus.splits[split], *sizes(data, train), cfg=data.batching, tokenizer=corpus.tokenizer, seed=seed, train=train
  )


def _predictions(cfg: Config, length: int) -> int:
  return cfg.predictions or length // cfg.context


class Permutations(Batches):
  """Batches as in the module's docstring; `next_B` is 1 if segment B is random.

  Attributes:
    predictions: number of predicted tokens per row.
  """

  stateful = True

  def __init__(self, split: Any, batch_size: int, length: int, *, cfg: Config, tokenizer: Any, seed: int, train: bool):
    super().__init__(split, batch_size, length, vocab_size=tokenizer.vocab_size, seed=seed, train=train, shuffle=False)
    self._cfg, self._reuse, self.predictions = cfg, cfg.reuse or length // 2, _predictions(cfg, length)
    self._always_random = cfg.unbroken == 'random' and cfg.random_next_prob > 0
    self._cls, self._sep = special_token_id(tokenizer, 'cls'), special_token_id(tokenizer, 'sep')
    self._tokenizer, self._also_V = tokenizer, np.zeros(0, bool)
    if cfg.spans == 'released':  # data_utils.py, _is_start_piece
      subwords = tokenizer.ids_to_tokens(range(tokenizer.vocab_size))
      self._also_V = np.asarray([piece[:1] == '<' or piece in _PUNCTUATION for piece in subwords])
    sentences = split.sentences if split.sentences is not None else split.offsets
    self._borders = np.asarray(sentences, np.int64)
    self._streams = batch_size // 2 if cfg.bidirectional else batch_size
    self._edges = np.arange(self._streams + 1) * self._tokens.size // self._streams
    steps = (int(np.diff(self._edges).min()) - length) // self._reuse + 1
    self._set_size(max(0, steps) * batch_size, max(0, steps) * batch_size * length, str(self._streams * length))

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    rows = [self._row(epoch, int(example)) for example in example_B]
    batch = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    batch['weights_BP'] *= live_B[:, None]
    return batch | dict(
      reset_B=example_B // self.batch_size == 0,
      backward_B=example_B % self.batch_size >= self._streams,
      row_weights_B=live_B.astype(np.float32),
    )

  def _row(self, epoch: int, example: int) -> dict[str, np.ndarray]:
    random = noise.generator(self._seed, 'permutations', epoch, example)
    step, number = divmod(example, self.batch_size)
    start, end = self._edges[number % self._streams : number % self._streams + 2].tolist()
    backward = number >= self._streams
    draw_border = functools.partial(self._draw_border, random, start, end, backward)
    first, room = step * self._reuse, self.length - self._reuse - 3
    begin = first + self._reuse
    border = draw_border(begin, begin + room)
    a = int(random.integers(1, room)) if border is None else border - begin
    probability = 1.0 if self._always_random and border is None else self._cfg.random_next_prob
    b, last = begin + a, end - start - (room - a)
    follows = random.random() >= probability
    if not follows:
      border = draw_border(0, last + 1)
      b = int(random.integers(last + 1)) if border is None else border
    position = np.concatenate([np.arange(first, begin + a), np.arange(b, b + room - a)])
    words = self._read(end - 1 - position if backward else start + position)
    cut = self._reuse + a
    tokens_T = np.concatenate([words[:cut], [self._sep], words[cut:], [self._sep, self._cls]]).astype(np.int32)
    types_T = np.repeat([0, 1, 2], [cut + 1, room - a + 1, 1]).astype(np.int32)
    function_T = np.zeros(self.length, bool)
    function_T[[cut, -2, -1]] = True
    row = dict(tokens_BT=tokens_T, types_BT=types_T, next_B=np.array(not follows, np.int32))
    return row | self._draw_predictions(tokens_T, function_T, backward, random)

  def _draw_border(
    self, random: np.random.Generator, start: int, end: int, backward: bool, low: int, high: int
  ) -> int | None:
    """Return a random sentence boundary between `low` and `high`, exclusive; None, without sampling, if there is none.

    All are token offsets in a stream, which is the text from `start` to `end` or its reverse.
    """
    text = (end - high, end - low) if backward else (start + low, start + high)
    first, stop = np.searchsorted(self._borders, text[0], 'right'), np.searchsorted(self._borders, text[1], 'left')
    if first >= stop:
      return None
    n = int(random.integers(stop - first))
    return end - int(self._borders[stop - 1 - n]) if backward else int(self._borders[first + n]) - start

  def _draw_predictions(
    self, tokens_T: np.ndarray, function_T: np.ndarray, backward: bool, random: np.random.Generator
  ) -> dict[str, np.ndarray]:
    """Return order_BT and the predictions of one row."""
    count, parts = self.predictions, (slice(0, self._reuse), slice(self._reuse, self.length))
    chosen_T, order_T = np.zeros(self.length, bool), np.zeros(self.length, np.int32)
    for part, number, base in zip(parts, (count - count // 2, count // 2), (0, self.length + 1), strict=True):
      n = part.stop - part.start
      direction = slice(None, None, -1 if backward else 1)
      chosen_T[part] = self._choose(tokens_T[part][direction], number, random)[direction]
      rank_T = base + 1 + noise.factorization_order(n, self._cfg.chunk or n, random)
      order_T[part] = np.where(chosen_T[part] | function_T[part], rank_T, base)
    at = np.flatnonzero(chosen_T & ~function_T)
    positions_P, targets_P = np.zeros((2, count), np.int32)
    weights_P = np.zeros(count, np.float32)
    positions_P[: len(at)], targets_P[: len(at)], weights_P[: len(at)] = at, tokens_T[at], 1
    return dict(order_BT=order_T, positions_BP=positions_P, targets_BP=targets_P, weights_BP=weights_P)

  def _choose(self, tokens_T: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    if self._cfg.spans == 'single':
      return np.isin(np.arange(len(tokens_T)), random.permutation(len(tokens_T))[:count])
    released = self._cfg.spans == 'released'
    starts_T = self._tokenizer.starts_word(tokens_T) | self._also_V[tokens_T] if released else None
    return noise.choose_spans(len(tokens_T), count, random, starts_T, context=self._cfg.context)
