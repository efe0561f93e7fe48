"""Programs that tests/checkpoint/manager_test.py starts in processes: `python checkpoint_child.py PROGRAM ...`."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from lmx.checkpoint import manager


def state_of(step: int) -> dict[str, jax.Array]:
  """A state of 1.5 MB that is a function of the step."""
  key = jax.random.key(step)
  return {'params': jax.random.normal(key, (400, 1000)), 'key': key, 'step': jnp.int32(step)}


def sharded(array: np.ndarray, spec: PartitionSpec) -> jax.Array:
  """The global array over all devices of all processes."""
  sharding = NamedSharding(jax.make_mesh((jax.device_count(),), ('data',)), spec)
  return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def save_until_killed(directory: str) -> None:
  """Checks what it finds, then saves the next steps without a pause."""
  checkpoints = manager.Checkpoints(directory)
  start = 0
  if checkpoints.steps():
    state, meta, start = checkpoints.restore(jax.eval_shape(lambda: state_of(0)))
    wanted = state_of(start)
    assert meta == {'step': start}, (meta, start)
    assert np.array_equal(state['params'], wanted['params']), start
    assert int(state['step']) == start
  for step in range(start + 1, 1_000_000):
    checkpoints.save(step, state_of(step), {'step': step}, block=step == start + 1)
    if step == start + 1:
      print('ready', start, flush=True)  # from here on it writes all the time


def restore_here(directory: str) -> None:
  """Restores onto all devices of this process what another number of devices has saved."""
  array = jnp.arange(64 * 3, dtype=jnp.float32).reshape(64, 3)
  sharding = NamedSharding(jax.make_mesh((jax.device_count(),), ('data',)), PartitionSpec('data'))
  wanted = {'x': jax.ShapeDtypeStruct((64, 3), jnp.float32, sharding=sharding)}
  with manager.Checkpoints(directory) as checkpoints:
    state, _, step = checkpoints.restore(wanted)
  assert np.array_equal(state['x'], array)
  assert len(state['x'].sharding.device_set) == jax.device_count()
  print('restored', step, jax.device_count(), flush=True)


def two_processes(directory: str, port: str, index: str) -> None:
  """Saves global arrays from both processes, damages the last checkpoint, and restores the one before."""
  jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  jax.distributed.initialize(f'localhost:{port}', 2, int(index))
  values = np.arange(32, dtype=np.float32).reshape(8, 4)
  state = {
    'x': sharded(values, PartitionSpec('data')),
    'step': sharded(np.int32(7).reshape(()), PartitionSpec()),
  }
  warnings: list[str] = []
  with manager.Checkpoints(directory, warn=warnings.append) as checkpoints:
    for step in (1, 2, 2, 3):
      checkpoints.save(step, state, {'step': step}, metric=step)
    checkpoints.wait()
    manager.multihost_utils.sync_global_devices('saved')
    assert checkpoints.steps() == [1, 2, 3], checkpoints.steps()
    if index == '0':
      # Only process 0 looks at the files, and the arrays can be read without this one: they must agree.
      (checkpoints.directory / 'step_000000003' / 'state' / '_sharding').write_bytes(b'')
    manager.multihost_utils.sync_global_devices('damaged')
    found, meta, step = checkpoints.restore(state)
    assert (step, meta) == (2, {'step': 2}), (step, meta)
    for shard in found['x'].addressable_shards:
      assert np.array_equal(shard.data, values[shard.index])
  assert len(warnings) == 2 and 'step_000000003' in warnings[0], warnings
  print('restored', step, flush=True)


if __name__ == '__main__':
  programs = {f.__name__: f for f in (save_until_killed, restore_here, two_processes)}
  programs[sys.argv[1]](*sys.argv[2:])
