"""Cores of this process, and its heap on a CPU.

XLA asks the C library for the arrays of each step. By default glibc returns large ones to the system as soon as they
are free, and the page faults of the next step take a fifth of the time of a small step. With one heap that is never
trimmed nothing is returned, and the process holds about a third more. The `lmx` command does this to its own process
alone (`keep_heap`); README.md names the variables that turn it off.
"""

from __future__ import annotations

import ctypes
import os

# Parameters of glibc's mallopt (malloc.h): M_TRIM_THRESHOLD, M_TOP_PAD in bytes, M_MMAP_MAX, M_ARENA_MAX.
_GLIBC = {-1: 2**31 - 1, -2: 2**26, -4: 0, -8: 1}


def cores() -> int:
  """Return the number of cores that the process may use, which taskset or a container's cpuset may lower."""
  return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def keep_heap() -> bool:
  """Set glibc to keep freed memory in the process; return True if it was set.

  Nothing happens where the library is another than glibc, or where the environment has settings of yours for it
  (GLIBC_TUNABLES, MALLOC_ARENA_MAX, MALLOC_TRIM_THRESHOLD_ and the like), which then stand.
  """
  if any(name == 'GLIBC_TUNABLES' or name.startswith('MALLOC_') for name in os.environ):
    return False
  try:
    glibc = os.confstr('CS_GNU_LIBC_VERSION')
  except (AttributeError, OSError, ValueError):
    glibc = None
  if not glibc:
    return False
  mallopt = ctypes.CDLL(None).mallopt
  done = [mallopt(parameter, value) for parameter, value in _GLIBC.items()]
  return all(done)
