"""Classifiers of a text's words without their order, as baselines: naive Bayes, and logistic regression on TF-IDF.

Features are the lower-case words and pairs of words of the training texts. Naive Bayes is multinomial, with one added
to each count. TF-IDF and the regression are scikit-learn's defaults: idf = log((1 + n) / (1 + df)) + 1, rows of length
1, and half the squared weights added to the summed cross-entropy.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

_WORD = re.compile(r'\w+|[^\w\s]')
_ITERATIONS = 200


def accuracies(
  train: Sequence[str], labels_I: np.ndarray, test: Sequence[str], truth_J: np.ndarray, classes: int
) -> dict[str, float]:
  """Return the accuracy of both classifiers.

  Args:
    train: training texts.
    labels_I: their classes.
    test: texts to classify.
    truth_J: their classes.
    classes: number of classes.
  """
  known = {name: i for i, name in enumerate(dict.fromkeys(name for text in train for name in _features(text)))}
  counts_IF, counts_JF = _counts(train, known), _counts(test, known)
  idf_F = np.log((1 + len(train)) / (1 + np.bincount(counts_IF.indices, minlength=len(known)))) + 1
  scores = {
    'naive_bayes': naive_bayes(counts_IF, labels_I, counts_JF, classes),
    'tfidf': logistic_regression(_tfidf(counts_IF, idf_F), labels_I, _tfidf(counts_JF, idf_F), classes),
  }
  return {name: float(np.mean(np.argmax(scores_JC, axis=1) == truth_J)) for name, scores_JC in scores.items()}


def _features(text: str) -> list[str]:
  words = _WORD.findall(text.lower())
  return [*words, *(f'{one} {two}' for one, two in zip(words, words[1:], strict=False))]


def _counts(texts: Sequence[str], known: dict[str, int]) -> Any:
  """Return the counts of known features, a sparse matrix (texts, features)."""
  from scipy import sparse

  starts: list[int] = [0]
  columns: list[int] = []
  values: list[float] = []
  for text in texts:
    found = collections.Counter(known[name] for name in _features(text) if name in known)
    columns += found.keys()
    values += found.values()
    starts.append(len(columns))
  return sparse.csr_matrix((np.asarray(values, np.float64), columns, starts), shape=(len(texts), len(known)))


def _tfidf(counts_IF: Any, idf_F: np.ndarray) -> Any:
  from scipy import sparse

  weighted_IF = counts_IF.multiply(idf_F[None]).tocsr()
  length_I = np.sqrt(np.asarray(weighted_IF.multiply(weighted_IF).sum(axis=1)).ravel())
  return sparse.diags_array(1 / np.maximum(length_I, 1e-12)) @ weighted_IF


def naive_bayes(counts_IF: Any, labels_I: np.ndarray, counts_JF: Any, classes: int) -> np.ndarray:
  """Return the joint log-probability of texts and classes, (J, C), of multinomial naive Bayes."""
  one_hot_IC = np.eye(classes)[labels_I]
  counts_CF = (counts_IF.T @ one_hot_IC).T + 1
  prior_C = np.log(np.maximum(one_hot_IC.sum(axis=0), 1e-12) / len(labels_I))
  return counts_JF @ np.log(counts_CF / counts_CF.sum(axis=1, keepdims=True)).T + prior_C


def logistic_regression(x_IF: Any, labels_I: np.ndarray, x_JF: Any, classes: int) -> np.ndarray:
  """Return the scores of texts, (J, C), of a logistic regression with an L2 penalty; the biases have none."""
  from scipy import optimize, special

  one_hot_IC, width = np.eye(classes)[labels_I], x_IF.shape[1]

  def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
    weights_FC, bias_C = flat[:-classes].reshape(width, classes), flat[-classes:]
    log_p_IC = special.log_softmax(x_IF @ weights_FC + bias_C, axis=1)
    error_IC = np.exp(log_p_IC) - one_hot_IC
    gradient = np.concatenate([(x_IF.T @ error_IC + weights_FC).ravel(), error_IC.sum(axis=0)])
    return float(0.5 * (weights_FC**2).sum() - (log_p_IC * one_hot_IC).sum()), gradient

  found = optimize.minimize(
    loss, np.zeros((width + 1) * classes), jac=True, method='L-BFGS-B', options={'maxiter': _ITERATIONS}
  ).x
  return x_JF @ found[:-classes].reshape(width, classes) + found[-classes:]
