"""Constraints on activations, the cache of compiled functions, and the absence of a placement."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from lmx import placement
from lmx.engine import devices as engine_devices
from lmx.kernels import devices, softmax_loss
from tests import placed

X_BTD = np.arange(8 * 2 * 3, dtype=np.float32).reshape(8, 2, 3)


def test_without_a_placement_nothing_is_constrained_and_no_kernel_is_chosen():
  assert placement.current() is None
  x = jnp.ones(3)
  assert placement.constrain(x, 'B') is x
  assert not devices.is_platform('cpu') and not devices.is_one_device('cpu')


@pytest.mark.parametrize(
  'axes, rows',
  [(dict(data=4, fsdp=2), 1), (dict(data=2, tensor=4), 4), (dict(data=3), 8)],
)
def test_rows_are_sharded_where_the_devices_divide_them(axes, rows):
  with placed.on(**axes):
    x_BTD = jax.jit(lambda x: placement.constrain(x, 'BTD') + 0)(X_BTD)
  assert x_BTD.sharding.shard_shape(x_BTD.shape) == (rows, 2, 3)
  np.testing.assert_array_equal(x_BTD, X_BTD)


def test_heads_are_sharded_over_tensor():
  here = placed.at(data=2, tensor=4)
  assert here.spec((8, 2, 4, 5), 'BTHK') == PartitionSpec(('data', 'fsdp'), None, ('tensor',), None)
  assert here.spec((8, 2, 6, 5), 'BTHK') == PartitionSpec(('data', 'fsdp'), None, None, None)  # 4 divides no 6
  assert here.row_shards == 2 and here.devices == 8


def test_compiled_function_is_traced_again_for_another_placement():
  traced = []

  def function(n, x):
    traced.append((n, devices.is_platform('tpu')))
    return x

  call = placement.jit(function, static=1)
  for scope in (placed.on('tpu'), placed.on('cpu'), placed.on('tpu'), placement.scope(None)):
    with scope:
      call(1, np.ones(2))
  assert traced == [(1, True), (1, False), (1, False)]


def test_chunks_of_a_loss_belong_to_the_platform():
  chunks = lambda: softmax_loss._split(None, X_BTD.repeat(2000, 1))[0].shape[0]
  assert chunks() == 1
  with placed.on('cpu'):
    assert chunks() == 8 * 4000 // softmax_loss.CPU_CHUNK + 1
  with placed.on('tpu'):
    assert chunks() == -(-8 * 4000 // softmax_loss.CHUNK)
  with placed.on('tpu', data=4, fsdp=2):
    assert chunks() == 1  # 4,000 tokens on each of 8 devices
  with placed.on('tpu', data=3):  # which do not divide 8 rows
    assert chunks() == -(-8 * 4000 // softmax_loss.CHUNK)


def test_cpu_uses_fewer_llvm_passes_unless_xla_flags_is_set(monkeypatch):
  monkeypatch.setenv('XLA_FLAGS', '--xla_force_host_platform_device_count=8')
  assert engine_devices.compiler_options('cpu') == {'xla_backend_optimization_level': '1'}
  assert engine_devices.compiler_options('gpu') == engine_devices.compiler_options('tpu') == {}
  monkeypatch.setenv('XLA_FLAGS', '--xla_backend_optimization_level=3')
  assert engine_devices.compiler_options('cpu') == {}


def test_function_is_compiled_once_with_the_options_of_the_platform(monkeypatch):
  seen, traced = [], []
  monkeypatch.setattr(engine_devices, 'compiler_options', lambda platform: seen.append(platform) or {})

  def function(x, power):
    traced.append(power)
    return x**power

  run = engine_devices.jit_for_platform(function, static_argnames=('power',))
  assert run.__name__ == 'function' and not seen
  assert run(3.0, power=2) == 9 and run(4.0, power=2) == 16
  assert seen == [jax.default_backend()] and traced == [2]
