"""Trackers that a run logs to besides TensorBoard: Weights & Biases and MLflow, one file each.

Trackers cannot delete a record. So they only get records of metrics.jsonl up to the newest committed checkpoint: a
killed run repeats its later steps. Each session first logs the records that a tracker lacks, so each step is logged
once, under one id, which trackers.json in the work directory stores.

A file of this folder has the name of its package and of the extra that installs it. It has

  needs_server(cfg)  setting that names a server, if the tracker would store files in the work directory; else ''
  Tracker(run)       opens or resumes the tracker's run
    .where           its location, as text
    .log(rows)       adds rows (step, {'split/metric': value}), in ascending order, without logged ones
    .finish(results, files)   adds the scalars of results.json, and files: results, samples and pictures
    .close(state)    'finished', 'stopped' or 'failed'
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import math
import os
import pathlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from flax.traverse_util import flatten_dict

from lmx import documents, records, storage
from lmx.errors import InputError
from lmx.redaction import is_masked
from lmx.reporting import Config, run_log

_STATE = 'trackers.json'
Row = tuple[int, dict[str, float]]


class Run(NamedTuple):
  """Run of a tracker.

  Attributes:
    id: its id in every session.
    name: its name.
    cfg: the `log` section.
    workdir: its work directory on this machine.
    settings: its settings by 'section.key', without the `log` section.
    about: versions, commit and devices.
    state: JSON object that the tracker may change; the next session gets it back.
  """

  id: str
  name: str
  cfg: Config
  workdir: pathlib.Path
  settings: Mapping[str, Any]
  about: Mapping[str, str]
  state: dict[str, Any]


def module(name: str) -> Any:
  """Import a tracker's file, and with it its package."""
  return importlib.import_module(f'lmx.reporting.trackers.{name}')


def check(cfg: Config, workdir: Any) -> None:
  """Check that the trackers can log the run of `workdir`.

  Raises:
    InputError: a package is missing, or a tracker would store files in a bucket.
  """
  if 'mlflow' in cfg.to and is_masked(cfg.mlflow_uri):
    raise InputError(
      f'log.mlflow_uri: got {cfg.mlflow_uri}, whose password is masked, because config.json records none; give the URI '
      'without it, and the password by MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD'
    )
  for name in cfg.to:
    spec = importlib.util.find_spec(name)  # a tracker's package has its name; a folder ./wandb has no origin
    if spec is None or not spec.origin:
      raise InputError(f'log.to: got "{name}", whose package is missing; install it: pip install "lmx[{name}]"')
    if storage.is_remote(workdir) and (fix := module(name).needs_server(cfg)):
      raise InputError(f'log.to: got "{name}" with work directory {workdir}; expected one on a disk; or {fix}')


def group_settings(cfg: Config, directory: pathlib.Path) -> list[str]:
  """Return settings that group the runs below `directory`, in one MLflow store."""
  own = [] if cfg.group or not cfg.to else [f'log.group={directory.absolute().name}']
  if 'mlflow' in cfg.to and not (cfg.mlflow_uri or os.environ.get('MLFLOW_TRACKING_URI')):
    own.append(f'log.mlflow_uri={directory.absolute() / "mlruns"}')
  return own


def scalars(results: Mapping[str, Any]) -> dict[str, float]:
  """Return the numbers in results.json as 'results/name', and in nested objects as 'results/name/inner'."""
  flat = flatten_dict(dict(results), sep='/')
  return {f'results/{k}': v for k, v in flat.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}


class Trackers:
  """Trackers of one session of a run; a context manager.

  A failing tracker is closed with a warning. The session continues without it, and the next session catches up.
  """

  def __init__(
    self, cfg: Config, logger: run_log.Logger, name: str, settings: Mapping[str, Any], config_hash: str
  ) -> None:
    """Open the trackers on process 0, and log the records up to the session's checkpoint.

    Args:
      cfg: the `log` section.
      logger: the session's log, without records after its checkpoint.
      name: name of the run, unless `log.run` gives one.
      settings: settings of the run by 'section.key', without the `log` section.
      config_hash: digest of the settings that change what is computed; a different digest is another run.
    """
    self._logger, self._open = logger, dict[str, Any]()
    self._path = logger.workdir / _STATE
    self._position, self._waiting = 0, list[run_log.Record]()
    self._is_finished = False
    if not (cfg.to and logger.primary):
      return
    self._state = self._read_state(config_hash)
    self._write_state()  # first, so that a killed session has stored its id
    about = {**run_log.versions(), 'commit': run_log.commit(), 'device': run_log.device(), 'config_hash': config_hash}
    run = Run(self._state['id'], cfg.run or name, cfg, logger.workdir, settings, about, {})
    for tracker in dict.fromkeys(cfg.to):
      state = self._state['trackers'].setdefault(tracker, {})
      if not state.get('results') or state['results'] != self._results_digest():
        self._attempt(tracker, functools.partial(self._begin, tracker, run._replace(state=state)))
    self._log(logger.start_step)

  def __enter__(self) -> Trackers:
    return self

  def __exit__(self, kind: Any, *_: Any) -> None:
    """Close the trackers as finished after `finish`, else as stopped, or as failed after an exception."""
    interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
    state = 'failed' if kind is not None and not interrupted else 'finished' if self._is_finished else 'stopped'
    for name, tracker in list(self._open.items()):
      self._attempt(name, functools.partial(tracker.close, state))
      if name in self._open:
        self._state['trackers'][name]['results'] = self._results_digest() if self._is_finished else ''
        self._write_state()

  def commit(self, steps: Callable[[], Sequence[int]], done: int) -> None:
    """Log the records up to the newest checkpoint of `steps`, without checkpoints after `done` steps."""
    if self._open:
      self._log(max((step for step in steps() if step <= done), default=0))

  def finish(self) -> None:
    """Log the remaining records and the results of a finished run."""
    if not self._open:
      return
    self._log(math.inf)
    results = records.read_results(self._logger.workdir)
    names = ('results.json', 'samples.txt')
    files = [path for name in names if (path := self._logger.workdir / name).exists()]
    files += sorted(self._logger.workdir.glob('*.png'))
    self._each(lambda tracker: tracker.finish(results, files))
    self._is_finished = True

  def _begin(self, name: str, run: Run) -> None:
    """Open a tracker."""
    self._open[name] = module(name).Tracker(run)
    self._write_state()
    self._logger.note(f'logging to {name}: {self._open[name].where}')

  def _each(self, act: Callable[[Any], object]) -> None:
    """Call `act` with each open tracker."""
    for name, tracker in list(self._open.items()):
      self._attempt(name, functools.partial(act, tracker))

  def _attempt(self, name: str, act: Callable[[], object]) -> None:
    """Call `act`; if it fails, warn and continue without the tracker."""
    try:
      act()
    except Exception as error:  # any failure of disk or network
      reason = ' '.join(str(error).split())[:300]
      self._logger.note(
        f'warning: log.to: {name} failed ({type(error).__name__}: {reason}); the run continues without it, and the '
        'next session catches up'
      )
      if (tracker := self._open.pop(name, None)) is not None:
        with contextlib.suppress(Exception):
          tracker.close('failed')

  def _log(self, last: float) -> None:
    """Log the records up to step `last`, one row per step."""
    if not self._open:
      return
    self._waiting += self._read_new()
    rows: dict[int, dict[str, float]] = {}
    for record in (r for r in self._waiting if r['step'] <= last):
      values = {f'{record["split"]}/{name}': value for name, value in record.items() if name not in ('step', 'split')}
      rows.setdefault(record['step'], {}).update(values)
    self._waiting = [r for r in self._waiting if r['step'] > last]
    self._each(lambda tracker: tracker.log(sorted(rows.items())))

  def _read_new(self) -> list[run_log.Record]:
    """Return the records added to metrics.jsonl since the last call."""
    path = self._logger.workdir / 'metrics.jsonl'
    with path.open('rb') as file:
      file.seek(self._position)
      data = file.read()
    complete = data[: data.rfind(b'\n') + 1]
    self._position += len(complete)
    return records.parse_metrics(complete.decode(errors='replace'), str(path), self._logger.note)

  def _read_state(self, config_hash: str) -> dict[str, Any]:
    """Return the content of trackers.json, with a new id if it has none for this run."""
    if self._path.exists():
      state, where = records.read(self._path), f'{self._path}: delete it to log as another run'
      documents.field(state, 'id', str, where)
      for name, one in documents.field(state, 'trackers', dict, where).items():
        documents.convert(one, dict, f'{where}: trackers: {name}')
      if documents.field(state, 'config_hash', str, where) == config_hash:
        return state
    return {'id': secrets.token_hex(4), 'config_hash': config_hash, 'trackers': {}}

  def _write_state(self) -> None:
    run_log.write_json(str(self._path), self._state)

  def _results_digest(self) -> str:
    """Return a digest of results.json; '' if there is none."""
    path = self._logger.workdir / 'results.json'
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ''
