"""ELMo under the names in allenai/bilm-tf's weights.hdf5, which AllenNLP also reads; transformers has no such class.

With w the width of a convolution, n its number of filters, E the character embedding width, F the total number of
filters, P the projection width and H the LSTM cells:

  char_embed (261, E); CNN/W_cnn_i (1, w, E, n), CNN/b_cnn_i (n,); CNN_high_i/{W_carry, W_transform} (F, F) and b_*;
  CNN_proj/{W_proj (F, P), b_proj}; RNN_d/RNN/MultiRNNCell/Cell_i/LSTMCell/{W_0 (P + P, 4H), B (4H,), W_P_0 (H, P)}

Here d is 0 forward and 1 backward, and the gate order is i j f o, as in lmx/layers/projected_lstm.py. Cell_i is
written without the underscore. The weights have no output layer. `lmx/interop/elmo.py` reads and writes the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lmx.interop.huggingface.entry import Entry, Tied, reshaped, same

PREFIX, BARE = '', '(?!)'
BUFFERS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {}


def tied(cfg: Any) -> list[Tied]:
  """Return the tensors that repeat others."""
  del cfg
  return []


def entries(cfg: Any) -> list[Entry]:
  """Return the entry of every parameter except the output layer's."""
  E, P, H = cfg.characters, cfg.projection, cfg.cells
  F = sum(number for _, number in cfg.filters)
  parameters = [same('model/embed/characters', 'char_embed', 261, E)]
  for i, (width, number) in enumerate(cfg.filters):
    ours, shape = f'model/embed/convolution_{i}', (width, E, number)
    parameters.append(reshaped(f'{ours}/kernel', f'CNN/W_cnn_{i}', (1, *shape), shape))
    parameters.append(same(f'{ours}/bias', f'CNN/b_cnn_{i}', number))
  for i in range(cfg.highways):
    ours, theirs = f'model/embed/highway_{i}', f'CNN_high_{i}'
    parameters += [
      same(f'{ours}/gate_kernel', f'{theirs}/W_carry', F, F),
      same(f'{ours}/gate_bias', f'{theirs}/b_carry', F),
      same(f'{ours}/kernel', f'{theirs}/W_transform', F, F),
      same(f'{ours}/bias', f'{theirs}/b_transform', F),
    ]
  parameters.append(same('model/embed/projection/kernel', 'CNN_proj/W_proj', F, P))
  parameters.append(same('model/embed/projection/bias', 'CNN_proj/b_proj', P))
  for i in range(cfg.N):
    for d, direction in enumerate(('forward', 'backward')):
      ours, theirs = f'model/layer_{i:02d}/{direction}', f'RNN_{d}/RNN/MultiRNNCell/Cell{i}/LSTMCell'
      parameters += [
        same(f'{ours}/kernel', f'{theirs}/W_0', 2 * P, 4 * H),
        same(f'{ours}/bias', f'{theirs}/B', 4 * H),
        same(f'{ours}/projection', f'{theirs}/W_P_0', H, P),
      ]
  return parameters
