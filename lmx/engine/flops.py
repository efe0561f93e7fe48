"""Cost of a model without running it: parameters, floating-point operations and memory.

Operations are counted in the traced program (its jaxpr): 2 per multiply-add of every matrix
product and convolution; a loop counts as often as it runs, a branch as its most expensive side.
Element-wise operations, softmax and normalisation are not counted, as usual for utilisation (Chowdhery
et al. 2022, PaLM, appendix B). `flops` counts the program as written;
`flops_per_token` counts attention as full products, so that a causal mask saves nothing and
values of different backends are comparable.

Activations are the values that the traced program stores from the forward for the backward pass.
XLA fuses some of them and adds workspace, so its own value (`compiled_memory`, which has to
compile) can be higher or lower.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from lmx import placement
from lmx.engine import devices
from lmx.types import Model, Objective, Params


def flops(function: Callable, *args: Any, **kwargs: Any) -> int:
  """Count the operations of `function(*args, **kwargs)`; arguments may be arrays or
  ShapeDtypeStructs."""
  return operations(jax.make_jaxpr(function)(*args, **kwargs).jaxpr)


def operations(jaxpr: core.Jaxpr) -> int:
  """Count the operations of a traced program."""
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
      return eqn.params['length'] * operations(eqn.params['jaxpr'].jaxpr)
    case 'cond':
      return max(operations(branch.jaxpr) for branch in eqn.params['branches'])
    case 'shard_map':  # the body has the shapes of one shard
      shards = math.prod(eqn.params['mesh'].shape[axis] for axis in eqn.params['newly_manual_axes'])
      return shards * operations(eqn.params['jaxpr'])
    case 'pallas_call':
      inner = sum(operations(jaxpr) for jaxpr in _jaxprs(eqn.params['jaxpr']))
      return math.prod(eqn.params['grid_mapping'].grid) * inner
    case _:  # jit, remat, custom derivatives; a while loop of unknown length counts once
      return sum(operations(jaxpr) for value in eqn.params.values() for jaxpr in _jaxprs(value))


def equations(jaxpr: core.Jaxpr, *, loops: bool = False) -> int:
  """Count the equations that a traced program executes; with `loops` only those in loops."""
  found = 0
  for eqn in jaxpr.eqns:
    match eqn.primitive.name:
      case 'scan':
        found += eqn.params['length'] * equations(eqn.params['jaxpr'].jaxpr)
      case 'cond':
        found += max(equations(branch.jaxpr, loops=loops) for branch in eqn.params['branches'])
      case _:
        inner = [jaxpr for value in eqn.params.values() for jaxpr in _jaxprs(value)]
        found += sum(equations(jaxpr, loops=loops) for jaxpr in inner) if inner else not loops
  return found


def _shape(var: Any) -> tuple[int, ...]:
  return var.aval.shape


def _dot(eqn: core.JaxprEqn) -> int:
  (contract, _), _ = eqn.params['dimension_numbers']
  left = _shape(eqn.invars[0])
  return 2 * math.prod(_shape(eqn.outvars[0])) * math.prod(left[axis] for axis in contract)


def _jaxprs(value: Any) -> Iterator[core.Jaxpr]:
  """Yield the programs inside a parameter of an equation."""
  if isinstance(value, core.ClosedJaxpr):
    yield value.jaxpr
  elif isinstance(value, core.Jaxpr):
    yield value
  elif isinstance(value, tuple | list):
    for item in value:
      yield from _jaxprs(item)


@dataclasses.dataclass(frozen=True)
class Task:
  """A model with its objective, the subject of most functions here.

  Attributes:
    model: module of lmx.models.
    cfg: its Config.
    objective: module of lmx.objectives.
    objective_cfg: its Config.
  """

  model: Model
  cfg: Any
  objective: Objective
  objective_cfg: Any

  def init(self, key: jax.Array) -> Params:
    """Return parameters as in the training step: {'model': ..., 'objective': ...}."""
    head = self.objective.init(self.objective_cfg, self.model, self.cfg, jax.random.fold_in(key, 1))
    return {'model': self.model.init(self.cfg, key), 'objective': head}

  def shapes(self) -> Params:
    """Return the shapes of `init`, without allocating memory."""
    return _shapes(self)

  @property
  def unit(self) -> str:
    """Name of a position: 'pixel' for an image model, else 'token'."""
    return 'pixel' if self.model.READS == 'images' else 'token'

  def positions(self, length: int) -> int:
    """Return the number of positions per row; an image has `length` rows and columns."""
    return length**2 if self.unit == 'pixel' else length

  def loss(self, params: Params, batch: Mapping[str, Any], state: Any, key: Any = None) -> Any:
    """Return the undivided sum of the loss terms."""
    out = self.objective.loss(self.objective_cfg, self.model, self.cfg, params, batch, state, key)
    return sum(out.sums.values())

  def arguments(self, batch: int, length: int) -> tuple[Any, ...]:
    """Return the shapes of (params, batch, state, key) of a training step."""
    state = jax.eval_shape(lambda: self.model.init_state(self.cfg, batch))
    key = jax.eval_shape(lambda: jax.random.key(0))
    rows = self.model.read_shapes(self.cfg, self.objective.shapes(self.objective_cfg, batch, length))
    return self.shapes(), rows, state, key


def random_batch(task: Task, batch: int, length: int, seed: int = 0) -> dict[str, np.ndarray]:
  """Return a batch of random tokens, or pixels, in the shapes of the objective; nothing is padding."""
  random = np.random.default_rng(seed)
  batch_arrays = {}
  cfg = task.objective_cfg
  labels = len(getattr(cfg, 'labels', ())) or getattr(cfg, 'classes', 0) or 2
  for name, leaf in task.arguments(batch, length)[1].items():
    if name.startswith('positions'):
      positions = random.permuted(np.tile(np.arange(length), (batch, 1)), axis=1)[:, : leaf.shape[1]]
      batch_arrays[name] = np.sort(positions, axis=1).astype(np.int32)
    elif leaf.dtype == np.uint8:  # images
      batch_arrays[name] = random.integers(256, size=leaf.shape, dtype=np.uint8)
    elif leaf.dtype == np.int32:
      is_binary = name in ('types_BT', 'next_B', 'predicate_BT')
      high = 2 if is_binary else labels if name.startswith('labels') else getattr(task.cfg, 'V', 2)
      batch_arrays[name] = random.integers(high, size=leaf.shape, dtype=np.int32)
    else:
      batch_arrays[name] = np.ones(leaf.shape, leaf.dtype)
  return batch_arrays


def _countable(task: Task) -> Task:
  """Return the same model in a countable form: one layer looped over, attention as plain products."""
  names = {field.name for field in dataclasses.fields(task.cfg)}
  changes: dict[str, Any] = {'scan': True} if 'scan' in names else {}
  kernel = getattr(task.cfg, 'attention', '')  # of some models, whether there is attention
  if isinstance(kernel, str) and kernel not in ('', 'xla', 'blocked', 'chunked'):
    changes['attention'] = 'xla'  # products inside a fused kernel cannot be counted
  if 'backend' in names and getattr(task.cfg, 'cell', '') == 'lstm':
    changes['backend'] = 'custom'  # nor does cuDNN's
  return dataclasses.replace(task, cfg=dataclasses.replace(task.cfg, **changes))


@functools.cache  # tracing 48 layers takes seconds, and several functions need it
def _shapes(task: Task) -> Params:
  return jax.eval_shape(task.init, jax.random.key(0))


def flops_per_token(task: Task, batch: int, length: int, training: bool) -> float:
  """Return the operations per input token, or pixel: of the loss, or with `training` of the loss and its gradient.

  With `training`, rematerialised computations count twice.
  """
  return loss_flops(task, task.arguments(batch, length)[1], training) / (batch * task.positions(length))


def part_flops(task: Task, part: tuple[int, int]) -> float:
  """Return the model FLOPs of a training step's (rows, tokens of a row): three times the loss's."""
  rows, length = part
  return 3 * rows * task.positions(length) * flops_per_token(task, rows, length, training=False)


def loss_flops(task: Task, batch: Mapping[str, Any], training: bool) -> int:
  """Return the operations of a batch's loss from its shapes; see `flops_per_token`."""
  return operations(traced_loss(task, batch, training))


def traced_loss(task: Task, batch: Mapping[str, Any], training: bool) -> core.Jaxpr:
  """Return the program of a batch's loss, or with `training` of the loss and its gradient, from the batch's shapes."""
  task = _countable(task)
  rows = next(iter(batch.values())).shape[0]
  params, _, state, key = task.arguments(rows, 1)
  if training:
    return jax.make_jaxpr(jax.value_and_grad(task.loss))(params, batch, state, key).jaxpr
  return jax.make_jaxpr(task.loss)(params, batch, state).jaxpr


def step_flops(task: Task, batch: Mapping[str, Any]) -> int:
  """Return the operations of a training step without recomputation: three times the loss's."""
  task = _countable(task)
  params, _, state, key = task.arguments(next(iter(batch.values())).shape[0], 1)
  return 3 * flops(task.loss, params, batch, state, key)


def rows(params: Params, prefix: str = '') -> list[tuple[str, tuple[int, ...], int]]:
  """Return (name, shape, count) of every parameter, in the order of the dictionary."""
  table = []
  for name, value in params.items():
    if isinstance(value, Mapping):
      table += rows(value, f'{prefix}{name}/')
    else:
      table.append((prefix + name, tuple(value.shape), math.prod(value.shape)))
  return table


def count(params: Params) -> int:
  """Return the number of parameters."""
  return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def size(tree: Any) -> int:
  """Return the total size of all leaves in bytes."""
  leaves = [leaf for leaf in jax.tree.leaves(tree) if not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)]
  return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def activations(task: Task, batch: int, length: int) -> int:
  """Return the bytes that the backward pass reads from the forward pass, without parameters and input."""
  args = task.arguments(batch, length)
  residuals = lambda params, *rest: jax.tree.leaves(jax.vjp(lambda p: task.loss(p, *rest), params)[1])
  with placement.scope(devices.of_process()):
    jaxpr = jax.make_jaxpr(residuals)(*args).jaxpr
  inputs = {id(var) for var in jaxpr.invars}
  stored = {id(v): v.aval for v in jaxpr.outvars if isinstance(v, core.Var) and id(v) not in inputs}
  return size(list(stored.values()))


def memory(task: Task, batch: int, length: int, optimizer_state: Any = None) -> dict[str, int]:
  """Return the memory of training and decoding with `batch` rows of `length` tokens, in bytes.

  Args:
    optimizer_state: its shapes; None is Adam's, two moments per parameter.

  Returns:
    'parameters', 'gradients', 'optimizer', 'activations', their sum 'training', and 'state': the carry or the
    key/value cache of `length` positions, for the whole batch.
  """
  parameters = size(task.shapes())
  sizes = {
    'parameters': parameters,
    'gradients': parameters,
    'optimizer': 2 * parameters if optimizer_state is None else size(optimizer_state),
    'activations': activations(task, batch, length),
  }
  sizes['training'] = sum(sizes.values())
  sizes['state'] = size(jax.eval_shape(lambda: task.model.init_state(task.cfg, batch, length)))
  return sizes


def compiled_memory(compiled: Any) -> int | None:
  """Return the bytes of XLA's plan for a compiled program (arguments, results, temporaries, less
  aliased ones)."""
  analysis = compiled.memory_analysis()
  if analysis is None:
    return None
  arrays = analysis.argument_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes
  return arrays + analysis.temp_size_in_bytes
