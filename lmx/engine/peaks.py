"""Peaks of devices: a CPU's as measured here, others' from data sheets."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

# Dense peak of one device in FLOP/s, by a substring of the lower-case `device_kind`: bfloat16, float32.
# NVIDIA data sheets (without sparsity; SXM where there are several; float32 as TF32) and Google
# Cloud's TPU pages. The first match applies, so longer names come first.
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
  'tpu7x': (2307e12 / 2, None),  # JAX has one device per core
  'tpu v6': (918e12, None),
  'tpu v5p': (459e12, None),
  'tpu v5 lite': (197e12, None),
  'tpu v5e': (197e12, None),
  'tpu v5': (459e12, None),
  'tpu v4': (275e12, None),
  'tpu v3': (61.5e12, None),  # JAX has one device per core: half a chip's 123
  'tpu v2': (22.5e12, None),  # half a chip's 45
}


def peak_flops(device_kind: str, dtype: str = 'bfloat16') -> float | None:
  """Return the dense peak in FLOP/s of one device, None if unknown (CPUs)."""
  for name, (half, single) in PEAKS.items():
    if name in device_kind.lower():
      return single if dtype == 'float32' else half
  return None


def run_peak(dtype: str, devices: int) -> float | None:
  """Return the peak in FLOP/s of the `devices` of a run; None if unknown.

  A CPU's is `product_rate`, whatever the type: simulated devices share its cores.
  """
  device = jax.devices()[0]
  if device.platform == 'cpu':
    return product_rate() * jax.process_count()
  peak = peak_flops(device.device_kind, dtype)
  return peak and peak * devices


@functools.cache
def product_rate() -> float:
  """Return the measured FLOP/s of a float32 product of two matrices of 512 x 512, the best within a second.

  It takes a few milliseconds, so that some of them are not interrupted by other processes.
  """
  return 2 * 512**3 / _best(lambda x: x @ x, (512, 512), 96, seconds=1.0)


@functools.cache
def copy_rate() -> float:
  """Return the measured bytes a second that adding 1 to 64 MB reads and writes, the best of 5."""
  return 2 * 4 * 16_000_000 / _best(lambda x: x + 1.0, (16_000_000,), 5)


def _best(
  function: Callable[[jax.Array], jax.Array], shape: tuple[int, ...], repeats: int, seconds: float = 0.0
) -> float:
  """Return the least seconds of a function of a float32 array, of `repeats` calls and more until `seconds` are over."""
  run = timed(function, shape)
  run()
  times: list[float] = []
  end = time.perf_counter() + seconds
  while len(times) < repeats or time.perf_counter() < end:
    times.append(run())
  return min(times)


def timed(function: Callable[[jax.Array], jax.Array], shape: tuple[int, ...]) -> Callable[[], float]:
  """Return a function that computes `function` of a float32 array once and returns the seconds."""
  compiled, x = jax.jit(function), jnp.full(shape, 0.5, jnp.float32)

  def run() -> float:
    start = time.perf_counter()
    jax.block_until_ready(compiled(x))
    return time.perf_counter() - start

  return run
