"""Trains on Google Kubernetes Engine: a JobSet with Kueue's labels, by `kubectl`, or the same by `xpk`.

  python -m launch.gke --name=gpt2 --image=IMAGE --accelerator=v6e-16 --slices=2 --queue=QUEUE -- train --config=... --workdir=gs://...
  python -m launch.gke --name=gpt2 --image=IMAGE --accelerator=h100-80gb-8 --nodes=4 --queue=QUEUE -- train ...

IMAGE holds lmx, with the project as its directory; the Dockerfile of this repository builds one. The cluster has JobSet
and Kueue. A pod that leaves with code 75 or by a signal, or is preempted, has all begun again, up to --restarts times;
after another code it stays ended. A secret is the entry of its name in the cluster's Secret --secrets_of:

  kubectl create secret generic lmx --from-env-file=<(printenv | grep ^WANDB_API_KEY=)

With --wait=FILE the launcher waits for the end (launch/waiting.py) and deletes the JobSet. --dry_run prints the
manifest, with --through=xpk the command line. Imports no JAX.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from launch import accelerators, command, preflight, waiting
from lmx import ranges
from lmx.errors import InputError

PORT = 8476  # of process 0, as JAX has it on TPUs
JOB = 'slice'  # name of the replicated job
XPK_JOB = 'slice-job'
# A pod that ends so is worth starting again: told to stop, or ended by SIGABRT (JAX, where another pod has gone),
# SIGBUS, SIGKILL, SIGSEGV or SIGTERM.
AGAIN = (command.PREEMPTED, 134, 135, 137, 139, 143)


@dataclasses.dataclass(frozen=True)
class Job:
  """What is asked of the cluster.

  Attributes:
    name: of the JobSet.
    image: of the container.
    accelerator: a name of `launch.accelerators`.
    slices: TPU slices that train together.
    nodes: machines with GPUs.
    queue: Kueue's LocalQueue, '' for none.
    priority: Kueue's priority class, '' for none.
    namespace: of the cluster, '' for the current one.
    spot: on machines that can be preempted.
    grace: seconds between SIGTERM and SIGKILL.
    service_account: of the pods, '' for the default one.
    secrets_of: the cluster's Secret that has the values of secrets.
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

  def __post_init__(self):
    for field in ('name', 'queue', 'priority', 'namespace', 'service_account', 'secrets_of'):
      value = getattr(self, field)
      if value and not re.fullmatch(r'[a-z0-9]([a-z0-9.-]*[a-z0-9])?', value):
        raise InputError(f'--{field} is "{value}"; Kubernetes takes small letters, digits and - inside')
    if not self.name or len(self.name) > 40 or '.' in self.name:
      raise InputError(f'--name is "{self.name}"; it must have 1 to 40 letters, digits and -')
    if not re.fullmatch(r'[A-Za-z0-9_./:@-]+', self.image):
      raise InputError(f'--image is "{self.image}", which is no name of an image')
    for field, least in {'slices': 1, 'nodes': 1, 'grace': 0}.items():
      if getattr(self, field) < least:
        raise InputError(f'--{field} is {getattr(self, field)}; it must be at least {least}')
    if self.slices > 1 and self.machine.kind != 'tpu':
      raise InputError('--slices is for TPUs; with GPUs give --nodes')
    if self.nodes > 1 and self.machine.kind == 'tpu':
      raise InputError(f'--nodes is for GPUs; {self.accelerator} has {self.machine.hosts} machines, times --slices')

  @property
  def machine(self) -> accelerators.Slice:
    """What the accelerator's name stands for."""
    return accelerators.find(self.accelerator, pool=True)

  @property
  def pods(self) -> int:
    """Pods of one slice, or machines with GPUs."""
    return self.machine.hosts if self.machine.kind == 'tpu' else self.nodes


def shell(job: Job, run: command.Run, replicated: str = JOB) -> str:
  """What a container runs: the check of the hosts, then the command."""
  lines = ['set -e', *command.exports(run.remote_env())]
  if job.machine.kind == 'tpu':
    lines += ['export LMX_COORDINATOR=auto'] if job.pods * job.slices > 1 else []
  elif job.pods > 1:
    lines += [
      f'export LMX_COORDINATOR={job.name}-{replicated}-0-0.{job.name}:{PORT} LMX_NUM_PROCESSES={job.pods}',
      'export LMX_PROCESS_ID="$JOB_COMPLETION_INDEX"',
    ]
  if run.preflight:
    # A pod may wait for its machine and its image for long after the first one runs.
    check = preflight.words(
      run.words, processes=job.pods * job.slices, devices=job.machine.devices, seconds=preflight.SECONDS * 10
    )
    lines += [command.lmx(check)] if check else []
  return '\n'.join([*lines, f'exec {command.lmx(run.words)}'])


def unexpanded(text: str) -> str:
  """`text` so that Kubernetes, which replaces $(NAME) in commands and values, gives it to the container as it is."""
  return text.replace('$', '$$')


def manifest(job: Job, run: command.Run) -> dict[str, Any]:
  """The JobSet."""
  labels = {'kueue.x-k8s.io/queue-name': job.queue, 'kueue.x-k8s.io/priority-class': job.priority}
  metadata: dict[str, Any] = {'name': job.name}
  if job.namespace:
    metadata['namespace'] = job.namespace
  metadata['labels'] = {'app.kubernetes.io/name': 'lmx', **{name: value for name, value in labels.items() if value}}
  if job.machine.kind == 'tpu':  # a slice is a pool of its own
    metadata['annotations'] = {'alpha.jobset.sigs.k8s.io/exclusive-topology': 'cloud.google.com/gke-nodepool'}
  spec = {
    'parallelism': job.pods,
    'completions': job.pods,
    'completionMode': 'Indexed',
    'backoffLimit': 0,  # all pods begin again, or none
    'podFailurePolicy': {
      'rules': [
        {'action': 'Count', 'onPodConditions': [{'type': 'DisruptionTarget', 'status': 'True'}]},
        {'action': 'FailJob', 'onExitCodes': {'containerName': 'lmx', 'operator': 'NotIn', 'values': [*AGAIN]}},
      ]
    },
    'template': {'spec': _pod(job, run)},
  }
  return {
    'apiVersion': 'jobset.x-k8s.io/v1alpha2',
    'kind': 'JobSet',
    'metadata': metadata,
    'spec': {
      'failurePolicy': {
        'maxRestarts': run.restarts,
        # A code that no restart mends ends it all.
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
    'command': ['bash', '-c', unexpanded(shell(job, run))],
    **({'env': _secrets(job, run)} if run.secrets else {}),
    'ports': [{'containerPort': PORT}, *([{'containerPort': 8471}, {'containerPort': 8080}] if tpu else [])],
    'resources': {'limits': {resource: machine.chips}},
    'volumeMounts': [{'name': 'shm', 'mountPath': '/dev/shm'}],
  }
  return {
    'restartPolicy': 'Never',
    'terminationGracePeriodSeconds': job.grace,
    **({'serviceAccountName': job.service_account} if job.service_account else {}),
    **({'hostNetwork': True, 'dnsPolicy': 'ClusterFirstWithHostNet'} if tpu else {}),
    'nodeSelector': selector,
    'tolerations': tolerations,
    'containers': [container],
    'volumes': [{'name': 'shm', 'emptyDir': {'medium': 'Memory'}}],  # NCCL and libtpu want more than 64 MiB
  }


def _secrets(job: Job, run: command.Run) -> list[dict[str, Any]]:
  return [{'name': name, 'valueFrom': {'secretKeyRef': {'name': job.secrets_of, 'key': name}}} for name in run.secrets]


def text(job: Job, run: command.Run) -> str:
  """The manifest as YAML."""
  import yaml

  class Dumper(yaml.SafeDumper):
    """Scripts as blocks of lines, where YAML can hold them so."""

  def scalar(dumper, value):
    return dumper.represent_scalar('tag:yaml.org,2002:str', value, style='|' if '\n' in value else None)

  Dumper.add_representer(str, scalar)
  return yaml.dump(manifest(job, run), Dumper=Dumper, sort_keys=False, width=10**6)


def xpk(job: Job, run: command.Run, cluster: str) -> list[str]:
  """The command line of xpk for the same; it makes the JobSet and gives Kueue its own queue.

  Raises:
    InputError: what xpk has no option for.
  """
  if run.secrets:
    raise InputError('xpk takes secrets only with their values, on its command line or in a file; use kubectl')
  for name in ('priority', 'namespace', 'service_account', 'spot'):
    if getattr(job, name):
      raise InputError(f'--{name} is not passed on to xpk; leave it away, or use kubectl')
  if not cluster:
    raise InputError('--through=xpk needs --cluster')
  script = shell(job, run, XPK_JOB)
  # xpk puts the command into a line of its YAML, where Kubernetes moreover replaces $(NAME).
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
  """Creates the JobSet, or shows what would.

  Raises:
    command.Failed: the cluster refuses it.
  """
  if through == 'xpk':
    code = runner.follow(xpk(job, run, cluster))
    if code:
      raise command.Failed(['xpk'], code, 'see what it said')
  elif run.dry_run:
    print(text(job, run), end='')
  else:
    runner.read(['kubectl', 'create', '-f', '-'], text(job, run))


def start(job: Job, run: command.Run, through: str, cluster: str) -> None:
  """Creates the JobSet and says how to see to it, or shows what would be created."""
  create(job, run, through, cluster, command.Runner(run.dry_run))
  if through == 'xpk' or run.dry_run:
    return
  where = ['-n', job.namespace] if job.namespace else []
  label = f'jobset.sigs.k8s.io/jobset-name={job.name},batch.kubernetes.io/job-completion-index=0'
  print(f'created {job.name}; what it says, and its end:')
  print('  ' + shlex.join(['kubectl', 'logs', *where, '--follow', '--selector', label]))
  print('  ' + shlex.join(['kubectl', 'delete', *where, 'jobset', job.name]))


def main(argv: Sequence[str] | None = None) -> int:
  """Entry point; returns the exit code."""
  return command.guarded('gke', lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
  own, words = command.split(argv)
  parser = argparse.ArgumentParser(
    prog='python -m launch.gke', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--name', required=True, help='of the JobSet')
  parser.add_argument('--image', required=True, help='container image that holds lmx')
  parser.add_argument('--accelerator', required=True, help='such as v6e-16 or h100-80gb-8')
  parser.add_argument('--slices', type=ranges.integer(1, 100_000), default=1, help='TPU slices that train together')
  parser.add_argument('--nodes', type=ranges.integer(1, 100_000), default=1, help='machines with GPUs')
  for name in ('queue', 'priority', 'namespace', 'service_account'):
    parser.add_argument(f'--{name}', default='', help=f'{name.replace("_", " ")} of the cluster')
  parser.add_argument('--spot', action='store_true', help='on machines that can be preempted')
  parser.add_argument(
    '--grace', type=ranges.integer(0, 1_000_000), default=120, help='seconds between SIGTERM and SIGKILL'
  )
  parser.add_argument('--secrets_of', default='lmx', help="the cluster's Secret that holds the values of --secret")
  parser.add_argument('--through', choices=('kubectl', 'xpk'), default='kubectl', help='what creates it')
  parser.add_argument('--cluster', default='', help='name of the cluster, for xpk')
  command.add_arguments(parser)
  args = parser.parse_args(own)
  command.needs_command(words)
  job = Job(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Job)})
  run = command.of(args, words)
  if args.wait and not run.dry_run:
    from launch import gke_wait

    command.path('kubectl')
    return waiting.to_end('gke', gke_wait.Waited(job, run, args.through, args.cluster), args.wait, args.poll)
  start(job, run, args.through, args.cluster)
  return 0


if __name__ == '__main__':
  sys.exit(main())
