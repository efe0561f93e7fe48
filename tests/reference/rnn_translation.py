"""Recurrent encoder-decoders of one sentence pair in NumPy float64, from the papers' equations.

One step, one gate and one source position at a time, with lmx's parameters: gates r z n of a GRU, i f g o of an LSTM.
"""

from __future__ import annotations

import numpy as np

from tests.reference import alignment, recurrent


def step(cell, p, x, carry):
  """The carry after one step."""
  if cell != 'gru_paper':
    return recurrent.step(cell, p, x, carry)
  (h,) = carry  # Cho et al. 2014, equations 5 to 8
  D = len(h)
  part = lambda i, state: (
    x @ p['input'][:, i * D : i * D + D] + state @ p['recurrent'][:, i * D : i * D + D] + (p['bias'][i * D : i * D + D])
  )
  r, z = recurrent.sigmoid(part(0, h)), recurrent.sigmoid(part(1, h))
  return (z * h + (1 - z) * np.tanh(part(2, r * h)),)


def design(cfg):
  """'bahdanau', 'luong', 'cho' or 'sutskever'."""
  return getattr(cfg, 'design', type(cfg).__module__.rsplit('.', 1)[-1])


def zeros(cfg):
  return tuple(np.zeros(cfg.D) for _ in range(2 if cfg.cell == 'lstm' else 1))


def run(cfg, p, xs):
  """(outputs, last carry) of one layer over the sequence `xs`."""
  carry, outputs = zeros(cfg), []
  for x in xs:
    carry = step(cfg.cell, p, x, carry)
    outputs.append(carry[0])
  return np.array(outputs), carry


def encode(cfg, params, source):
  """(annotations (S, H) in the order of the text, last carries of each layer: (forward, backward or None))."""
  table = params['embed'].get('table', params['embed'].get('source'))
  x, ends = table[source], []
  x = x[::-1] if cfg.reverse else x
  for i in range(cfg.encoder_layers):
    layer = params[f'layer_{i:02d}']
    forward, end = run(cfg, layer['forward'], x)
    back_end = None
    if cfg.bidirectional:
      backward, back_end = run(cfg, layer['backward'], x[::-1])
      forward = np.concatenate([forward, backward[::-1]], axis=-1)
    x = forward
    ends.append((end, back_end))
  return (x[::-1] if cfg.reverse else x), ends


def start(cfg, params, ends):
  """(carry of each layer of the decoder, fixed context or None)."""
  if design(cfg) in ('sutskever', 'luong'):
    return [end for end, _ in ends], None
  p, context = params['start'], None
  (end, back_end) = ends[-1]
  if design(cfg) == 'cho':
    last = end[0] if back_end is None else np.concatenate([end[0], back_end[0]])
    context = np.tanh(last @ p['context'] + p['context_bias'])
    states = np.tanh(context @ p['state'] + p['state_bias'])
  else:
    states = np.tanh((end if back_end is None else back_end)[0] @ p['state'] + p['state_bias'])
  return [(h, *zeros(cfg)[1:]) for h in np.split(states, cfg.decoder_layers)], context


def look(cfg, params, h, annotations, t):
  """(context, weights): a_ts over all annotations, and their sum under it; the most probable one where it is hard."""
  p = params.get('attention', {})
  scores = alignment.scores(cfg.score, p, h[None], annotations)[0]
  a = alignment.weights(cfg.window, p, scores, h, t, len(annotations), cfg.reach)
  read = np.eye(len(a))[np.argmax(a)] if cfg.reading == 'hard' else a
  return sum(w * v for w, v in zip(read, annotations, strict=True)), a


def layers_step(cfg, params, x, carries):
  """The carries of the decoder's layers after one step."""
  after = []
  for i, carry in enumerate(carries):
    after.append(step(cfg.cell, params[f'layer_{cfg.encoder_layers + i:02d}'], x, carry))
    x = after[-1][0]
  return after


def deep(params, s, e, c):
  """Bahdanau et al. 2015, appendix A.2.2."""
  p = params['output']
  t = s @ p['readout_state'] + e @ p['readout_embed'] + c @ p['readout_context'] + p['readout_bias']
  return np.array([max(t[2 * j], t[2 * j + 1]) for j in range(len(t) // 2)])


def decode(cfg, params, source, tokens):
  """(what the softmax reads (T, W), log-probabilities (T, V), alignments (T, S)) under teacher forcing."""
  annotations, ends = encode(cfg, params, source)
  carries, context = start(cfg, params, ends)
  table = params['embed'].get('table', params['embed'].get('target'))
  attentional, read, alignments = np.zeros(cfg.D), [], []
  for t, token in enumerate(tokens):
    e, before, a = table[token], carries[-1][0], np.zeros(len(source))
    if design(cfg) == 'bahdanau':
      context, a = look(cfg, params, before, annotations, t)
    fed = [attentional] if getattr(cfg, 'input_feeding', False) else []
    extra = {'sutskever': [], 'luong': fed}.get(design(cfg), [context])
    carries = layers_step(cfg, params, np.concatenate([e, *extra]), carries)
    s = carries[-1][0]
    if design(cfg) == 'luong':
      c, a = look(cfg, params, s, annotations, t)
      attentional = np.tanh(np.concatenate([c, s]) @ params['attention']['combine'])
      read.append(attentional)
    elif design(cfg) == 'sutskever':
      read.append(s)
    else:
      read.append(deep(params, before if cfg.readout == 'previous' else s, e, context))
    alignments.append(a)
  out = table if cfg.tied else params['output']['table']
  scores = np.array(read) @ out.T + params['output']['bias']
  log_p = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
  return np.array(read), log_p, np.array(alignments)
