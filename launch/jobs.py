"""Commands that run in local folders: start, find from another process, poll and stop them.

A command inherits a lock on `.job` in its folder and holds it until it ends, even if the process that started it ends
first. So a folder has one command at a time, and another process can find it. A remote job is a local command too: a
launcher with --wait (launch/wait.py), or a program such as `srun`, waits for the job, forwards SIGTERM and exits with
its exit code.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from launch.command import PREEMPTED
from lmx.errors import InputError

LOG = 'log.txt'
SECRETS = ('LMX_SWEEP_STORAGE', 'PGPASSWORD')  # variables that commands do not get
# End a launcher after its commands have saved. A shell lets background commands ignore SIGINT, and nohup SIGHUP.
SIGNALS = (
  *(number for number in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN),
  signal.SIGTERM,
)
REMOTE_GRACE = 120.0  # seconds that a launcher has to end its job
_BEGIN = 'echo $$ > "$0"; exec "$@"'  # writes its process id, then becomes the command


class Job(Protocol):
  """Started command."""

  def poll(self) -> int | None:
    """Return the exit code, None while it runs; PREEMPTED for the end of one that another process started."""

  def stop(self) -> None:
    """Ask it to save and exit."""

  def kill(self) -> None:
    """Kill it."""


def lock(path: pathlib.Path, seconds: float = 0.0) -> int | None:
  """Lock a file for this process and those that inherit the descriptor; None if others hold it for `seconds`."""
  end = time.monotonic() + seconds
  descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
  while True:
    try:
      fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
      return descriptor
    except BlockingIOError:
      if time.monotonic() >= end:
        os.close(descriptor)
        return None
    time.sleep(0.05)


def environment() -> dict[str, str]:
  """Return the environment variables for commands."""
  return {name: value for name, value in os.environ.items() if name not in SECRETS}


@dataclasses.dataclass
class _Process:
  """Command on this machine; `process` is None if another process started it, `is_remote` is as in Local."""

  folder: pathlib.Path
  process: subprocess.Popen | None = None
  is_remote: bool = False
  _killed: float = 0.0  # time of the first `kill`

  def poll(self) -> int | None:
    if self.process is not None:
      code = self.process.poll()
      return code if code is None or code >= 0 else 128 - code
    held = lock(self.folder / '.job')
    if held is None:
      return None
    os.close(held)
    return PREEMPTED

  def stop(self) -> None:
    self._signal(signal.SIGTERM)

  def kill(self) -> None:
    if not self._killed and self.is_remote:
      self._signal(signal.SIGTERM)  # a second SIGTERM, which ends the job that it waits for
    elif not self.is_remote or time.monotonic() - self._killed > REMOTE_GRACE:
      self._signal(signal.SIGKILL)
    self._killed = self._killed or time.monotonic()

  def _signal(self, number: int) -> None:
    if self.poll() is not None:
      return  # another process may have its id by now
    try:
      os.killpg(self.process.pid if self.process else self._pid(), number)
    except ProcessLookupError:
      pass

  def _pid(self) -> int:
    """Return the id of the process that holds the lock."""
    for _ in range(50):
      text = (self.folder / '.job').read_text(encoding='utf-8').strip()
      if text:
        return int(text)
      time.sleep(0.1)  # it has just started
    raise ProcessLookupError


@dataclasses.dataclass
class Local:
  """Launcher of commands on this machine, each in its own session, which Ctrl-C does not reach.

  Attributes:
    is_remote: the commands wait for jobs elsewhere, which a second SIGTERM ends.
  """

  is_remote: bool = False

  def start(self, command: Sequence[str], folder: pathlib.Path, added: Mapping[str, str]) -> _Process:
    """Start `command`; its output is appended to LOG in the folder.

    Raises:
      InputError: another command runs in the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held = lock(folder / '.job')
    if held is None:
      raise InputError(f'another command runs in {folder}')
    os.truncate(held, 0)
    # Signals sent before a launcher is ready are delivered once it is: it inherits the mask, which wait.SignalCounter
    # lifts.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS if self.is_remote else ())
    try:
      with (folder / LOG).open('ab') as log:
        process = subprocess.Popen(
          ['/bin/sh', '-c', _BEGIN, str(folder / '.job'), *command],
          env={**environment(), **added},
          stdin=subprocess.DEVNULL,
          stdout=log,
          stderr=subprocess.STDOUT,
          start_new_session=True,
          pass_fds=(held,),
        )
    finally:
      signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(held)
    return _Process(folder, process, self.is_remote)

  def find(self, folder: pathlib.Path) -> _Process | None:
    """Return the command that runs in the folder, None if there is none."""
    process = _Process(folder, is_remote=self.is_remote)
    return process if (folder / '.job').exists() and process.poll() is None else None
