"""`launch.gke --wait=FILE`: a JobSet from its creation to its end, through kubectl; then it is deleted.

It has ended when a condition of its status is Completed or Failed. The exit code is that of a container, of a pod that
failed: one that no restart mends before one that is the signal for a restart. lmx is told to stop by deleting the
JobSet, which sends SIGTERM to every pod and gives it --grace seconds. Imports no JAX.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from launch import command, gke
from launch.waiting import Record


@dataclasses.dataclass
class Waited:
  """A JobSet and the run in it.

  Attributes:
    job: what is asked of the cluster.
    run: what is run.
    through: 'kubectl' or 'xpk'.
    cluster: its name, for xpk.
  """

  job: gke.Job
  run: command.Run
  through: str
  cluster: str

  def __post_init__(self):
    self._runner = command.Runner(apart=True)
    self._absent = 0  # looks at it in which it was not there

  def submit(self) -> dict[str, Any]:
    """Creates it; returns its name."""
    gke.create(self.job, self.run, self.through, self.cluster, self._runner)
    print(f'launch.gke: JobSet {self.job.name}', flush=True)
    return {'name': self.job.name, 'namespace': self.job.namespace}

  def poll(self, record: Record) -> int | None:
    """Shows what the first pod has said since, and returns the exit code of lmx once the JobSet has ended."""
    known = record.known
    found = self._get(known, 'jobset', known['name'])
    if not found:
      self._absent += 1  # one that was created this moment may be still to come
      if self._absent < 2:
        return None
      if not known.get('stopped'):
        command.write(f'launch.gke: JobSet {known["name"]} is gone; somebody has deleted it')
      return command.PREEMPTED if known.get('stopped') else command.INTERRUPTED
    self._absent = 0
    pods = self._get(known, 'pods', f'--selector=jobset.sigs.k8s.io/jobset-name={known["name"]}').get('items', [])
    self._show(record, pods)
    conditions = found.get('status', {}).get('conditions', [])
    states = {condition['type'] for condition in conditions if condition['status'] == 'True'}
    if 'Completed' in states:
      return 0
    return self._failed(known, pods, conditions) if 'Failed' in states else None

  def _failed(self, known: dict[str, Any], pods: Sequence[dict[str, Any]], conditions: Sequence[dict[str, Any]]) -> int:
    """The code of the failure, having shown the end of what that pod said."""
    ended = [(code, pod['metadata']['name']) for pod in pods for code in _codes(pod) if code]
    final = [found for found in ended if not command.restartable(found[0])]
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
    """Writes the lines of the first pod that are new: kubectl has them with their time."""
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
    """What a pod has said; '' where it can no more be asked, or not yet."""
    try:
      return self._runner.read(['kubectl', 'logs', *_where(known), pod, *more])
    except command.Failed:
      return ''

  def _get(self, known: dict[str, Any], *what: str) -> dict[str, Any]:
    """What kubectl says of it, {} where there is none."""
    try:
      return json.loads(self._runner.read(['kubectl', 'get', *_where(known), *what, '--output=json']))
    except command.Failed as error:
      if 'NotFound' in error.stderr:
        return {}
      raise

  def stop(self, known: dict[str, Any]) -> None:
    """Tells lmx to save and leave for good."""
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
    """Ends it at once."""
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
    """Deletes the JobSet, so that another may have its name."""
    self._runner.read(
      ['kubectl', 'delete', *_where(known), 'jobset', known['name'], '--ignore-not-found', '--cascade=foreground']
    )


def _where(known: dict[str, Any]) -> list[str]:
  return ['-n', known['namespace']] if known['namespace'] else []


def _first(pod: dict[str, Any]) -> bool:
  labels = pod['metadata'].get('labels', {})
  return labels.get('jobset.sigs.k8s.io/job-index') == labels.get('batch.kubernetes.io/job-completion-index') == '0'


def _codes(pod: dict[str, Any]) -> list[int]:
  """Exit codes of a pod's containers; of one that was taken from its machine, the signal for a restart."""
  if any(c['type'] == 'DisruptionTarget' and c['status'] == 'True' for c in pod['status'].get('conditions', [])):
    return [command.PREEMPTED]
  states = [status.get('state', {}) for status in pod['status'].get('containerStatuses', [])]
  return [state['terminated']['exitCode'] for state in states if 'terminated' in state]


def _time(stamp: str) -> str:
  """A time of kubectl's, which leaves out zeros at the end, so that it can be compared."""
  seconds, _, rest = stamp.removesuffix('Z').partition('.')
  return f'{seconds}.{rest:0<9}'
