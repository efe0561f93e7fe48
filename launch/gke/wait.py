"""`launch.gke --wait=FILE`: create a JobSet, wait for its end and delete it, through kubectl.

A JobSet has ended when a status condition is Completed or Failed. The exit code comes from a failed pod's container; a
permanent error takes precedence over a request for a restart. Deleting the JobSet stops lmx: it sends SIGTERM to every
pod and waits for --grace seconds. Imports no JAX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from launch import command
from launch.gke import jobsets
from launch.gke.job import Job, create
from launch.wait import Record


@dataclasses.dataclass
class Waiter:
  """Creation, polling and end of a JobSet; a `launch.wait.Job`.

  Attributes:
    job: resources and options.
    run: the run.
    through: 'kubectl' or 'xpk'.
    cluster: its name, for xpk.
  """

  RECORD: ClassVar[Mapping[str, type]] = {'name': str, 'namespace': str}
  job: Job
  run: command.Run
  through: str
  cluster: str

  def __post_init__(self):
    self._runner = command.Runner(detached=True)
    self._absent = 0  # polls that did not find it

  def submit(self) -> dict[str, Any]:
    """Create it; return its name."""
    create(self.job, self.run, self.through, self.cluster, self._runner)
    print(f'launch.gke: JobSet {self.job.name}', flush=True)
    return {'name': self.job.name, 'namespace': self.job.namespace}

  def poll(self, record: Record) -> int | None:
    """Print new output of the first pod; return the exit code of lmx once the JobSet has ended, else None."""
    fields = record.fields
    jobset = self._get(fields, 'jobset', fields['name'])
    if not jobset:
      self._absent += 1  # one just created may not be listed yet
      if self._absent < 2:
        return None
      if not fields.get('stopped'):
        command.write(f'launch.gke: JobSet {fields["name"]} is gone; it was deleted by another')
      return command.PREEMPTED if fields.get('stopped') else command.INTERRUPTED
    self._absent = 0
    pods = self._get(fields, 'pods', f'--selector=jobset.sigs.k8s.io/jobset-name={fields["name"]}').get('items', [])
    self._show(record, pods)
    states = jobsets.end_states(jobset)
    if 'Completed' in states:
      return 0
    return self._exit_code(fields, pods, jobset['status']['conditions']) if states else None

  def _exit_code(
    self, fields: dict[str, Any], pods: Sequence[dict[str, Any]], conditions: Sequence[dict[str, Any]]
  ) -> int:
    """Return the exit code of the failure, and print the end of that pod's output."""
    ended = [(code, pod['metadata']['name']) for pod in pods for code in _codes(pod) if code]
    final = [pair for pair in ended if not command.is_restartable(pair[0])]
    for condition in conditions:
      if condition['type'] == 'Failed':
        command.write(f'launch.gke: JobSet {fields["name"]}: {condition.get("reason")}: {condition.get("message")}')
    if not ended:  # pods disappear with their machine
      return command.PREEMPTED
    code, name = (final or ended)[0]
    if name != fields.get('pod'):
      for line in self._logs(fields, name, '--tail=20').splitlines():
        command.write(f'[{name}] {line}')
    return code

  def _show(self, record: Record, pods: Sequence[dict[str, Any]]) -> None:
    """Print the new lines of the first pod, by kubectl's timestamps."""
    first = [pod for pod in pods if _is_first(pod) and pod['status'].get('phase') in ('Running', 'Succeeded', 'Failed')]
    if not first:
      return
    name, since = first[0]['metadata']['name'], record.fields.get('since', '')
    if name != record.fields.get('pod'):
      since = ''  # another start
    more = [f'--since-time={since}'] if since else []
    last = since
    for line in self._logs(record.fields, name, '--timestamps', '--tail=-1', *more).splitlines():
      stamp, _, text = line.partition(' ')
      if _time(stamp) > _time(since):
        command.write(text)
        last = stamp
    if (name, last) != (record.fields.get('pod'), since):
      record.write(pod=name, since=last)

  def _logs(self, fields: dict[str, Any], pod: str, *more: str) -> str:
    """Return the output of a pod; '' if it does not exist, or not yet."""
    try:
      return self._runner.read(['kubectl', 'logs', *jobsets.in_namespace(fields['namespace']), pod, *more])
    except command.Failed:
      return ''

  def _get(self, fields: dict[str, Any], *what: str) -> dict[str, Any]:
    return jobsets.get(self._runner, fields['namespace'], *what)

  def stop(self, fields: dict[str, Any]) -> None:
    """Tell lmx to save and exit for good."""
    self._runner.read([*jobsets.delete(fields['namespace'], fields['name']), '--wait=false'])

  def kill(self, fields: dict[str, Any]) -> None:
    """Kill all pods at once."""
    selector = f'--selector=jobset.sigs.k8s.io/jobset-name={fields["name"]}'
    where = jobsets.in_namespace(fields['namespace'])
    self._runner.read(['kubectl', 'delete', *where, 'pods', '--force', '--grace-period=0', selector])

  def clear(self, fields: dict[str, Any]) -> None:
    """Delete the JobSet, so that another may have its name."""
    self._runner.read(jobsets.delete(fields['namespace'], fields['name']))


def _is_first(pod: dict[str, Any]) -> bool:
  labels = pod['metadata'].get('labels', {})
  return labels.get('jobset.sigs.k8s.io/job-index') == labels.get('batch.kubernetes.io/job-completion-index') == '0'


def _codes(pod: dict[str, Any]) -> list[int]:
  """Return the exit codes of a pod's containers; for a preempted pod, the code that requests a restart."""
  if any(c['type'] == 'DisruptionTarget' and c['status'] == 'True' for c in pod['status'].get('conditions', [])):
    return [command.PREEMPTED]
  states = [status.get('state', {}) for status in pod['status'].get('containerStatuses', [])]
  return [state['terminated']['exitCode'] for state in states if 'terminated' in state]


def _time(stamp: str) -> str:
  """Return a time of kubectl, which omits trailing zeros, in a form that compares as text."""
  seconds, _, rest = stamp.removesuffix('Z').partition('.')
  return f'{seconds}.{rest:0<9}'
