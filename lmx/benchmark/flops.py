"""Cost of a model without running it: parameters, floating-point operations and memory.

Operations are counted in the traced program (its jaxpr): 2 per multiply-add of every matrix
product and convolution; a loop counts as often as it runs, a branch as its dearest side.
Element-wise work, softmax and normalisation are not counted, as usual for utilisation (Chowdhery
et al. 2022, PaLM, appendix B). `flops` counts the program as written;
`flops_per_token` counts attention as whole products, so that a causal mask saves nothing and
figures of different backends can be compared.

Activations are the values that the traced program keeps from the forward for the backward pass.
XLA fuses some away and adds workspace, so its own figure (`compiled_memory`, which has to
compile) can lie on either side.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from lmx.types import Model, Objective, Params

# Dense peak of one device in FLOP/s, by what `device_kind` says in lower case: bfloat16, float32.
# NVIDIA data sheets (without sparsity; SXM where there are several; float32 as TF32) and Google
# Cloud's TPU pages. The first that is found counts, so longer names come first.
PEAKS = {
  'h200': (989e12, 494e12),
  'gh200': (989e12, 494e12),
  'h100 pcie': (756e12, 378e12),
  'h100 nvl': (835e12, 417e12),
  'h100': (989e12, 494e12),
  'b200': (2250e12, 1125e12),
  'a100': (312e12, 156e12),
  'a10g': (70e12, 35e12),
  'l40s': (362e12, 183e12),
  'l4': (121e12, 60e12),
  'v100': (125e12, 15.7e12),  # float16
  't4': (65e12, 8.1e12),  # float16
  'tpu v6': (918e12, None),
  'tpu v5p': (459e12, None),
  'tpu v5 lite': (197e12, None),
  'tpu v5e': (197e12, None),
  'tpu v5': (459e12, None),
  'tpu v4': (275e12, None),
  'tpu v3': (61.5e12, None),  # JAX shows a core as a device: half a chip's 123
  'tpu v2': (22.5e12, None),  # half a chip's 45
}


def peak_flops(device_kind: str, dtype: str = 'bfloat16') -> float | None:
  """Return the dense peak in FLOP/s of one device, None where it is not known (CPUs)."""
  for name, (half, single) in PEAKS.items():
    if name in device_kind.lower():
      return single if dtype == 'float32' else half
  return None


def flops(function: Callable, *args: Any, **kwargs: Any) -> int:
  """Count the operations of `function(*args, **kwargs)`; arguments may be arrays or
  ShapeDtypeStructs."""
  return _count(jax.make_jaxpr(function)(*args, **kwargs).jaxpr)


def _count(jaxpr: core.Jaxpr) -> int:
  return sum(_count_one(eqn) for eqn in jaxpr.eqns)


def _count_one(eqn: core.JaxprEqn) -> int:
  match eqn.primitive.name:
    case 'dot_general':
      return _dot(eqn)
    case 'conv_general_dilated':
      kernel = _shape(eqn.invars[1])
      out_features = kernel[eqn.params['dimension_numbers'].rhs_spec[0]]
      return 2 * math.prod(_shape(eqn.outvars[0])) * math.prod(kernel) // out_features
    case 'scan':
      return eqn.params['length'] * _count(eqn.params['jaxpr'].jaxpr)
    case 'cond':
      return max(_count(branch.jaxpr) for branch in eqn.params['branches'])
    case 'pallas_call':
      inner = sum(_count(jaxpr) for jaxpr in _jaxprs(eqn.params['jaxpr']))
      return math.prod(eqn.params['grid_mapping'].grid) * inner
    case _:  # jit, remat, custom derivatives; a while loop whose length is not known counts once
      return sum(_count(jaxpr) for value in eqn.params.values() for jaxpr in _jaxprs(value))


def _shape(var: Any) -> tuple[int, ...]:
  return var.aval.shape


def _dot(eqn: core.JaxprEqn) -> int:
  (contract, _), _ = eqn.params['dimension_numbers']
  left = _shape(eqn.invars[0])
  return 2 * math.prod(_shape(eqn.outvars[0])) * math.prod(left[axis] for axis in contract)


def _jaxprs(value: Any) -> Iterator[core.Jaxpr]:
  """The programs inside a parameter of an equation."""
  if isinstance(value, core.ClosedJaxpr):
    yield value.jaxpr
  elif isinstance(value, core.Jaxpr):
    yield value
  elif isinstance(value, tuple | list):
    for item in value:
      yield from _jaxprs(item)


@dataclasses.dataclass(frozen=True)
class Task:
  """A model with its objective; what most functions here measure.

  Attributes:
    model: module of the contract.
    cfg: its Config.
    objective: module of lmx.objectives.
    objective_cfg: its Config.
  """

  model: Model
  cfg: Any
  objective: Objective
  objective_cfg: Any

  def init(self, key: jax.Array) -> Params:
    """Parameters as the train step has them: {'model': ..., 'objective': ...}."""
    head = self.objective.init(self.objective_cfg, self.model, self.cfg, jax.random.fold_in(key, 1))
    return {'model': self.model.init(self.cfg, key), 'objective': head}

  def shapes(self) -> Params:
    """The same as shapes, which takes no memory."""
    return _shapes(self)

  def loss(self, params: Params, batch: Mapping[str, Any], state: Any, key: Any = None) -> Any:
    """Sum of the terms of the loss, not divided."""
    out = self.objective.loss(self.objective_cfg, self.model, self.cfg, params, batch, state, key)
    return sum(out.sums.values())

  def arguments(self, batch: int, length: int) -> tuple[Any, ...]:
    """Shapes of (params, batch, state, key) of a training step."""
    state = jax.eval_shape(lambda: self.model.init_state(self.cfg, batch))
    key = jax.eval_shape(lambda: jax.random.key(0))
    rows = self.objective.shapes(self.objective_cfg, batch, length)
    if hasattr(self.model, 'read_shapes'):  # where the width of what is read is the model's to say
      rows = self.model.read_shapes(self.cfg, rows)
    return self.shapes(), rows, state, key


def random_batch(task: Task, batch: int, length: int, seed: int = 0) -> dict[str, np.ndarray]:
  """A batch of random tokens in the shapes that the objective gives; nothing is padding."""
  random = np.random.default_rng(seed)
  found = {}
  for name, leaf in task.arguments(batch, length)[1].items():
    if name.startswith('positions'):
      places = random.permuted(np.tile(np.arange(length), (batch, 1)), axis=1)[:, : leaf.shape[1]]
      found[name] = np.sort(places, axis=1).astype(np.int32)
    elif leaf.dtype == np.int32:
      high = 2 if name in ('types_BT', 'next_B') else getattr(task.cfg, 'V', 2)
      found[name] = random.integers(high, size=leaf.shape, dtype=np.int32)
    else:
      found[name] = np.ones(leaf.shape, leaf.dtype)
  return found


def _counted(task: Task) -> Task:
  """The same model in the form that can be counted: one layer looped over, attention as plain products."""
  names = {field.name for field in dataclasses.fields(task.cfg)}
  changes: dict[str, Any] = {'scan': True} if 'scan' in names else {}
  if 'attention' in names and task.cfg.attention in ('auto', 'cudnn'):
    changes['attention'] = 'xla'  # a fused kernel shows no products
  if 'backend' in names and getattr(task.cfg, 'cell', '') == 'lstm':
    changes['backend'] = 'custom'  # nor does cuDNN's
  return dataclasses.replace(task, cfg=dataclasses.replace(task.cfg, **changes))


@functools.cache  # tracing 48 layers takes seconds, and several figures start from it
def _shapes(task: Task) -> Params:
  return jax.eval_shape(task.init, jax.random.key(0))


def flops_per_token(task: Task, batch: int, length: int, training: bool) -> float:
  """Operations per token of the input: of the loss, or with `training` of the loss and its
  gradient.

  With `training`, what the program computes twice (rematerialisation) counts twice.
  """
  task = _counted(task)
  params, rows, state, key = task.arguments(batch, length)
  if training:
    total = flops(jax.value_and_grad(task.loss), params, rows, state, key)
  else:
    total = flops(task.loss, params, rows, state)
  return total / (batch * length)


def rows(params: Params, prefix: str = '') -> list[tuple[str, tuple[int, ...], int]]:
  """(name, shape, count) of every parameter, in the order of the dictionary."""
  found = []
  for name, value in params.items():
    if isinstance(value, Mapping):
      found += rows(value, f'{prefix}{name}/')
    else:
      found.append((prefix + name, tuple(value.shape), math.prod(value.shape)))
  return found


def count(params: Params) -> int:
  """Number of parameters."""
  return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def size(tree: Any) -> int:
  """Bytes of all leaves."""
  leaves = [leaf for leaf in jax.tree.leaves(tree) if not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)]
  return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def activations(task: Task, batch: int, length: int) -> int:
  """Bytes that the backward pass reads from the forward pass, without parameters and input."""
  args = task.arguments(batch, length)
  keep = lambda params, *rest: jax.tree.leaves(jax.vjp(lambda p: task.loss(p, *rest), params)[1])
  jaxpr = jax.make_jaxpr(keep)(*args).jaxpr
  given = {id(var) for var in jaxpr.invars}
  kept = {id(v): v.aval for v in jaxpr.outvars if isinstance(v, core.Var) and id(v) not in given}
  return size(list(kept.values()))


def memory(task: Task, batch: int, length: int, optimizer_state: Any = None) -> dict[str, int]:
  """Bytes of training and of decoding with `batch` rows of `length` tokens.

  Args:
    optimizer_state: its shapes; None = Adam's, two moments a parameter.

  Returns:
    'parameters', 'gradients', 'optimizer', 'activations', their sum 'training', and 'state': a row's carry or the
    key/value cache of `length` positions, for the whole batch.
  """
  parameters = size(task.shapes())
  found = {
    'parameters': parameters,
    'gradients': parameters,
    'optimizer': 2 * parameters if optimizer_state is None else size(optimizer_state),
    'activations': activations(task, batch, length),
  }
  found['training'] = sum(found.values())
  found['state'] = size(jax.eval_shape(lambda: task.model.init_state(task.cfg, batch, length)))
  return found


def compiled_memory(compiled: Any) -> int | None:
  """Bytes that XLA plans for a compiled program (arguments, results, temporaries, less what they
  share)."""
  found = compiled.memory_analysis()
  if found is None:
    return None
  held = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
  return held + found.temp_size_in_bytes


def process_peak() -> int:
  """Largest resident set of this process so far, in bytes."""
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  return peak if sys.platform == 'darwin' else peak * 1024  # kilobytes elsewhere
