"""GPT-2, with or without the prefix 'transformer.' on its names; its Conv1D kernels are (in, out)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmx.errors import InputError
from lmx.interop.huggingface import gpt
from lmx.interop.huggingface.entry import (
  GELU,
  Entry,
  Tied,
  causal_mask,
  check_plain,
  epsilon,
  integer,
  masked_score,
  named,
  norm,
  own_fields,
  same,
  sizes,
  switch,
)

TYPE = 'gpt2'
TOKENIZER = 'bpe'
PREFIX, BARE = 'transformer.', r'(wte|wpe|h|ln_f)\.'
BUFFERS = {r'transformer\.h\.\d+\.attn\.bias': causal_mask, r'transformer\.h\.\d+\.attn\.masked_bias': masked_score}
_SIZES = {
  'V': ('vocab_size', 50_257),
  'T': ('n_positions', 1024),
  'D': ('n_embd', 768),
  'H': ('n_head', 12),
  'N': ('n_layer', 12),
}
_RATES = {'dropout_embedding': 'embd_pdrop', 'dropout_attention': 'attn_pdrop', 'dropout_residual': 'resid_pdrop'}

_FIXED: dict[str, tuple[Any, ...]] = {
  'activation_function': tuple(name for name, form in GELU.items() if form == 'tanh'),
  'scale_attn_weights': (True,),
  'scale_attn_by_inverse_layer_idx': (False,),
}


def fields(theirs: Mapping[str, Any]) -> dict[str, Any]:
  """Return fields of models/gpt2.py's Config; raise InputError if the values are not supported."""
  theirs = named(theirs, gpt.ALIASES)
  check_plain(theirs, **_FIXED)
  settings = sizes(theirs, _SIZES, _RATES) | {'eps': epsilon(theirs, *gpt.EPS), 'tied': switch(theirs, *gpt.TIED)}
  F = 0 if theirs.get('n_inner') is None else integer(theirs, 'n_inner')
  return settings | {'F': 0 if F == 4 * settings['D'] else F}


def config(cfg: Any) -> dict[str, Any]:
  """Return fields of config.json; the inverse of `fields`. Raises InputError for a model without biases."""
  if not cfg.bias:
    raise InputError("model.bias: got false; expected true: transformers' GPT-2 has biases, so this run has no export")
  settings = own_fields(cfg, _SIZES | {'eps': gpt.EPS, 'tied': gpt.TIED}, _RATES)
  return settings | {'activation_function': 'gelu_new', 'n_inner': cfg.F or None}


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
