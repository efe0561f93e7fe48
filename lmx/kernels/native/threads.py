"""Threads within an operation compiled by Numba: they share its loops and synchronise without Python.

XLA runs an operation in one thread. `share` starts further POSIX threads for the duration of the operation, a few
milliseconds. A thread claims the next work item when it is done (`claim`); `meet` is a barrier before reading what
another thread has written. Waiting spins, which takes less than a microsecond if every thread has a core; after many
turns a thread yields its core.

They share a block of integers.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from lmx.kernels.native.frame import OPTIONS

# Layout of the block: each counter in its own cache line; last the counters of `claim`, one per loop.
_FRAME, _THREADS, _ENTERED, _MET, _MODE, _CLAIMS = 0, 1, 8, 16, 24, 32
_SPINS = 20_000  # turns of a waiting loop, about 20 microseconds, before it yields the core

_create = types.ExternalFunction('pthread_create', types.int32(types.int64, types.int64, types.int64, types.int64))
_join = types.ExternalFunction('pthread_join', types.int32(types.int64, types.int64))
# Floating-point environment, at most 32 bytes: XLA flushes denormals to 0, and so must every thread.
_get_mode = types.ExternalFunction('fegetenv', types.int32(types.int64))
_set_mode = types.ExternalFunction('fesetenv', types.int32(types.int64))
_yield = types.ExternalFunction('sched_yield', types.int32())


@intrinsic
def _add(typing: Any, block: Any, index: Any, value: Any) -> Any:
  """Atomically add to an integer of the block; return its previous value."""
  build = lambda context, builder, signature, args: builder.atomic_rmw('add', _place(builder, args), args[2], 'seq_cst')
  return types.int64(types.int64, types.int64, types.int64), build


@intrinsic
def _load(typing: Any, block: Any, index: Any) -> Any:
  """Atomically read an integer of the block."""
  build = lambda context, builder, signature, args: builder.load_atomic(_place(builder, args), 'acquire', 8)
  return types.int64(types.int64, types.int64), build


def _place(builder: Any, args: Any) -> Any:
  word = ir.IntType(64)
  return builder.inttoptr(builder.add(args[0], builder.mul(args[1], ir.Constant(word, 8))), word.as_pointer())


@njit(**OPTIONS)
def _await(block: Any, index: Any, value: Any) -> None:
  spins = 0
  while _load(block, index) < value:
    spins += 1
    if spins > _SPINS:
      _yield()


@njit(**OPTIONS)
def enter(block: Any) -> Any:
  """Return (index of this thread, thread count, address of the call frame) once all have started."""
  thread = _add(block, _ENTERED, 1)
  _await(block, _THREADS, 1)
  _set_mode(block + 8 * _MODE)
  return thread, _load(block, _THREADS), _load(block, _FRAME)


@njit(**OPTIONS)
def claim(block: Any, loop: Any) -> Any:
  """Return a loop's next index, from 0; no other thread gets it."""
  return _add(block, _CLAIMS + loop, 1)


@njit(**OPTIONS)
def meet(block: Any, threads: Any, index: Any) -> None:
  """Wait at a barrier for every thread; `index` counts the barriers from 0."""
  _add(block, _MET, 1)
  _await(block, _MET, (index + 1) * threads)


def named(name: str) -> Any:
  """Return the Numba function () -> the address of a thread's function, to which `define` gives this name.

  A named function is compiled once, not again with each caller.
  """

  @intrinsic
  def address(typing: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
      word = ir.IntType(64)
      symbol = cgutils.get_or_insert_function(builder.module, ir.FunctionType(word, [word]), name)
      return builder.ptrtoint(symbol, word)

    return types.int64(), build

  return address


def define(name: str, function: Any) -> None:
  """Name a thread's function, compiled by `cfunc('int64(int64)')`."""
  llvmlite.binding.add_symbol(name, function.address)


@intrinsic
def _call(typing: Any, function: Any, block: Any) -> Any:
  """Call a thread's function, given by its address, in this thread."""

  def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    word = ir.IntType(64)
    return builder.call(builder.inttoptr(args[0], ir.FunctionType(word, [word]).as_pointer()), [args[1]])

  return types.int64(types.int64, types.int64), build


@njit(**OPTIONS)
def share(frame: Any, function: Any, threads: Any, loops: Any) -> None:
  """Run an operation in several threads, including this one.

  Args:
    frame: address of the call frame, for `enter`.
    function: address from `named`.
    threads: requested number of threads; the system may start fewer.
    loops: number of loops of `claim`.
  """
  block, handle = np.zeros(_CLAIMS + loops, np.int64), np.empty(threads, np.int64)
  block[_FRAME] = frame
  _get_mode(block.ctypes.data + 8 * _MODE)
  started = 0
  while started < threads - 1:
    if _create(handle.ctypes.data + 8 * started, 0, function, block.ctypes.data) != 0:
      break
    started += 1
  _add(block.ctypes.data, _THREADS, started + 1)
  _call(function, block.ctypes.data)
  for i in range(started):
    _join(handle[i], 0)
