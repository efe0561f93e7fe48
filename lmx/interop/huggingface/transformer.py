"""Marian: `MarianMTModel` (activation_function 'relu', scale_embedding, one shared vocabulary).

It is models/transformer.py with norm 'post', positions 'halves', biases 'all' and eps 1e-5. Its tables of sinusoids
are constants.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lmx.interop.huggingface.entry import Entry, Tied, linear, norm, reshaped, same, stacked

PREFIX, BARE = 'model.', r'(shared|encoder|decoder)\.'
_TIED = ('lm_head.weight', 'model.encoder.embed_tokens.weight', 'model.decoder.embed_tokens.weight')


def _sinusoids(x: np.ndarray) -> np.ndarray:
  """Return the sinusoidal table in the shape of x, sines in one half of the columns and cosines in the other."""
  T, D = x.shape
  angles = np.arange(T)[:, None] / 10_000 ** (2 * np.arange((D + 1) // 2) / D)
  return np.concatenate([np.sin(angles), np.cos(angles[:, : D // 2])], axis=1)


BUFFERS = {r'model\.(encoder|decoder)\.embed_positions\.weight': _sinusoids}


def tied(cfg: Any) -> list[Tied]:
  """Return the tensors that repeat others."""
  del cfg
  return [Tied(name, 'model.shared.weight') for name in _TIED]


def entries(cfg: Any) -> list[Entry]:
  """Return the entry of every parameter."""
  D, H, F = cfg.D, cfg.H, cfg.F
  K = D // H
  parameters = [
    same('model/embed/tokens', 'model.shared.weight', cfg.V, D),
    reshaped('model/output/bias', 'final_logits_bias', (1, cfg.V), (cfg.V,)),
  ]
  for i in range(cfg.N):
    decoder, j = (0, i) if i < cfg.encoder_layers else (1, i - cfg.encoder_layers)
    ours, theirs = f'model/layer_{i:02d}', f'model.{"decoder" if decoder else "encoder"}.layers.{j}'
    attention = f'{theirs}.self_attn'
    parameters += [
      *stacked(f'{ours}/attention/qkv', attention, ('q_proj', 'k_proj', 'v_proj'), H, K),
      reshaped(f'{ours}/attention/out/kernel', f'{attention}.out_proj.weight', (D, D), (H, K, D), flip=True),
      same(f'{ours}/attention/out/bias', f'{attention}.out_proj.bias', D),
      *norm(f'{ours}/norm_1', f'{theirs}.self_attn_layer_norm', D),
      *linear(f'{ours}/mlp/in', f'{theirs}.fc1', F, D),
      *linear(f'{ours}/mlp/out', f'{theirs}.fc2', D, F),
      *norm(f'{ours}/norm_2', f'{theirs}.final_layer_norm', D),
    ]
    if decoder:
      parameters += _cross(ours, theirs, H, K)
  return parameters


def _cross(ours: str, theirs: str, H: int, K: int) -> list[Entry]:
  D, attention = H * K, f'{theirs}.encoder_attn'
  return [
    reshaped(f'{ours}/cross/q/kernel', f'{attention}.q_proj.weight', (D, D), (D, H, K), flip=True),
    reshaped(f'{ours}/cross/q/bias', f'{attention}.q_proj.bias', (D,), (H, K)),
    *stacked(f'{ours}/cross/kv', attention, ('k_proj', 'v_proj'), H, K),
    reshaped(f'{ours}/cross/out/kernel', f'{attention}.out_proj.weight', (D, D), (H, K, D), flip=True),
    same(f'{ours}/cross/out/bias', f'{attention}.out_proj.bias', D),
    *norm(f'{ours}/norm_cross', f'{theirs}.encoder_attn_layer_norm', D),
  ]
