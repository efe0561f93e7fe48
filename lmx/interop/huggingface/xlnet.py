"""XLNet: `XLNetLMHeadModel`, its names with or without the leading 'transformer.'.

It is models/xlnet.py with u, v and s of each layer: r_w_bias, r_r_bias and r_s_bias. Dropout there is one rate for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lmx.interop.huggingface.entry import Entry, linear, norm, reshaped, same

PREFIX, BARE = 'transformer.', r'(word_embedding|mask_emb|layer)'
SKIPPED = r'lm_loss\.weight'
TIED = {'lm_loss.weight': 'transformer.word_embedding.weight'}


def _layer(cfg: Any, i: int) -> list[Entry]:
  D, H, F = cfg.D, cfg.H, cfg.F
  K = D // H
  ours, theirs = f'model/layer_{i:02d}', f'transformer.layer.{i}'
  attention = ('model', f'layer_{i:02d}', 'attention')
  qkv = tuple(f'{theirs}.rel_attn.{part}' for part in 'qkv')
  return [
    Entry((*attention, 'qkv'), qkv, (D, H, K), lambda *xs: np.stack(xs, axis=1), lambda x: tuple(x.swapaxes(0, 1))),
    same(f'{ours}/attention/r/kernel', f'{theirs}.rel_attn.r', D, H, K),
    Entry((*attention, 'out', 'kernel'), (f'{theirs}.rel_attn.o',), (D, H, K),
          lambda x: x.transpose(1, 2, 0), lambda x: (x.transpose(2, 0, 1),)),
    *(same(f'{ours}/attention/{a}', f'{theirs}.rel_attn.r_{b}_bias', H, K) for a, b in zip('uvs', 'wrs', strict=True)),
    same(f'{ours}/attention/types', f'{theirs}.rel_attn.seg_embed', 2, H, K),
    *norm(f'{ours}/norm_1', f'{theirs}.rel_attn.layer_norm', D),
    *linear(f'{ours}/mlp/in', f'{theirs}.ff.layer_1', F, D),
    *linear(f'{ours}/mlp/out', f'{theirs}.ff.layer_2', D, F),
    *norm(f'{ours}/norm_2', f'{theirs}.ff.layer_norm', D),
  ]  # fmt: skip


def entries(cfg: Any) -> list[Entry]:
  """Every parameter, by the model's config."""
  found = [
    same('model/embed/tokens', 'transformer.word_embedding.weight', cfg.V, cfg.D),
    reshaped('model/embed/mask', 'transformer.mask_emb', (1, 1, cfg.D), (cfg.D,)),
    same('model/output/bias', 'lm_loss.bias', cfg.V),
  ]
  return sum((_layer(cfg, i) for i in range(cfg.N)), found)
