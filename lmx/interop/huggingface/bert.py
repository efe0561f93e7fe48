"""BERT, with or without the prefix 'bert.' on its names; torch.nn.Linear kernels are (out, in).

Old files name LayerNorm's tensors gamma and beta. The next-sentence head belongs to the objective:
params['objective']['nsp'], label 0 = "is next" in both. A file may lack it, the masked-LM head, or the pooler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmx.interop import mapped
from lmx.interop.huggingface.entry import (
  GELU,
  Entry,
  Tensors,
  Tied,
  check_plain,
  epsilon,
  integer,
  norm,
  own_fields,
  position_ids,
  reshaped,
  same,
  sizes,
  stacked,
  switch,
  transposed,
)

TYPE = 'bert'
TOKENIZER = 'wordpiece'
PREFIX, BARE = 'bert.', r'(embeddings|encoder|pooler)\.'
BUFFERS = {r'bert\.embeddings\.position_ids': position_ids}
_SIZES = {
  'V': ('vocab_size', 30_522),
  'T': ('max_position_embeddings', 512),
  'E': ('type_vocab_size', 2),
  'D': ('hidden_size', 768),
  'H': ('num_attention_heads', 12),
  'N': ('num_hidden_layers', 12),
}
_SWITCHES = {'causal': ('is_decoder', False), 'tied': ('tie_word_embeddings', True)}
_RATES = {'dropout_hidden': 'hidden_dropout_prob', 'dropout_attention': 'attention_probs_dropout_prob'}
_EPS = 'layer_norm_eps', 1e-12


def fields(theirs: Mapping[str, Any]) -> dict[str, Any]:
  """Return fields of models/bert.py's Config; raise InputError if the values are not supported."""
  settings = sizes(theirs, _SIZES, _RATES)
  check_plain(theirs, hidden_act=(*GELU,), position_embedding_type=('absolute',))
  F = integer(theirs, 'intermediate_size', 3072)
  settings |= {ours: switch(theirs, *given) for ours, given in _SWITCHES.items()}
  settings |= {'F': 0 if F == 4 * settings['D'] else F, 'eps': epsilon(theirs, *_EPS)}
  return settings | {'gelu': GELU[theirs.get('hidden_act', 'gelu')]}


def config(cfg: Any) -> dict[str, Any]:
  """Return fields of config.json; the inverse of `fields`."""
  act = 'gelu' if cfg.gelu == 'erf' else 'gelu_new'
  return own_fields(cfg, _SIZES | _SWITCHES | {'eps': _EPS}, _RATES) | {
    'hidden_act': act,
    'intermediate_size': cfg.F or 4 * cfg.D,
  }


def remarks(directory: Any, config: Mapping[str, Any], tensors: Tensors) -> list[str]:
  """Return a line on an output bias that versions of transformers read differently."""
  del directory
  bias, inner = (tensors.get(f'cls.predictions.{name}bias') for name in ('', 'decoder.'))
  if switch(config, *_SWITCHES['tied']) or bias is None or inner is None or mapped.are_equal(bias, inner):
    return []
  return ['cls.predictions.decoder.bias: read, as by version 5 of transformers; version 4 reads cls.predictions.bias']


def tied(cfg: Any) -> list[Tied]:
  """Return the tensors that repeat others. An untied output matrix has its own bias, which is the one computed with."""
  bias, inner = 'cls.predictions.bias', 'cls.predictions.decoder.bias'
  if not cfg.tied:
    return [Tied(bias, inner, checked=False)]
  return [Tied('cls.predictions.decoder.weight', 'bert.embeddings.word_embeddings.weight'), Tied(inner, bias)]


def _layer(cfg: Any, i: int) -> list[Entry]:
  D, H, F = cfg.D, cfg.H, cfg.F or 4 * cfg.D
  K = D // H
  ours, theirs = f'model/layer_{i:02d}', f'bert.encoder.layer.{i}'
  return [
    *stacked(f'{ours}/attention/qkv', f'{theirs}.attention.self', ('query', 'key', 'value'), H, K),
    reshaped(f'{ours}/attention/out/kernel', f'{theirs}.attention.output.dense.weight', (D, D), (H, K, D), flip=True),
    same(f'{ours}/attention/out/bias', f'{theirs}.attention.output.dense.bias', D),
    *norm(f'{ours}/norm_1', f'{theirs}.attention.output.LayerNorm', D),
    transposed(f'{ours}/mlp/in/kernel', f'{theirs}.intermediate.dense.weight', F, D),
    same(f'{ours}/mlp/in/bias', f'{theirs}.intermediate.dense.bias', F),
    transposed(f'{ours}/mlp/out/kernel', f'{theirs}.output.dense.weight', D, F),
    same(f'{ours}/mlp/out/bias', f'{theirs}.output.dense.bias', D),
    *norm(f'{ours}/norm_2', f'{theirs}.output.LayerNorm', D),
  ]


def entries(cfg: Any) -> list[Entry]:
  """Return the entry of every parameter."""
  D = cfg.D
  parameters = [
    same('model/embed/tokens', 'bert.embeddings.word_embeddings.weight', cfg.V, D),
    same('model/embed/positions', 'bert.embeddings.position_embeddings.weight', cfg.T, D),
    same('model/embed/types', 'bert.embeddings.token_type_embeddings.weight', cfg.E, D),
    *norm('model/embed/norm', 'bert.embeddings.LayerNorm', D),
    transposed('model/pooler/kernel', 'bert.pooler.dense.weight', D, D, group='pooler'),
    same('model/pooler/bias', 'bert.pooler.dense.bias', D, group='pooler'),
    transposed('model/mlm/dense/kernel', 'cls.predictions.transform.dense.weight', D, D, group='mlm'),
    same('model/mlm/dense/bias', 'cls.predictions.transform.dense.bias', D, group='mlm'),
    *norm('model/mlm/norm', 'cls.predictions.transform.LayerNorm', D, group='mlm'),
    same('model/mlm/bias', f'cls.predictions.{"" if cfg.tied else "decoder."}bias', cfg.V, group='mlm'),
    transposed('objective/nsp/kernel', 'cls.seq_relationship.weight', 2, D, group='nsp'),
    same('objective/nsp/bias', 'cls.seq_relationship.bias', 2, group='nsp'),
  ]
  if not cfg.tied:
    parameters.append(same('model/mlm/table', 'cls.predictions.decoder.weight', cfg.V, D, group='mlm'))
  for i in range(cfg.N):
    parameters += _layer(cfg, i)
  return parameters
