"""JAX's persistent compilation cache for lmx's commands.

The `lmx` command turns it on for its own processes. Its folder is specific to a user and a processor: its name is a
hash of the processor's features, core count, JAX versions and XLA variables that JAX's own key omits. So machines with
a shared home directory never load another processor's code, and a cached program equals the one that would be compiled.
If the folder cannot be used, programs are compiled without it. In a bucket (`LMX_COMPILATION_CACHE=gs://BUCKET/PATH`)
all hosts and restarts share it: whoever may write there determines the programs that they run, and nothing is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import platform
import shutil
import stat
import tempfile
import time
import warnings
from importlib import metadata

import filelock

from lmx import host, storage
from lmx.data import cache
from lmx.errors import InputError, InputWarning

VARIABLE = 'LMX_COMPILATION_CACHE'
MAX_BYTES = 2**30  # of a folder; the programs that were not used for longest are removed beyond it
MIN_SECONDS = 0.05  # minimum compilation time of a cached program
UNUSED_DAYS = 30  # after which the folder of another processor or version is removed
# Variables that change the program XLA makes for a CPU, and are not in JAX's key or not in full.
_XLA = ('XLA_FLAGS', 'NPROC', 'PJRT_NPROC', 'JAX_NUM_CPU_DEVICES')
# Lines of /proc/cpuinfo about the kind of a processor, on x86, ARM and POWER.
_CPU = ('vendor_id', 'cpu family', 'model', 'model name', 'stepping', 'flags', 'Features', 'cpu', 'revision')
_CPU_ARM = ('CPU implementer', 'CPU architecture', 'CPU variant', 'CPU part', 'CPU revision')
_USED = 'used'  # file whose modification time is the folder's last use


def enable() -> str:
  """Keep the programs that this process compiles; return the folder, '' if they are not kept.

  Does nothing if the environment has a cache of JAX already (JAX_COMPILATION_CACHE_DIR, or
  JAX_ENABLE_COMPILATION_CACHE, which may turn it off). LMX_COMPILATION_CACHE is another folder, also in a bucket, or
  `off`.
  """
  import jax

  settings = {'jax_compilation_cache_dir', 'jax_enable_compilation_cache'}
  if any(name.upper() in os.environ for name in settings):
    return ''
  directory = prepare()
  if directory:
    jax.config.update('jax_compilation_cache_dir', directory)
    for name, value in (
      ('jax_compilation_cache_max_size', -1 if storage.is_remote(directory) else MAX_BYTES),  # a bound needs locks
      ('jax_persistent_cache_min_compile_time_secs', MIN_SECONDS),
      ('jax_persistent_cache_enable_xla_caches', 'none'),  # the size of its files is not bounded
    ):
      if name.upper() not in os.environ:
        jax.config.update(name, value)
  return directory


def prepare() -> str:
  """Create and repair this process's cache folder and return it; '' if there is no usable folder."""
  given = os.environ.get(VARIABLE, '')
  if given == 'off':
    return ''
  try:
    if not (folder := _folder(given)):
      return ''
    if storage.is_remote(folder):
      return _prepare_bucket(folder)
    root = os.path.abspath(folder)
    directory = os.path.join(root, f'{_user()}-{fingerprint()}')
    os.makedirs(directory, mode=0o700, exist_ok=True)
    if not _is_private(directory):
      return ''
    with tempfile.TemporaryFile(dir=directory) as file:  # fails if the folder is not writable
      file.write(b'\0' * 4096)
    _remove_unused(root, directory)
    pathlib.Path(directory, _USED).touch()
    _repair(directory)
  except (OSError, ValueError, RuntimeError):  # no home, a full disk, a file system without locks
    return ''
  return directory


def _prepare_bucket(folder: str) -> str:
  """Return this processor's folder of a bucket; '' with a warning if it cannot be written."""
  directory = f'{folder.rstrip("/")}/{fingerprint()}'
  used = storage.path(VARIABLE, directory) / _USED
  try:
    used.parent.mkdir(parents=True, exist_ok=True)
    used.write_bytes(b'')
  except Exception as error:  # of the bucket's library: credentials, permissions, the network
    short = ' '.join(str(error).split())[:200]
    warnings.warn(
      f'{VARIABLE}: {folder} cannot be written ({short}); programs are not kept', InputWarning, stacklevel=3
    )
    return ''
  return directory


def _folder(given: str) -> str:
  """Return the folder in LMX_COMPILATION_CACHE, else lmx's default; '' with a warning if it is unusable."""
  if not given:
    return os.path.join(cache.root(), 'compiled')
  try:
    return storage.check_path(VARIABLE, given, storage.FOLDER)
  except InputError as error:
    warnings.warn(f'{error}; programs are not kept', InputWarning, stacklevel=3)
    return ''


def fingerprint() -> str:
  """Return a hash of the dependencies of a compiled program that JAX's key omits; see the module."""
  parts = [platform.system(), platform.machine(), platform.processor(), processor(), str(host.cores())]
  parts += [f'{name} {metadata.version(name)}' for name in ('jax', 'jaxlib')]
  parts += [f'{name}={os.environ[name]}' for name in _XLA if name in os.environ]
  return hashlib.sha256('\n'.join(parts).encode()).hexdigest()[:20]


def processor(cpuinfo: str = '/proc/cpuinfo') -> str:
  """Return this machine's processor types and features; '' without Linux's processor list."""
  try:
    with open(cpuinfo, encoding='utf-8', errors='replace') as file:
      lines = file.read().splitlines()
  except OSError:
    return ''
  fields = (line.partition(':') for line in lines)
  return '\n'.join(sorted({f'{k.strip()}: {v.strip()}' for k, _, v in fields if k.strip() in (*_CPU, *_CPU_ARM)}))


def _user() -> str:
  return str(os.getuid()) if hasattr(os, 'getuid') else 'user'


def _is_private(directory: str) -> bool:
  """Return whether no other user can put a program into a folder; it would be run."""
  status = os.stat(directory)
  if not hasattr(os, 'getuid'):
    return True
  return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _repair(directory: str) -> None:
  """Remove partial programs of killed processes. Raises OSError if the folder cannot be locked. JAX writes a program
  before its access time, and never rewrites an entry with only one of the two.
  """
  lock = filelock.FileLock(os.path.join(directory, '.lockfile'), timeout=0)  # JAX's own
  with contextlib.suppress(filelock.Timeout), lock:  # while another process writes, nothing is repaired
    names = set(os.listdir(directory))
    for name in names:
      base, _, kind = name.rpartition('-')
      other = {'cache': 'atime', 'atime': 'cache'}.get(kind)
      if base and other and f'{base}-{other}' not in names:
        os.remove(os.path.join(directory, name))


def _remove_unused(root: str, directory: str) -> None:
  """Remove this user's folders of other processors and versions that were not used for UNUSED_DAYS."""
  for name in os.listdir(root):
    used = os.path.join(root, name, _USED)
    if not name.startswith(f'{_user()}-') or os.path.join(root, name) == directory or not os.path.isfile(used):
      continue
    if time.time() - os.path.getmtime(used) > UNUSED_DAYS * 86400:
      shutil.rmtree(os.path.join(root, name), ignore_errors=True)
