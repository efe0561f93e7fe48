"""Files as torch.save writes them, made without torch."""

from __future__ import annotations

import contextlib
import io
import itertools
import pickle
import re
import struct
import sys
import types
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from lmx.interop.unpickle import MAGIC, STORAGES

_KINDS = {dtype: name for name, dtype in STORAGES.items() if name != 'UntypedStorage'}


class Module:
  """A module saved whole: its class is model.RNNModel, of which the file has the name."""

  def __init__(self, parameters: dict[str, Any], children: dict[str, Any] | None = None, **attributes: Any):
    self.__dict__.update(attributes, _parameters=parameters, _buffers={}, _modules=children or {})


_CLASSES: dict[str, type] = {}


def foreign(name: str, **attributes: Any) -> Any:
  """An object of a class that only the file has, by its module and name."""
  module, _, short = name.rpartition('.')
  made = _CLASSES.setdefault(name, type(short, (), {'__module__': module}))()
  made.__dict__.update(attributes)
  return made


def module_of(
  name: str,
  tensors: dict[str, np.ndarray],
  attributes: dict[str, dict[str, Any]],
  at: str = '',
  classes: Mapping[str, str] = {},
) -> Any:
  """A module saved whole with its tensors by their full names.

  Args:
    name: module and name of its class.
    tensors: name -> array.
    attributes: name of a module within it, '' for itself -> further attributes.
    at: name of the module within the whole, with a point at its end.
    classes: pattern of names of modules within it -> their class; others are torch.nn.Module.
  """
  class_of = lambda name: next((c for pattern, c in classes.items() if re.fullmatch(pattern, name)), 'torch.nn.Module')
  beneath = lambda names: {n.removeprefix(at).partition('.')[0] for n in names if n.startswith(at) and n != at}
  direct = {n for n in beneath(tensors) if at + n in tensors}
  children = (beneath(tensors) | beneath(attributes)) - direct - {''}
  return foreign(
    name,
    **attributes.get(at.removesuffix('.'), {}),
    _parameters={n: tensors[at + n] for n in sorted(direct)},
    _buffers={},
    _modules={n: module_of(class_of(at + n), tensors, attributes, f'{at}{n}.', classes) for n in sorted(children)},
  )


@contextlib.contextmanager
def _foreign():
  """Give pickle the names that a file of torch has."""
  torch, utils, model = types.ModuleType('torch'), types.ModuleType('torch._utils'), types.ModuleType('model')
  utils._rebuild_tensor_v2 = _function('torch._utils', '_rebuild_tensor_v2')
  for name in _KINDS.values():
    setattr(torch, name, type(name, (), {'__module__': 'torch'}))
  model.RNNModel = Module
  names = {'torch': torch, 'torch._utils': utils, 'model': model}
  for cls in _CLASSES.values():
    for parent in itertools.accumulate(cls.__module__.split('.')[:-1], '{}.{}'.format):
      names.setdefault(parent, types.ModuleType(parent))
    setattr(names.setdefault(cls.__module__, types.ModuleType(cls.__module__)), cls.__name__, cls)
  old = {name: sys.modules.get(name) for name in names}
  was = Module.__module__, Module.__qualname__
  sys.modules.update(names)
  Module.__module__, Module.__qualname__ = 'model', 'RNNModel'
  try:
    yield torch, utils
  finally:
    Module.__module__, Module.__qualname__ = was
    for name, module in old.items():
      sys.modules.pop(name) if module is None else sys.modules.update({name: module})


def _function(module: str, name: str):
  def function(*args):
    raise AssertionError('only its name is used')

  function.__module__, function.__name__, function.__qualname__ = module, name, name
  return function


class _Storage:
  def __init__(self, kind: type, array: np.ndarray):
    self.kind, self.array = kind, array


def _pickler(file: Any, torch: Any, utils: Any, storages: dict[str, np.ndarray], legacy: bool) -> pickle.Pickler:
  keys: dict[int, str] = {}

  class Pickler(pickle.Pickler):
    def reducer_override(self, x: Any):
      if not isinstance(x, np.ndarray):
        return NotImplemented
      base = x if x.base is None else x.base
      storage = _Storage(getattr(torch, _KINDS[x.dtype.name]), base)
      strides = tuple(s // x.itemsize for s in x.strides)
      offset = (x.__array_interface__['data'][0] - base.__array_interface__['data'][0]) // x.itemsize
      return utils._rebuild_tensor_v2, (storage, offset, x.shape, strides, False, {})

    def persistent_id(self, x: Any):
      if not isinstance(x, _Storage):
        return None
      key = keys.setdefault(id(x.array), str(len(keys)))
      storages[key] = x.array
      return ('storage', x.kind, key, 'cpu', x.array.size) + ((None,) if legacy else ())

  return Pickler(file, 2)


def pickled(content: Any, protocol: int = 4) -> bytes:
  """Return a plain pickle."""
  return pickle.dumps(content, protocol)


def save(path: Any, content: Any, *, legacy: bool = False) -> None:
  """Write a file in the zip format, or in the one before PyTorch 1.6; arrays are tensors."""
  storages: dict[str, np.ndarray] = {}
  stream = io.BytesIO()
  with _foreign() as (torch, utils):
    _pickler(stream, torch, utils, storages, legacy).dump(content)
  raw = {
    key: np.ascontiguousarray(x).tobytes() if x.flags.c_contiguous else x.tobytes('A') for key, x in storages.items()
  }
  if not legacy:
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as archive:
      archive.writestr('archive/data.pkl', stream.getvalue())
      archive.writestr('archive/byteorder', 'little')
      for key, x in raw.items():
        archive.writestr(f'archive/data/{key}', x)
    return
  with open(path, 'wb') as file:
    for header in (MAGIC, 1001, {'little_endian': True}):
      pickle.dump(header, file, 2)
    file.write(stream.getvalue())
    pickle.dump(list(storages), file, 2)
    for key, x in raw.items():
      file.write(struct.pack('<q', storages[key].size) + x)


def save_plain(path: Any, content: Any) -> None:
  """Write a plain pickle."""
  with open(path, 'wb') as file, _foreign():
    pickle.dump(content, file)
