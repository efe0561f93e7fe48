"""`launch.gke --wait=FILE`: create a JobSet, wait for its end and delete it, through kubectl.

A JobSet has ended when a condition of its status is Completed or Failed. The exit code is that of a container of a
failed pod; a code that no restart fixes takes precedence over one that asks for a restart. Deleting the JobSet stops
lmx: it sends SIGTERM to every pod and waits for --grace seconds. Imports no JAX.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from launch import command
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
    known = record.known
    jobset = self._get(known, 'jobset', known['name'])
    if not jobset:
      self._absent += 1  # one just created may not be listed yet
      if self._absent < 2:
        return None
      if not known.get('stopped'):
        command.write(f'launch.gke: JobSet {known["name"]} is gone; somebody has deleted it')
      return command.PREEMPTED if known.get('stopped') else command.INTERRUPTED
    self._absent = 0
    pods = self._get(known, 'pods', f'--selector=jobset.sigs.k8s.io/jobset-name={known["name"]}').get('items', [])
    self._show(record, pods)
    conditions = jobset.get('status', {}).get('conditions', [])
    states = {condition['type'] for condition in conditions if condition['status'] == 'True'}
    if 'Completed' in states:
      return 0
    return self._failed(known, pods, conditions) if 'Failed' in states else None

  def _failed(self, known: dict[str, Any], pods: Sequence[dict[str, Any]], conditions: Sequence[dict[str, Any]]) -> int:
    """Return the exit code of the failure, and print the end of that pod's output."""
    ended = [(code, pod['metadata']['name']) for pod in pods for code in _codes(pod) if code]
    final = [pair for pair in ended if not command.is_restartable(pair[0])]
    for condition in conditions:
      if condition['type'] == 'Failed':
        command.write(f'launch.gke: JobSet {known["name"]}: {condition.get("reason")}: {condition.get("message")}')
    if not ended:  # pods whose machine is gone are gone too
      return command.PREEMPTED
    code, name = (final or ended)[0]
    if name != known.get('pod'):
      for line in self._logs(known, name, '--tail=20').splitlines():
        command.write(f'[{name}] {line}')
    return code

  def _show(self, record: Record, pods: Sequence[dict[str, Any]]) -> None:
    """Print the new lines of the first pod, by kubectl's timestamps."""
    first = [pod for pod in pods if _first(pod) and pod['status'].get('phase') in ('Running', 'Succeeded', 'Failed')]
    if not first:
      return
    name, since = first[0]['metadata']['name'], record.known.get('since', '')
    if name != record.known.get('pod'):
      since = ''  # another start
    more = [f'--since-time={since}'] if since else []
    last = since
    for line in self._logs(record.known, name, '--timestamps', '--tail=-1', *more).splitlines():
      stamp, _, text = line.partition(' ')
      if _time(stamp) > _time(since):
        command.write(text)
        last = stamp
    if (name, last) != (record.known.get('pod'), since):
      record.write(pod=name, since=last)

  def _logs(self, known: dict[str, Any], pod: str, *more: str) -> str:
    """Return the output of a pod; '' if it does not exist, or not yet."""
    try:
      return self._runner.read(['kubectl', 'logs', *_where(known), pod, *more])
    except command.Failed:
      return ''

  def _get(self, known: dict[str, Any], *what: str) -> dict[str, Any]:
    """Return an object from kubectl, {} if there is none."""
    try:
      return json.loads(self._runner.read(['kubectl', 'get', *_where(known), *what, '--output=json']))
    except command.Failed as error:
      if 'NotFound' in error.stderr:
        return {}
      raise

  def stop(self, known: dict[str, Any]) -> None:
    """Tell lmx to save and exit for good."""
    self._runner.read(
      [
        'kubectl',
        'delete',
        *_where(known),
        'jobset',
        known['name'],
        '--ignore-not-found',
        '--cascade=foreground',
        '--wait=false',
      ]
    )

  def kill(self, known: dict[str, Any]) -> None:
    """Kill all pods at once."""
    self._runner.read(
      [
        'kubectl',
        'delete',
        *_where(known),
        'pods',
        '--force',
        '--grace-period=0',
        f'--selector=jobset.sigs.k8s.io/jobset-name={known["name"]}',
      ]
    )

  def clear(self, known: dict[str, Any]) -> None:
    """Delete the JobSet, so that another may have its name."""
    self._runner.read(
      ['kubectl', 'delete', *_where(known), 'jobset', known['name'], '--ignore-not-found', '--cascade=foreground']
    )


def _where(known: dict[str, Any]) -> list[str]:
  return ['-n', known['namespace']] if known['namespace'] else []


def _first(pod: dict[str, Any]) -> bool:
  labels = pod['metadata'].get('labels', {})
  return labels.get('jobset.sigs.k8s.io/job-index') == labels.get('batch.kubernetes.io/job-completion-index') == '0'


def _codes(pod: dict[str, Any]) -> list[int]:
  """Return the exit codes of a pod's containers; of a preempted pod, the code that asks for a restart."""
  if any(c['type'] == 'DisruptionTarget' and c['status'] == 'True' for c in pod['status'].get('conditions', [])):
    return [command.PREEMPTED]
  states = [status.get('state', {}) for status in pod['status'].get('containerStatuses', [])]
  return [state['terminated']['exitCode'] for state in states if 'terminated' in state]


def _time(stamp: str) -> str:
  """Return a time of kubectl, which omits trailing zeros, in a form that compares as text."""
  seconds, _, rest = stamp.removesuffix('Z').partition('.')
  return f'{seconds}.{rest:0<9}'
