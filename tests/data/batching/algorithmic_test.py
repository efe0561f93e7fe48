"""The generated tasks: answers derived anew from what is read, lengths and marks, and draws by number."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lmx.data import pipeline
from lmx.errors import InputError

LENGTHS = {'copy': (1, 20), 'repeat_copy': (1, 10), 'recall': (2, 6), 'ngrams': (200, 200), 'sort': (20, 20)}


def batches(task: str, split: str = 'train', *, train: bool = True, seed: int = 3, rows: int = 32, **fields):
  low, high = LENGTHS[task]
  cfg = pipeline.Config(
    dataset='generated',
    batch_size=rows,
    length=high,
    batching={'name': 'algorithmic', 'task': task, 'min_length': low, **fields},
  )
  return pipeline.batches(cfg, pipeline.load(cfg), split, seed, train=train)


def rows(task: str, **fields):
  """(n, inputs, targets, weights) of each row, without padding."""
  batch = batches(task, **fields)(0)
  for b, n in enumerate(batch['size_B']):
    t = batch['valid_BT'][b].sum()
    assert batch['valid_BT'][b, :t].all() and not batch['inputs_BTI'][b, t:].any()
    assert not batch['weights_BT'][b, t:].any() and not batch['target_bits_BTO'][b, t:].any()
    yield int(n), *(batch[k][b, :t] for k in ('inputs_BTI', 'target_bits_BTO', 'weights_BT'))


def test_copy_task_repeats_its_input():
  for n, x, y, w in rows('copy'):
    assert len(x) == 2 * n + 3 and x.shape[1] == 10 and y.shape[1] == 9
    assert x[0].tolist() == [0] * 8 + [1, 0] and x[n + 1].tolist() == [0] * 8 + [0, 1]
    assert not x[n + 2 :].any() and set(np.unique(x)) <= {0, 1}
    np.testing.assert_array_equal(y[n + 2 : -1, :8], x[1 : n + 1, :8])
    assert y[:, 8].tolist() == [0] * (2 * n + 2) + [1]
    assert w.tolist() == [0] * (n + 2) + [1] * (n + 1)


def test_repeated_copies():
  seen = set()
  for n, x, y, w in rows('repeat_copy', rows=400, sequences=400):
    assert x.shape[1] == 8 and y.shape[1] == 7
    copies, rest = divmod(int(w.sum()) - 1, n)
    assert rest == 0 and 1 <= copies <= 10
    seen.add(copies)
    np.testing.assert_array_equal(y[n + 2 : -1, :6], np.concatenate([x[1 : n + 1, :6]] * copies))
    assert y[:, 6].tolist() == [0] * (len(y) - 1) + [1]
    np.testing.assert_allclose(x[n + 1, 7], (copies - 5.5) / np.std(np.arange(1, 11)), rtol=1e-6)
    assert np.count_nonzero(x[:, 7]) == 1 and x[:, 6].tolist() == [1] + [0] * (len(x) - 1)
  assert seen == set(range(1, 11))


def test_associative_recall():
  for n, x, y, w in rows('recall'):
    assert x.shape[1] == 8 and y.shape[1] == 6 and w.tolist() == [0] * (len(w) - 3) + [1] * 3
    assert np.flatnonzero(x[:, 6]).tolist() == [4 * i for i in range(n)]
    assert np.flatnonzero(x[:, 7]).tolist() == [4 * n, 4 * n + 4] and len(x) == 4 * n + 8
    items = [x[4 * i + 1 : 4 * i + 4, :6] for i in range(n)]
    query, answer = x[4 * n + 1 : 4 * n + 4, :6], y[-3:]
    assert any((query == a).all() and (answer == b).all() for a, b in itertools.pairwise(items))


def test_priority_sort():
  for n, x, y, w in rows('sort'):
    assert n == 20 and x.shape == (37, 10) and y.shape == (37, 8) and w.sum() == 16
    assert np.flatnonzero(x[:, 9]).tolist() == [20]
    ranked = sorted(zip(-x[:20, 8], x[:20, :8].tolist(), strict=True), key=lambda pair: pair[0])
    assert y[21:].tolist() == [vector for _, vector in ranked[:16]]
    assert -1 <= x[:20, 8].min() < 0 < x[:20, 8].max() <= 1


def test_dynamic_ngrams_optimal_predictor():
  """The estimator of equation 10 is the mean over all tables of Beta(1/2, 1/2): here by integration over a grid."""
  batch = batches('ngrams', rows=4)(0)
  angle = (np.arange(20_000) + 0.5) / 20_000 * np.pi / 2
  chance = np.sin(angle) ** 2  # equal steps of the angle are equal probability under Beta(1/2, 1/2)
  for b in range(4):
    x, y, w = (batch[k][b] for k in ('inputs_BTI', 'target_bits_BTO', 'weights_BT'))
    assert x.shape == (199, 1) and w.tolist() == [0] * 4 + [1] * 195
    np.testing.assert_array_equal(x[1:], y[:-1])
    bits = np.concatenate([x[:, 0], y[-1]]).astype(int)
    counts: dict[tuple, list[int]] = {}
    total = 0.0
    for t in range(5, 200):
      zeros, ones = counts.setdefault(tuple(bits[t - 5 : t]), [0, 0])
      likelihood = chance**ones * (1 - chance) ** zeros
      p = np.sum(likelihood * chance) / np.sum(likelihood)
      total -= np.log2(p if bits[t] else 1 - p)
      counts[tuple(bits[t - 5 : t])][bits[t]] += 1
    np.testing.assert_allclose(batch['optimal_B'][b], total, rtol=1e-4)
  many = batches('ngrams', rows=200, sequences=200)(0)['optimal_B']
  assert 115 < many.mean() < 145  # between the entropy of the tables and a bit for each


def test_training_draws_all_lengths_and_tests_use_the_configured_ones():
  made = batches('copy', rows=400, sequences=400)
  assert set(made(0)['size_B']) == set(range(1, 21)) and made.length == 43
  tested = batches('copy', 'test', train=False, rows=12, eval_sequences=30, test_lengths=(10, 120))
  assert tested.length == 243 and tested.steps == 3
  assert tested(0)['size_B'].tolist() == [10, 120] * 6
  last = tested(2)
  assert last['row_weights_B'].tolist() == [1] * 6 + [0] * 6 and last['index_B'].tolist()[6:] == [-1] * 6
  assert not last['weights_BT'][6:].any() and not last['valid_BT'][6:].any()
  assert batches('copy', 'valid', train=False, test_lengths=(10, 120)).length == 43  # as in training
  repeated = batches('repeat_copy', 'test', train=False, rows=2, test_lengths=(4,), test_repeats=13)(0)
  assert repeated['weights_BT'].sum(1).tolist() == [4 * 13 + 1] * 2


def test_episode_depends_only_on_seed_split_epoch_and_index():
  made = batches('copy', rows=8, sequences=24)
  whole, part = made(1), made(1, slice(2, 5))
  for key, array in whole.items():
    np.testing.assert_array_equal(array[2:5], part[key])
  wider = batches('copy', rows=12, sequences=24)  # the same episodes in other batches
  np.testing.assert_array_equal(whole['inputs_BTI'][4:], wider(1)['inputs_BTI'][:4])
  inputs = lambda made, step: made(step)['inputs_BTI'].tobytes()
  different = [
    inputs(made, 1),
    inputs(made, 4),  # the same rows of the next epoch
    inputs(batches('copy', rows=8, sequences=24, seed=4), 1),
    inputs(batches('copy', 'valid', rows=8, train=False, eval_sequences=24), 1),
    inputs(batches('copy', 'test', rows=8, train=False, eval_sequences=24), 1),
  ]
  assert len(set(different)) == len(different)


def test_epoch_statistics():
  made = batches('copy', rows=8, sequences=4000)
  facts = pipeline.describe(made)
  assert facts['steps_per_epoch'] == 500 and facts['tokens_per_epoch'] == 4000 * 24  # 2 * 10.5 + 3
  real = np.mean([made(i)['valid_BT'].sum(1).mean() for i in range(100)])
  assert abs(real - 24) < 1.0


def test_epoch_tokens_average_over_copy_counts():
  made = batches('repeat_copy', rows=100, sequences=4000)
  assert made.tokens_per_epoch == 4000 * (5.5 + 2 + 5.5 * 5.5 + 1)  # both means are 5.5
  real = np.mean([made(i)['valid_BT'].sum(1).mean() for i in range(40)])
  assert abs(real - made.tokens_per_epoch / 4000) < 1.5


def test_invalid_settings_are_rejected():
  for task, fields, message in (
    ('copy', {'test_lengths': (0,)}, 'data.batching: got'),
    ('recall', {'min_length': 1}, 'data.batching: got'),
    ('ngrams', {'bits': 3}, 'bits: got 3'),
    ('sort', {'returned': 0}, 'data.batching.returned: got 0'),
    ('copy', {'min_length': 21}, 'data.length: got 20'),
    ('copy', {'sequences': 8}, 'data.batching.sequences: got 8'),
  ):
    with pytest.raises(InputError, match=message):
      batches(task, **fields)
  for fields in ({'dataset': 'generated'}, {'batching': 'algorithmic'}):
    with pytest.raises(InputError, match='data.dataset: got'):
      pipeline.Config(**fields)
