"""torch.save files (.pt, .pth, .bin) and plain pickles (.pkl), read without torch and without unpickling in this
process.

A child process (unpickle.py) reads the structure with limits on memory and time, and calls nothing that the file names.
Values are then mapped from the file, so a tensor only takes memory when it is used.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from lmx.errors import InputError
from lmx.interop import mapped

_PROGRAM = pathlib.Path(__file__).with_name('unpickle.py')
_BASE, _TIMES = 1 << 30, 8  # memory of the child: these bytes, and so many times the structure's
_SECONDS = 900  # wall clock of the child
_PROCESSOR, _SPEED = 8, 2_000_000  # its seconds of processor time, and bytes of structure for each further second
_REPEATED = 1 << 28  # maximum size of a tensor that repeats a smaller storage
_AXES = 32


@dataclasses.dataclass(eq=False)
class Foreign:
  """An object of a class that is not instantiated.

  Attributes:
    name: module and class.
    args: its constructor arguments.
    state: its pickled state, usually a dict of its attributes.
    items: appended items.
  """

  name: str
  args: Sequence[Any] = ()
  state: Any = None
  items: Sequence[Any] = ()


def read(path: Any) -> Any:
  """Return a file's content: containers, numbers, text, tensors as mapped NumPy arrays, and `Foreign` objects.

  Raises:
    InputError: the file is missing, truncated or damaged, or names an unknown function or class, which is not run.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    raise InputError(f'{path} does not exist')
  with tempfile.TemporaryDirectory() as folder:
    index = _index(path, pathlib.Path(folder) / 'index.json')
  try:
    content = _build(path, index)
    if not index['truncated']:
      return content
    raise InputError(
      f'{path}: not read: a zip file without the directory at its end: the file, of {path.stat().st_size:,} bytes, '
      "is truncated after its tensors' values"
    )
  except (RecursionError, TypeError) as error:  # nested too deeply; a key that cannot be one
    raise InputError(f"{path}: not read: its structure is not a checkpoint's ({error})") from None


def _index(path: pathlib.Path, index: pathlib.Path) -> dict[str, Any]:
  """Run the child and return what it found."""
  memory = _BASE + _TIMES * min(path.stat().st_size, _BASE)
  seconds = _PROCESSOR + _structure(path) // _SPEED
  files = [os.fspath(file) for file in (_PROGRAM, path.resolve(), index)]
  command = [sys.executable, '-I', *files, str(memory), str(seconds)]
  try:
    done = subprocess.run(
      command, capture_output=True, encoding='utf-8', errors='replace', timeout=_SECONDS, env={}, check=False
    )
  except subprocess.TimeoutExpired:
    raise InputError(f'{path}: not read: it takes longer than {_SECONDS} seconds') from None
  if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL) if hasattr(signal, 'SIGXCPU') else False:
    raise InputError(
      f'{path}: not read, and nothing of it was run: it takes more than {seconds} seconds of processor time, which its '
      'size does not explain'
    )
  if done.returncode:
    lines = done.stderr.strip().splitlines() or ['the process that reads it was stopped']
    raise InputError(f'{path}: not read, and nothing of it was run: {lines[-1]}')
  try:
    return json.loads(index.read_text(encoding='utf-8'))
  except (RecursionError, ValueError) as error:
    raise InputError(f'{path}: not read: its structure is damaged ({type(error).__name__})') from None


def _structure(path: pathlib.Path) -> int:
  """Return how many bytes of a file are unpickled: at most all; in the zip format only data.pkl."""
  size = path.stat().st_size
  try:
    with zipfile.ZipFile(path) as archive:
      return min(size, sum(info.file_size for info in archive.infolist() if info.filename.endswith('data.pkl')))
  except (zipfile.BadZipFile, ValueError, RuntimeError, OSError):
    return size


def _build(path: pathlib.Path, index: Mapping[str, Any]) -> Any:
  """Return the content that the index describes, with tensors mapped from the file."""
  size, storages, nodes = path.stat().st_size, index['storages'], index['nodes']
  built: list[Any] = [_empty(node) for node in nodes]  # before their content, which may refer to them

  def get(x: Any, name: str) -> Any:
    if not isinstance(x, dict):
      return x
    ((kind, value),) = x.items()
    if kind == 'tensor':
      return _tensor(path, size, storages, value, name)
    if kind != 'node':
      return bytes.fromhex(value) if kind == 'bytes' else float(value) if kind == 'number' else Foreign(value)
    if built[value] is None:
      ((kind, parts),) = nodes[value].items()
      built[value] = (tuple if kind == 'tuple' else frozenset)(get(y, f'{name}[{i}]') for i, y in enumerate(parts))
    return built[value]

  for made, node in zip(built, nodes, strict=True):
    if 'object' in node:
      made.args, made.state, made.items = (get(node[part], node['object']) for part in ('args', 'state', 'items'))
    elif 'dict' in node:
      made.update((key := get(k, 'a key'), get(v, str(key))) for k, v in node['dict'])
    elif 'list' in node:
      made += [get(v, f'number {i} of a list') for i, v in enumerate(node['list'])]
  return get(index['root'], path.name)


def _empty(node: Mapping[str, Any]) -> Any:
  """Return the object of a node without its content; None for one that cannot change."""
  return Foreign(node['object']) if 'object' in node else {} if 'dict' in node else [] if 'list' in node else None


def _tensor(path: pathlib.Path, size: int, storages: Mapping[str, Any], where: Sequence[Any], name: str) -> np.ndarray:
  """Return one tensor, mapped read-only from the file."""
  key, dtype_name, offset, shape, strides = where
  dtype = np.dtype(ml_dtypes.bfloat16 if dtype_name == 'bfloat16' else dtype_name)
  if key not in storages:
    raise InputError(f'{path}: tensor "{name}": its values are not in the file, which may be truncated')
  begin, length = storages[key]
  numbers = [*shape, *strides, offset]
  if len(shape) != len(strides) or len(shape) > _AXES or not all(type(n) is int and n >= 0 for n in numbers):
    raise InputError(
      f'{path}: tensor "{name}": got shape {show(shape)} and strides {show(strides)}; expected integers from 0, as '
      f'many strides as sizes, at most {_AXES}'
    )
  count, most = math.prod(n or 1 for n in shape), max(length // dtype.itemsize, _REPEATED)
  if count > most:
    raise InputError(
      f'{path}: tensor "{name}": got shape {show(shape)}, of {count:,} values; expected at most {most:,}: its '
      f'storage has {length:,} bytes'
    )
  if 0 in shape:
    return np.zeros(shape, dtype)
  last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
  end = begin + (last + 1) * dtype.itemsize
  if end > begin + length or begin + length > size:
    raise InputError(
      f'{path}: tensor "{name}": it ends at byte {end:,}; its storage ends at {begin + length:,} and the file at '
      f'{size:,}; it may be truncated'
    )
  numbers_in_file = mapped.view(path, begin, [length // dtype.itemsize], dtype)
  steps = [stride * dtype.itemsize if n > 1 else 0 for n, stride in zip(shape, strides, strict=True)]
  return np.lib.stride_tricks.as_strided(numbers_in_file[offset:], shape, steps, writeable=False)


def show(numbers: Sequence[Any]) -> str:
  """Return sizes for a message, truncated to 60 characters."""
  text = str(list(numbers))
  return text if len(text) <= 60 else text[:57] + '...'


def write(path: Any, content: Any) -> None:
  """Write a torch.save file in the zip format, or a plain pickle if the name ends with .pkl.

  Args:
    path: the file; a plain pickle has no arrays.
    content: dicts, lists, texts, numbers; float32 arrays as tensors, of which a `streamed.Lazy` one is computed when it
      is written; and `Foreign`: an object by its state, the value of a function by its arguments, or a class or
      function by its name if it has neither.
  """
  writer = _Writer()
  pickled = b'\x80\x02' + writer.opcodes(content) + b'.'
  if pathlib.Path(path).suffix == '.pkl':
    pathlib.Path(path).write_bytes(pickled)
    return
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as archive:
    archive.writestr('archive/data.pkl', pickled)
    archive.writestr('archive/byteorder', 'little')
    for key, x in enumerate(writer.arrays):
      archive.writestr(f'archive/data/{key}', np.ascontiguousarray(x, '<f4').data.cast('B') if x.size else b'')
    archive.writestr('archive/version', '3\n')


class _Writer:
  """Opcodes of protocol 2.

  Attributes:
    arrays: arrays of the content, in the order of their storages.
  """

  def __init__(self) -> None:
    self.arrays: list[Any] = []
    self._numbers: dict[int, int] = {}  # id of an object in the memo -> its number

  def opcodes(self, x: Any) -> bytes:
    """Return the opcodes that build an object."""
    build = lambda *parts: b''.join(map(self.opcodes, parts))
    if x is None or isinstance(x, bool):
      return {None: b'N', True: b'\x88', False: b'\x89'}[x]
    if isinstance(x, str):
      text = x.encode()
      return b'X' + struct.pack('<I', len(text)) + text
    if isinstance(x, dict):
      return b'}(' + build(*(part for pair in x.items() for part in pair)) + b'u'
    if isinstance(x, list):
      return b'](' + build(*x) + b'e'
    if isinstance(x, tuple):
      return b'(' + build(*x) + b't'
    if isinstance(x, int):
      return b'\x8a\x09' + x.to_bytes(9, 'little', signed=True)
    if isinstance(x, float):
      return b'G' + struct.pack('>d', x)
    return self._foreign(x) if isinstance(x, Foreign) else self._tensor(x)

  def _foreign(self, x: Foreign) -> bytes:
    """Return the opcodes of an object, which is built once: others refer to it, and so may its own state."""
    if id(x) in self._numbers:
      return b'j' + struct.pack('<I', self._numbers[id(x)])
    module, _, name = x.name.rpartition('.')
    begin = f'c{module}\n{name}\n'.encode()
    if x.args:
      begin += self.opcodes(tuple(x.args)) + b'R'
    elif x.state is not None:
      begin += b')\x81'
    number = self._numbers[id(x)] = len(self._numbers)
    begin += b'r' + struct.pack('<I', number)
    return begin if x.state is None else begin + self.opcodes(x.state) + b'b'

  def _tensor(self, x: Any) -> bytes:
    strides = tuple(int(np.prod(x.shape[i + 1 :], dtype=np.int64)) for i in range(x.ndim))
    place = self.opcodes('storage') + b'ctorch\nFloatStorage\n' + self.opcodes(str(len(self.arrays)))
    storage = b'(' + place + self.opcodes('cpu') + self.opcodes(x.size) + b'tQ'
    self.arrays.append(x)
    hooks = b'\x89ccollections\nOrderedDict\n)R'  # no gradient, no hooks
    sizes = self.opcodes(0) + self.opcodes(x.shape) + self.opcodes(strides)
    return b'ctorch._utils\n_rebuild_tensor_v2\n(' + storage + sizes + hooks + b'tR'


def module(
  name: str, parameters: Mapping[str, Foreign] = {}, children: Mapping[str, Foreign] = {}, **attributes: Any
) -> Foreign:
  """Return a module of PyTorch for `write`, with its parameters, modules and attributes by name."""
  hooks: dict[str, Any] = {kind: {} for kind in ('_backward_hooks', '_forward_hooks', '_forward_pre_hooks', '_buffers')}
  own = {'_parameters': dict(parameters), '_modules': dict(children)}
  return Foreign(name, state={'training': True, **hooks, **own, **attributes})


def are_tensors(content: Any) -> bool:
  """Return True for tensors by name, as a `state_dict` is."""
  return isinstance(content, dict) and all(isinstance(x, np.ndarray) for x in content.values())


def tensors(module: Any, prefix: str = '') -> dict[str, np.ndarray]:
  """Return {name: array} of a module saved whole, as its `state_dict` has them.

  Raises:
    InputError: it is not a module.
  """
  state = module.state if isinstance(module, Foreign) else None
  if not isinstance(state, dict) or not isinstance(state.get('_modules'), dict):
    kind = module.name if isinstance(module, Foreign) else type(module).__name__
    raise InputError(f'got {kind}; expected a module of PyTorch')
  found = {
    f'{prefix}{name}': value
    for part in ('_parameters', '_buffers')
    for name, value in (state.get(part) or {}).items()
    if isinstance(value, np.ndarray)
  }
  for name, child in state['_modules'].items():
    found |= tensors(child, f'{prefix}{name}.') if child is not None else {}
  return found
