"""TPU VMs of the Cloud TPU API: their gcloud commands, and how to get them ready. Imports no JAX."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any

from launch import accelerators, command
from launch.remote.job import Host, Launch
from lmx.errors import InputError

WAIT = ('CREATING', 'STARTING', 'RESTARTING', 'REPAIRING', 'STOPPING', 'DELETING', 'ABSENT')
GONE = ('PREEMPTED', 'TERMINATED', 'HIDDEN')
QUEUED = ('ACCEPTED', 'WAITING_FOR_RESOURCES', 'PROVISIONING', 'CREATING', 'DELETING', 'SUSPENDING')


@dataclasses.dataclass(frozen=True)
class Machine:
  """TPU VM, or several that train together (multislice).

  Attributes:
    name, zone, project: identity of the machine; project '' is gcloud's own.
    accelerator: type of TPU VM, such as 'v5litepod-16'.
    slices: number of TPU VMs; several are one queued resource.
    version: software version, '' for the default.
    queued: request a queued resource, which waits for capacity.
    spot: preemptible machine.
    reserved: machine of a reservation.
    internal: connect by internal addresses.
    service_account, network, subnetwork: as in gcloud, '' to leave out.
  """

  name: str
  zone: str
  accelerator: str
  slices: int = 1
  project: str = ''
  version: str = ''
  queued: bool = False
  spot: bool = False
  reserved: bool = False
  internal: bool = False
  service_account: str = ''
  network: str = ''
  subnetwork: str = ''
  launcher = 'tpu_vm'

  def __post_init__(self):
    if not re.fullmatch(r'[a-z]([a-z0-9-]{0,60}[a-z0-9])?', self.name):
      raise InputError(f'--name: got "{self.name}"; expected small letters, digits and -, a letter first')
    accelerators.find(self.accelerator, self.launcher)

  @property
  def nodes(self) -> list[str]:
    """Return the names of the TPU VMs; a queued resource numbers several."""
    return [self.name] if self.slices == 1 else [f'{self.name}-{number}' for number in range(self.slices)]

  @property
  def is_queued(self) -> bool:
    """Return whether a queued resource gives the machine."""
    return self.queued or self.slices > 1

  def gcloud(self, kind: str, verb: str, *more: str, about: Sequence[str] = ()) -> list[str]:
    """Return a command of `gcloud compute tpus` about this machine, or about `about`."""
    where = [f'--zone={self.zone}', *([f'--project={self.project}'] if self.project else []), '--quiet']
    return ['gcloud', 'compute', 'tpus', kind, verb, *(about or [self.name]), *where, *more]

  def create(self) -> list[str]:
    """Return the command that creates it."""
    version = self.version or accelerators.find(self.accelerator, self.launcher).runtime
    options = [f'--accelerator-type={self.accelerator}']
    options += [
      f'--{name.replace("_", "-")}={getattr(self, name)}'
      for name in ('service_account', 'network', 'subnetwork')
      if getattr(self, name)
    ]
    options += [f'--{name}' for name in ('spot', 'reserved') if getattr(self, name)]
    if not self.is_queued:
      return self.gcloud('tpu-vm', 'create', f'--version={version}', *options)
    nodes = [f'--node-id={self.name}']
    if self.slices > 1:
      nodes = [f'--node-count={self.slices}', f'--node-prefix={self.name}']
    return self.gcloud('queued-resources', 'create', *nodes, f'--runtime-version={version}', *options)

  def delete(self, runner: command.Runner) -> None:
    """Delete it; nothing happens if it does not exist."""
    words = ('queued-resources', 'delete', '--force') if self.is_queued else ('tpu-vm', 'delete')
    try:
      runner.read(self.gcloud(*words))
    except command.Failed as error:
      if not is_absent(error):
        raise

  def ssh(self, host: Host, text: str) -> list[str]:
    """Return the command that runs a shell script on one host, or on 'all'."""
    return self.gcloud('tpu-vm', 'ssh', *self._connection(host), f'--command={text}', about=[host.node])

  def send(self, host: Host, file: str) -> list[str]:
    """Return the command that copies a file to the home of one host, or of 'all'."""
    return self.gcloud('tpu-vm', 'scp', *self._connection(host), about=[file, f'{host.node}:'])

  def fetch(self, host: Host, path: str, file: str) -> list[str]:
    """Return the command that copies a file from the home of a host."""
    return self.gcloud('tpu-vm', 'scp', *self._connection(host), about=[f'{host.node}:{path}', file])

  def _connection(self, host: Host) -> list[str]:
    return [f'--worker={host.worker}', *(['--internal-ip'] if self.internal else [])]

  def grouped(self, hosts: Sequence[Host]) -> list[Host]:
    """Return one address for all hosts of each TPU VM."""
    return list({host.node: dataclasses.replace(host, worker='all') for host in hosts}.values())

  def environment(self, launch: Launch, hosts: Sequence[Host]) -> dict[str, str]:
    """Return the variables by which processes find one another: JAX asks the metadata server, also about slices."""
    del launch, hosts
    return {'LMX_COORDINATOR': 'auto'}

  def describe(self, runner: command.Runner, kind: str = 'tpu-vm', name: str = '') -> dict[str, Any]:
    """Return Google's description of a TPU VM or of the queued resource, {} without one."""
    try:
      text = runner.read(self.gcloud(kind, 'describe', '--format=json', about=[name or self.name]))
    except command.Failed as error:
      if is_absent(error):
        return {}
      raise
    return json.loads(text) if text else {}

  def is_up(self, runner: command.Runner) -> bool:
    """Return whether all TPU VMs are ready."""
    return all(self.describe(runner, name=node).get('state') == 'READY' for node in self.nodes)

  def wait_until_ready(self, launch: Launch) -> list[Host]:
    """Wait for the TPU VMs, create them if needed; return their hosts.

    Raises:
      InputError: a state is unknown, or one has another accelerator.
      command.Failed: Google refuses them.
    """
    while True:
      launch.check_signals()
      found = {node: self.describe(launch.runner, name=node) for node in self.nodes}
      states = {description.get('state', 'ABSENT') for description in found.values()}
      if states == {'READY'}:
        return self._hosts(found)
      if states == {'ABSENT'} and self.is_queued and self._is_waiting(launch):
        continue
      if states == {'ABSENT'}:
        launch.log(f'requesting {self.name}, {"a" if self.slices == 1 else self.slices} {self.accelerator}')
        launch.runner.read(self.create())
      elif states & {*GONE}:
        launch.log(f'{self.name} is {" and ".join(sorted(states))}: deleting it')
        self.delete(launch.runner)
      elif 'STOPPED' in states:
        for node in self.nodes:
          if found[node].get('state') == 'STOPPED':
            launch.runner.read(self.gcloud('tpu-vm', 'start', about=[node]))
      elif states <= {*WAIT, 'READY'}:
        launch.pause()
      else:
        raise InputError(
          f'{self.name} is {" and ".join(sorted(states))}; see `gcloud compute tpus tpu-vm describe`, or delete it'
        )
      if launch.run.dry_run:
        count = accelerators.find(self.accelerator, self.launcher).hosts
        return [Host(node, worker, number) for number, node in enumerate(self.nodes) for worker in range(count)]

  def _hosts(self, found: dict[str, dict[str, Any]]) -> list[Host]:
    """Return the hosts of TPU VMs by their descriptions.

    Raises:
      InputError: one has another accelerator.
    """
    hosts = []
    for number, (node, description) in enumerate(found.items()):
      accelerator = description.get('acceleratorType', '').rpartition('/')[2] or self.accelerator
      if accelerator != self.accelerator:
        raise InputError(
          f'--name: {node} exists with accelerator {accelerator}; give another --name, or --accelerator={accelerator}'
        )
      hosts += [Host(node, worker, number) for worker in range(len(description.get('networkEndpoints', [])) or 1)]
    return hosts

  def _is_waiting(self, launch: Launch) -> bool:
    """Return whether a queued resource will give the machine; a suspended one is deleted."""
    details = self.describe(launch.runner, 'queued-resources').get('state', {})
    state = details.get('state', 'ABSENT')
    if state in QUEUED or state == 'ACTIVE':
      launch.log(f'{self.name} in the queue: {state}')
      launch.pause()
      return True
    if state == 'FAILED':
      raise InputError(f'Google refused a {self.accelerator} in {self.zone}: {json.dumps(details)}')
    if state != 'ABSENT':  # SUSPENDED: it was preempted
      self.delete(launch.runner)
    return False


def is_absent(error: command.Failed) -> bool:
  """Return whether gcloud did not find what it was asked about."""
  return 'NOT_FOUND' in error.stderr or 'not found' in error.stderr
