"""TPU slices as managed instance groups of Compute Engine: their gcloud commands, and how to get them ready.

Sources (2026): docs.cloud.google.com/compute/docs/tpus/create-tpu-mig-multi-host-slice and
/tpu/docs/{spot-compute,consume-reservation-compute} for the commands,
/compute/docs/instance-groups/bulk-create-instances-in-mig for the bulk mode,
/compute/docs/instances/about-flex-start-vms for the limit of flex-start. As in github.com/gke-labs/tpu-operator, a
group with an accelerator topology is in bulk mode. Compute Engine refuses resize requests for TPUs: with flex-start the
group itself waits for all instances. Imports no JAX.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from launch import accelerators, command
from launch.remote.job import Host, Launch
from lmx.errors import InputError

IMAGES = 'ubuntu-os-accelerator-images'  # project of Google's images
# Machine type without the number of chips -> image family, type of the boot disk ('' for the default).
SOFTWARE = {
  'ct5p-hightpu': ('ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e', ''),
  'ct6e-standard': ('ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e', ''),
  'tpu7x-standard': ('ubuntu-accel-2404-amd64-tpu-tpu7x', 'hyperdisk-balanced'),
}
_DURATION = re.compile('([0-9]{1,9})([dhms])')  # a part of it
_SECONDS = {'d': 86_400, 'h': 3600, 'm': 60, 's': 1}
_LONGEST = 7 * 86_400  # seconds of --flex_start
GONE = ('STOPPING', 'STOPPED', 'SUSPENDING', 'SUSPENDED', 'TERMINATED')
IDLE = ('NONE', 'VERIFYING')  # actions of a group that change nothing
PATIENCE = 5  # looks at a group that creates nothing before it is taken for lost
METADATA = (
  "curl -sf -H 'Metadata-Flavor: Google' "
  'http://metadata.google.internal/computeMetadata/v1/instance/attributes/worker-network-endpoints'
)


@dataclasses.dataclass(frozen=True)
class Machine:
  """TPU slice of Compute Engine instances, or several that train together.

  Attributes:
    name, zone, project: identity of the slice.
    accelerator: a name in `launch.accelerators`, such as 'tpu7x-128'.
    slices: number of slices, each a managed instance group.
    spot: machines that can be preempted.
    flex_start: wait for capacity, and rent it for so long ('7d'); '' for other models.
    reservation: name of a reservation, '' for none.
    disk: size of the boot disk.
    image: image family, '' for Google's of the generation.
    internal: instances without external addresses; connect by internal ones.
    service_account, network, subnetwork: as in gcloud, '' to leave out.
  """

  name: str
  zone: str
  accelerator: str
  project: str
  slices: int = 1
  spot: bool = False
  flex_start: str = ''
  reservation: str = ''
  disk: str = '200GB'
  image: str = ''
  internal: bool = False
  service_account: str = ''
  network: str = ''
  subnetwork: str = ''
  launcher = 'gce'

  def __post_init__(self):
    if not re.fullmatch(r'[a-z]([a-z0-9-]{0,45}[a-z0-9])?', self.name):
      raise InputError(f'--name: got "{self.name}"; expected up to 47 small letters, digits and -, a letter first')
    if not re.fullmatch(r'[a-z]+-[a-z0-9]+-[a-z0-9]+', self.zone):
      raise InputError(f'--zone: got "{self.zone}"; expected a zone of Google, such as us-central1-c')
    rented = seconds('--flex_start', self.flex_start)
    if self.flex_start and not rented:
      raise InputError(f'--flex_start: got "{self.flex_start}"; expected more than 0 seconds, such as 7d')
    if rented > _LONGEST:
      raise InputError(f'--flex_start: got "{self.flex_start}"; expected at most 7d, after which the machines end')
    models = [f'--{name}' for name in ('spot', 'flex_start', 'reservation') if getattr(self, name)]
    if len(models) > 1:
      raise InputError(f'{" and ".join(models)}: got {len(models)} ways to get machines; expected one')
    accelerators.find(self.accelerator, self.launcher)

  @property
  def slice(self) -> accelerators.Slice:
    """Return hosts and machine type of a slice."""
    return accelerators.find(self.accelerator, self.launcher)

  @property
  def region(self) -> str:
    """Return the region of the zone."""
    return self.zone.rpartition('-')[0]

  @property
  def groups(self) -> list[str]:
    """Return the names of the managed instance groups."""
    return [self.name] if self.slices == 1 else [f'{self.name}-{number}' for number in range(self.slices)]

  @property
  def template(self) -> str:
    """Return the name of the instance template, which differs with its options."""
    return f'{self.name}-{hashlib.sha256(" ".join(self._template_options()).encode()).hexdigest()[:8]}'

  @property
  def policy(self) -> str:
    """Return the name of the workload policy, '' if a slice has one host."""
    return f'{self.name}-{self.slice.topology}' if self.slice.hosts > 1 else ''

  def gcloud(self, *words: str, where: str = 'zone') -> list[str]:
    """Return a command of `gcloud compute` in the zone, in the region, or ('') in the project."""
    place = [f'--{where}={getattr(self, where)}'] if where else []
    return ['gcloud', 'compute', *words, *place, f'--project={self.project}', '--quiet']

  def _template_options(self) -> list[str]:
    family, disk = SOFTWARE[self.slice.machine_type.rpartition('-')[0]]
    options = [
      f'--machine-type={self.slice.machine_type}',
      f'--image-family={self.image or family}',
      f'--image-project={IMAGES}',
      f'--boot-disk-size={self.disk}',
      '--maintenance-policy=TERMINATE',  # TPUs cannot migrate
      '--scopes=cloud-platform',
    ]
    options += [f'--boot-disk-type={disk}'] * bool(disk)
    if self.spot:
      options += ['--provisioning-model=SPOT', '--instance-termination-action=STOP']
    if self.flex_start:
      options += ['--provisioning-model=FLEX_START', f'--max-run-duration={self.flex_start}']
      options += ['--instance-termination-action=DELETE', '--reservation-affinity=none']
    if self.reservation:
      options += ['--provisioning-model=RESERVATION_BOUND', '--instance-termination-action=DELETE']
      options += ['--reservation-affinity=specific', f'--reservation={self.reservation}']
    options += [f'--network={self.network}'] * bool(self.network)
    options += [f'--subnet={self.subnetwork}', f'--region={self.region}'] if self.subnetwork else []
    options += [f'--service-account={self.service_account}'] * bool(self.service_account)
    return options + ['--no-address'] * self.internal

  def prepare(self) -> list[list[str]]:
    """Return the commands that create the workload policy and the instance template."""
    policy = self.gcloud(
      'resource-policies',
      'create',
      'workload-policy',
      self.policy,
      '--type=HIGH_THROUGHPUT',
      f'--accelerator-topology={self.slice.topology}',
      where='region',
    )
    template = self.gcloud('instance-templates', 'create', self.template, *self._template_options(), where='')
    return [policy, template] if self.policy else [template]

  def create(self, group: str) -> list[str]:
    """Return the command that creates a managed instance group."""
    options = [f'--template={self.template}', f'--size={self.slice.hosts}', '--default-action-on-vm-failure=do-nothing']
    if self.policy:
      options += [f'--workload-policy=projects/{self.project}/regions/{self.region}/resourcePolicies/{self.policy}']
    if self.policy or self.flex_start:
      options += ['--target-size-policy-mode=bulk']  # all instances at once
    return self.gcloud('instance-groups', 'managed', 'create', group, *options)

  def delete(self, runner: command.Runner) -> None:
    """Delete the groups, the template and the policy; those that do not exist are skipped."""
    self._delete_groups(runner)
    _read(runner, self.gcloud('instance-templates', 'delete', self.template, where=''), 'was not found')
    if self.policy:
      _read(runner, self.gcloud('resource-policies', 'delete', self.policy, where='region'), 'was not found')

  def _delete_groups(self, runner: command.Runner) -> None:
    for group in self.groups:
      _read(runner, self.gcloud('instance-groups', 'managed', 'delete', group), 'was not found')

  def ssh(self, host: Host, text: str) -> list[str]:
    """Return the command that runs a shell script on a host."""
    return self.gcloud('ssh', host.node, *self._connection(), f'--command={text}')

  def send(self, host: Host, file: str) -> list[str]:
    """Return the command that copies a file to the home of a host."""
    return self.gcloud('scp', file, f'{host.node}:', *self._connection())

  def fetch(self, host: Host, path: str, file: str) -> list[str]:
    """Return the command that copies a file from the home of a host."""
    return self.gcloud('scp', f'{host.node}:{path}', file, *self._connection())

  def _connection(self) -> list[str]:
    return ['--internal-ip'] * self.internal

  def grouped(self, hosts: Sequence[Host]) -> list[Host]:
    """Return all hosts: each needs its own command."""
    return list(hosts)

  def environment(self, launch: Launch, hosts: Sequence[Host]) -> dict[str, str]:
    """Return the variables by which processes find one another: JAX asks the metadata server, but not about slices."""
    found = {'LMX_COORDINATOR': 'auto'}
    if self.slices > 1:
      # The host of process 0. Endpoints are in the order of the workers, as names or name:id:address.
      endpoints = launch.runner.read(self.ssh(hosts[0], METADATA)) or 'HOST'
      address = endpoints.strip().partition(',')[0].rpartition(':')[2]
      found |= {'MEGASCALE_COORDINATOR_ADDRESS': address, 'MEGASCALE_NUM_SLICES': str(self.slices)}
      found |= {'MEGASCALE_SLICE_ID': '{slice}'}
    return found

  def _instances(self, runner: command.Runner, group: str) -> list[dict[str, Any]] | None:
    """Return Google's list of the instances of a group, None without the group."""
    argv = self.gcloud('instance-groups', 'managed', 'list-instances', group, '--format=json')
    text = _read(runner, argv, 'was not found')
    return None if text is None else json.loads(text or 'null')

  def is_up(self, runner: command.Runner) -> bool:
    """Return whether all instances run."""
    return all(self._are_ready(self._instances(runner, group)) for group in self.groups)

  def _are_ready(self, instances: Sequence[dict[str, Any]] | None) -> bool:
    return len(instances or []) == self.slice.hosts and all(_state(each) == 'RUNNING' for each in instances or [])

  def wait_until_ready(self, launch: Launch) -> list[Host]:
    """Wait for the instances, create the groups if needed; return the hosts.

    Raises:
      InputError: a group exists with other options.
      command.Failed: Google refuses it.
    """
    idle = 0
    while True:
      launch.check_signals()
      found = {group: self._instances(launch.runner, group) for group in self.groups}
      if launch.run.dry_run or any(instances is None for instances in found.values()):
        self._create(launch, [group for group, instances in found.items() if instances is None])
        if launch.run.dry_run:
          hosts = range(self.slice.hosts)
          return [Host(f'{group}-INSTANCE', worker, n) for n, group in enumerate(self.groups) for worker in hosts]
        continue
      self._check_template(found)
      if all(self._are_ready(instances) for instances in found.values()):
        names = {group: sorted(map(_name, instances or [])) for group, instances in found.items()}
        return [Host(node, 0, number) for number, group in enumerate(self.groups) for node in names[group]]
      states = collections.Counter(_state(each) for instances in found.values() for each in instances or [])
      idle = 0 if any(state not in ('RUNNING', *GONE) for state in states) else idle + 1
      if states.keys() & {*GONE} or idle > PATIENCE:
        launch.log(f'{self.name} has {_summary(states)}: deleting it')
        self._delete_groups(launch.runner)
        continue
      launch.log(f'{self.name} waits for {self.slice.hosts * self.slices} instances: {_summary(states)}{_error(found)}')
      launch.pause()

  def _create(self, launch: Launch, groups: Sequence[str]) -> None:
    """Create the policy and the template, if they do not exist, and groups."""
    launch.log(f'requesting {self.name}, {self.slices} {self.accelerator} of {self.slice.machine_type}')
    for argv in self.prepare():
      _read(launch.runner, argv, 'already exists')
    for group in groups:
      launch.runner.read(self.create(group))

  def _check_template(self, found: dict[str, Any]) -> None:
    for group, instances in found.items():
      for each in instances:
        template = each.get('version', {}).get('instanceTemplate', '').rpartition('/')[2]
        if template and template != self.template:
          raise InputError(
            f'--name: {group} exists with other options (its template is {template}); give those, another --name, or '
            'delete it'
          )


def seconds(field: str, text: str) -> int:
  """Return the seconds of a duration such as 7d or 12h30m. Raises InputError for another text."""
  parts = _DURATION.findall(text)
  if ''.join(map(''.join, parts)) != text:
    raise InputError(f'{field}: got "{text}"; expected a duration, such as 7d or 12h30m')
  return sum(int(number) * _SECONDS[unit] for number, unit in parts)


def _read(runner: command.Runner, argv: Sequence[str], ignored: str) -> str | None:
  """Return the output of a command; None if its error has the text `ignored`."""
  try:
    return runner.read(argv)
  except command.Failed as error:
    if ignored not in error.stderr:
      raise
    return None


def _name(instance: dict[str, Any]) -> str:
  return instance['instance'].rpartition('/')[2]


def _state(instance: dict[str, Any]) -> str:
  """Return the status of an instance, or the action of its group that changes it."""
  action = instance.get('currentAction', 'NONE')
  return instance.get('instanceStatus', 'ABSENT') if action in IDLE else action


def _summary(states: collections.Counter[str]) -> str:
  return ', '.join(f'{count} {state}' for state, count in sorted(states.items())) or 'no instances'


def _error(found: dict[str, Any]) -> str:
  """Return the last error of Compute Engine, '' without one."""
  errors = [
    error['message']
    for instances in found.values()
    for each in instances
    for error in each.get('lastAttempt', {}).get('errors', {}).get('errors', [])
  ]
  return f' ({errors[-1]})' if errors else ''
