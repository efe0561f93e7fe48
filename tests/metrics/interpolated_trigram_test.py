"""The interpolated trigram against a restatement with dictionaries and loops, and on the Brown corpus."""

from __future__ import annotations

import numpy as np
import pytest

from lmx.data import corpus
from lmx.errors import InputError
from lmx.metrics import interpolated_trigram, ngram
from tests.reference import nplm as reference

V = 9


def _text(seed: int, words: int) -> np.ndarray:
  p = np.array([8, 5, 3, 2, 1, 1, 0.5, 0.5, 0])  # the last word never occurs in training
  return np.random.default_rng(seed).choice(V, words, p=p / p.sum())


def _restated(model, train, held_out, test):
  slow = reference.Interpolated(train, V).fit(held_out, interpolated_trigram.ITERATIONS)
  text = [None, None, *test]
  return slow, [slow.probability(text[i], text[i - 2 : i]) for i in range(2, len(text))]


@pytest.mark.parametrize('words', [30, 400])
def test_matches_reference(words):
  train, held_out, test = _text(0, words), _text(1, words // 2), np.append(_text(2, 50), [8, 8, 0, 1])
  model = interpolated_trigram.fit(train, held_out, V)
  slow, expected = _restated(model, train, held_out, test)
  total, nll = interpolated_trigram.score(model, test)
  np.testing.assert_allclose(np.exp(-nll), expected, rtol=1e-9)
  assert total == pytest.approx(nll.sum()) and len(nll) == len(test)
  assert model.classes.tolist() == sorted(slow.weights)
  for q, weights in zip(model.classes.tolist(), model.weights, strict=True):
    np.testing.assert_allclose(weights, slow.weights[q], rtol=1e-9)


def test_probabilities_sum_to_one_after_every_context():
  model = interpolated_trigram.fit(_text(3, 300), _text(4, 100), V)
  for a in range(V):
    for b in range(V):
      ends = [interpolated_trigram.score(model, np.array([a, b, w]))[1][2] for w in range(V)]
      assert np.exp(-np.array(ends)).sum() == pytest.approx(1, abs=1e-12), (a, b)


def test_more_iterations_never_fit_the_held_out_text_worse():
  train, held_out = _text(5, 400), _text(6, 200)
  losses = [
    interpolated_trigram.score(interpolated_trigram.fit(train, held_out, V, n), held_out)[0] for n in (0, 1, 5, 20)
  ]
  assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1] + 0.1


def test_contexts_that_were_seen_often_trust_the_trigram_more():
  """A text in which the two words before decide the next: the frequent contexts learn to be believed."""
  period = np.tile([0, 1, 2, 0, 2, 1, 1, 2, 2, 0], 60)
  rare = np.random.default_rng(7).integers(3, 8, 600)
  train = np.concatenate([period, rare])
  model = interpolated_trigram.fit(train, np.concatenate([period[:200], rare[::-1][:200]]), V)
  assert model.weights[0, 3] > 0.6 > model.weights[-1, 3]  # a low class is a frequent context


def test_class_missing_from_held_out_text_takes_the_nearest_weight():
  np.testing.assert_array_equal(
    interpolated_trigram._nearest(np.array([2, 6, 7]), np.array([0, 2, 3, 4, 5, 6, 9])), [0, 0, 0, 0, 1, 1, 2]
  )
  np.testing.assert_array_equal(interpolated_trigram._nearest(np.array([4]), np.array([1, 4, 8])), [0, 0, 0])


@pytest.mark.parametrize('tokens', [[], [0, V], [-1], [[0, 1]]])
def test_invalid_input_is_rejected(tokens):
  with pytest.raises(InputError):
    interpolated_trigram.fit(np.array(tokens, int), np.array([0, 1]), V)


@pytest.mark.real_data
def test_brown_perplexity_is_close_to_the_paper(data_dir, tmp_path):
  """With as many words as in the paper: it prints 352 / 336, and 334 / 323 for back-off Kneser-Ney trigrams."""
  made = corpus.load(
    corpus.Config(
      dataset='brown_stream',
      manual_dir=str(data_dir / 'lm' / 'brown'),
      cache_dir=str(tmp_path),
      min_count=4,
      vocab_size=16_384,
      vocabulary_splits=('train', 'valid', 'test'),
    )
  )
  train, valid, test = (np.asarray(made.splits[name].tokens) for name in ('train', 'valid', 'test'))
  trigram = interpolated_trigram.fit(train, valid, 16_384)
  perplexity = lambda scored: np.exp(scored[0] / len(scored[1]))
  assert perplexity(interpolated_trigram.score(trigram, valid)) == pytest.approx(352, rel=0.02)
  assert perplexity(interpolated_trigram.score(trigram, test)) == pytest.approx(336, rel=0.02)
  assert perplexity(interpolated_trigram.score(trigram, train)) == pytest.approx(31, rel=0.05)
  model = ngram.kneser_ney(train, 16_384, order=3, backoff=True, minimum=2)
  assert perplexity(ngram.score(model, valid)) == pytest.approx(334, rel=0.03)
  assert perplexity(ngram.score(model, test)) == pytest.approx(323, rel=0.03)
