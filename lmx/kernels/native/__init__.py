"""XLA CPU operations compiled by Numba (extra `lmx[numba]`): loops that XLA would run as many small operations.

`frame` reads the arguments that XLA passes, `threads` divides the work, `elementary` and `product` are shared.
`windows` has the loops of word2vec, `lstm` those of the LSTM, `attention` those of attention. All import Numba; their
callers (lmx/kernels/window_updates.py, lmx/kernels/lstm_loop.py, lmx/kernels/head_attention.py) imports them when they
are used.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
from typing import Any

from lmx import host
from lmx.errors import InputError

IS_ARM = platform.machine().lower() in ('arm64', 'aarch64')


def is_installed() -> bool:
  """Return True if Numba is installed and the system has POSIX threads."""
  return os.name == 'posix' and importlib.util.find_spec('numba') is not None


@functools.cache
def has_products() -> bool:
  """Return True if Numba is installed and the processor supports the instructions of `product`."""
  if not is_installed():
    return False
  import llvmlite.binding  # not `product`, whose import compiles

  features = llvmlite.binding.get_host_cpu_features()
  return IS_ARM or bool(features.get('fma') and features.get('avx2'))


@functools.cache
def load(name: str, setting: str, other: str) -> Any:
  """Register a module's operations FORWARD and BACKWARD, which need `product`; return the module.

  Args:
    name: name of the module.
    setting: setting that selects them, 'model.KEY', as "numba".
    other: its value for runs without Numba.

  Raises:
    InputError: Numba is missing, or the processor lacks its instructions.
  """
  if not has_products():
    raise InputError(
      f'{setting}: got "numba"; expected Numba to be installed and a processor with AVX2 and FMA, or ARM; pip '
      f'install "lmx[numba]", which a run that began with it needs; in a new run, set {setting}={other}'
    )
  from lmx.kernels.native import frame

  module = frame.operations(name)
  frame.register(module.FORWARD, module.forward)
  frame.register(module.BACKWARD, module.backward)
  return module


def count_threads(parts: int) -> int:
  """Return the thread count for this many parts of work: threads spin while waiting, so each needs its own core."""
  return max(1, min(parts, host.cores(), host.quota()))
