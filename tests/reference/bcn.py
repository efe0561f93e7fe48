"""The biattentive classification network (McCann et al. 2017, arXiv 1708.00107, section 5), row by row in NumPy."""

from __future__ import annotations

import numpy as np

from tests.reference import recurrent, text_alignment


def bilstm(params: dict, x_TD: np.ndarray) -> np.ndarray:
  """Outputs of both directions side by side, each from a zero carry."""
  outputs = []
  for way, order in (('forward', 1), ('backward', -1)):
    zero = np.zeros(params[way]['recurrent'].shape[0])
    found, _ = recurrent.layer('lstm', params[way], x_TD[::order], (zero, zero), len(x_TD))
    outputs.append(found[::order])
  return np.concatenate(outputs, 1)


def pooled(v_D: np.ndarray, x_TD: np.ndarray) -> np.ndarray:
  """[max; mean; min; self-attention] over the positions of a text."""
  beta_T = np.exp(x_TD @ v_D - np.max(x_TD @ v_D))
  beta_T /= beta_T.sum()
  return np.concatenate([x_TD.max(0), x_TD.mean(0), x_TD.min(0), sum(b * x for b, x in zip(beta_T, x_TD, strict=True))])


def network(params: dict, words: list[np.ndarray], after: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
  """(integration of the first text, joined vector) of two texts, or of one that is compared with itself.

  Args:
    words: input vectors of each text.
    after: vectors of each text that are appended to its integration.
  """
  feed = params['layer_00']['feed_forward']
  encoded = [bilstm(params['layer_00'], np.maximum(x @ feed['kernel'] + feed['bias'], 0)) for x in words]
  c_y, c_x = text_alignment.context(encoded[0], encoded[-1]), text_alignment.context(encoded[-1], encoded[0])
  texts = [('first', encoded[0], c_y), ('second', encoded[-1], c_x)][: len(words)]
  integrated = [
    np.concatenate([bilstm(params['layer_01'][side], np.concatenate([x, x - c, x * c], 1)), extra], 1)
    for (side, x, c), extra in zip(texts, after, strict=True)
  ]
  parts = [pooled(params['pool'][side], x) for (side, _, _), x in zip(texts, integrated, strict=True)]
  return integrated[0], np.concatenate(parts)


def maxout(params: dict, x_BD: np.ndarray, training: bool, eps: float = 1e-5) -> np.ndarray:
  """Layers of batch normalisation and maxout units, the last of which are the logits."""
  for i in range(len(params)):
    block = params[f'block_{i}']
    norm = block['norm']
    mean, variance = (x_BD.mean(0), x_BD.var(0)) if training else (norm['mean'], norm['variance'])
    x_BD = (x_BD - mean) / np.sqrt(variance + eps) * norm['scale'] + norm['bias']
    pieces = [x_BD @ block['kernel'][:, k] + block['bias'][k] for k in range(block['kernel'].shape[1])]
    x_BD = np.max(pieces, axis=0)
  return x_BD


def relu(params: dict, x_BD: np.ndarray) -> np.ndarray:
  """Two layers with ReLU and a linear one."""
  for i in range(len(params)):
    x_BD = np.maximum(x_BD, 0) if i else x_BD
    x_BD = x_BD @ params[f'block_{i}']['kernel'] + params[f'block_{i}']['bias']
  return x_BD
