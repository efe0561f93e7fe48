"""Optimization of word2vec's experiments, as released (word2vec.c)."""

from __future__ import annotations

from typing import Any


def sgd(architecture: str) -> dict[str, Any]:
  """Return SGD at rate 0.025 (CBOW 0.05), which decays linearly to 1e-4 of it."""
  lr = 0.05 if architecture == 'cbow' else 0.025
  return {'optimizer': 'sgd', 'lr': lr, 'schedule': 'linear', 'end_fraction': 1e-4}
