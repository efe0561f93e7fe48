"""AWD-LSTM under salesforce/awd-lstm-lm's names, which fastai prefixes; transformers has no such class.

`lmx/interop/awd_lstm.py` reads the files and maps all versions to these names. torch.nn.LSTM weights are (gates,
inputs) with gates i f g o. pytorch-qrnn weights are (gates, window times inputs) with gates z f o and the latest input
first. Tail vectors are in reverse cluster order: cluster 1 has the last (splitcross.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lmx.interop.huggingface.entry import Entry, Tied, same, transposed

PREFIX, BARE = '', '(?!)'
BUFFERS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {}
CLUSTERS = 'criterion.tail_vectors', 'criterion.tail_bias'


def tied(cfg: Any) -> list[Tied]:
  """Return the tensors that repeat others."""
  return [Tied('decoder.weight', 'encoder.weight')] if cfg.tied else []


def entries(cfg: Any) -> list[Entry]:
  """Return the entry of every parameter."""
  parameters = [same('model/embed/table', 'encoder.weight', cfg.V, cfg.E)]
  widths = [cfg.E] + [cfg.D] * (cfg.N - 1) + [cfg.E if cfg.tied else cfg.D]
  for i, (width_in, width) in enumerate(zip(widths, widths[1:], strict=False)):
    ours, theirs = f'model/layer_{i:02d}', f'rnns.{i}'
    if cfg.cell == 'qrnn':
      window = 1 if i else 2
      parameters += [
        transposed(f'{ours}/input', f'{theirs}.linear.weight', 3 * width, window * width_in),
        same(f'{ours}/bias', f'{theirs}.linear.bias', 3 * width),
      ]
      continue
    parameters += [
      transposed(f'{ours}/input', f'{theirs}.weight_ih_l0', 4 * width, width_in),
      transposed(f'{ours}/recurrent', f'{theirs}.weight_hh_l0', 4 * width, width),
      same(f'{ours}/bias', f'{theirs}.bias_ih_l0', 4 * width),
      same(f'{ours}/recurrent_bias', f'{theirs}.bias_hh_l0', 4 * width),
    ]
  if not cfg.tied:
    parameters.append(same('model/output/table', 'decoder.weight', cfg.V, cfg.D))
  parameters.append(same('model/output/bias', 'decoder.bias', cfg.V, group='bias'))
  if cfg.cutoffs:
    shapes = (len(cfg.cutoffs), widths[-1]), (len(cfg.cutoffs),)
    turn = lambda x: x[::-1]
    for part, name, shape in zip(('kernel', 'bias'), CLUSTERS, shapes, strict=True):
      path = ('model', 'output', 'clusters', part)
      parameters.append(Entry(path, (name,), shape, turn, lambda x: (x[::-1],)))
  return parameters
