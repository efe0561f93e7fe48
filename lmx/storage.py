"""Files of a work directory in a bucket: written locally and copied there.

Objects of a bucket cannot be appended to, and tokenizers, figures and TensorBoard events are written by code that
needs local files. Checkpoints do not use this module: Orbax writes them to buckets itself. A path without '://' is a
local or network directory, and is used directly.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterable

from etils import epath

from lmx.errors import InputError

_LONGEST_NAME = 255  # bytes of a file's name


def check_path(field: str, value: str) -> str:
  """Return a path of a user with `~` expanded.

  Args:
    field: the option or key, as the user types it.
    value: the path, local or in a bucket.

  Raises:
    InputError: it has a zero byte, is too long, names an unknown user, or is in a kind of storage that is not supported
      or whose library is not installed.
  """
  if '\0' in value:
    raise InputError(f'{field}: got a zero byte in {value!r}; expected a path')
  scheme, separator, _ = value.partition('://')
  if separator:
    if scheme != 'gs':
      raise InputError(
        f'{field}: got {value}; expected a local path or gs://BUCKET/PATH; copy the files to one of them'
      )
    import fsspec  # takes time to import

    try:
      fsspec.get_filesystem_class('gcs')
    except ImportError:
      raise InputError(f'{field}: got {value}; expected the extra for buckets; pip install ".[gcs]"') from None
    return value
  if any(len(os.fsencode(part)) > _LONGEST_NAME for part in value.split('/')):
    raise InputError(f'{field}: got a name of more than {_LONGEST_NAME} bytes; expected a path; shorten it')
  expanded = os.path.expanduser(value)
  if value.startswith('~') and expanded == value:
    raise InputError(f'{field}: got {value}; expected a user of this machine after ~; write ./{value} for a folder')
  return expanded


def is_remote(path: str | os.PathLike[str]) -> bool:
  """Return True if a path is in a bucket."""
  return '://' in os.fspath(path)


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
  """Copy a file to a bucket; readers never see part of it."""
  to.parent.mkdir(parents=True, exist_ok=True)
  to.write_bytes(path.read_bytes())


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
