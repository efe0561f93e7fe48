"""Settings of GPT's experiments (Radford et al. 2018), also used by GPT-2 and others."""

from __future__ import annotations

from typing import Any

SPECIAL_TOKENS = ('_start_', '_delimiter_', '_classify_')  # of a row (Radford et al. 2018, section 3.3), as released


def dropout(rate: float) -> dict[str, float]:
  """Return one dropout rate for all three Config fields of gpt and gpt2."""
  return {'dropout_embedding': rate, 'dropout_attention': rate, 'dropout_residual': rate}


def lstm(dtype: str) -> dict[str, Any]:
  """Return the model of "LSTM w/ aux LM" (table 5): one layer of 2048 units, with dropout as of the Transformer."""
  return {'name': 'rnn_lm', 'N': 1, 'D': 2048, 'E': 768, 'dropout': 0.1, 'dtype': dtype}
