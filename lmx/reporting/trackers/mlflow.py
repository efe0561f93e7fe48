"""MLflow: a run in an experiment, in a file store unless a tracking server or database is given.

The store returns the steps of each metric, so a row interrupted by a kill is completed. MLflow parameters cannot be
changed: the first session sets them.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import filelock

from lmx.reporting import trackers

_ID = 'lmx.id'  # tag by which a later session finds the run
_STATES = {'finished': 'FINISHED', 'stopped': 'KILLED', 'failed': 'FAILED'}
_MAX_CHARACTERS = 5_000  # of a parameter or tag
_FORBIDDEN = re.compile(r'[^\w\-./: ]')  # in metric names


def needs_server(cfg: trackers.Config) -> str:
  """Return the setting that names a server, if the runs would be in the work directory."""
  return '' if cfg.mlflow_uri or os.environ.get('MLFLOW_TRACKING_URI') else 'set log.mlflow_uri to a server'


def tracking_uri(cfg: trackers.Config, workdir: pathlib.Path) -> str:
  """Return the tracking URI from the config, the environment, or the work directory."""
  uri = cfg.mlflow_uri or os.environ.get('MLFLOW_TRACKING_URI') or str(workdir / 'mlruns')
  is_path = '://' not in uri and not uri.startswith(('file:', 'databricks', 'uc:'))
  return pathlib.Path(uri).expanduser().absolute().as_uri() if is_path else uri


class Tracker:
  """Run of MLflow."""

  def __init__(self, run: trackers.Run) -> None:
    uri = tracking_uri(run.cfg, run.workdir)
    os.environ.setdefault('MLFLOW_DISABLE_TELEMETRY', 'true')
    os.environ.setdefault('MLFLOW_HTTP_REQUEST_MAX_RETRIES', '2')  # by default a lost server blocks for minutes
    if uri.startswith('file:'):
      os.environ.setdefault('MLFLOW_ALLOW_FILE_STORE', 'true')  # MLflow 3.14 and later refuse a file store without it
    from mlflow.tracking import MlflowClient

    with _lock(uri):
      self._client = MlflowClient(uri)
      experiment = self._find_experiment(run.cfg.project)
    runs = self._client.search_runs([experiment], filter_string=f"tags.`{_ID}` = '{run.id}'", max_results=1)
    if runs:
      (one,) = runs
      self._client.update_run(one.info.run_id, status='RUNNING')
    else:
      one = self._client.create_run(experiment, tags={_ID: run.id}, run_name=run.name)
    self._id, self.where = one.info.run_id, f'run {one.info.run_id} in {uri}'
    self._last = {key: self._last_step(key) for key in one.data.metrics}
    self._describe(run, one.data.params)

  def _find_experiment(self, name: str) -> str:
    """Return an experiment's id; create it if it does not exist."""
    if (experiment := self._client.get_experiment_by_name(name)) is not None:
      return experiment.experiment_id
    try:
      return self._client.create_experiment(name)
    except Exception:  # another run may have created it on a server just now
      if (experiment := self._client.get_experiment_by_name(name)) is None:
        raise
      return experiment.experiment_id

  def _last_step(self, key: str) -> int:
    return max(metric.step for metric in self._client.get_metric_history(self._id, key))

  def _describe(self, run: trackers.Run, known: Mapping[str, str]) -> None:
    """Log settings as parameters, and versions, devices, group and tags as tags."""
    from mlflow.entities import Param, RunTag

    params = [Param(key, str(value)[:_MAX_CHARACTERS]) for key, value in run.settings.items() if key not in known]
    pairs = (tag.partition('=') for tag in run.cfg.tags)
    tags = {**run.about, **({'group': run.cfg.group} if run.cfg.group else {}), **{k: v or 'true' for k, _, v in pairs}}
    for part in _parts(params, 100):
      self._client.log_batch(self._id, params=part)
    self._client.log_batch(self._id, tags=[RunTag(key, str(value)[:_MAX_CHARACTERS]) for key, value in tags.items()])

  def log(self, rows: Iterable[trackers.Row]) -> None:
    """Add the metrics of rows, without steps that MLflow has."""
    from mlflow.entities import Metric

    now, metrics = int(1000 * time.time()), []
    for step, values in rows:
      named = {_FORBIDDEN.sub('_', name): value for name, value in values.items()}
      metrics += [Metric(key, value, now, step) for key, value in named.items() if step > self._last.get(key, -1)]
    for part in _parts(metrics, 1000):
      self._client.log_batch(self._id, metrics=part)
      self._last |= {metric.key: metric.step for metric in part}

  def finish(self, results: Mapping[str, Any], files: Sequence[pathlib.Path]) -> None:
    """Add the results as metrics of the last step, and the files as artifacts."""
    self.log([(int(results['step']), trackers.scalars(results))])
    for path in files:
      self._client.log_artifact(self._id, str(path))

  def close(self, state: str) -> None:
    """Set the status of the run."""
    self._client.set_terminated(self._id, _STATES[state])


def _lock(uri: str) -> Any:
  """Return a lock of a file store, where runs that start together would create an experiment twice."""
  if not uri.startswith('file:'):
    return contextlib.nullcontext()
  folder = pathlib.Path(urllib.request.url2pathname(urllib.parse.urlparse(uri).path))
  folder.parent.mkdir(parents=True, exist_ok=True)
  return filelock.FileLock(folder.with_name(f'.{folder.name}.lock'), timeout=60)


def _parts(items: Sequence[Any], size: int) -> Iterable[list[Any]]:
  """Yield the items in lists of at most `size`, MLflow's limit per call."""
  return (list(items[i : i + size]) for i in range(0, len(items), size))
