"""ELMo's forward pass in plain NumPy, word by word, from arrays named as in the released file."""

from __future__ import annotations

import numpy as np

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 256, 257, 258, 259, 260


def sigmoid(x):
  return 1.0 / (1.0 + np.exp(-x))


def letters(word: bytes | int, length: int) -> np.ndarray:
  """Ids of one word (bytes) or mark (int), plus one as in prediction."""
  inside = [word] if isinstance(word, int) else list(word[: length - 2])
  row = np.full(length, PAD)
  row[: len(inside) + 2] = [BEGIN_WORD, *inside, END_WORD]
  return row + 1


def word_vector(weights: dict, filters, highways: int, ids: np.ndarray) -> np.ndarray:
  """One word through the character network."""
  table = np.concatenate([np.zeros((1, weights['char_embed'].shape[1])), weights['char_embed']])  # 262 rows
  x = table[ids]
  parts = []
  for i, (width, number) in enumerate(filters):
    kernel, bias = weights[f'CNN/W_cnn_{i}'], weights[f'CNN/b_cnn_{i}']
    assert kernel.shape[0] == 1 and kernel.shape[1] == width and kernel.shape[3] == number
    found = [sum(x[start + k] @ kernel[0, k] for k in range(width)) + bias for start in range(len(ids) - width + 1)]
    parts.append(np.maximum(np.max(found, axis=0), 0.0))
  y = np.concatenate(parts)
  for i in range(highways):
    w = {name: weights[f'CNN_high_{i}/{name}'] for name in ('W_carry', 'b_carry', 'W_transform', 'b_transform')}
    carry = sigmoid(y @ w['W_carry'] + w['b_carry'])
    y = carry * np.maximum(y @ w['W_transform'] + w['b_transform'], 0.0) + (1.0 - carry) * y
  return y @ weights['CNN_proj/W_proj'] + weights['CNN_proj/b_proj']


def lstm(weights: dict, prefix: str, inputs, cell_clip: float, proj_clip: float, state=None):
  """One layer in TensorFlow's layout: (outputs, (cell, output) at the end)."""
  kernel, bias, projection = (weights[f'{prefix}/{name}'] for name in ('W_0', 'B', 'W_P_0'))
  H, P = projection.shape
  c, m = (np.zeros(H), np.zeros(P)) if state is None else state
  outputs = []
  for x in inputs:
    i, j, f, o = np.split(np.concatenate([x, m]) @ kernel + bias, 4)
    c = sigmoid(f + 1.0) * c + sigmoid(i) * np.tanh(j)
    c = np.clip(c, -cell_clip, cell_clip)
    m = np.clip((sigmoid(o) * np.tanh(c)) @ projection, -proj_clip, proj_clip)
    outputs.append(m)
  return outputs, (c, m)


def sentence(weights: dict, options: dict, words: list[bytes], length: int) -> list[np.ndarray]:
  """All layers of one sentence, (words, 2P) each: the words twice, then layer 1, 2, ..."""
  cnn, rnn = options['char_cnn'], options['lstm']
  ids = [letters(word, length) for word in (BEGIN_SENTENCE, *words, END_SENTENCE)]
  vectors = [word_vector(weights, cnn['filters'], cnn['n_highway'], row) for row in ids]
  ways = []
  for d, inputs in enumerate((vectors, vectors[::-1])):
    layers = [inputs]
    for i in range(rnn['n_layers']):
      prefix = f'RNN_{d}/RNN/MultiRNNCell/Cell{i}/LSTMCell'
      outputs, _ = lstm(weights, prefix, layers[-1], rnn['cell_clip'], rnn['proj_clip'])
      if i > 0:
        outputs = [a + b for a, b in zip(outputs, layers[-1], strict=True)]
      layers.append(outputs)
    ways.append([layer if d == 0 else layer[::-1] for layer in layers])
  return [np.concatenate([np.stack(a), np.stack(b)], axis=1)[1:-1] for a, b in zip(*ways, strict=True)]
