"""Communication that a training step's shardings require, for comparison with its program.

Every collective counts its larger side once, operands or result. In a ring an all-reduce sends it twice (a
reduce-scatter and an all-gather), the others once. Only the time estimate has that factor, because the TPU compiler
replaces reduce-scatters over several slice dimensions by all-reduces.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from lmx.compilation.program import Step
from lmx.engine import VOCABULARY_TABLE
from lmx.engine.state import leaf_name
from lmx.layout import stack_range
from lmx.models import registry

STATISTICS = 3 * 4  # bytes of the loss of a prediction over a sharded vocabulary: maximum, sum and logit of the target


def of_step(step: Step) -> dict[str, int]:
  """Return the bytes per chip of 'gradients', 'parameters' and, under tensor, 'activations'.

  {} for one chip, and for tables under tensor that are read by row.

  Gradients are reduced once, in `parallel.reduce_dtype`. Parameters sharded over 'fsdp' are gathered in the forward and
  backward passes, in the compute type, unless the compiler keeps them in between. Vocabulary tables are gathered once,
  because only one pass reads each. Under fsdp both hold for every microbatch, because no chip can hold whole gradients
  or parameters. If only a parameter's optimizer state is sharded, the updated parameter, or a chip's part of it, is
  gathered once. An average of the parameters needs nothing: its shards are computed from those parameters. Of a
  parameter sharded over 'tensor' a chip communicates its part.
  """
  mesh = step.engine.mesh.shape
  if step.engine.mesh.size == 1 or (mesh['tensor'] > 1 and registry.get(step.run.model_name).ROW_TABLES):
    return {}
  state = step.arguments[0]
  sharded = {leaf_name(path) for path, x in _leaves(state.opt_state) if 'data' in _axes(x)}
  vocabulary = {f'model/{name}' for name in registry.get(step.run.model_name).VOCABULARY}
  width = _width(step)
  reduced = np.dtype(step.run.parallel.reduce_dtype).itemsize
  gradients = parameters = 0
  for path, x in _leaves(state.params):
    name, elements = leaf_name(path), math.prod(x.shape) // (mesh['tensor'] if 'tensor' in _axes(x) else 1)
    passes = step.microbatches if 'fsdp' in _axes(x) else 1
    gradients += passes * elements * reduced if step.engine.row_shards > 1 else 0
    if 'fsdp' in _axes(x):
      parameters += passes * elements * width * (1 if name in vocabulary else 2)
    if name in sharded:
      parameters += elements * x.dtype.itemsize // (mesh['fsdp'] if 'fsdp' in _axes(x) else 1)
  activations = {'activations': _activations(step)} if mesh['tensor'] > 1 else {}
  return {'gradients': gradients, 'parameters': parameters, **activations}


def _activations(step: Step) -> int:
  """Return the bytes of activations that a chip adds over 'tensor'.

  Vectors are in the compute type: those of the layers, those looked up in a table that is sharded by token, and the
  gradient of the input of the product with it. The loss adds statistics of each prediction.
  """
  batch = step.arguments[2]
  count = lambda *names: sum(math.prod(x.shape[1:]) for name, x in batch.items() if name.startswith(names))
  sharded = {leaf_name(path): x.shape for path, x in _leaves(step.arguments[0].params) if 'tensor' in _axes(x)}
  elements = _of_layers(sharded, count('source_BS'), count('tokens_') + count('positions_') * ('order_BT' in batch))
  tables = [shape for name, shape in sharded.items() if re.search(VOCABULARY_TABLE, name)]
  if not tables:
    return step.rows // step.engine.row_shards * elements * _width(step)
  predictions = count('targets_')
  elements += tables[0][-1] * (count('tokens_', 'source_BS') + predictions)
  return step.rows // step.engine.row_shards * (elements * _width(step) + predictions * STATISTICS)


def _of_layers(sharded: Mapping[str, tuple[int, ...]], source: int, target: int) -> int:
  """Return the elements per row of the vectors that layers add over 'tensor'.

  Of each pair of matrices, such as those of attention, these are the output forward and the input's gradient backward
  (Shoeybi et al. 2019, arXiv 1909.08053, section 3), and once the gradient of an encoder's output.

  Args:
    sharded: name -> shape of the parameters that are sharded over 'tensor'.
    source: positions of a row in an encoder, 0 if there is none.
    target: positions of a row in other layers.
  """
  decoders = {name.partition('/cross/')[0] for name in sharded if '/cross/' in name}
  total = 0
  for name, shape in sharded.items():
    found = re.match(r'(.*?([^/]+))/(attention|cross|mlp)/out/(kernel|quaternions)$', name)
    if found:
      width = shape[-1] * (4 if found[4] == 'quaternions' else 1)
      positions = source if source and found[1] not in decoders else target
      total += 2 * width * positions * max(1, len(stack_range(found[2])))
      total += width * source if found[3] == 'cross' and found[1] == min(decoders) else 0
  return total


def _width(step: Step) -> int:
  """Return the bytes of an element of the compute type."""
  return np.dtype(getattr(step.run.model, 'dtype', 'float32')).itemsize


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
  return jax.tree_util.tree_leaves_with_path(tree)


def _axes(x: Any) -> set[str]:
  """Return the mesh axes that shard an array."""
  entries = x.sharding.spec if x.sharding is not None else ()
  return {axis for entry in entries for axis in ((entry,) if isinstance(entry, str) else entry or ())}
