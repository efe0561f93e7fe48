"""Trial of a sweep: its runs in order, each an ordinary work directory to follow and resume."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import statistics
import time
from collections.abc import Mapping
from typing import Any

from launch import jobs, wait
from launch.command import PREEMPTED
from launch.sweep import budget, study
from launch.sweep.metrics import (
  Metric,
  file_version,
  has_ended,
  log_tail,
  measure,
  read_records,
)
from lmx import records, storage
from lmx.errors import InputError

RECORD = '.launched'  # record of the submitted job, in a run's directory on this machine
PATIENCE = 5  # preemptions without a new record after which a run has failed


@dataclasses.dataclass(frozen=True)
class Plan:
  """Settings that all trials share.

  Attributes:
    program: command before `train ...` for runs on this machine.
    where: 'local', or the launcher of each run.
    launch: launcher options; {job} is replaced by the worker's number.
    runs_parent: parent of the runs' work directories, '' for `folder`.
    config: experiment file, with :variant.
    overrides: 'section.key=value' for all trials.
    folder: parent of the trials' directories, with the logs of their runs.
    seeds: runs per trial; with 1 the seed is the config's.
    metric: metric to optimise.
    pruner: one of study.PRUNERS.
    reduction: one in this many trials continues at each rung.
    min_steps: steps before any pruning; 0 until the first validation.
    environment: variables of a run; {job} is replaced by its worker's number.
    grace: seconds from SIGTERM to SIGKILL.
    counts_flops: count the training FLOPs of each trial at its end.
    sampler: one of study.SAMPLERS; 'random' also for a tpe that only draws at random.
  """

  program: tuple[str, ...]
  where: str
  launch: str
  runs_parent: str
  config: str
  overrides: tuple[str, ...]
  folder: pathlib.Path
  seeds: int
  metric: Metric
  pruner: str
  reduction: int
  min_steps: int
  environment: Mapping[str, str]
  grace: float
  counts_flops: bool = False
  sampler: str = ''

  def runs(self, number: int) -> list[pathlib.Path]:
    """Return the directories of a trial's runs on this machine."""
    return [self.folder / name for name in self._names(number)]

  def workdirs(self, number: int) -> list[Any]:
    """Return their work directories, which may be on a bucket."""
    if not self.runs_parent:
      return self.runs(number)
    return [storage.path('--runs', self.runs_parent, storage.FOLDER) / name for name in self._names(number)]

  def _names(self, number: int) -> list[str]:
    return [f'{number:04d}'] if self.seeds == 1 else [f'{number:04d}/seed_{seed}' for seed in range(self.seeds)]

  def command(self, number: int, seed: int, parameters: Mapping[str, str], slot: int, *more: str) -> list[str]:
    """Return the command that trains one run for worker `slot`; `more` are options of the launcher."""
    settings = [*self.overrides, *(f'{key}={value}' for key, value in parameters.items())]
    settings += [f'seed={seed}'] if self.seeds > 1 else []
    settings += self._tracker_settings(number, seed)
    words = [
      'train',
      f'--config={self.config}',
      f'--workdir={self.workdirs(number)[seed]}',
      *(f'--config.{text}' for text in settings),
    ]
    if self.where == 'local':
      return [*self.program, *words]
    env = [f'--env={name}={value}' for name, value in self.settings(slot).items()]
    record = self.runs(number)[seed] / RECORD
    return wait.launcher_command(self.where, _fill_slot(self.launch, slot), words, [*env, f'--wait={record}', *more])

  def _tracker_settings(self, number: int, seed: int) -> list[str]:
    """Return the name and the group of a run in the trackers of `log.to`, and one store of MLflow for runs here."""
    given = {key: value for key, _, value in (text.partition('=') for text in self.overrides)}
    if 'log.to' not in given:
      return []
    folder = self.folder.parent.absolute()
    own = {'log.group': folder.name, 'log.run': self._names(number)[seed]}
    uri = 'MLFLOW_TRACKING_URI' in os.environ or 'MLFLOW_TRACKING_URI' in self.environment
    if 'mlflow' in given['log.to'] and self.where == 'local' and not (uri or self.runs_parent):
      own['log.mlflow_uri'] = str(folder / 'mlruns')
    return [f'{key}={study.format_value(value)}' for key, value in own.items() if key not in given]

  def settings(self, slot: int) -> dict[str, str]:
    """Return the environment variables of worker `slot`'s runs."""
    return {name: _fill_slot(value, slot) for name, value in self.environment.items()}


def _read_intact(folder: Any) -> list[dict[str, Any]]:
  """Return the records of a run, [] if its log is damaged: `measure` reports that when the trial ends."""
  try:
    return read_records(folder)
  except InputError:
    return []


def _fill_slot(text: str, slot: int) -> str:
  return text.replace('{job}', str(slot))


class Worker:
  """Worker of a trial; `advance` is called repeatedly until it returns the state of the trial."""

  def __init__(self, plan: Plan, store: study.Store, trial: Any, search: study.Search, launcher: Any, slot: int):
    self.plan, self.store, self.trial, self.launcher, self.slot = plan, store, trial, launcher, slot
    self.number, self.parameters = trial.number, store.parameters(trial, search)
    self.runs, self.workdirs = plan.runs(self.number), plan.workdirs(self.number)
    self.pruned = trial.user_attrs.get('pruned_at') is not None
    self.reported = set(store.storage.get_trial(trial._trial_id).intermediate_values)
    self.seed, self.error, self.exit_code, self.ending = 0, '', 0, False
    self.job: jobs.Job | None = None
    self._seen: Any = None
    self._stop_time = 0.0  # time of the request to stop
    self._idle, self._count = 0, 0  # preemptions since the last record, and the number of records
    self._busy, self._started = float(trial.user_attrs.get('busy', 0.0)), 0.0

  def advance(self) -> str:
    """Start, follow and end runs.

    Returns:
      '' while the trial runs, else 'COMPLETE', 'PRUNED', 'FAIL', or 'LEFT' after `end`.
    """
    if self.job is None:
      return self._start_next()
    code = self.job.poll()
    if self.seed == 0:
      self._follow()
    if code is None:
      self._request_stop()
      return ''
    self._busy, self.job = self.busy(), None
    self.trial.set_user_attr('busy', self._busy)
    return self._handle_exit(code)

  def busy(self) -> float:
    """Return the seconds that the trial's runs have taken so far, their start and evaluation included."""
    return self._busy + (time.monotonic() - self._started if self.job is not None else 0.0)

  def end(self) -> None:
    """Ask the run to save and exit; the trial is resumed later."""
    self.ending = True

  def _start_next(self) -> str:
    """Start or find the next run that has not ended."""
    while not self.pruned and self.seed < len(self.runs) and self._is_finished():
      if self.seed == 0:
        self._follow(prune=False)
      self.seed += 1
    if self.seed == len(self.runs):
      return self._complete()
    folder = self.runs[self.seed]
    self.job = self.launcher.find(folder)
    if self.job is None and self.pruned and not (folder / RECORD).exists():
      return self._conclude('PRUNED')
    if self.job is None and self.ending:
      return 'LEFT'
    if self.job is None:
      added = self.plan.settings(self.slot) if self.plan.where == 'local' else {}
      command = self.plan.command(self.number, self.seed, self.parameters, self.slot)
      folder.mkdir(parents=True, exist_ok=True)
      self.job = self.launcher.start(command, folder, added)
    self._started = time.monotonic()
    return ''

  def _is_finished(self) -> bool:
    """Return whether the run has ended and its launcher too; a killed launcher is started again."""
    return has_ended(self.workdirs[self.seed]) and not (self.runs[self.seed] / RECORD).exists()

  def _follow(self, *, prune: bool = True) -> None:
    """Report new metrics of the first run to the pruner."""
    metric, version = self.plan.metric, file_version(self.workdirs[0] / 'metrics.jsonl')
    if metric.final or version == self._seen or self.pruned:
      return
    self._seen = version
    with contextlib.suppress(InputError):  # of a damaged record, which `measure` reports when the trial ends
      self._report(prune)

  def _report(self, prune: bool) -> None:
    """Report the validations of the first run that are new. Raises InputError if a record of the run is damaged."""
    metric = self.plan.metric
    for record in read_records(self.workdirs[0], 'valid'):
      step = int(record['step'])
      if step in self.reported or not records.is_number(record.get(metric.name)):
        continue
      self.reported.add(step)
      self.trial.report(float(record[metric.name]), step)
      if prune and self.plan.pruner != 'none' and self._should_prune(step):
        self.trial.set_user_attr('pruned_at', step)  # first, so that a kill does not undo it
        self.pruned = True
        return

  def _should_prune(self, step: int) -> bool:
    """Return the pruner's decision; its first rung is the first step with a metric in any trial."""
    rungs = self.store.study.user_attrs.get('rungs')
    if rungs is None:
      rungs = [self.plan.min_steps or step, records.read_total(self.workdirs[0]) or 0]
      self.store.study.set_user_attr('rungs', rungs)
    self.store.study.pruner = self.store.pruner(self.plan.pruner, rungs[0], rungs[1], self.plan.reduction)
    return self.trial.should_prune()

  def _request_stop(self) -> None:
    """Ask a run to exit that is pruned or left, and kill it after the grace time."""
    if not (self.pruned or self.ending) or self.job is None:
      return
    if not self._stop_time:
      self._stop_time = time.monotonic()
      self.job.stop()
    elif time.monotonic() - self._stop_time > self.plan.grace:
      self.job.kill()

  def _handle_exit(self, code: int) -> str:
    folder, was_asked = self.workdirs[self.seed], self._stop_time
    self._stop_time = 0.0
    if self.pruned:
      return self._start_next()
    if has_ended(folder) and code in (0, PREEMPTED):
      return self._start_next()
    if self.ending and was_asked:
      return 'LEFT'
    if code == PREEMPTED:
      count = len(_read_intact(folder))
      self._idle, self._count = (self._idle + 1, count) if count <= self._count else (0, count)
      if self._idle < PATIENCE:
        self.trial.set_user_attr('restarts', self.trial.user_attrs.get('restarts', 0) + 1)
        return self._start_next()
    why = {0: ', without results.json', PREEMPTED: f', {PATIENCE} times without progress'}.get(code, '')
    return self._fail(f'exit code {code}{why}\n{log_tail(self.runs[self.seed])}', code)

  def _complete(self) -> str:
    """End the trial with the mean of its runs' metrics."""
    try:
      measurements = [measure(folder, self.plan.metric) for folder in self.workdirs]
      hashes = {str(records.read_results(folder).get('data_hash', '')) for folder in self.workdirs} - {''}
    except InputError as error:
      return self._fail(str(error), 0)
    if len(hashes) > 1:
      return self._fail(f'seeds of one trial: got other data ({", ".join(sorted(hashes))}); expected one data set', 0)
    values = [one.value for one in measurements]
    self.trial.set_user_attr('values', values)
    if len(values) > 1:
      self.trial.set_user_attr('spread', statistics.stdev(values))
    self.trial.set_user_attr('step', measurements[0].step)
    return self._conclude('COMPLETE', statistics.fmean(values))

  def _fail(self, error: str, code: int) -> str:
    self.error, self.exit_code = error.strip(), code
    self.trial.set_user_attr('error', self.error)
    self.trial.set_user_attr('exit_code', code)
    return self._conclude('FAIL')

  def _conclude(self, state: str, value: float | None = None) -> str:
    every = [_read_intact(folder) for folder in self.workdirs]
    self.trial.set_user_attr('steps', max((r['step'] for r in every[0]), default=0))
    seconds = sum(max((float(r.get('seconds', 0)) for r in run), default=0.0) for run in every)
    self.trial.set_user_attr('seconds', seconds)
    self.trial.set_user_attr('busy', max(seconds, self.busy()))
    if self.plan.counts_flops:
      self.trial.set_user_attr('flops', budget.count_flops(self.workdirs))
    self.store.finish(self.number, state, value)
    return state
