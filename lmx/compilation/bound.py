"""Communication that the shardings of a training step need, with which a report compares that of its program.

Every collective counts its array once, the larger of operands and result, whichever its kind. On the links of a ring an
all-reduce sends that twice (a reduce-scatter and an all-gather) and the others once; only the estimate of seconds has
that factor, because the compiler for TPUs replaces reduce-scatters over more than one dimension of a slice by
all-reduces.
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
  """Return the bytes a chip of 'gradients' and 'parameters'; {} for one chip, or where activations are communicated.

  Gradients are reduced once, in `parallel.reduce_dtype`. Parameters that are sharded over 'fsdp' are gathered in the
  forward and in the backward pass, in the compute type, unless a compiler keeps them in between. Tables of the
  vocabulary are gathered once, because one pass reads each. Under fsdp both hold for every microbatch, because no chip
  has room for whole gradients or parameters. Where only the optimizer's state of a parameter is sharded, the updated
  parameter, or the part of it on a chip, is gathered once.
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
