"""JobSets of a cluster, read and deleted by kubectl. Imports no JAX."""

from __future__ import annotations

import json
from typing import Any

from launch import command


def in_namespace(name: str) -> list[str]:
  """Return kubectl's words for a namespace, '' for the current one."""
  return ['-n', name] if name else []


def get(runner: command.Runner, namespace: str, *what: str) -> dict[str, Any]:
  """Return an object of the cluster, {} if there is none."""
  try:
    return json.loads(runner.read(['kubectl', 'get', *in_namespace(namespace), *what, '--output=json']))
  except command.Failed as error:
    if 'NotFound' in error.stderr:
      return {}
    raise


def end_states(jobset: dict[str, Any]) -> set[str]:
  """Return 'Completed' or 'Failed' of a JobSet that has ended, else nothing."""
  conditions = jobset.get('status', {}).get('conditions', [])
  return {each['type'] for each in conditions if each['status'] == 'True'} & {'Completed', 'Failed'}


def delete(namespace: str, name: str) -> list[str]:
  """Return the command that deletes a JobSet, if it exists, and waits until its pods are gone."""
  return ['kubectl', 'delete', *in_namespace(namespace), 'jobset', name, '--ignore-not-found', '--cascade=foreground']
