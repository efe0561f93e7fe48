"""Standard output and standard error that may end before the process: a closed pipe, a lost terminal, a full disk.

The first failed write decides. A training continues, and its lines go to a log file. A command that writes other files
completes them. A command whose only product is its standard output ends.
"""

from __future__ import annotations

import dataclasses
import io
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, TextIO, cast

from lmx.errors import InputError, ReaderGone

LOG = 'output.log'  # in the work directory
UNREAD = 141  # exit code of a command whose reader closed the pipe, as after SIGPIPE


@dataclasses.dataclass
class Log:
  """File that continues lost output; its folder is created once, and not again after its removal.

  Attributes:
    path: the file.
    existed: its folder has existed.
  """

  path: pathlib.Path
  existed: bool = False

  def check_folder(self) -> None:
    self.existed = self.existed or self.path.parent.is_dir()

  def create_folder(self) -> None:
    if not self.existed:
      self.path.parent.mkdir(parents=True, exist_ok=True)


class Stream:
  """Text stream over standard output or standard error that replaces its descriptor when a write fails.

  Attributes:
    log: file that continues the output, None for the null device.
    is_required: a failed write raises ReaderGone or InputError.
    error: the first failure, None before.
  """

  def __init__(self, inner: TextIO | None, title: str, is_required: bool = False):
    self._inner: Any = inner or open(os.devnull, 'w', encoding='utf-8')
    self.title, self.is_required = title, is_required
    self.log: Log | None = None
    self.error: OSError | ValueError | None = None

  def __getattr__(self, name: str) -> Any:
    return getattr(self.__dict__['_inner'], name)

  def write(self, text: str) -> int:
    """Write a text; progress bars, which begin with a carriage return, are not continued in a log."""
    if self.log is not None:
      self.log.check_folder()
    if self.error is None or not text.startswith('\r'):
      self._attempt(lambda: self._encode(text))
    return len(text)

  def writelines(self, lines: Iterable[str]) -> None:
    for line in lines:
      self.write(line)

  def flush(self) -> None:
    self._attempt(lambda: self._inner.flush())

  def _encode(self, text: str) -> None:
    """Write a text; characters that the stream cannot encode are escaped."""
    try:
      self._inner.write(text)
    except UnicodeEncodeError:
      encoding = self._inner.encoding
      self._inner.write(text.encode(encoding, 'backslashreplace').decode(encoding))

  def _attempt(self, action: Callable[[], Any]) -> None:
    try:
      action()
    except (OSError, ValueError) as error:  # ValueError: the stream was closed
      self._replace(error)
      if self.is_required:
        raise self.failure() from None
      if getattr(self._inner, 'write_through', False):  # otherwise the stream would keep the text buffered
        action()

  def _replace(self, error: OSError | ValueError) -> None:
    """Continue in the log; on the null device without one, or if it cannot be written."""
    self.error = self.error or error
    log, self.log = self.log, None
    if log is not None and not self.is_required:
      try:
        log.create_folder()
        self._point_to(log.path)
        now = time.strftime('%Y-%m-%d %H:%M:%S')
        os.write(self._inner.fileno(), f'{now} {self.title} failed ({_reason(error)}); it continues here\n'.encode())
        self._inner.flush()
        return
      except (OSError, ValueError):
        pass
    self._point_to(pathlib.Path(os.devnull))
    self._inner.flush()

  def _point_to(self, path: pathlib.Path) -> None:
    """Open a file under the stream's descriptor, which child processes and libraries in C write to as well."""
    opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
      descriptor = self._inner.fileno()
    except (OSError, ValueError, AttributeError):  # closed, or no file
      self._inner = open(opened, 'w', encoding='utf-8', errors='backslashreplace', buffering=1)
      return
    os.dup2(opened, descriptor)
    os.close(opened)

  def failure(self) -> Exception:
    """Return the error to raise for the first failed write."""
    if isinstance(self.error, BrokenPipeError):
      return ReaderGone(self.error.errno, self.error.strerror)
    return InputError(f'{self.title}: cannot be written ({_reason(self.error)}); free disk space, or give an --output')


def _reason(error: Any) -> str:
  return getattr(error, 'strerror', None) or str(error)


class Console:
  """Context in which `sys.stdout` and `sys.stderr` are a `Stream` each; standard output is UTF-8 in every locale.

  Attributes:
    out: standard output.
    err: standard error.
  """

  def __init__(self, own_process: bool = False):
    """Describe the streams.

    Args:
      own_process: the process is lmx's own: its streams remain replaced, for the messages after its end.
    """
    self._own_process = own_process

  def __enter__(self) -> Console:
    if self._own_process:
      _open_descriptors()
    self._before = sys.stdout, sys.stderr
    self._encoding: dict[str, Any] | None = None
    if isinstance(sys.stdout, io.TextIOWrapper) and not isinstance(sys.stdout, Stream):
      self._encoding = {'encoding': sys.stdout.encoding, 'errors': sys.stdout.errors}
      sys.stdout.reconfigure(encoding='utf-8', errors='surrogateescape')
    self.out, self.err = Stream(sys.stdout, 'standard output', True), Stream(sys.stderr, 'standard error')
    sys.stdout, sys.stderr = self.out, self.err
    return self

  def __exit__(self, *_: Any) -> None:
    self.out.is_required = False
    self.out.flush()
    self.err.flush()
    if not self._own_process:
      sys.stdout, sys.stderr = self._before
      if self._encoding is not None:
        cast(io.TextIOWrapper, self._before[0]).reconfigure(**self._encoding)

  def keep(self, log: pathlib.Path | None = None) -> None:
    """Continue after a failed write, in the file `log`; without one the rest of the output is lost."""
    self.out.is_required = False
    self.out.log = self.err.log = None if log is None else Log(log)


def _open_descriptors() -> None:
  """Open closed descriptors 0 to 2, because a data file with such a descriptor would receive library messages."""
  for number, name in enumerate(('stdin', 'stdout', 'stderr')):
    try:
      os.fstat(number)
    except OSError:
      os.open(os.devnull, os.O_RDONLY)  # the lowest free descriptor is this one; writes to it fail
      if number:
        setattr(sys, name, open(number, 'w', encoding='utf-8', errors='backslashreplace', closefd=False))
