"""Number of cores, life, time and peak memory of a process, and its heap on a CPU.

XLA allocates the arrays of each step with the C library. By default glibc returns large blocks to the system as soon
as they are freed, and the page faults of the next step take a fifth of the time of a small step. With one heap that is
never trimmed nothing is returned, and the process holds about a third more memory. The `lmx` command does this to its
own process only (`keep_heap`); docs/hardware.md names the variables that turn it off. `lmx import` and `lmx export` use
each tensor once, so they do the opposite (`return_blocks`).
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

# Parameters of glibc's mallopt (malloc.h): M_TRIM_THRESHOLD, M_TOP_PAD in bytes, M_MMAP_MAX, M_ARENA_MAX.
_GLIBC = {-1: 2**31 - 1, -2: 2**26, -4: 0, -8: 1}
_BLOCKS = {-3: 2**20}  # M_MMAP_THRESHOLD, which otherwise grows with the blocks that are freed
_QUOTA = '/sys/fs/cgroup/cpu.max'  # CPU quota and period, in microseconds


def cores() -> int:
  """Return the number of cores available to the process; taskset or a container's cpuset may limit it."""
  return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def quota() -> int:
  """Return the number of cores whose time a container may use (cgroup's cpu.max, rounded up); `cores` without a limit.

  XLA and Python ignore this limit.
  """
  try:
    with open(_QUOTA, encoding='ascii') as file:
      share, period = file.read().split()
    return max(1, -(-int(share) // int(period)))
  except (OSError, ValueError):  # no such file, or "max"
    return cores()


def peak_memory(process: int) -> int | None:
  """Return the largest resident set of a process so far in bytes, None where the system does not tell.

  getrusage's maximum would begin with that of the process that started this one.
  """
  try:
    with open(f'/proc/{process}/status', encoding='ascii', errors='replace') as file:
      return next((1024 * int(line.split()[1]) for line in file if line.startswith('VmHWM:')), None)
  except OSError:
    return None


def cpu_seconds(process: int) -> float:
  """Return the time of cores that a process has used so far, in seconds; 0 where the system does not tell."""
  try:
    with open(f'/proc/{process}/stat', encoding='ascii', errors='replace') as file:
      used = file.read().rpartition(')')[2].split()[11:13]  # utime and stime; the name before may have spaces
    return sum(map(int, used)) / os.sysconf('SC_CLK_TCK')
  except (OSError, ValueError):
    return 0.0


def process_start() -> float:
  """Return when this process was started, in seconds since the epoch; now where the system does not tell."""
  now = time.time()
  try:
    with open('/proc/self/stat', encoding='ascii', errors='replace') as file:
      ticks = int(file.read().rpartition(')')[2].split()[19])  # proc(5): starttime, since the boot
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf('SC_CLK_TCK')
  except (OSError, ValueError, IndexError, AttributeError):
    return now
  return now - max(0.0, age)


def is_alive(pid: int) -> bool:
  """Return True if a process with this id exists on this host."""
  try:
    os.kill(pid, 0)
  except ProcessLookupError:
    return False
  except PermissionError:
    return True
  return True


def keep_heap() -> bool:
  """Set glibc to keep freed memory in the process; return True if it was set, see `_set`."""
  return _set(_GLIBC)


def return_blocks() -> bool:
  """Set glibc to return blocks of a megabyte and more to the system when they are freed; True if it was set."""
  return _set(_BLOCKS)


def _set(parameters: dict[int, int]) -> bool:
  """Set parameters of glibc's mallopt; return True if they were set.

  Does nothing if the C library is not glibc. Does nothing either if the environment already has such settings
  (GLIBC_TUNABLES, MALLOC_ARENA_MAX, MALLOC_TRIM_THRESHOLD_ and the like); they then stay in force.
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
  done = [mallopt(parameter, value) for parameter, value in parameters.items()]
  return all(done)


def process_peak() -> int:
  """Return the largest resident set of this process so far, in bytes."""
  if (peak := peak_memory(os.getpid())) is not None:
    return peak
  import resource  # Windows has none

  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  return peak if sys.platform == 'darwin' else peak * 1024  # kilobytes elsewhere
