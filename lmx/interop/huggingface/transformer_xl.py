"""Transformer-XL: `TransfoXLLMHeadModel` (transformers before 5), whose weights are the released TensorFlow ones.

It is models/transformer_xl.py: `proj_share_all_but_first` is tie_projections 'but_first', else 'none'; `untie_r` is
untie; the first cluster always has projections (`project_same`). Its memory is initialised with zeros, and with
`same_length` a query attends to mem_len keys. Output projections shared with the input are not written twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lmx.interop.huggingface.entry import Entry, Tied, linear, norm, reshaped, same, transposed

PREFIX, BARE = 'transformer.', r'(word_emb|layers|r_[wr]_bias)'


def _frequencies(x: np.ndarray) -> np.ndarray:
  """Return the frequencies of the sinusoids in the shape of x."""
  return 10_000.0 ** -(np.arange(x.size) / x.size)


BUFFERS = {r'transformer\.pos_emb\.inv_freq': _frequencies}


def tied(cfg: Any) -> list[Tied]:
  """Return the tensors that repeat others."""
  count = len(cfg.cutoffs) + 1 if cfg.div_val > 1 else 1
  return [Tied(f'crit.out_layers.{i}.weight', f'transformer.word_emb.emb_layers.{i}.weight') for i in range(count)]


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
    if cfg.div_val > 1:
      projection = f'transformer.word_emb.emb_projs.{i}'
      parameters.append(transposed(f'model/embed/projection{ending}', projection, D, width))
      if cfg.tie_projections == 'none' or (cfg.tie_projections == 'but_first' and i == 0):
        parameters.append(transposed(f'model/output/projection{ending}', f'crit.out_projs.{i}', D, width))
  return parameters
