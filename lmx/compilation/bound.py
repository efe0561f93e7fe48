"""Communication that a training step's shardings require, for comparison with its program.

Every collective counts its larger side once, operands or result. In a ring an all-reduce sends it twice (a
reduce-scatter and an all-gather), the others once. Only the time estimate has that factor, because the TPU compiler
replaces reduce-scatters over several slice dimensions by all-reduces.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from lmx.compilation.program import Step
from lmx.engine.state import leaf_name
from lmx.models import registry


def of_step(step: Step) -> dict[str, int]:
  """Return the bytes per chip of 'gradients' and 'parameters'; {} for one chip, or if activations are communicated.

  Gradients are reduced once, in `parallel.reduce_dtype`. Parameters sharded over 'fsdp' are gathered in the forward and
  backward passes, in the compute type, unless the compiler keeps them in between. Vocabulary tables are gathered once,
  because only one pass reads each. Under fsdp both hold for every microbatch, because no chip can hold whole gradients
  or parameters. If only a parameter's optimizer state is sharded, the updated parameter, or a chip's part of it, is
  gathered once. An average of the parameters needs nothing: its shards are computed from those parameters.
  """
  mesh = step.engine.mesh.shape
  if step.engine.mesh.size == 1 or mesh['tensor'] > 1:
    return {}
  state = step.arguments[0]
  sharded = {leaf_name(path) for path, x in _leaves(state.opt_state) if 'data' in _axes(x)}
  vocabulary = {f'model/{name}' for name in registry.get(step.run.model_name).VOCABULARY}
  width = np.dtype(getattr(step.run.model, 'dtype', 'float32')).itemsize
  reduced = np.dtype(step.run.parallel.reduce_dtype).itemsize
  gradients = parameters = 0
  for path, x in _leaves(state.params):
    name, elements = leaf_name(path), math.prod(x.shape)
    passes = step.microbatches if 'fsdp' in _axes(x) else 1
    gradients += passes * elements * reduced
    if 'fsdp' in _axes(x):
      parameters += passes * elements * width * (1 if name in vocabulary else 2)
    if name in sharded:
      parameters += elements * x.dtype.itemsize // (mesh['fsdp'] if 'fsdp' in _axes(x) else 1)
  return {'gradients': gradients, 'parameters': parameters}


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
  return jax.tree_util.tree_leaves_with_path(tree)


def _axes(x: Any) -> set[str]:
  """Return the mesh axes that shard an array."""
  entries = x.sharding.spec if x.sharding is not None else ()
  return {axis for entry in entries for axis in ((entry,) if isinstance(entry, str) else entry or ())}
