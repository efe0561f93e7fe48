"""The generated tasks of the Neural Turing Machine (Graves, Wayne & Danihelka 2014, arXiv 1410.5401, section 4).

One episode a row, drawn from (seed, split, epoch, number), so training never sees one twice and evaluations are always
the same. `data.length` is the longest sequence in items, n below. An episode of

copy (4.1): start mark, n random vectors, end mark; then the vectors again, and an end mark.
repeat_copy (4.2): start mark, n vectors, the number of copies, on a channel of its own and scaled to mean 0 and
  variance 1; then as many copies, and an end mark.
recall (4.3): n items of 3 vectors, an item mark before each; one of them between query marks; then the one after it.
ngrams (4.4): n bits of a table that is drawn anew: for each context of 5 bits a chance of 1 from Beta(1/2, 1/2). Each
  bit is predicted from those before. The first 5 have no context and are not counted.
sort (4.5): n vectors, each with a priority in [-1, 1] on a channel of its own, end mark; then the 16 with the highest
  priorities, in falling order.

The vectors have 8 bits (copy, sort) or 6. Marks have a channel each; where the paper does not say which there are, the
numbers of inputs and outputs are those that its LSTM networks' parameter counts fix: 10 and 9, 8 and 7, 8 and 6, 1 and
1 (the sort's are open). With these a vector of repeat_copy has 6 bits, where section 4.2 says "size eight". Nothing is
read while an answer is due, and only its steps are counted.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from lmx.data import noise
from lmx.data.batching.base import Batches, sizes
from lmx.data.corpus import Corpus, manifest_hash
from lmx.data.tokenizers import build
from lmx.errors import InputError, check_choice, check_least

BITS = {'copy': 8, 'repeat_copy': 6, 'recall': 6, 'ngrams': 1, 'sort': 8}
ITEM = 3  # vectors of an item of 'recall'
VERSION = 1  # of the draws; raise it when the same seed gives other episodes


@dataclasses.dataclass(frozen=True)
class Config:
  """Generated episodes.

  Attributes:
    task: 'copy', 'repeat_copy', 'recall', 'ngrams' or 'sort'.
    bits: of a vector; 0 is the paper's number.
    min_length: least n, 0 for the least that makes an episode; `data.length` is the largest.
    repeats: 'repeat_copy': most copies.
    returned: 'sort': how many vectors are returned.
    context: 'ngrams': bits that the next one depends on.
    sequences: episodes in an epoch of training.
    eval_sequences: episodes of the splits 'valid' and 'test'.
    test_lengths: the n of split 'test', in turn; () draws them as in training. May be longer than those.
    test_repeats: copies there; 0 draws them as in training.
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
  test_lengths: tuple[int, ...] = ()
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
      raise InputError(f'data.batching.bits is {self.bits}, but "ngrams" are single bits')
    if any(n < least(self) for n in (self.min_length or least(self), *self.test_lengths)):
      raise InputError(f'data.batching: a length is below {least(self)}, the least of task "{self.task}"')


class Episode(NamedTuple):
  """An episode: inputs (t, I), targets (t, O) and weights (t,), float32; the cost in bits of the best guess, or NaN."""

  inputs: np.ndarray
  targets: np.ndarray
  weights: np.ndarray
  optimal: float = float('nan')


def least(cfg: Config) -> int:
  """The shortest sequence that makes an episode."""
  return {'recall': 2, 'ngrams': cfg.context + 1}.get(cfg.task, 1)


def widths(cfg: Config) -> tuple[int, int]:
  """(inputs, outputs) of a step."""
  bits = cfg.bits or BITS[cfg.task]
  return {
    'copy': (bits + 2, bits + 1),
    'repeat_copy': (bits + 2, bits + 1),
    'recall': (bits + 2, bits),
    'ngrams': (1, 1),
    'sort': (bits + 2, bits),
  }[cfg.task]


def steps(cfg: Config, n: int, repeats: int) -> int:
  """Steps of an episode of n items."""
  return {
    'copy': 2 * n + 3,
    'repeat_copy': n + 2 + n * repeats + 1,
    'recall': (n + 1) * (ITEM + 1) + 1 + ITEM,
    'ngrams': n - 1,
    'sort': n + 1 + min(cfg.returned, n),
  }[cfg.task]


def episode(cfg: Config, rng: np.random.Generator, n: int, repeats: int) -> Episode:
  """Draws one episode of n items (and `repeats` copies)."""
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
      inputs[0, bits], inputs[1 : n + 1, :bits] = 1, vectors  # start mark
      inputs[n + 1, -1] = 1 if cfg.task == 'copy' else _scaled(repeats, cfg.repeats)
      answer = np.tile(vectors, (1 if cfg.task == 'copy' else repeats, 1))
      targets[-1, -1] = 1  # end mark
  first = length - len(answer) - (O > bits)
  targets[first : first + len(answer), :bits] = answer
  return Episode(inputs, targets, (np.arange(length) >= first).astype(np.float32))


def _scaled(repeats: int, most: int) -> float:
  """The number of copies with mean 0 and variance 1 over 1 .. most."""
  return (repeats - (most + 1) / 2) / max((most**2 - 1) / 12, 1e-9) ** 0.5


def _recall(rng: np.random.Generator, inputs: np.ndarray, n: int, bits: int) -> np.ndarray:
  """Fill the inputs; returns the item after the one asked for."""
  items = rng.integers(0, 2, (n, ITEM, bits))
  asked = int(rng.integers(n - 1))
  for i, item in enumerate([*items, items[asked]]):
    at = i * (ITEM + 1)
    inputs[at, bits if i < n else bits + 1] = 1
    inputs[at + 1 : at + 1 + ITEM, :bits] = item
  inputs[(n + 1) * (ITEM + 1), bits + 1] = 1
  return items[asked + 1]


def _ngrams(cfg: Config, rng: np.random.Generator, n: int) -> Episode:
  """Bits of a table of chances, and what the best estimator pays for them: (N1 + 1/2) / (N1 + N0 + 1), equation 10."""
  chance = rng.beta(0.5, 0.5, 2**cfg.context)
  uniform = rng.random(n)
  drawn = (uniform < 0.5).astype(int)  # the first ones
  seen = np.full((2**cfg.context, 2), 0.5)
  place, cost = 2 ** np.arange(cfg.context), 0.0
  for t in range(cfg.context, n):
    context = int(drawn[t - cfg.context : t] @ place)
    drawn[t] = uniform[t] < chance[context]
    cost -= np.log2(seen[context, drawn[t]] / seen[context].sum())
    seen[context, drawn[t]] += 1
  bits = drawn.astype(np.float32)[:, None]
  return Episode(bits[:-1], bits[1:], (np.arange(1, n) >= cfg.context).astype(np.float32), cost)


def corpus() -> Corpus:
  """Stands where other batchings have a text: three splits whose names are all they hold."""
  made = Corpus.from_texts({name: [name] for name in ('train', 'valid', 'test')}, build.train('bytes', ()))
  manifest = {**made.manifest, 'dataset': {'name': 'generated', 'version': VERSION}}
  return dataclasses.replace(made, manifest=manifest, hash=manifest_hash(manifest))


def of(data: Any, corpus: Any, split: str, seed: int, *, train: bool) -> Algorithmic:
  """The batches of a split by the `data` section."""
  return Algorithmic(corpus.splits[split], *sizes(data, train), data.batching, seed=seed, train=train)


class Algorithmic(Batches):
  """Batches with inputs_BTI, target_bits_BTO, weights_BT, valid_BT, row_weights_B, size_B (n of each row), index_B, and
  for 'ngrams' optimal_B (bits that the best estimator pays).

  Args:
    split: gives its name alone.
    batch_size: rows of the global batch.
    longest: largest n.
    cfg: the `data.batching` section.
    seed: of the draws.
    train: new episodes in every epoch; else one pass.
  """

  def __init__(self, split: Any, batch_size: int, longest: int, cfg: Config, *, seed: int, train: bool):
    self._shortest = cfg.min_length or least(cfg)
    if longest < self._shortest:
      raise InputError(f'data.length is {longest}; episodes of "{cfg.task}" have at least {self._shortest} items')
    tested = split.name == 'test' and not train
    self._cfg, self._longest = cfg, longest
    self._lengths = cfg.test_lengths if tested else ()
    self._repeats = cfg.test_repeats if tested else 0
    length = steps(cfg, max(self._lengths, default=longest), self._repeats or cfg.repeats)
    super().__init__(split, batch_size, length, vocab_size=1, seed=seed, train=train, shuffle=False)
    examples = cfg.sequences if train else cfg.eval_sequences
    drawn = self._lengths or range(self._shortest, longest + 1)
    copies = [self._repeats] if self._repeats else range(1, cfg.repeats + 1)
    mean = np.mean([steps(cfg, n, repeats) for n in drawn for repeats in copies])
    if train and examples < batch_size:
      raise InputError(f'data.batching.sequences is {examples}, fewer than the {batch_size} rows of a batch')
    self._set(examples, round(examples * mean), '1')

  def _draw(self, epoch: int, example: int) -> tuple[int, Episode]:
    cfg, rng = self._cfg, noise.generator(self._seed, f'{self._cfg.task} {self._split}', epoch, example)
    n = int(rng.integers(self._shortest, self._longest + 1))
    repeats = int(rng.integers(1, cfg.repeats + 1))
    n = self._lengths[example % len(self._lengths)] if self._lengths else n
    return n, episode(cfg, rng, n, self._repeats or repeats)

  def _make(self, epoch: int, example_B: np.ndarray, live_B: np.ndarray) -> dict[str, np.ndarray]:
    B, T, (I, O) = len(example_B), self.length, widths(self._cfg)
    found = dict(
      inputs_BTI=np.zeros((B, T, I), np.float32),
      target_bits_BTO=np.zeros((B, T, O), np.float32),
      weights_BT=np.zeros((B, T), np.float32),
      valid_BT=np.zeros((B, T), bool),
      row_weights_B=live_B.astype(np.float32),
      size_B=np.zeros(B, np.int32),
    )
    if self._cfg.task == 'ngrams':
      found['optimal_B'] = np.zeros(B, np.float32)
    for b in np.flatnonzero(live_B):
      found['size_B'][b], drawn = self._draw(epoch, int(example_B[b]))
      t = len(drawn.inputs)
      found['inputs_BTI'][b, :t], found['target_bits_BTO'][b, :t] = drawn.inputs, drawn.targets
      found['weights_BT'][b, :t], found['valid_BT'][b, :t] = drawn.weights, True
      if 'optimal_B' in found:
        found['optimal_B'][b] = drawn.optimal
    return found
