"""Threads within an operation compiled by Numba: they share its loops and wait for each other, without Python.

XLA runs an operation in one thread. `share` starts others (POSIX threads), which last as long as the operation, some
milliseconds. They divide work in two ways: a thread takes the next piece when it has done one (`claim`), and all
of them meet before anything is read that another has written (`meet`). Waiting is a loop, since it takes less than a
microsecond where every thread has a core; where not, the thread lets others have its core.

What they share is a block of integers.
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

# Integers of the block: the counters in cache lines of their own, and last those of `claim`, one for each loop.
_FRAME, _THREADS, _ENTERED, _MET, _MODE, _CLAIMS = 0, 1, 8, 16, 24, 32
_SPINS = 20_000  # turns of a waiting loop, some 20 microseconds, before others may have the core

_create = types.ExternalFunction('pthread_create', types.int32(types.int64, types.int64, types.int64, types.int64))
_join = types.ExternalFunction('pthread_join', types.int32(types.int64, types.int64))
# The mode of floating-point numbers, 32 bytes or fewer: XLA takes the smallest numbers for 0, and so must every thread.
_get_mode = types.ExternalFunction('fegetenv', types.int32(types.int64))
_set_mode = types.ExternalFunction('fesetenv', types.int32(types.int64))
_yield = types.ExternalFunction('sched_yield', types.int32())


@intrinsic
def _add(typing: Any, block: Any, index: Any, value: Any) -> Any:
  """Add to an integer of the block that all threads see; return the value before."""
  build = lambda context, builder, signature, args: builder.atomic_rmw('add', _place(builder, args), args[2], 'seq_cst')
  return types.int64(types.int64, types.int64, types.int64), build


@intrinsic
def _load(typing: Any, block: Any, index: Any) -> Any:
  """Return an integer of the block as the other threads left it."""
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
  """Return (number of this thread, from 0; number of threads; address of the call frame) when all were started."""
  thread = _add(block, _ENTERED, 1)
  _await(block, _THREADS, 1)
  _set_mode(block + 8 * _MODE)
  return thread, _load(block, _THREADS), _load(block, _FRAME)


@njit(**OPTIONS)
def claim(block: Any, loop: Any) -> Any:
  """Return the next number of a loop, from 0; no other thread gets it."""
  return _add(block, _CLAIMS + loop, 1)


@njit(**OPTIONS)
def meet(block: Any, threads: Any, index: Any) -> None:
  """Wait until every thread is here; `index` counts the meetings from 0."""
  _add(block, _MET, 1)
  _await(block, _MET, (index + 1) * threads)


def named(name: str) -> Any:
  """Return the Numba function () -> the address of a thread's function, to which `define` gives this name.

  By its name a function is compiled once, not again with each that calls it.
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
  """Do the work of an operation by several threads, of which this is one.

  Args:
    frame: address of the call frame, for `enter`.
    function: address from `named`.
    threads: number of all threads; there are fewer if the system starts no more.
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
