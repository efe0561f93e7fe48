"""Files of a work directory on a bucket: written on this machine and copied there.

An object of a bucket cannot be appended to, and tokenizers, pictures and TensorBoard's events are written by code that
knows files only. Checkpoints do not come by here: Orbax writes them to buckets itself. A path without '://' is a
directory of this machine or its network, and is used as it is.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterable

from etils import epath


def is_remote(path: str | os.PathLike[str]) -> bool:
  """Return True if a path is in a bucket."""
  return '://' in os.fspath(path)


class Mirror:
  """A directory of this machine whose files `send` copies to a work directory.

  Attributes:
    local: where to write; the work directory itself where it is none of a bucket.
  """

  def __init__(self, workdir: str | os.PathLike[str], take: Iterable[str] = ()):
    """Make the directory; `take` names files that are fetched, where they are there, to be gone on with."""
    self._remote = epath.Path(workdir) if is_remote(workdir) else None
    self._sent: dict[str, tuple[int, int]] = {}
    if self._remote is None:
      self.local = pathlib.Path(workdir)
      return
    self.local = pathlib.Path(tempfile.mkdtemp(prefix='lmx-'))
    for name in take:
      if (self._remote / name).exists():
        (self.local / name).write_bytes((self._remote / name).read_bytes())

  def send(self) -> None:
    """Copy what has changed since the last time."""
    if self._remote is None or not self.local.exists():
      return
    for path in sorted(path for path in self.local.rglob('*') if path.is_file()):
      name, stat = path.relative_to(self.local).as_posix(), path.stat()
      if self._sent.get(name) != (stat.st_size, stat.st_mtime_ns):
        copy(path, self._remote / name)
        self._sent[name] = (stat.st_size, stat.st_mtime_ns)

  def close(self) -> None:
    """Copy what is left and remove the directory."""
    self.send()
    if self._remote is not None:
      shutil.rmtree(self.local, ignore_errors=True)


def copy(path: pathlib.Path, to: epath.Path) -> None:
  """Copy a file to a bucket, where it appears whole."""
  to.parent.mkdir(parents=True, exist_ok=True)
  to.write_bytes(path.read_bytes())


def written(directory: epath.Path, write: Callable[[str], object]) -> None:
  """Has `write` fill a directory of files, and brings it to `directory`."""
  if not is_remote(directory):
    write(os.fspath(directory))
    return
  with tempfile.TemporaryDirectory() as folder:
    write(folder)
    for path in sorted(path for path in pathlib.Path(folder).rglob('*') if path.is_file()):
      copy(path, directory / path.relative_to(folder).as_posix())


def here(directory: epath.Path) -> str:
  """A directory of this machine with the files of `directory`, which may be that itself."""
  if not is_remote(directory):
    return os.fspath(directory)
  folder = tempfile.mkdtemp(prefix='lmx-')
  for path in directory.iterdir():
    (pathlib.Path(folder) / path.name).write_bytes(path.read_bytes())
  return folder
