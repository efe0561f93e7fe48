"""The data section, and the background pipeline: same batches, resumed anywhere, errors and waiting seen."""

import dataclasses
import functools
import itertools
import threading
import time

import numpy as np
import pytest

from lmx.data import batching, pipeline, sources
from lmx.data import corpus as corpora
from lmx.data.corpus import Corpus, Split
from lmx.data.tokenizers import build
from lmx.errors import InputError
from tests import numbered_tokens, small_images

pytestmark = pytest.mark.usefixtures('little_prose')

TOKENIZER = numbered_tokens.wordpiece(500)


def corpus(n_train=4000, n_valid=700):
  draw, splits = np.random.default_rng(0), {}
  for name, n in (('train', n_train), ('valid', n_valid)):
    sentences = np.append(np.arange(0, n - 9, 9), n)
    offsets = np.append(sentences[:-1:6], n)
    splits[name] = Split(name, draw.integers(5, 500, n).astype(np.uint16), offsets, sentences, None, {'tokens': n})
  return Corpus(TOKENIZER, splits, {}, '')


def pairs(n=500):
  draw = np.random.default_rng(1)
  texts = [' '.join(map(str, draw.integers(0, 99, size))) for size in draw.integers(1, 15, 2 * n)]
  splits = {'train': texts, 'valid': texts[: n // 2]}
  return Corpus.from_texts(splits, build.train('words', texts), sides=('a', 'b'))


def continued():
  made = pairs()
  return dataclasses.replace(made, manifest={**made.manifest, 'texts': 2})


KINDS = batching.names()
# What needs labels, letters or counts of words is made of the embedded text, what needs no text is generated.
EMBEDDED = {
  'algorithmic': {'dataset': 'generated'},
  'scenes': {'dataset': 'generated', 'length': 32},
  'documents': {'dataset': 'embedded_topics'},
  'tagged': {'dataset': 'embedded_tags', 'length': 64},
  'texts': {'dataset': 'embedded_topics', 'tokenizer': 'wordpiece', 'vocab_size': 500},
  'questions': {'dataset': 'embedded_questions', 'tokenizer': 'wordpiece', 'vocab_size': 500, 'length': 160},
  'both_ways': {'dataset': 'embedded', 'characters': 12},
  'skipgrams': {'dataset': 'embedded'},
}
MADE = {'translation': pairs, 'continuations': continued, 'images': lambda: small_images.corpus(30, held_out=7)}
OPTIONS = {'skipgrams': {'chunk': 8}, 'scenes': {'size': 8}}
load = functools.cache(lambda kind: pipeline.load(pipeline.Config(batching=kind, **EMBEDDED[kind])))


def make(kind, split='train', *, train=True, options=None, **changes):
  cfg = {
    'batching': {'name': kind, **OPTIONS.get(kind, {}), **(options or {})},
    'batch_size': 6,
    'length': 16,
    **EMBEDDED.get(kind, {'dataset': 'segmentation_files'} if kind == 'images' else {}),
    **changes,
  }
  text = load(kind) if kind in EMBEDDED else MADE.get(kind, corpus)()
  return pipeline.batches(pipeline.Config(**cfg), text, split, 1, train=train)


def equal(a, b):
  assert a.keys() == b.keys()
  for key in a:
    np.testing.assert_array_equal(a[key], b[key], err_msg=key)


@pytest.mark.parametrize('train', [False, True])
@pytest.mark.parametrize('kind', KINDS)
def test_padding_changes_no_row_and_counts_nothing(kind, train):
  batches = make(kind, 'train' if train else 'test' if kind == 'documents' else 'valid', train=train)
  padded = batches.pad_rows(4)
  assert padded.row_counts() == (8,) and batches.row_counts() == (6,)
  assert padded.padded_rows == 8 and padded.batch_size == batches.batch_size == batches.padded_rows == 6
  for step in range(min(batches.steps, 3) if train else batches.steps):
    found = padded(step)
    equal(batches(step), {key: x[:6] for key, x in found.items()})
    halves = [padded(step, rows) for rows in (slice(0, 4), slice(4, 8))]
    equal(found, {key: np.concatenate([half[key] for half in halves]) for key in found})
    assert (found['index_B'][6:] == -1).all()
    counted = [
      key
      for key in found
      if key == 'window_BJT' or key.startswith(('weights_', 'row_weights')) and (kind != 'skipgrams')
    ]
    assert counted and not any(found[key][6:].any() for key in counted)


@pytest.mark.parametrize('kind', KINDS)
def test_prefetching_gives_the_batches_in_order_from_any_step(kind):
  batches = make(kind)
  for start, stop, buffer, workers in ((0, 7, 8, 1), (5, 12, 2, 3), (3, 3, 2, 1), (4, 6, 0, 1), (4, 6, 4, 0)):
    with pipeline.prefetch(batches, start, stop, buffer=buffer, workers=workers) as stream:
      found = list(stream)
    assert [step for step, _ in found] == list(range(start, stop))
    for step, batch in found:
      equal(batch, batches(step))


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('train', [True, False])
def test_hosts_and_restarts_read_the_same_batches(kind, train):
  steps = min(8, make(kind, 'train' if train else 'valid', train=train).steps)
  split = 'train' if train else 'valid'
  whole = list(pipeline.prefetch(make(kind, split, train=train), 0, steps))
  middle = steps // 2
  for rows in (slice(0, 3), slice(3, 6)):
    before = pipeline.prefetch(make(kind, split, train=train), 0, middle, rows)
    after = pipeline.prefetch(make(kind, split, train=train), middle, steps, rows)
    for (step, batch), (step_here, part) in zip(whole, itertools.chain(before, after), strict=True):
      assert step == step_here
      equal({key: value[rows] for key, value in batch.items()}, part)


@dataclasses.dataclass
class Slow:
  """Batches that take a while, and one that fails."""

  seconds: float = 0.0
  fails: int = -1
  calls: list = dataclasses.field(default_factory=list)

  def __call__(self, step, rows=slice(None)):
    self.calls.append(step)
    time.sleep(self.seconds)
    if step == self.fails:
      raise InputError(f'token id 9 in step {step}')
    return {'index_B': np.arange(4)[rows]}


def test_data_wait_time_is_hidden_by_compute():
  with pipeline.prefetch(Slow(0.02), 0, 10) as stream:
    for _ in stream:
      pass
  waited = stream.wait_seconds
  assert 0.15 < waited
  with pipeline.prefetch(Slow(0.001), 0, 10) as stream:
    time.sleep(0.2)
    for _ in stream:
      time.sleep(0.01)
  assert stream.wait_seconds < waited / 2


def test_batches_are_made_ahead_but_no_further_than_the_buffer():
  slow = Slow()
  with pipeline.prefetch(slow, 0, 100, buffer=5) as stream:
    next(stream)
    time.sleep(0.2)
    assert slow.calls == list(range(6))


@pytest.mark.parametrize('buffer', [0, 4])
def test_background_errors_are_raised_at_their_step(buffer):
  stream = pipeline.prefetch(Slow(fails=3), 0, 10, buffer=buffer)
  assert [next(stream)[0] for _ in range(3)] == [0, 1, 2]
  with pytest.raises(InputError, match='token id 9 in step 3'):
    next(stream)
  with pytest.raises(StopIteration):
    next(stream)


def test_closing_stops_the_threads_and_may_be_repeated():
  slow = Slow(0.02)
  with pipeline.prefetch(slow, 0, 1000, buffer=50, workers=2) as stream:
    next(stream)
  calls = len(slow.calls)
  assert calls < 20
  stream.close()
  assert list(stream) == []
  deadline = time.monotonic() + 5
  while any(t.name.startswith('grain-prefetch') for t in threading.enumerate()) and time.monotonic() < deadline:
    time.sleep(0.01)
  assert not any(t.name.startswith('grain-prefetch') for t in threading.enumerate())
  assert len(slow.calls) == calls


def test_evaluation_has_its_own_sizes_and_repeats_no_pair():
  batches = make('pairs', 'valid', train=False, eval_batch_size=5, eval_length=24, options={'dupe_factor': 7})
  assert batches.batch_size == 5 and batches(0)['tokens_BT'].shape == (5, 24)
  assert batches.examples == make('pairs', 'valid', train=False, eval_length=24, options={'dupe_factor': 1}).examples
  assert make('pairs', options={'dupe_factor': 7}).examples > 5 * make('pairs', options={'dupe_factor': 1}).examples
  assert make('streams', 'valid', train=False, eval_batch_size=1).steps == -(-699 // 16)


def test_description_counts_tokens_steps_and_padding():
  streams = pipeline.describe(make('streams'))
  assert streams['tokens_per_epoch'] == 3999 and streams['steps_per_epoch'] == -(-667 // 16)
  assert streams['padding'] == pytest.approx(1 - 3999 / (42 * 6 * 16))
  windows = pipeline.describe(make('windows'))
  assert windows['padding'] == 0 and windows['tokens_per_epoch'] == windows['steps_per_epoch'] * 6 * 16
  for kind in ('packed', 'pairs'):
    batches = make(kind, 'valid', train=False)
    key = 'weights_BT' if kind == 'packed' else 'valid_BT'
    facts = pipeline.describe(batches)
    real = sum(int(b[key][b['index_B'] >= 0].sum()) for b in map(batches, range(batches.steps)))
    assert facts['tokens_per_epoch'] == real and facts['examples_per_epoch'] == batches.examples
    assert facts['padding'] == pytest.approx(1 - real / (batches.steps * 6 * 16))


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'batching': 'stream'}, 'unknown data.batching "stream"; did you mean "streams"'),
    ({'batching': {'name': 'packed', 'packing': 'best'}}, 'data.batching.packing'),
    ({'batching': {'name': 'pairs', 'masking': 'dynamical'}}, 'did you mean "dynamic"'),
    ({'batch_size': 0}, 'data.batch_size: got 0; expected at least 1'),
    ({'length': 0}, 'data.length'),
    ({'prefetch': -1}, 'data.prefetch'),
    ({'batching': {'name': 'pairs', 'mask_prob': 1.5}}, 'data.batching.mask_prob: got 1.5; expected between 0 and 1'),
    ({'batching': {'name': 'pairs', 'mask_share': 0.95}}, 'expected a sum of at most 1'),
    ({'batching': {'name': 'pairs', 'masking': 'left_to_right', 'whole_word': True}}, 'masks nothing; omit it'),
    ({'batching': {'name': 'windows', 'stride': 40}}, 'data.batching.stride: got 40'),
    ({'batching': {'name': 'windows', 'stride': 30}, 'eval_length': 20}, 'at most 20'),
    (
      {'batching': {'name': 'windows', 'stride': 8, 'drawn': 6}},
      'data.batching.stride: got 8 with data.batching.drawn=6',
    ),
    ({'batching': {'name': 'windows', 'drawn': -1}}, 'data.batching.drawn: got -1; expected at least 0'),
    ({'batching': 'pairs', 'length': 4}, 'at least 5'),
    ({'batching': 'pairs', 'eval_length': 4}, 'at least 5'),
    ({'tokenizer': 'word'}, 'did you mean "words"'),
    ({'dataset': 'embeded'}, 'did you mean "embedded"'),
  ],
)
def test_wrong_field_is_rejected(changes, message):
  with pytest.raises(InputError) as error:
    pipeline.Config(**changes)
  assert message in str(error.value)


@pytest.mark.parametrize(
  'changes',
  [
    {'fraction': 0.5},
    {'train_documents': 3},
    {'train_splits': ('train', 'valid')},
    {'reverse': True},
    {'lower_case': True},
    {'vocab_size': 300},
  ],
)
@pytest.mark.parametrize('name', ['algorithmic', 'scenes'])
def test_data_file_settings_are_rejected_for_generated_rows(name, changes):
  given = {'dataset': 'generated', 'tokenizer': 'bytes', 'batching': name, 'length': 64}
  assert pipeline.Config(**given)
  with pytest.raises(InputError, match=rf'data.{next(iter(changes))}: got .* data set generated'):
    pipeline.Config(**given, **changes)


def test_unknown_splits_and_seeds_are_rejected():
  with pytest.raises(InputError, match='did you mean "valid"'):
    make('streams', 'validation')
  with pytest.raises(InputError, match='seed: got -1'):
    pipeline.batches(pipeline.Config(), corpus(), 'train', -1, train=True)


def test_every_key_of_the_section_is_declared_once_by_the_part_that_reads_it():
  parts = [vars(part)['__annotations__'] for part in (sources.Config, corpora.Config, pipeline.Config)]
  names = [name for part in parts for name in part]
  assert sorted(names) == sorted(field.name for field in dataclasses.fields(pipeline.Config))


def test_text_files_become_batches(tmp_path):
  (tmp_path / 'train.txt').write_text('\n\n'.join(f'Sentence {i} is here. It has a friend.' for i in range(200)))
  cfg = pipeline.Config(
    dataset='text_files',
    manual_dir=str(tmp_path),
    cache_dir=str(tmp_path / 'cache'),
    tokenizer='wordpiece',
    vocab_size=200,
    batching='pairs',
    batch_size=4,
    length=24,
  )
  read = pipeline.load(cfg)
  batches = pipeline.batches(cfg, read, 'train', 0, train=True)
  with pipeline.prefetch(batches, 0, 3) as stream:
    for _, batch in stream:
      assert batch['tokens_BT'].max() < read.tokenizer.vocab_size and batch['weights_BP'].sum() >= 4
  cfg = dataclasses.replace(cfg, batching={'name': 'pairs', 'whole_word': True})
  whole = pipeline.batches(cfg, read, 'valid', 0, train=False)
  assert whole(0)['weights_BP'].sum() > 0


@pytest.mark.parametrize('kind', ['windows', 'packed', 'pairs'])
def test_rows_read_their_own_part_of_the_split(kind):
  batches, other = make(kind, row_parts=True), make(kind)
  size, steps = batches.batch_size, batches.steps
  epochs = np.array([[batches(step)['index_B'] for step in range(e * steps, (e + 1) * steps)] for e in range(3)])
  for epoch in epochs:
    first = epoch[:, 0].min()
    assert 0 <= first <= batches.examples - steps * size
    np.testing.assert_array_equal(np.sort(epoch, axis=0), first + np.arange(steps)[:, None] + steps * np.arange(size))
  assert (epochs[0] != epochs[1]).any() and (np.diff(epochs[0], axis=0) != 1).any()
  assert len({tuple(row - row.min()) for row in epochs[0].T}) == size  # each row has its own order
  padded, half = batches.pad_rows(4)(2), batches(2, slice(3, 6))
  equal({key: x[:size] for key, x in padded.items()}, batches(2))
  equal(half, {key: x[3:] for key, x in batches(2).items()})
  assert any((batches(step)['index_B'] != other(step)['index_B']).any() for step in range(steps))


@pytest.mark.parametrize('kind', ['streams', 'translation', 'documents'])
def test_row_parts_are_refused_for_other_orders(kind):
  with pytest.raises(InputError, match='data.row_parts: got True'):
    make(kind, row_parts=True)
  make(kind, 'valid', row_parts=True, train=False)
