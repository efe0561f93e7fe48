"""Few lengths of batches for few rows, and the shapes that a training compiles."""

from __future__ import annotations

import types

import numpy as np
import pytest

from lmx.data import corpus as corpora
from lmx.data import pipeline
from lmx.data.batching import bucketed
from lmx.data.tokenizers import build
from lmx.runs import training

BUCKETS = (8, 16, 24, 32, 48)
SIZES = np.random.default_rng(0).choice([3, 7, 11, 15, 20, 29, 40], 80).tolist()


def batches(split='train', seed=0, sizes=SIZES, **changes):
  """Return batches of labelled documents with these numbers of tokens; the start of a row is one more."""
  texts = {'train': sizes, 'valid': [5, 21, 44, 60]}
  rows = {name: [' '.join(['w'] * size) for size in sizes] for name, sizes in texts.items()}
  labels = {name: [i % 2 for i in range(len(sizes))] for name, sizes in texts.items()}
  made = corpora.Corpus.from_texts(rows, build.train('words', ['w']), labels=labels)
  batching = {'name': 'documents', 'buckets': BUCKETS, **changes}
  cfg = pipeline.Config(batch_size=4, length=100, batching=batching)
  return pipeline.batches(cfg, made, split, seed, train=split == 'train')


def lengths(found):
  return {found(step)['tokens_BT'].shape[1] for step in range(3 * found.steps if found._train else found.steps)}


@pytest.mark.parametrize(('rows', 'most'), [(0, 5), (1, 5), (20, 4), (27, 2), (1000, 2)])
def test_number_of_lengths_follows_the_number_of_rows(rows, most):
  for seed in range(3):
    found = lengths(batches(seed=seed, rows_per_bucket=rows))
    assert len(found) <= most and max(found) == 48
  assert len(lengths(batches(rows_per_bucket=rows))) == len(batches(rows_per_bucket=rows).shapes())


def test_rows_and_their_order_stay():
  few, all_ = batches(rows_per_bucket=1000), batches()
  for step in range(few.steps):
    one, other = few(step), all_(step)
    assert one['index_B'].tolist() == other['index_B'].tolist()
    T = other['tokens_BT'].shape[1]
    assert np.array_equal(one['tokens_BT'][:, :T], other['tokens_BT']) and not one['valid_BT'][:, T:].any()


def test_evaluation_has_the_training_lengths_and_longer_ones_for_longer_rows():
  trained = lengths(batches(sizes=[3, 7, 7, 7, 20, 20, 20, 20], rows_per_bucket=1000))
  assert trained == {8, 24}
  found = batches('valid', sizes=[3, 7, 7, 7, 20, 20, 20, 20], rows_per_bucket=1000)
  assert found._buckets.tolist() == [8, 24, 32, 48, 100] and lengths(found) == {100}


def test_merged_lengths_add_the_least_padding():
  assert bucketed.merge_lengths([8] * 10 + [16] * 2 + [32] * 9 + [64], 4) == (8, 16, 32, 64)
  assert bucketed.merge_lengths([8] * 10 + [16] * 2 + [32] * 9 + [64], 3) == (8, 32, 64)
  assert bucketed.merge_lengths([8] * 10 + [16] * 2 + [32] * 9 + [64], 2) == (32, 64)
  # The batches of a dropped length count where they are padded to: 32 for 24, then 12 x 8 to 40 or 12 x 16 to 24.
  assert bucketed.merge_lengths([8] * 2 + [24] * 9 + [32] * 3 + [40], 3) == (8, 24, 40)
  assert bucketed.merge_lengths([8] * 9 + [24] * 2 + [32] * 1 + [64] * 2, 3) == (8, 32, 64)
  assert bucketed.merge_lengths([8] * 9 + [24] * 2 + [32] * 1 + [64] * 2, 2) == (8, 64)
  assert bucketed.merge_lengths([8, 8], 2) == (8,)


def test_log_says_how_many_shapes_are_compiled():
  note = lambda found: training._shapes_note(found)
  assert note(batches(rows_per_bucket=1000)) == (
    '2 shapes of batches, 4 x 16, 4 x 48 tokens: each compiled once, when it first comes',
  )
  assert note(batches(sizes=[3] * 8)) == ('1 shape of batches, 4 x 8 tokens: compiled once, at the first update',)
  assert note(batches(groups=2, rows_per_bucket=1000))[0].startswith('1 shape of batches, 4 x 48 tokens')
  assert note(types.SimpleNamespace(shapes=lambda: (), unit='tokens')) == ()
