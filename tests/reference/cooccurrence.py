"""Aggregated co-occurrent features in NumPy float64, one image, one target position at a time (Zhang et al. 2019)."""

from __future__ import annotations

import math

import numpy as np

from tests.reference import resnet


def softmax(x):
  exponentials = np.exp(x - x.max())
  return exponentials / exponentials.sum()


def probabilities(p, x_YXD, pooled, split):
  """(a (H, T, S), values (S, H, K)): a mixture of softmaxes for each head and target."""
  targets_TD = x_YXD.reshape(-1, x_YXD.shape[-1])
  keys_SD = (resnet.average_pool(x_YXD) if pooled else x_YXD).reshape(-1, x_YXD.shape[-1])
  _, H, M, K = p['query']['kernel'].shape
  a = np.zeros((H, len(targets_TD), len(keys_SD)))
  for h in range(H):
    kernel, bias = p['query']['kernel'][:, h].reshape(-1, M * K), p['query']['bias'][h].reshape(-1)
    q_TK, k_SK = targets_TD @ kernel + bias, keys_SD @ kernel + bias
    prior = softmax(p['prior'].reshape(M, M * K) @ q_TK.mean(axis=0)) if M > 1 else [1.0]
    for t, query in enumerate(q_TK):
      for i in range(M):
        part = slice(i * K, (i + 1) * K)
        scores = k_SK[:, part] @ query[part] / math.sqrt(K if split else M * K)
        a[h, t] += prior[i] * softmax(scores)
  values = np.einsum('SD,DHK->SHK', keys_SD, p['value']['kernel']) + p['value']['bias']
  return a, values


def module(p, x_YXD, pooled=True, split=False):
  """Features of the same shape."""
  a, values = probabilities(p, x_YXD, pooled, split)
  out = np.zeros((a.shape[1], x_YXD.shape[-1]))
  for t in range(len(out)):
    context_HK = np.stack([a[h, t] @ values[:, h] for h in range(a.shape[0])])
    out[t] = np.tensordot(context_HK, p['out']['kernel'], 2)
  return resnet.batch_norm(p['out']['norm'], out.reshape(x_YXD.shape)) + x_YXD
