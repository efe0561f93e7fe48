"""Run on a Cloud TPU VM: create or resume the machine, copy the code, start all hosts, follow them. Imports no JAX."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import pathlib
import shlex
import sys
import tempfile
import threading
import time
from typing import Any

from launch import accelerators, command, preflight
from launch.tpu_vm.machine import BUSY, FOLLOW, INSTALL, SCRIPT, START, STOP, TAKEN, Machine
from launch.wait import SignalCounter
from lmx.errors import InputError

LOST = 255  # exit code of ssh for a broken connection; no code of lmx
WAIT = ('CREATING', 'STARTING', 'RESTARTING', 'REPAIRING', 'STOPPING', 'DELETING')
GONE = ('PREEMPTED', 'TERMINATED', 'HIDDEN')
QUEUED = ('ACCEPTED', 'WAITING_FOR_RESOURCES', 'PROVISIONING', 'CREATING', 'DELETING', 'SUSPENDING')
AT_ONCE = 32  # connections


class Stopped(Exception):
  """A signal arrived before lmx was started."""


class Launch:
  """Run on a machine, from the creation of the machine to the end of the run.

  Attributes:
    signals: with --wait, the signals to pass on to lmx.
    resumed: the run was started before; if it has ended since, it is not started again.
  """

  def __init__(self, machine: Machine, run: command.Run, commit: str, poll: float = 20.0):
    self.machine, self.run, self.commit, self.poll = machine, run, commit, poll
    self.runner = command.Runner(run.dry_run)
    self.folder = f'lmx-{commit[:12]}'
    self.name = hashlib.sha256('\0'.join(run.words).encode()).hexdigest()[:12]
    self.log = (lambda text: None) if run.dry_run else log
    self.signals: SignalCounter | None = None
    self.resumed = False
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
    """Run once on a new or existing machine; return the exit code of lmx, LOST if the machine went away."""
    hosts = self.wait_until_ready()
    try:
      self.install()
      self._check()
      self.start(hosts)
    except command.Failed:
      if self.state() == 'READY':
        raise
      return LOST
    return self.follow(hosts)

  def state(self) -> str:
    """Return the state of the machine, 'ABSENT' without one."""
    return self.describe().get('state', 'ABSENT')

  def describe(self, kind: str = 'tpu-vm') -> dict[str, Any]:
    """Return Google's description of the machine, {} without one."""
    try:
      text = self.runner.read(self.machine.gcloud(kind, 'describe', '--format=json'))
    except command.Failed as error:
      if 'NOT_FOUND' in error.stderr or 'not found' in error.stderr:
        return {}
      raise
    return json.loads(text) if text else {}

  def wait_until_ready(self) -> int:
    """Wait for the machine, create it if needed; return its number of hosts.

    Raises:
      InputError: its state is unknown, or it has another accelerator.
      command.Failed: Google refuses it.
    """
    while True:
      self._check()
      description = self.describe()
      state = description.get('state', 'ABSENT')
      if state == 'READY':
        accelerator = description.get('acceleratorType', '').rpartition('/')[2] or self.machine.accelerator
        if accelerator != self.machine.accelerator:
          raise InputError(
            f'--name: {self.machine.name} exists with accelerator {accelerator}; give another --name, or '
            f'--accelerator={accelerator}'
          )
        return len(description.get('networkEndpoints', [])) or 1
      if state == 'ABSENT' and self._is_queued():
        continue
      if state == 'ABSENT':
        self.log(f'requesting {self.machine.name}, a {self.machine.accelerator}')
        self.runner.read(self.machine.create())
      elif state in GONE:
        self.log(f'{self.machine.name} is {state}: deleting it')
        self.runner.read(self.machine.delete())
      elif state == 'STOPPED':
        self.runner.read(self.machine.gcloud('tpu-vm', 'start'))
      elif state in WAIT:
        self._sleep()
      else:
        raise InputError(f'{self.machine.name} is {state}; see `gcloud compute tpus tpu-vm describe`, or delete it')
      if self.run.dry_run:
        return accelerators.find(self.machine.accelerator, pool=False).hosts

  def _is_queued(self) -> bool:
    """Return whether a queued resource will give the machine; a suspended one is deleted."""
    if not self.machine.queued:
      return False
    details = self.describe('queued-resources').get('state', {})
    state = details.get('state', 'ABSENT')
    if state in QUEUED or state == 'ACTIVE':
      self.log(f'{self.machine.name} in the queue: {state}')
      self._sleep()
      self._check()
      return True
    if state == 'FAILED':
      raise InputError(f'Google refused a {self.machine.accelerator} in {self.machine.zone}: {json.dumps(details)}')
    if state != 'ABSENT':  # SUSPENDED: it was preempted
      self.runner.read(self.machine.delete())
    return False

  def install(self) -> None:
    """Copy the code to every host and install it, unless that was done."""
    with tempfile.TemporaryDirectory() as folder:
      file = str(pathlib.Path(folder) / f'{self.folder}.tar.gz')
      if self.run.dry_run:
        file = f'{self.folder}.tar.gz'
      git = ['git', 'archive', '--format=tar.gz', f'--prefix={self.folder}/', f'--output={file}', self.commit]
      self.runner.read(git)
      self.runner.read(self.machine.scp(file))
    self.log('installing')
    self.runner.read(self.machine.ssh('all', INSTALL.format(folder=self.folder)))

  def start(self, hosts: int) -> None:
    """Start lmx on every host on which it does not run yet."""
    text = self.start_text(hosts)
    about = 'the values of ' + ', '.join(self.run.secrets) if self.run.secrets else ''
    if self.run.dry_run:
      self.runner.show(self.machine.ssh('all' if not about else 'WORKER', text), about)
      return
    values = ''.join(f'{value}\n' for value in self.run.secret_values().values())
    while True:
      try:
        # One connection per host: several in one call would share its standard input.
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
          list(pool.map(lambda worker: self.runner.read(self.machine.ssh(worker, text), values, about), range(hosts)))
        return
      except command.Failed as error:
        if error.code != BUSY or self.signals is None:
          raise
      self.log(f'another run of lmx is on {self.machine.name}; waiting for its end')
      self._sleep()
      self._check()

  def start_text(self, hosts: int) -> str:
    """Return the shell script that starts lmx on a host."""
    env = {**({'LMX_COORDINATOR': 'auto'} if hosts > 1 else {}), **self.run.remote_env()}
    check: tuple[str, ...] = ()
    if self.run.preflight:
      devices = accelerators.find(self.machine.accelerator, pool=False).devices
      check = preflight.words(self.run.words, processes=hosts, devices=devices)
    lines = ''.join(f'{line}\n' for line in command.export_lines(env))
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

  def follow(self, hosts: int) -> int:
    """Print the output of the hosts until all have ended; return the code of the first failure, 0 without one."""
    if self.run.dry_run:
      self.runner.show(self.machine.ssh('WORKER', FOLLOW.format(folder=self.folder, line=1, run=self.name)))
      return 0
    codes: list[int] = []
    self._forwarded = 0
    self.forward_signals()
    with concurrent.futures.ThreadPoolExecutor(hosts) as pool:
      followed = [pool.submit(self.follow_host, worker) for worker in range(hosts)]
      for ended in concurrent.futures.as_completed(followed):
        codes.append(ended.result())
        if codes[-1] and not any(codes[:-1]) and not self._forwarded:
          self._stop('TERM')
    self._forwarded = -1
    final = [code for code in codes if code and code != LOST and not command.is_restartable(code)]
    return next(iter([*final, *filter(None, codes)]), 0)

  def follow_host(self, worker: int) -> int:
    """Print the output of a host until lmx has ended there; return its code, LOST if the machine went away."""
    shown, before, tries = 0, 0, 0

    def show(line: str) -> None:
      nonlocal shown, tries
      number, _, text = line.partition(':')
      if number.isdigit() and before + int(number) > shown:
        shown, tries = before + int(number), 0
        command.write(f'[{worker}] {text}' if worker else text)

    while tries < 30:
      before = shown
      text = FOLLOW.format(folder=self.folder, line=shown + 1, run=self.name)
      code = self.runner.follow(self.machine.ssh(worker, text), show)
      if code != LOST:
        return code
      if self.state() != 'READY':
        return LOST
      tries += 1
      time.sleep(self.poll)
    raise InputError(f'host {worker} of {self.machine.name} is up, but every connection to it is lost; try ssh by hand')

  def forward_signals(self) -> None:
    """Pass new signals on to lmx: the first lets it save, the second ends it."""
    with self._forwarding:
      while self.signals and 0 <= self._forwarded < min(self.signals.count, 2):
        self._stop(('TERM', 'KILL')[self._forwarded])
        self._forwarded += 1

  def _stop(self, signal: str) -> None:
    """Signal lmx on all hosts; it may have ended on some."""
    for _ in range(30):
      try:
        self.runner.read(self.machine.ssh('all', STOP.format(folder=self.folder, signal=signal)))
        return
      except command.Failed as error:
        if error.code != LOST or self.state() != 'READY':
          return
      time.sleep(self.poll)

  def _check(self) -> None:
    if self.signals and self.signals.count:
      raise Stopped

  def _sleep(self) -> None:
    (self.signals or time).sleep(self.poll)


def log(text: str) -> None:
  """Print progress on standard error."""
  print(f'launch.tpu_vm: {text}', file=sys.stderr, flush=True)


def find_commit(runner: command.Runner, commit: str) -> str:
  """Return the commit to run: the given one, or the one checked out without changes.

  Raises:
    InputError: there are uncommitted changes.
  """
  if not commit and runner.read(['git', 'status', '--porcelain', '--untracked-files=no']):
    raise InputError('--commit: got uncommitted changes here; commit them, or run without them by --commit=HEAD')
  return runner.read(['git', 'rev-parse', '--verify', f'{commit or "HEAD"}^{{commit}}']).strip()
