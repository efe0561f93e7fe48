"""Word classes: the exchange against the objective computed anew, and the model against its formula."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lmx.errors import InputError
from lmx.metrics import class_ngram, ngram

V = 12


def _text(words: int, seed: int = 0) -> np.ndarray:
  """Three kinds of words that follow one another in turn, frequent and rare ones of each; word 11 never occurs."""
  rng = np.random.default_rng(seed)
  kinds = [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8]]
  share = [np.arange(len(kind), 0, -1) / sum(range(len(kind) + 1)) for kind in kinds]
  return np.array([rng.choice(kinds[i % 3], p=share[i % 3]) for i in range(words)])


def _bigram_likelihood(tokens, class_of):
  """log-likelihood of the text after its first word, by relative frequencies of class pairs and words, in a loop."""
  pairs, left, right, words = {}, {}, {}, {}
  for a, b in itertools.pairwise(tokens):
    pair = (class_of[a], class_of[b])
    pairs[pair] = pairs.get(pair, 0) + 1
    left[pair[0]] = left.get(pair[0], 0) + 1
    right[pair[1]] = right.get(pair[1], 0) + 1
    words[b] = words.get(b, 0) + 1
  each = (
    np.log(pairs[class_of[a], class_of[b]] / left[class_of[a]]) + np.log(words[b] / right[class_of[b]])
    for a, b in itertools.pairwise(tokens)
  )
  return sum(each), sum(n * np.log(n) for n in words.values())


def test_objective_is_the_likelihood_up_to_a_constant():
  tokens = _text(200)
  for seed in range(3):
    class_of = np.random.default_rng(seed).integers(0, 4, V)
    likelihood, constant = _bigram_likelihood(tokens, class_of)
    assert class_ngram.objective(tokens, class_of) == pytest.approx(likelihood - constant)


def test_gain_is_the_change_of_the_objective():
  tokens, class_of = _text(300), np.arange(V) % 4
  tokens[::7] = 3  # a word that also follows itself
  for word in range(V - 1):
    search = class_ngram._Search(tokens, class_of, 4)
    before, after, own = search._neighbours(word)
    search._update(class_of[word], before, after, own, -1)
    gain = search._gains(before, after, own)
    moved = [class_ngram.objective(tokens, np.where(np.arange(V) == word, c, class_of)) for c in range(4)]
    np.testing.assert_allclose(gain - gain[0], np.array(moved) - moved[0], atol=1e-8)


def test_exchange_recovers_word_classes():
  tokens = _text(600)
  found = class_ngram.exchange(tokens, V, 3)
  assert [len({found[w] for w in kind}) for kind in ([0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8])] == [1, 1, 1]
  assert len(set(found[:3].tolist())) == 3
  start = np.empty(V, np.int64)
  start[np.argsort(-np.bincount(tokens, minlength=V), kind='stable')] = np.arange(V) % 5
  search = class_ngram._Search(tokens, start, 5)
  values = [class_ngram.objective(tokens, search.class_of)]
  for word in range(V):
    search.move(word)
    values.append(class_ngram.objective(tokens, search.class_of))
  assert (np.diff(values) >= -1e-9).all() and values[-1] > values[0]
  fresh = class_ngram._Search(tokens, search.class_of, 5)
  np.testing.assert_array_equal(search.pairs, fresh.pairs)


def test_model_is_classes_times_words():
  tokens, test = _text(400), np.append(_text(50, seed=1), [11, 0])
  class_of = class_ngram.exchange(tokens, V, 4)
  total, nll = class_ngram.score(class_ngram.fit(tokens, class_of, 3), test)
  over = ngram.kneser_ney(class_of[tokens], int(class_of.max()) + 1, order=3, backoff=True, minimum=2)
  counts = np.bincount(tokens, minlength=V) + 1
  within = np.array([counts[w] / sum(counts[v] for v in range(V) if class_of[v] == class_of[w]) for w in test])
  np.testing.assert_allclose(nll, ngram.score(over, class_of[test])[1] - np.log(within))
  assert total == pytest.approx(nll.sum())
  model = class_ngram.fit(tokens, class_of, 3)
  P = [np.exp(-class_ngram.score(model, np.array([0, 1, w]))[1][2]) for w in range(V)]
  assert sum(P) == pytest.approx(1)


@pytest.mark.parametrize('count', [0, V + 1])
def test_invalid_class_count_is_rejected(count):
  with pytest.raises(InputError, match=f'classes: got {count}'):
    class_ngram.exchange(_text(50), V, count)
