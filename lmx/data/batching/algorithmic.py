"""The generated tasks of the Neural Turing Machine (Graves, Wayne & Danihelka 2014, arXiv 1410.5401, section 4).

A row is one episode, generated from (seed, split, epoch, index), so training never repeats one and evaluations are
always the same. `data.length` is the longest sequence in items, n below. An episode of

copy (4.1): start marker, n random vectors, end marker; then the vectors again, and an end marker.
repeat_copy (4.2): start marker, n vectors, the number of copies on its own channel, scaled to mean 0 and variance 1;
  then that many copies, and an end marker.
recall (4.3): n items of 3 vectors, an item marker before each; one of them between query markers; then the one after
  it.
ngrams (4.4): n bits from a new random table: for each context of 5 bits a probability of 1 from Beta(1/2, 1/2). Each
  bit is predicted from the previous ones. The first 5 have no context and are not scored.
sort (4.5): n vectors, each with a priority in [-1, 1] on its own channel, end marker; then the 16 with the highest
  priorities, in descending order.

The vectors have 8 bits (copy, sort) or 6. Each marker has its own channel. The paper does not list all markers; its
LSTM parameter counts imply the numbers of inputs and outputs: 10 and 9, 8 and 7, 8 and 6, 1 and 1 (unknown for sort).
So a vector of repeat_copy has 6 bits, where section 4.2 says "size eight". There is no input during the answer, and
only the steps of the answer are scored.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, NamedTuple

import numpy as np

from lmx import ranges
from lmx.data import noise
from lmx.data.batching.base import Batches, sizes
from lmx.data.corpus import Corpus, manifest_hash
from lmx.data.tokenizers import build as tokenizers
from lmx.errors import InputError, check_choice, check_least

BITS = {'copy': 8, 'repeat_copy': 6, 'recall': 6, 'ngrams': 1, 'sort': 8}
ITEM = 3  # vectors per item of 'recall'
VERSION = 1  # of the random draws; increase it when the same seed gives other episodes


@dataclasses.dataclass(frozen=True)
class Config:
  """Generated episodes.

  Attributes:
    task: 'copy', 'repeat_copy', 'recall', 'ngrams' or 'sort'.
    bits: bits of a vector; 0 is the paper's number.
    min_length: smallest n, 0 for the smallest that allows an episode; `data.length` is the largest.
    repeats: 'repeat_copy': largest number of copies.
    returned: 'sort': number of returned vectors.
    context: 'ngrams': number of bits on which the next one depends.
    sequences: episodes in an epoch of training.
    eval_sequences: episodes of the splits 'valid' and 'test'.
    test_lengths: the n of split 'test', cyclically; () draws them as in training. They may exceed `data.length`.
    test_repeats: copies in split 'test'; 0 draws them as in training.
  """

  name: str = 'algorithmic'
  task: str = 'copy'
  bits: int = 0
  min_length: int = 0
  repeats: int = 10
  returned: int = 16
  context: int = 5
  sequences: int = 10_000
  eval_sequences: int = 640
  test_lengths: Annotated[tuple[Annotated[int, ranges.Limits(1)], ...], ranges.Distinct(is_sorted=True)] = ()
  test_repeats: int = 0

  def __post_init__(self) -> None:
    check_choice('data.batching.task', self.task, BITS)
    check_least(
      'data.batching',
      self,
      bits=0,
      min_length=0,
      repeats=1,
      returned=1,
      context=1,
      sequences=1,
      eval_sequences=1,
      test_repeats=0,
    )
    if self.bits > 1 and self.task == 'ngrams':
      raise InputError(f'data.batching.bits: got {self.bits}; expected 0 or 1 for task "ngrams"')
    if any(n < min_items(self) for n in (self.min_length or min_items(self), *self.test_lengths)):
      raise InputError(
        f'data.batching: got a min_length or test_lengths below {min_items(self)}; expected at least the shortest of '
        f'task "{self.task}"'
      )


class Episode(NamedTuple):
  """Inputs (t, I), targets (t, O), weights (t,), all float32, and the optimal estimator's cost in bits, or NaN."""

  inputs: np.ndarray
  targets: np.ndarray
  weights: np.ndarray
  optimal: float = float('nan')


def min_items(cfg: Config) -> int:
  """Return the length of the shortest sequence that allows an episode."""
  return {'recall': 2, 'ngrams': cfg.context + 1}.get(cfg.task, 1)


def widths(cfg: Config) -> tuple[int, int]:
  """Return (inputs, outputs) of a step."""
  bits = cfg.bits or BITS[cfg.task]
  return {
    'copy': (bits + 2, bits + 1),
    'repeat_copy': (bits + 2, bits + 1),
    'recall': (bits + 2, bits),
    'ngrams': (1, 1),
    'sort': (bits + 2, bits),
  }[cfg.task]


def steps(cfg: Config, n: int, repeats: int) -> int:
  """Return the number of steps in an episode of n items."""
  return {
    'copy': 2 * n + 3,
    'repeat_copy': n + 2 + n * repeats + 1,
    'recall': (n + 1) * (ITEM + 1) + 1 + ITEM,
    'ngrams': n - 1,
    'sort': n + 1 + min(cfg.returned, n),
  }[cfg.task]


def draw_episode(cfg: Config, rng: np.random.Generator, n: int, repeats: int) -> Episode:
  """Draw one episode of n items (and `repeats` copies)."""
  if cfg.task == 'ngrams':
    return _ngrams(cfg, rng, n)
  length, (I, O), bits = steps(cfg, n, repeats), widths(cfg), cfg.bits or BITS[cfg.task]
  inputs, targets = np.zeros((length, I), np.float32), np.zeros((length, O), np.float32)
  if cfg.task == 'recall':
    answer = _recall(rng, inputs, n, bits)
  else:
    vectors = rng.integers(0, 2, (n, bits))
    if cfg.task == 'sort':
      inputs[:n, :bits], inputs[n, -1] = vectors, 1
      priority = rng.uniform(-1, 1, n)
      inputs[:n, bits] = priority
      answer = vectors[np.argsort(-priority)[: cfg.returned]]
    else:
      inputs[0, bits], inputs[1 : n + 1, :bits] = 1, vectors  # start marker
      inputs[n + 1, -1] = 1 if cfg.task == 'copy' else _scale(repeats, cfg.repeats)
      answer = np.tile(vectors, (1 if cfg.task == 'copy' else repeats, 1))
      targets[-1, -1] = 1  # end marker
  first = length - len(answer) - (O > bits)
  targets[first : first + len(answer), :bits] = answer
  return Episode(inputs, targets, (np.arange(length) >= first).astype(np.float32))


def _scale(repeats: int, most: int) -> float:
  """Return the number of copies scaled to mean 0 and variance 1 over 1 .. most."""
  return (repeats - (most + 1) / 2) / max((most**2 - 1) / 12, 1e-9) ** 0.5


def _recall(rng: np.random.Generator, inputs: np.ndarray, n: int, bits: int) -> np.ndarray:
  """Fill the inputs; return the item after the query."""
  items = rng.integers(0, 2, (n, ITEM, bits))
  query = int(rng.integers(n - 1))
  for i, item in enumerate([*items, items[query]]):
    at = i * (ITEM + 1)
    inputs[at, bits if i < n else bits + 1] = 1
    inputs[at + 1 : at + 1 + ITEM, :bits] = item
  inputs[(n + 1) * (ITEM + 1), bits + 1] = 1
  return items[query + 1]


def _ngrams(cfg: Config, rng: np.random.Generator, n: int) -> Episode:
  """Return bits from a random table and the optimal estimator's cost: (N1 + 1/2) / (N1 + N0 + 1), equation 10."""
  probability = rng.beta(0.5, 0.5, 2**cfg.context)
  uniform = rng.random(n)
  bit_N = (uniform < 0.5).astype(int)  # the first bits, which have no context
  counts = np.full((2**cfg.context, 2), 0.5)
  powers, cost = 2 ** np.arange(cfg.context), 0.0
  for t in range(cfg.context, n):
    context = int(bit_N[t - cfg.context : t] @ powers)
    bit_N[t] = uniform[t] < probability[context]
    cost -= np.log2(counts[context, bit_N[t]] / counts[context].sum())
    counts[context, bit_N[t]] += 1
  bits = bit_N.astype(np.float32)[:, None]
  return Episode(bits[:-1], bits[1:], (np.arange(1, n) >= cfg.context).astype(np.float32), cost)


def corpus() -> Corpus:
  """Return a placeholder corpus: three splits that contain only their names."""
  placeholder = Corpus.from_texts({name: [name] for name in ('train', 'valid', 'test')}, tokenizers.train('bytes', ()))
  manifest = {**placeholder.manifest, 'dataset': {'name': 'generated', 'version': VERSION}}
  return dataclasses.replace(placeholder, manifest=manifest, hash=manifest_hash(manifest))


def build(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Algorithmic:
  """Return the batches of a split according to the `data` section."""
  return Algorithmic(corpus.splits[split], *sizes(data, train), data.batching, seed=seed, train=train)


class Algorithmic(Batches):
  """Batches with inputs_BTI, target_bits_BTO, weights_BT, valid_BT, row_weights_B, size_B (n of each row), index_B, and
  for 'ngrams' optimal_B (the optimal estimator's cost in bits).

  Args:
    split: only its name is used.
    batch_size: rows of the global batch.
    longest: largest n.
    cfg: the `data.batching` section.
    seed: seed of the draws.
    train: new episodes in every epoch; else one pass.
  """

  def __init__(self, split: Any, batch_size: int, longest: int, cfg: Config, *, seed: int, train: bool):
    self._shortest = cfg.min_length or min_items(cfg)
    if longest < self._shortest:
      raise InputError(f'data.length: got {longest}; expected at least {self._shortest} items for task "{cfg.task}"')
    tested = split.name == 'test' and not train
    self._cfg, self._longest = cfg, longest
    self._lengths = cfg.test_lengths if tested else ()
    self._repeats = cfg.test_repeats if tested else 0
    length = steps(cfg, max(self._lengths, default=longest), self._repeats or cfg.repeats)
    super().__init__(split, batch_size, length, vocab_size=1, seed=seed, train=train, shuffle=False)
    examples = cfg.sequences if train else cfg.eval_sequences
    lengths = self._lengths or range(self._shortest, longest + 1)
    copies = [self._repeats] if self._repeats else range(1, cfg.repeats + 1)
    mean = np.mean([steps(cfg, n, repeats) for n in lengths for repeats in copies])
    if train and examples < batch_size:
      raise InputError(f'data.batching.sequences: got {examples}; expected at least the {batch_size} rows of a batch')
    self._set_size(examples, round(examples * mean), '1')

  def _draw(self, epoch: int, example: int) -> tuple[int, Episode]:
    cfg, rng = self._cfg, noise.generator(self._seed, f'{self._cfg.task} {self._split}', epoch, example)
    n = int(rng.integers(self._shortest, self._longest + 1))
    repeats = int(rng.integers(1, cfg.repeats + 1))
    n = self._lengths[example % len(self._lengths)] if self._lengths else n
    return n, draw_episode(cfg, rng, n, self._repeats or repeats)

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    B, T, (I, O) = len(example_B), self.length, widths(self._cfg)
    batch = dict(
      inputs_BTI=np.zeros((B, T, I), np.float32),
      target_bits_BTO=np.zeros((B, T, O), np.float32),
      weights_BT=np.zeros((B, T), np.float32),
      valid_BT=np.zeros((B, T), bool),
      row_weights_B=live_B.astype(np.float32),
      size_B=np.zeros(B, np.int32),
    )
    if self._cfg.task == 'ngrams':
      batch['optimal_B'] = np.zeros(B, np.float32)
    for b in np.flatnonzero(live_B):
      batch['size_B'][b], row = self._draw(epoch, int(example_B[b]))
      t = len(row.inputs)
      batch['inputs_BTI'][b, :t], batch['target_bits_BTO'][b, :t] = row.inputs, row.targets
      batch['weights_BT'][b, :t], batch['valid_BT'][b, :t] = row.weights, True
      if 'optimal_B' in batch:
        batch['optimal_B'][b] = row.optimal
    return batch
