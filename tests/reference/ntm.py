"""The Neural Turing Machine step by step and head by head in NumPy (Graves et al. 2014, arXiv 1410.5401, section 3)."""

from __future__ import annotations

import numpy as np


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def softplus(x):
  return np.log(1 + np.exp(x))


def softmax(x):
  e = np.exp(x - x.max())
  return e / e.sum()


def address(key, beta, g, s, gamma, before, memory):
  """Equations 5 to 9 for one head; `s` has the shifts -n .. n."""
  rows, reach = len(memory), len(s) // 2
  similarity = [key @ row / (np.linalg.norm(key) * np.linalg.norm(row)) for row in memory]  # 6
  content = np.exp(beta * np.array(similarity))
  content /= content.sum()  # 5
  gated = g * content + (1 - g) * before  # 7
  shifted = np.zeros(rows)
  for i in range(rows):
    for j in range(rows):
      offset = (i - j) % rows
      for k in range(-reach, reach + 1):
        if offset == k % rows:
          shifted[i] += gated[j] * s[k + reach]  # 8
  return shifted**gamma / np.sum(shifted**gamma)  # 9


def write(weights, erases, adds, memory):
  """Equations 3 and 4: each head erases, then each adds."""
  memory = memory.copy()
  for w, e in zip(weights, erases, strict=True):
    for i in range(len(memory)):
      memory[i] = memory[i] * (1 - w[i] * e)
  for w, a in zip(weights, adds, strict=True):
    for i in range(len(memory)):
      memory[i] = memory[i] + w[i] * a
  return memory


def _head(numbers, width, shifts):
  """(the five fields of addressing, the rest) of a head's numbers."""
  key, rest = np.tanh(numbers[:width]), numbers[width:]
  fields = key, softplus(rest[0]), sigmoid(rest[1]), softmax(rest[2 : 2 + shifts]), 1 + softplus(rest[2 + shifts])
  return fields, rest[3 + shifts :]


def run(cfg, params, inputs_TI):
  """Scores (T, O) and the memory after the last of the steps of one episode with a learned memory."""
  start, shifts = params['start'], 2 * cfg.shifts + 1
  memory, vectors = np.array(start['memory'], np.float64), np.tanh(start['vectors'])
  read_w, write_w = [softmax(x) for x in start['read']], [softmax(x) for x in start['write']]
  hidden, cell = (list(map(np.array, start[k])) if k in start else [] for k in ('hidden', 'cell'))
  scores = []
  for x in inputs_TI:
    outputs = []
    for i in range(cfg.N):
      p = params[f'layer_{i:02d}']
      z = np.concatenate([x, vectors.ravel(), *outputs[-1:]]) @ p['input'] + p['bias']
      if cfg.controller == 'lstm':
        a, f, u, o = np.split(z + hidden[i] @ p['recurrent'], 4)
        cell[i] = sigmoid(f) * cell[i] + sigmoid(a) * np.tanh(u)
        hidden[i] = sigmoid(o) * np.tanh(cell[i])
        outputs.append(hidden[i])
      else:
        outputs.append(np.tanh(z))
    h = np.concatenate(outputs)
    numbers = np.split(h @ params['heads']['kernel'] + params['heads']['bias'], cfg.H)
    read_size = cfg.width + 3 + shifts
    erases, adds, new = [], [], []
    for k in range(cfg.H):
      fields, rest = _head(numbers[k][read_size:], cfg.width, shifts)
      new.append(address(*fields, write_w[k], memory))
      erases.append(sigmoid(rest[: cfg.width]))
      adds.append(np.tanh(rest[cfg.width :]))
    write_w, memory = new, write(new, erases, adds, memory)
    read_w = [address(*_head(numbers[k], cfg.width, shifts)[0], read_w[k], memory) for k in range(cfg.H)]
    vectors = np.stack([w @ memory for w in read_w])  # 2
    scores.append(np.concatenate([h, vectors.ravel()]) @ params['output']['kernel'] + params['output']['bias'])
  return np.array(scores), memory


def rmsprop(start, gradients, rate, *, decay=0.95, momentum=0.9, eps=1e-4):
  """Graves 2013, arXiv 1308.0850, equations 38 to 45, for one array."""
  n, g, delta, w = np.zeros_like(start), np.zeros_like(start), np.zeros_like(start), start.copy()
  for gradient in gradients:
    n = decay * n + (1 - decay) * gradient**2
    g = decay * g + (1 - decay) * gradient
    delta = momentum * delta - rate * gradient / np.sqrt(n - g**2 + eps)
    w = w + delta
  return w
