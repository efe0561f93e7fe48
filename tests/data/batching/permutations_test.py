"""Rows of XLNet: contiguous text that goes on, two segments, spans in random orders, rows read from their end."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lmx.data import noise, pipeline
from lmx.data.batching import permutations
from lmx.data.corpus import Split
from lmx.data.tokenizers.characters import Bytes
from lmx.errors import InputError
from tests import numbered_tokens
from tests.reference import xlnet_data

B, T, N = 4, 64, 4000
CFG = permutations.Config(predictions=10)
CHOOSE = noise.choose_spans, xlnet_data.choose_spans
TOKENIZER = numbered_tokens.wordpiece(N + 5, N, lambda i: i % 3 == 0)
CLS, SEP = TOKENIZER.cls_id, TOKENIZER.sep_id


def make(cfg=CFG, *, train=True, seed=0, sentences=True, length=T):
  """Token i is i, so that every token says where it stood; sentences of 7."""
  starts = np.append(np.arange(0, N, 7), N) if sentences else None
  split = Split('train', np.arange(N, dtype=np.uint32), np.array([0, N]), starts, None, {'tokens': N})
  return permutations.Permutations(split, B, length, cfg=cfg, tokenizer=TOKENIZER, seed=seed, train=train)


def test_segment_memory_carries_over_to_the_next_batch():
  batches = make()
  rows = [batches(step) for step in range(batches.steps)]
  half = N // 2
  for step, batch in enumerate(rows):
    first = batch['tokens_BT'][:, : T // 2]
    for b, start in ((0, 0), (1, half)):  # forward rows, and the same parts read from their ends
      np.testing.assert_array_equal(first[b], start + step * 32 + np.arange(32))
      np.testing.assert_array_equal(first[b + 2], start + half - 1 - step * 32 - np.arange(32))
    assert batch['backward_B'].tolist() == [False, False, True, True]
    assert (batch['reset_B'] == (step == 0)).all()
  assert batches(batches.steps)['reset_B'].all()  # the next epoch begins anew


def test_row_has_two_segments_with_special_tokens():
  batches = make(dataclasses.replace(CFG, random_next_prob=0.5))
  follows = []
  for step in range(20):
    batch = batches(step)
    for b in range(B):
      tokens_T, types_T = batch['tokens_BT'][b].astype(int), batch['types_BT'][b]
      cut = int(np.flatnonzero(tokens_T == SEP)[0])
      assert tokens_T[-1] == CLS and tokens_T[-2] == SEP and cut >= T // 2 + 1
      assert types_T.tolist() == [0] * (cut + 1) + [1] * (T - cut - 2) + [2]
      way = -1 if b >= 2 else 1
      text, second = tokens_T[:cut], tokens_T[cut + 1 : -2]
      assert (np.diff(text) == way).all() and (np.diff(second) == way).all()  # contiguous
      assert (tokens_T[cut - 1] + (b < 2)) % 7 == 0  # A ends where a sentence does
      follows.append(second[0] == text[-1] + way)
      assert follows[-1] == (batch['next_B'][b] == 0) or second[0] == text[-1] + way
  assert 0.35 < np.mean(follows) < 0.65
  assert (make(dataclasses.replace(CFG, random_next_prob=0.0))(3)['next_B'] == 0).all()


@pytest.mark.parametrize('spans', permutations.SPANS)
def test_predicted_positions_and_attention_order(spans):
  batches = make(dataclasses.replace(CFG, spans=spans))
  for step in range(10):
    batch = batches(step)
    for b in range(B):
      order_T, tokens_T = batch['order_BT'][b], batch['tokens_BT'][b]
      used = batch['weights_BP'][b] > 0
      at = batch['positions_BP'][b][used]
      assert (np.diff(at) > 0).all() and used.sum() >= 10 - 3  # three marks may have been among those drawn
      np.testing.assert_array_equal(batch['targets_BP'][b][used], tokens_T[at])
      assert not np.isin(tokens_T[at], (CLS, SEP)).any()
      marks = np.isin(tokens_T, (CLS, SEP))
      first, second = order_T[:32], order_T[32:]
      assert first.max() < second.min()  # the first part never sees the second
      free_1, free_2 = first == 0, second == T + 1
      placed = np.concatenate([~free_1, ~free_2])
      np.testing.assert_array_equal(placed, marks | np.isin(np.arange(T), at) | (placed & ~np.isin(np.arange(T), at)))
      assert len(set(order_T[placed])) == placed.sum()  # no two at one place
      assert placed[at].all() and (at < 32).sum() == 5


def test_chunked_orders_stay_in_their_chunk():
  found = np.stack([noise.factorization_order(6, 6, noise.generator(0, 'x', i)) for i in range(400)])
  assert len({tuple(row) for row in found}) > 250  # of 720
  assert (np.sort(found, axis=1) == np.arange(6)).all()
  assert np.abs(found.mean(0) - 2.5).max() < 0.35
  chunked = noise.factorization_order(12, 4, noise.generator(0, 'x', 1))
  assert (chunked // 4 == np.arange(12) // 4).all()


def test_span_length_probability_is_proportional_to_1_over_n():
  """Of a text so long that no token is drawn by itself."""
  lengths = np.zeros(6)
  for i in range(200):
    chosen = noise.choose_spans(3000, 60, noise.generator(1, 'spans', i))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(int), [0]])))
    lengths += np.bincount(np.minimum(edges[1::2] - edges[::2], 5), minlength=6)
  expected = 1 / np.arange(1, 6)
  np.testing.assert_allclose(lengths[1:] / lengths.sum(), expected / expected.sum(), atol=0.03)


@pytest.mark.parametrize('starts', [False, True])
def test_span_count_matches_and_short_spans_are_more_frequent(starts):
  starts_T = np.arange(300) % 3 == 0 if starts else None
  lengths, total = np.zeros(6), 0
  for i in range(100):
    chosen = noise.choose_spans(300, 40, noise.generator(1, 'spans', i), starts_T)
    assert chosen.sum() == 40
    edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(int), [0]])))
    begins, ends = edges[::2], edges[1::2]
    if starts:
      total += (begins % 3 == 0).mean()
    for n in ends - begins:
      lengths[min(n, 5)] += 1
  assert lengths[1] > lengths[2] > lengths[4] > 0
  if starts:
    assert total / 100 > 0.75  # but for those drawn one by one at the end
  assert noise.choose_spans(10, 10, noise.generator(0, 'x')).all()


def test_released_spans_start_at_words():
  """Words here are of 100 tokens; the token after one that a span may begin with follows it in the text."""
  pieces = ['x'] * TOKENIZER.vocab_size
  pieces[::10], pieces[5::10] = [','] * len(pieces[::10]), ['<0x41>'] * len(pieces[5::10])
  own = numbered_tokens.wordpiece(N + 5, N, lambda i: i % 100 == 1)
  own.ids_to_tokens = lambda ids: pieces
  split = Split('train', np.arange(N, dtype=np.uint32), np.array([0, N]), None, None, {'tokens': N})
  cfg = dataclasses.replace(CFG, predictions=12)
  batches = permutations.Permutations(split, B, 256, cfg=cfg, tokenizer=own, seed=0, train=True)
  begins = []
  for step in range(8):
    batch = batches(step)
    for b in range(B):
      at = batch['positions_BP'][b][:6]  # those of the first part, which is contiguous text
      tokens = np.sort(batch['tokens_BT'][b][at])
      runs = np.split(tokens, np.flatnonzero(np.diff(tokens) > 1) + 1)
      begins += [run[0] for run in runs if len(run) > 1]  # the others may have been drawn one by one at the end
  kinds = np.asarray([[t % 100 == 1, t % 10 == 0, t % 10 == 5] for t in begins])
  assert kinds.any(axis=1).mean() > 0.9 and (kinds.mean(axis=0)[1:] > 0.3).all(), kinds.mean(axis=0)


def test_batch_depends_only_on_seed_and_step():
  batches = make()
  whole = batches(5)
  for name, x in make()(5, slice(2, 4)).items():
    np.testing.assert_array_equal(x, whole[name][2:4])
  assert not np.array_equal(make(seed=1)(5)['order_BT'], whole['order_BT'])
  assert not np.array_equal(batches(5 + batches.steps)['order_BT'], whole['order_BT'])  # new in each epoch


@pytest.mark.parametrize('unbroken', ['random', 'drawn'])
def test_without_nearby_boundary_second_segment_is_random(unbroken):
  """zihangdai/xlnet, data_utils.py, _split_a_and_b: no cut points, label 0."""
  batches = make(dataclasses.replace(CFG, unbroken=unbroken), sentences=False)
  next_B = np.concatenate([batches(step)['next_B'] for step in range(batches.steps)])
  assert (next_B.mean() == 1) if unbroken == 'random' else (0.3 < next_B.mean() < 0.7)
  never = make(dataclasses.replace(CFG, unbroken=unbroken, random_next_prob=0.0), sentences=False)
  assert not never(3)['next_B'].any()


def test_rows_with_boundaries_are_unchanged():
  old, new = make(dataclasses.replace(CFG, unbroken='drawn')), make()
  for key, value in old(3).items():
    np.testing.assert_array_equal(new(3)[key], value)


def test_boundaries_and_spans_match_numpy():
  """So that a run of an earlier version resumes with the rows that it would have had."""
  draw, batches = np.random.default_rng(0), make()
  for i in range(300):
    start, end = np.sort(draw.integers(0, N + 1, 2)).tolist()
    low, high = np.sort(draw.integers(0, end - start + 1, 2)).tolist()
    row = start, end, bool(i % 2), low, min(high, low + 30)
    first, second = noise.generator(0, 'x', i), noise.generator(0, 'x', i)
    assert batches._draw_border(first, *row) == xlnet_data.draw_border(batches._borders, second, *row)
    starts_T = draw.random(96) < (i % 3) / 3 if i % 3 else None
    spans = [choose(96, 1 + i % 24, r, starts_T) for choose, r in zip(CHOOSE, (first, second), strict=True)]
    np.testing.assert_array_equal(*spans)
    assert first.random() == second.random()


def test_without_sentences_segments_end_anywhere():
  cuts = {int(np.flatnonzero(make(sentences=False)(step)['tokens_BT'][0] == SEP)[0]) for step in range(20)}
  assert len(cuts) > 8


def test_evaluation_ends_with_the_text():
  batches = make(train=False)
  assert batches.steps == (N // 2 - T) // 32 + 1
  with pytest.raises(IndexError):
    batches(batches.steps)


@pytest.mark.parametrize(
  'changes, words',
  [
    (dict(batching=permutations.Config(reuse=60)), 'data.length: got'),
    (dict(batching=permutations.Config(chunk=40, predictions=4)), 'data.length: got'),
    (dict(batching=permutations.Config(predictions=70)), 'data.batching.predictions: got'),
    (dict(batching=permutations.Config(context=60)), 'data.batching.predictions: got'),
    (dict(batching=CFG, batch_size=3), 'data.batch_size: got'),
  ],
)
def test_incompatible_sections_are_rejected(changes, words):
  with pytest.raises(InputError, match=words):
    permutations.check(pipeline.Config(**dict(length=T, batch_size=B) | changes))


def test_tokenizer_without_special_tokens_is_rejected():
  with pytest.raises(InputError, match='data.batching: got'):
    permutations.special_token_id(Bytes(), 'cls')


def test_text_too_short_is_rejected():
  with pytest.raises(InputError, match='too small'):
    make(length=2048, cfg=dataclasses.replace(CFG, reuse=1024))
