"""GPT-2 and BERT of the papers, restated in NumPy float64 on one row of tokens, with lmx's parameters."""

from __future__ import annotations

import math

import numpy as np


def layer_norm(x, params, eps):
  """Ba et al. 2016, equation 3, on the last axis."""
  mean = x.mean(-1, keepdims=True)
  variance = ((x - mean) ** 2).mean(-1, keepdims=True)
  return (x - mean) / np.sqrt(variance + eps) * params['scale'] + params['bias']


def gelu(x, form):
  """Hendrycks & Gimpel 2016, section 2: x Phi(x), or its tanh approximation."""
  if form == 'erf':
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
  return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention(x_TD, params, causal, valid_T):
  """Vaswani et al. 2017, section 3.2.2."""
  T, D = x_TD.shape
  _, _, H, K = params['qkv']['kernel'].shape
  q, k, v = (x_TD @ params['qkv']['kernel'][:, c].reshape(D, D) + params['qkv']['bias'][c].reshape(D) for c in range(3))
  heads = []
  for h in range(H):
    part = slice(h * K, (h + 1) * K)
    scores = q[:, part] @ k[:, part].T / math.sqrt(K)
    hidden = np.broadcast_to(~valid_T, (T, T)).copy()
    if causal:
      hidden |= np.arange(T)[None] > np.arange(T)[:, None]
    scores[hidden] = -np.inf
    p = np.exp(scores - scores.max(-1, keepdims=True))
    heads.append(p / p.sum(-1, keepdims=True) @ v[:, part])
  return np.concatenate(heads, -1) @ params['out']['kernel'].reshape(D, D) + params['out']['bias']


def mlp(x_TD, params, form):
  """Vaswani et al. 2017, section 3.3, with GELU."""
  hidden = gelu(x_TD @ params['in']['kernel'] + params['in']['bias'], form)
  return hidden @ params['out']['kernel'] + params['out']['bias']


def _layers(params):
  return [params[name] for name in sorted(params) if name.startswith('layer_')]


def gpt2(params, tokens_T, valid_T):
  """Radford et al. 2019, section 2.3: logits (T, V)."""
  x = params['embed']['tokens'][tokens_T] + params['embed']['positions'][: len(tokens_T)]
  for layer in _layers(params):
    x = x + attention(layer_norm(x, layer['norm_1'], 1e-5), layer['attention'], True, valid_T)
    x = x + mlp(layer_norm(x, layer['norm_2'], 1e-5), layer['mlp'], 'tanh')
  return layer_norm(x, params['norm'], 1e-5) @ params['embed']['tokens'].T


def bert(params, tokens_T, types_T, valid_T, form):
  """Devlin et al. 2019, section 3 and figure 2: masked-LM logits (T, V) and pooled (D,)."""
  tables = params['embed']
  x = tables['tokens'][tokens_T] + tables['types'][types_T] + tables['positions'][: len(tokens_T)]
  x = layer_norm(x, tables['norm'], 1e-12)
  for layer in _layers(params):
    x = layer_norm(x + attention(x, layer['attention'], False, valid_T), layer['norm_1'], 1e-12)
    x = layer_norm(x + mlp(x, layer['mlp'], form), layer['norm_2'], 1e-12)
  pooled = np.tanh(x[0] @ params['pooler']['kernel'] + params['pooler']['bias'])
  head = params['mlm']
  h = layer_norm(gelu(x @ head['dense']['kernel'] + head['dense']['bias'], form), head['norm'], 1e-12)
  return h @ tables['tokens'].T + head['bias'], pooled
