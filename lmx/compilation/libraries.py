"""Operations of NVIDIA library calls, for which a program (HLO) only has names and arrays."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_CONTRACTED = r'"lhs_contracting_dimensions": ?\[([^\]]*)\]'
PRODUCTS = {'': 2, 'Backward': 5}  # of attention: the backward pass computes the scores again
PASSES = {'': 1, '_bwd': 2}  # of an LSTM layer


def operations(text: str, operands: Sequence[Sequence[int]]) -> int:
  """Return a custom call's operations, 2 per multiply-add; 0 unless it is a cuBLAS product or cuDNN attention or LSTM.

  Attention counts all scores regardless of the mask, as in `lmx.engine.flops`.

  Args:
    text: its instruction, starting with the result type.
    operands: shapes of its operands.
  """
  if 'custom_call_target="__cublas$' in text:
    result, contracted = re.match(r'\(?\w+\[([\d,]*)\]', text), re.search(_CONTRACTED, text)
    assert result is not None and contracted is not None, text
    axes = [operands[0][int(axis)] for axis in re.findall(r'\d+', contracted.group(1))]
    return 2 * math.prod(map(int, re.findall(r'\d+', result.group(1)))) * math.prod(axes)
  attention = re.search(r'custom_call_target="__cudnn\$fmha[A-Za-z]*?Softmax(?:Dropout)?(|Backward)"', text)
  if attention:
    scores = re.search(r'"intermediate_tensor_shape".*?"dimensions": ?\[([^\]]*)\]', text)
    sizes = re.findall(r'\d+', scores.group(1)) if scores else []
    return PRODUCTS[attention.group(1)] * 2 * math.prod(map(int, sizes)) * operands[0][-1] if sizes else 0
  lstm = re.search(r'custom_call_target="cudnn_rnn(|_bwd)_ffi"', text)
  if lstm:
    first = 3 if lstm.group(1) else 0  # the backward pass reads the gradients of the three outputs before
    (B, T, E), D = operands[first], operands[first + 1][-1]
    return PASSES[lstm.group(1)] * 2 * B * T * 4 * D * (E + D)
  return 0
