"""Trains on a Cloud TPU VM: makes or takes up the machine, brings the code, starts all hosts, follows, goes on.

  python -m launch.tpu_vm --name=NAME --zone=ZONE --accelerator=v5litepod-16 --delete -- train --config=... --workdir=gs://...

The code is that of the commit that is checked out here. lmx runs apart from the connection: when the launcher is ended,
training goes on, and the same command takes up following it; with --wait=FILE a signal to the launcher reaches lmx
(launch/waiting.py). When the machine is preempted or lmx leaves with code 75, all begins again on a new one, up to
--restarts times. With --delete the machine is deleted when the run has ended; with --delete and no command, at once.
Secrets go through the connection's standard input. Imports no JAX.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import pathlib
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any

from launch import accelerators, command, preflight, waiting
from launch.tpu_machine import BUSY, FOLLOW, INSTALL, SCRIPT, START, STOP, TAKEN, Machine
from lmx.errors import InputError

LOST = 255  # the connection broke, as ssh says it; no code of lmx
WAIT = ('CREATING', 'STARTING', 'RESTARTING', 'REPAIRING', 'STOPPING', 'DELETING')
GONE = ('PREEMPTED', 'TERMINATED', 'HIDDEN')
QUEUED = ('ACCEPTED', 'WAITING_FOR_RESOURCES', 'PROVISIONING', 'CREATING', 'DELETING', 'SUSPENDING')
AT_ONCE = 32  # connections


class Stopped(Exception):
  """Told to end before lmx was started."""


class Launch:
  """A run on a machine, from making it to its end.

  Attributes:
    told: with --wait: the signals to pass on to lmx.
    taken: the run was begun before, and is not begun again where it has ended since.
  """

  def __init__(self, machine: Machine, run: command.Run, commit: str, poll: float = 20.0):
    self.machine, self.run, self.commit, self.poll = machine, run, commit, poll
    self.runner = command.Runner(run.dry_run)
    self.folder = f'lmx-{commit[:12]}'
    self.name = hashlib.sha256('\0'.join(run.words).encode()).hexdigest()[:12]
    self.say = (lambda text: None) if run.dry_run else say
    self.told: waiting.Told | None = None
    self.taken = False
    self._passed, self._passing = -1, threading.Lock()  # signals passed on, -1 where lmx does not run

  def to_end(self) -> int:
    """Begins, follows and begins again; returns the exit code of lmx."""
    code = LOST
    for left in range(self.run.restarts, -1, -1):
      try:
        code = self.once()
      except Stopped:
        return command.PREEMPTED
      if not left or not (code == LOST or command.restartable(code)) or self.told and self.told.count:
        return code
      self.taken = False
      why = 'the machine is gone' if code == LOST else f'lmx ended with {code}'
      self.say(f'{why}; starting again ({left} left)')
    return code

  def once(self) -> int:
    """From a machine, new or found, to the end of the run on it; LOST if the machine went away."""
    hosts = self.ready()
    try:
      self.bring()
      self._check()
      self.start(hosts)
    except command.Failed:
      if self.state() == 'READY':
        raise
      return LOST
    return self.follow(hosts)

  def state(self) -> str:
    """As Google says it, 'ABSENT' where there is none."""
    return self.describe().get('state', 'ABSENT')

  def describe(self, kind: str = 'tpu-vm') -> dict[str, Any]:
    """What Google says of it, {} where there is none."""
    try:
      text = self.runner.read(self.machine.gcloud(kind, 'describe', '--format=json'))
    except command.Failed as error:
      if 'NOT_FOUND' in error.stderr or 'not found' in error.stderr:
        return {}
      raise
    return json.loads(text) if text else {}

  def ready(self) -> int:
    """Sees to it that the machine is there; returns its number of hosts.

    Raises:
      InputError: it is in a state that nothing is known of, or has another accelerator.
      command.Failed: Google refuses it.
    """
    while True:
      self._check()
      found = self.describe()
      state = found.get('state', 'ABSENT')
      if state == 'READY':
        there = found.get('acceleratorType', '').rpartition('/')[2] or self.machine.accelerator
        if there != self.machine.accelerator:
          raise InputError(f'{self.machine.name} is there, a {there}; give another --name, or --accelerator={there}')
        return len(found.get('networkEndpoints', [])) or 1
      if state == 'ABSENT' and self._is_waited_for():
        continue
      if state == 'ABSENT':
        self.say(f'asking for {self.machine.name}, a {self.machine.accelerator}')
        self.runner.read(self.machine.create())
      elif state in GONE:
        self.say(f'{self.machine.name} is {state}: deleting it')
        self.runner.read(self.machine.delete())
      elif state == 'STOPPED':
        self.runner.read(self.machine.gcloud('tpu-vm', 'start'))
      elif state in WAIT:
        self._sleep()
      else:
        raise InputError(f'{self.machine.name} is {state}; see `gcloud compute tpus tpu-vm describe`, or delete it')
      if self.run.dry_run:
        return accelerators.find(self.machine.accelerator, pool=False).hosts

  def _is_waited_for(self) -> bool:
    """Whether a queued resource is on its way to the machine; one that has come to nothing is deleted."""
    if not self.machine.queued:
      return False
    found = self.describe('queued-resources').get('state', {})
    state = found.get('state', 'ABSENT')
    if state in QUEUED or state == 'ACTIVE':
      self.say(f'{self.machine.name} in the queue: {state}')
      self._sleep()
      self._check()
      return True
    if state == 'FAILED':
      raise InputError(f'Google gives no {self.machine.accelerator} in {self.machine.zone}: {json.dumps(found)}')
    if state != 'ABSENT':  # SUSPENDED: it was preempted
      self.runner.read(self.machine.delete())
    return False

  def bring(self) -> None:
    """Copies the code to every host and installs it there, unless that was done."""
    with tempfile.TemporaryDirectory() as folder:
      file = str(pathlib.Path(folder) / f'{self.folder}.tar.gz')
      if self.run.dry_run:
        file = f'{self.folder}.tar.gz'
      git = ['git', 'archive', '--format=tar.gz', f'--prefix={self.folder}/', f'--output={file}', self.commit]
      self.runner.read(git)
      self.runner.read(self.machine.scp(file))
    self.say('installing')
    self.runner.read(self.machine.ssh('all', INSTALL.format(folder=self.folder)))

  def start(self, hosts: int) -> None:
    """Starts lmx on every host, where it does not run yet."""
    text = self.start_text(hosts)
    about = 'the values of ' + ', '.join(self.run.secrets) if self.run.secrets else ''
    if self.run.dry_run:
      self.runner.show(self.machine.ssh('all' if not about else 'WORKER', text), about)
      return
    values = ''.join(f'{value}\n' for value in self.run.secret_values().values())
    while True:
      try:
        # One connection a host: several in one call would share its standard input.
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
          list(pool.map(lambda worker: self.runner.read(self.machine.ssh(worker, text), values, about), range(hosts)))
        return
      except command.Failed as error:
        if error.code != BUSY or self.told is None:
          raise
      self.say(f'another run of lmx is on {self.machine.name}; waiting for its end')
      self._sleep()
      self._check()

  def start_text(self, hosts: int) -> str:
    """What the shell of each host runs to begin."""
    env = {**({'LMX_COORDINATOR': 'auto'} if hosts > 1 else {}), **self.run.remote_env()}
    check: tuple[str, ...] = ()
    if self.run.preflight:
      devices = accelerators.find(self.machine.accelerator, pool=False).devices
      check = preflight.words(self.run.words, processes=hosts, devices=devices)
    lines = ''.join(f'{line}\n' for line in command.exports(env))
    python = '.venv/bin/python'
    script = SCRIPT.format(
      run=self.name,
      exports=lines,
      check=f'{command.lmx(check, python)} && ' if check else '',
      command=command.lmx(self.run.words, python),
    )
    reads = ''.join(f'IFS= read -r {name} || exit 2\nexport {name}\n' for name in self.run.secrets)
    taken = TAKEN.format(run=self.name) if self.taken else ''
    return START.format(
      secrets=reads, folder=self.folder, script=shlex.quote(script), run=self.name, taken=taken, busy=BUSY
    )

  def follow(self, hosts: int) -> int:
    """Shows what the hosts say until all have ended; returns the code of the first that failed, 0 if none did."""
    if self.run.dry_run:
      self.runner.show(self.machine.ssh('WORKER', FOLLOW.format(folder=self.folder, line=1, run=self.name)))
      return 0
    codes: list[int] = []
    self._passed = 0
    self.pass_on()
    with concurrent.futures.ThreadPoolExecutor(hosts) as pool:
      followed = [pool.submit(self.follow_host, worker) for worker in range(hosts)]
      for ended in concurrent.futures.as_completed(followed):
        codes.append(ended.result())
        if codes[-1] and not any(codes[:-1]) and not self._passed:
          self._stop('TERM')
    self._passed = -1
    final = [code for code in codes if code and code != LOST and not command.restartable(code)]
    return next(iter([*final, *filter(None, codes)]), 0)

  def follow_host(self, worker: int) -> int:
    """Shows what a host says until lmx has ended there; returns its code, LOST if the machine went away."""
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
    raise InputError(f'host {worker} of {self.machine.name} is there, but no connection to it holds; try ssh by hand')

  def pass_on(self) -> None:
    """Passes on to lmx the signals that came and were not yet: the first lets it save, the second ends it."""
    with self._passing:
      while self.told and 0 <= self._passed < min(self.told.count, 2):
        self._stop(('TERM', 'KILL')[self._passed])
        self._passed += 1

  def _stop(self, signal: str) -> None:
    """Signals lmx on all hosts, of which it may have ended on some."""
    for _ in range(30):
      try:
        self.runner.read(self.machine.ssh('all', STOP.format(folder=self.folder, signal=signal)))
        return
      except command.Failed as error:
        if error.code != LOST or self.state() != 'READY':
          return
      time.sleep(self.poll)

  def _check(self) -> None:
    if self.told and self.told.count:
      raise Stopped

  def _sleep(self) -> None:
    (self.told or time).sleep(self.poll)


def wait(machine: Machine, run: command.Run, args: argparse.Namespace) -> int:
  """With --wait: runs to the end, or takes up the run that the record speaks of; returns the exit code of lmx."""
  with waiting.held(pathlib.Path(args.wait)) as record:
    known = record.known
    machine = dataclasses.replace(machine, name=known.get('name', machine.name))
    launch = Launch(machine, run, known.get('commit') or commit_of(command.Runner(), args.commit), args.poll)
    launch.taken, launch.runner.apart = bool(known), True
    with waiting.Told(lambda count: launch.pass_on()) as launch.told:
      if 'code' not in known:
        record.write(name=machine.name, commit=launch.commit)
        code = launch.to_end()
        again = code == LOST or launch.told.count and command.restartable(code)
        record.write(code=command.PREEMPTED if again else code)
    if args.delete and launch.describe():
      launch.runner.read(machine.delete())
    code = record.known['code']
    record.remove()
    return code


def say(text: str) -> None:
  """Tells how far it is, on standard error."""
  print(f'launch.tpu_vm: {text}', file=sys.stderr, flush=True)


def commit_of(runner: command.Runner, given: str) -> str:
  """The commit to bring: the one given, or the one that is checked out with nothing changed.

  Raises:
    InputError: what is here has changes that no commit has.
  """
  if not given and runner.read(['git', 'status', '--porcelain', '--untracked-files=no']):
    raise InputError('there are changes here that are in no commit: commit them, or leave them out with --commit=HEAD')
  return runner.read(['git', 'rev-parse', '--verify', f'{given or "HEAD"}^{{commit}}']).strip()


def main(argv: Sequence[str] | None = None) -> int:
  """Entry point; returns the exit code."""
  return command.guarded('tpu_vm', lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
  own, words = command.split(argv)
  args = _parser().parse_args(own)
  if not args.delete:
    command.needs_command(words)
  machine = Machine(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Machine)})
  run = command.of(args, words)
  runner = command.Runner(run.dry_run)
  code = 0
  if words:
    if not run.dry_run:
      command.path('gcloud')
      run.secret_values()
    if args.wait and not run.dry_run:
      return wait(machine, run, args)
    code = Launch(machine, run, commit_of(command.Runner(), args.commit), args.poll).to_end()
  if args.delete:
    runner.read(machine.delete())
  elif words and not run.dry_run:
    say(f'{machine.name} is kept, and costs what it costs; `{shlex.join(machine.delete())}` deletes it')
  return code


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog='python -m launch.tpu_vm', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--name', required=True, help='of the machine; one that is there is used')
  parser.add_argument('--zone', required=True, help="Google's zone, such as us-central1-a")
  parser.add_argument('--accelerator', required=True, help='such as v5litepod-16 or v6e-8')
  for name in ('project', 'version', 'service_account', 'network', 'subnetwork'):
    parser.add_argument(f'--{name}', default='', help='as in gcloud; its own choice without')
  parser.add_argument('--queued', action='store_true', help='ask by a queued resource, which waits for capacity')
  parser.add_argument('--spot', action='store_true', help='a machine that can be preempted')
  parser.add_argument('--reserved', action='store_true', help='a machine of a reservation')
  parser.add_argument('--internal', action='store_true', help='connect by internal addresses')
  parser.add_argument('--commit', default='', help='commit to run, the one checked out if not given')
  parser.add_argument('--delete', action='store_true', help='delete the machine when the run has ended')
  command.add_arguments(parser, poll=20.0)
  return parser


if __name__ == '__main__':
  sys.exit(main())
