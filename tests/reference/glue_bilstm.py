"""GLUE's BiLSTM baseline of one row in NumPy float64 (Wang et al. 2019, arXiv 1804.07461, section 5, appendix B.1)."""

from __future__ import annotations

import numpy as np

from tests.reference import recurrent, text_alignment


def bilstm(params, x):
  """The outputs of both directions, side by side, (T, 2D)."""
  ways = []
  for way, text in (('forward', x), ('backward', x[::-1])):
    D = len(params[way]['recurrent'])
    carry, outputs = (np.zeros(D), np.zeros(D)), []
    for x_t in text:
      carry = recurrent.step('lstm', params[way], x_t, carry)
      outputs.append(carry[0])
    outputs = np.array(outputs).reshape(-1, D)
    ways.append(outputs if way == 'forward' else outputs[::-1])
  return np.concatenate(ways, axis=-1)


def pooled(params, texts, extra, layers, attention):
  """The row's vector.

  Args:
    texts: one array (T, D) or two, the inputs of the encoder.
    extra: for each text an array (T, P), the ELMo vectors at the output; P may be 0.
  """
  hidden = list(texts)
  for i in range(layers):
    hidden = [bilstm(params[f'layer_{i:02d}'], h) for h in hidden]
  if attention:
    hidden = [np.concatenate([h, text_alignment.context(h, g)], -1) for h, g in zip(hidden, hidden[::-1], strict=True)]
  hidden = [np.concatenate([h, e], -1) for h, e in zip(hidden, extra, strict=True)]
  if attention:
    hidden = [bilstm(params['modeling'], h) for h in hidden]
  summaries = [h.max(axis=0) if len(h) else np.zeros(h.shape[1]) for h in hidden]
  if len(summaries) == 1:
    return summaries[0]
  u, v = summaries
  return np.concatenate([u, v, np.abs(u - v), u * v])
