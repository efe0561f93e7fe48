"""The neural probabilistic language model restated with loops, one word at a time (Bengio et al. 2003, section 2)."""

from __future__ import annotations

import numpy as np


def features(C, words, n):
  """x: the feature vectors of the n - 1 words before, the nearest first; zeros where there is no word."""
  m = C.shape[1]
  found = []
  for back in range(1, n):
    found.append(C[words[-back]] if back <= len(words) else np.zeros(m))
  return np.concatenate(found)


def probabilities(p, words, n):
  """p(w | words) for every w (equation 1 and the softmax above it); p holds C, H, d, U, W and b, some of them None."""
  x = features(p['C'], words, n)
  y = p['b'].copy()
  if p['W'] is not None:
    y += p['W'] @ x
  if p['U'] is not None:
    y += p['U'] @ np.tanh(p['d'] + p['H'] @ x)
  e = np.exp(y - y.max())
  return e / e.sum()


def gradient(p, words, target, n):
  """d log p(target | words) / d parameters, as the paper's section 3.2 works it out by hand."""
  x = features(p['C'], words, n)
  m = p['C'].shape[1]
  dy = -probabilities(p, words, n)
  dy[target] += 1
  grad = {'b': dy, 'W': None, 'U': None, 'd': None, 'H': None}
  dx = np.zeros_like(x)
  if p['W'] is not None:
    grad['W'] = np.outer(dy, x)
    dx += p['W'].T @ dy
  if p['U'] is not None:
    a = np.tanh(p['d'] + p['H'] @ x)
    grad['U'] = np.outer(dy, a)
    do = (1 - a**2) * (p['U'].T @ dy)
    grad['d'], grad['H'] = do, np.outer(do, x)
    dx += p['H'].T @ do
  grad['C'] = np.zeros_like(p['C'])
  for back in range(1, n):
    if back <= len(words):
      grad['C'][words[-back]] += dx[(back - 1) * m : back * m]
  return grad


def ascend(p, words, target, n, rate, decay):
  """One step of stochastic gradient ascent on log p - decay / 2 |weights|^2, where biases are not weights."""
  grad = gradient(p, words, target, n)
  return {
    name: None if value is None else value + rate * (grad[name] - (0 if name in 'bd' else decay) * value)
    for name, value in p.items()
  }


class Interpolated:
  """The trigram of section 4.2 restated with loops: weights by EM for each class of context frequency."""

  def __init__(self, train, V):
    self.V, self.train = V, list(train)
    self.grams = {}
    padded = [None, None, *self.train]
    for i in range(2, len(padded)):
      for k in range(3):
        key = tuple(padded[i - k : i + 1])
        self.grams[key] = self.grams.get(key, 0) + 1
    self.contexts = {}
    for key, count in self.grams.items():
      if len(key) > 1:
        self.contexts[key[:-1]] = self.contexts.get(key[:-1], 0) + count
    self.weights = {}

  def bin(self, history):
    """l(frequency of the two words before), -ceil(log((1 + frequency) / T))."""
    return int(np.ceil(-np.log((1 + self.contexts.get(tuple(history[-2:]), 0)) / len(self.train))))

  def each(self, word, history):
    """p0 .. p3; what was never seen falls back to the order below."""
    p = [1 / self.V, self.grams.get((word,), 0) / len(self.train)]
    for k in (1, 2):
      context = tuple(history[-k:])
      seen = self.contexts.get(context, 0)
      p.append(self.grams.get((*context, word), 0) / seen if seen else p[-1])
    return np.array(p)

  def fit(self, held_out, steps):
    text = [None, None, *held_out]
    places = [(text[i], text[i - 2 : i]) for i in range(2, len(text))]
    self.weights = {self.bin(h): np.full(4, 0.25) for _, h in places}
    for _ in range(steps):
      mass = {q: np.zeros(4) for q in self.weights}
      for word, history in places:
        q = self.bin(history)
        share = self.weights[q] * self.each(word, history)
        mass[q] += share / share.sum()
      self.weights = {q: total / total.sum() for q, total in mass.items()}
    return self

  def probability(self, word, history):
    nearest = min(self.weights, key=lambda q: (abs(q - self.bin(history)), q))
    return float(self.weights[nearest] @ self.each(word, history))
