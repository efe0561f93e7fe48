"""Processes of a run: settings, initialisation and barriers of `jax.distributed`."""

from __future__ import annotations

import os
import re

import jax
from jax.experimental import multihost_utils

from lmx.errors import InputError

# In errors of Gloo, NCCL and the coordination service about other processes.
_LOST = re.compile(r'gloo|nccl|connection (reset|closed|refused)|socket closed|UNAVAILABLE|coordination', re.IGNORECASE)


def initialize(
  coordinator: str | None = None,
  processes: int | None = None,
  process_id: int | None = None,
  *,
  timeout: int = 300,
) -> bool:
  """Join the other processes of a run; call it before any device is used. A second call does nothing.

  Missing arguments come from LMX_COORDINATOR ('host:port', or 'auto' where JAX knows the cluster: TPU pods, Slurm),
  LMX_NUM_PROCESSES and LMX_PROCESS_ID. Without a coordinator nothing happens.

  Args:
    coordinator: address of process 0.
    processes: number of processes.
    process_id: index of this process.
    timeout: seconds to wait for the others.

  Returns:
    True if this is one of several processes.

  Raises:
    InputError: incomplete settings, or the processes did not find each other in time.
  """
  coordinator = coordinator or os.environ.get('LMX_COORDINATOR')
  if not coordinator:
    return False
  if jax.distributed.is_initialized():
    return jax.process_count() > 1
  # XLA's CPU client has no cross-process collectives by default.
  jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  try:
    if coordinator == 'auto':
      jax.distributed.initialize(initialization_timeout=timeout)
      return jax.process_count() > 1
    processes = _setting('LMX_NUM_PROCESSES', processes)
    process_id = _setting('LMX_PROCESS_ID', process_id)
    jax.distributed.initialize(coordinator, processes, process_id, initialization_timeout=timeout)
  except (RuntimeError, ValueError) as error:
    if isinstance(error, InputError):
      raise
    raise InputError(f'could not join the other processes at {coordinator}: {error}') from error
  if jax.process_count() != processes:
    raise InputError(
      f'LMX_NUM_PROCESSES: got {processes}, but JAX has {jax.process_count()}; give each process its own LMX_PROCESS_ID'
    )
  return jax.process_count() > 1


def read_settings() -> tuple[str, int, int] | None:
  """Return (address of process 0, number of processes, index of this one); ('', 1, 0) for a single process.

  Return None if LMX_COORDINATOR is 'auto', because JAX finds the processes then. Connects to no other process.

  Raises:
    InputError: incomplete settings.
  """
  coordinator = os.environ.get('LMX_COORDINATOR')
  if coordinator == 'auto':
    return None
  if not coordinator:
    return '', 1, 0
  return coordinator, _setting('LMX_NUM_PROCESSES', None), _setting('LMX_PROCESS_ID', None)


def barrier(name: str) -> None:
  """Wait until every process has called this."""
  if jax.process_count() > 1:
    multihost_utils.sync_global_devices(name)


def is_lost(error: BaseException) -> bool:
  """Return True if an error of a computation is that another process has ended, or cannot be reached."""
  is_computed = isinstance(error, jax.errors.JaxRuntimeError) and jax.process_count() > 1
  return is_computed and bool(_LOST.search(str(error)))


def _setting(name: str, value: int | None) -> int:
  if value is not None:
    return value
  text = os.environ.get(name)
  if text is None or not text.isdigit():
    raise InputError(f'{name}: got {text!r}; expected a number, because LMX_COORDINATOR is set')
  return int(text)
