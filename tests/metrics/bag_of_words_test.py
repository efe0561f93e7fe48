"""Baselines of words against scikit-learn's own pipelines on the same texts."""

from __future__ import annotations

import numpy as np
import pytest

from lmx.metrics import bag_of_words

pytest.importorskip('sklearn')
WORDS = 'good fine great bad dull poor film story plot !'.split()


def texts(seed, count):
  draw = np.random.default_rng(seed)
  return [' '.join(draw.choice(WORDS, draw.integers(3, 9))).capitalize() for _ in range(count)]


def vectorizer():
  from sklearn.feature_extraction.text import TfidfVectorizer

  return TfidfVectorizer(token_pattern=r'\w+|[^\w\s]', ngram_range=(1, 2))


def test_linear_models_equal_pipelines():
  from sklearn.linear_model import LogisticRegression, Ridge
  from sklearn.pipeline import make_pipeline

  train, test, labels_I = texts(0, 60), texts(1, 40), np.arange(60) % 3
  rows = lambda some: [(text,) for text in some]
  by_hand = make_pipeline(vectorizer(), LogisticRegression(max_iter=1000)).fit(train, labels_I)
  assert bag_of_words.classify(rows(train), labels_I, rows(test), 3).tolist() == by_hand.predict(test).tolist()
  scores_I = labels_I * 0.5 + 1
  by_hand = make_pipeline(vectorizer(), Ridge()).fit(train, scores_I)
  np.testing.assert_allclose(bag_of_words.regress(rows(train), scores_I, rows(test)), by_hand.predict(test), rtol=1e-6)


def test_features_of_pairs_are_both_texts_their_product_and_difference():
  from sklearn.linear_model import Ridge

  train, test = (list(zip(texts(seed, 30), texts(seed + 1, 30), strict=True)) for seed in (2, 4))
  scores_I = np.linspace(0, 5, 30)
  known = vectorizer().fit([text for row in train for text in row])
  read = lambda rows: [known.transform(column).toarray() for column in zip(*rows, strict=True)]
  join = lambda a_IF, b_IF: np.concatenate([a_IF, b_IF, a_IF * b_IF, abs(a_IF - b_IF)], axis=1)
  by_hand = Ridge().fit(join(*read(train)), scores_I).predict(join(*read(test)))
  np.testing.assert_allclose(bag_of_words.regress(train, scores_I, test), by_hand, rtol=1e-4)


def test_naive_bayes_adds_one_to_each_count_and_ignores_unknown_words():
  train, labels_I = ['a good film', 'good , good', 'a bad film', 'bad and dull'], np.array([1, 1, 0, 0])
  assert bag_of_words.naive_bayes(train, labels_I, ['Good !', 'dull , unheard']).tolist() == [1, 0]
  # Without known features the prior decides, and of two equal ones the first class.
  assert bag_of_words.naive_bayes(['x x', 'y'], np.array([0, 1]), ['x', 'y', 'z']).tolist() == [0, 1, 0]


def test_rarest_features_are_skipped_in_large_models(monkeypatch):
  monkeypatch.setattr(bag_of_words, 'MOST_WEIGHTS', 6)
  x_IF, x_JF = bag_of_words._tfidf([('a a b',), ('a b c',)], [('c',)], 3)
  assert x_IF.shape == (2, 2) and x_JF.nnz == 0
