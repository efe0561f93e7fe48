"""The graph of allenai/bi-att-flow (Seo et al. 2017), basic/model.py with its default flags, in NumPy float64.

Its variables are made of lmx's parameters, and its batches have one sentence per passage, as without --split.
"""

from __future__ import annotations

import numpy as np

VERY_NEGATIVE = -1e30  # my/tensorflow/general.py


def gates(x):
  """Columns in the order i j f o, of lmx's i f g o."""
  D = x.shape[-1] // 4
  return np.concatenate([x[..., k * D : (k + 1) * D] for k in (0, 2, 1, 3)], -1)


def variables(params, head):
  """The trainable variables but the tables of characters and words, {name: array}, from lmx's parameters."""
  embed, flow, found = params['embed'], params['layer_01']['attention'], {}
  E = embed['table'].shape[1]
  characters_first = lambda x: np.concatenate([x[E:], x[:E]])
  convolution = embed['spelling']['convolution_0']
  found['filter'], found['filter_bias'] = convolution['kernel'], convolution['bias']
  for name, layer in params['highway'].items():
    for own, kernel, bias in (('trans', 'kernel', 'bias'), ('gate', 'gate_kernel', 'gate_bias')):
      found[f'{name}/{own}'] = characters_first(characters_first(layer[kernel]).T).T
      found[f'{name}/{own}_bias'] = characters_first(layer[bias])
  cells = {'u1': params['layer_00'], 'g0': params['layer_02'], 'g1': params['layer_03'], 'g2': head['lstm']}
  for name, layer in cells.items():
    for direction, own in layer.items():
      x = characters_first(own['input']) if name == 'u1' else own['input']
      bias = np.array(own['bias'], np.float64).reshape(4, -1)
      bias[1] -= 1.0  # forget_bias of BasicLSTMCell
      found[f'{name}/{direction}'] = gates(np.concatenate([x, own['recurrent']]))
      found[f'{name}/{direction}_bias'] = gates(bias.reshape(-1))
  found['u_logits'] = np.concatenate([flow['query'], flow['key'], flow['product']])[:, None]
  found['u_logits_bias'] = np.zeros(1)
  G = 8 * cells['g2']['forward']['recurrent'].shape[0]
  for name, own in (('logits1', head['start']), ('logits2', head['end'])):
    found |= {name: np.concatenate([own['kernel'][G:], own['kernel'][:G]]), f'{name}_bias': own['bias']}
  return {name: np.asarray(x, np.float64) for name, x in found.items()}


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def softmax(x):
  e = np.exp(x - x.max(-1, keepdims=True))
  return e / e.sum(-1, keepdims=True)


def exp_mask(x, mask):
  return x + (1 - mask) * VERY_NEGATIVE


def linear_logits(v, name, args, mask):
  return exp_mask((np.concatenate(args, -1) @ v[name])[..., 0] + v[f'{name}_bias'], mask)


def highway_network(v, x):
  for name in ('highway_0', 'highway_1'):
    gate = sigmoid(x @ v[f'{name}/gate'] + v[f'{name}/gate_bias'])
    x = gate * np.maximum(x @ v[f'{name}/trans'] + v[f'{name}/trans_bias'], 0) + (1 - gate) * x
  return x


def conv1d(v, letters_NWc):
  height = len(v['filter'])
  windows = range(letters_NWc.shape[1] - height + 1)
  flat = v['filter'].reshape(-1, v['filter'].shape[-1])
  out = [letters_NWc[:, w : w + height].reshape(len(letters_NWc), -1) @ flat + v['filter_bias'] for w in windows]
  return np.maximum(np.stack(out, 1), 0).max(1)


def lstm(v, name, x_TD):
  """BasicLSTMCell over one sequence."""
  d = v[f'{name}_bias'].size // 4
  h, c, out = np.zeros(d), np.zeros(d), []
  for x in x_TD:
    i, j, f, o = np.split(np.concatenate([x, h]) @ v[name] + v[f'{name}_bias'], 4)
    c = c * sigmoid(f + 1.0) + sigmoid(i) * np.tanh(j)
    h = np.tanh(c) * sigmoid(o)
    out.append(h)
  return np.stack(out)


def bidirectional(v, name, x_BTD, lengths):
  """Outputs of both directions, zeros after the end, as of bidirectional_dynamic_rnn."""
  d = v[f'{name}/forward_bias'].size // 4
  out = np.zeros((*x_BTD.shape[:2], 2 * d))
  for b, n in enumerate(lengths):
    out[b, :n, :d] = lstm(v, f'{name}/forward', x_BTD[b, :n])
    out[b, :n, d:] = lstm(v, f'{name}/backward', x_BTD[b, :n][::-1])[::-1]
  return out


def forward(v, tables, batch, lengths, asked):
  """Logits of start and end, (B, T) each.

  Args:
    v: from `variables`.
    tables: vectors of words, and of characters by id.
    batch: tokens_BT, characters_BTC, tokens_BS and characters_BSC.
    lengths: words of each passage.
    asked: words of each question.
  """
  words, letters = tables

  def embed(axis):
    ids, spelled = batch[f'tokens_B{axis}'], batch[f'characters_B{axis}C']
    characters = conv1d(v, letters[spelled].reshape(-1, spelled.shape[-1], letters.shape[-1])).reshape(*ids.shape, -1)
    return highway_network(v, np.concatenate([characters, words[ids]], -1))

  u = bidirectional(v, 'u1', embed('S'), asked)
  h = bidirectional(v, 'u1', embed('T'), lengths)
  x_mask = (np.arange(h.shape[1]) < np.array(lengths)[:, None]).astype(float)
  q_mask = (np.arange(u.shape[1]) < np.array(asked)[:, None]).astype(float)
  h_aug = np.repeat(h[:, :, None], u.shape[1], 2)
  u_aug = np.repeat(u[:, None], h.shape[1], 1)
  hu_mask = x_mask[:, :, None] * q_mask[:, None]
  u_logits = linear_logits(v, 'u_logits', [h_aug, u_aug, h_aug * u_aug], hu_mask)
  u_a = (softmax(u_logits)[..., None] * u_aug).sum(2)
  h_a = (softmax(u_logits.max(2))[..., None] * h).sum(1)[:, None]
  p0 = np.concatenate([h, u_a, h * u_a, h * h_a], -1)
  g1 = bidirectional(v, 'g1', bidirectional(v, 'g0', p0, lengths), lengths)
  logits = linear_logits(v, 'logits1', [g1, p0], x_mask)
  a1i = np.repeat((softmax(logits)[..., None] * g1).sum(1)[:, None], h.shape[1], 1)
  g2 = bidirectional(v, 'g2', np.concatenate([p0, g1, a1i, g1 * a1i], -1), lengths)
  return logits, linear_logits(v, 'logits2', [g2, p0], x_mask)


def loss(logits, logits2, starts, ends):
  """Sum of the mean cross-entropies of both ends."""
  rows = np.arange(len(starts))
  return -np.log(softmax(logits)[rows, starts]).mean() - np.log(softmax(logits2)[rows, ends]).mean()
