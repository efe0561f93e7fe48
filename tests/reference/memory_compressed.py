"""Liu et al. 2018 (arXiv 1801.10198), section 4.2.3, restated in NumPy float64 on one row, with lmx's parameters."""

from __future__ import annotations

import math

import numpy as np

from tests.reference import transformer as reference


def local(x_TD, params, window):
  """Causal attention in each block of `window` tokens by itself."""
  parts = [x_TD[t : t + window] for t in range(0, len(x_TD), window)]
  return np.concatenate([reference.attention(part, params, True, np.ones(len(part), bool)) for part in parts])


def compress(x_TD, kernel_RDE, bias_E):
  """A convolution whose stride is its width; what does not fill a block is left out."""
  R = len(kernel_RDE)
  blocks = [x_TD[t : t + R] for t in range(0, len(x_TD) - R + 1, R)]
  made = [sum(block[r] @ kernel_RDE[r] for r in range(R)) + bias_E for block in blocks]
  return np.array(made).reshape(len(blocks), kernel_RDE.shape[2])


def compressed(x_TD, params, of):
  """Attention to the first token and to the blocks that end before a token."""
  D = x_TD.shape[1]
  R, H = params['kernel'].shape[1], params['q']['kernel'].shape[1]
  to_kv = lambda x, c: x @ params['kv']['kernel'][:, c].reshape(D, D)
  if of == 'keys':
    k, v = (
      np.concatenate([to_kv(x_TD[:1], c), compress(to_kv(x_TD, c), params['kernel'][c], params['bias'][c])])
      for c in range(2)
    )
  else:
    memory = np.concatenate([x_TD[:1], compress(x_TD, params['kernel'][0], params['bias'][0])])
    k, v = to_kv(memory, 0), to_kv(memory, 1)
  ends = np.array([-1, *(R * (j + 1) - 1 for j in range(len(k) - 1))])  # last token of each block
  hidden = ends[None] >= np.arange(len(x_TD))[:, None]
  o_TD, _ = reference.heads(reference.linear(x_TD, params['q']), k, v, H, hidden)
  return o_TD @ params['out']['kernel'].reshape(D, D)


def model(params, tokens_T, pattern, window, of, norm, eps):
  """Logits (T, V)."""
  table = params['embed']['tokens']
  D = table.shape[1]
  x = math.sqrt(D) * table[tokens_T] + reference.positions(len(tokens_T), D)
  everything = np.ones(len(tokens_T), bool)
  for kind, name in zip(pattern, sorted(n for n in params if n.startswith('layer_')), strict=True):
    p = params[name]
    attend = {
      'F': lambda x, p=p: reference.attention(x, p['attention'], True, everything),
      'L': lambda x, p=p: local(x, p['attention'], window),
      'M': lambda x, p=p: compressed(x, p['attention'], of),
    }[kind]
    for part, scale in ((attend, p['norm_1']), (lambda x, p=p: reference.mlp(x, p['mlp'], 'relu'), p['norm_2'])):
      normalise = lambda x, scale=scale: reference.layer_norm(x, scale, eps)
      x = x + part(normalise(x)) if norm == 'pre' else normalise(x + part(x))
  return (reference.layer_norm(x, params['norm'], eps) if norm == 'pre' else x) @ table.T
