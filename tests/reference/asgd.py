"""SGD with averaging in NumPy float64, as algorithm 1 of Merity et al. 2018 and as torch.optim.ASGD does it."""

from __future__ import annotations

import numpy as np


def paper(w, gradient, rates, decay=0.0):
  """Parameters after every update, and the mean of all of them so far: (steps, D) each."""
  path = []
  for i, rate in enumerate(rates):
    w = w - rate * (gradient(w, i) + decay * w)
    path.append(w)
  return np.stack(path), np.stack([np.mean(path[: k + 1], 0) for k in range(len(path))])


def released(w, gradient, rates, decay=0.0):
  """The same with t0 = 0 and lambda = 0 in PyTorch: rate and weight of the mean are set after they were used."""
  eta, mu = rates[0], 1.0
  mean, path, means = np.zeros_like(w), [], []
  for i, rate in enumerate(rates):
    w = w - eta * (gradient(w, i) + decay * w)
    mean = w if mu == 1 else mean + mu * (w - mean)
    eta, mu = rate, 1 / max(1, i + 1)
    path.append(w)
    means.append(mean)
  return np.stack(path), np.stack(means)
