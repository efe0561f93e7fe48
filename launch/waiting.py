"""What `--wait=FILE` of a launcher does: submits, waits for the end, passes signals on, ends with the exit code of lmx.

So a command that runs elsewhere can be treated as one of this machine, as `launch.sweep` does. FILE remembers the job:
whatever ends the launcher, the same command takes up the same job, and when its end has been told FILE is gone. The
first SIGTERM or Ctrl-C tells lmx to save and leave for good, the second ends the job. Imports no JAX.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from launch import command, jobs
from lmx.errors import InputError, nearest

LAUNCHERS = ('slurm', 'gke', 'tpu_vm')
PROGRAMS = {'slurm': 'sbatch', 'gke': 'kubectl', 'tpu_vm': 'gcloud'}  # that each cannot do without
PATIENCE = 900.0  # seconds in which a cluster may not answer
SUBMITTING = 60.0  # seconds that a submission is given, of which the launcher is gone


def launcher(where: str, options: str, words: Sequence[str], more: Sequence[str] = ()) -> list[str]:
  """The command that gives the lmx command of `words` to `python -m launch.WHERE`.

  Args:
    where: one of LAUNCHERS.
    options: of the launcher, as one types them.
    words: what follows `lmx`.
    more: further options.

  Raises:
    InputError: there is no such launcher, or the options have an open quote or a `--`.
  """
  if where not in LAUNCHERS:
    raise InputError(f'--where: there is no launcher "{where}"{nearest(where, LAUNCHERS)}')
  try:
    given = shlex.split(options)
  except ValueError as error:
    raise InputError(f'--launch={options}: {error}') from None
  if '--' in given:
    raise InputError(f'--launch={options}: only options stand there, and no --')
  return [sys.executable, '-m', f'launch.{where}', *given, *more, '--', *words]


class Record:
  """A job that was submitted, in a file that one process at a time holds; `known` is what it says."""

  def __init__(self, path: pathlib.Path):
    self.path = path
    self.known: dict[str, Any] = {}
    self.read()

  def read(self) -> None:
    """Takes what the file says, {} if it is not there."""
    self.known = json.loads(self.path.read_text()) if self.path.exists() else {}

  def write(self, **more: Any) -> None:
    """Adds to what is known."""
    self.known |= more
    part = self.path.with_name(self.path.name + '.part')
    part.write_text(json.dumps(self.known) + '\n')
    os.replace(part, self.path)

  def remove(self) -> None:
    """The job has ended and this was said."""
    self.path.unlink(missing_ok=True)
    self.known = {}


@contextlib.contextmanager
def held(path: pathlib.Path, seconds: float = SUBMITTING) -> Iterator[Record]:
  """The record at `path`, which no other process then has.

  Raises:
    InputError: another has it, for so many seconds, or it cannot be made.
  """
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = jobs.lock(path.with_name(path.name + '.lock'), seconds)
  except OSError as error:
    raise InputError(f'--wait={path}: {error.strerror}') from None
  if lock is None:
    raise InputError(f'--wait={path}: another launcher waits for this job; end it first, or give another file')
  try:
    yield Record(path)
  finally:
    os.close(lock)


class Told:
  """Counts SIGTERM and SIGINT while it is entered.

  Attributes:
    count: how many have come.
  """

  def __init__(self, act: Callable[[int], None] | None = None):
    """`act` is called with the count in a thread of its own for each."""
    self.count, self._act = 0, act
    self._old: dict[int, Any] = {}

  def __enter__(self) -> Told:
    self._old = {number: signal.signal(number, self._tell) for number in jobs.SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, jobs.SIGNALS)
    return self

  def __exit__(self, *error: Any) -> None:
    for number, handler in self._old.items():
      signal.signal(number, handler)

  def _tell(self, number: int, frame: Any) -> None:
    del number, frame
    self.count += 1
    if self._act is not None:
      threading.Thread(target=self._act, args=(self.count,), daemon=True).start()

  def sleep(self, seconds: float) -> None:
    """Waits for so long, or until another signal comes."""
    before, end = self.count, time.monotonic() + seconds
    while self.count == before and (left := end - time.monotonic()) > 0:
      time.sleep(min(0.2, left))


class Job(Protocol):
  """A job elsewhere; `known` is what `submit` gave, and what was added since."""

  def submit(self) -> dict[str, Any]:
    """Submits it; returns what it is found again by."""

  def poll(self, record: Record) -> int | None:
    """Shows what it has said since, and returns the exit code of lmx once it has ended."""

  def stop(self, known: dict[str, Any]) -> None:
    """Tells lmx to save and leave for good."""

  def kill(self, known: dict[str, Any]) -> None:
    """Ends it at once."""

  def clear(self, known: dict[str, Any]) -> None:
    """Takes away what an ended job leaves."""


def to_end(name: str, job: Job, path: str, seconds: float) -> int:
  """Submits `job`, or takes up the one that the record speaks of, and waits for its end.

  Args:
    name: of the launcher, for messages.
    job: what is submitted.
    path: of the record.
    seconds: between two looks at it.

  Returns:
    The exit code of lmx; that of the launcher if nothing could be submitted. Where the cluster does not answer for long
    it is PREEMPTED too, and started again the launcher waits on.

  Raises:
    InputError: another launcher has the record.
  """
  with Told() as told, held(pathlib.Path(path)) as record:
    if not record.known:
      if told.count:
        return command.PREEMPTED
      code = _apart(name, lambda: _submit(job, record))
      record.read()
      if code:
        return code
    if 'code' not in record.known:
      ended = _wait(name, job, record, told, seconds)
      if ended is None:
        return command.PREEMPTED
      record.write(code=ended)
    _clear(name, job, record, told, seconds)
    code = record.known['code']
    record.remove()
    return code


def _submit(job: Job, record: Record) -> int:
  record.write(**job.submit())
  return 0


def _apart(name: str, work: Callable[[], int]) -> int:
  """Does `work` in a process that goes on if this one is killed, and holds the record till then; its exit code."""
  sys.stdout.flush()
  sys.stderr.flush()
  child = os.fork()
  if not child:
    code = 1
    try:
      os.setsid()
      for number in jobs.SIGNALS:
        signal.signal(number, lambda *_: None)  # to ignore them would be inherited
      code = command.guarded(name, work)
      sys.stdout.flush()
    except BaseException:
      traceback.print_exc()
    finally:
      os._exit(code)
  return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _wait(name: str, job: Job, record: Record, told: Told, seconds: float) -> int | None:
  """The code of the job once it has ended; None if the cluster does not answer for PATIENCE."""
  answered, passed = time.monotonic(), 0
  while True:
    try:
      if passed < min(told.count, 2):
        record.write(stopped=True)
        (job.stop, job.kill)[passed](record.known)
        passed += 1
    except command.Failed as error:
      print(f'launch.{name}: {error}', file=sys.stderr, flush=True)  # the next turn tries again
    try:
      code = job.poll(record)
      answered = time.monotonic()
      if code is not None:
        return code
    except command.Failed as error:
      print(f'launch.{name}: {error}', file=sys.stderr, flush=True)
      if time.monotonic() - answered > PATIENCE:
        return None
    told.sleep(seconds)


def _clear(name: str, job: Job, record: Record, told: Told, seconds: float) -> None:
  """Takes away what the job leaves; what cannot be is said, since the run has ended all the same."""
  end = time.monotonic() + PATIENCE
  while True:
    try:
      return job.clear(record.known)
    except command.Failed as error:
      print(f'launch.{name}: {error}', file=sys.stderr, flush=True)
    if time.monotonic() > end or told.count:
      return None
    told.sleep(seconds)
