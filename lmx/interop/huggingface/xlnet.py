"""XLNet: `XLNetLMHeadModel`, its names with or without the leading 'transformer.'.

There u, v and s (r_w_bias, r_r_bias and r_s_bias) are each layer's own; where layers of lmx share them they are written
once for each, and read back only if they are equal. Dropout there is one rate for all, and a memory begins empty. The
output's bias may be missing, as in files of the bare model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lmx.errors import InputError
from lmx.interop.huggingface.entry import Entry, Tied, demand, integer, linear, norm, reshaped, same, sizes

TYPE = 'xlnet'
TOKENIZER = 'unigram'
PREFIX, BARE = 'transformer.', r'(word_embedding|mask_emb|layer)'
BUFFERS: dict[str, Any] = {}
_SIZES = {'V': 'vocab_size', 'D': 'd_model', 'F': 'd_inner', 'H': 'n_head', 'N': 'n_layer'}
_RATES = {'dropout': 'dropout', 'dropout_attention': 'dropout'}
_LENGTHS = {'M': 'mem_len', 'reuse': 'reuse_len', 'clamp': 'clamp_len'}  # none is None or -1 there and 0 here
_MEMORY = 512  # where mem_len is not named
_BIASES = {'u': 'r_w_bias', 'v': 'r_r_bias', 's': 'r_s_bias'}
_GELU = {'gelu': 'erf', 'gelu_new': 'tanh'}


def fields(theirs: Mapping[str, Any]) -> dict[str, Any]:
  """Fields of models/xlnet.py's Config; InputError where it cannot be so."""
  found = sizes(theirs, _SIZES, _RATES)
  demand(theirs, 'ff_activation', *_GELU)
  demand(theirs, 'layer_norm_eps', 1e-12)
  demand(theirs, 'd_head', None, found['D'] // found['H'])
  demand(theirs, 'attn_type', 'bi')
  demand(theirs, 'bi_data', False)  # True reads the second half of a batch's rows backwards
  demand(theirs, 'same_length', False)
  demand(theirs, 'tie_word_embeddings', True)
  given = {name: value for name, value in theirs.items() if value is not None}
  lengths = {
    ours: integer(given, name, _MEMORY if name == 'mem_len' and name not in theirs else 0, low=-1)
    for ours, name in _LENGTHS.items()
  }
  lengths = {ours: max(length, 0) for ours, length in lengths.items()}
  return found | lengths | {'gelu': _GELU[theirs.get('ff_activation', 'gelu')], 'untie': True, 'fidelity': 'paper'}


def config(cfg: Any) -> dict[str, Any]:
  """The inverse."""
  found = {theirs: getattr(cfg, ours) for ours, theirs in (_SIZES | {'dropout': 'dropout'}).items()}
  act = 'gelu' if cfg.gelu == 'erf' else 'gelu_new'
  lengths = {'mem_len': cfg.M or None, 'reuse_len': cfg.reuse or None, 'clamp_len': cfg.clamp or -1}
  return (
    found
    | lengths
    | {
      'd_head': cfg.D // cfg.H,
      'ff_activation': act,
      'attn_type': 'bi',
      'same_length': False,
      'untie_r': True,
      'layer_norm_eps': 1e-12,
    }
  )


def tied(cfg: Any) -> list[Tied]:
  """Tensors that repeat others."""
  del cfg
  return [Tied('lm_loss.weight', 'transformer.word_embedding.weight')]


def _layer(cfg: Any, i: int) -> list[Entry]:
  D, H, F = cfg.D, cfg.H, cfg.F
  K = D // H
  ours, theirs = f'model/layer_{i:02d}', f'transformer.layer.{i}'
  attention = ('model', f'layer_{i:02d}', 'attention')
  qkv = tuple(f'{theirs}.rel_attn.{part}' for part in 'qkv')
  return [
    Entry((*attention, 'qkv'), qkv, (D, H, K), lambda *xs: np.stack(xs, axis=1), lambda x: tuple(x.swapaxes(0, 1))),
    same(f'{ours}/attention/r/kernel', f'{theirs}.rel_attn.r', D, H, K),
    Entry(
      (*attention, 'out', 'kernel'),
      (f'{theirs}.rel_attn.o',),
      (D, H, K),
      lambda x: x.transpose(1, 2, 0),
      lambda x: (x.transpose(2, 0, 1),),
    ),
    *(same(f'{ours}/attention/{a}', f'{theirs}.rel_attn.{b}', H, K) for a, b in _BIASES.items() if cfg.untie),
    same(f'{ours}/attention/types', f'{theirs}.rel_attn.seg_embed', 2, H, K),
    *norm(f'{ours}/norm_1', f'{theirs}.rel_attn.layer_norm', D),
    *linear(f'{ours}/mlp/in', f'{theirs}.ff.layer_1', F, D),
    *linear(f'{ours}/mlp/out', f'{theirs}.ff.layer_2', D, F),
    *norm(f'{ours}/norm_2', f'{theirs}.ff.layer_norm', D),
  ]


def _shared(cfg: Any, ours: str, theirs: str) -> Entry:
  """A bias that all layers share."""
  names = tuple(f'transformer.layer.{i}.rel_attn.{theirs}' for i in range(cfg.N))

  def load(*xs: np.ndarray) -> np.ndarray:
    if any(not np.array_equal(x, xs[0]) for x in xs):
      raise InputError(f'model.untie is False, but {theirs} differs from layer to layer')
    return xs[0]

  return Entry(('model', 'bias', ours), names, (cfg.H, cfg.D // cfg.H), load, lambda x: (x,) * cfg.N)


def entries(cfg: Any) -> list[Entry]:
  """Every parameter, by the model's config."""
  found = [
    same('model/embed/tokens', 'transformer.word_embedding.weight', cfg.V, cfg.D),
    reshaped('model/embed/mask', 'transformer.mask_emb', (1, 1, cfg.D), (cfg.D,)),
    same('model/output/bias', 'lm_loss.bias', cfg.V, group='output'),
    *(_shared(cfg, ours, theirs) for ours, theirs in _BIASES.items() if not cfg.untie),
  ]
  return sum((_layer(cfg, i) for i in range(cfg.N)), found)
