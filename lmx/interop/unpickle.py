"""Read a pickle's structure without running anything in it: a program that only uses the standard library.

`lmx.interop.torch_file` starts it as a child process with limits on memory, time and output:

  python -I unpickle.py FILE INDEX MEMORY SECONDS

It unpickles FILE with at most MEMORY bytes and SECONDS of processor time and writes INDEX, JSON that describes the
content and the locations of its values; it copies no values. FILE is a plain pickle, or a file of torch.save in the zip
format (PyTorch 1.6 and later) or in the one before.

A pickle names functions that its reader calls. Here a name is one of: a container of the standard library; a function
that rebuilds a tensor, replaced by one that records where its values are; or a class of a module in `INERT`, replaced
by a class that keeps its arguments and state and does nothing. Any other name stops the program. Exit codes: 0, or 3
with a line on stderr that says what was refused or damaged.
"""

from __future__ import annotations

import collections
import json
import os
import pickle
import struct
import sys
import zipfile
from typing import Any

MAGIC = 0x1950A86A20F9469CFC6C  # of the format before PyTorch 1.6: four pickles, then the values
REFUSED = 3
SCALARS = {  # NumPy type -> its format in struct
  **dict(zip(('b1', 'i1', 'i2', 'i4', 'i8'), ('?', '<b', '<h', '<i', '<q'), strict=True)),
  **dict(zip(('u1', 'u2', 'u4', 'u8'), ('<B', '<H', '<I', '<Q'), strict=True)),
  **dict(zip(('f2', 'f4', 'f8'), ('<e', '<f', '<d'), strict=True)),
}
GRACE = 5  # seconds of processor time between the signal to stop and the end
STORAGES = {  # torch class -> type of its values
  'DoubleStorage': 'float64',
  'FloatStorage': 'float32',
  'HalfStorage': 'float16',
  'BFloat16Storage': 'bfloat16',
  'LongStorage': 'int64',
  'IntStorage': 'int32',
  'ShortStorage': 'int16',
  'CharStorage': 'int8',
  'ByteStorage': 'uint8',
  'BoolStorage': 'bool',
  'UntypedStorage': 'uint8',
}
DTYPES = {  # attribute of torch -> type
  **{name: name for name in ('float64', 'float32', 'float16', 'bfloat16', 'int64', 'int32', 'int16', 'int8', 'uint8')},
  **{'double': 'float64', 'float': 'float32', 'half': 'float16', 'long': 'int64', 'int': 'int32', 'bool': 'bool'},
}
SIZES = {'64': 8, '32': 4, '16': 2, 'int8': 1, 'uint8': 1, 'bool': 1}
# Modules (with submodules) whose classes are replaced by inert ones: settings; modules that salesforce/awd-lstm-lm and
# kimiyoung/transformer-xl save whole; fastai with what its Learner keeps, fairseq and optimizers; and contents of a
# TransfoXLTokenizer: patterns (re), Moses' rules and added tokens.
INERT = (
  'argparse',
  'torch.nn',
  'torch.optim',
  'torch.device',
  'numpy',
  'pathlib',
  'model',
  'weight_drop',
  'embed_regularize',
  'locked_dropout',
  'splitcross',
  'torchqrnn',
  'data',
  'mem_transformer',
  'proj_adaptive_softmax',
  'adaptive_softmax',
  'log_uniform_sampler',
  'vocabulary',
  'data_utils',
  'utils',
  'fastai',
  'fastcore',
  'fasttransform',
  'cloudpickle',
  'confection',
  'inspect',
  'pandas',
  'random',
  'spacy',
  'fairseq',
  'omegaconf',
  're',
  'sacremoses',
  'tokenizers',
  'transformers',
)


class Refused(Exception):
  """The file is damaged or needs an unsupported operation; the message is for the user."""


class Dict(dict):
  """A dict whose further state (PyTorch's `_metadata`) is dropped."""

  def __setstate__(self, state: Any) -> None:
    del state


class Inert:
  """An object of a foreign class: its arguments, state and items, and no behaviour."""

  def __new__(cls, *args: Any, **kwargs: Any) -> Inert:
    del kwargs
    made = object.__new__(cls)
    made.__dict__.update(args=args, state=None, items=[])
    return made

  def __init__(self, *args: Any, **kwargs: Any) -> None:
    pass

  def __setstate__(self, state: Any) -> None:
    self.__dict__['state'] = state

  def __setitem__(self, key: Any, value: Any) -> None:
    self.__dict__['items'].append((key, value))

  def append(self, item: Any) -> None:
    self.__dict__['items'].append(item)

  def extend(self, items: Any) -> None:
    self.__dict__['items'].extend(items)


class Storage(collections.namedtuple('Storage', 'key dtype numel')):
  """Numbers of one type that tensors share."""


class Tensor(collections.namedtuple('Tensor', 'storage offset shape strides')):
  """Location of a tensor's values in its storage, counted in values."""


class Type(collections.namedtuple('Type', 'name')):
  """Type of a storage or tensor."""


def rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> Tensor:
  """Replace torch._utils._rebuild_tensor and _rebuild_tensor_v2."""
  del rest
  if not isinstance(storage, Storage):
    raise Refused('a tensor without a storage')
  return Tensor(storage, offset, tuple(shape), tuple(strides))


def rebuild_tensor_of_type(
  storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any, hooks: Any, dtype: Any, *rest: Any
) -> Tensor:
  """Replace torch._utils._rebuild_tensor_v3, whose storage has no type."""
  del requires_grad, hooks, rest
  return Tensor(Storage(storage.key, dtype.name, -1), offset, tuple(shape), tuple(strides))


def rebuild_parameter(tensor: Any, *rest: Any) -> Any:
  """Replace torch._utils._rebuild_parameter and _rebuild_parameter_with_state."""
  del rest
  return tensor


def rebuild_from_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
  """Replace torch._tensor._rebuild_from_type_v2: a tensor with attributes, which are dropped."""
  del kind, state
  if function not in (rebuild_tensor, rebuild_tensor_of_type, rebuild_parameter):
    raise Refused('a tensor that is rebuilt by another function')
  return function(*args)


def reconstruct(kind: Any, base: Any = object, state: Any = None) -> Any:
  """Replace copyreg._reconstructor, for foreign classes."""
  del base, state
  if not (isinstance(kind, type) and issubclass(kind, (Inert, Dict))):
    raise Refused('an object of a class that is not one of a foreign module')
  return kind()


def to_bytes(text: Any, encoding: Any) -> bytes:
  """Replace _codecs.encode, by which bytes of Python 2 are written."""
  if not isinstance(text, str) or encoding not in ('latin1', 'latin-1'):
    raise Refused('an encoding other than latin1')
  return text.encode('latin1')


class Scalar(Inert):
  """A number of NumPy of a type that is not read."""

  NAME = 'numpy.core.multiarray.scalar'


def scalar(dtype: Any, data: Any = None) -> Any:
  """Replace numpy.core.multiarray.scalar: return a number or a text."""
  kind = dtype.__dict__['args'][0] if isinstance(dtype, Inert) and dtype.__dict__['args'] else None
  data = data.encode('latin1') if isinstance(data, str) else data
  if isinstance(kind, str) and isinstance(data, bytes):
    if kind.startswith('U'):
      return data.decode('utf-32-le').rstrip('\0')
    if kind in SCALARS and struct.calcsize(SCALARS[kind]) == len(data):
      return struct.unpack(SCALARS[kind], data)[0]
  return Scalar(dtype, data)


def method(x: Any, name: Any) -> Any:
  """Replace getattr, by which Python 3 writes a bound method: WeightDrop keeps one in its module."""
  kind = x if isinstance(x, type) else type(x)
  if not issubclass(kind, Inert) or not isinstance(name, str):
    raise Refused('an attribute of something else than an object of a foreign module')
  return nothing


def printed(*args: Any) -> None:
  """Replace print, which a Learner of fastai keeps and nothing calls."""
  del args
  raise Refused('it calls builtins.print')


def nothing(*args: Any) -> None:
  """Replace a function whose value is not used."""
  del args


ALLOWED: dict[tuple[str, str], Any] = {
  **{('collections', name): Dict for name in ('OrderedDict', 'Counter')},
  ('collections', 'defaultdict'): lambda *args: Dict(),
  **{('builtins', kind.__name__): kind for kind in (dict, list, tuple, set, frozenset, int, float, str, bool, complex)},
  ('builtins', 'long'): int,  # names of Python 2
  ('builtins', 'unicode'): str,
  ('builtins', 'bytearray'): bytes,
  ('builtins', 'object'): Inert,
  ('builtins', 'getattr'): method,
  ('builtins', 'print'): printed,
  ('_codecs', 'encode'): to_bytes,
  ('copyreg', '_reconstructor'): reconstruct,
  ('numpy.core.multiarray', 'scalar'): scalar,
  ('numpy._core.multiarray', 'scalar'): scalar,
  ('cloudpickle.cloudpickle', '_builtin_type'): lambda name: Inert,  # a type of functions saved with their code
  ('torch', 'Size'): tuple,
  ('torch._utils', '_rebuild_tensor'): rebuild_tensor,
  ('torch._utils', '_rebuild_tensor_v2'): rebuild_tensor,
  ('torch._utils', '_rebuild_tensor_v3'): rebuild_tensor_of_type,
  ('torch._utils', '_rebuild_parameter'): rebuild_parameter,
  ('torch._utils', '_rebuild_parameter_with_state'): rebuild_parameter,
  ('torch._tensor', '_rebuild_from_type_v2'): rebuild_from_type,
  ('torch.nn.backends.thnn', '_get_thnn_function_backend'): nothing,
  **{('torch', name): Type(dtype) for name, dtype in (STORAGES | DTYPES).items()},
  ('torch.storage', 'UntypedStorage'): Type('uint8'),
}
PYTHON2 = {'__builtin__': 'builtins', 'copy_reg': 'copyreg'}


class Unpickler(pickle.Unpickler):
  """Unpickler that only calls functions in this file."""

  def __init__(self, file: Any) -> None:
    super().__init__(file, encoding='latin1')
    self.classes: dict[str, type] = {}
    self.storages: dict[str, Storage] = {}

  def find_class(self, module: str, name: str) -> Any:
    module = PYTHON2.get(module, module)
    if (module, name) in ALLOWED:
      return ALLOWED[module, name]
    whole = f'{module}.{name}'
    if not any(whole == inert or whole.startswith(f'{inert}.') for inert in INERT):
      raise Refused(f'it names {whole}, which is neither a tensor, a container nor a class of a known release')
    if whole not in self.classes:
      self.classes[whole] = type(name.replace('.', '_'), (Inert,), {'NAME': whole})
    return self.classes[whole]

  def persistent_load(self, pid: Any) -> Any:
    kind, what, *rest = pid
    if kind == 'module':  # a class with its source, which is not looked at
      return what
    if kind != 'storage' or not isinstance(what, Type):
      raise Refused('a reference to something else than a storage')
    key, _, numel, *view = rest
    if view and view[0] is not None:
      raise Refused('a view of a storage, a form of PyTorch before 0.4')
    storage = Storage(str(key), what.name, int(numel))
    self.storages.setdefault(storage.key, storage)
    return storage


def encode(root: Any) -> tuple[list[Any], Any]:
  """Return (nodes, root) of JSON: containers and objects are nodes, which may be shared and refer in circles."""
  nodes: list[Any] = []
  kept: list[Any] = []  # their ids belong to living objects
  waiting: list[Any] = []
  seen: dict[int, int] = {}

  def refer(x: Any) -> Any:
    if x is None or isinstance(x, (bool, str)):
      return x
    if isinstance(x, (int, float)):
      return x if abs(x) < float('inf') else {'number': repr(x)}
    if isinstance(x, bytes):
      return {'bytes': x.hex()}
    if isinstance(x, Tensor):
      return {'tensor': [x.storage.key, x.storage.dtype, x.offset, x.shape, x.strides]}
    if isinstance(x, (Storage, Type, type, complex)) or callable(x):
      return {'opaque': getattr(x, 'NAME', type(x).__name__)}
    if not isinstance(x, (dict, list, tuple, set, frozenset, Inert)):
      raise Refused(f'it holds an object of {type(x).__name__}')
    if id(x) not in seen:
      seen[id(x)] = len(nodes)
      nodes.append(None)
      kept.append(x)
      waiting.append(x)
    return {'node': seen[id(x)]}

  top = refer(root)
  while waiting:
    x = waiting.pop()
    at = seen[id(x)]
    if isinstance(x, dict):
      nodes[at] = {'dict': [[refer(k), refer(v)] for k, v in x.items()]}
    elif not isinstance(x, Inert):
      kind = 'list' if isinstance(x, list) else 'tuple' if isinstance(x, tuple) else 'set'
      nodes[at] = {kind: [refer(y) for y in x]}
    else:
      parts = {name: refer(x.__dict__[name]) for name in ('args', 'state', 'items')}
      nodes[at] = {'object': getattr(type(x), 'NAME', 'object'), **parts}
  return nodes, top


def item_size(dtype: str) -> int:
  """Return the bytes of one number."""
  return next(size for ending, size in SIZES.items() if dtype.endswith(ending))


def read_zip(path: str) -> tuple[Any, dict[str, list[int]]]:
  """Return (object, {storage: [offset, bytes]}) for a file in the zip format."""
  with zipfile.ZipFile(path) as archive, open(path, 'rb') as file:
    infos = {info.filename: info for info in archive.infolist()}
    named = [name for name in infos if name == 'data.pkl' or name.endswith('/data.pkl')]
    if len(named) != 1:
      raise Refused('a zip file without one data.pkl: not a file of torch.save')
    folder = named[0][: -len('data.pkl')]
    order = f'{folder}byteorder'
    if order in infos and archive.read(order) != b'little':
      raise Refused('values in big-endian order')
    with archive.open(named[0]) as stream:
      root = Unpickler(stream).load()
    storages = {}
    for name, info in infos.items():
      if not name.startswith(f'{folder}data/'):
        continue
      if info.compress_type != zipfile.ZIP_STORED:
        raise Refused(f'{name} is compressed; torch.save does not compress')
      file.seek(info.header_offset)
      header = file.read(30)
      if len(header) < 30 or header[:4] != b'PK\x03\x04':
        raise Refused(f'{name} is damaged')
      start = info.header_offset + 30 + sum(struct.unpack('<HH', header[26:30]))
      storages[name[len(folder) + len('data/') :]] = [start, info.file_size]
  return root, storages


def read_truncated_zip(path: str) -> tuple[Any, dict[str, list[int]]]:
  """Return (object, {storage: [offset, bytes]}) for a truncated zip file, without the directory at its end.

  A header precedes each entry, data.pkl first. The last storage may end beyond the file, and others may be missing.
  """
  size = os.path.getsize(path)
  missing = f'a zip file without the directory at its end: the file, of {size:,} bytes, is truncated'
  with open(path, 'rb') as file:
    name, start, _ = local_header(file, 0)
    if not name.endswith('data.pkl'):
      raise Refused(missing)
    unpickler = Unpickler(file)
    try:
      file.seek(start)
      root = unpickler.load()
    except (EOFError, pickle.UnpicklingError):
      raise Refused(f'{missing} within {name}, the names of its tensors') from None
    storages: dict[str, list[int]] = {}
    folder, at = name[: -len('data.pkl')], file.tell()
    while (at := next_header(file, at)) >= 0:
      name, start, length = local_header(file, at)
      at = start
      key = name[len(folder) + len('data/') :] if name.startswith(f'{folder}data/') else ''
      if key in unpickler.storages:  # torch writes a header before it has the length
        storage = unpickler.storages[key]
        length = length or max(storage.numel, 0) * item_size(storage.dtype)
        storages[key] = [start, length]
        at = start + length
  return root, storages


def local_header(file: Any, at: int) -> tuple[str, int, int]:
  """Return (name, start of the content, its length, 0 if unknown) of the entry at an offset in a zip file."""
  file.seek(at)
  header = file.read(30)
  if len(header) < 30:
    return '', at + 30, 0
  length, name, extra = struct.unpack('<IHH', header[22:30])
  return file.read(name).decode(errors='replace'), at + 30 + name + extra, 0 if length == 0xFFFFFFFF else length


def next_header(file: Any, at: int) -> int:
  """Return the offset of a zip file's next header, which is near because entries are aligned; -1 if there is none."""
  file.seek(at)
  distance = file.read(1 << 16).find(b'PK\x03\x04')
  return at + distance if distance >= 0 else -1


def read_pickle(path: str) -> tuple[Any, dict[str, list[int]]]:
  """Return (object, {storage: [offset, bytes]}) of a plain pickle, or of torch.save before PyTorch 1.6."""
  with open(path, 'rb') as file:
    root = Unpickler(file).load()
    if root != MAGIC:
      return root, {}
    version, machine = Unpickler(file).load(), Unpickler(file).load()
    if version != 1001 or not (isinstance(machine, dict) and machine.get('little_endian', True)):
      raise Refused('a file of torch.save of another version or byte order')
    unpickler = Unpickler(file)
    storages: dict[str, list[int]] = {}
    root = unpickler.load()
    for key in Unpickler(file).load():
      header = file.read(8)
      storage = unpickler.storages.get(str(key))
      if len(header) < 8:
        break  # the file is truncated; the tensors of the other storages are named by who reads the index
      if storage is None:
        raise Refused('values of a storage that no tensor uses')
      size = struct.unpack('<q', header)[0] * item_size(storage.dtype)
      storages[str(key)] = [file.tell(), size]
      file.seek(size, 1)
  return root, storages


def limit(memory: int, seconds: int) -> None:
  """Limit this process where the system can: memory, seconds, output size, no child processes."""
  try:
    import resource
  except ImportError:  # Windows
    return
  for kind, value, most in (
    (resource.RLIMIT_AS, memory, memory),
    (resource.RLIMIT_CPU, seconds, seconds + GRACE),
    (resource.RLIMIT_FSIZE, memory, memory),
    (resource.RLIMIT_NPROC, 0, 0),
    (resource.RLIMIT_CORE, 0, 0),
  ):
    hard = resource.getrlimit(kind)[1]
    bounded = lambda value, hard=hard: value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bounded(value), bounded(most)))


def main(path: str, index: str, memory: str, seconds: str) -> None:
  """Write the index of a file."""
  limit(int(memory), int(seconds))
  with open(path, 'rb') as file:
    truncated = file.read(2) == b'PK' and not zipfile.is_zipfile(path)
  read = read_truncated_zip if truncated else read_zip if zipfile.is_zipfile(path) else read_pickle
  root, storages = read(path)
  nodes, top = encode(root)
  with open(index, 'w', encoding='utf-8') as file:
    json.dump({'root': top, 'nodes': nodes, 'storages': storages, 'truncated': truncated}, file)


if __name__ == '__main__':
  sys.setrecursionlimit(10_000)
  try:
    main(*sys.argv[1:])
  except Refused as error:
    print(error, file=sys.stderr)
    sys.exit(REFUSED)
  except MemoryError:
    print('it needs more memory than its size explains', file=sys.stderr)
    sys.exit(REFUSED)
  except Exception as error:  # pickles can be damaged in any way
    print(f'it cannot be read ({type(error).__name__}: {error})', file=sys.stderr)
    sys.exit(REFUSED)
