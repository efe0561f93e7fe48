"""The classifier of ULMFiT (Howard and Ruder 2018, section 3.3) and its schedule in plain NumPy."""

from __future__ import annotations

import math

import numpy as np


def windows_pooled(length: int, bptt: int, pooled_length: int) -> range:
  """Positions of a document that are pooled: from the first window at most `pooled_length` before its end."""
  if not pooled_length:
    return range(length)
  for begin in range(0, length, bptt):
    if length - begin <= pooled_length or begin + bptt >= length:
      return range(begin, length)
  raise AssertionError


def concat_pool(h_TD: np.ndarray) -> np.ndarray:
  """[h_T; max over t; mean over t] of one document."""
  return np.concatenate([h_TD[-1], h_TD.max(0), h_TD.mean(0)])


def head(params: dict, x_BD: np.ndarray, training: bool, eps: float = 1e-5, momentum: float = 0.1):
  """(logits, running statistics after the batch) of blocks of batch normalisation and a linear layer."""
  running = {}
  for i in range(len(params)):
    block = params[f'block_{i}']
    if i:
      x_BD = np.maximum(x_BD, 0)
    norm = block['norm']
    mean, variance = (x_BD.mean(0), x_BD.var(0)) if training else (norm['mean'], norm['variance'])
    n = len(x_BD)
    running[f'block_{i}'] = {
      'mean': (1 - momentum) * norm['mean'] + momentum * x_BD.mean(0),
      'variance': (1 - momentum) * norm['variance'] + momentum * x_BD.var(0) * n / max(n - 1, 1),
    }
    x_BD = (x_BD - mean) / np.sqrt(variance + eps) * norm['scale'] + norm['bias']
    x_BD = x_BD @ block['kernel'] + block['bias']
  return x_BD, running


def stlr(t: int, T: int, cut_frac: float, ratio: float) -> float:
  """Equation 3, as a factor of the highest rate."""
  cut = math.floor(T * cut_frac)
  p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
  return (1 + p * (ratio - 1)) / ratio
