"""Words with their windows and noise words, for word2vec: chunks of consecutive words, many small updates per batch.

As in word2vec.c, words outside the vocabulary are removed and frequent words are subsampled. A word is kept with
probability (sqrt(f / sample) + 1) sample / f, f its share of the text; Mikolov et al. 2013, arXiv 1310.4546,
section 2.3, prints another formula. Windows are placed afterwards, within the sentence, each with a random width from 1
to `window`. Noise words are sampled from the counts to the power 3/4 (section 2.2).

The text is read in blocks of raw tokens, and the subsample of a block depends only on (seed, epoch, block).
A block's kept words are split into chunks of T centres. An epoch's chunks are divided evenly among its rows, J or fewer
to each. So a batch is a function of (seed, step, row), and an epoch costs one extra pass over the tokens.

The number of centres in one update (batch_size x chunk) affects stability, because a word in many of their pairs gets
the sum of their gradients. With subsampling, 256 is stable. The exception is skip-gram with hierarchical
softmax, where the top of the tree is in every pair. At 256 two of three seeds gave clearly worse vectors, at 128 none
did (window 5). Without subsampling and with window 10 it diverged at 256.

Deviations: a sentence also ends at the end of a block, as it does in word2vec.c after 1,000 words.

Axes: J updates per step; T centres; S = T + 2 window context slots, where slot t + window is centre t; M noise words
per update, or nodes below the top of the tree; R top nodes; W = 2 window context slots per centre; K noise words per
pair; C chunks; N kept words per block; P the same with padding; L nodes below the top on the paths of a block's words.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from lmx.data import huffman, noise
from lmx.data.batching.base import Batches, sizes
from lmx.errors import InputError, check_least

BLOCK = 1 << 15  # raw tokens
_SLACK = 0.005  # share of extra rows, for epochs that keep more words than the first


@dataclasses.dataclass(frozen=True)
class Config:
  """Words with their windows and noise.

  Attributes:
    window: maximum number of words on either side of a centre; each centre's width is sampled from 1 to it.
    chunk: centres per update in each row; a row of `data.length` words is length / chunk updates.
    sample: words with a larger share of the text are subsampled; 0 keeps all.
    negative: number of noise words per pair; 0 is hierarchical softmax.
    shared_negatives: number of noise words shared by an update's pairs, weighted to `negative`; 0 samples them per
      pair.
    noise_power: exponent of the counts in the noise distribution (arXiv 1310.4546, section 2.2).
    top_nodes: number of tree nodes that every update reads; affects only speed.
    path_slots: room of an update for further nodes per centre; affects only speed.
    words_only: drop tokens without a letter or digit.
  """

  name: str = 'skipgrams'
  window: int = 5
  chunk: int = 32
  sample: float = 1e-3
  negative: int = 5
  shared_negatives: int = 32
  noise_power: float = 0.75
  top_nodes: int = 32
  path_slots: int = 9
  words_only: bool = False

  def __post_init__(self) -> None:
    check_least(
      'data.batching', self, window=1, chunk=1, sample=0, negative=0, shared_negatives=0, top_nodes=1, path_slots=1
    )


class Block(NamedTuple):
  """The kept words in a block.

  Attributes:
    token_P: ids; `window` zeros before them and S after them, so that every slot of a chunk exists.
    sentence_P: index of the word's sentence in the block, from 1; padded like the ids.
    window_P: width of the word's window; padded like the ids.
    offset_C: first word of each chunk, and the number of words.
    below_N: with hierarchical softmax, the cumulative number of nodes below the top on the words' paths.
    node_L, owner_L, sign_L: those nodes, the position of the word whose path each is on, and its sign.
  """

  token_P: np.ndarray
  sentence_P: np.ndarray
  window_P: np.ndarray
  offset_C: np.ndarray
  below_N: np.ndarray
  node_L: np.ndarray
  owner_L: np.ndarray
  sign_L: np.ndarray


def count_words(corpus: Any, words_only: bool, side: str = '') -> np.ndarray:
  """Return each token's count in the training split; 0 for non-words.

  Args:
    corpus: the Corpus.
    words_only: also exclude tokens without a letter or digit.
    side: 'source' or 'target' of pairs of texts; '' counts all texts.
  """
  tokenizer = corpus.tokenizer.target if side == 'target' else corpus.tokenizer
  if tokenizer.kind != 'words':
    raise InputError(f'data.tokenizer: got "{tokenizer.kind}" with data.batching "skipgrams"; expected "words"')
  tokens, offsets = np.asarray(corpus.splits['train'].tokens), corpus.splits['train'].offsets
  counts_V = np.zeros(tokenizer.vocab_size, np.int64)
  for i in range(0, tokens.size, 1 << 24):
    part = tokens[i : i + (1 << 24)]
    if side:  # each source is followed by its target
      document = np.searchsorted(offsets, np.arange(i, i + part.size), 'right') - 1
      part = part[document % 2 == (side == 'target')]
    counts_V += np.bincount(part, minlength=tokenizer.vocab_size)
  for i, word in enumerate(tokenizer.tokens):
    if i in (tokenizer.unk_id, tokenizer.eos_id) or not word.strip() or words_only and not any(map(str.isalnum, word)):
      counts_V[i] = 0
  if np.count_nonzero(counts_V) < 2:
    raise InputError(
      'data.batching: got fewer than two words of the vocabulary in the training split; expected at least two'
    )
  return counts_V


def keep_probability(counts_V: np.ndarray, sample: float) -> np.ndarray:
  """Return the probability that an occurrence of each word is kept; 0 if a word has no count.

  Args:
    counts_V: occurrences of each word.
    sample: word2vec.c's threshold; 0 keeps all.
  """
  if not sample:
    return (counts_V > 0).astype(np.float32)
  share_V = np.maximum(counts_V, 1) / counts_V.sum()
  return np.where(counts_V > 0, (np.sqrt(share_V / sample) + 1) * sample / share_V, 0).astype(np.float32)


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Skipgrams:
  """Return the batches of a split according to the `data` section."""
  cfg = data.batching
  return Skipgrams(
    corpus.splits[split],
    *sizes(data, train),
    seed=seed,
    train=train,
    counts_V=count_words(corpus, cfg.words_only),
    window=cfg.window,
    chunk=cfg.chunk,
    sample=cfg.sample,
    negative=cfg.negative,
    shared=cfg.shared_negatives,
    noise_power=cfg.noise_power,
    top=cfg.top_nodes,
    path_slots=cfg.path_slots,
  )


class Skipgrams(Batches):
  """Batches of word chunks, see the module's docstring.

  Args:
    split: the Split.
    batch_size: B, rows of one update.
    length: words per row, J * chunk.
    counts_V: see `count_words`.
    window: maximum number of words on either side.
    chunk: T.
    sample: threshold of `keep_probability`.
    negative: number k of noise words per pair; 0 is hierarchical softmax.
    shared: M, noise words shared by all pairs of an update; 0 samples k per pair.
    noise_power: exponent of the counts in the noise distribution.
    top: R.
    path_slots: M / T with hierarchical softmax; a chunk whose words have more nodes below the top is split.
  """

  def __init__(
    self,
    split: Any,
    batch_size: int,
    length: int,
    *,
    counts_V: np.ndarray,
    seed: int,
    train: bool,
    window: int,
    chunk: int,
    sample: float,
    negative: int,
    shared: int,
    noise_power: float,
    top: int,
    path_slots: int,
  ):
    super().__init__(split, batch_size, length, vocab_size=len(counts_V), seed=seed, train=train, shuffle=False)
    if length % chunk:
      raise InputError(f'data.length: got {length}; expected a multiple of data.batching.chunk, which is {chunk}')
    self._window, self._chunk, self._updates = window, chunk, length // chunk
    self._negative, self._shared = negative, shared
    self._keep_V = keep_probability(counts_V, sample)
    starts = split.offsets if split.sentences is None else split.sentences
    self._starts = np.asarray(starts)
    self._capacity = 0
    if negative:
      power_V = counts_V.astype(np.float64) ** noise_power * (counts_V > 0)
      self._noise_words = noise.Choice(power_V)
    else:
      self._split_paths(counts_V, top, path_slots)
    self._blocks = -(-self._tokens.size // BLOCK)
    self._block = functools.lru_cache(maxsize=8)(self._split_block)
    self._plan = functools.lru_cache(maxsize=2)(self._count)
    chunks = int(self._plan(0)[-1])
    rows = -(-chunks // self._updates)
    if train:
      rows = -(-int(chunks * (1 + _SLACK) + 8) // self._updates)
      rows = -(-rows // batch_size) * batch_size
    self._set_size(rows if chunks else 0, self._words, str(chunk))

  def _split_paths(self, counts_V: np.ndarray, top: int, path_slots: int) -> None:
    """Split every word's path in the tree into the top nodes and those below."""
    tree = huffman.build(counts_V)
    word = np.repeat(np.arange(len(counts_V)), np.diff(tree.starts_V))
    is_top = tree.nodes < top
    self._top_VR = np.zeros((len(counts_V), top), np.int8)
    self._top_VR[word[is_top], tree.nodes[is_top]] = tree.signs[is_top]
    self._nodes, self._signs = tree.nodes[~is_top], tree.signs[~is_top]
    self._below_V = np.bincount(word[~is_top], minlength=len(counts_V))
    self._first_V = np.cumsum(self._below_V) - self._below_V
    self._capacity = max(self._chunk * path_slots, int(self._below_V.max()))

  def _subsample(self, epoch: int, number: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    """Return a block's generator after the choice of its words, its raw tokens, and True for those that are kept."""
    token_N = self._read(np.arange(number * BLOCK, min((number + 1) * BLOCK, self._tokens.size)))
    draw = noise.generator(self._seed, 'sample', epoch, number)
    return draw, token_N, draw.random(len(token_N), np.float32) < self._keep_V[token_N]

  def _split_block(self, epoch: int, number: int) -> Block:
    """Subsample a block, draw its windows and split it into chunks."""
    begin = number * BLOCK
    draw, token_N, is_kept = self._subsample(epoch, number)
    low, high = np.searchsorted(self._starts, (begin + 1, begin + len(token_N)))
    opens_N = np.zeros(len(token_N), np.int32)
    opens_N[self._starts[low:high] - begin] = 1
    sentence_N = 1 + np.cumsum(opens_N, dtype=np.int32)
    token_N = token_N[is_kept]
    window_N = draw.integers(1, self._window, len(token_N), np.int32, endpoint=True)
    padding = self._window, self._chunk + 2 * self._window
    token_P, sentence_P, window_P = (np.pad(part, padding) for part in (token_N, sentence_N[is_kept], window_N))
    return Block(token_P, sentence_P, window_P, self._chunk_offsets(token_N), **self._paths(token_N))

  def _paths(self, token_N: np.ndarray) -> dict[str, np.ndarray]:
    """Return the arrays of a Block that belong to hierarchical softmax; empty without it."""
    if not self._capacity:
      return {name: np.zeros(0, np.int32) for name in ('below_N', 'node_L', 'owner_L', 'sign_L')}
    count_N, below_N = self._below_V[token_N], self._below(token_N)
    at = np.arange(below_N[-1]) + np.repeat(self._first_V[token_N] - below_N[:-1], count_N)
    owner_L = np.repeat(np.arange(len(token_N), dtype=np.int32), count_N)
    return dict(below_N=below_N, node_L=self._nodes.take(at), owner_L=owner_L, sign_L=self._signs.take(at))

  def _below(self, token_N: np.ndarray) -> np.ndarray:
    return np.append(0, np.cumsum(self._below_V[token_N]))

  def _chunk_offsets(self, token_N: np.ndarray) -> np.ndarray:
    offset_C = np.append(np.arange(0, len(token_N), self._chunk), len(token_N))
    if not self._capacity:
      return offset_C
    below_N = self._below(token_N)
    more = []
    for c in np.flatnonzero(np.diff(below_N[offset_C]) > self._capacity):
      at = offset_C[c]
      while below_N[offset_C[c + 1]] - below_N[at] > self._capacity:
        at = np.searchsorted(below_N, below_N[at] + self._capacity, 'right') - 1
        more.append(at)
    return np.union1d(offset_C, more).astype(np.int64)

  def _count(self, epoch: int) -> np.ndarray:
    """Return the number of chunks before each block of an epoch, and in the whole epoch."""
    chunks, words = np.zeros(self._blocks + 1, np.int64), 0
    for number in range(self._blocks):
      _, token_N, is_kept = self._subsample(epoch, number)
      token_N = token_N[is_kept]
      chunks[number + 1] = len(self._chunk_offsets(token_N)) - 1
      words += len(token_N)
    if epoch == 0:
      self._words = words
    return np.cumsum(chunks)

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    B, J, T, S = len(example_B), self._updates, self._chunk, self._chunk + 2 * self._window
    shapes: dict[str, tuple[Any, ...]] = {
      'tokens_BJS': (np.int32, S),
      'documents_BJS': (np.int32, S),
      'window_BJT': (np.int32, T),
    }
    if not self._negative:
      M, R = self._capacity, self._top_VR.shape[1]
      shapes |= {'top_BJTR': (np.int8, T, R), 'path_BJM': (np.int32, M), 'owner_BJM': (np.int32, M)}
      shapes['sign_BJM'] = (np.int8, M)
    arrays = {name: np.zeros((B, J, *sizes), dtype) for name, (dtype, *sizes) in shapes.items()}
    noise_words = []
    for b, (example, is_live) in enumerate(zip(example_B, live_B, strict=True)):
      row = int(example) if is_live else -1
      self._fill(epoch, row, {name: x[b] for name, x in arrays.items()})
      if self._negative:
        noise_words.append(self._noise(epoch, max(row, 0)))
    return arrays | ({key: np.stack([x[key] for x in noise_words]) for key in noise_words[0]} if noise_words else {})

  def _fill(self, epoch: int, row: int, arrays: dict[str, np.ndarray]) -> None:
    """Fill the zero arrays of one row; -1 is a padding row."""
    J, T, S, w = self._updates, self._chunk, self._chunk + 2 * self._window, self._window
    plan = self._plan(epoch)
    chunks, rows = min(int(plan[-1]), self.examples * J), self.examples
    first, last = (row * chunks // rows, (row + 1) * chunks // rows) if row >= 0 else (0, 0)
    j = 0
    while first + j < last:
      number = int(np.searchsorted(plan, first + j, 'right')) - 1
      block = self._block(epoch, number)
      local_C = np.arange(first + j, min(last, plan[number + 1])) - plan[number]
      start_C, stop_C = block.offset_C[local_C], block.offset_C[local_C + 1]
      place_CS = start_C[:, None] + np.arange(S)
      to = slice(j, j + len(local_C))
      arrays['tokens_BJS'][to] = block.token_P[place_CS]
      arrays['documents_BJS'][to] = block.sentence_P[place_CS]
      is_own_CT = np.arange(T) < (stop_C - start_C)[:, None]
      arrays['window_BJT'][to] = block.window_P[place_CS[:, w : w + T]] * is_own_CT
      if not self._negative:
        np.take(self._top_VR, block.token_P[place_CS[:, w : w + T]], axis=0, out=arrays['top_BJTR'][to], mode='clip')
        arrays['top_BJTR'][to][~is_own_CT] = 0
        _copy_paths(arrays, block, start_C, stop_C, j)
      j += len(local_C)

  def _noise(self, epoch: int, row: int) -> dict[str, np.ndarray]:
    J, T, K, M = self._updates, self._chunk, self._negative, self._shared
    draw = noise.generator(self._seed, 'noise', epoch, row)
    shape = (J, M) if M else (J, T, 2 * self._window, K)
    word_ids = self._noise_words(draw.random(shape))
    if M:
      return dict(negatives_BJM=word_ids, weights_BJM=np.full((J, M), K / M, np.float32))
    return dict(pair_negatives_BJTWK=word_ids)


def _copy_paths(
  arrays: dict[str, np.ndarray], block: Block, start_C: np.ndarray, stop_C: np.ndarray, first: int
) -> None:
  """Copy the nodes below the top on the paths of chunks into a row's arrays, from update `first` on."""
  low_C, count_C = block.below_N[start_C], block.below_N[stop_C] - block.below_N[start_C]
  source = slice(int(low_C[0]), int(low_C[-1] + count_C[-1]))  # chunks follow one another
  M = arrays['path_BJM'].shape[-1]
  # Each chunk's nodes begin a new update.
  shift_C = M * (first + np.arange(len(start_C))) - low_C
  to = np.arange(source.start, source.stop) + np.repeat(shift_C, count_C)
  arrays['path_BJM'].reshape(-1)[to] = block.node_L[source]
  arrays['owner_BJM'].reshape(-1)[to] = block.owner_L[source] - np.repeat(start_C.astype(np.int32), count_C)
  arrays['sign_BJM'].reshape(-1)[to] = block.sign_L[source]
