"""The highway LSTM of He et al. 2017 for one sentence, word by word, and a stack whose directions alternate."""

from __future__ import annotations

import numpy as np

GATES = ('input', 'forget', 'output', 'highway', 'cell', 'carried')


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def layer(params, x_TE, mask_D=1.0):
  """h_t of each word, from the first to the last."""
  W, U, b = (np.asarray(params[name], np.float64) for name in ('input', 'recurrent', 'bias'))
  D = U.shape[0]
  block = lambda x, gate: x[..., D * GATES.index(gate) : D * (GATES.index(gate) + 1)]
  h, c, outputs = np.zeros(D), np.zeros(D), []
  for x in x_TE:
    total = {gate: block(W, gate).T @ x + block(b, gate) for gate in GATES}
    for gate in GATES[:-1]:  # what is carried through the highway is linear in x alone
      total[gate] = total[gate] + block(U, gate).T @ h
    c = sigmoid(total['forget']) * c + sigmoid(total['input']) * np.tanh(total['cell'])
    inner = sigmoid(total['output']) * np.tanh(c)
    r = sigmoid(total['highway'])
    h = mask_D * (r * inner + (1 - r) * total['carried'])
    outputs.append(h)
  return np.stack(outputs)


def stack(layers, x_TE):
  """The last layer's output: the first layer reads forwards, the second backwards, and so on."""
  for i, params in enumerate(layers):
    x_TE = layer(params, x_TE[::-1])[::-1] if i % 2 else layer(params, x_TE)
  return x_TE
