"""JobSet of a training on Google Kubernetes Engine, and its creation by kubectl or xpk. Imports no JAX."""

from __future__ import annotations

import base64
import dataclasses
import re
import shlex
from typing import Any

from launch import accelerators, command, preflight
from launch.gke import jobsets, network
from lmx.errors import InputError

PORT = 8476  # of process 0, as JAX has it on TPUs
JOB = 'slice'  # name of the replicated job
NAME_LENGTH = 40  # of a JobSet, whose pods have longer names
XPK_JOB = 'slice-job'
# Exit codes of a pod to restart: it saved and exited, or was ended by SIGABRT (by JAX, if another pod is lost), SIGBUS,
# SIGKILL, SIGSEGV or SIGTERM.
RESTARTABLE = (command.PREEMPTED, 134, 135, 137, 139, 143)


@dataclasses.dataclass(frozen=True)
class Job:
  """Resources and options of a JobSet.

  Attributes:
    name: name of the JobSet.
    image: container image.
    accelerator: a name in `launch.accelerators`.
    slices: TPU slices that train together.
    nodes: number of GPU machines.
    queue: Kueue's LocalQueue, '' for none.
    priority: Kueue's priority class, '' for none.
    namespace: namespace of the cluster, '' for the current one.
    spot: use preemptible machines.
    grace: seconds between SIGTERM and SIGKILL.
    service_account: service account of the pods, '' for the default one.
    secrets_of: cluster Secret with the values of secrets.
    networks: the cluster's networks for NCCL, see `network.find`.
  """

  name: str
  image: str
  accelerator: str
  slices: int = 1
  nodes: int = 1
  queue: str = ''
  priority: str = ''
  namespace: str = ''
  spot: bool = False
  grace: int = 120
  service_account: str = ''
  secrets_of: str = 'lmx'
  networks: str = ''

  def __post_init__(self):
    for field in ('name', 'queue', 'priority', 'namespace', 'service_account', 'secrets_of'):
      value = getattr(self, field)
      if value and not re.fullmatch(r'[a-z0-9]([a-z0-9.-]*[a-z0-9])?', value):
        raise InputError(f'--{field}: got "{value}"; Kubernetes expects small letters, digits and - inside')
    if not self.name or len(self.name) > NAME_LENGTH or '.' in self.name:
      raise InputError(f'--name: got "{self.name}"; expected 1 to {NAME_LENGTH} letters, digits and -')
    if not re.fullmatch(r'[A-Za-z0-9_./:@-]+', self.image):
      raise InputError(f'--image: got "{self.image}"; expected the name of an image')
    for field, least in {'slices': 1, 'nodes': 1, 'grace': 0}.items():
      if getattr(self, field) < least:
        raise InputError(f'--{field}: got {getattr(self, field)}; expected at least {least}')
    if self.slices > 1 and self.machine.kind != 'tpu':
      raise InputError('--slices is for TPUs; with GPUs give --nodes')
    if self.nodes > 1 and self.machine.kind == 'tpu':
      raise InputError(f'--nodes is for GPUs; {self.accelerator} has {self.machine.hosts} machines, times --slices')
    if self.networks and self.machine.kind == 'tpu':
      raise InputError(f'--networks: got {self.networks} with {self.accelerator}; expected GPUs; omit it')
    _ = self.network

  @property
  def network(self) -> network.Network | None:
    """Return NCCL's settings of machines with GPUs, None without."""
    return network.find(self.accelerator, self.nodes, self.networks)

  @property
  def machine(self) -> accelerators.Slice:
    """Return the slice of the accelerator's name."""
    return accelerators.find(self.accelerator, 'gke')

  @property
  def pods(self) -> int:
    """Return the pods of one slice, or the machines with GPUs."""
    return self.machine.hosts if self.machine.kind == 'tpu' else self.nodes


def shell(job: Job, run: command.Run, replicated: str = JOB) -> str:
  """Return the shell script of a container: the preflight, then the command."""
  lines = ['set -e', *(network.script(job.network) if job.network else []), *command.export_lines(run.remote_env())]
  if job.machine.kind == 'tpu':
    lines += ['export LMX_COORDINATOR=auto'] if job.pods * job.slices > 1 else []
  elif job.pods > 1:
    lines += [
      f'export LMX_COORDINATOR={job.name}-{replicated}-0-0.{job.name}:{PORT} LMX_NUM_PROCESSES={job.pods}',
      'export LMX_PROCESS_ID="$JOB_COMPLETION_INDEX"',
    ]
  if run.preflight:
    # A pod may wait long for its machine and its image after the first one runs.
    check = preflight.words(
      run.words, processes=job.pods * job.slices, devices=job.machine.devices, seconds=preflight.SECONDS * 10
    )
    lines += [command.lmx_command(check)] if check else []
  return '\n'.join([*lines, f'exec {command.lmx_command(run.words)}'])


def escape(text: str) -> str:
  """Escape text for Kubernetes, which replaces $(NAME) in commands and values."""
  return text.replace('$', '$$')


def kueue_labels(queue: str, priority: str) -> dict[str, str]:
  """Return Kueue's labels of a job; '' is left out."""
  labels = {'kueue.x-k8s.io/queue-name': queue, 'kueue.x-k8s.io/priority-class': priority}
  return {name: value for name, value in labels.items() if value}


def manifest(job: Job, run: command.Run) -> dict[str, Any]:
  """Return the JobSet."""
  metadata: dict[str, Any] = {'name': job.name}
  if job.namespace:
    metadata['namespace'] = job.namespace
  metadata['labels'] = {'app.kubernetes.io/name': 'lmx', **kueue_labels(job.queue, job.priority)}
  if job.machine.kind == 'tpu':  # a slice is its own pool
    metadata['annotations'] = {'alpha.jobset.sigs.k8s.io/exclusive-topology': 'cloud.google.com/gke-nodepool'}
  spec: dict[str, Any] = {
    'parallelism': job.pods,
    'completions': job.pods,
    'completionMode': 'Indexed',
    'backoffLimit': 0,  # all pods restart, or none
    'podFailurePolicy': {
      'rules': [
        {'action': 'Count', 'onPodConditions': [{'type': 'DisruptionTarget', 'status': 'True'}]},
        {'action': 'FailJob', 'onExitCodes': {'containerName': 'lmx', 'operator': 'NotIn', 'values': [*RESTARTABLE]}},
      ]
    },
    'template': {'spec': _pod(job, run)},
  }
  if job.network:
    spec['template'] = {'metadata': {'annotations': network.pod_annotations(job.network)}, **spec['template']}
  return {
    'apiVersion': 'jobset.x-k8s.io/v1alpha2',
    'kind': 'JobSet',
    'metadata': metadata,
    'spec': {
      'failurePolicy': {
        'maxRestarts': run.restarts,
        # A code that no restart fixes ends the JobSet.
        'rules': [{'name': 'error', 'action': 'FailJobSet', 'onJobFailureReasons': ['PodFailurePolicy']}],
      },
      'replicatedJobs': [{'name': JOB, 'replicas': job.slices, 'template': {'spec': spec}}],
    },
  }


def _pod(job: Job, run: command.Run) -> dict[str, Any]:
  machine, tpu = job.machine, job.machine.kind == 'tpu'
  resource = 'google.com/tpu' if tpu else 'nvidia.com/gpu'
  selector = {'cloud.google.com/gke-tpu-accelerator' if tpu else 'cloud.google.com/gke-accelerator': machine.label}
  tolerations = [{'key': resource, 'operator': 'Exists', 'effect': 'NoSchedule'}]
  if tpu:
    selector['cloud.google.com/gke-tpu-topology'] = machine.topology
  if job.spot:
    selector['cloud.google.com/gke-spot'] = 'true'
    tolerations.append(
      {'key': 'cloud.google.com/gke-spot', 'operator': 'Equal', 'value': 'true', 'effect': 'NoSchedule'}
    )
  container = {
    'name': 'lmx',
    'image': job.image,
    'command': ['bash', '-c', escape(shell(job, run))],
    **({'env': _secrets(job, run)} if run.secrets else {}),
    'ports': [{'containerPort': PORT}, *([{'containerPort': 8471}, {'containerPort': 8080}] if tpu else [])],
    'resources': {'limits': {resource: machine.chips}},
    'volumeMounts': [{'name': 'shm', 'mountPath': '/dev/shm'}],
  }
  pod = {
    'restartPolicy': 'Never',
    'terminationGracePeriodSeconds': job.grace,
    **({'serviceAccountName': job.service_account} if job.service_account else {}),
    **({'hostNetwork': True, 'dnsPolicy': 'ClusterFirstWithHostNet'} if tpu else {}),
    'nodeSelector': selector,
    'tolerations': tolerations,
    'containers': [container],
    'volumes': [{'name': 'shm', 'emptyDir': {'medium': 'Memory'}}],  # NCCL and libtpu want more than 64 MiB
  }
  if job.network:
    network.add_to(pod, job.network)
  return pod


def _secrets(job: Job, run: command.Run) -> list[dict[str, Any]]:
  return [{'name': name, 'valueFrom': {'secretKeyRef': {'name': job.secrets_of, 'key': name}}} for name in run.secrets]


def manifest_yaml(job: Job, run: command.Run) -> str:
  """Return the manifest as YAML."""
  import yaml

  class Dumper(yaml.SafeDumper):
    """Dumper that writes scripts as literal blocks if YAML allows."""

  def scalar(dumper, value):
    return dumper.represent_scalar('tag:yaml.org,2002:str', value, style='|' if '\n' in value else None)

  Dumper.add_representer(str, scalar)
  return yaml.dump(manifest(job, run), Dumper=Dumper, sort_keys=False, width=10**6)


def xpk_command(job: Job, run: command.Run, cluster: str) -> list[str]:
  """Return the command of xpk, which creates the JobSet and gives Kueue its own queue.

  Raises:
    InputError: xpk has no such option.
  """
  if run.secrets:
    raise InputError('xpk takes secrets only with their values, on its command line or in a file; use kubectl')
  for name in ('priority', 'namespace', 'service_account', 'spot', 'networks'):
    if getattr(job, name) not in ('', False, 'none'):
      raise InputError(f'--{name} is not passed on to xpk; omit it, or use kubectl')
  if not cluster:
    raise InputError('--through=xpk needs --cluster')
  script = shell(job, run, XPK_JOB)
  # xpk puts the command into a line of its YAML, in which Kubernetes also replaces $(NAME).
  script = f'bash <(echo {base64.b64encode(script.encode()).decode()} | base64 -d)'
  device = [f'--tpu-type={job.accelerator}', f'--num-slices={job.slices}']
  if job.machine.kind == 'gpu':
    device = [f'--device-type={job.accelerator}', f'--num-nodes={job.nodes}']
  return [
    'xpk',
    'workload',
    'create',
    f'--workload={job.name}',
    f'--cluster={cluster}',
    *device,
    f'--docker-image={job.image}',
    f'--command={script}',
    f'--max-restarts={run.restarts}',
    f'--restart-on-exit-codes={command.PREEMPTED}',
    f'--termination-grace-period-seconds={job.grace}',
  ]


def create(job: Job, run: command.Run, through: str, cluster: str, runner: command.Runner) -> None:
  """Create the JobSet, in place of an ended one of its name; in a dry run print it.

  Raises:
    InputError: a JobSet of its name has not ended, or an option has no effect.
    command.Failed: the cluster refuses it.
  """
  if through == 'xpk':
    code = runner.follow(xpk_command(job, run, cluster))
    if code:
      raise command.Failed(['xpk'], code, 'see its output')
    return
  if cluster:
    raise InputError('--cluster is for --through=xpk; kubectl uses the current cluster; omit it')
  text = manifest_yaml(job, run)
  if run.dry_run:
    print(text, end='')
    return
  words = ['kubectl', 'create', '-f', '-']
  try:
    runner.read(words, text)
  except command.Failed as error:
    if 'AlreadyExists' not in error.stderr:
      raise
    _delete_ended(job, runner)
    runner.read(words, text)


def _delete_ended(job: Job, runner: command.Runner) -> None:
  """Delete the JobSet of the job's name and wait until it is gone. Raises InputError if it has not ended."""
  found, delete = jobsets.get(runner, job.namespace, 'jobset', job.name), jobsets.delete(job.namespace, job.name)
  if found and not jobsets.end_states(found) and 'deletionTimestamp' not in found['metadata']:
    raise InputError(
      f'--name: got {job.name}; a JobSet of this name already exists and has not ended; expected another name, or end '
      f'that one first: {shlex.join(delete)}'
    )
  command.write(f'launch.gke: deletes the earlier JobSet {job.name}, which has ended')
  runner.read(delete)


def start(job: Job, run: command.Run, through: str, cluster: str) -> None:
  """Create the JobSet and print how to follow and delete it; in a dry run print it."""
  create(job, run, through, cluster, command.Runner(run.dry_run))
  if through == 'xpk' or run.dry_run:
    return
  where = jobsets.in_namespace(job.namespace)
  label = f'jobset.sigs.k8s.io/jobset-name={job.name},batch.kubernetes.io/job-completion-index=0'
  print(f'created {job.name}; commands to follow and to delete it:')
  print('  ' + shlex.join(['kubectl', 'logs', *where, '--follow', '--selector', label]))
  print('  ' + shlex.join(['kubectl', 'delete', *where, 'jobset', job.name]))
