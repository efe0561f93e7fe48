"""Draws by index, and masks held to BERT's rules and to a plain re-statement of them."""

import random

import numpy as np
import pytest

from lmx.data import noise
from tests.reference import bert_data

V, MASK, CLS, SEP = 200, 4, 2, 3


def rows(B, T, seed=0):
  """Rows [CLS] A [SEP] B [SEP] of random lengths; returns tokens, lengths, candidates."""
  draw = np.random.default_rng(seed)
  lengths_B = draw.integers(5, T + 1, B)
  tokens_BT = draw.integers(5, V, (B, T)).astype(np.int32)
  column_T = np.arange(T)
  candidates_BT = (column_T > 0) & (column_T < lengths_B[:, None] - 1)
  middle_B = 2 + (lengths_B - 4) // 2
  candidates_BT[np.arange(B), middle_B] = False
  tokens_BT[~candidates_BT] = SEP
  tokens_BT[:, 0] = CLS
  tokens_BT[column_T >= lengths_B[:, None]] = 0
  return tokens_BT, lengths_B, candidates_BT


def masked(tokens_BT, lengths_B, candidates_BT, seed=0, P=20, **changes):
  uniform_BU = noise.uniform(seed, 'mask', ((0, i) for i in range(len(tokens_BT))), tokens_BT.shape[1] + 2 * P)
  options = dict(mask_id=MASK, replacements=np.arange(V), mask_prob=0.15, max_predictions=P) | changes
  return noise.mask_tokens(tokens_BT, lengths_B, candidates_BT, uniform_BU, **options)


def test_random_streams_depend_on_every_argument():
  base = noise.generator(3, 'mask', 5, 7).random(4)
  np.testing.assert_array_equal(base, noise.generator(3, 'mask', 5, 7).random(4))
  others = [(4, 'mask', 5, 7), (3, 'pairs', 5, 7), (3, 'mask', 6, 7), (3, 'mask', 5, 8), (3, 'mask', 7, 5)]
  assert all(not np.array_equal(base, noise.generator(*other).random(4)) for other in others)
  # Draws of neighbouring indices do not run into one another.
  long = noise.generator(3, 'mask', 5, 7).random(1000)
  assert not np.isin(noise.generator(3, 'mask', 5, 8).random(1000), long).any()


@pytest.mark.parametrize('T, P', [(5, 1), (16, 3), (64, 10), (128, 20), (512, 77)])
@pytest.mark.parametrize('whole', [False, True])
def test_prediction_counts_positions_and_padding(T, P, whole):
  tokens_BT, lengths_B, candidates_BT = rows(40, T)
  starts_BT = tokens_BT % 3 != 0 if whole else None
  out = masked(tokens_BT, lengths_B, candidates_BT, P=P, starts_BT=starts_BT)
  for b, length in enumerate(lengths_B):
    wanted = min(P, max(1, round(int(length) * 0.15)), int(candidates_BT[b].sum()))
    n = int(out['weights_BP'][b].sum())
    assert n <= wanted if whole else n == wanted
    np.testing.assert_array_equal(out['weights_BP'][b], np.arange(P) < n)
    positions = out['positions_BP'][b, :n]
    assert (np.diff(positions) > 0).all() and candidates_BT[b, positions].all()
    np.testing.assert_array_equal(out['targets_BP'][b, :n], tokens_BT[b, positions])
    assert not out['positions_BP'][b, n:].any() and not out['targets_BP'][b, n:].any()
    untouched = np.setdiff1d(np.arange(T), positions)
    np.testing.assert_array_equal(out['tokens_BT'][b, untouched], tokens_BT[b, untouched])


def within(count, n, p):
  """Is a count of n trials within five standard deviations of a probability p?"""
  return abs(count - n * p) <= 5 * (n * p * (1 - p)) ** 0.5


@pytest.mark.parametrize('mask_share, random_share', [(1.0, 0.0), (0.8, 0.2), (0.0, 0.8), (0.8, 0.0)])
def test_mask_and_random_token_fractions(mask_share, random_share):
  tokens_BT = np.full((400, 64), 9, np.int32)
  everywhere = np.ones(tokens_BT.shape, bool)
  out = masked(tokens_BT, np.full(400, 64), everywhere, mask_share=mask_share, random_share=random_share)
  written = np.take_along_axis(out['tokens_BT'], out['positions_BP'], 1)[out['weights_BP'] > 0]
  n = len(written)
  assert within((written == MASK).sum(), n, mask_share + random_share / V)
  assert within((written == 9).sum(), n, 1 - mask_share - random_share + random_share / V)


def test_from_left_to_right_every_token_is_predicted_at_the_one_before():
  tokens_BT, lengths_B, _ = rows(3, 16)
  out = noise.predict_next(tokens_BT, np.arange(16) < lengths_B[:, None])
  np.testing.assert_array_equal(out['tokens_BT'], tokens_BT)
  for b, length in enumerate(lengths_B):
    assert out['weights_BP'][b].sum() == length - 1 and out['weights_BP'][b, : length - 1].all()
    np.testing.assert_array_equal(out['targets_BP'][b, : length - 1], tokens_BT[b, 1:length])
    np.testing.assert_array_equal(out['positions_BP'][b], np.arange(15))


def test_masking_is_80_10_10_and_uniform_over_candidates():
  tokens_BT, _, _ = rows(1, 64)
  B = 4000
  tokens_BT = np.repeat(np.where(tokens_BT == 0, 9, tokens_BT), B, axis=0)
  lengths_B = np.full(B, 64)
  candidates_BT = np.broadcast_to((np.arange(64) > 0) & (np.arange(64) < 63), tokens_BT.shape)
  out = masked(tokens_BT, lengths_B, candidates_BT)
  row, slot = np.nonzero(out['weights_BP'])
  shown = out['tokens_BT'][row, out['positions_BP'][row, slot]]
  original = out['targets_BP'][row, slot]
  n = len(row)
  assert n == B * round(64 * 0.15)
  assert within((shown == MASK).sum(), n, 0.8 + 0.1 / V)
  assert within((shown == original).sum(), n, 0.1 + 0.1 / V)
  other = shown[(shown != MASK) & (shown != original)]
  counts_V = np.bincount(other, minlength=V)
  unlike = np.setdiff1d(np.arange(V), np.append(np.unique(original), MASK))
  assert (counts_V[[0, 1, CLS, SEP]] > 0).all()  # specials too, as released
  assert all(within(counts_V[v], n, 0.1 / V) for v in unlike)
  chosen_T = np.bincount(out['positions_BP'][row, slot], minlength=64)
  assert all(within(chosen_T[t], B, 10 / 62) for t in range(1, 63)) and chosen_T[0] == chosen_T[63] == 0


def test_random_tokens_can_be_restricted():
  tokens_BT, lengths_B, candidates_BT = rows(300, 64)
  allowed = np.arange(5, V)
  out = masked(tokens_BT, lengths_B, candidates_BT, replacements=allowed)
  changed = out['tokens_BT'] != tokens_BT
  assert np.isin(out['tokens_BT'][changed], np.append(allowed, MASK)).all()


@pytest.mark.parametrize('whole', [False, True])
def test_statistics_match_the_reference(whole):
  T, B = 48, 1500
  tokens_BT, lengths_B, candidates_BT = rows(B, T, seed=1)
  starts_BT = tokens_BT % 3 != 0 if whole else None
  out = masked(tokens_BT, lengths_B, candidates_BT, starts_BT=starts_BT)
  draw, counts, plain_T = random.Random(0), [], np.zeros(T)
  continues = (lambda token: token % 3 == 0) if whole else None
  for b in range(B):
    _, hidden, _ = bert_data.mask(
      tokens_BT[b, : lengths_B[b]].tolist(), {CLS, SEP}, draw, mask_id=MASK, vocab_size=V, continues=continues
    )
    counts.append(len(hidden))
    plain_T[hidden] += 1
  ours = out['weights_BP'].sum(1)
  if not whole:
    np.testing.assert_array_equal(ours, counts)
  assert abs(ours.mean() - np.mean(counts)) < 5 * np.std(counts) * (2 / B) ** 0.5 + 1e-9
  row, slot = np.nonzero(out['weights_BP'])
  ours_T = np.bincount(out['positions_BP'][row, slot], minlength=T)
  assert (np.abs(ours_T - plain_T) <= 5 * np.sqrt(ours_T + plain_T + 1)).all()


def test_whole_words_stay_whole():
  for seed in range(20):
    T = 24 + seed
    tokens_BT, lengths_B, candidates_BT = rows(8, T, seed)
    starts_BT = tokens_BT % 3 != 0
    out = masked(tokens_BT, lengths_B, candidates_BT, seed=seed, starts_BT=starts_BT)
    hidden_BT = np.zeros((8, T), bool)
    row, slot = np.nonzero(out['weights_BP'])
    hidden_BT[row, out['positions_BP'][row, slot]] = True
    for b in range(8):
      words = []
      for t in np.flatnonzero(candidates_BT[b]):
        if words and not starts_BT[b, t]:
          words[-1].append(t)
        else:
          words.append([t])
      assert all(len(set(hidden_BT[b, word])) == 1 for word in words)


def test_word_beyond_the_character_limit_is_skipped():
  tokens_BT = np.arange(5, 17, dtype=np.int32)[None]
  starts_BT = np.isin(np.arange(12), [0, 5, 6])[None]  # words of 5, 1 and 6 tokens, two may be hidden
  for seed in range(10):
    out = masked(tokens_BT, np.array([12]), np.ones((1, 12), bool), seed=seed, starts_BT=starts_BT)
    assert out['weights_BP'].sum() == 1 and out['positions_BP'][0, 0] == 5


def test_one_token_words_fill_every_row():
  tokens_BT = np.arange(5, 45, dtype=np.int32).reshape(4, 10)
  everywhere = np.ones((4, 10), bool)
  out = masked(tokens_BT, np.full(4, 10), everywhere, mask_prob=1.0, starts_BT=everywhere)
  np.testing.assert_array_equal(out['targets_BP'][:, :10], tokens_BT)


def test_choices_follow_the_cumulative_weights():
  weights = np.random.default_rng(0).random(5000) ** 4
  weights[[0, 17, 4999]] = 0.0
  draws = np.random.default_rng(1).random((40, 50))
  cumulative = np.cumsum(weights) / weights.sum()
  draws[0, :4] = 0.0, cumulative[3], cumulative[40], np.nextafter(1.0, 0.0)
  items = noise.Choice(weights)(draws)
  assert items.dtype == np.int32
  np.testing.assert_array_equal(items, np.searchsorted(cumulative, draws, 'right'))
