"""Commands that run in folders: started, found again by another process, followed to their end, and stopped.

What starts them has `start(command, folder, environment) -> Job` and `find(folder) -> Job | None`: `Local` runs them on
this machine, `Slurm` as jobs of a cluster. Any other way is a program that takes the command line as its arguments,
waits for it, passes SIGTERM on and ends with its exit code, as `srun` does: put before the command, it is `Local`.

A command holds a lock on `.job` in its folder, which it inherits and which ends with it, whatever becomes of the
process that started it. So none is started beside another in one folder, and one left behind is found and taken up.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import pathlib
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from launch.command import PREEMPTED
from lmx.errors import InputError

LOG = 'log.txt'
SECRETS = ('LMX_SWEEP_STORAGE', 'PGPASSWORD')  # variables that commands do not get
_BEGIN = 'echo $$ > "$0"; exec "$@"'  # writes its number down, even if who started it is gone, and becomes the command


class Job(Protocol):
  """A command that was started."""

  def poll(self) -> int | None:
    """Its exit code, None while it runs; of one that another process started, PREEMPTED in the place of the code."""

  def stop(self) -> None:
    """Asks it to save and to end."""

  def kill(self) -> None:
    """Ends it."""


class Launcher(Protocol):
  """What starts jobs."""

  def start(self, command: Sequence[str], folder: pathlib.Path, environment: Mapping[str, str]) -> Job:
    """Starts `command`; its output is added to LOG in the folder."""

  def find(self, folder: pathlib.Path) -> Job | None:
    """The command that runs in the folder, if one does."""


def lock(path: pathlib.Path) -> int | None:
  """Holds a file for this process and those that inherit the descriptor; None if others hold it."""
  descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    os.close(descriptor)
    return None
  return descriptor


@dataclasses.dataclass
class _Process:
  """A command on this machine; `process` is None if another process started it."""

  folder: pathlib.Path
  process: subprocess.Popen | None = None

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
    self._signal(signal.SIGKILL)

  def _signal(self, number: int) -> None:
    if self.poll() is not None:
      return  # its number may be another's by now
    try:
      os.killpg(self.process.pid if self.process else self._pid(), number)
    except ProcessLookupError:
      pass

  def _pid(self) -> int:
    """The number of the process that holds the lock."""
    for _ in range(50):
      text = (self.folder / '.job').read_text().strip()
      if text:
        return int(text)
      time.sleep(0.1)  # it was started this moment
    raise ProcessLookupError


class Local:
  """Runs commands on this machine, each in a session of its own, so that Ctrl-C does not reach them."""

  def start(self, command: Sequence[str], folder: pathlib.Path, environment: Mapping[str, str]) -> _Process:
    """Starts `command`; its output is added to LOG in the folder.

    Raises:
      InputError: another command runs in the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held = lock(folder / '.job')
    if held is None:
      raise InputError(f'another command runs in {folder}')
    os.truncate(held, 0)
    kept = {name: value for name, value in os.environ.items() if name not in SECRETS}
    with (folder / LOG).open('ab') as log:
      process = subprocess.Popen(
        ['/bin/sh', '-c', _BEGIN, str(folder / '.job'), *command], env={**kept, **environment},
        stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, pass_fds=(held,),
      )  # fmt: skip
    os.close(held)
    return _Process(folder, process)

  def find(self, folder: pathlib.Path) -> _Process | None:
    """The command that runs in the folder, if one does."""
    found = _Process(folder)
    return found if (folder / '.job').exists() and found.poll() is None else None


@dataclasses.dataclass
class _Batch:
  """A job of Slurm: `waiting` is the `sbatch --wait` that waits for it, if that still runs."""

  folder: pathlib.Path
  waiting: _Process | None

  def poll(self) -> int | None:
    if self.waiting is not None:
      return self.waiting.poll()
    asked = ['squeue', '--noheader', f'--jobs={self.number()}', '--format=%T']
    state = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return None if state.strip() else PREEMPTED

  def stop(self) -> None:
    self._cancel('--signal=TERM', '--batch')

  def kill(self) -> None:
    self._cancel()

  def _cancel(self, *options: str) -> None:
    if self.number():
      subprocess.run(['scancel', *options, self.number()], check=False)

  def number(self) -> str:
    """What `sbatch --parsable` said, without the name of the cluster."""
    path = self.folder / '.slurm'
    return path.read_text().strip().partition(';')[0] if path.exists() else ''


@dataclasses.dataclass
class Slurm:
  """Submits each command by `sbatch --wait`, so that it is waited for as a command of this machine is.

  Attributes:
    options: further options of sbatch, such as '--gres=gpu:1'.
  """

  options: Sequence[str] = ()

  def command(self, command: Sequence[str], folder: pathlib.Path, environment: Mapping[str, str]) -> list[str]:
    """What submits `command` and waits for it."""
    settings = [f'{name}={value}' for name, value in environment.items()]
    script = 'exec ' + shlex.join(['env', *(f'--unset={name}' for name in SECRETS), *settings, *command])
    return ['sbatch', '--parsable', '--wait', f'--job-name={"-".join(folder.parts[-2:])}',
            f'--output={folder / LOG}', '--open-mode=append', f'--chdir={os.getcwd()}', *self.options,
            f'--wrap={script}']  # fmt: skip

  def start(self, command: Sequence[str], folder: pathlib.Path, environment: Mapping[str, str]) -> _Batch:
    """Submits `command`; its output is added to LOG in the folder."""
    folder = folder.absolute()
    (folder / '.slurm').unlink(missing_ok=True)
    submit = shlex.join(self.command(command, folder, environment))
    # The number goes straight to a file, where it is found even if this process is gone.
    waiting = Local().start(['/bin/sh', '-c', f'exec {submit} > {shlex.quote(str(folder / ".slurm"))}'], folder, {})
    return _Batch(folder, waiting)

  def find(self, folder: pathlib.Path) -> _Batch | None:
    """The job that waits or runs in the folder, if one does."""
    found = _Batch(folder.absolute(), Local().find(folder))
    if not found.waiting and not found.number():
      return None
    return found if found.poll() is None else None
