"""Paths of a user, and files of a work directory in a bucket: written locally and copied there.

Objects of a bucket cannot be appended to, and tokenizers, figures and TensorBoard events are written by code that
needs local files. Checkpoints do not use this module: Orbax writes them to buckets itself. A path without '://' is a
local or network directory, and is used directly.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import IO

from etils import epath

from lmx import host
from lmx.errors import InputError, explain

FILE, FOLDER = 'file', 'folder'
STAND_IN = 'LMX_BUCKETS'  # variable: a folder whose subfolders stand in for buckets, see lmx/stand_in_bucket.py
HUB = 'hub:'  # prefix of published weights' names
_ADDRESS = re.compile(rf'{HUB}|[A-Za-z][A-Za-z0-9+.-]+:/')  # matches a model name, or a scheme that lacks a slash
_SURROGATE = re.compile('[\ud800-\udfff]')  # of a byte that is not UTF-8
_LONGEST_NAME = 255  # bytes of a file's name
_LONGEST_PATH = 4095  # bytes of an absolute path
_DAY = 86400.0  # seconds


def path(field: str, value: str | os.PathLike[str], kind: str = '') -> epath.Path:
  """Check a user's path and expand `~`; all other modules create `epath.Path` only through this function.

  Args:
    field: the option or key, as the user types it.
    value: the path, local or in a bucket; it need not exist.
    kind: FILE or FOLDER if it must be one where it exists.

  Raises:
    InputError: it is empty or too long, has a zero byte, is of the other kind or below a file, or names an unknown
      user; its kind of storage is not supported, or the library for it is missing.
  """
  return epath.Path(check_path(field, value, kind))


def unchecked(value: str) -> epath.Path:
  """Return a path as `path` does, of text that is checked or only printed."""
  return epath.Path(value)


def check_path(field: str, value: str | os.PathLike[str], kind: str = '', *, hub: bool = False) -> str:
  """Return the text of what `path` returns; with `hub` also 'hub:NAME'."""
  value = os.fspath(value)
  if not value:
    raise InputError(f'{field}: got no path; expected one; give a {kind or "file or folder"}')
  if '\0' in value:
    raise InputError(f'{field}: got a zero byte in {value!r}; expected a path')
  scheme, separator, _ = value.partition('://')
  if separator:
    _check_bucket(field, value, scheme)
    return value
  if hub and value.startswith(HUB):
    return value
  if address := _ADDRESS.match(value):
    raise InputError(f'{field}: got {value}; expected a path or gs://BUCKET/PATH; write ./{address[0]}... for a folder')
  expanded = expand(value)
  if value.startswith('~') and expanded == value:
    raise InputError(f'{field}: got {value}; expected a user of this machine after ~; write ./{value} for a folder')
  if kind == FOLDER and '**' in expanded:
    raise InputError(f'{field}: got {value}; expected a name without **, which Orbax takes for a pattern; rename it')
  if kind == FOLDER and _SURROGATE.search(expanded):  # libraries that write to it accept only UTF-8 names
    raise InputError(f'{field}: got {value!r}; expected a name in UTF-8; rename it, or set PYTHONUTF8=1')
  try:
    _check_length(field, expanded)
    is_folder = stat.S_ISDIR(os.stat(expanded).st_mode)
  except FileNotFoundError:
    return expanded
  except NotADirectoryError:
    raise InputError(f'{field}: got {value}; expected a path of folders, but a part of it is a file') from None
  except (OSError, UnicodeEncodeError) as error:
    raise InputError(f'{field}: got {value!r}, which cannot be read ({explain(error)}); give another path') from None
  if kind and is_folder != (kind == FOLDER):
    raise InputError(f'{field}: got {value}, a {FOLDER if is_folder else FILE}; expected a {kind}; give another path')
  return expanded


def expand(value: str) -> str:
  """Return a path with `~` expanded; unchanged if there is no such user."""
  return os.path.expanduser(value)


def _check_bucket(field: str, value: str, scheme: str) -> None:
  if scheme != 'gs':
    raise InputError(f'{field}: got {value}; expected a local path or gs://BUCKET/PATH; copy the files to one of them')
  import fsspec  # takes time to import

  if os.environ.get(STAND_IN):
    if field == '--workdir':
      raise InputError(
        f'{field}: got {value} with {STAND_IN}, whose folders hold data only, because Orbax writes checkpoints to '
        'Cloud Storage itself; expected a folder that all processes see'
      )
    use_stand_in()
  try:
    fsspec.get_filesystem_class('gcs')
  except ImportError:
    raise InputError(f'{field}: got {value}; expected the extra "gcs" for buckets; pip install ".[gcs]"') from None


def use_stand_in() -> None:
  """Let gs:// addresses of this process be folders, if LMX_BUCKETS is set."""
  if os.environ.get(STAND_IN):
    from lmx import stand_in_bucket

    stand_in_bucket.register()


def _check_length(field: str, value: str) -> None:
  whole = os.fsencode(os.path.abspath(value))
  if len(whole) > _LONGEST_PATH or any(len(part) > _LONGEST_NAME for part in whole.split(b'/')):
    raise InputError(
      f'{field}: got {value[:60]}...; expected names of at most {_LONGEST_NAME} bytes and a path of at most '
      f'{_LONGEST_PATH}; shorten it'
    )


def is_remote(path: str | os.PathLike[str]) -> bool:
  """Return True if a path is in a bucket."""
  return '://' in os.fspath(path)


def part(path: epath.Path) -> epath.Path:
  """Return the temporary path of a folder that this process later renames to `path`.

  The folders that killed processes of this host have left there are removed. Earlier versions did not name the host:
  theirs are removed after a day.
  """
  if not is_remote(path) and path.parent.is_dir():
    for other in list(path.parent.iterdir()):
      if _is_left(other, path.name):
        other.rmtree(missing_ok=True)
  return path.parent / f'{path.name}.part-{socket.gethostname()}-{os.getpid()}'


def _is_left(other: epath.Path, name: str) -> bool:
  """Return True if `other` is a part of a folder `name` whose process has ended."""
  match = re.fullmatch(re.escape(name) + r'\.part(?:-(?P<host>.+)-)?(?P<pid>\d{1,9})', other.name)
  if not match or (match['host'] or socket.gethostname()) != socket.gethostname():
    return False
  pid = int(match['pid'])
  if host.is_alive(pid) and pid != os.getpid():
    return False
  return bool(match['host']) or time.time() - other.stat().mtime > _DAY


def open_file(path: str) -> IO[bytes]:
  """Open a local file, or an object of a bucket in ranges, for reading."""
  opened: IO[bytes] = epath.Path(path).open('rb') if is_remote(path) else open(path, 'rb')
  return opened


def size(path: str) -> int:
  """Return the size of a local file or of an object of a bucket in bytes."""
  return int(epath.Path(path).stat().length) if is_remote(path) else os.path.getsize(path)


def checksum(path: str) -> str:
  """Return the checksum that a bucket keeps of an object, such as 'crc32c:yZRlqg=='; '' if it keeps none."""
  import fsspec

  info = fsspec.filesystem('gcs').info(path)
  return next((f'{name}:{info[name]}' for name in ('md5Hash', 'crc32c') if info.get(name)), '')


class Mirror:
  """A local directory whose files `send` copies to a work directory.

  Attributes:
    local: directory to write to; the work directory itself unless that is in a bucket.
  """

  def __init__(self, workdir: str | os.PathLike[str], resumed: Iterable[str] = ()):
    """Create the directory; `resumed` names files to fetch, if they exist, and to continue writing."""
    self._remote = epath.Path(workdir) if is_remote(workdir) else None
    self._sent: dict[str, tuple[int, int]] = {}
    if self._remote is None:
      self.local = pathlib.Path(workdir)
      return
    self.local = pathlib.Path(tempfile.mkdtemp(prefix='lmx-'))
    for name in resumed:
      if (self._remote / name).exists():
        (self.local / name).write_bytes((self._remote / name).read_bytes())

  def send(self) -> None:
    """Copy the files that changed since the last call."""
    if self._remote is None or not self.local.exists():
      return
    for path in sorted(path for path in self.local.rglob('*') if path.is_file()):
      name, stat = path.relative_to(self.local).as_posix(), path.stat()
      if self._sent.get(name) != (stat.st_size, stat.st_mtime_ns):
        copy(path, self._remote / name)
        self._sent[name] = (stat.st_size, stat.st_mtime_ns)

  def close(self) -> None:
    """Copy the remaining changes and remove the directory."""
    self.send()
    if self._remote is not None:
      shutil.rmtree(self.local, ignore_errors=True)


def copy(path: pathlib.Path, to: epath.Path) -> None:
  """Copy a file to a bucket atomically."""
  to.parent.mkdir(parents=True, exist_ok=True)
  to.write_bytes(path.read_bytes())


@contextlib.contextmanager
def whole(path: epath.Path) -> Iterator[epath.Path]:
  """Yield a temporary path for a folder, which then appears as `path`, missing or empty before, as a whole or not."""
  temporary = part(path)
  try:
    yield temporary
    if path.exists():
      path.rmdir()
    temporary.rename(path)
  finally:
    temporary.rmtree(missing_ok=True)


def write_directory(directory: epath.Path, write: Callable[[str], object]) -> None:
  """Call `write` on a local directory and copy its files to `directory`."""
  if not is_remote(directory):
    write(os.fspath(directory))
    return
  with tempfile.TemporaryDirectory() as folder:
    write(folder)
    for path in sorted(path for path in pathlib.Path(folder).rglob('*') if path.is_file()):
      copy(path, directory / path.relative_to(folder).as_posix())


def local_copy(directory: epath.Path) -> str:
  """Return a local directory with the files of `directory`; `directory` itself unless it is in a bucket."""
  if not is_remote(directory):
    return os.fspath(directory)
  folder = tempfile.mkdtemp(prefix='lmx-')
  for path in directory.iterdir():
    (pathlib.Path(folder) / path.name).write_bytes(path.read_bytes())
  return folder
