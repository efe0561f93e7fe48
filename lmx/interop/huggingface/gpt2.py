"""GPT-2, with or without the prefix 'transformer.' on its names; its Conv1D kernels are (in, out)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmx.errors import InputError
from lmx.interop.huggingface import gpt
from lmx.interop.huggingface.entry import (
  Entry,
  Tied,
  causal_mask,
  check_value,
  integer,
  masked_score,
  norm,
  same,
  sizes,
)

TYPE = 'gpt2'
TOKENIZER = 'bpe'
PREFIX, BARE = 'transformer.', r'(wte|wpe|h|ln_f)\.'
BUFFERS = {r'transformer\.h\.\d+\.attn\.bias': causal_mask, r'transformer\.h\.\d+\.attn\.masked_bias': masked_score}
_SIZES = {'V': 'vocab_size', 'T': 'n_positions', 'D': 'n_embd', 'H': 'n_head', 'N': 'n_layer'}
_RATES = {'dropout_embedding': 'embd_pdrop', 'dropout_attention': 'attn_pdrop', 'dropout_residual': 'resid_pdrop'}


def fields(theirs: Mapping[str, Any]) -> dict[str, Any]:
  """Return fields of models/gpt2.py's Config; raise InputError if the values are not supported."""
  settings = sizes(theirs, _SIZES, _RATES)
  check_value(theirs, 'activation_function', 'gelu_new', 'gelu_pytorch_tanh')
  check_value(theirs, 'layer_norm_epsilon', 1e-5)
  check_value(theirs, 'scale_attn_weights', True)
  check_value(theirs, 'scale_attn_by_inverse_layer_idx', False)
  check_value(theirs, 'tie_word_embeddings', True, False)
  F = 0 if theirs.get('n_inner') is None else integer(theirs, 'n_inner')
  return settings | {'F': 0 if F == 4 * settings['D'] else F, 'tied': theirs.get('tie_word_embeddings', True)}


def config(cfg: Any) -> dict[str, Any]:
  """Return fields of config.json; the inverse of `fields`. Raises InputError for a model without biases."""
  if not cfg.bias:
    raise InputError("model.bias: got false; expected true: transformers' GPT-2 has biases, so this run has no export")
  settings = {theirs: getattr(cfg, ours) for ours, theirs in (_SIZES | _RATES).items()}
  return settings | {
    'activation_function': 'gelu_new',
    'layer_norm_epsilon': 1e-5,
    'n_inner': cfg.F or None,
    'tie_word_embeddings': cfg.tied,
  }


def tied(cfg: Any) -> list[Tied]:
  """Return the tensors that repeat others."""
  return [Tied('lm_head.weight', 'transformer.wte.weight')] if cfg.tied else []


def entries(cfg: Any) -> list[Entry]:
  """Return the entry of every parameter."""
  parameters = [
    same('model/embed/tokens', 'transformer.wte.weight', cfg.V, cfg.D),
    same('model/embed/positions', 'transformer.wpe.weight', cfg.T, cfg.D),
    *norm('model/norm', 'transformer.ln_f', cfg.D),
  ]
  if not cfg.tied:
    parameters.append(same('model/output/table', 'lm_head.weight', cfg.V, cfg.D, group='output'))
  return sum((gpt.layer(cfg, i, cfg.F or 4 * cfg.D) for i in range(cfg.N)), parameters)
