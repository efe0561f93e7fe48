"""XLNet: `XLNetLMHeadModel`, with or without the prefix 'transformer.' on its names.

In transformers u, v and s (r_w_bias, r_r_bias and r_s_bias) are separate in each layer. If the layers of lmx share
them, they are written once per layer, and read back only if they are equal. Dropout is a single rate in transformers,
and the memory is initially empty. The output's bias may be missing, as in files of the bare model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lmx.errors import InputError
from lmx.interop.huggingface.entry import (
  GELU,
  Entry,
  Tied,
  check_plain,
  epsilon,
  integer,
  linear,
  named,
  norm,
  own_fields,
  reshaped,
  same,
  sizes,
)

TYPE = 'xlnet'
TOKENIZER = 'unigram'
PREFIX, BARE = 'transformer.', r'(word_embedding|mask_emb|layer)'
BUFFERS: dict[str, Any] = {}
_SIZES = {
  'V': ('vocab_size', 32_000),
  'D': ('d_model', 1024),
  'F': ('d_inner', 4096),
  'H': ('n_head', 16),
  'N': ('n_layer', 24),
}
# Names that transformers also reads; Transformer-XL has the same.
ALIASES = {
  'n_token': 'vocab_size',
  'hidden_size': 'd_model',
  'num_attention_heads': 'n_head',
  'num_hidden_layers': 'n_layer',
}
_RATES = {'dropout': 'dropout', 'dropout_attention': 'dropout'}
_LENGTHS = {'M': 'mem_len', 'reuse': 'reuse_len', 'clamp': 'clamp_len'}  # "none" is None or -1 there and 0 in lmx
_MEMORY = 512  # default of mem_len
_BIASES = {'u': 'r_w_bias', 'v': 'r_r_bias', 's': 'r_s_bias'}
EPS = 'layer_norm_eps', 1e-12
_FIXED: dict[str, tuple[Any, ...]] = {
  'ff_activation': (*GELU,),
  'attn_type': ('bi',),
  'bi_data': (False,),  # True reads the second half of a batch's rows in reverse
  'same_length': (False,),
  'tie_word_embeddings': (True,),
}


def fields(theirs: Mapping[str, Any]) -> dict[str, Any]:
  """Return fields of models/xlnet.py's Config; raise InputError if the values are not supported."""
  theirs = named(theirs, ALIASES)
  settings = sizes(theirs, _SIZES, _RATES) | {'eps': epsilon(theirs, *EPS)}
  check_plain(theirs, d_head=(None, settings['D'] // settings['H']), **_FIXED)
  non_null = {name: value for name, value in theirs.items() if value is not None}
  lengths = {
    ours: integer(non_null, name, _MEMORY if name == 'mem_len' and name not in theirs else 0, low=-1)
    for ours, name in _LENGTHS.items()
  }
  lengths = {ours: max(length, 0) for ours, length in lengths.items()}
  return settings | lengths | {'gelu': GELU[theirs.get('ff_activation', 'gelu')], 'untie': True, 'fidelity': 'paper'}


def config(cfg: Any) -> dict[str, Any]:
  """Return fields of config.json; the inverse of `fields`."""
  settings = own_fields(cfg, _SIZES | {'eps': EPS}, {'dropout': 'dropout'})
  act = 'gelu' if cfg.gelu == 'erf' else 'gelu_new'
  lengths = {'mem_len': cfg.M or None, 'reuse_len': cfg.reuse or None, 'clamp_len': cfg.clamp or -1}
  return (
    settings
    | lengths
    | {
      'd_head': cfg.D // cfg.H,
      'ff_activation': act,
      'attn_type': 'bi',
      'same_length': False,
      'untie_r': True,
    }
  )


def notes(cfg: Any, architecture: str) -> list[str]:
  """Return lines for the user on what transformers computes differently."""
  lines = []
  if cfg.M and cfg.fidelity == 'released':
    lines.append(
      "model.fidelity: got 'released', a memory that begins as zeros; that of transformers begins empty, so hidden "
      f'states of the first {cfg.M} tokens differ'
    )
  if architecture == 'XLNetForQuestionAnswering':
    lines.append(
      'load it by XLNetForQuestionAnswering: AutoModelForQuestionAnswering and the pipeline choose '
      'XLNetForQuestionAnsweringSimple, with a newly initialised head'
    )
  return lines


def tied(cfg: Any) -> list[Tied]:
  """Return the tensors that repeat others."""
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
  """Return the entry of a bias that all layers share."""
  names = tuple(f'transformer.layer.{i}.rel_attn.{theirs}' for i in range(cfg.N))

  def load(*xs: np.ndarray) -> np.ndarray:
    if any(not np.array_equal(x, xs[0]) for x in xs):
      raise InputError(f'model.untie is False, but {theirs} differs from layer to layer')
    return xs[0]

  return Entry(('model', 'bias', ours), names, (cfg.H, cfg.D // cfg.H), load, lambda x: (x,) * cfg.N)


def entries(cfg: Any) -> list[Entry]:
  """Return the entry of every parameter."""
  parameters = [
    same('model/embed/tokens', 'transformer.word_embedding.weight', cfg.V, cfg.D),
    reshaped('model/embed/mask', 'transformer.mask_emb', (1, 1, cfg.D), (cfg.D,)),
    same('model/output/bias', 'lm_loss.bias', cfg.V, group='output'),
    *(_shared(cfg, ours, theirs) for ours, theirs in _BIASES.items() if not cfg.untie),
  ]
  return sum((_layer(cfg, i) for i in range(cfg.N)), parameters)
