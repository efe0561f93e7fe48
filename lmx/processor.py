"""The processor that this process runs on."""

from __future__ import annotations

import os


def cores() -> int:
  """How many cores the process may use, which can be fewer than there are (taskset, a container's cpuset)."""
  return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
