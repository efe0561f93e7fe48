"""Run on machines that are reached by ssh: create or resume them, copy the code, start all hosts, follow them.

Imports no JAX.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import pathlib
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from launch import accelerators, command, preflight
from launch.remote.scripts import BUSY, FOLLOW, INSTALL, SCRIPT, START, STOP, TAKEN
from launch.wait import SignalCounter
from lmx.errors import InputError

LOST = 255  # exit code of ssh for a broken connection; no code of lmx
AT_ONCE = 32  # connections
TRIES = 3  # copies of a log


class Stopped(Exception):
  """A signal arrived before lmx was started."""


@dataclasses.dataclass(frozen=True)
class Host:
  """Host of a slice.

  Attributes:
    node: name of the TPU VM or of the instance.
    worker: number of the host on its TPU VM; 'all' addresses every host of it.
    slice: number of the slice.
  """

  node: str
  worker: int | str = 0
  slice: int = 0


class Machines(Protocol):
  """Machines of a run: their commands, and how to get them ready.

  Attributes:
    launcher: name of the launcher, for messages.
    name: name that the user gave.
    accelerator: a name in `launch.accelerators`.
    slices: number of slices that train together.
  """

  launcher: str

  @property
  def name(self) -> str: ...

  @property
  def accelerator(self) -> str: ...

  @property
  def slices(self) -> int: ...

  def wait_until_ready(self, launch: Launch) -> list[Host]:
    """Create them if needed; return the hosts once all are up, in a dry run the expected ones."""

  def is_up(self, runner: command.Runner) -> bool:
    """Return whether all of them are up."""

  def grouped(self, hosts: Sequence[Host]) -> list[Host]:
    """Return the addresses of one command each that together reach all hosts."""

  def environment(self, launch: Launch, hosts: Sequence[Host]) -> dict[str, str]:
    """Return the variables by which the processes of several hosts find one another."""

  def ssh(self, host: Host, text: str) -> list[str]:
    """Return the command that runs a shell script on a host."""

  def send(self, host: Host, file: str) -> list[str]:
    """Return the command that copies a file to the home of a host."""

  def fetch(self, host: Host, path: str, file: str) -> list[str]:
    """Return the command that copies a file from the home of a host."""

  def delete(self, runner: command.Runner) -> None:
    """Delete them; those that do not exist are skipped."""


class Launch:
  """Run on machines, from their creation to the end of the run.

  Attributes:
    logs: folder for the logs of all hosts.
    signals: with --wait, the signals to pass on to lmx.
    resumed: the run was started before; if it has ended since, it is not started again.
  """

  def __init__(self, machines: Machines, run: command.Run, commit: str, logs: str, poll: float = 20.0):
    self.machines, self.run, self.commit, self.poll = machines, run, commit, poll
    self.runner = command.Runner(run.dry_run)
    self.folder = f'lmx-{commit[:12]}'
    self.name = hashlib.sha256('\0'.join(run.words).encode()).hexdigest()[:12]
    self.logs = pathlib.Path(logs or f'runs/{machines.launcher}/{machines.name}')
    self.signals: SignalCounter | None = None
    self.resumed = False
    self._hosts: Sequence[Host] = ()
    self._forwarded, self._forwarding = -1, threading.Lock()  # signals passed on, -1 while lmx does not run

  def run_to_end(self) -> int:
    """Start, follow and restart the run; return the exit code of lmx."""
    code = LOST
    for left in range(self.run.restarts, -1, -1):
      try:
        code = self.run_once()
      except Stopped:
        return command.PREEMPTED
      if not left or not (code == LOST or command.is_restartable(code)) or self.signals and self.signals.count:
        return code
      self.resumed = False
      why = 'the machine is gone' if code == LOST else f'lmx ended with {code}'
      self.log(f'{why}; starting again ({left} left)')
    return code

  def run_once(self) -> int:
    """Run once on new or existing machines; return the exit code of lmx, LOST if a machine went away."""
    hosts = self.machines.wait_until_ready(self)
    try:
      self.install(hosts)
      self.check_signals()
      self.start(hosts)
    except command.Failed:
      if self.machines.is_up(self.runner):
        raise
      return LOST
    code = self.follow(hosts)
    self.collect_logs(hosts)
    return code

  def install(self, hosts: Sequence[Host]) -> None:
    """Copy the code to every host and install it, unless that was done."""
    with tempfile.TemporaryDirectory() as folder:
      file = str(pathlib.Path(folder) / f'{self.folder}.tar.gz')
      if self.run.dry_run:
        file = f'{self.folder}.tar.gz'
      git = ['git', 'archive', '--format=tar.gz', f'--prefix={self.folder}/', f'--output={file}', self.commit]
      self.runner.read(git)
      self._on_all(hosts, lambda host: self.machines.send(host, file), one_first=True)
    self.log('installing')
    self._on_all(hosts, lambda host: self.machines.ssh(host, INSTALL.format(folder=self.folder)))

  def start(self, hosts: Sequence[Host]) -> None:
    """Start lmx on every host on which it does not run yet."""
    env = self.machines.environment(self, hosts) if len(hosts) > 1 else {}
    about = 'the values of ' + ', '.join(self.run.secrets) if self.run.secrets else ''
    if self.run.dry_run:
      for host in self._examples(hosts):
        host = dataclasses.replace(host, worker='WORKER') if about else host
        self.runner.show(self.machines.ssh(host, self.start_text(host, hosts, env)), about)
      return
    values = ''.join(f'{value}\n' for value in self.run.secret_values().values())

    def start_host(host: Host) -> None:
      self.runner.read(self.machines.ssh(host, self.start_text(host, hosts, env)), values, about)

    while True:
      try:
        # One connection per host: several in one call would share its standard input.
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
          list(pool.map(start_host, hosts))
        return
      except command.Failed as error:
        if error.code != BUSY or self.signals is None:
          raise
      self.log(f'another run of lmx is on {self.machines.name}; waiting for its end')
      self.pause()

  def start_text(self, host: Host, hosts: Sequence[Host], env: Mapping[str, str]) -> str:
    """Return the shell script that starts lmx on a host; {slice} in a value of `env` is the number of its slice."""
    settings = {name: value.format(slice=host.slice) for name, value in env.items()} | self.run.remote_env()
    check: tuple[str, ...] = ()
    if self.run.preflight:
      devices = accelerators.find(self.machines.accelerator, self.machines.launcher).devices
      check = preflight.words(self.run.words, processes=len(hosts), devices=devices)
    lines = ''.join(f'{line}\n' for line in command.export_lines(settings))
    python = '.venv/bin/python'
    script = SCRIPT.format(
      run=self.name,
      exports=lines,
      check=f'{command.lmx_command(check, python)} && ' if check else '',
      command=command.lmx_command(self.run.words, python),
    )
    reads = ''.join(f'IFS= read -r {name} || exit 2\nexport {name}\n' for name in self.run.secrets)
    taken = TAKEN.format(run=self.name) if self.resumed else ''
    return START.format(
      secrets=reads, folder=self.folder, script=shlex.quote(script), run=self.name, taken=taken, busy=BUSY
    )

  def follow(self, hosts: Sequence[Host]) -> int:
    """Print the output of the hosts until all have ended; return the code of the first failure, 0 without one."""
    if self.run.dry_run:
      text = FOLLOW.format(folder=self.folder, line=1, run=self.name)
      for host in self._examples(hosts):
        self.runner.show(self.machines.ssh(dataclasses.replace(host, worker='WORKER'), text))
      return 0
    codes: list[int] = []
    self._hosts, self._forwarded = hosts, 0
    self.forward_signals()
    with concurrent.futures.ThreadPoolExecutor(len(hosts)) as pool:
      followed = [pool.submit(self.follow_host, host, number) for number, host in enumerate(hosts)]
      for ended in concurrent.futures.as_completed(followed):
        codes.append(ended.result())
        if codes[-1] and not any(codes[:-1]) and not self._forwarded:
          self._stop('TERM')
    self._forwarded = -1
    final = [code for code in codes if code and code != LOST and not command.is_restartable(code)]
    return next(iter([*final, *filter(None, codes)]), 0)

  def follow_host(self, host: Host, number: int) -> int:
    """Print the output of a host until lmx has ended there; return its code, LOST if a machine went away."""
    shown, before, tries = 0, 0, 0

    def show(line: str) -> None:
      nonlocal shown, tries
      count, _, text = line.partition(':')
      if count.isdigit() and before + int(count) > shown:
        shown, tries = before + int(count), 0
        command.write(f'[{number}] {text}' if number else text)

    while tries < 30:
      before = shown
      text = FOLLOW.format(folder=self.folder, line=shown + 1, run=self.name)
      code = self.runner.follow(self.machines.ssh(host, text), show)
      if code != LOST:
        return code
      if not self.machines.is_up(self.runner):
        return LOST
      tries += 1
      time.sleep(self.poll)
    raise InputError(
      f'host {number} of {self.machines.name} is up, but every connection to it is lost; try ssh by hand'
    )

  def collect_logs(self, hosts: Sequence[Host]) -> None:
    """Append the log of every host to a file here; those of lost hosts are named."""
    if self.run.dry_run:
      for host in self._examples(hosts):
        worker = dataclasses.replace(host, worker='WORKER')
        self.runner.show(self.machines.fetch(worker, f'{self.folder}/.run/log', f'{self.logs}/host-NNN.log'))
      return
    self.logs.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
      copied = list(pool.map(self._collect_log, hosts, range(len(hosts))))
    lost = [str(number) for number, done in enumerate(copied) if not done]
    self.log(f'the logs of the hosts are in {self.logs}' + (f', but not of {", ".join(lost)}' if lost else ''))

  def _collect_log(self, host: Host, number: int) -> bool:
    """Append the log of a host to its file; return whether it could be had."""
    with tempfile.TemporaryDirectory() as folder:
      file = pathlib.Path(folder) / 'log'
      for left in range(TRIES - 1, -1, -1):
        try:
          self.runner.read(self.machines.fetch(host, f'{self.folder}/.run/log', str(file)))
          with open(self.logs / f'host-{number:03d}.log', 'ab') as log:
            log.write(file.read_bytes())
          return True
        except command.Failed:
          if not left or not self.machines.is_up(self.runner):
            return False
          time.sleep(self.poll)
    return False

  def forward_signals(self) -> None:
    """Pass new signals on to lmx: the first lets it save, the second ends it."""
    with self._forwarding:
      while self.signals and 0 <= self._forwarded < min(self.signals.count, 2):
        self._stop(('TERM', 'KILL')[self._forwarded])
        self._forwarded += 1

  def _stop(self, signal: str) -> None:
    """Signal lmx on all hosts; it may have ended on some."""
    text = STOP.format(folder=self.folder, signal=signal)

    def stop(host: Host) -> None:
      for _ in range(30):
        try:
          self.runner.read(self.machines.ssh(host, text))
          return
        except command.Failed as error:
          if error.code != LOST or not self.machines.is_up(self.runner):
            return
        time.sleep(self.poll)

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
      list(pool.map(stop, self.machines.grouped(self._hosts)))

  def _on_all(self, hosts: Sequence[Host], argv: Callable[[Host], list[str]], one_first: bool = False) -> None:
    """Run a command about every host, in a dry run about one of each slice.

    Args:
      hosts: the hosts.
      argv: returns the command about a host.
      one_first: finish the first before the others: gcloud makes a key for ssh at the first connection.
    """
    addresses = self._examples(hosts) if self.run.dry_run else self.machines.grouped(hosts)
    if self.run.dry_run or one_first:
      self.runner.read(argv(addresses[0]))
      addresses = addresses[1:]
    with concurrent.futures.ThreadPoolExecutor(1 if self.run.dry_run else AT_ONCE) as pool:
      list(pool.map(lambda host: self.runner.read(argv(host)), addresses))

  def _examples(self, hosts: Sequence[Host]) -> list[Host]:
    """Return one address of each slice."""
    return list({host.slice: host for host in reversed(self.machines.grouped(hosts))}.values())[::-1]

  def check_signals(self) -> None:
    """Raise Stopped after a signal."""
    if self.signals and self.signals.count:
      raise Stopped

  def pause(self) -> None:
    """Sleep until the next look at the machines; raise Stopped after a signal."""
    (self.signals or time).sleep(self.poll)
    self.check_signals()

  def log(self, text: str) -> None:
    """Print progress on standard error."""
    if not self.run.dry_run:
      print(f'launch.{self.machines.launcher}: {text}', file=sys.stderr, flush=True)


def find_commit(runner: command.Runner, commit: str) -> str:
  """Return the commit to run: the given one, or the one checked out without changes.

  Raises:
    InputError: there are uncommitted changes.
  """
  if not commit and runner.read(['git', 'status', '--porcelain', '--untracked-files=no']):
    raise InputError('--commit: got uncommitted changes here; commit them, or run without them by --commit=HEAD')
  return runner.read(['git', 'rev-parse', '--verify', f'{commit or "HEAD"}^{{commit}}']).strip()
