"""Directories that are complete or absent: built under a temporary name and renamed, safely for concurrent builds."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from etils import epath

from lmx import host, storage
from lmx.errors import InputError, disk_advice, explain

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


def root(cache_dir: str = '') -> str:
  """Return the cache directory: the argument, else LMX_CACHE, else ~/.cache/lmx; the first that is not a bucket."""
  given = {'data.cache_dir': cache_dir, 'LMX_CACHE': os.environ.get('LMX_CACHE', ''), 'HOME': '~/.cache/lmx'}
  field, chosen = next((name, one) for name, one in given.items() if one and not storage.is_remote(one))
  return os.path.abspath(storage.check_path(field, chosen, storage.FOLDER))


def bucket(cache_dir: str) -> epath.Path | None:
  """Return the bucket of `data.cache_dir`, or of LMX_CACHE; None if the cache is a directory."""
  field, address = ('data.cache_dir', cache_dir) if cache_dir else ('LMX_CACHE', os.environ.get('LMX_CACHE', ''))
  return storage.path(field, address) if storage.is_remote(address) else None


def build(directory: str, make: Callable[[str], None]) -> bool:
  """Create `directory` by `make(temporary directory)` and one rename, unless it exists.

  A killed process leaves a directory named `.tmp-*`. It is never taken as complete and is removed by the next build.
  Returns True if this process built it. Raises InputError if the disk is full or not writable.
  """
  if os.path.isdir(directory):
    return False
  parent, name = os.path.split(directory)
  with disk_errors(parent):
    _make(parent)
    _sweep(parent)
    temporary = tempfile.mkdtemp(prefix=f'.tmp-{socket.gethostname()}-{os.getpid()}-', dir=parent)
    try:
      make(temporary)
      os.chmod(temporary, 0o755)
      os.rename(temporary, directory)
    except OSError as error:
      if error.errno in (errno.EEXIST, errno.ENOTEMPTY) and os.path.isdir(directory):
        return False  # another process finished first; the content is the same
      raise
    finally:
      shutil.rmtree(temporary, ignore_errors=True)
  return True


def _make(directory: str) -> None:
  """Create a directory and its parents; raise InputError if that fails."""
  try:
    os.makedirs(directory, exist_ok=True)
  except OSError as error:
    if is_disk_error(error):
      raise
    raise InputError(
      f'data.cache_dir: got {directory}, which cannot be a directory ({explain(error)}: '
      f'{error.filename}); expected a folder; choose another one, here or by the environment variable '
      'LMX_CACHE'
    ) from None


def discard(directory: str) -> None:
  """Delete a damaged directory, at once for other processes. Raises InputError if it is not writable."""
  parent, name = os.path.split(directory)
  aside = os.path.join(parent, f'.tmp-{socket.gethostname()}-{os.getpid()}-{name}')
  with disk_errors(parent), contextlib.suppress(FileNotFoundError):
    os.rename(directory, aside)
    shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def disk_errors(directory: str) -> Iterator[Any]:
  """Turn a full, limited or read-only disk into an InputError that names `directory`."""
  try:
    yield
  except (OSError, RuntimeError) as error:
    number = _fault(error)
    if number in _FULL:
      raise InputError(
        f'{directory}: {disk_advice(number, "")}; data.cache_dir or LMX_CACHE names the cache directory'
      ) from error
    if number:
      raise InputError(
        f'data.cache_dir: got {directory}, which is not writable ({explain(error)}); expected a '
        'writable folder; choose another one, here or by the environment variable LMX_CACHE'
      ) from error
    raise


def is_disk_error(error: BaseException) -> bool:
  """Return True if `disk_errors` handles the error."""
  return bool(_fault(error))


def _fault(error: BaseException) -> int:
  """Return the error number of a full, limited or read-only disk, 0 for another error."""
  if isinstance(error, OSError):
    return error.errno if error.errno in (*_FULL, *_READ_ONLY) else 0
  if isinstance(error, RuntimeError):  # of ArrayRecord, which names the fault in its text only
    return next((number for number in _FULL if os.strerror(number) in str(error)), 0)
  return 0


def sha256(path: str) -> str:
  """Return the SHA-256 (hex) of a file's content."""
  with storage.open_file(path) as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()  # type: ignore[arg-type]


def _sweep(parent: str) -> None:
  """Remove the temporary directories of killed processes on this machine."""
  prefix = f'.tmp-{socket.gethostname()}-'
  for name in os.listdir(parent):
    pid = name[len(prefix) :].partition('-')[0]
    if name.startswith(prefix) and pid.isdigit() and not host.is_alive(int(pid)):
      shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
