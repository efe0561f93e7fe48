"""Arrays that XLA passes to an operation compiled by Numba, and the registration of such an operation.

XLA calls it with the address of a call frame, in which the pointers and shapes of its arrays are: the typed interface
for foreign functions, in C the header xla/ffi/api/c_api.h of jaxlib, whose structures are read here as words of 8
bytes. The operation runs without Python.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import jax
import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from lmx import storage

ARGUMENTS, RESULTS = 9, 14  # words of the frame: the pointers to the arguments, and to the results
_DATA, _RANK, _DIMS = 3, 4, 5  # words of an array
_EXTENSION, _METADATA = 1, 3  # words of the frame and of its extension, through which XLA queries the version
_ASKS_VERSION, _MAJOR, _MINOR = 1, 0, 1  # only fields of the first version are read

F32, I32, I8 = np.float32(0), np.int32(0), np.int8(0)  # elements, for `matrix`


def _keep() -> bool:
  """Cache machine code in JAX's compilation cache, in a folder per source version; return False without such a
  cache."""
  folder = getattr(jax.config, 'jax_compilation_cache_dir', None)
  if not folder or storage.is_remote(folder):
    return False
  sources = b''.join(path.read_bytes() for path in sorted(pathlib.Path(__file__).parent.glob('*.py')))
  folder = os.path.join(folder, 'numba', hashlib.sha256(sources).hexdigest()[:20])
  try:
    os.makedirs(folder, mode=0o700, exist_ok=True)
  except OSError:
    return False
  numba.config.CACHE_DIR = folder
  return True


ENTRY: dict[str, Any] = {'error_model': 'numpy', 'cache': _keep()}  # of cfunc
OPTIONS: dict[str, Any] = ENTRY | {'no_cpython_wrapper': True, 'no_cfunc_wrapper': True}  # of njit; only Numba calls it


@intrinsic
def _pointer(typing: Any, address: Any, element: Any) -> Any:
  """Return the pointer to elements like `element` at an address."""
  kind = types.CPointer(element)
  build = lambda context, builder, _, args: builder.inttoptr(args[0], context.get_value_type(kind))
  return kind(address, element), build


@njit(**OPTIONS)
def _words(address: Any, count: Any) -> Any:
  return carray(_pointer(address, np.int64(0)), (count,))


@njit(**OPTIONS)
def is_question(frame: Any) -> Any:
  """Answer XLA's query for the interface version; return True if it was one."""
  extension = _words(frame, 2)[_EXTENSION]
  if extension == 0 or np.int32(_words(extension, 2)[1]) != _ASKS_VERSION:
    return False
  version = carray(_pointer(_words(extension, 4)[_METADATA], np.int32(0)), (8,))
  version[6], version[7] = _MAJOR, _MINOR
  return True


_WORDS = types.UniTuple(types.int64, 3)


@njit([(*_WORDS, x) for x in (types.float32, types.int32, types.int8)], **OPTIONS)  # else once for each index
def matrix(frame: Any, word: Any, index: Any, element: Any) -> Any:
  """Return argument or result number `index` as a matrix: its last axis, and all others in one.

  Args:
    frame: address of the call frame.
    word: ARGUMENTS or RESULTS.
    index: number of the array.
    element: any number of its type.
  """
  array = _words(_words(_words(frame, 15)[word], index + 1)[index], 6)
  dims = _words(array[_DIMS], array[_RANK])
  rows = 1
  for i in range(array[_RANK] - 1):
    rows *= dims[i]
  return carray(_pointer(array[_DATA], element), (rows, dims[array[_RANK] - 1]))


@intrinsic
def _prefetch(typing: Any, address: Any) -> Any:
  def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    function = cgutils.get_or_insert_function(builder.module, kind, 'llvm.prefetch.p0')
    builder.call(function, [builder.inttoptr(args[0], byte), *(ir.Constant(number, x) for x in (0, 3, 1))])
    return context.get_dummy_value()

  return types.void(types.int64), build


@njit(**OPTIONS)
def prefetch(table_VD: Any, row: Any, first: Any, last: Any) -> None:
  """Prefetch columns `first` to `last` - 1 of a table row."""
  address = table_VD.ctypes.data + 4 * np.int64(row) * table_VD.shape[1]
  for at in range(address + 4 * first, address + 4 * last, 64):
    _prefetch(at)


def once(name: str, signature: str) -> Callable[[Callable[..., Any]], Any]:
  """Return a decorator that compiles a function once; others then call it by name.

  An `njit` function is compiled again with each of its direct and indirect callers.

  Args:
    name: name for all of the process.
    signature: Numba's types of result and arguments.
  """

  def decorate(function: Callable[..., Any]) -> Any:
    compiled = cfunc(signature, **ENTRY)(function)
    llvmlite.binding.add_symbol(name, compiled.address)
    _KEPT.append(compiled)
    return types.ExternalFunction(name, compiled._sig)

  return decorate


_KEPT: list[Any] = []  # functions compiled by `once`, kept alive as long as they may be called


def operations(name: str) -> Any:
  """Import a module of operations; report on standard error if Numba compiles them."""
  folder, module = numba.config.CACHE_DIR, f'lmx.kernels.native.{name}'
  is_kept = bool(folder) and any(pathlib.Path(folder).glob(f'*/{name}.*'))
  if module not in sys.modules and not is_kept:
    extent = ', once on this machine' if folder else ''
    print(f'compiling Numba operations ({name}){extent}', file=sys.stderr, flush=True)
  return importlib.import_module(module)


def register(name: str, operation: Any) -> None:
  """Register an operation, compiled by `cfunc('int64(int64)')`, under a name for `jax.ffi.ffi_call`."""
  jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(operation.ctypes), platform='cpu')
