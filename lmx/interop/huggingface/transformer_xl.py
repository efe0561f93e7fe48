"""Transformer-XL: `TransfoXLLMHeadModel` (transformers before 5), whose weights are the released TensorFlow ones.

It is models/transformer_xl.py with fidelity 'transformers'. `tie_projs`, or else `proj_share_all_but_first`, selects
the clusters that share their projection with the input: `tie_projections`. `untie_r` is untie; with div_val > 1 the
first cluster always has projections (`project_same`). Its memory starts as zeros, and with `same_length` a query
attends to mem_len keys. `tied` has the names of shared tensors; files may have any or all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lmx.errors import InputError
from lmx.interop.huggingface import word_vocabulary, xlnet
from lmx.interop.huggingface.entry import (
  LAYERS,
  ONLY,
  Entry,
  Tied,
  check_plain,
  epsilon,
  integer,
  linear,
  named,
  norm,
  own_fields,
  rate,
  reshaped,
  same,
  show,
  switch,
  transposed,
)

TYPE = 'transfo-xl'
TOKENIZER = 'words'
DATA = {'batching': 'streams', 'length': 128, 'batch_size': 16}  # tf/sota/wt103.sh; the state is carried over
PREFIX, BARE = 'transformer.', r'(word_emb|layers|pos_emb|r_[wr]_bias)'
_PROJECTIONS = 'transformer.word_emb.emb_projs'
vocabulary, NOTE = word_vocabulary.read, word_vocabulary.NOTE
# Sizes in config.json and the defaults of transformers' class.
_SIZES = {
  'V': ('vocab_size', 267_735),
  'D': ('d_model', 1024),
  'E': ('d_embed', 1024),
  'F': ('d_inner', 4096),
  'H': ('n_head', 16),
  'div_val': ('div_val', 4),
}
_SWITCHES = {
  'same_length': ('same_length', True),
  'untie': ('untie_r', True),
  'tied': ('tie_word_embeddings', True),
}
_NUMBERS = {'init_std': ('init_std', 0.02), 'projection_std': ('proj_init_std', 0.01)}
_EPS = 'layer_norm_epsilon', 1e-5
_FIXED: dict[str, tuple[Any, ...]] = {
  'attn_type': (0,),
  'pre_lnorm': (False,),
  'adaptive': (True,),
  'ext_len': (0,),  # of older files
  'sample_softmax': (-1, 0),
}


def _frequencies(x: np.ndarray) -> np.ndarray:
  """Return the frequencies of the sinusoids in the shape of x."""
  return 10_000.0 ** -(np.arange(x.size) / x.size)


BUFFERS = {r'transformer\.pos_emb\.inv_freq': _frequencies}


def constants(cfg: Any) -> dict[str, np.ndarray]:
  """Return the buffers that a folder must have, because transformers does not compute them when it loads one."""
  return {'transformer.pos_emb.inv_freq': _frequencies(np.zeros(cfg.D // 2)).astype(np.float32)}


def fields(theirs: Mapping[str, Any]) -> dict[str, Any]:
  """Return fields of models/transformer_xl.py's Config; raise InputError if the values are not supported."""
  theirs = named(theirs, xlnet.ALIASES | {'tie_weight': 'tie_word_embeddings'})
  check_plain(theirs, **_FIXED)
  settings: dict[str, Any] = {ours: integer(theirs, *given) for ours, given in _SIZES.items()}
  settings['N'] = integer(theirs, 'n_layer', 18, high=LAYERS)
  settings['M'] = integer(theirs, 'mem_len', 1600, low=0)
  settings['clamp'] = max(0, integer(theirs, 'clamp_len', 1000, low=-1))  # disabled unless positive
  settings |= {ours: switch(theirs, *given) for ours, given in _SWITCHES.items()}
  settings |= {ours: rate(theirs, *given) for ours, given in _NUMBERS.items()}
  settings['eps'] = epsilon(theirs, *_EPS)
  if not settings['eps']:
    raise InputError(f'config.json: {_EPS[0]}: got 0; expected a number above 0; {ONLY}')
  settings |= {'dropout': rate(theirs, 'dropout', 0.1), 'dropout_attention': rate(theirs, 'dropatt', 0.0)}
  D, H, K = settings['D'], settings['H'], integer(theirs, 'd_head', 64)
  if H * K != D:
    raise InputError(f'config.json: d_head: got {K}; expected d_model / n_head = {D} / {H}; {ONLY}')
  if settings['same_length'] and not settings['M']:
    raise InputError('config.json: mem_len: got 0 with same_length; expected at least 1, else no query has a key')
  cutoffs = theirs.get('cutoffs', [20_000, 40_000, 200_000])
  if not isinstance(cutoffs, list) or not all(type(cutoff) is int for cutoff in cutoffs):
    raise InputError(f'config.json: cutoffs: got {show(cutoffs)}; expected a list of token ids')
  settings |= {'cutoffs': tuple(cutoffs), 'fidelity': 'transformers', 'project_same': True}
  return settings | {'tie_projections': _read_ties(theirs, settings)}


def _read_ties(theirs: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
  """Return `tie_projections`."""
  count = len(settings['cutoffs']) + 1
  default = [False] + [switch(theirs, 'proj_share_all_but_first', True)] * (count - 1)
  ties = theirs.get('tie_projs', default)
  if not isinstance(ties, list) or len(ties) != count or not all(type(tie) is bool for tie in ties):
    raise InputError(f'config.json: tie_projs: got {show(ties)}; expected {count} of true or false, one per cluster')
  alike = settings['div_val'] == 1
  if all(ties) or (alike and settings['E'] == settings['D']):  # the latter has no projections
    return 'all'
  if not any(ties):
    return 'clusters' if alike and count > 1 else 'none'
  if ties != [False] + [True] * (count - 1):
    raise InputError(
      f'config.json: tie_projs: got {show(ties)}; expected all true, all false, or only the first false; lmx '
      'supports no others'
    )
  return 'head' if alike else 'but_first'


def _ties(cfg: Any) -> list[bool]:
  """Return for each cluster if its output shares the projection of the input."""
  tails = len(cfg.cutoffs)
  kind = cfg.tie_projections
  if kind == 'all' or (kind == 'but_first' and cfg.div_val == 1):
    return [True] * (tails + 1)
  return [False] + [kind in ('but_first', 'head')] * tails


def config(cfg: Any) -> dict[str, Any]:
  """Return fields of config.json; the inverse of `fields`. Raises InputError for unsupported values."""
  _check(cfg)
  sizes = _SIZES | _SWITCHES | _NUMBERS
  settings = own_fields(cfg, sizes)
  ties = _ties(cfg) if _is_projected(cfg) else [False] + [True] * len(cfg.cutoffs)
  return (
    settings
    | {
      'd_embed': cfg.E or cfg.D,
      'd_head': cfg.D // cfg.H,
      'n_layer': cfg.N,
      'mem_len': cfg.M + (cfg.M > 0 and cfg.fidelity == 'tf' and cfg.same_length),  # its own key counts in the class
      'clamp_len': cfg.clamp or -1,
      'cutoffs': list(cfg.cutoffs),
      'tie_projs': ties,
      'proj_share_all_but_first': all(ties[1:]),
      'layer_norm_epsilon': cfg.eps or (1e-12 if cfg.fidelity == 'tf' else 1e-5),
      'dropout': cfg.dropout,
      'dropatt': cfg.dropout_attention,
      **{name: values[0] for name, values in _FIXED.items() if name != 'ext_len'},
    }
  )


def _check(cfg: Any) -> None:
  """Raise InputError unless the class computes the same."""
  for wrong, field, expected in (
    (cfg.positions != 'sinusoids', 'positions', "'sinusoids'"),
    (cfg.recurrent not in (-1, cfg.N) and cfg.M > 0, 'recurrent', '-1, a memory of every layer'),
    (cfg.div_val > 1 and not cfg.project_same and (cfg.E or cfg.D) == cfg.D, 'project_same', 'True'),
    (cfg.M > 0 and cfg.fidelity == 'pytorch', 'fidelity', "'tf' or 'transformers', a memory that begins as zeros"),
  ):
    if wrong:
      raise InputError(
        f'model.{field}: got {getattr(cfg, field)!r}; expected {expected}; TransfoXLLMHeadModel supports no others'
      )


def tied(cfg: Any) -> list[Tied]:
  """Return the tensors that repeat others."""
  count = len(cfg.cutoffs) + 1
  repeated = [
    Tied(f'crit.out_layers.{i}.weight', f'transformer.word_emb.emb_layers.{i}.weight')
    for i in range(count if cfg.div_val > 1 else 1)
    if cfg.tied
  ]
  if _is_projected(cfg):
    once = cfg.div_val == 1
    for i, tie in enumerate(_ties(cfg)):
      if tie:
        repeated.append(Tied(f'crit.out_projs.{i}', f'{_PROJECTIONS}.{0 if once else i}'))
      elif once and i and cfg.tie_projections == 'none':  # one for all
        repeated.append(Tied(f'crit.out_projs.{i}', 'crit.out_projs.0'))
  if not cfg.untie:
    names = [f'{i}.dec_attn.{bias}' for i in range(cfg.N) for bias in ('r_w_bias', 'r_r_bias')]
    repeated += [Tied(f'transformer.layers.{name}', f'transformer.{name.split(".")[-1]}') for name in names]
  return repeated


def _is_projected(cfg: Any, width: int = 0) -> bool:
  """Return True if a table of that width, or with 0 any table, has a projection."""
  if width:
    return width != cfg.D or (cfg.div_val > 1 and cfg.project_same)
  return cfg.div_val > 1 or (cfg.E or cfg.D) != cfg.D


def entries(cfg: Any) -> list[Entry]:
  """Return the entry of every parameter."""
  D, H, K = cfg.D, cfg.H, cfg.D // cfg.H
  parameters = _tables(cfg)
  if cfg.cutoffs:
    count = len(cfg.cutoffs)
    parameters += [
      same('model/output/clusters/kernel', 'crit.cluster_weight', count, cfg.E or D),
      same('model/output/clusters/bias', 'crit.cluster_bias', count),
    ]
  biases = (('u', 'r_w_bias'), ('v', 'r_r_bias'))
  if not cfg.untie:
    parameters += [same(f'model/bias/{ours}_HK', f'transformer.{theirs}', H, K) for ours, theirs in biases]
  for i in range(cfg.N):
    ours, theirs = f'model/layer_{i:02d}', f'transformer.layers.{i}'
    attention = f'{theirs}.dec_attn'
    parameters += [
      reshaped(f'{ours}/attention/qkv', f'{attention}.qkv_net.weight', (3 * D, D), (D, 3, H, K), flip=True),
      reshaped(f'{ours}/attention/r/kernel', f'{attention}.r_net.weight', (D, D), (D, H, K), flip=True),
      reshaped(f'{ours}/attention/out/kernel', f'{attention}.o_net.weight', (D, D), (H, K, D), flip=True),
      *norm(f'{ours}/norm_1', f'{attention}.layer_norm', D),
      *linear(f'{ours}/mlp/in', f'{theirs}.pos_ff.CoreNet.0', cfg.F, D),
      *linear(f'{ours}/mlp/out', f'{theirs}.pos_ff.CoreNet.3', D, cfg.F),
      *norm(f'{ours}/norm_2', f'{theirs}.pos_ff.layer_norm', D),
    ]
    if cfg.untie:
      parameters += [same(f'{ours}/attention/{name}', f'{attention}.{bias}', H, K) for name, bias in biases]
  return parameters


def _tables(cfg: Any) -> list[Entry]:
  """Return the entries of the embedding tables, biases and projections of the input and the output."""
  E, D = cfg.E or cfg.D, cfg.D
  edges = [0, *cfg.cutoffs, cfg.V] if cfg.div_val > 1 else [0, cfg.V]
  parameters = []
  for i, (start, end) in enumerate(zip(edges, edges[1:], strict=False)):
    ending, width = (f'_{i}', E // cfg.div_val**i) if cfg.div_val > 1 else ('', E)
    parameters += [
      same(f'model/embed/tokens{ending}', f'transformer.word_emb.emb_layers.{i}.weight', end - start, width),
      same(f'model/output/bias{ending}', f'crit.out_layers.{i}.bias', end - start),
    ]
    if not cfg.tied:
      parameters.append(same(f'model/output/tokens{ending}', f'crit.out_layers.{i}.weight', end - start, width))
    if _is_projected(cfg, width):
      parameters.append(transposed(f'model/embed/projection{ending}', f'{_PROJECTIONS}.{i}', D, width))
    if cfg.div_val > 1 and not _ties(cfg)[i] and _is_projected(cfg, width):
      parameters.append(transposed(f'model/output/projection{ending}', f'crit.out_projs.{i}', D, width))
  if cfg.div_val == 1 and E != D:
    count = {'none': 1, 'head': 1, 'clusters': len(cfg.cutoffs) + 1}.get(cfg.tie_projections, 0)
    name = lambda i: 'projection' if cfg.tie_projections == 'none' else f'projection_{i}'
    parameters += [transposed(f'model/output/{name(i)}', f'crit.out_projs.{i}', D, E) for i in range(count)]
  return parameters
