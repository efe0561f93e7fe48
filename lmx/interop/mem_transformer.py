"""Files that the PyTorch program of kimiyoung/transformer-xl loads: model.pt, a MemTransformerLM saved whole.

Its memory begins empty and grows, which TransfoXLLMHeadModel of transformers does not compute. A file has the names and
attributes of the program's classes (mem_transformer.py, utils/proj_adaptive_softmax.py). cache.pt has the vocabulary,
without a text. transformer_xl.py reads both.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx.errors import InputError
from lmx.interop import huggingface, torch_file
from lmx.interop.huggingface import transformer_xl as layout
from lmx.interop.huggingface.folder import whole
from lmx.interop.streamed import Lazy
from lmx.interop.torch_file import Foreign, module

MODEL, CACHE = 'model.pt', 'cache.pt'
_EPS = 1e-5  # of torch.nn.LayerNorm


def fits(cfg: Any) -> bool:
  """Return True for a Config with the program's memory."""
  return cfg.fidelity == 'pytorch' and cfg.M > 0


def write(directory: Any, cfg: Any, params: Mapping[str, Any], symbols: Sequence[str], lower_case: bool) -> list[str]:
  """Write model.pt and, if there are symbols, cache.pt; return their names.

  Args:
    directory: must not exist, or be empty.
    cfg: Config of models/transformer_xl.py.
    params: {'model': ...}.
    symbols: symbols of the vocabulary by id.
    lower_case: True if text is lower-cased.

  Raises:
    InputError: the program does not compute the same, or the directory cannot be written.
  """
  for wrong, field, expected in (
    (cfg.positions != 'sinusoids', 'positions', "'sinusoids'"),
    (cfg.untie, 'untie', 'False'),
    (cfg.recurrent not in (-1, cfg.N), 'recurrent', '-1, a memory of every layer'),
    (cfg.div_val > 1 and not cfg.project_same, 'project_same', 'True'),
  ):
    if wrong:
      raise InputError(
        f'model.{field}: got {getattr(cfg, field)!r}; expected {expected}; the PyTorch program of '
        'kimiyoung/transformer-xl supports no others'
      )
  contents: dict[str, Any] = {MODEL: model(cfg, huggingface.lazy('transformer_xl', cfg, params))}
  if symbols:
    contents[CACHE] = _corpus(symbols, lower_case)
  with whole(directory) as part:
    for name, content in contents.items():
      torch_file.write(pathlib.Path(part) / name, content)
  return sorted(contents)


def model(cfg: Any, tensors: Mapping[str, Lazy]) -> Foreign:
  """Return a MemTransformerLM with tensors of huggingface/transformer_xl.py."""
  tensors = {name.removeprefix(layout.PREFIX): x for name, x in tensors.items()}
  for name in ('crit.cluster_weight', 'crit.cluster_bias'):  # cluster i is the i-th from the end
    if name in tensors:
      tensors[name] = _reversed(tensors[name])
  parameters = {name: Foreign('torch._utils._rebuild_parameter', (x, True, {})) for name, x in tensors.items()}
  for tied in layout.tied(cfg):
    parameters[tied.name.removeprefix(layout.PREFIX)] = parameters[tied.source.removeprefix(layout.PREFIX)]
  E, K = cfg.E or cfg.D, cfg.D // cfg.H
  children = {
    'word_emb': _embedding(cfg, parameters),
    'drop': _dropout(cfg.dropout),
    'layers': _list({str(i): _layer(cfg, parameters, f'layers.{i}') for i in range(cfg.N)}),
    'crit': _criterion(cfg, parameters),
    'pos_emb': module('mem_transformer.PositionalEmbedding', {}, demb=cfg.D),
  }
  children['pos_emb'].state['_buffers'] = {'inv_freq': tensors['pos_emb.inv_freq']}
  return module(
    'mem_transformer.MemTransformerLM',
    {name: parameters[name] for name in ('r_w_bias', 'r_r_bias')},
    children,
    **{'n_token': cfg.V, 'd_embed': E, 'd_model': cfg.D, 'n_head': cfg.H, 'd_head': K, 'n_layer': cfg.N},
    **{'tgt_len': cfg.M, 'mem_len': cfg.M, 'ext_len': 0, 'max_klen': 2 * cfg.M, 'attn_type': 0, 'sample_softmax': -1},
    **{'same_length': cfg.same_length, 'clamp_len': cfg.clamp or -1},
  )


def _reversed(x: Lazy) -> Lazy:
  return Lazy(x.shape, lambda: np.asarray(x)[::-1])


def _embedding(cfg: Any, parameters: Mapping[str, Foreign]) -> Foreign:
  """Return the AdaptiveEmbedding."""
  tables = [
    parameters[f'word_emb.emb_layers.{i}.weight'] for i in range(len(cfg.cutoffs) + 1 if cfg.div_val > 1 else 1)
  ]
  shapes = [table.args[0].shape for table in tables]
  options: dict[str, Any] = {
    'padding_idx': None,
    'max_norm': None,
    'norm_type': 2.0,
    'scale_grad_by_freq': False,
    'sparse': False,
  }
  layers = {
    str(i): module(
      'torch.nn.modules.sparse.Embedding', {'weight': x}, num_embeddings=rows, embedding_dim=columns, **options
    )
    for i, (x, (rows, columns)) in enumerate(zip(tables, shapes, strict=True))
  }
  projections = [parameters.get(f'word_emb.emb_projs.{i}') for i in range(len(tables))]
  return module(
    'mem_transformer.AdaptiveEmbedding',
    {},
    {'emb_layers': _list(layers), 'emb_projs': _parameters([x for x in projections if x is not None])},
    **_clusters(cfg),
    emb_scale=cfg.D**0.5,
  )


def _criterion(cfg: Any, parameters: Mapping[str, Foreign]) -> Foreign:
  """Return the ProjectedAdaptiveLogSoftmax."""
  count = len(cfg.cutoffs)
  tables = range(count + 1 if cfg.div_val > 1 else 1)
  layers = {str(i): _linear(parameters, f'crit.out_layers.{i}') for i in tables}
  projections = _parameters([parameters.get(f'crit.out_projs.{i}') for i in range(count + 1)])
  first = [*cfg.cutoffs, cfg.V][0]
  return module(
    'proj_adaptive_softmax.ProjectedAdaptiveLogSoftmax',
    {name: x for kind in ('weight', 'bias') if (x := parameters.get(f'crit.{(name := f"cluster_{kind}")}'))},
    {'out_layers': _list(layers), 'out_projs': projections},
    **_clusters(cfg),
    shortlist_size=first,
    n_clusters=count,
    head_size=first + count,
    keep_order=False,
  )


def _clusters(cfg: Any) -> dict[str, Any]:
  """Return the attributes of the clusters."""
  ends = [*cfg.cutoffs, cfg.V]
  sizes = {'n_token': cfg.V, 'd_embed': cfg.E or cfg.D, 'd_proj': cfg.D, 'div_val': cfg.div_val}
  return {**sizes, 'cutoffs': ends, 'cutoff_ends': [0, *ends]}


def _layer(cfg: Any, parameters: Mapping[str, Foreign], name: str) -> Foreign:
  """Return a RelPartialLearnableDecoderLayer."""
  attention, core, K = f'{name}.dec_attn', f'{name}.pos_ff.CoreNet', cfg.D // cfg.H
  nets = {net: _linear(parameters, f'{attention}.{net}') for net in ('qkv_net', 'o_net', 'r_net')}
  drops = {'drop': _dropout(cfg.dropout), 'dropatt': _dropout(cfg.dropout_attention)}
  norm = lambda part: {'layer_norm': _norm(cfg, parameters, f'{name}.{part}.layer_norm')}
  relu = module('torch.nn.modules.activation.ReLU', {}, inplace=True)
  parts = [_linear(parameters, f'{core}.0'), relu, _dropout(cfg.dropout), _linear(parameters, f'{core}.3')]
  chain = {str(i): part for i, part in enumerate([*parts, _dropout(cfg.dropout)])}
  common = {'d_model': cfg.D, 'dropout': cfg.dropout, 'pre_lnorm': False}
  return module(
    'mem_transformer.RelPartialLearnableDecoderLayer',
    {},
    {
      'dec_attn': module(
        'mem_transformer.RelPartialLearnableMultiHeadAttn',
        {},
        {**nets, **drops, **norm('dec_attn')},
        **common,
        n_head=cfg.H,
        d_head=K,
        scale=1 / K**0.5,
      ),
      'pos_ff': module(
        'mem_transformer.PositionwiseFF',
        {},
        {'CoreNet': module('torch.nn.modules.container.Sequential', {}, chain), **norm('pos_ff')},
        **common,
        d_inner=cfg.F,
      ),
    },
  )


def _linear(parameters: Mapping[str, Foreign], name: str) -> Foreign:
  rows, columns = parameters[f'{name}.weight'].args[0].shape
  own: dict[str, Any] = {kind: parameters.get(f'{name}.{kind}') for kind in ('weight', 'bias')}
  return module('torch.nn.modules.linear.Linear', own, in_features=columns, out_features=rows)


def _norm(cfg: Any, parameters: Mapping[str, Foreign], name: str) -> Foreign:
  own = {kind: parameters[f'{name}.{kind}'] for kind in ('weight', 'bias')}
  options: dict[str, Any] = {'normalized_shape': (cfg.D,), 'eps': cfg.eps or _EPS, 'elementwise_affine': True}
  return module('torch.nn.modules.normalization.LayerNorm', own, **options)


def _dropout(rate: float) -> Foreign:
  return module('torch.nn.modules.dropout.Dropout', {}, p=rate, inplace=False)


def _list(modules: Mapping[str, Foreign]) -> Foreign:
  return module('torch.nn.modules.container.ModuleList', {}, modules)


def _parameters(values: Sequence[Foreign | None]) -> Foreign:
  own: dict[str, Any] = {str(i): x for i, x in enumerate(values)}
  return module('torch.nn.modules.container.ParameterList', own, _size=len(own))


def symbols(tokenizer: Any) -> list[str]:
  """Return the program's symbols of a vocabulary: words, bytes or characters; [] if it has no such vocabulary."""
  if tokenizer.kind == 'bytes':
    return [str(i) for i in range(256)]
  tokens = list(getattr(tokenizer, 'tokens', ()))
  if tokenizer.kind == 'characters' and all(len(token) == 1 for token in tokens):
    return [re.sub(r'\s', '_', token) for token in tokens]
  is_split_alike = tokenizer.kind == 'words' and tokenizer.rule in ('lines', 'space')
  return tokens if is_split_alike and all(token.split() == [token] for token in tokens) else []


def _corpus(symbols: Sequence[str], lower_case: bool) -> Foreign:
  """Return a Corpus with a vocabulary and no text."""
  ids = {symbol: i for i, symbol in enumerate(symbols)}
  unknown = {'unk_idx': ids['<unk>']} if '<unk>' in ids else {}
  vocab: dict[str, Any] = {
    'idx2sym': list(symbols),
    'sym2idx': ids,
    'delimiter': None,
    'lower_case': lower_case,
    **unknown,
  }
  vocab |= {'counter': Foreign('collections.Counter', ({},)), 'special': [], 'min_freq': 0, 'max_size': None}
  return Foreign('data_utils.Corpus', state={'dataset': '', 'vocab': Foreign('utils.vocabulary.Vocab', state=vocab)})
