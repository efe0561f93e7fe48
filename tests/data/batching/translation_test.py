"""Pairs in batches by tokens: what a row holds, each pair once, few shapes, the same on any number of hosts."""

from __future__ import annotations

import collections
import math

import jax
import numpy as np
import pytest

from lmx.config import resolve
from lmx.data import corpus as corpora
from lmx.data import pipeline, transforms
from lmx.data.tokenizers import build
from lmx.engine import sharding
from lmx.errors import InputError, InputWarning

SIZES = [(1 + (i * 7) % 19, 1 + (i * 5) % 23) for i in range(503)]  # words of source and target


def sentence(letter: str, size: int, number: int) -> str:
  return ' '.join(f'{letter}{(number + j) % 11}' for j in range(size))


PAIRS = [(sentence('s', s, i), sentence('t', t, i)) for i, (s, t) in enumerate(SIZES)]


def corpus(pairs=PAIRS, kind='words', **held_out) -> corpora.Corpus:
  documents = lambda pairs: [text for pair in pairs for text in pair]
  tokenizer = build.train(kind, documents(PAIRS))
  splits = {'train': pairs, 'valid': pairs[:40], 'test': pairs[:40], **held_out}
  texts = {name: documents(part) for name, part in splits.items()}
  return corpora.Corpus.from_texts(texts, tokenizer, sides=('en', 'de'))


def section(batching=None, **changes) -> pipeline.Config:
  batching = {'name': 'translation', 'buckets': (8, 16), **(batching or {})}
  return pipeline.Config(**({'batch_size': 8, 'length': 24} | changes), batching=batching)


def batches(train=True, split='train', seed=0, made=None, **changes):
  cfg, made = section(**changes), made or corpus()
  made = transforms.view(made, train_splits=cfg.train_splits, fraction=cfg.fraction)
  return pipeline.batches(cfg, made, split, seed, train=train), made


def text(made, tokens) -> str:
  return ' '.join(made.tokenizer.id_to_token(int(i)) for i in tokens)


def epoch(found, number=0):
  return [found(number * found.steps + step) for step in range(found.steps)]


def indices(found, number=0) -> list[int]:
  return [int(i) for batch in epoch(found, number) for i in batch['index_B'] if i >= 0]


@pytest.mark.parametrize('tokens', [0, 192])
@pytest.mark.parametrize('train', [True, False])
def test_row_is_a_pair(train, tokens):
  found, made = batches(train, batching={'tokens': tokens})
  for batch in epoch(found):
    S, T = batch['source_BS'].shape[1], batch['tokens_BT'].shape[1]
    assert S == T and {key: array.dtype.name for key, array in batch.items()} == {
      'source_BS': 'int32',
      'source_valid_BS': 'bool',
      'tokens_BT': 'int32',
      'targets_BT': 'int32',
      'weights_BT': 'float32',
      'valid_BT': 'bool',
      'index_B': 'int32',
    }
    for b, index in enumerate(batch['index_B']):
      source, target = PAIRS[index]
      weights_T = batch['weights_BT'][b]
      if index < 0:  # repeats a row, so that no attention is over nothing
        assert not weights_T.any() and batch['source_valid_BS'][b].any() and batch['valid_BT'][b].any()
        continue
      valid_S, valid_T = batch['source_valid_BS'][b], batch['valid_BT'][b]
      assert text(made, batch['source_BS'][b][valid_S]) == f'{source} <eos>'
      assert text(made, batch['targets_BT'][b][valid_T]) == f'{target} <eos>'
      assert text(made, batch['tokens_BT'][b][valid_T]) == f'<eos> {target}'
      np.testing.assert_array_equal(weights_T, valid_T)
      for valid in (valid_S, valid_T):  # padding on the right, with id 0
        np.testing.assert_array_equal(valid, np.arange(S) < valid.sum())
      assert not batch['source_BS'][b][~valid_S].any() and not batch['tokens_BT'][b][~valid_T].any()


@pytest.mark.parametrize('tokens', [0, 192, 400])
def test_every_pair_appears_once_per_epoch(tokens):
  for train in (True, False):
    found, _ = batches(train, batching={'tokens': tokens})
    assert sorted(indices(found)) == list(range(len(PAIRS))) and found.examples == len(PAIRS)
    filled = sum((batch['index_B'] < 0).any() for batch in epoch(found))
    assert filled <= 1
    shapes = collections.Counter(batch['tokens_BT'].shape for batch in epoch(found))
    assert sum(rows * length * n for (rows, length), n in shapes.items()) == found.positions()
    weights = sum(batch['weights_BT'].sum() for batch in epoch(found))
    assert found.tokens_per_epoch == weights == sum(target + 1 for _, target in SIZES)
    assert 0 < pipeline.describe(found)['padding'] == pytest.approx(1 - weights / found.positions())
  epochs = [indices(batches(batching={'tokens': tokens})[0], number) for number in range(3)]
  assert epochs[0] != epochs[1] != epochs[2] and sorted(epochs[1]) == sorted(epochs[2])
  assert indices(batches(seed=1, batching={'tokens': tokens})[0]) != epochs[0]
  assert indices(batches(batching={'tokens': tokens})[0]) == epochs[0]


def test_shapes_are_few_and_hold_as_many_tokens():
  found, _ = batches(batching={'tokens': 200, 'rows_multiple': 4})
  shapes = {batch['source_BS'].shape for number in range(3) for batch in epoch(found, number)}
  assert shapes == {(24, 8), (12, 16), (8, 24)}  # 200 // 8 = 25, 200 // 16 = 12, 200 // 24 = 8, down to multiples of 4
  assert found.row_counts() == (8, 12, 24) and found.batch_size == 24
  for batch in epoch(found):
    longest = max(batch['source_valid_BS'].sum(1).max(), batch['valid_BT'].sum(1).max())
    assert longest <= batch['source_BS'].shape[1]
  fixed, _ = batches()
  assert fixed.row_counts() == (8,) and {batch['source_BS'].shape for batch in epoch(fixed)} == {
    (8, 8),
    (8, 16),
    (8, 24),
  }
  evaluated, _ = batches(train=False, eval_batch_size=5, batching={'tokens': 200})
  assert evaluated.row_counts() == (5,)


def test_batch_lengths_are_shuffled():
  found, _ = batches()
  lengths = [batch['source_BS'].shape[1] for batch in epoch(found)]
  assert lengths != sorted(lengths) and lengths != [batch['source_BS'].shape[1] for batch in epoch(found, 1)]
  together = [{frozenset(batch['index_B'].tolist()) for batch in epoch(found, number)} for number in (0, 1)]
  assert len(together[0] & together[1]) < 3  # and other pairs come together
  plain, _ = batches(shuffle=False)
  lengths = [batch['source_BS'].shape[1] for batch in epoch(plain)]
  assert lengths == sorted(lengths) and indices(plain) == indices(plain, 1)


def test_grouped_batches_pad_with_positions():
  found, _ = batches(made=corpus(PAIRS[:34]), batching={'groups': 4})
  last = min(epoch(found), key=lambda batch: batch['index_B'].min())
  assert (last['index_B'] >= 0).sum() == 2 and found.batch_size == 8
  sizes = [np.sort(np.maximum(b['source_valid_BS'].sum(1), b['valid_BT'].sum(1))) for b in epoch(found)]
  longest = np.concatenate(sizes).reshape(-1, 2).max(axis=1)
  assert found.positions() == sum(2 * next(n for n in (8, 16, 24) if n >= size) for size in longest)


def test_batches_of_groups_have_pairs_of_every_length():
  found, _ = batches(batching={'tokens': 600, 'groups': 4, 'rows_multiple': 2})
  longer_I = np.array(SIZES).max(axis=1) + 1
  assert found.groups == 4 and found.lengths == (8, 16, 24)
  rows = int(600 / longer_I.mean()) // 8 * 8
  assert found.row_counts() == (found.batch_size,) == (rows,) and found.steps == -(-len(PAIRS) // rows)
  assert sorted(indices(found)) == list(range(len(PAIRS))) and indices(found) != indices(found, 1)
  places = 0
  for batch in epoch(found):
    assert batch['source_BS'].shape == batch['tokens_BT'].shape == (rows, 24)
    index_B = batch['index_B'][batch['index_B'] >= 0]
    assert len({int(np.searchsorted((8, 16, 24), n)) for n in longer_I[index_B]}) == 3
    parts = np.array_split(np.sort(longer_I[index_B]), 4)
    places += sum(next(n for n in (8, 16, 24) if n >= part.max()) for part in parts) * rows // 4
  assert found.positions() == places
  held_out, _ = batches(train=False, batching={'tokens': 600, 'groups': 4})
  assert held_out.groups == 1 and {batch['tokens_BT'].shape[1] for batch in epoch(held_out)} == {16, 24}


@pytest.mark.parametrize('tokens', [0, 200])
@pytest.mark.parametrize('hosts', [1, 2, 4])
def test_hosts_make_the_rows_of_one_batch(tokens, hosts):
  found, _ = batches(batching={'tokens': tokens, 'rows_multiple': 4})
  share = found.batch_size // hosts
  for step in range(found.steps + 2):
    whole = found(step)
    parts = [found(step, slice(host * share, (host + 1) * share)) for host in range(hosts)]
    assert {part['index_B'].size for part in parts} == {whole['index_B'].size // hosts}
    for key, array in whole.items():
      np.testing.assert_array_equal(np.concatenate([part[key] for part in parts]), array)


@pytest.mark.parametrize('mode', ['jit', 'pmap'])
def test_every_batch_can_be_put_on_eight_devices(mode):
  found, _ = batches(batching={'tokens': 400, 'rows_multiple': 8})
  engine = sharding.Engine(sharding.Config(mode=mode))
  rows = engine.process_rows(found.batch_size)
  assert jax.device_count() == 8
  for step in range(found.steps):
    put = engine.put_batch(found(step, rows))
    for key, array in found(step).items():
      np.testing.assert_array_equal(np.asarray(put[key]).reshape(array.shape), array)


def test_rows_that_the_hosts_cannot_divide_are_rejected():
  found, _ = batches(batching={'tokens': 200, 'rows_multiple': 3})
  assert found.row_counts() == (6, 12, 24)
  bad, step = slice(0, 3), next(s for s in range(found.steps) if found(s)['index_B'].size == 6)
  with pytest.raises(InputError, match='rows_multiple to a multiple of the number of devices'):
    found(step, bad)


def test_long_pairs_are_excluded_from_training_and_counted():
  found, _ = batches(length=16)
  kept = [i for i, (s, t) in enumerate(SIZES) if max(s, t) + 1 <= 16]
  assert sorted(indices(found)) == kept and found.examples == len(kept)
  left = len(SIZES) - len(kept)
  assert found.notes == (f'{left} of 503 pairs of split train are longer than 16 and skipped',)
  assert batches()[0].notes == ()
  with pytest.raises(InputError, match='data.length: got 1'):
    batches(length=1, batching={'buckets': ()})


def test_evaluation_skips_nothing():
  found, _ = batches(train=False, length=6, batching={'buckets': ()})
  assert {batch['source_BS'].shape[1] for batch in epoch(found)} == {6, 12, 24} and found.length == 24
  assert sorted(indices(found)) == list(range(503))
  assert sum(batch['weights_BT'].sum() for batch in epoch(found)) == sum(target + 1 for _, target in SIZES)
  with pytest.warns(InputWarning, match=r'data.eval_length 6'):
    cut, made = batches(train=False, length=24, eval_length=6, batching={'buckets': ()})
  assert sorted(indices(cut)) == list(range(503)) and {b['source_BS'].shape[1] for b in epoch(cut)} == {6}
  for batch in epoch(cut):
    for b, index in enumerate(batch['index_B']):
      source, target = PAIRS[index]
      wanted = ' '.join(source.split()[:5] + ['<eos>'])
      assert index < 0 or text(made, batch['source_BS'][b][batch['source_valid_BS'][b]]) == wanted
      wanted = ' '.join([*target.split(), '<eos>'][:6])
      assert index < 0 or text(made, batch['targets_BT'][b][batch['valid_BT'][b]]) == wanted


def test_data_fraction_keeps_pairs_whole():
  found, made = batches(train=False, fraction=0.3)
  assert 100 < found.examples < 200
  split = made.splits['train']
  spans = zip(split.offsets, split.offsets[1:], strict=False)
  texts = [text(made, split.tokens[begin : end - 1]) for begin, end in spans]
  assert set(zip(texts[::2], texts[1::2], strict=True)) <= set(PAIRS)
  joined, _ = batches(train_splits=('train', 'valid'))
  assert joined.examples == 543


def test_pair_may_have_an_empty_side():
  made = corpus([('', 'a'), ('b', ''), *PAIRS[:8]])
  batch = batches(train=False, made=made, batch_size=10)[0](0)
  eos = made.tokenizer.eos_id
  sides = {int(i): (batch['source_BS'][b], batch['targets_BT'][b]) for b, i in enumerate(batch['index_B'])}
  assert sides[0][0][0] == eos and sides[1][1][0] == eos


def test_invalid_options_are_rejected():
  with pytest.raises(InputError, match='data.reverse: got True'):
    section(reverse=True)
  with pytest.raises(InputError, match='data.tokenizer: got "wordpiece"'):
    section(tokenizer='wordpiece')
  with pytest.raises(InputError, match='tokens: got 100'):
    section({'tokens': 100})
  least = math.ceil(64 * np.mean([max(pair) + 1 for pair in SIZES]))  # with the end-of-text
  with pytest.raises(InputError, match=f'at least {least}'):
    batches(batching={'tokens': least - 1, 'groups': 8})
  assert batches(batching={'tokens': least, 'groups': 8})[0].batch_size == 64
  for fields in ({'tokens': -1}, {'rows_multiple': 0}, {'buckets': (4, 0)}, {'groups': 0}):
    with pytest.raises(InputError, match=f'data.batching.{next(iter(fields))}'):
      section(fields)
  plain = corpora.Corpus.from_texts({'train': ['a', 'b']}, corpus().tokenizer)
  with pytest.raises(InputError, match='data.batching: got "translation" with data set texts'):
    batches(made=plain)
  with pytest.raises(InputError, match='data.tokenizer: got one without an end-of-text'):
    batches(
      made=corpora.Corpus.from_texts(
        {'train': ['a', 'b']}, build.train('bytes', [], document_eos=False), sides=('en', 'de')
      )
    )
  with pytest.raises(InputError, match='got 3 documents'):
    odd = corpora.Corpus.from_texts({'train': ['a', 'b', 'c']}, corpus().tokenizer, sides=('en', 'de'))
    batches(made=odd)
  with pytest.raises(IndexError):
    batches(train=False)[0](1 + len(SIZES) // 8)


@pytest.mark.parametrize('name,sizes', [('gpt2', {'T': 20}), ('bahdanau', {'S': 20, 'score': 'location'})])
def test_rows_beyond_the_positions_of_a_model_are_rejected(name, sizes):
  made = corpus()

  def settle(**data):
    base = {'model': {'name': name, 'variant': 'tiny', **sizes}, 'train': {'steps': 1}}
    data = {'batching': 'translation', 'length': 16, 'batch_size': 8, **data}
    return resolve.with_corpus(resolve.resolve({**base, 'data': data}), made)[1]

  with pytest.raises(InputError, match=r'model.[TS]: got 20 positions'):
    settle()
  assert settle(eval_length=20).data.eval_length == 20
