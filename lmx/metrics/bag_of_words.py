"""Baselines of texts' words without their order, by scikit-learn: naive Bayes, and linear models on TF-IDF.

Features are the lower-case words and pairs of neighbouring words of the training texts. A row of two texts has the
TF-IDF of each, their product and their absolute difference. Models have scikit-learn's defaults: multinomial naive
Bayes adds one to each count; idf = log((1 + n) / (1 + df)) + 1 and vectors have length 1; logistic regression adds half
the squared weights to the summed cross-entropy, ridge regression all of them to the summed squared error.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

WORD = r'\w+|[^\w\s]'
FEATURES = 'TF-IDF of words and pairs of words'
OF_PAIRS = f'{FEATURES}: of both texts, their product and absolute difference'
MOST_WEIGHTS = 4_000_000  # of a model; beyond it the rarest features are skipped
Rows = Sequence[Sequence[str]]  # texts of each row


def is_installed() -> bool:
  """Return whether scikit-learn is installed."""
  return importlib.util.find_spec('sklearn') is not None


def classify(train: Rows, labels_I: np.ndarray, test: Rows, classes: int) -> np.ndarray:
  """Return the classes of rows by logistic regression on TF-IDF, (J,).

  Args:
    train: training rows.
    labels_I: their classes, of which at least two occur.
    test: rows to classify.
    classes: number of classes.
  """
  from sklearn.linear_model import LogisticRegression

  x_IF, x_JF = _tfidf(train, test, classes)
  return LogisticRegression(max_iter=1000).fit(x_IF, labels_I).predict(x_JF)


def regress(train: Rows, scores_I: np.ndarray, test: Rows) -> np.ndarray:
  """Return the scores of rows by ridge regression on TF-IDF, (J,); arguments as for `classify`."""
  from sklearn.linear_model import Ridge

  x_IF, x_JF = _tfidf(train, test, 1)
  return Ridge().fit(x_IF, scores_I).predict(x_JF)


def naive_bayes(train: Sequence[str], labels_I: np.ndarray, test: Sequence[str]) -> np.ndarray:
  """Return the classes of texts by multinomial naive Bayes on the counts of their features, (J,)."""
  from sklearn.feature_extraction.text import CountVectorizer
  from sklearn.naive_bayes import MultinomialNB

  counter = CountVectorizer(token_pattern=WORD, ngram_range=(1, 2))
  return MultinomialNB().fit(counter.fit_transform(train), labels_I).predict(counter.transform(test))


def _tfidf(train: Rows, test: Rows, outputs: int) -> tuple[Any, Any]:
  """Return the features of both sets of rows, sparse, for a model with a number of outputs."""
  from sklearn.feature_extraction.text import TfidfVectorizer

  texts = len(train[0])
  parts = 4 if texts == 2 else texts
  most = max(1, MOST_WEIGHTS // (outputs * parts))
  vectorizer = TfidfVectorizer(token_pattern=WORD, ngram_range=(1, 2), max_features=most)
  vectorizer.fit(text for row in train for text in row)
  read = lambda rows: _join([vectorizer.transform([row[n] for row in rows]) for n in range(texts)])
  return read(train), read(test)


def _join(of_texts: Sequence[Any]) -> Any:
  """Return the features of rows from the TF-IDF of each of their texts."""
  from scipy import sparse

  if len(of_texts) == 2:
    a_IF, b_IF = of_texts
    return sparse.hstack([a_IF, b_IF, a_IF.multiply(b_IF), abs(a_IF - b_IF)], format='csr')
  return sparse.hstack(of_texts, format='csr')
