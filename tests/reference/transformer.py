"""GPT, GPT-2, BERT and the Transformer of the papers, restated in NumPy float64 on one row, with lmx's parameters."""

from __future__ import annotations

import math

import numpy as np


def layer_norm(x, params, eps):
  """Ba et al. 2016, equation 3, on the last axis."""
  mean = x.mean(-1, keepdims=True)
  variance = ((x - mean) ** 2).mean(-1, keepdims=True)
  return (x - mean) / np.sqrt(variance + eps) * params['scale'] + params['bias']


def gelu(x, form):
  """Hendrycks & Gimpel 2016, section 2: x Phi(x), or its approximation by tanh or by the logistic function."""
  if form == 'sigmoid':
    return x / (1 + np.exp(-1.702 * x))
  if form == 'erf':
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
  return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def heads(q_TD, k_SD, v_SD, H, hidden_TS):
  """Vaswani et al. 2017, equation 1 for each head, side by side: (T, D) and its probabilities (H, T, S)."""
  K, W = q_TD.shape[1] // H, v_SD.shape[1] // H
  found, p_HTS = [], []
  for h in range(H):
    part = slice(h * K, (h + 1) * K)
    scores = q_TD[:, part] @ k_SD[:, part].T / math.sqrt(K)
    scores[hidden_TS] = -np.inf
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    found.append(p @ v_SD[:, h * W : (h + 1) * W])
    p_HTS.append(p)
  return np.concatenate(found, -1), np.stack(p_HTS)


def linear(x_TD, params, c=None):
  """x W + b with the axes of heads put together; of several matrices side by side the one numbered c."""
  D = x_TD.shape[1]
  kernel, bias = params['kernel'], params['bias'] if 'bias' in params else np.zeros(1)
  if c is not None:
    kernel, bias = kernel[:, c], bias[c] if 'bias' in params else bias
  return x_TD @ kernel.reshape(D, -1) + bias.reshape(-1)


def attention(x_TD, params, causal, valid_T):
  """Vaswani et al. 2017, section 3.2.2."""
  T = len(x_TD)
  H = params['out']['kernel'].shape[0]
  hidden = np.broadcast_to(~valid_T, (T, T)).copy()
  if causal:
    hidden |= np.arange(T)[None] > np.arange(T)[:, None]
  fused = 'qkv' in params
  qkv = (linear(x_TD, params['qkv'], c) if fused else linear(x_TD, params[part]) for c, part in enumerate('qkv'))
  o_TD, _ = heads(*qkv, H, hidden)
  return linear(o_TD, _flat(params['out']))


def cross_attention(x_TD, source_SD, params, valid_S):
  """The same with keys and values from the encoder: (T, D) and the mean probabilities (T, S)."""
  kv = [(params['kv'], 0), (params['kv'], 1)] if 'kv' in params else [(params['k'],), (params['v'],)]
  q_TD, k_SD, v_SD = linear(x_TD, params['q']), *(linear(source_SD, *given) for given in kv)
  hidden = np.broadcast_to(~valid_S, (len(x_TD), len(source_SD)))
  o_TD, p_HTS = heads(q_TD, k_SD, v_SD, params['q']['kernel'].shape[1], hidden)
  return linear(o_TD, _flat(params['out'])), p_HTS.mean(0)


def _flat(params):
  return {**params, 'kernel': params['kernel'].reshape(-1, params['kernel'].shape[-1])}


def mlp(x_TD, params, form):
  """Vaswani et al. 2017, section 3.3: equation 2 ('relu'), or with GELU."""
  hidden = x_TD @ params['in']['kernel'] + params['in']['bias']
  hidden = np.maximum(hidden, 0) if form == 'relu' else gelu(hidden, form)
  return hidden @ params['out']['kernel'] + params['out']['bias']


def _layers(params):
  return [params[name] for name in sorted(params) if name.startswith('layer_')]


def gpt(params, tokens_T, valid_T):
  """Radford et al. 2018, equation 2: scores of tokens and, behind them, of positions, (T, V + positions)."""
  table = np.concatenate([params['embed']['tokens'], params['embed']['positions']])
  x = table[tokens_T] + table[len(params['embed']['tokens']) + np.arange(len(tokens_T))]
  for layer in _layers(params):
    x = layer_norm(x + attention(x, layer['attention'], True, valid_T), layer['norm_1'], 1e-5)
    x = layer_norm(x + mlp(x, layer['mlp'], 'tanh'), layer['norm_2'], 1e-5)
  return x @ table.T


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


def positions(T, D):
  """Vaswani et al. 2017, section 3.5, equation by equation."""
  table = np.zeros((T, D))
  for t in range(T):
    for i in range(D // 2):
      table[t, 2 * i] = math.sin(t / 10000 ** (2 * i / D))
      table[t, 2 * i + 1] = math.cos(t / 10000 ** (2 * i / D))
  return table


def transformer(params, source_S, source_valid_S, tokens_T, encoder_layers, norm, eps):
  """Vaswani et al. 2017, section 3: logits (T, V), and for each layer of the decoder what it attends to, (T, S)."""
  table = params['embed']['tokens']
  D = table.shape[1]
  learned = lambda side, T: params['embed'][f'{side}_positions'][:T] if len(params['embed']) > 1 else positions(T, D)
  embed = lambda ids, side: math.sqrt(D) * table[ids] + learned(side, len(ids))

  def add(x, part, params):
    normalise = lambda x: layer_norm(x, params, eps)
    return x + part(normalise(x)) if norm == 'pre' else normalise(x + part(x))

  layers = _layers(params)
  x = embed(source_S, 'source')
  for p in layers[:encoder_layers]:
    x = add(x, lambda x, p=p: attention(x, p['attention'], False, source_valid_S), p['norm_1'])
    x = add(x, lambda x, p=p: mlp(x, p['mlp'], 'relu'), p['norm_2'])
  source = layer_norm(x, params['norm_encoder'], eps) if norm == 'pre' else x
  x, seen, everything = embed(tokens_T, 'target'), [], np.ones(len(tokens_T), bool)

  def across(x, p):
    y, p_TS = cross_attention(x, source, p['cross'], source_valid_S)
    seen.append(p_TS)
    return y

  for p in layers[encoder_layers:]:
    x = add(x, lambda x, p=p: attention(x, p['attention'], True, everything), p['norm_1'])
    x = add(x, lambda x, p=p: across(x, p), p['norm_cross'])
    x = add(x, lambda x, p=p: mlp(x, p['mlp'], 'relu'), p['norm_2'])
  if norm == 'pre':
    x = layer_norm(x, params['norm_decoder'], eps)
  return x @ table.T + (params['output']['bias'] if 'output' in params else 0), seen
