"""Kubernetes Job on a machine without accelerators, as commands of kubectl. Imports no JAX."""

from __future__ import annotations

from collections.abc import Sequence

from launch.gke.job import kueue_labels


def create_commands(
  name: str,
  words: Sequence[str],
  *,
  image: str,
  namespace: str = '',
  service_account: str = '',
  queue: str = '',
  priority: str = '',
) -> list[list[str]]:
  """Return the commands of a pipeline that creates the Job.

  `kubectl create job` knows neither service accounts nor labels, so other commands of kubectl add them to its manifest.

  Args:
    name: name of the Job.
    words: command of the container.
    image, namespace, service_account, queue, priority: as in `launch.gke.job.Job`.
  """
  labels = [f'{key}={value}' for key, value in kueue_labels(queue, priority).items()]
  edits = [['set', 'serviceaccount', service_account]] if service_account else []
  edits += [['label', *labels]] if labels else []
  create = ['kubectl', 'create', 'job', name, f'--image={image}', *[f'--namespace={namespace}'] * bool(namespace)]
  if not edits:
    return [[*create, '--', *words]]
  return [
    [*create, '--dry-run=client', '--output=yaml', '--', *words],
    *(['kubectl', *edit, '--local', '--filename=-', '--output=yaml'] for edit in edits),
    ['kubectl', 'create', '--filename=-'],
  ]
