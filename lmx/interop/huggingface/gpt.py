"""GPT, with or without the prefix 'transformer.' on its names; its Conv1D kernels are (in, out)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmx.interop.huggingface.entry import (
  Entry,
  Tied,
  causal_mask,
  check_plain,
  epsilon,
  named,
  norm,
  own_fields,
  position_ids,
  reshaped,
  same,
  sizes,
  switch,
)

TYPE = 'openai-gpt'
TOKENIZER = 'gpt_bpe'
PREFIX, BARE = 'transformer.', r'(tokens_embed|positions_embed|h)\.|position_ids$'
BUFFERS = {r'transformer\.position_ids': position_ids, r'transformer\.h\.\d+\.attn\.bias': causal_mask}
_SIZES = {
  'V': ('vocab_size', 40_478),
  'T': ('n_positions', 512),
  'D': ('n_embd', 768),
  'H': ('n_head', 12),
  'N': ('n_layer', 12),
}
# Names that transformers also reads.
ALIASES = {
  'max_position_embeddings': 'n_positions',
  'hidden_size': 'n_embd',
  'num_attention_heads': 'n_head',
  'num_hidden_layers': 'n_layer',
}
EPS, TIED = ('layer_norm_epsilon', 1e-5), ('tie_word_embeddings', True)
_RATES = {'dropout_embedding': 'embd_pdrop', 'dropout_attention': 'attn_pdrop', 'dropout_residual': 'resid_pdrop'}


def fields(theirs: Mapping[str, Any]) -> dict[str, Any]:
  """Return fields of models/gpt.py's Config; raise InputError if the values are not supported."""
  theirs = named(theirs, ALIASES)
  check_plain(theirs, afn=('gelu', 'gelu_new'))  # the tanh form, in transformers too
  return sizes(theirs, _SIZES, _RATES) | {'eps': epsilon(theirs, *EPS), 'tied': switch(theirs, *TIED)}


def config(cfg: Any) -> dict[str, Any]:
  """Return fields of config.json; the inverse of `fields`."""
  return own_fields(cfg, _SIZES | {'eps': EPS, 'tied': TIED}, _RATES) | {'afn': 'gelu'}


def tied(cfg: Any) -> list[Tied]:
  """Return the tensors that repeat others."""
  return [Tied('lm_head.weight', 'transformer.tokens_embed.weight')] if cfg.tied else []


def layer(cfg: Any, i: int, F: int) -> list[Entry]:
  """Return the entries of a GPT or GPT-2 layer, which have the same names; F is the feed-forward width."""
  D, H = cfg.D, cfg.H
  K = D // H
  ours, theirs = f'model/layer_{i:02d}', f'transformer.h.{i}'
  return [
    *norm(f'{ours}/norm_1', f'{theirs}.ln_1', D),
    reshaped(f'{ours}/attention/qkv/kernel', f'{theirs}.attn.c_attn.weight', (D, 3 * D), (D, 3, H, K)),
    reshaped(f'{ours}/attention/qkv/bias', f'{theirs}.attn.c_attn.bias', (3 * D,), (3, H, K)),
    reshaped(f'{ours}/attention/out/kernel', f'{theirs}.attn.c_proj.weight', (D, D), (H, K, D)),
    same(f'{ours}/attention/out/bias', f'{theirs}.attn.c_proj.bias', D),
    *norm(f'{ours}/norm_2', f'{theirs}.ln_2', D),
    same(f'{ours}/mlp/in/kernel', f'{theirs}.mlp.c_fc.weight', D, F),
    same(f'{ours}/mlp/in/bias', f'{theirs}.mlp.c_fc.bias', F),
    same(f'{ours}/mlp/out/kernel', f'{theirs}.mlp.c_proj.weight', F, D),
    same(f'{ours}/mlp/out/bias', f'{theirs}.mlp.c_proj.bias', D),
  ]


def entries(cfg: Any) -> list[Entry]:
  """Return the entry of every parameter."""
  parameters = [
    same('model/embed/tokens', 'transformer.tokens_embed.weight', cfg.V, cfg.D),
    same('model/embed/positions', 'transformer.positions_embed.weight', cfg.T, cfg.D),
  ]
  if not cfg.tied:
    parameters.append(same('model/output/table', 'lm_head.weight', cfg.V, cfg.D, group='output'))
  return sum((layer(cfg, i, 4 * cfg.D) for i in range(cfg.N)), parameters)
