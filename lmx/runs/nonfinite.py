"""nonfinite.jsonl: a line for each update with a non-finite loss."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from etils import epath


def record(workdir: epath.Path, update: int, metrics: Mapping[str, Any], batch: Mapping[str, np.ndarray]) -> str:
  """Append an update to nonfinite.jsonl; return its loss, gradient norm and learning rate as text."""
  index_B = np.asarray(batch['index_B'])
  values: dict[str, Any] = {
    'step': update,
    'loss': float(metrics['loss']),
    'grad_norm': float(metrics['grad_norm']),
    'learning_rate': float(metrics['lr']),
    'batch_indices': index_B[index_B >= 0].tolist(),
  }
  if jax.process_index() == 0:
    with (workdir / 'nonfinite.jsonl').open('a', encoding='utf-8') as file:
      file.write(json.dumps({k: v if np.all(np.isfinite(v)) else str(v) for k, v in values.items()}) + '\n')
  return (
    f'update {update}: loss {values["loss"]}, gradient norm {values["grad_norm"]}, '
    f'learning rate {values["learning_rate"]:.3g}'
  )
