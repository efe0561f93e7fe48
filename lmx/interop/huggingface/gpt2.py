"""GPT-2, its names with or without the leading 'transformer.'; its Conv1D kernels are (in, out)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmx.interop.huggingface import gpt
from lmx.interop.huggingface.entry import Entry, demand, norm, same, sizes

TYPE = 'gpt2'
TOKENIZER = 'bpe'
PREFIX, BARE = 'transformer.', r'(wte|wpe|h|ln_f)\.'
SKIPPED = r'lm_head\.weight|transformer\.h\.\d+\.attn\.(bias|masked_bias)'
TIED = {'lm_head.weight': 'transformer.wte.weight'}
_SIZES = {'V': 'vocab_size', 'T': 'n_positions', 'D': 'n_embd', 'H': 'n_head', 'N': 'n_layer'}
_RATES = {'dropout_embedding': 'embd_pdrop', 'dropout_attention': 'attn_pdrop', 'dropout_residual': 'resid_pdrop'}


def fields(theirs: Mapping[str, Any]) -> dict[str, Any]:
  """Fields of models/gpt2.py's Config; InputError where it cannot be so."""
  found = sizes(theirs, _SIZES, _RATES)
  demand(theirs, 'activation_function', 'gelu_new', 'gelu_pytorch_tanh')
  demand(theirs, 'layer_norm_epsilon', 1e-5)
  demand(theirs, 'n_inner', None, 4 * found['D'])
  demand(theirs, 'scale_attn_weights', True)
  demand(theirs, 'scale_attn_by_inverse_layer_idx', False)
  demand(theirs, 'tie_word_embeddings', True)
  return found


def config(cfg: Any) -> dict[str, Any]:
  """The inverse."""
  found = {theirs: getattr(cfg, ours) for ours, theirs in (_SIZES | _RATES).items()}
  return found | {'activation_function': 'gelu_new', 'layer_norm_epsilon': 1e-5}


def entries(cfg: Any) -> list[Entry]:
  """Every parameter, by the model's config."""
  found = [
    same('model/embed/tokens', 'transformer.wte.weight', cfg.V, cfg.D),
    same('model/embed/positions', 'transformer.wpe.weight', cfg.T, cfg.D),
    *norm('model/norm', 'transformer.ln_f', cfg.D),
  ]
  return sum((gpt.layer(cfg, i) for i in range(cfg.N)), found)
