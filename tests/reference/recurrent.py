"""Recurrent layers and the language model of Zaremba et al. 2014 (arXiv 1409.2329, section 3), in NumPy float64.

One row, one step and one gate at a time, with lmx's parameters: gates side by side, r z n of a GRU, i f g o of an LSTM.
"""

from __future__ import annotations

import numpy as np


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def step(cell, params, x, carry):
  """The carry after one step of one row."""
  h, D = carry[0], len(carry[0])
  gates = params['input'].shape[1] // D
  zero = np.zeros(gates * D)

  def gate(i):
    at = slice(i * D, (i + 1) * D)
    from_x = x @ params['input'][:, at] + params['bias'][at]
    return from_x, h @ params['recurrent'][:, at] + params.get('recurrent_bias', zero)[at]

  if cell == 'rnn':
    return (np.tanh(sum(gate(0))),)
  if cell == 'rnn_relu':
    return (np.maximum(sum(gate(0)), 0),)
  if cell == 'rnn_sigmoid':  # Mikolov et al. 2010, equations 2 and 4
    return (sigmoid(sum(gate(0))),)
  if cell == 'gru':
    r, z = sigmoid(sum(gate(0))), sigmoid(sum(gate(1)))
    from_x, from_h = gate(2)
    return ((1 - z) * np.tanh(from_x + r * from_h) + z * h,)
  i, f, o = (sigmoid(sum(gate(k))) for k in (0, 1, 3))
  c = f * carry[1] + i * np.tanh(sum(gate(2)))
  return o * np.tanh(c), c


def layer(cell, params, x_TE, carry, length):
  """Outputs (length, D) and carry of one row, of which the first `length` steps count."""
  outputs = []
  for x in x_TE[:length]:
    carry = step(cell, params, x, carry)
    outputs.append(carry[0])
  return np.stack(outputs), carry


def nll(cell, params, tokens_T, targets_T, carries, length):
  """Negative log-likelihoods (length,) of one row, and the carries of all layers after it."""
  x = params['embed']['table'][tokens_T]
  after = []
  for i, carry in enumerate(carries):
    x, carry = layer(cell, params[f'layer_{i:02d}'], x, carry, length)
    after.append(carry)
  table = params['output'].get('table', params['embed']['table'])
  scores = x @ table.T + params['output']['bias']
  log_p = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
  return -log_p[np.arange(length), targets_T[:length]], after
