"""`--wait=FILE` of every launcher: submit the job, wait for its end, pass signals on, exit with the exit code of lmx.

A job elsewhere then behaves like a command of this machine, as `launch.sweep` needs. FILE records the job: however
the launcher ends, the same command resumes waiting for the same job. FILE is deleted once the end is reported. The
first SIGTERM or Ctrl-C makes lmx save and exit without a restart, the second ends the job. Imports no JAX.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from launch import command, jobs
from lmx import documents, records, storage
from lmx.cli import outputs
from lmx.console import Console
from lmx.errors import InputError, explain, nearest

LAUNCHERS = ('slurm', 'gke', 'tpu_vm', 'gce')
# Required program of each launcher.
PROGRAMS = {'slurm': 'sbatch', 'gke': 'kubectl', 'tpu_vm': 'gcloud', 'gce': 'gcloud'}
OWN_FILES = ('gke', 'tpu_vm', 'gce')  # launchers of machines that do not see this one's files
PATIENCE = 900.0  # seconds without an answer from the cluster before the launcher gives up
_WRITTEN = ('workdir', 'to', *outputs.OUTPUTS)  # options of lmx that name files and folders to write
SUBMITTING = 60.0  # timeout in seconds of a submission whose launcher has ended


def launcher_command(where: str, options: str, words: Sequence[str], more: Sequence[str] = ()) -> list[str]:
  """Return the command that passes the lmx command `words` to `python -m launch.WHERE`.

  Args:
    where: one of LAUNCHERS.
    options: options of the launcher, as typed.
    words: arguments after `lmx`.
    more: further options.

  Raises:
    InputError: there is no such launcher, or the options have an open quote or a `--`.
  """
  if where not in LAUNCHERS:
    raise InputError(f'--where: there is no launcher "{where}"{nearest(where, LAUNCHERS)}')
  try:
    typed = shlex.split(options)
  except ValueError as error:
    raise InputError(f'--launch={options}: {error}') from None
  if '--' in typed:
    raise InputError(f'--launch={options}: got a --; expected only options')
  return [sys.executable, '-m', f'launch.{where}', *typed, *more, '--', *words]


_OPTIONAL = {'code': int, 'stopped': bool, 'shown': dict, 'pod': str, 'since': str}  # fields of a record, once known


class Record:
  """Record of a submitted job in a file that one process at a time holds; `fields` is the content."""

  def __init__(self, path: pathlib.Path, required: Mapping[str, type]):
    """Read the record; `required` are the fields, with their types, that the launcher writes at submission."""
    self.path, self.required = path, required
    self.fields: dict[str, Any] = {}
    self.read()

  def read(self) -> None:
    """Read the file, {} if it does not exist. Raises InputError if it is damaged."""
    self.fields, where = records.read_if_exists(self.path), str(self.path)
    for name, kind in self.required.items() if self.fields else ():
      documents.field(self.fields, name, kind, where)
    for name, kind in _OPTIONAL.items():
      documents.field(self.fields, name, kind, where, kind())

  def write(self, **more: Any) -> None:
    """Update the record with these fields, and write the file."""
    self.fields |= more
    part = self.path.with_name(self.path.name + '.part')
    part.write_text(json.dumps(self.fields) + '\n', encoding='utf-8')
    os.replace(part, self.path)

  def remove(self) -> None:
    """Delete the file, once the end of the job is reported."""
    self.path.unlink(missing_ok=True)
    self.fields = {}


def check_path(field: str, value: str, where: str, kind: str = '') -> str:
  """Return a path that this machine and the machines of a launcher name alike, with `~` expanded.

  Raises:
    InputError: see `storage.path`; `~` is the home directory of another machine, or see `require_shared`.
  """
  if value.startswith('~') and where in OWN_FILES:
    raise InputError(
      f'{field}: got {value} with --where={where}; expected no ~, because the home directory there is another one; '
      'name a bucket, gs://BUCKET/PATH, or an absolute path'
    )
  path = storage.check_path(field, value, kind)
  require_shared(field, path, where)
  return path


def require_shared(field: str, value: str, where: str) -> None:
  """Raise InputError for a path in the project of a launcher's machines: their copy of it is deleted with them.

  An absolute path can be a disk that they mount, or come with their image.
  """
  if where in OWN_FILES and not (storage.is_remote(value) or value.startswith(storage.HUB) or os.path.isabs(value)):
    raise InputError(
      f'{field}: got {value}; expected gs://BUCKET/PATH, or an absolute path that machines of launch.{where} mount; '
      'any other is in their own copy of the project or home directory, which is deleted with them'
    )


def check_outputs(words: Sequence[str], where: str) -> None:
  """Raise InputError if the lmx command `words` writes files that are deleted with a launcher's machines."""
  for word, following in itertools.zip_longest(words, words[1:], fillvalue=''):
    option, equals, value = word.partition('=')
    value = value if equals else following
    if option.removeprefix('--') in _WRITTEN and option.startswith('--') and value not in ('', '-'):
      require_shared(option, value, where)


def keep_output(streams: Console, args: argparse.Namespace, log: pathlib.Path | None = None) -> None:
  """Let a launcher continue if its output is lost: in FILE.log next to the --wait record, else in `log`.

  A dry run, whose only product is its output, ends. `args.wait` is checked, and `~` in it expanded.
  """
  if args.wait:
    args.wait = storage.check_path('--wait', args.wait, storage.FILE)
    log = pathlib.Path(f'{args.wait}.log')
  if not args.dry_run:
    streams.keep(log)


@contextlib.contextmanager
def open_record(path: pathlib.Path, required: Mapping[str, type], seconds: float = SUBMITTING) -> Iterator[Record]:
  """Hold the record at `path` against other processes.

  Raises:
    InputError: another process holds it for longer than `seconds`, it cannot be created, or it is damaged.
  """
  path = pathlib.Path(storage.check_path('--wait', path, storage.FILE))
  documents.check_regular(path)
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = jobs.lock(path.with_name(path.name + '.lock'), seconds)
  except OSError as error:
    raise InputError(f'--wait={path}: {explain(error)}') from None
  if lock is None:
    raise InputError(f'--wait={path}: another launcher waits for this job; end it first, or give another file')
  try:
    yield Record(path, required)
  finally:
    os.close(lock)


class SignalCounter:
  """Context that counts SIGTERM, SIGINT and SIGHUP.

  Attributes:
    count: signals so far.
  """

  def __init__(self, on_signal: Callable[[int], None] | None = None):
    """Start the count at 0; each signal calls `on_signal` with the count, in a new thread."""
    self.count, self._on_signal = 0, on_signal
    self._old: dict[int, Any] = {}

  def __enter__(self) -> SignalCounter:
    self._old = {number: signal.signal(number, self._count_signal) for number in jobs.SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, jobs.SIGNALS)
    return self

  def __exit__(self, *error: Any) -> None:
    for number, handler in self._old.items():
      signal.signal(number, handler)

  def _count_signal(self, number: int, frame: Any) -> None:
    del number, frame
    self.count += 1
    if self._on_signal is not None:
      threading.Thread(target=self._on_signal, args=(self.count,), daemon=True).start()

  def sleep(self, seconds: float) -> None:
    """Sleep for `seconds`, or until the next signal."""
    before, end = self.count, time.monotonic() + seconds
    while self.count == before and (left := end - time.monotonic()) > 0:
      time.sleep(min(0.2, left))


class Job(Protocol):
  """Job on a cluster; `fields` is the result of `submit`, with later additions; `RECORD` has its keys and types."""

  RECORD: ClassVar[Mapping[str, type]]

  def submit(self) -> dict[str, Any]:
    """Submit it; return the keys that identify it later."""

  def poll(self, record: Record) -> int | None:
    """Print new output; return the exit code of lmx once it has ended, else None."""

  def stop(self, fields: dict[str, Any]) -> None:
    """Tell lmx to save and exit for good."""

  def kill(self, fields: dict[str, Any]) -> None:
    """End it at once."""

  def clear(self, fields: dict[str, Any]) -> None:
    """Clean up after an ended job."""


def submit_and_wait(name: str, job: Job, path: str, seconds: float) -> int:
  """Submit `job`, or resume the recorded one, and wait for its end.

  Args:
    name: launcher, for messages.
    job: job to submit.
    path: file of the record.
    seconds: interval between two polls.

  Returns:
    lmx's exit code; the launcher's if nothing could be submitted; PREEMPTED if the cluster did not answer for PATIENCE,
      after which the same command resumes waiting.

  Raises:
    InputError: another launcher holds the record, or it is damaged.
  """
  with SignalCounter() as signals, open_record(pathlib.Path(path), job.RECORD) as record:
    if not record.fields:
      if signals.count:
        return command.PREEMPTED
      code = _run_detached(name, lambda: _submit(job, record))
      record.read()
      if code:
        return code
    if 'code' not in record.fields:
      ended = _wait(name, job, record, signals, seconds)
      if ended is None:
        return command.PREEMPTED
      record.write(code=ended)
    _clean_up(name, job, record, signals, seconds)
    code = record.fields['code']
    record.remove()
    return code


def _submit(job: Job, record: Record) -> int:
  record.write(**job.submit())
  return 0


def _run_detached(name: str, work: Callable[[], int]) -> int:
  """Run `work` in a process that outlives this one and holds the record until then; return its exit code."""
  sys.stdout.flush()
  sys.stderr.flush()
  child = os.fork()
  if not child:
    code = 1
    try:
      os.setsid()
      for number in jobs.SIGNALS:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which children would inherit
      code = command.handle_errors(name, work)
      sys.stdout.flush()
    except BaseException:
      traceback.print_exc()
    finally:
      os._exit(code)
  return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _wait(name: str, job: Job, record: Record, signals: SignalCounter, seconds: float) -> int | None:
  """Return the exit code of the job once it has ended; None if the cluster did not answer for PATIENCE."""
  answered, passed = time.monotonic(), 0
  while True:
    try:
      if passed < min(signals.count, 2):
        record.write(stopped=True)
        (job.stop, job.kill)[passed](record.fields)
        passed += 1
    except command.Failed as error:
      print(f'launch.{name}: {error}', file=sys.stderr, flush=True)  # the next poll tries again
    try:
      code = job.poll(record)
      answered = time.monotonic()
      if code is not None:
        return code
    except command.Failed as error:
      print(f'launch.{name}: {error}', file=sys.stderr, flush=True)
      if time.monotonic() - answered > PATIENCE:
        return None
    signals.sleep(seconds)


def _clean_up(name: str, job: Job, record: Record, signals: SignalCounter, seconds: float) -> None:
  """Clean up after the job; a failure is only printed, because the run has ended."""
  end = time.monotonic() + PATIENCE
  while True:
    try:
      return job.clear(record.fields)
    except command.Failed as error:
      print(f'launch.{name}: {error}', file=sys.stderr, flush=True)
    if time.monotonic() > end or signals.count:
      return None
    signals.sleep(seconds)
