"""Al-Rfou et al. 2018 (arXiv 1808.04444), sections 2 and 3, restated in NumPy float64 on one row."""

from __future__ import annotations

import numpy as np

from tests.reference import transformer as reference
from tests.reference.zero_shot import log_softmax


def layers(params, tokens_T, norm, eps, sinusoids=False):
  """What the classifiers of each layer read: N arrays (T, D)."""
  names = sorted(n for n in params if n.startswith('layer_'))
  x, everything, found = params['embed']['tokens'][tokens_T], np.ones(len(tokens_T), bool), []
  x = x + reference.positions(*x.shape) if sinusoids else x
  for name in names:
    p = params[name]
    x = x if sinusoids else x + p['positions'][: len(x)]
    attend = lambda x, p=p: reference.attention(x, p['attention'], True, everything)
    for part, scale in ((attend, p['norm_1']), (lambda x, p=p: reference.mlp(x, p['mlp'], 'relu'), p['norm_2'])):
      normalise = lambda x, scale=scale: reference.layer_norm(x, scale, eps)
      x = x + part(normalise(x)) if norm == 'pre' else normalise(x + part(x))
    found.append(reference.layer_norm(x, params['output'][name]['norm'], eps) if norm == 'pre' else x)
  return found


def scores(params, h_TD, layer, target):
  """Logits (T, V) of a classifier."""
  found = params['output'][f'layer_{layer:02d}'][target]
  return h_TD @ found['table'].T + found['bias']


def objective(
  params, tokens_L, T, norm, eps, *, made, total, every_position=True, every_layer=True, second_target=True, weight=0.5
):
  """The loss of a window of T and the two characters after it, by the sentences of section 2 after `made` updates."""
  found, N = layers(params, tokens_L[:T], norm, eps), len([n for n in params if n.startswith('layer_')])
  positions = range(T) if every_position else [T - 1]
  loss = 0.0
  for layer in range(N):
    below = layer + 1 < N
    if below and (not every_layer or made / total >= (layer + 1) / (2 * N)):
      continue
    for target, ahead, factor in (('next', 1, 1.0), ('second', 2, weight)):
      if target == 'next' or second_target:
        z_TV = scores(params, found[layer], layer, target)
        loss -= factor * np.mean([log_softmax(z_TV[t])[tokens_L[t + ahead]] for t in positions])
  return loss
