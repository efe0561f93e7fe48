"""The `data` section of a config, and prefetched batches built from it.

    corpus = load(cfg)
    train = batches(cfg, corpus, 'train', seed, train=True)
    with prefetch(train, start, stop) as stream:
      for step, batch in stream: ...

A step's batch is a function of (config, seed, step, row), so no state of the pipeline needs saving. A run that resumes
at step n prefetches from n, and a host reads its `rows` of the same global batch.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import os
import re
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np

from lmx import documents, ranges
from lmx.data import batching, document_reader, labels, sources, transforms
from lmx.data import corpus as corpora
from lmx.data.batching.base import Batches
from lmx.data.corpus import Corpus
from lmx.data.tokenizers import word_characters
from lmx.errors import InputError, InputWarning, check_choice, check_least, check_range, nearest

EVAL_SEED = 0  # of the masks and pairs of an evaluation, equal for all runs so that they are comparable
_ENDED = re.compile(r'Worker process was terminated unexpectedly with exit code (-?)(.+?)\.')  # by Grain
_ROW = re.compile(r'(?:(.+):)?\w+-([0-9]+)\.0')  # of the first text: file of the user, split, line
SPELLED = ('words', 'bpe', 'word_bpe', 'gpt_bpe', 'wordpiece', 'unigram')  # tokenizers whose tokens have characters
LABELLED_BY_USERS = ('table_files', 'text_files')
_LARGEST = 2**24  # rows, and positions of a row
_IMAGE_FIELDS = ('dataset', 'manual_dir', 'cache_dir', 'check_sizes', 'split_fraction', 'hold_out_test')


@dataclasses.dataclass(frozen=True)
class Config(corpora.Config):
  """A config's `data` section: the data set, its tokenizer, and batches.

  Attributes:
    batching: how rows are built from the text: a section with the `name` and the fields of
      lmx/data/batching/<name>.py, or only the name. 'streams' (contiguous, for recurrent models), 'windows', 'packed'
      (documents), 'pairs' (of sentences), 'documents' (one labelled document per row), 'tagged' (one sentence with word
      labels), 'both_ways' (two streams of sentences, forward and backward), 'skipgrams' (words with their windows),
      'translation' (a sentence and its translation), 'texts' (rows of tables), 'permutations' (XLNet's factorization
      orders), 'images' (with masks), 'algorithmic' (generated tasks) or 'scenes' (generated pictures).
    reverse: reverse the tokens of each document, for backward language models.
    label_forms: 'composed': labels that differ only in their Unicode form are one, in the composed form (NFC); or
      'as_written', as in earlier versions, in which they are different classes.
    train_splits: splits to train on; a language model may also train on the text of 'test'.
    train_documents: maximum number of documents (rows, pairs) to train on, the same ones in every run; 0 is no limit.
      Validation and test splits stay whole, as in few-shot learning.
    fraction: share of every split's documents that is used, the same ones in every run. Below 1 there are no metrics
      per character or byte, and per word only if words are tokens, because the others are only counted for whole
      splits.
    batch_size: rows of the global batch, over all devices and hosts ('translation' can count tokens instead). Rows of
      weight 0 are added if the devices (times `optim.accumulate`) do not divide them evenly.
    eval_batch_size: the same in evaluation; 0 is batch_size. 1 with 'streams' is the protocol of most papers.
    length: positions per row; for 'algorithmic' the longest sequence in items, for 'images' and 'scenes' the side in
      pixels.
    eval_length: the same in evaluation; 0 is length.
    shuffle: randomise an epoch's order and block boundaries; else keep the data's order. 'streams' are never shuffled.
    prefetch: number of prefetched batches; 0 builds them on demand.
    workers: number of threads that build them, in each process.
    processes: number of worker processes that build them; 0 builds them in the threads of the training process. The
      batches are the same. Python code holds the lock of its process, so more threads do not speed it up. At most 4 for
      each core.
    row_parts: in training, row b of every batch reads only the examples of the b-th of batch_size equal parts of the
      split, in a random order. A host then reads only its rows' part of the tokens; any number of hosts gets the same
      batches. False: any row may read any example.
  """

  batching: Any = 'streams'
  reverse: bool = False
  label_forms: str = 'composed'
  train_splits: Annotated[tuple[Annotated[str, ranges.Text()], ...], ranges.Distinct()] = ('train',)
  train_documents: int = 0
  fraction: float = 1.0
  batch_size: int = 20
  eval_batch_size: int = 0
  length: int = 35
  eval_length: int = 0
  shuffle: bool = True
  prefetch: int = 8
  workers: int = 1
  processes: int = 0
  row_parts: bool = False

  def __post_init__(self) -> None:
    object.__setattr__(self, 'batching', batching.config(self.batching))
    check_least(
      'data',
      self,
      batch_size=1,
      length=1,
      vocab_size=0,
      min_count=1,
      eval_batch_size=0,
      eval_length=0,
      train_documents=0,
      prefetch=0,
      workers=0,
      processes=0,
    )
    for name in ('batch_size', 'eval_batch_size', 'length', 'eval_length'):
      check_range(f'data.{name}', getattr(self, name), 0, _LARGEST)
    generated = batching.get(self.batching.name).corpus is not None
    if generated != (self.dataset == 'generated'):
      raise InputError(
        f'data.dataset: got "{self.dataset}" with data.batching "{self.batching.name}"; expected data set '
        '"generated" only with a batching that generates its rows ("algorithmic", "scenes")'
      )
    if generated:
      self._check_generated()
    else:
      super().__post_init__()
      self._check_images()
    if not 0 < self.fraction <= 1:
      raise InputError(f'data.fraction: got {self.fraction}; expected above 0 and at most 1')
    if self.words and (self.train_documents or self.fraction < 1 or self.train_splits != ('train',)):
      raise InputError(
        f'data.words: got {self.words:,} with changed data.train_documents, fraction or train_splits; expected their '
        'defaults, because each selects training text; omit one'
      )
    check_choice('data.label_forms', self.label_forms, ('composed', 'as_written'))
    if self.label_forms != 'composed' and self.dataset not in LABELLED_BY_USERS:
      raise InputError(
        f'data.label_forms: got "{self.label_forms}" with data set {self.dataset}; expected "composed", because its '
        'labels are not user labels; omit it'
      )
    if self.characters and self.characters < 4 or self.characters < 0:
      raise InputError(f'data.characters: got {self.characters}; expected 0 or at least 4')
    name, module = self.batching.name, batching.get(self.batching.name)
    changed = self.reverse or self.train_documents or self.fraction < 1 or len(self.train_splits) > 1
    if module.SENTENCES and changed:
      raise InputError(
        f'data.batching: got "{name}" with changed data.reverse, train_splits, train_documents or '
        'fraction; expected their defaults, because it needs sentences'
      )
    if module.CHARACTERS == 'must' and not self.characters:
      raise InputError(
        f'data.characters: got 0 with data.batching "{name}", which reads the characters of words; '
        'expected their number (50 in the release)'
      )
    if self.characters and (self.tokenizer not in SPELLED or module.CHARACTERS == 'no'):
      raise InputError(
        f'data.characters: got {self.characters} with data.tokenizer "{self.tokenizer}" and data.batching "{name}"; '
        f'expected 0, or a tokenizer of {", ".join(SPELLED)} and a data.batching of words in order'
      )
    module.check(self)

  @property
  def keeps_file_documents(self) -> bool:
    return getattr(self.batching, 'context', 'sentence') == 'document'

  def _check_generated(self) -> None:
    """Raise InputError if a setting is for data sets that are read."""
    texts = (f for f in dataclasses.fields(corpora.Config) if f.name not in (*_IMAGE_FIELDS, 'tokenizer'))
    for field in (*texts, *map(_field, ('reverse', 'train_splits', 'train_documents', 'fraction'))):
      if (got := getattr(self, field.name)) != field.default:
        raise InputError(
          f'data.{field.name}: got {got!r} with data set generated; expected {field.default!r}, because it only '
          'applies to data sets that are read; omit it'
        )

  def _check_images(self) -> None:
    """Raise InputError if images are read as texts or texts as images, or if a setting is for texts only."""
    name, images = self.batching.name, batching.get(self.batching.name).IMAGES
    if images != self.rules.images:
      kinds = ('images', 'texts') if self.rules.images else ('texts', 'images')
      others = [name for name, rules in sources.DATA_SETS.items() if rules.images == images]
      raise InputError(
        f'data.batching: got "{name}", which reads {kinds[1]}, with data set {self.dataset}, which has {kinds[0]}; '
        + ('set data.batching=images' if self.rules.images else f'expected data set {", ".join(others)}')
      )
    texts = [*(f for f in dataclasses.fields(corpora.Config) if f.name not in _IMAGE_FIELDS), _field('reverse')]
    changed = [field for field in texts if getattr(self, field.name) != field.default] if images else []
    if changed:
      field = changed[0]
      raise InputError(
        f'data.{field.name}: got {getattr(self, field.name)!r} with data set {self.dataset}, which has images; '
        f'expected {field.default!r}, because it is for texts; omit it'
      )


def _field(name: str) -> Any:
  return Config.__dataclass_fields__[name]


def has_texts(dataset: str) -> bool:
  """Return True if a data set has texts, which a tokenizer reads; False for images and for generated rows."""
  return dataset != 'generated' and not (dataset in sources.DATA_SETS and sources.DATA_SETS[dataset].images)


def load(cfg: Config, processes: int = 0) -> Corpus:
  """Read the tokenized data set, creating it first if it is not in the cache; `processes`: see `corpus.load`.

  Raises:
    InputError: bad input files, or sizes that differ from the published ones.
  """
  if generate := batching.get(cfg.batching.name).corpus:
    return generate()
  return _view(cfg, cfg.rules.corpus.load(cfg, processes))


def load_prepared(cfg: Config) -> Corpus | None:
  """Return the corpus like `load` if it is already in the cache, else None; nothing is downloaded or written."""
  if cfg.dataset == 'generated':
    return load(cfg)
  try:
    if cfg.rules.images:
      return load(cfg) if cfg.rules.corpus.is_prepared(cfg) else None
    cfg = without_missing_vectors(cfg)
    directory = corpora.prepare(cfg, make=False)
    return _view(cfg, corpora.read(directory)) if os.path.isdir(directory) else None
  except InputError:  # the cache is damaged, or the user's files are not on this machine
    return None


def without_missing_vectors(cfg: Config) -> Config:
  """Return `cfg`, without `vectors` and with a warning if that file is not on this machine; not for training."""
  if not cfg.vectors or os.path.exists(os.path.expanduser(cfg.vectors)):
    return cfg
  note = f'data.vectors: got {cfg.vectors}, which is not on this machine; the vocabulary is taken without its words'
  warnings.warn(note, InputWarning, stacklevel=2)
  return dataclasses.replace(cfg, vectors='')


def _view(cfg: Config, corpus: Corpus) -> Corpus:
  if cfg.dataset in LABELLED_BY_USERS and cfg.label_forms == 'composed':
    corpus = labels.compose(corpus)
  elif has_texts(cfg.dataset):
    corpus = labels.number_choices(corpus)
  return transforms.view(
    corpus,
    reverse=cfg.reverse,
    train_splits=cfg.train_splits,
    train_documents=cfg.train_documents,
    fraction=cfg.fraction,
  )


def summary(cfg: Config, corpus: Corpus) -> str:
  """Return a line on prepared data, such as 'embedded, 250,000 tokens to train on, vocabulary 8,000'."""
  if cfg.dataset == 'generated':
    return f'{cfg.dataset} by {cfg.batching.name}'
  train = corpus.split('train')
  if not has_texts(cfg.dataset):
    return f'{cfg.dataset}, {next(iter(train.counts.values())):,} images to train on'
  return f'{cfg.dataset}, {train.tokens.size:,} tokens to train on, vocabulary {vocab_size(cfg, corpus.tokenizer):,}'


def held_out_notes(cfg: Config, corpus: Corpus) -> tuple[str, ...]:
  """Return a log line if splits were held out of the user's training files, else ''."""
  if cfg.dataset not in sources.OWN:
    return ()
  rows = lambda split: corpus.split(split).counts['documents'] // cfg.documents_per_example
  parts = [f'{rows(split):,} for "{split}"' for split in cfg.held_out_splits()]
  unit = 'images' if cfg.rules.images else 'documents'
  return (f'held out of the training data (data.split_fraction), {unit}: {", ".join(parts)}',) if parts else ()


def select_documents(cfg: Config, split: str, count: int) -> np.ndarray:
  """Return the indices of the `count` documents (pairs) of a split that `load` selects, in order."""
  return np.flatnonzero(
    transforms.select_documents(count, cfg.fraction, cfg.train_documents if split == 'train' else 0)
  )


def directory(cfg: Config) -> str:
  """Return the path where `load` reads or writes the prepared data; '' for generated data. Raises InputError."""
  if cfg.dataset == 'generated':
    return ''
  return sources.prepared_directory(cfg) if cfg.rules.images else corpora.prepare(cfg, make=False)


def examples(cfg: Config, split: str) -> sources.Examples:
  """Return the texts of a split, in order, before tokenization. Raises InputError."""
  splits = sources.open_splits(cfg)
  if split not in splits:
    raise InputError(f'the data set has no split "{split}"{nearest(split, splits)}')
  return splits[split]


def unknown_words(cfg: Config, corpus: Corpus, split: str) -> tuple[int, int] | None:
  """Return the number of unknown words of a split of the user's text files, and their UTF-8 bytes.

  A written `<unk>` is known. None: the texts are of another data set, not here any more, or other ones.
  """
  tokenizer, unknown = corpus.tokenizer, corpus.tokenizer.unk_id
  count = 0 if unknown is None else int(np.count_nonzero(np.asarray(corpus.split(split).tokens) == unknown))
  if not count:
    return 0, 0
  if cfg.dataset != 'text_files' or not tokenizer.has_spans:
    return None
  try:
    texts = examples(cfg, split)
    reader = document_reader.create(cfg, cfg.detokenize)
    found = [word for _, text, _ in reader(texts) for word in _unknown_words(tokenizer, text)]
  except InputError:  # the tokens are found without the files
    return None
  others = [word for word in found if word != '<unk>']
  if len(found) != count:
    return None
  return len(others), sum(len(word.encode('utf-8', 'surrogateescape')) for word in others)


def _unknown_words(tokenizer: Any, text: str) -> list[str]:
  ids, spans_T2 = tokenizer.encode_spans(text)
  return [text[begin:end] for begin, end in spans_T2[ids == tokenizer.unk_id].tolist()]


def unlabelled_rows(cfg: Config, split: str) -> str:
  """Return file and lines of a split's first unlabelled rows, such as ' (dev.csv, lines 3, 7, ...)'. '' if the data set
  is not a table, or its files are not here.
  """
  if not sources.DATA_SETS[cfg.dataset].table:
    return ''
  try:
    rows = (_ROW.fullmatch(name) for name, _, label in examples(cfg, split) if not label)
    first = list(itertools.islice(filter(None, rows), documents.LINES + 1))
  except InputError:  # the tokens are found without the files
    return ''
  if not first:
    return ''
  file = first[0][1]
  lines = documents.format_lines([int(row[2]) for row in first if row[1] == file])
  return f' ({file}, {lines})' if file else f' ({lines})'


def vocab_size(cfg: Config, tokenizer: Any) -> int:
  """Return the model's vocabulary size, above all word ids of a batch."""
  return word_characters.create(tokenizer, cfg.characters).vocab_size if cfg.characters else tokenizer.target.vocab_size


def source_size(tokenizer: Any) -> int:
  """Return the size of the source's own vocabulary, 0 if source and target share one."""
  return tokenizer.vocab_size if tokenizer.is_separate else 0


def trained_sizes(cfg: Config) -> tuple[int, int]:
  """Return the configured sizes of the vocabularies to train: the model's, and the source's own or 0; 0 if not set."""
  if cfg.vocabularies == 'shared':
    return cfg.vocab_size, 0
  return cfg.target_vocab_size or cfg.vocab_size, cfg.vocab_size


def words(cfg: Config, tokenizer: Any) -> list[str]:
  """Return the word of each id in a batch; a subword tokenizer's words are its tokens."""
  if cfg.characters:
    return word_characters.vocabulary(tokenizer)
  return [tokenizer.id_to_token(i) for i in range(tokenizer.vocab_size)]


def batches(cfg: Config, corpus: Corpus, split: str, seed: int, *, train: bool) -> Batches:
  """Return the batches of a split; see `lmx.data.batching.base.Batches`.

  Args:
    cfg: the `data` section.
    corpus: result of `load`.
    split: 'train', 'valid' or 'test'.
    seed: seed of order, offsets, pairs and masks. Compared evaluations need the same one.
    train: endless shuffled epochs; else one exact pass in the data's order.

  Raises:
    InputError: there is no such split, it is too small for one batch, or its data does not fit cfg.batching.
  """
  corpus.split(split)
  if seed < 0:
    raise InputError(f'seed: got {seed}; expected at least 0')
  module = batching.get(cfg.batching.name)
  if getattr(cfg.batching, 'rows_per_bucket', 0):
    cfg = _with_few_buckets(cfg, corpus, split, train=train)
  split_batches: Batches = module.build(cfg, corpus, split, seed, train=train)
  if cfg.row_parts and train:
    split_batches = split_batches.with_row_parts()
  if not cfg.characters or module.CHARACTERS == 'must':
    return split_batches
  with_characters: Any = word_characters.WithCharacters(
    split_batches, word_characters.create(corpus.tokenizer, cfg.characters)
  )
  return with_characters


def _with_few_buckets(cfg: Config, corpus: Corpus, split: str, *, train: bool) -> Config:
  """Return the section with the buckets that `rows_per_bucket` chooses, by the training rows if the corpus has any."""
  by = 'train' if 'train' in corpus.splits else split
  with warnings.catch_warnings():
    warnings.simplefilter('ignore', InputWarning)  # shown for the batches themselves
    whole = dataclasses.replace(cfg, eval_length=0)
    rows: Any = batching.get(cfg.batching.name).build(whole, corpus, by, EVAL_SEED, train=False)
  chosen = rows.few_buckets(cfg.batch_size)
  longer = [] if train else [bucket for bucket in cfg.batching.buckets if bucket > chosen[-1]]
  buckets = dataclasses.replace(cfg.batching, buckets=(*chosen, *longer))
  return dataclasses.replace(cfg, batching=buckets, length=chosen[-1] if train else cfg.length)


def describe(batches: Batches) -> dict[str, Any]:
  """Return statistics of an epoch (or evaluation): examples, steps, tokens, and the share of positions that is padding
  or context only."""
  positions = batches.positions()
  used = min(1.0, batches.steps * batches.batch_size / batches.examples)  # training skips an incomplete batch
  tokens = round(batches.tokens_per_epoch * used)
  return dict(
    examples_per_epoch=batches.examples,
    steps_per_epoch=batches.steps,
    tokens_per_epoch=tokens,
    padding=1 - tokens / positions,
  )


class WorkerKilled(InputError):
  """A signal has ended a worker process, as when memory is full."""


class Prefetch:
  """Iterator over (step, batch), prefetched by threads or processes of Grain; also a context manager.

  An error in one of them is raised here at its step, and ends the iteration.

  Attributes:
    wait_seconds: total time for which `next` waited for batches.
  """

  def __init__(
    self, batches: Batches, start: int, stop: int, rows: slice, buffer: int, workers: int, processes: int = 0
  ):
    self.wait_seconds = 0.0
    self._busy, self._closed = 0, False
    self._idle = threading.Condition()
    self._batches, self._rows, self._processes = batches, rows, processes
    import grain  # imports JAX, which reading a config does not need

    ahead = -(-buffer // max(processes, 1)) if workers else 0
    options = grain.ReadOptions(num_threads=workers, prefetch_buffer_size=ahead)
    steps = grain.MapDataset.range(start, max(start, stop))
    if processes:
      from lmx.data import worker_processes

      build = worker_processes.Builder(batches, rows)
      dataset = worker_processes.prefetch(steps.map(build).to_iter_dataset(options), processes, ahead)
    else:
      dataset = steps.map(self._make).to_iter_dataset(options)
    self._iterator = iter(dataset) if stop > start else iter(())
    if stop > start and (ahead or processes):
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
      step, batch = next(self._iterator)
      # A copy in this process's memory frees the memory shared with the worker process.
      return step, {name: np.array(x) for name, x in batch.items()} if self._processes else batch
    except BaseException as error:
      self.close()
      if found := isinstance(error, RuntimeError) and _ENDED.search(str(error)):
        kind, by = (WorkerKilled, 'by signal') if found[1] else (InputError, 'with exit code')
        raise kind(
          f'data.processes: a process that builds batches ended {by} {found[2]}; if memory is full, set fewer'
        ) from None
      raise
    finally:
      self.wait_seconds += time.perf_counter() - began

  def close(self) -> None:
    """Stop the threads or processes and wait until none is building a batch."""
    with self._idle:
      self._closed = True
    if hasattr(self._iterator, 'close'):
      self._iterator.close()
    if self._processes:
      self._iterator = iter(())
      gc.collect()  # frees the batches in shared memory, which Grain's iterator holds in a cycle
    with self._idle:
      self._idle.wait_for(lambda: not self._busy)

  def __enter__(self) -> Prefetch:
    return self

  def __exit__(self, *_: Any) -> None:
    self.close()


def prefetch(
  batches: Batches,
  start: int,
  stop: int,
  rows: slice = slice(None),
  buffer: int = 8,
  workers: int = 1,
  processes: int = 0,
) -> Prefetch:
  """Return an iterator over (step, batch) for the steps from `start` up to, not including, `stop`.

  Args:
    batches: result of `batches`.
    start: first step, as stored in a checkpoint.
    stop: step after the last.
    rows: this host's rows of the global batch.
    buffer: number of batches built ahead; 0 builds each on demand.
    workers: number of threads, of each process if there are any; 0 builds each batch on demand.
    processes: number of worker processes; 0 builds the batches in this one.
  """
  return Prefetch(batches, start, stop, rows, buffer, workers, processes)
