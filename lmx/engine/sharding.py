"""A step on many devices: sharded arrays on a mesh under `jit`, or the same step under `pmap`.

`jit` is the default. The mesh has the axes 'data', 'fsdp' and 'tensor'. Rows of a batch are sharded over data x fsdp;
parameters (with the optimizer's moments and the average) over fsdp and tensor, by rules on their names; moments and
average over data too. TPU slices are along 'data': only gradients and optimizer shards cross the network between them.
XLA inserts the collectives. `pmap` is data-parallel only: every device holds all parameters, and the step reduces with
`psum`. Both start from and return the same global arrays (`to_global`, `from_global`), so a checkpoint is independent
of the mode and of the number of devices.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.experimental.layout import Format, Layout
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from lmx import placement
from lmx.engine import MESH_AXES, VOCABULARY_TABLE, Config, Rule, precision
from lmx.engine.devices import compiler_options, of_devices
from lmx.engine.state import leaf_name
from lmx.engine.step import Reduction
from lmx.errors import InputError
from lmx.kernels.implementations import find_except
from lmx.layout import layer_name, resize, stack_range

ROWS = PartitionSpec(('data', 'fsdp'))

# Shoeybi et al. 2019, arXiv 1909.08053, section 3: the first matrix of a pair is sharded along its outputs, the second
# along its inputs, attention along heads, and embedding and output along the vocabulary. Dimensions that the axis does
# not divide are replicated. So are recurrent layers, which would communicate at every time step.
TENSOR_RULES: tuple[Rule, ...] = (
  (r'attention/qkv(/kernel)?$', (None, None, 'tensor', None)),
  (r'attention/qkv/bias$', (None, 'tensor', None)),
  (r'(attention|cross)/[qr]/kernel$', (None, 'tensor', None)),
  (r'(attention|cross)/q/bias$', ('tensor', None)),
  (r'(attention|cross)/kv/kernel$', (None, None, 'tensor', None)),
  (r'(attention|cross)/kv/bias$', (None, 'tensor', None)),
  (r'(attention|cross)/out/kernel$', ('tensor', None, None)),
  (r'(attention|bias)/[uvs](_HK)?$', ('tensor', None)),
  (r'(attention|cross)/(qkv|kv)/quaternions$', (None, None, None, 'tensor')),
  (r'((attention|cross)/q|mlp/in)/quaternions$', (None, None, 'tensor')),
  (r'(attention|cross|mlp)/out/quaternions$', (None, 'tensor', None)),
  (r'mlp/in/kernel$', (None, 'tensor')),
  (r'mlp/in/bias$', ('tensor',)),
  (r'mlp/out/kernel$', ('tensor', None)),
  (VOCABULARY_TABLE, ('tensor', None)),
  (r'output/layer_\d+/\w+/table$', ('tensor', None)),
  (r'output/layer_\d+/\w+/bias$', ('tensor',)),
  (r'output/kernel$', (None, 'tensor')),
  (r'(output|mlm)/bias$', ('tensor',)),
)


class Engine:
  """The devices of a run, the placement of its arrays, and the two ways to compile a step.

  Attributes:
    cfg: the `parallel` section.
    mesh: the mesh over MESH_AXES.
    placement: see lmx/placement.py.
    row_shards: number of shards of the rows of a batch.
  """

  def __init__(
    self,
    cfg: Config,
    devices: Sequence[jax.Device] | None = None,
    matmul_precision: str = 'float32',
    row_tables: Sequence[str] = (),
  ):
    """Arrange the devices of steps.

    Args:
      cfg: the `parallel` section.
      devices: the devices; None: all.
      matmul_precision: precision at which the steps are compiled.
      row_tables: names below 'model' of the tables that the training step reads by row, see `formats`.

    Raises:
      InputError: the product of the axes exceeds the number of devices, or leaves devices unused where all are needed,
        or slices do not divide 'data'.
    """
    self.cfg, self.matmul_precision = cfg, matmul_precision
    self._row_tables = {f'model/{name}' for name in row_tables}
    devices = list(jax.devices() if devices is None else devices)
    slices = len(set(map(_slice, devices)))
    least = cfg.data if cfg.data > 0 else slices
    fsdp = cfg.fsdp if cfg.fsdp > 0 else max(len(devices) // (least * cfg.tensor), 1)
    data = cfg.data if cfg.data > 0 else max(len(devices) // (fsdp * cfg.tensor), 1)
    needed = data * fsdp * cfg.tensor
    sizes = f'data {data} x fsdp {fsdp} x tensor {cfg.tensor} = {needed}'
    if needed > len(devices) or (-1 in (cfg.data, cfg.fsdp) and needed != len(devices)):
      raise InputError(f'parallel: got {sizes} devices, but there are {len(devices)}')
    if data % slices:
      raise InputError(
        f'parallel.data: got {sizes} devices; expected a multiple of the {slices} slices, because parameters '
        'are not sharded over slices; set parallel.data=-1, and fsdp and tensor to divisors of the chips per '
        'slice'
      )
    if needed != len(devices) and jax.process_count() > 1:
      raise InputError(f'parallel: got {sizes} devices; expected all {len(devices)} of the processes')
    self.mesh = _mesh(cfg.mode, devices[:needed], (data, fsdp, cfg.tensor))
    self.row_shards = data * fsdp
    reduce_dtype = cfg.reduce_dtype if fsdp > 1 else 'float32'  # without fsdp, `reduction` rounds
    self.placement = of_devices(devices, self.mesh, mapped=cfg.mode == 'pmap', reduce_dtype=reduce_dtype)
    logits = {'auto': 'bfloat16' if self.placement.platform == 'gpu' else 'float32'}.get(cfg.logits_dtype)
    self._training = dataclasses.replace(
      self.placement, implementation=find_except(cfg.equations), logits=logits or cfg.logits_dtype
    )
    self._whole = NamedSharding(self.mesh, PartitionSpec())
    self._rows = NamedSharding(self.mesh, ROWS)
    # pmap's arrays are process-local; with this initial placement they are neither copied nor traced twice.
    self._local = [d for d in self.mesh.devices.flat if d.process_index == jax.process_index()]
    local_mesh = Mesh(np.array(self._local), ('data',), axis_types=(AxisType.Auto,))
    self._pmap_whole = NamedSharding(local_mesh, PartitionSpec())
    self._pmap_rows = NamedSharding(local_mesh, PartitionSpec('data'))
    self._resize = jax.jit(self._resize_rows, static_argnums=1)

  # Rows

  def process_rows(self, batch_size: int) -> slice:
    """Return the rows of a global batch that this process must load.

    Raises:
      InputError: the devices do not divide the rows.
    """
    if batch_size < 1 or batch_size % self.row_shards:
      raise InputError(
        f'batch: got {batch_size} rows; expected a multiple of {self.row_shards}, the number of devices that '
        'share them; pad it with rows of weight 0 (Batches.pad_rows)'
      )
    spans = {
      index[0].indices(batch_size)[:2]
      for index in self._rows.addressable_devices_indices_map((batch_size,)).values()
      if index is not None
    }
    start, stop = min(s[0] for s in spans), max(s[1] for s in spans)
    if sum(s[1] - s[0] for s in spans) != stop - start:
      raise RuntimeError(f'the rows of process {jax.process_index()} are not contiguous: {sorted(spans)}')
    return slice(start, stop)

  def put_batch(self, rows: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Turn this process's rows into the step's batch.

    Args:
      rows: key -> array whose leading axis are the rows of `process_rows`.
    """
    if self.cfg.mode == 'pmap':
      return {key: jax.device_put(self._fold(np.asarray(x)), self._pmap_rows) for key, x in rows.items()}
    return {key: self._global_rows(np.asarray(x)) for key, x in rows.items()}

  def _fold(self, x: Any) -> Any:
    """Reshape (rows of this process, ...) to (devices of this process, rows of one device, ...)."""
    n = len(self._local)
    return x.reshape((n, x.shape[0] // n) + x.shape[1:])

  def _global_rows(self, x: np.ndarray) -> jax.Array:
    mine = self.process_rows(self.row_shards)
    total = x.shape[0] * self.row_shards // (mine.stop - mine.start)
    return jax.make_array_from_process_local_data(self._rows, x, (total,) + x.shape[1:])

  # Placement

  def shardings(self, state: Any) -> Any:
    """Return the sharding of each leaf of a training state, arrays or shapes.

    Raises:
      InputError: a rule of the config matches no name, or does not fit the array that it matches.
    """
    if self.cfg.mode == 'pmap':
      return jax.tree.map(lambda _: self._whole, state)
    used: set[str] = set()
    shardings = jax.tree_util.tree_map_with_path(
      lambda path, leaf: NamedSharding(self.mesh, self._leaf_spec(path, leaf.shape, used)),
      state,
    )
    for regex, _ in self.cfg.rules:
      if regex not in used:
        raise InputError(f'parallel.rules: "{regex}" is not the first match of any parameter')
    return shardings

  def _leaf_spec(self, path: Sequence[Any], shape: tuple[int, ...], used: set[str]) -> PartitionSpec:
    """Return the mesh axes of an array of the training state.

    The optimizer's state and the average of the parameters have 'data' in addition, because only the update reads them.
    A table that is read by row is sharded by rows over 'fsdp' too, where they divide.
    """
    name, sizes = leaf_name(path), self.mesh.shape
    spec = _spec(self.cfg, sizes, name, shape, used)
    is_ruled = any(re.search(regex, name) for regex, _ in self.cfg.rules)
    if name in self._row_tables and not is_ruled and shape[0] % (sizes['fsdp'] * sizes['tensor']) == 0:
      spec = PartitionSpec(tuple(axis for axis in ('fsdp', 'tensor') if sizes[axis] > 1) or None)
    of_update = bool(path) and getattr(path[0], 'name', '') in ('opt_state', 'ema')
    if not (self.cfg.shard_optimizer and of_update and sizes['data'] > 1 and np.prod(shape) >= self.cfg.min_size):
      return spec
    return _with_data(spec, sizes, _stacked_axes(name), shape)

  def formats(self, state: Any) -> Any:
    """Return the sharding of each leaf of a training state, and the memory layout of tables that are read by row.

    Such a table is row-major. A TPU's default for one whose width is no multiple of 128 is column-major, so a step
    would transpose it before its first update and after its last.
    """
    if self.cfg.mode == 'pmap':
      return self.shardings(state)

    def format_leaf(path: Any, x: Any, sharding: NamedSharding) -> Any:
      is_table = leaf_name(path) in self._row_tables
      return Format(Layout(tuple(range(len(x.shape)))), sharding) if is_table else sharding

    return jax.tree_util.tree_map_with_path(format_leaf, state, self.shardings(state))

  def abstract(self, state: Any, model_state: Any) -> tuple[Any, Any]:
    """Return the shapes and formats of the global arrays, for a checkpoint to restore into (then `from_global`)."""
    with_sharding = lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s)
    shapes = jax.tree.map(with_sharding, state, self.formats(state))
    return shapes, jax.tree.map(lambda x: with_sharding(x, self._stored_rows(x.shape)), model_state)

  def _stored_rows(self, shape: tuple[int, ...]) -> NamedSharding:
    """Return the sharding of a model state's array in a checkpoint: over its first axis that the devices divide."""
    axis = next((i for i, n in enumerate(shape) if n % self.row_shards == 0), None)
    return self._whole if axis is None else NamedSharding(self.mesh, PartitionSpec(*(None,) * axis, *ROWS))

  def _resize_rows(self, model_state: Any, rows: int) -> Any:
    """Truncate or zero-pad a global model state to `rows` rows."""

    def resize_leaf(x: Any) -> Any:
      x = resize(x, rows)
      return jax.lax.with_sharding_constraint(x, self._stored_rows(x.shape))

    return jax.tree.map(resize_leaf, model_state)

  def step_arguments(
    self, create: Callable[..., Any], init_state: Callable[[], Any], batch: Mapping[str, jax.ShapeDtypeStruct]
  ) -> tuple[Any, ...]:
    """Return the shapes and shardings of the arguments of a compiled training step, without arrays.

    Args:
      create: pure function from a key to the training state.
      init_state: function that returns the model state of the global batch.
      batch: shapes of the global batch.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    state, model_state = jax.eval_shape(create, key), jax.eval_shape(init_state)
    if self.cfg.mode == 'pmap':
      n = self.row_shards
      fold = lambda x: jax.ShapeDtypeStruct((n, x.shape[0] // n, *x.shape[1:]), x.dtype)
      return state, jax.tree.map(fold, model_state), jax.tree.map(fold, dict(batch)), key
    place = lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
    rows = {name: place(x, self._rows) for name, x in batch.items()}
    return *self.abstract(state, model_state), rows, place(key, self._whole)

  def replicate(self, tree: Any) -> Any:
    """Replicate host values, such as the run's key, on every device."""
    if self.cfg.mode == 'pmap':
      return jax.tree.map(jnp.asarray, tree)
    return jax.tree.map(self._replicate_leaf, tree)

  def _replicate_leaf(self, x: Any) -> Any:
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
      data = self._replicate_leaf(jax.random.key_data(x))
      return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
    x = np.asarray(x)
    return jax.make_array_from_callback(x.shape, self._whole, lambda index: x[index])

  def scalar(self, value: Any) -> Any:
    """Return a host scalar as a leaf of the training state, such as the factor of the learning rate."""
    return self.build(lambda x: x, value) if self.cfg.mode == 'pmap' else self.replicate(value)

  def build(self, create: Callable[..., Any], *args: Any) -> Any:
    """Compute a training state in its sharding; no device holds more than its shards.

    Args:
      create: pure function to a state, the same in every process.
      args: its arguments, host values or replicated arrays.
    """
    args, create = self.replicate(args), precision.wrap(self.matmul_precision, create, self.placement)
    if self.cfg.mode == 'pmap':
      return jax.jit(create, out_shardings=self._pmap_whole)(*args)
    shapes = jax.eval_shape(create, *args)
    options = compiler_options(self.placement.platform)
    return jax.jit(create, out_shardings=self.formats(shapes), compiler_options=options)(*args)

  def place(self, params: Any) -> Any:
    """Shard parameters of this host; those already in their sharding are not copied."""
    if self.cfg.mode == 'pmap' or jax.process_count() > 1:
      return self.build(lambda tree: tree, params)
    return jax.device_put(params, self.formats(jax.eval_shape(lambda tree: tree, params)))

  def gather_average(self, params: Any) -> Any:
    """Return averaged parameters of the training state in the sharding of parameters, for evaluation."""
    return params if self.cfg.mode == 'pmap' else jax.device_put(params, self.formats(params))

  def build_rows(self, create: Callable[[], Any], batch_size: int) -> Any:
    """Compute a model state whose leaves have the `batch_size` rows of the global batch as leading axis."""
    rows = self.process_rows(batch_size)
    if self.cfg.mode == 'pmap':
      mine = lambda: jax.tree.map(lambda x: self._fold(x[rows]), create())
      return jax.jit(mine, out_shardings=self._pmap_rows)()
    return jax.jit(create, out_shardings=self._rows)()

  def to_global(self, state: Any, model_state: Any, batch_size: int) -> tuple[Any, Any]:
    """Return the global arrays that a checkpoint stores, from the output of the compiled step.

    Nothing is copied, unless the model state has rows of padding after the `batch_size` of the batch, which are left
    out: then a checkpoint is independent of the number of devices.
    """
    if self.cfg.mode == 'pmap':
      size = self.row_shards
      whole = lambda x: _rewrap(x, x.shape, self._whole)
      rows = lambda x: _rewrap(x, (size * x.shape[1],) + x.shape[2:], self._rows)
      state, model_state = jax.tree.map(whole, state), jax.tree.map(rows, model_state)
    return state, self._with_rows(model_state, batch_size)

  def from_global(self, state: Any, model_state: Any, padded_rows: int) -> tuple[Any, Any]:
    """Return the arguments of the compiled step, from global arrays with the shardings of `abstract`.

    The model state gets rows of zeros up to `padded_rows`.
    """
    model_state = self._with_rows(model_state, padded_rows)
    if self.cfg.mode == 'jit':
      return state, model_state
    size = self.row_shards
    whole = lambda x: _rewrap(x, x.shape, self._pmap_whole)
    rows = lambda x: _rewrap(x, (len(self._local), x.shape[0] // size) + x.shape[1:], self._pmap_rows)
    return jax.tree.map(whole, state), jax.tree.map(rows, model_state)

  def convert(self, function: Callable[[Any], Any], state: Any) -> Any:
    """Apply a pure function, such as a change of layout, to a state or parameters; the result has its sharding here."""
    state, _ = self.to_global(state, (), 0)
    out = self.formats(jax.eval_shape(function, state))
    return self.from_global(jax.jit(function, out_shardings=out)(state), (), 0)[0]

  def _with_rows(self, model_state: Any, rows: int) -> Any:
    return model_state if all(len(x) == rows for x in jax.tree.leaves(model_state)) else self._resize(model_state, rows)

  def to_one_device(self, params: Any) -> Any:
    """Gather the compiled step's parameters on this process's first device."""
    params, _ = self.to_global(params, (), 0)
    if jax.process_count() > 1:
      return multihost_utils.process_allgather(params, tiled=True)
    return jax.device_put(params, jax.local_devices()[0])

  # Compiling

  def constrain_replicated(self, x: Any) -> Any:
    """Replicate an array on every device, inside a step compiled by `jit`."""
    return x if self.cfg.mode == 'pmap' else jax.lax.with_sharding_constraint(x, self._whole)

  @property
  def reduction(self) -> Reduction:
    """Reduction of gradients over these devices."""
    if self.cfg.mode == 'pmap':
      return Reduction(dtype=self.cfg.reduce_dtype)
    place = lambda tree: jax.lax.with_sharding_constraint(tree, self.shardings(tree))
    if self.cfg.reduce_dtype != self.placement.reduce_dtype and self.row_shards > 1:
      return Reduction(place, self._by_device, self.cfg.reduce_dtype)
    return Reduction(place)

  def _by_device(self, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of (params, updates, key, batch, model_state) that is evaluated on each device's rows.

    Its results are five trees, reduced over `axis`, except the fourth, the model state.
    """

    def on_device(*args: Any) -> Any:
      with placement.scope(dataclasses.replace(self._training, mapped=True)):
        return function(*args, axis='data')

    whole = PartitionSpec()
    return jax.shard_map(
      on_device,
      mesh=self.mesh,
      in_specs=(whole, whole, whole, ROWS, ROWS),
      out_specs=(whole, whole, whole, ROWS, whole),
      check_vma=False,
    )

  def compile_train(self, step: Callable[..., Any], state: Any, *, donate: bool = True) -> Any:
    """Compile a training step, see `lmx.engine.step`.

    Args:
      step: the step.
      state: the training state, arrays or shapes.
      donate: let the new state reuse the memory of the old one.

    Returns:
      `(state, model_state, batch, key) -> (state, model_state, metrics)` over this engine's arrays.
    """
    arguments, step = (0, 1) if donate else (), precision.wrap(self.matmul_precision, step, self._training)
    if self.cfg.mode == 'pmap':
      return jax.pmap(
        functools.partial(step, axis='data'),
        'data',
        in_axes=(None, 0, 0, None),
        out_axes=(None, 0, None),
        devices=self._pmap_devices(),
        donate_argnums=arguments,
      )
    out = (self.formats(state), self._rows, self._whole)
    return jax.jit(step, out_shardings=out, donate_argnums=arguments, compiler_options=self._compiler_options())

  def compile_eval(self, step: Callable[..., Any]) -> Any:
    """Compile an evaluation step: `(params, model_state, batch) -> (metrics, model_state)`."""
    step = precision.wrap(self.matmul_precision, step, self.placement)
    if self.cfg.mode == 'pmap':
      return jax.pmap(
        functools.partial(step, axis='data'),
        'data',
        in_axes=(None, 0, 0),
        out_axes=(None, 0),
        devices=self._pmap_devices(),
      )
    options = compiler_options(self.placement.platform)
    return jax.jit(step, out_shardings=(self._whole, self._rows), compiler_options=options)

  def _compiler_options(self) -> dict[str, str]:
    """Return XLA's options for the training step.

    On a TPU, disables windowed products (one window per chip) for results reduced over chips: at these model widths a
    window is too narrow for the matrix unit. On a GPU, keeps the products of queries, keys and values separate: XLA
    would merge small ones and then copy the parts of the result.
    """
    if self.placement.platform == 'gpu':
      return {'xla_gpu_dot_merger_threshold_mb': '0'}
    if self.placement.platform != 'tpu':
      return compiler_options(self.placement.platform)
    return {'xla_jf_spmd_threshold_for_windowed_einsum_mib': '1000000'}

  def _pmap_devices(self) -> Any:
    return None if jax.process_count() > 1 else self._local


def _slice(device: jax.Device) -> int:
  """Return a TPU's slice index; 0 for every other device."""
  return int(getattr(device, 'slice_index', 0) or 0) if device.platform == 'tpu' else 0


def _mesh(mode: str, devices: Sequence[jax.Device], shape: tuple[int, ...]) -> Mesh:
  """Return a mesh with slices along 'data' and contiguous rows per process (`process_rows`).

  `jax.make_mesh` follows the links of a slice instead, which divides the chips of a host.
  """
  if mode == 'jit':  # `pmap` fixes the device order, so rows keep their device when they become global
    devices = sorted(devices, key=lambda device: (_slice(device), device.process_index, device.id))
  return Mesh(np.array(devices).reshape(shape), MESH_AXES, axis_types=(AxisType.Auto,) * 3)


def _rewrap(x: jax.Array, shape: tuple[int, ...], sharding: NamedSharding) -> jax.Array:
  """Return the same buffers on every device as an array of `shape` under `sharding`."""
  part = sharding.shard_shape(shape)
  parts = [s.data.reshape(part) for s in x.addressable_shards]
  return jax.make_array_from_single_device_arrays(shape, sharding, parts)


def _with_data(spec: PartitionSpec, sizes: Mapping[str, int], stacked: int, shape: tuple[int, ...]) -> PartitionSpec:
  """Return mesh axes with 'data' in addition, on the largest dimension after the `stacked` first that it divides."""
  axes = [(axis,) if isinstance(axis, str) else axis or () for axis in (*spec, *(None,) * (len(shape) - len(spec)))]
  shards = lambda i: sizes['data'] * math.prod(sizes[axis] for axis in axes[i])
  divided = [i for i, n in enumerate(shape) if n % shards(i) == 0 and i >= stacked]
  if divided:
    largest = max(divided, key=lambda i: shape[i])
    axes[largest] = (*axes[largest], 'data')
  return PartitionSpec(*(axis or None for axis in axes))


def _stacked_axes(name: str) -> int:
  """Return the number of leading axes of an array over stacked layers, which are not sharded."""
  return int(any(stack_range(part) for part in name.split('/')))


def _stacked_spec(
  cfg: Config, sizes: Mapping[str, int], name: str, shape: tuple[int, ...], used: set[str]
) -> PartitionSpec:
  """Return the mesh axis of each dimension of an array of stacked layers, which must agree on it."""
  stack = next(part for part in name.split('/') if stack_range(part))
  names = [name.replace(stack, layer_name(i), 1) for i in stack_range(stack)]
  for regex, _ in cfg.rules:
    matches = [layer for layer in names if re.search(regex, layer)]
    if 0 < len(matches) < len(names):
      raise InputError(
        f'parallel.rules "{regex}": got a rule for {matches[0]}, which is stacked with other layers in {stack}; '
        'set parallel.stack_layers=false, or use a rule for every layer'
      )
  return PartitionSpec(None, *_spec(cfg, sizes, names[0], shape[1:], used))


def _spec(cfg: Config, sizes: Mapping[str, int], name: str, shape: tuple[int, ...], used: set[str]) -> PartitionSpec:
  """Return the mesh axis that shards each dimension of the array `name`; layers of a stack are sharded as one."""
  if _stacked_axes(name):
    return _stacked_spec(cfg, sizes, name, shape, used)
  for regex, axes in cfg.rules:
    if len(shape) and re.search(regex, name):
      used.add(regex)
      if len(axes) > len(shape):
        raise InputError(f'parallel.rules "{regex}" has {len(axes)} dimensions, {name} has shape {shape}')
      for size, axis in zip(shape, axes, strict=False):
        if axis is not None and size % sizes[axis]:
          raise InputError(
            f'parallel.rules "{regex}": {name} has shape {shape}, and {axis} {sizes[axis]} does not divide {size}'
          )
      return PartitionSpec(*axes)
  spec: list[str | None] = [None] * len(shape)
  for regex, axes in TENSOR_RULES:
    if len(axes) == len(shape) and re.search(regex, name):
      spec = [a if a and shape[i] % sizes[a] == 0 else None for i, a in enumerate(axes)]
      break
  if len(shape) >= 2 and np.prod(shape) >= cfg.min_size and sizes['fsdp'] > 1:
    free = [i for i, a in enumerate(spec) if a is None and shape[i] % sizes['fsdp'] == 0]
    if free:
      spec[max(free, key=lambda i: shape[i])] = 'fsdp'
  return PartitionSpec(*spec)
