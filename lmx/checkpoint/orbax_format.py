"""The on-disk format of one checkpoint; the only module that uses Orbax.

A commit is one directory, `step_000000123` (`step_000000123.1` if that step is saved again), with
  state/  every array of the run (parameters, optimizer, model state, keys), written by Orbax
  meta/   JSON with a SHA-256: the caller's data (config, hash, data manifest, loop state), the metric, and
          path, shape, dtype and checksum of every array
  files.json  size and CRC-32 of every file (not in a bucket, which checks its objects itself)
Orbax writes to a temporary name and renames it at the end, so a killed write never looks finished.
Checksums (lmx/checkpoint/checksum.py) are computed on the device before the write and again after the read,
because the file format's own checks do not detect every flipped bit. The files are checked before
Orbax opens them, because Orbax's threads print tracebacks on broken files.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import itertools
import json
import logging
import math
import pathlib
import re
import shutil
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import tensorstore as ts
from etils import epath

from lmx.checkpoint.checksum import checksums
from lmx.errors import InputError, disk_advice

Tree = Any
Entry = tuple[int, int]  # step, attempt
Flat = dict[tuple[str, ...], Any]  # path of a leaf -> leaf
Rows = dict[str, dict[str, Any]]  # path joined with '/' -> shape, dtype, key type, checksum

_FILES = 'files.json'
_CHUNK, _CHUNKS = 1 << 21, 64  # smallest chunk and file in bytes, and how many there are at most of large arrays
_READ_AT_ONCE = 1 << 25  # bytes
_TURNS, _SMALL = 8, 1 << 16  # chunks written at a time, and bytes of arrays that are not counted
_CHANGED_LATER = (_FILES, 'commit_success.txt', '_CHECKPOINT_METADATA')  # by Orbax, at the rename
# Exceptions from parsing a damaged JSON file; RecursionError: nested too deep.
_UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
_NAME = re.compile(r'step_(\d{9})(?:\.(\d+))?')


class Damaged(Exception):
  """The checkpoint cannot be trusted; the message is the reason."""


class _OrbaxFilter(logging.Filter):
  """Filter that drops Orbax's log lines; failures reach the caller as exceptions."""

  def filter(self, record: logging.LogRecord) -> bool:
    return 'orbax' not in record.pathname


logging.getLogger('absl').addFilter(_OrbaxFilter())


# Leaves of the state


def _is_key(leaf: Any) -> bool:
  return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def flatten(tree: Tree) -> tuple[Flat, Any]:
  """Return {path: leaf} and the treedef; scalars become NumPy arrays."""
  leaves, treedef = jax.tree_util.tree_flatten_with_path(tree)
  flat = {}
  for path, leaf in leaves:
    names = tuple(jax.tree_util.keystr((part,), simple=True) for part in path) or ('value',)
    flat[names] = leaf if hasattr(leaf, 'dtype') and hasattr(leaf, 'shape') else np.asarray(leaf)
  return flat, treedef


def nest(flat: Flat) -> dict[str, Any]:
  """Return nested dicts with the leaves at their paths."""
  nested: dict[str, Any] = {}
  for path, leaf in flat.items():
    node = nested
    for name in path[:-1]:
      node = node.setdefault(name, {})
    node[path[-1]] = leaf
  return nested


def pick(nested: dict[str, Any], path: tuple[str, ...]) -> Any:
  """Return the node at a path of nested dicts."""
  for name in path:
    nested = nested[name]
  return nested


def _raw(leaf: Any) -> Any:
  """Return the array that is stored for a leaf: the key data of a typed key, otherwise the leaf itself."""
  if not _is_key(leaf):
    return leaf
  if isinstance(leaf, jax.Array):
    return jax.random.key_data(leaf)
  shape = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(leaf.shape, leaf.dtype))
  return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=leaf.sharding)


def _describe(leaf: Any) -> dict[str, Any]:
  raw = _raw(leaf)
  key = str(leaf.dtype) if _is_key(leaf) else ''
  return {'shape': list(raw.shape), 'dtype': jnp.dtype(raw.dtype).name, 'key': key}


def _wrap(data: jax.Array, dtype: Any) -> jax.Array:
  """Return the typed key array of this dtype from its stored key data."""
  for impl in ('threefry2x32', 'rbg', 'unsafe_rbg'):
    abstract = jax.eval_shape(lambda impl=impl: jax.random.key(0, impl=impl))
    if abstract.dtype == dtype:
      return jax.random.wrap_key_data(data, impl=impl)
  raise InputError(f'keys of type {dtype} cannot be restored')


def describe(flat: Flat) -> Rows:
  """Return the shape, dtype and key type of every leaf."""
  return {'/'.join(key): _describe(leaf) for key, leaf in flat.items()}


# Names and files


def name(entry: Entry) -> str:
  """Return the name of a checkpoint's directory."""
  return f'step_{entry[0]:09d}' + (f'.{entry[1]}' if entry[1] else '')


def entries(directory: epath.Path) -> list[Entry]:
  """Return the finished checkpoints in ascending order."""
  if not directory.exists():
    return []
  checkpoints = []
  for path in directory.iterdir():
    match = _NAME.fullmatch(path.name)
    if match and ocp.utils.is_checkpoint_finalized(path):
      checkpoints.append((int(match[1]), int(match[2] or 0)))
  return sorted(checkpoints)


def _document(body: dict[str, Any]) -> dict[str, Any]:
  body = json.loads(json.dumps(body))
  digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
  return {'body': body, 'sha256': digest}


def read_document(path: epath.Path) -> dict[str, Any]:
  """Return the JSON part of a checkpoint.

  Raises:
    Damaged: it differs from what was written.
    InputError: the folder is named after another step, so it was renamed or copied.
  """
  try:
    document = json.loads((path / 'meta' / 'metadata').read_text(encoding='utf-8'))
    body, digest = document['body'], document['sha256']
    text = json.dumps(body, sort_keys=True)
  except _UNREADABLE as e:
    raise Damaged(f'meta/metadata cannot be read ({short(e)})') from e
  if hashlib.sha256(text.encode()).hexdigest() != digest:
    raise Damaged('meta/metadata differs from its SHA-256')
  match = _NAME.fullmatch(path.name)
  if match and int(match[1]) != body['step']:
    raise InputError(
      f'{path}: got a checkpoint of step {body["step"]:,}; expected step {int(match[1]):,}, as the folder is named; '
      f'rename it to {name((body["step"], 0))}, or remove it if it is a copy'
    )
  return body


def documents(directory: epath.Path, entries: list[Entry]) -> tuple[dict[Entry, dict[str, Any]], dict[Entry, str]]:
  """Return the JSON of each intact checkpoint, and the reason for each damaged one."""
  intact: dict[Entry, dict[str, Any]] = {}
  damaged = {}
  for entry in entries:
    try:
      intact[entry] = read_document(directory / name(entry))
    except Damaged as error:
      damaged[entry] = str(error)
  return intact, damaged


def short(error: BaseException) -> str:
  """Return an error as one line."""
  text = ' '.join(str(error).split())
  return f'{type(error).__name__}: {text[:200]}'


def file_system_error(error: BaseException) -> str | None:
  """Return the file system's error message, or None if the error is of another kind."""
  chain: BaseException | None = error
  while chain is not None:
    text = str(chain)
    code = getattr(chain, 'errno', None)
    if code in (errno.ENOSPC, errno.EDQUOT) or re.search('No space left|quota exceeded', text):
      return 'no space left on the disk'
    if advice := disk_advice(code, text):
      return advice
    if isinstance(chain, OSError) or re.search(r'\[OS error|\[os_error_code=|PERMISSION_DENIED', text):
      return short(chain)
    chain = chain.__cause__ or chain.__context__
  return None


def free(directory: epath.Path) -> str:
  """Return the free disk space as text."""
  try:
    return f'{shutil.disk_usage(directory).free / 1e6:,.1f} MB'
  except OSError:
    return 'an unknown number of MB'


# Writing and reading


def is_remote(path: epath.Path) -> bool:
  """Return True if a path is in a bucket."""
  return '://' in str(path)


def _crc(path: pathlib.Path) -> list[int]:
  size = crc = 0
  with path.open('rb') as f:
    while block := f.read(1 << 20):
      size, crc = size + len(block), zlib.crc32(block, crc)
  return [size, crc]


def _file_sums(path: epath.Path) -> dict[str, list[int]]:
  root = pathlib.Path(path)
  files = [p for p in root.rglob('*') if p.is_file() and p.name not in _CHANGED_LATER]
  with ThreadPoolExecutor(4) as pool:
    return dict(zip((str(p.relative_to(root)) for p in files), pool.map(_crc, files), strict=True))


def check_files(path: epath.Path) -> None:
  """Raise `Damaged` unless every file has the size and CRC-32 with which it was written."""
  if is_remote(path):
    return
  try:
    saved = json.loads((path / _FILES).read_text(encoding='utf-8'))
    actual = _file_sums(path)
    if saved.keys() - actual.keys():
      raise Damaged(f'missing {min(saved.keys() - actual.keys())}')
    for name, (size, crc) in saved.items():
      if actual[name][0] != size:
        raise Damaged(f'{name} has {actual[name][0]} bytes instead of {size}')
      if actual[name][1] != crc:
        raise Damaged(f'{name} differs from its CRC-32')
  except _UNREADABLE as e:
    raise Damaged(f'{_FILES} cannot be checked ({short(e)})') from e


class _ChunkHandler(ocp.type_handlers.NumpyHandler):
  """Writer of NumPy arrays a few chunks at a time; Orbax's own copies whole arrays while a disk is slow."""

  def __init__(self) -> None:
    super().__init__(deepcopy_host_arrays=False)

  async def _background_serialize(self, *args: Any) -> None:
    self._turns = asyncio.Semaphore(_TURNS)  # of this event loop; each turn rewrites the files' index in memory
    self._errors: list[Exception] = []
    await super()._background_serialize(*args)
    if self._errors:  # raised once all writes have ended, because Orbax then closes the loop
      raise self._errors[0]

  async def _open_and_write(self, value: np.ndarray, tspec: dict[str, Any], ts_context: Any) -> None:
    async def write(index: tuple[slice, ...]) -> None:
      async with self._turns if value.nbytes > _SMALL else contextlib.nullcontext():
        await store[index].write(value[index], can_reference_source_data_indefinitely=True)

    try:
      store = await ts.open(ts.Spec(tspec), create=True, open=True, context=ts_context)
      sizes: Any = store.chunk_layout.write_chunk.shape or ()  # () of a scalar
      starts = itertools.product(*(range(0, n, size) for n, size in zip(value.shape, sizes, strict=True)))
      cells = [tuple(slice(i, i + n) for i, n in zip(start, sizes, strict=True)) for start in starts]
      ended = await asyncio.gather(*map(write, cells), return_exceptions=True)
      self._errors += [error for error in ended if isinstance(error, Exception)]
    except Exception as error:
      self._errors.append(error)


class _Unraisable:
  """Hook for errors that Python cannot raise; it drops those of writes that end after their event loop.

  Orbax closes its event loop at the first failed write, and TensorStore then calls it for every other one.
  """

  def __init__(self, before: Callable[[Any], object]):
    self._before = before

  def __call__(self, error: Any) -> None:
    if not (isinstance(error.exc_value, RuntimeError) and str(error.exc_value) == 'Event loop is closed'):
      self._before(error)


class Writer:
  """Background writer of commits, one at a time."""

  def __init__(self, timeout_seconds: int, copies: bool = True) -> None:
    """Create the writer.

    Args:
      timeout_seconds: time in seconds after which one write counts as failed.
      copies: copy the arrays of this host's memory before `start` returns. Without copies the caller does not change
        them until `wait` returns. The files are not compressed, which would save a tenth and take more memory.
    """
    self._path = epath.Path()
    self._copies = copies
    if not isinstance(sys.unraisablehook, _Unraisable):
      sys.unraisablehook = _Unraisable(sys.unraisablehook)
    types = ocp.type_handlers
    uncopied = types.create_type_handler_registry(
      (np.number, types.ScalarHandler()),
      (np.ndarray, _ChunkHandler()),
      (jax.Array, types.ArrayHandler()),
    )
    handlers = {
      'state': ocp.PyTreeCheckpointHandler(type_handler_registry=uncopied, use_compression=False),
      'meta': ocp.JsonCheckpointHandler(),
    }
    self._writer = ocp.AsyncCheckpointer(
      ocp.CompositeCheckpointHandler(**({} if copies else handlers)),
      async_options=ocp.options.AsyncOptions(timeout_secs=timeout_seconds, post_finalization_callback=self._sign),
    )

  def start(self, path: epath.Path, flat: Flat, body: dict[str, Any], dtype: np.dtype | None = None) -> None:
    """Copy the arrays, add their rows to `body` and return while both are written in the background.

    Args:
      path: the directory of the commit.
      flat: the arrays.
      body: the commit's JSON.
      dtype: type in which the arrays are read again, if not in their own. They are stored in their own.
    """
    raw = {key: _raw(leaf) for key, leaf in flat.items()}
    rows = describe(flat)
    types = [dtype or leaf.dtype for leaf in raw.values()]
    for row, read_as, checksum in zip(rows.values(), types, checksums(raw.values(), types), strict=True):
      row |= {'dtype': read_as.name, 'checksum': checksum}
    document = _document(body | {'leaves': rows})
    self._path = path
    path.parent.mkdir(exist_ok=True)  # not its parents, which Orbax would create: a deleted work directory stays so
    state = ocp.args.PyTreeSave(nest(raw))
    if not self._copies:
      size = max(_CHUNK, sum(x.nbytes for x in raw.values()) // _CHUNKS)
      chunked = nest(dict.fromkeys(raw, ocp.SaveArgs(chunk_byte_size=size)))
      state = ocp.args.PyTreeSave(nest(raw), chunked, ocdbt_target_data_file_size=size)
    self._writer.save(path, args=ocp.args.Composite(state=state, meta=ocp.args.JsonSave(document)))

  def wait(self) -> None:
    """Return when no write is in progress; raise the error of a failed write."""
    self._writer.wait_until_finished()

  def close(self) -> None:
    self._writer.close()

  def _sign(self) -> None:
    """Write the files' checksums; Orbax calls this in process 0 just before the rename."""
    if is_remote(self._path):
      return
    part = next(iter(_parts(self._path)), None)
    if part is None:
      raise FileNotFoundError(errno.ENOENT, 'deleted while it was written', str(self._path))
    (part / _FILES).write_text(json.dumps(_file_sums(part)), encoding='utf-8')


def remove_partial(path: epath.Path) -> None:
  """Remove the temporary files of a failed write of `path`."""
  for part in _parts(path):
    part.rmtree(missing_ok=True)


def _parts(path: epath.Path) -> list[epath.Path]:
  """Return the temporary folders of unfinished writes of `path`, whose name may contain glob characters."""
  folder = path.parent
  names = folder.iterdir() if folder.is_dir() else ()
  return [one for one in names if one.name.startswith(f'{path.name}.orbax-checkpoint-tmp')]


def is_partial(path: epath.Path) -> bool:
  """Return True if a path is an unfinished write by lmx."""
  return path.name.startswith('step_') and not ocp.utils.is_checkpoint_finalized(path)


def check_structure(path: epath.Path, saved: Rows, expected: Rows) -> None:
  """Raise InputError with the first leaf in which the run and the checkpoint differ."""
  for name in sorted(saved.keys() | expected.keys()):
    if name not in saved:
      raise InputError(f'{path} lacks {name} (shape {expected[name]["shape"]}), which this run has')
    if name not in expected:
      raise InputError(f'{path} has {name} (shape {saved[name]["shape"]}), which this run lacks')
    for what in ('shape', 'dtype', 'key'):
      if saved[name][what] != expected[name][what]:
        raise InputError(f'{name} has {what} {saved[name][what]} in {path}, but {expected[name][what]} in this run')


def _restore_args(leaf: Any) -> ocp.RestoreArgs:
  if isinstance(leaf, np.ndarray):
    return ocp.RestoreArgs(restore_type=np.ndarray, dtype=leaf.dtype)
  sharding = getattr(leaf, 'sharding', None)
  if sharding is None:
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
  elif leaf.format.layout is not None:  # a table's memory layout, from `Engine.formats`
    sharding = leaf.format
  return ocp.ArrayRestoreArgs(sharding=sharding, global_shape=tuple(leaf.shape), dtype=leaf.dtype, strict=True)


def _groups(sizes: dict[tuple[str, ...], int]) -> list[list[tuple[str, ...]]]:
  """Return the arrays in groups that are read one after another, the largest first.

  Arrays are held twice while they are read. So a group has a tenth of all bytes, or a single larger array. Several
  processes read all at once, because each read synchronises them.

  Args:
    sizes: bytes of each array.
  """
  limit = max(sum(sizes.values()) // 10, _READ_AT_ONCE) if jax.process_count() == 1 else math.inf
  groups: list[list[tuple[str, ...]]] = []
  total = 0
  for key in sorted(sizes, key=lambda key: -sizes[key]):
    if not groups or total + sizes[key] > limit:
      groups.append([])
      total = 0
    groups[-1].append(key)
    total += sizes[key]
  return groups


def read_arrays(path: epath.Path, flat: Flat, rows: Rows, verify: bool) -> list[Any]:
  """Return the arrays at the paths of `flat`, with the shardings of its leaves; raise `Damaged` on a mismatch."""
  if not flat:
    return []
  raw = {key: _raw(leaf) for key, leaf in flat.items()}
  arrays: dict[tuple[str, ...], Any] = {}
  for keys in _groups({key: leaf.size * leaf.dtype.itemsize for key, leaf in raw.items()}):
    some = {key: raw[key] for key in keys}
    largest = max(leaf.size * leaf.dtype.itemsize for leaf in some.values())
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(restore_concurrent_gb=1 + largest // 10**9)) as reader:
      nested = reader.restore(
        path / 'state',
        args=ocp.args.PyTreeRestore(
          item=nest(some),
          restore_args=nest({key: _restore_args(leaf) for key, leaf in some.items()}),
          partial_restore=True,
        ),
      )
    arrays |= {key: pick(nested, key) for key in keys}
  leaves = [arrays[key] for key in flat]
  if verify:
    names = ['/'.join(key) for key in flat]
    for name, checksum in zip(names, checksums(leaves), strict=True):
      if checksum != rows[name]['checksum']:
        raise Damaged(f'array {name} differs from its checksum')
  return [
    _wrap(leaf, old.dtype) if _is_key(old) else leaf for (key, old), leaf in zip(flat.items(), leaves, strict=True)
  ]
