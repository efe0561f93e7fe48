"""Batches built by worker processes of Grain (`data.processes`), in the order of the steps.

A process gets the batches once, serialised. Memory-mapped arrays are sent by the name of their file and mapped again,
so all processes of a host share its page cache. A process ends with its parent, and leaves signals to it: the parent
saves.
"""

from __future__ import annotations

import functools
import mmap
import multiprocessing
import os
import signal
import threading
import types
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any

import numpy as np

from lmx import host, storage
from lmx.errors import InputError

_LOCK, _CACHE = type(threading.Lock()), functools._lru_cache_wrapper
MOST = 4
_PAGE = 4096  # bytes; smaller arrays are sent with their content


class Builder:
  """Callable that builds the given rows of the batch of a step; can be sent to a process."""

  def __init__(self, batches: Any, rows: slice):
    self._batches, self._rows = batches, rows

  def __call__(self, step: int) -> tuple[int, dict[str, np.ndarray]]:
    """Return (step, batch)."""
    return step, self._batches(step, self._rows)

  def __getstate__(self) -> bytes:
    return bytes(_Sender.dumps((self._batches, self._rows)))

  def __setstate__(self, content: bytes) -> None:
    self._batches, self._rows = _Sender.loads(content)  # of the parent process


class _Sender(reduction.ForkingPickler):
  """Serialiser that sends memory-mapped arrays by name, and locks and caches of methods as new ones."""

  def reducer_override(self, obj: Any) -> Any:
    if isinstance(obj, _LOCK):
      return threading.Lock, ()
    if isinstance(obj, _CACHE) and isinstance(obj.__wrapped__, types.MethodType):
      return _cached, (obj.__wrapped__, obj.cache_parameters()['maxsize'])
    if isinstance(obj, np.ndarray) and obj.nbytes >= _PAGE and obj.flags.c_contiguous:
      root = _mapped(obj)
      if root is not None and root.filename:
        start = root.offset + obj.ctypes.data - root.ctypes.data
        return _map, (os.fspath(root.filename), obj.dtype.str, obj.shape, start)
    return NotImplemented


def _mapped(array: Any) -> np.memmap | None:
  """Return the memory map of a whole file that an array views; None if it has its own memory."""
  while isinstance(array, np.ndarray):
    if isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap):
      return array
    array = array.base
  return None


def _cached(method: Callable[..., Any], size: int | None) -> Any:
  return functools.lru_cache(size)(method)


def _map(path: str, dtype: str, shape: tuple[int, ...], offset: int) -> np.memmap:
  return np.memmap(path, np.dtype(dtype), 'r', offset, shape)


def prefetch(dataset: Any, processes: int, ahead: int) -> Any:
  """Return a dataset of Grain whose elements are built by processes, each `ahead` elements ahead, in the same order.

  Raises:
    InputError: more than `MOST` processes per core of this host.
  """
  if processes > MOST * host.cores():
    raise InputError(
      f'data.processes: got {processes:,}; expected at most {MOST * host.cores()}, {MOST} for each core of this host: '
      'each process is a Python interpreter of about 100 MB'
    )
  import grain
  from absl import flags

  if not flags.FLAGS.is_parsed():  # lmx has none; Grain reads its own
    flags.FLAGS.mark_as_parsed()
  return dataset.mp_prefetch(grain.MultiprocessingOptions(processes, max(1, ahead)), start)


def start(worker: int, count: int) -> None:
  """Prepare a worker process: it ignores signals and ends with its parent."""
  del worker, count
  storage.use_stand_in()
  for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, 'SIGHUP', signal.SIGTERM)):
    signal.signal(number, signal.SIG_IGN)

  def watch() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
      parent.join()
      os._exit(1)

  threading.Thread(target=watch, daemon=True).start()
