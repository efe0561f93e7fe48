"""Windows of random length: every token once in order, whichever host asks, with epochs of different lengths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lmx.data import noise, pipeline
from lmx.data.batching import streams
from lmx.data.corpus import Corpus, Split
from lmx.data.tokenizers.base import Absent

B, T = 3, 20


def make(n=3000, seed=1, multiple=0, B=B, T=T, **options):
  data = Split('train', np.arange(n, dtype=np.uint32), np.array([0, n]), None, None, {'tokens': n})
  return streams.RandomStreams(data, B, T, vocab_size=10**6, seed=seed, multiple=multiple, **options)


def epoch_of(batches, epoch):
  return [batches(s) for s in range(batches.steps_in(epoch), batches.steps_in(epoch + 1))]


@pytest.mark.parametrize('multiple', [0, 8])
def test_stream_predicts_every_token_once(multiple):
  n = 1000
  batches = make(n, multiple=multiple)
  for epoch in range(3):
    found, before = [], None
    for i, batch in enumerate(epoch_of(batches, epoch)):
      live_BT = batch['weights_BT'] > 0
      np.testing.assert_array_equal(live_BT, batch['valid_BT'])
      assert (np.sort(~live_BT, axis=1) == ~live_BT).all()  # padding on the right
      np.testing.assert_array_equal(batch['targets_BT'][live_BT], batch['tokens_BT'][live_BT] + 1)
      found += batch['targets_BT'][live_BT].tolist()
      assert batch['reset_B'].all() == batch['reset_B'].any() == (i == 0)
      if before is not None:
        for b in range(B):
          if live_BT[b].any():
            assert batch['tokens_BT'][b, 0] == before['targets_BT'][b][before['valid_BT'][b]][-1]
      np.testing.assert_allclose(batch['rate_B'], live_BT[0].sum() / T if i < 3 else live_BT.sum(1).max() / T)
      before = batch
    assert sorted(found) == list(range(1, n))


def test_learning_rate_scales_with_length_if_set():
  with_rate, without = make()(3), make(scale_rate=False)(3)
  assert 'rate_B' not in without and with_rate.keys() - without.keys() == {'rate_B'}
  for name in without:
    np.testing.assert_array_equal(with_rate[name], without[name])


def test_few_shapes_without_truncating_lengths():
  plain, few = make(), make(multiple=8)
  assert {plain(s)['tokens_BT'].shape for s in range(60)} == {(B, T + streams.MARGIN)}
  shapes = {few(s)['tokens_BT'].shape[1] for s in range(200)}
  assert all(t % 8 == 0 or t == T + streams.MARGIN for t in shapes) and len(shapes) < 8
  for s in range(60):
    width = few(s)['tokens_BT'].shape[1]
    for name in ('tokens_BT', 'targets_BT', 'valid_BT'):
      np.testing.assert_array_equal(few(s)[name], plain(s)[name][:, :width])
    assert width - few(s)['valid_BT'].sum(1).max() < 8


def test_batch_depends_only_on_seed_and_step():
  first, second = make(), make()
  for s in (250, 3, 0, 90):  # in any order, from any start
    whole = first(s)
    parts = [second(s, slice(r, r + 1)) for r in range(B)]
    for name in whole:
      np.testing.assert_array_equal(np.concatenate([p[name] for p in parts]), whole[name])
  assert any(make(seed=2)(s)['rate_B'][0] != first(s)['rate_B'][0] for s in range(5))


def test_padding_rows_have_no_weight():
  batches, padded = make(multiple=8), make(multiple=8).pad_rows(4)
  for s in (0, 250):
    whole = padded(s)
    for name, x in batches(s).items():
      np.testing.assert_array_equal(whole[name][:B], x)
    assert (
      not whole['weights_BT'][B:].any() and not whole['valid_BT'][B:].any() and whole['index_B'].tolist()[B:] == [-1]
    )
    assert len(set(whole['rate_B'])) == len(set(whole['reset_B'])) == 1


def test_segment_lengths_are_resampled_each_epoch():
  batches = make()
  ends = [batches.steps_in(e) for e in range(7)]
  counts = np.diff(ends)
  assert ends[0] == 0 and batches.steps == counts[0] and len(set(counts.tolist())) > 1
  assert [batches.epoch_of(s) for s in range(ends[2])] == [(e, i) for e in range(2) for i in range(counts[e])]
  assert batches.steps_in(1.5) == ends[1] + round(0.5 * counts[1])
  lengths = [[int(b['rate_B'][0] * T + 0.5) for b in epoch_of(batches, e)] for e in range(2)]
  assert lengths[0] != lengths[1] and all(sum(x) == 1000 for x in lengths)
  with pytest.raises(IndexError, match='step -1'):
    batches(-1)


def test_segment_lengths_follow_the_paper():
  cuts = streams.window_offsets(noise.generator(0, 'lengths', 0), 2_000_000, 70)
  lengths = np.diff(cuts)[:-1]
  assert cuts[0] == 0 and cuts[-1] == 2_000_000 and lengths.min() >= 5
  short = lengths < 53  # no normal of deviation 5 around 70 or 35 comes near
  assert abs(short.mean() - 0.05) < 0.005
  for part, mean in ((lengths[short], 35), (lengths[~short], 70)):
    assert abs(part.mean() - (mean - 0.5)) < 0.3 and abs(part.std() - 5) < 0.5  # whole numbers, cut towards zero
  tiny = np.diff(streams.window_offsets(noise.generator(0, 'lengths', 0), 5000, 8))[:-1]
  assert tiny.min() == 5 and (tiny == 5).mean() > 0.2
  for epoch, length in itertools.product(range(3), (8, 70)):
    drawn = np.diff(streams.window_offsets(noise.generator(1, 'lengths', epoch), 100_000, length))
    assert drawn.max() < length + streams.MARGIN  # nothing near the limit


def test_epoch_statistics():
  batches = make(multiple=8)
  epoch = epoch_of(batches, 0)
  assert batches.positions() == sum(b['tokens_BT'].size for b in epoch)
  assert batches.examples == batches.steps * B == len(epoch) * B


@pytest.mark.parametrize('counted, columns', [(1.0, 20), (0.5, 10), (0.01, 1)])
def test_only_the_last_predictions_of_a_window_count_in_training(counted, columns):
  """The others are read all the same."""
  data = Split('train', np.arange(500, dtype=np.uint32), np.array([0, 500]), None, None, {'tokens': 500})
  batch = streams.Streams(data, B, T, vocab_size=10**6, seed=0, train=True, counted=counted)(0)
  assert (batch['weights_BT'] == (np.arange(T) >= T - columns)).all()
  plain = streams.Streams(data, B, T, vocab_size=10**6, seed=0, train=True)(0)
  np.testing.assert_array_equal(batch['tokens_BT'], plain['tokens_BT'])


def test_evaluation_counts_every_prediction():
  train = Split('train', np.arange(500, dtype=np.uint32), np.array([0, 500]), None, None, {'tokens': 500})
  corpus = Corpus(Absent(10**6), {'train': train}, {}, '')
  data = pipeline.Config(batching={'name': 'streams', 'counted': 0.5}, batch_size=B, length=T)
  count = lambda train: streams.build(data, corpus, 'train', 0, train=train)(0)['weights_BT'].sum()
  assert count(True) == B * T / 2 and count(False) == B * T
