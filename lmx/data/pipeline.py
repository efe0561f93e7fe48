"""The `data` section of a config, and from it batches that are ready before the step asks for them.

    corpus = load(cfg)
    train = batches(cfg, corpus, 'train', seed, train=True)
    with prefetch(train, start, stop) as stream:
      for step, batch in stream: ...

What a step trains on is a function of (config, seed, step, row), so nothing here has a state to save: a run that goes
on from step n prefetches from n, and a host takes its `rows` of the same global batch.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from typing import Any

import grain
import numpy as np

from lmx.data import batching, skipgrams, spelling, streams, views
from lmx.data import corpus as corpora
from lmx.data.batching import Batches
from lmx.data.both_ways import BothWays
from lmx.data.corpus import Corpus
from lmx.data.documents import Documents
from lmx.data.tagged import Tagged
from lmx.errors import InputError, check_range, nearest

BATCHINGS = ('streams', 'windows', 'packed', 'pairs', 'documents', 'both_ways', 'tagged', 'skipgrams')


@dataclasses.dataclass(frozen=True)
class Config:
  """Data set, tokenizer and batches.

  Attributes:
    dataset: name of the data set.
    manual_dir: directory with the data set's files, where it is not downloaded or embedded.
    cache_dir: where tokenised data is kept; '' is what LMX_CACHE says, or the user's cache directory.
    check_sizes: refuse files whose checksum, or splits whose size, is not the published one.
    documents: what a document is in text files of the user: 'blank_line' (also 'auto'), 'file' or 'line'.
    split_fraction: share of the user's text held out for validation, and for test, where no file is named for them.
    tokenizer: kind of tokenizer: bytes, characters, words, bpe or wordpiece.
    tokenizer_path: file or directory of a trained tokenizer; '' trains one.
    vocab_size: most entries of a trained vocabulary, specials included; 0 is no limit (words, characters) or 8192.
    min_count: rarer words and characters are unknown ones.
    lower_case: whether words and word pieces are lowered.
    vocabulary_splits: splits that a vocabulary is learned from; the papers on Penn Treebank count all three.
    batching: 'streams' (contiguous, for recurrent models), 'windows', 'packed' (documents) or 'pairs' (sentences).
      'documents' is one labelled document a row, 'tagged' one sentence with a label a word, 'both_ways' two
      streams of sentences, forward and backward.
    characters: most characters of a word, the marks of its ends included (ELMo's release: 50); 0 spells no words.
      Words then have ids of their own numbering (lmx/data/spelling.py).
    buckets: 'documents', 'tagged': lengths that a batch may be padded to, besides `length`; each is a compilation.
    reverse: read each document from its end to its beginning, for backward language models.
    train_splits: splits whose documents are trained on; a language model may also learn from the text of 'test'.
    fraction: share of the documents of every split that is used, the same ones in every run.
    batch_size: rows of the global batch, over all devices and hosts.
    eval_batch_size: the same in evaluation; 0 is batch_size. 1 with 'streams' is the protocol of most papers.
    length: positions of a row.
    eval_length: the same in evaluation; 0 is length.
    random_length: 'streams' in training: windows of random length around `length` (Merity et al. 2018), and the rate
      of an update in proportion.
    length_multiple: 'random_length': windows are padded to the next multiple of this, each shape a compilation; 0
      pads all to one shape.
    stride: 'windows' in evaluation: a window begins every `stride` tokens and predicts only those that the one before
      did not; 0 is no overlap.
    packing: 'best_fit' keeps documents whole where they fit, 'split' wastes no position.
    masking: 'static' noise belongs to an example (BERT as released), 'dynamic' is new each epoch.
    dupe_factor: how many times the train split is made into pairs, each time with other draws; all are one epoch.
    mask_prob: share of a row's tokens that are predicted.
    max_predictions: most predictions of a row; BERT's are 20 at length 128, 77 at 512.
    whole_word: hide all pieces of a word together.
    random_specials: whether the random token that replaces one may be a special token (as released).
    short_seq_prob: share of documents whose pairs aim at a random shorter length.
    random_next_prob: share of pairs with a random second segment.
    window: 'skipgrams': most words on either side of a centre; each centre's is drawn from 1 to it.
    chunk: 'skipgrams': centres of an update in each row; a row of `length` words is length / chunk updates.
    sample: 'skipgrams': words with a larger share of the text are thinned out; 0 keeps all.
    negative: 'skipgrams': noise words of a pair; 0 is hierarchical softmax.
    shared_negatives: 'skipgrams': noise words that an update's pairs share, weighted to `negative`; 0 draws for each.
    noise_power: 'skipgrams': of the counts, for the noise.
    top_nodes: 'skipgrams': nodes of the tree that every update reads; a matter of speed.
    path_slots: 'skipgrams': further nodes a centre that an update has room for; a matter of speed.
    words_only: 'skipgrams': leave out tokens without a letter or digit.
    shuffle: order and block borders of an epoch are drawn; else the order of the data. 'streams' are never shuffled.
    prefetch: batches made ahead; 0 makes them when asked.
    workers: threads that make them.
  """

  dataset: str = 'embedded'
  manual_dir: str = ''
  cache_dir: str = ''
  check_sizes: bool = True
  documents: str = 'auto'
  split_fraction: float = 0.05
  tokenizer: str = 'words'
  tokenizer_path: str = ''
  vocab_size: int = 0
  min_count: int = 1
  lower_case: bool = False
  vocabulary_splits: tuple[str, ...] = ('train',)
  batching: str = 'streams'
  characters: int = 0
  buckets: tuple[int, ...] = ()
  reverse: bool = False
  train_splits: tuple[str, ...] = ('train',)
  fraction: float = 1.0
  batch_size: int = 20
  eval_batch_size: int = 0
  length: int = 35
  eval_length: int = 0
  random_length: bool = False
  length_multiple: int = 0
  stride: int = 0
  packing: str = 'best_fit'
  masking: str = 'static'
  dupe_factor: int = 10
  mask_prob: float = 0.15
  max_predictions: int = 20
  whole_word: bool = False
  random_specials: bool = True
  short_seq_prob: float = 0.1
  random_next_prob: float = 0.5
  window: int = 5
  chunk: int = 32
  sample: float = 1e-3
  negative: int = 5
  shared_negatives: int = 64
  noise_power: float = 0.75  # arXiv 1310.4546, section 2.2
  top_nodes: int = 32
  path_slots: int = 9
  words_only: bool = False
  shuffle: bool = True
  prefetch: int = 8
  workers: int = 1

  def __post_init__(self):
    for name, allowed in (('batching', BATCHINGS), ('packing', ('best_fit', 'split')),
                          ('masking', ('static', 'dynamic'))):
      if getattr(self, name) not in allowed:
        raise InputError(f'data.{name} is "{getattr(self, name)}"{nearest(getattr(self, name), allowed)}')
    lowest = dict(batch_size=1, length=1, vocab_size=0, min_count=1, max_predictions=1, dupe_factor=1,
                  eval_batch_size=0, eval_length=0, length_multiple=0, stride=0, prefetch=0, workers=0, window=1,
                  chunk=1, sample=0, negative=0, shared_negatives=0, top_nodes=1, path_slots=1)
    for name, least in lowest.items():
      check_range(f'data.{name}', getattr(self, name), least)
    for name in ('mask_prob', 'short_seq_prob', 'random_next_prob'):
      if not 0 <= getattr(self, name) <= 1:
        raise InputError(f'data.{name} is {getattr(self, name)}; it must be between 0 and 1')
    corpora.Spec(**self.spec()).source()  # checks the rest
    if not 0 < self.fraction <= 1:
      raise InputError(f'data.fraction is {self.fraction}; it must be above 0 and at most 1')
    if self.buckets and (self.batching not in ('documents', 'tagged') or min(self.buckets) < 1):
      raise InputError('data.buckets are lengths above 0, and need data.batching "documents" or "tagged"')
    changed = self.reverse or self.fraction < 1 or len(self.train_splits) > 1
    if self.batching in ('pairs', 'both_ways', 'tagged') and changed:
      raise InputError(
        f'data.batching "{self.batching}" needs sentences: leave data.reverse, fraction and train_splits alone')
    if self.characters and self.characters < 4 or self.characters < 0:
      raise InputError(f'data.characters is {self.characters}; it must be 0 or at least 4')
    if self.batching == 'both_ways' and not self.characters:
      raise InputError('data.batching "both_ways" spells words; set data.characters (50 in the release)')
    if self.characters and (self.tokenizer != 'words' or self.batching in ('pairs', 'packed')):
      raise InputError('data.characters needs data.tokenizer "words" and a data.batching of words in order')
    if self.random_length and self.batching != 'streams':
      raise InputError(f'data.random_length needs data.batching "streams"; it is "{self.batching}"')
    evaluated = self.eval_length or self.length
    if self.stride > evaluated:
      raise InputError(f'data.stride is {self.stride}; above the length of {evaluated} tokens would be left out')
    if self.batching == 'pairs' and min(self.length, evaluated) < 5:
      raise InputError(f'data.length is {min(self.length, evaluated)}; sentence pairs need at least 5')

  def spec(self) -> dict[str, Any]:
    """The fields that say what is tokenised, and how."""
    names = {field.name for field in dataclasses.fields(corpora.Spec)} - {'all_words'}
    return {name: getattr(self, name) for name in sorted(names)} | {'all_words': self.characters > 0}


def load(cfg: Config) -> Corpus:
  """Reads the tokenised data set, making it first if it is not in the cache. Raises InputError."""
  corpus = corpora.load(cache_dir=cfg.cache_dir, **cfg.spec())
  return views.view(corpus, reverse=cfg.reverse, train_splits=cfg.train_splits, fraction=cfg.fraction)


def vocabulary(cfg: Config, tokenizer: Any) -> int:
  """Ids of words in a batch are below this: the size of the model's vocabulary."""
  return spelling.of(tokenizer, cfg.characters).vocab_size if cfg.characters else tokenizer.vocab_size


def batches(cfg: Config, corpus: Corpus, split: str, seed: int, *, train: bool) -> Batches:
  """Returns the batches of a split; see `lmx.data.batching.Batches`.

  Args:
    cfg: the `data` section.
    corpus: what `load` gave.
    split: 'train', 'valid' or 'test'.
    seed: of order, offsets, pairs and noise. Evaluations that are to be compared need the same one.
    train: epochs without end, in drawn order; else one exact pass in the order of the data.

  Raises:
    InputError: there is no such split, it is too small for one batch, or its data does not suit cfg.batching.
  """
  if split not in corpus.splits:
    raise InputError(f'the data set has no split "{split}"{nearest(split, corpus.splits)}')
  if seed < 0:
    raise InputError(f'the seed is {seed}; it must not be negative')
  made = _of_tokens(cfg, corpus, split, seed, train=train)
  if not cfg.characters or cfg.batching == 'both_ways':
    return made
  spelled: Any = spelling.Spelled(made, spelling.of(corpus.tokenizer, cfg.characters))
  return spelled


def _of_tokens(cfg: Config, corpus: Corpus, split: str, seed: int, *, train: bool) -> Batches:
  """The batches before words are spelled."""
  if cfg.batching == 'skipgrams':
    return skipgrams.of(cfg, corpus, split, seed, train=train)
  data, tokenizer = corpus.splits[split], corpus.tokenizer
  batch_size = cfg.batch_size if train else cfg.eval_batch_size or cfg.batch_size
  length = cfg.length if train else cfg.eval_length or cfg.length
  common: dict[str, Any] = dict(seed=seed, train=train)
  if cfg.batching == 'pairs':
    return batching.Pairs(
      data, batch_size, length, tokenizer=tokenizer, shuffle=cfg.shuffle, duplicates=cfg.dupe_factor if train else 1,
      dynamic=train and cfg.masking == 'dynamic', mask_prob=cfg.mask_prob, max_predictions=cfg.max_predictions,
      whole_word=cfg.whole_word, random_specials=cfg.random_specials, short_seq_prob=cfg.short_seq_prob,
      random_next_prob=cfg.random_next_prob, **common)
  common |= dict(vocab_size=tokenizer.vocab_size)
  if cfg.batching == 'both_ways':
    skipped = tuple(i for i in range(tokenizer.vocab_size) if tokenizer.id_to_token(i) in ('\n', '<eos>'))
    return BothWays(
      data, batch_size, length, spelling=spelling.of(tokenizer, cfg.characters), skipped=skipped, **common)
  if cfg.batching == 'tagged':
    return Tagged(data, batch_size, length, buckets=cfg.buckets, shuffle=cfg.shuffle, **common)
  if cfg.batching == 'documents':
    return Documents(
      data, batch_size, length, start_id=tokenizer.eos_id, buckets=cfg.buckets, shuffle=cfg.shuffle, **common)
  if cfg.batching == 'streams':
    if cfg.random_length and train:
      return streams.RandomStreams(
        data, batch_size, length, vocab_size=tokenizer.vocab_size, seed=seed, multiple=cfg.length_multiple)
    return streams.Streams(data, batch_size, length, **common)
  if cfg.batching == 'windows':
    return batching.Windows(data, batch_size, length, shuffle=cfg.shuffle, stride=cfg.stride, **common)
  return batching.Packed(
    data, batch_size, length, shuffle=cfg.shuffle, method=cfg.packing, start_id=tokenizer.eos_id, **common)


def describe(batches: Batches) -> dict[str, Any]:
  """Returns facts of an epoch (or of the evaluation): examples, steps, tokens, and the share of positions that is
  padding, or context only."""
  positions = batches.positions()
  used = min(1.0, batches.steps * batches.batch_size / batches.examples)  # training leaves a part of a batch out
  tokens = round(batches.tokens_per_epoch * used)
  return dict(
    examples_per_epoch=batches.examples, steps_per_epoch=batches.steps, tokens_per_epoch=tokens,
    padding=1 - tokens / positions)


class Prefetch:
  """Iterator over (step, batch), made ahead by threads of Grain; also a context manager.

  An error in a thread is raised here, by the step it belongs to, and ends the iteration.

  Attributes:
    wait_seconds: time that `next` has waited for batches so far.
  """

  def __init__(self, batches: Batches, start: int, stop: int, rows: slice, buffer: int, workers: int):
    self.wait_seconds = 0.0
    self._busy, self._closed = 0, False
    self._idle = threading.Condition()
    self._batches, self._rows = batches, rows
    steps = grain.MapDataset.range(start, max(start, stop)).map(self._make)
    options = grain.ReadOptions(num_threads=workers, prefetch_buffer_size=buffer if workers else 0)
    self._iterator = iter(steps.to_iter_dataset(options)) if stop > start else iter(())
    if stop > start and buffer and workers:
      self._iterator.start_prefetch()

  def _make(self, step: int) -> tuple[int, dict[str, np.ndarray]]:
    with self._idle:
      if self._closed:
        return step, {}
      self._busy += 1
    try:
      return step, self._batches(step, self._rows)
    finally:
      with self._idle:
        self._busy -= 1
        self._idle.notify_all()

  def __iter__(self) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    return self

  def __next__(self) -> tuple[int, dict[str, np.ndarray]]:
    if self._closed:
      raise StopIteration
    began = time.perf_counter()
    try:
      return next(self._iterator)
    except BaseException:
      self.close()
      raise
    finally:
      self.wait_seconds += time.perf_counter() - began

  def close(self) -> None:
    """Stops the threads and returns when none of them is making a batch any more."""
    with self._idle:
      self._closed = True
    if hasattr(self._iterator, 'close'):
      self._iterator.close()
    with self._idle:
      self._idle.wait_for(lambda: not self._busy)

  def __enter__(self) -> Prefetch:
    return self

  def __exit__(self, *_: Any) -> None:
    self.close()


def prefetch(batches: Batches, start: int, stop: int, rows: slice = slice(None), buffer: int = 8,
             workers: int = 1) -> Prefetch:
  """Returns an iterator over (step, batch) for the steps from `start` up to, not including, `stop`.

  Args:
    batches: what `batches` gave.
    start: first step, as a checkpoint holds it.
    stop: step after the last.
    rows: this host's rows of the global batch.
    buffer: batches made ahead; 0 makes each when asked for.
    workers: threads; 0 makes each batch when asked for.
  """
  return Prefetch(batches, start, stop, rows, buffer, workers)
