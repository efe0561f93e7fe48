"""Marian and opus-mt: `MarianMTModel`.

It is models/transformer.py with norm 'post', positions 'halves', biases 'all' and eps 1e-5. Its sinusoid tables are
constants with `max_position_embeddings` rows; lmx computes any number. With `share_encoder_decoder_embeddings` false
the source has its own table, `source_V`. generation.py has the search options, fsmt.py transformers' copy of fairseq.
"""

from __future__ import annotations

import base64
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from lmx import documents
from lmx.errors import InputError
from lmx.interop.huggingface import generation
from lmx.interop.huggingface.entry import (
  LAYERS,
  Entry,
  Tensors,
  Tied,
  check_plain,
  integer,
  linear,
  named,
  norm,
  rate,
  reshaped,
  same,
  show,
  stacked,
  switch,
)

TYPE = 'marian'
TOKENIZER = 'marian'
DATA = {'batching': 'translation'}
PREFIX, BARE = 'model.', r'(shared|encoder|decoder)\.'
_SEARCH = {'eos_token_id': 0, 'forced_eos_token_id': 0}  # of the class's config, without generation_config.json
_MODELS, _VOCABULARIES, _END = ('source.spm', 'target.spm'), ('vocab.json', 'target_vocab.json'), '</s>'
# Sizes in config.json and the defaults of transformers' class.
_SIZES = {
  'D': ('d_model', 1024),
  'F': ('decoder_ffn_dim', 4096),
  'H': ('decoder_attention_heads', 16),
  'encoder_F': ('encoder_ffn_dim', 4096),
  'encoder_H': ('encoder_attention_heads', 16),
}
_LAYERS = {'encoder_layers': 12, 'decoder_layers': 12}
_RATES = {
  'dropout': ('dropout', 0.1),
  'dropout_attention': ('attention_dropout', 0.0),
  'dropout_relu': ('activation_dropout', 0.0),
}
_ACTIVATIONS = {
  **{'relu': 'relu', 'swish': 'swish', 'silu': 'swish', 'gelu': 'gelu_erf'},
  **{'gelu_new': 'gelu_tanh', 'gelu_pytorch_tanh': 'gelu_tanh'},
}
# Fields of older files: with other values they are of models that MarianMTModel does not compute.
_FIXED: dict[str, tuple[Any, ...]] = {
  'static_position_embeddings': (True,),
  'normalize_before': (False,),
  'normalize_embedding': (False,),
  'add_final_layer_norm': (False,),
  'tie_encoder_decoder': (False,),
  'is_encoder_decoder': (True,),
}
# Names that transformers also reads.
ALIASES = {
  'hidden_size': 'd_model',
  'num_attention_heads': 'encoder_attention_heads',
  'num_hidden_layers': 'encoder_layers',
}
# Fields of the Config with which the class computes.
_MODEL = {'norm': 'post', 'positions': 'halves', 'biases': 'all', 'eps': 1e-5, 'first_position': 0, 'K': 0}


def fields(theirs: Mapping[str, Any]) -> dict[str, Any]:
  """Return fields of models/transformer.py's Config; raise InputError if the values are not supported."""
  theirs = named(theirs, ALIASES)
  check_plain(theirs, **_FIXED)
  settings = _MODEL | sizes({'activation_function': 'gelu', 'scale_embedding': False, **theirs})
  settings['tied'] = switch(theirs, 'tie_word_embeddings', True)
  settings['V'] = integer(theirs, 'vocab_size', 58_101)
  if not switch(theirs, 'share_encoder_decoder_embeddings', True):
    settings['source_V'] = settings['V']
    if theirs.get('decoder_vocab_size'):
      settings['V'] = integer(theirs, 'decoder_vocab_size')
  return settings


def sizes(theirs: Mapping[str, Any]) -> dict[str, Any]:
  """Return the fields of the Config that Marian and FSMT have under the same names, the tables' sizes apart."""
  settings: dict[str, Any] = {ours: integer(theirs, *given) for ours, given in _SIZES.items()}
  settings |= {name: integer(theirs, name, default, high=LAYERS) for name, default in _LAYERS.items()}
  settings |= {ours: rate(theirs, *given) for ours, given in _RATES.items()}
  activation = theirs['activation_function']
  if not isinstance(activation, str) or activation not in _ACTIVATIONS:
    raise InputError(f'config.json: activation_function: got {show(activation)}; expected {", ".join(_ACTIVATIONS)}')
  scaled = switch(theirs, 'scale_embedding', False)
  return settings | {'activation': _ACTIVATIONS[activation], 'scale_embedding': scaled}


def sizes_config(cfg: Any, expected: Mapping[str, Any], computes: str) -> dict[str, Any]:
  """Return fields of config.json; the inverse of `sizes`.

  Args:
    cfg: the Config.
    expected: its fields with only one supported value.
    computes: the class name.

  Raises:
    InputError: a field has another value.
  """
  for name, value in expected.items():
    if (got := getattr(cfg, name)) != value:
      raise InputError(f'model.{name}: got {got!r}; expected {value!r}; {computes} supports no others')
  settings: dict[str, Any] = {theirs: getattr(cfg, ours) for ours, (theirs, _) in (_SIZES | _RATES).items()}
  settings['encoder_ffn_dim'] = cfg.encoder_F or cfg.F
  settings['encoder_attention_heads'] = cfg.encoder_H or cfg.H
  return settings | {
    **{name: getattr(cfg, name) for name in _LAYERS},
    'activation_function': {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}[cfg.activation],
    'scale_embedding': cfg.scale_embedding,
    'is_encoder_decoder': True,
  }


def config(cfg: Any) -> dict[str, Any]:
  """Return fields of config.json; the inverse of `fields`. Raises InputError for unsupported values."""
  if cfg.positions not in ('halves', 'tensor2tensor'):
    raise InputError(
      f"model.positions: got '{cfg.positions}'; expected 'halves', of MarianMTModel, or 'tensor2tensor', of "
      'FSMTForConditionalGeneration; no class of transformers computes others'
    )
  return sizes_config(cfg, _MODEL, 'MarianMTModel') | {
    'tie_word_embeddings': cfg.tied,
    'vocab_size': cfg.source_V or cfg.V,
    'decoder_vocab_size': cfg.V,
    'share_encoder_decoder_embeddings': not cfg.source_V,
    'max_position_embeddings': 1024,  # lmx has no bound
    'static_position_embeddings': True,
  }


def remarks(directory: pathlib.Path, theirs: Mapping[str, Any], tensors: Tensors) -> list[str]:
  """Return a line on options of `generate` that a folder lacks."""
  del tensors
  return generation.missing_options(directory, theirs, _SEARCH)


def evaluation(directory: pathlib.Path, theirs: Mapping[str, Any]) -> dict[str, Any]:
  """Return the `evaluation` fields for a folder's `generate` options."""
  given = {**_SEARCH, **theirs}
  return search(directory, given, fields(theirs)['V'], _VOCABULARIES[0])


def search(directory: pathlib.Path, theirs: Mapping[str, Any], V: int, name: str) -> dict[str, Any]:
  """Return the `evaluation` fields for `generate` options; the vocabulary file `name` has the tokenizer's EOS."""
  options = generation.read_evaluation(directory, theirs, V)
  if beyond := [i for i in options['eos_ids'] if i >= V]:
    raise InputError(f'eos_token_id: got {beyond[0]}; expected ids of the vocabulary, 0 to {V - 1}')
  return options | ({'eos_ids': None} if options['eos_ids'] == (end_id(directory, name),) else {})


def end_id(directory: pathlib.Path, name: str) -> int | None:
  """Return the id of EOS in a vocabulary file; None if there is no such file or token."""
  path = directory / name
  return documents.convert(documents.read_json(path), dict, str(path)).get(_END) if path.exists() else None


def write(
  directory: pathlib.Path, tokenizer: Mapping[str, Any], evaluation: Any, settings: Mapping[str, Any]
) -> dict[str, Any]:
  """Write the files of the tokenizer and generation_config.json; return the ids of config.json.

  Args:
    directory: the folder.
    tokenizer: content of the tokenizer's own file (lmx/data/tokenizers/marian.py).
    evaluation: section `evaluation` of the run.
    settings: the other fields of config.json.

  Raises:
    InputError: it is a tokenizer of another kind, or `generate` does not search so.
  """
  del settings
  if tokenizer['kind'] != TOKENIZER:
    raise InputError(
      f'data.tokenizer: got "{tokenizer["kind"]}"; expected "{TOKENIZER}", because a folder of Marian has models of '
      'SentencePiece'
    )
  for name, model in zip(_MODELS, tokenizer['models'], strict=True):
    (directory / name).write_bytes(base64.b64decode(model))
  vocabularies = tokenizer['vocabularies']
  for name, vocabulary in zip(_VOCABULARIES, vocabularies, strict=False):
    (directory / name).write_text(json.dumps(vocabulary, indent=2) + '\n', encoding='utf-8')
  options = {
    'tokenizer_class': 'MarianTokenizer',
    'clean_up_tokenization_spaces': tokenizer['clean_up'],
    'separate_vocabs': len(vocabularies) > 1,
    **({'split_special_tokens': True} if tokenizer.get('split_special_tokens') else {}),
  }
  (directory / 'tokenizer_config.json').write_text(json.dumps(options, indent=2) + '\n', encoding='utf-8')
  end, pad = (vocabularies[-1][token] for token in (_END, '<pad>'))
  return write_search(directory, evaluation, end, tokenizer['start_id'], pad)


def write_search(directory: pathlib.Path, evaluation: Any, end: int, start: int, pad: int) -> dict[str, Any]:
  """Write generation_config.json; return the ids of config.json."""
  options = generation.keys_of_evaluation(evaluation, end, start, pad)
  generation.write(directory, options)
  return {
    'pad_token_id': pad,
    'eos_token_id': options['eos_token_id'],
    'decoder_start_token_id': start,
    'forced_eos_token_id': options['forced_eos_token_id'],
    **generation.task_params(options, 'translation', 'text2text-generation'),
  }


def sinusoids(shape: tuple[int, ...], steps: float) -> np.ndarray:
  """Return a sinusoidal table, sines in one half of the columns and cosines in the other.

  Args:
    shape: positions and width.
    steps: number of columns from the wavelength 2 pi to 10,000 times 2 pi.
  """
  T, D = shape
  angles = np.arange(T)[:, None] / 10_000 ** (np.arange((D + 1) // 2) / steps)
  return np.concatenate([np.sin(angles), np.cos(angles[:, : D // 2])], axis=1)


def _sinusoids(x: np.ndarray) -> np.ndarray:
  """Return the content of a position table."""
  return sinusoids(x.shape, x.shape[-1] / 2)


_SHARED, _OUTPUT = 'model.shared.weight', 'lm_head.weight'
_ENCODER, _DECODER = (f'model.{side}.embed_tokens.weight' for side in ('encoder', 'decoder'))
BUFFERS = {r'model\.(encoder|decoder)\.embed_positions\.weight': _sinusoids}


def tied(cfg: Any) -> list[Tied]:
  """Return the tensors that repeat others."""
  source, target = _tables(cfg)
  names = [name for name in (_ENCODER, _DECODER) if name not in (source, target)] + [_OUTPUT] * cfg.tied
  return [Tied(name, target) for name in names]


def _tables(cfg: Any) -> tuple[str, str]:
  """Return the names of the source and target embedding tables."""
  return (_ENCODER, _DECODER) if cfg.source_V else (_SHARED, _SHARED)


def used(fields: Mapping[str, Any], tensors: Tensors) -> Tensors:
  """Return the tensors, with the target table truncated to its ids.

  With two vocabularies and an untied output, transformers before 5 gives this table the source's `vocab_size` rows; ids
  are below `decoder_vocab_size`.
  """
  table, V, rows = tensors.get(_DECODER), fields['V'], fields.get('source_V', 0)
  if fields['tied'] or table is None or table.ndim != 2 or not V < len(table) == rows:
    return tensors
  return {**tensors, _DECODER: table[:V]}


def entries(cfg: Any) -> list[Entry]:
  """Return the entry of every parameter."""
  D = cfg.D
  source, target = _tables(cfg)
  parameters = [
    same('model/embed/tokens', target, cfg.V, D),
  ]
  if cfg.biases == 'all':
    bias = reshaped('model/output/bias', 'final_logits_bias', (1, cfg.V), (cfg.V,))
    parameters.append(bias._replace(group='output'))
  if cfg.norm == 'pre':  # of fairseq (lmx/interop/fairseq.py); MarianMTModel has none
    for side in ('encoder', 'decoder'):
      parameters += norm(f'model/norm_{side}', f'model.{side}.layer_norm', D)
  if cfg.source_V:
    parameters.append(same('model/embed/source', source, cfg.source_V, D))
  if not cfg.tied:
    parameters.append(same('model/output/tokens', _OUTPUT, cfg.V, D))
  return parameters + layer_entries(cfg)


def layer_entries(cfg: Any) -> list[Entry]:
  """Return the entries of the encoder and decoder layers."""
  D, parameters = cfg.D, []
  for i in range(cfg.N):
    decoder, j = (0, i) if i < cfg.encoder_layers else (1, i - cfg.encoder_layers)
    F, H = (cfg.F, cfg.H) if decoder else (cfg.encoder_F or cfg.F, cfg.encoder_H or cfg.H)
    K = D // H
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
