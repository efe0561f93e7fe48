"""Trains on a Cloud TPU VM: makes or takes up the machine, brings the code, starts all hosts, follows, goes on.

  python -m launch.tpu_vm --name=NAME --zone=ZONE --accelerator=v5litepod-16 --delete -- train --config=... --workdir=gs://...

The code is that of the commit that is checked out here. lmx runs apart from the connection: when the launcher is ended,
training goes on, and the same command takes up following it. When the machine is preempted or lmx leaves with code 75,
all begins again on a new one, up to --restarts times. With --delete the machine is deleted when the run has ended; with
--delete and no command, at once. Secrets go through the connection's standard input. Imports no JAX.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import pathlib
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from launch import accelerators, command, preflight
from lmx.errors import InputError

LOST = 255  # the connection broke, as ssh says it; no code of lmx
WAIT = ('CREATING', 'STARTING', 'RESTARTING', 'REPAIRING', 'STOPPING', 'DELETING')
GONE = ('PREEMPTED', 'TERMINATED', 'HIDDEN')
QUEUED = ('ACCEPTED', 'WAITING_FOR_RESOURCES', 'PROVISIONING', 'CREATING', 'DELETING', 'SUSPENDING')
AT_ONCE = 32  # connections

INSTALL = r"""
set -e
cd "$HOME"
test -e {folder}/.installed && exit 0
tar xzf {folder}.tar.gz
python="$(command -v python3.13 || command -v python3.12 || command -v python3.11 || true)"
if [ -z "$python" ]; then
  sudo apt-get update -qq
  sudo apt-get install -y -qq python3.11 python3.11-venv
  python=python3.11
fi
"$python" -m venv {folder}/.venv
cd {folder}
.venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tpu,gcs]'
touch .installed
""".strip()

START = r"""
{secrets}cd "$HOME/{folder}" || exit 2
if [ -e .run/pid ] && grep -qs lmx.cli.main "/proc/$(cat .run/pid)/cmdline"; then exit 0; fi
mkdir -p .run
rm -f .run/code
setsid nohup bash -c {script} > .run/log 2>&1 < /dev/null &
echo "$!" > .run/pid
""".strip()

SCRIPT = r"""
trap : TERM
{exports}{check}{command}
code=$?
echo "$code" > .run/part && mv .run/part .run/code
""".strip()

# Lines come with their number, so that none is shown twice when the connection is made again.
FOLLOW = r"""
cd "$HOME/{folder}/.run" || exit 2
pid="$(cat pid)"
tail -n +{line} --pid="$pid" -f log | awk -v n={line} '{{ print n++ ":" $0; fflush() }}'
if [ -e code ]; then exit "$(cat code)"; fi
exit 137
""".strip()

STOP = 'cd "$HOME/{folder}/.run" && kill -TERM -- "-$(cat pid)"'


@dataclasses.dataclass(frozen=True)
class Machine:
  """A TPU VM.

  Attributes:
    name, zone, project: which; the project may be gcloud's own.
    accelerator: a type of TPU VM, such as 'v5litepod-16'.
    version: of its software, '' for the usual one.
    queued: ask by a queued resource, which waits for capacity.
    spot: one that can be preempted.
    reserved: of a reservation.
    internal: connect by internal addresses.
    service_account, network, subnetwork: as in gcloud, '' to leave out.
  """

  name: str
  zone: str
  accelerator: str
  project: str = ''
  version: str = ''
  queued: bool = False
  spot: bool = False
  reserved: bool = False
  internal: bool = False
  service_account: str = ''
  network: str = ''
  subnetwork: str = ''

  def __post_init__(self):
    if not re.fullmatch(r'[a-z]([a-z0-9-]{0,60}[a-z0-9])?', self.name):
      raise InputError(f'--name is "{self.name}"; it must be small letters, digits and -, a letter first')
    accelerators.find(self.accelerator, pool=False)

  def gcloud(self, kind: str, verb: str, *more: str, about: str = '') -> list[str]:
    """A command of `gcloud compute tpus` about this machine, or what `about` names."""
    where = [f'--zone={self.zone}', *([f'--project={self.project}'] if self.project else []), '--quiet']
    return ['gcloud', 'compute', 'tpus', kind, verb, *([about] if about else [self.name]), *where, *more]

  def create(self) -> list[str]:
    """The command that makes it."""
    version = self.version or accelerators.find(self.accelerator, pool=False).runtime
    options = [f'--accelerator-type={self.accelerator}']
    options += [f'--{name.replace("_", "-")}={getattr(self, name)}'
                for name in ('service_account', 'network', 'subnetwork') if getattr(self, name)]  # fmt: skip
    options += [f'--{name}' for name in ('spot', 'reserved') if getattr(self, name)]
    if self.queued:
      return self.gcloud('queued-resources', 'create', f'--node-id={self.name}', f'--runtime-version={version}',
                         *options)  # fmt: skip
    return self.gcloud('tpu-vm', 'create', f'--version={version}', *options)

  def delete(self) -> list[str]:
    """The command that deletes it."""
    if self.queued:
      return self.gcloud('queued-resources', 'delete', '--force')
    return self.gcloud('tpu-vm', 'delete')

  def ssh(self, worker: int | str, text: str) -> list[str]:
    """The command that runs a shell's text on one host, or on 'all'."""
    inside = ['--internal-ip'] if self.internal else []
    return self.gcloud('tpu-vm', 'ssh', f'--worker={worker}', *inside, f'--command={text}')

  def scp(self, file: str) -> list[str]:
    """The command that copies a file to the home of all hosts."""
    inside = ['--internal-ip'] if self.internal else []
    base = self.gcloud('tpu-vm', 'scp', '--worker=all', *inside, about=file)
    return [*base[: base.index(file) + 1], f'{self.name}:', *base[base.index(file) + 1 :]]


class Launch:
  """A run on a machine, from making it to its end."""

  def __init__(self, machine: Machine, run: command.Run, commit: str, poll: float = 20.0):
    self.machine, self.run, self.commit, self.poll = machine, run, commit, poll
    self.runner = command.Runner(run.dry_run)
    self.folder = f'lmx-{commit[:12]}'
    self.say = (lambda text: None) if run.dry_run else say

  def to_end(self) -> int:
    """Begins, follows and begins again; returns the exit code of lmx."""
    code = LOST
    for left in range(self.run.restarts, -1, -1):
      code = self.once()
      if not left or not (code == LOST or command.restartable(code)):
        return code
      why = 'the machine is gone' if code == LOST else f'lmx ended with {code}'
      self.say(f'{why}; starting again ({left} left)')
    return code

  def once(self) -> int:
    """From a machine, new or found, to the end of the run on it; LOST if the machine went away."""
    hosts = self.ready()
    try:
      self.bring()
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
        time.sleep(self.poll)
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
      time.sleep(self.poll)
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
    # One connection a host: several in one call would share its standard input.
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
      list(pool.map(lambda worker: self.runner.read(self.machine.ssh(worker, text), values, about), range(hosts)))

  def start_text(self, hosts: int) -> str:
    """What the shell of each host runs to begin."""
    env = {**({'LMX_COORDINATOR': 'auto'} if hosts > 1 else {}), **self.run.env}
    check: tuple[str, ...] = ()
    if self.run.preflight:
      devices = accelerators.find(self.machine.accelerator, pool=False).devices
      check = preflight.words(self.run.words, processes=hosts, devices=devices)
    lines = ''.join(f'{line}\n' for line in command.exports(env))
    python = '.venv/bin/python'
    script = SCRIPT.format(
      exports=lines, check=f'{command.lmx(check, python)} && ' if check else '',
      command=command.lmx(self.run.words, python),
    )  # fmt: skip
    reads = ''.join(f'IFS= read -r {name} || exit 2\nexport {name}\n' for name in self.run.secrets)
    return START.format(secrets=reads, folder=self.folder, script=shlex.quote(script))

  def follow(self, hosts: int) -> int:
    """Shows what the hosts say until all have ended; returns the code of the first that failed, 0 if none did."""
    if self.run.dry_run:
      self.runner.show(self.machine.ssh('WORKER', FOLLOW.format(folder=self.folder, line=1)))
      return 0
    codes: list[int] = []
    with concurrent.futures.ThreadPoolExecutor(hosts) as pool:
      waiting = [pool.submit(self.follow_host, worker) for worker in range(hosts)]
      for ended in concurrent.futures.as_completed(waiting):
        codes.append(ended.result())
        if codes[-1] and not any(codes[:-1]):
          self._stop()
    final = [code for code in codes if code and code != LOST and not command.restartable(code)]
    return next(iter([*final, *filter(None, codes)]), 0)

  def follow_host(self, worker: int) -> int:
    """Shows what a host says until lmx has ended there; returns its code, LOST if the machine went away."""
    shown, tries = 0, 0

    def show(line: str) -> None:
      nonlocal shown, tries
      number, _, text = line.partition(':')
      if number.isdigit() and int(number) > shown:
        shown, tries = int(number), 0
        command.write(f'[{worker}] {text}' if worker else text)

    while tries < 30:
      code = self.runner.follow(self.machine.ssh(worker, FOLLOW.format(folder=self.folder, line=shown + 1)), show)
      if code != LOST:
        return code
      if self.state() != 'READY':
        return LOST
      tries += 1
      time.sleep(self.poll)
    raise InputError(f'host {worker} of {self.machine.name} is there, but no connection to it holds; try ssh by hand')

  def _stop(self) -> None:
    """Ends the others where one has failed: they would wait for it."""
    try:
      self.runner.read(self.machine.ssh('all', STOP.format(folder=self.folder)))
    except command.Failed:
      return  # some have ended already, or the machine is gone


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
  parser.add_argument('--poll', type=float, default=20.0, help='seconds between two looks at the machine')
  parser.add_argument('--delete', action='store_true', help='delete the machine when the run has ended')
  command.add_arguments(parser)
  return parser


if __name__ == '__main__':
  sys.exit(main())
