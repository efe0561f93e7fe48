"""One trial of a sweep: its runs one after another, each an ordinary work directory that is followed and resumed."""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
import time
from collections.abc import Mapping
from typing import Any

from launch import jobs, study, wait
from launch.command import PREEMPTED
from launch.figures import Metric, data_hash, figure, finished, records, setting, tail, version
from lmx.errors import InputError

RECORD = '.launched'  # in a run's directory on this machine: what was submitted
PATIENCE = 5  # a run that is preempted so often without a new figure has failed


@dataclasses.dataclass(frozen=True)
class Plan:
  """What is the same for all trials.

  Attributes:
    program: what `train ...` is given to where the runs are on this machine.
    where: 'local', or the launcher of `launch.wait` that each run is given to.
    launch: its options; {job} stands for the number of the worker.
    places: where the runs' work directories are, '' for `folder`.
    config: experiment file, with :variant.
    overrides: 'section.key=value' of all trials.
    folder: where the trials' directories are, with what their runs print.
    seeds: runs of a trial; with 1 the seed is the config's.
    metric: what is sought.
    pruner: one of study.PRUNERS.
    reduction: one of so many trials goes on at each rung.
    least: steps before which nothing is pruned; 0 is the first look at the validation split.
    environment: variables of a run; {job} stands for the number of its worker.
    grace: seconds from SIGTERM to SIGKILL.
  """

  program: tuple[str, ...]
  where: str
  launch: str
  places: str
  config: str
  overrides: tuple[str, ...]
  folder: pathlib.Path
  seeds: int
  metric: Metric
  pruner: str
  reduction: int
  least: int
  environment: Mapping[str, str]
  grace: float

  def runs(self, number: int) -> list[pathlib.Path]:
    """The directories of a trial's runs on this machine."""
    return [self.folder / name for name in self._names(number)]

  def workdirs(self, number: int) -> list[Any]:
    """Their work directories, which may be on a bucket."""
    if not self.places:
      return self.runs(number)
    from etils import epath

    return [epath.Path(self.places) / name for name in self._names(number)]

  def _names(self, number: int) -> list[str]:
    return [f'{number:04d}'] if self.seeds == 1 else [f'{number:04d}/seed_{seed}' for seed in range(self.seeds)]

  def command(self, number: int, seed: int, parameters: Mapping[str, str], slot: int, *more: str) -> list[str]:
    """What trains one run for worker `slot`; `more` are options for the launcher."""
    settings = [*self.overrides, *(f'{key}={value}' for key, value in parameters.items())]
    settings += [f'seed={seed}'] if self.seeds > 1 else []
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
    return wait.launcher_command(self.where, _numbered(self.launch, slot), words, [*env, f'--wait={record}', *more])

  def settings(self, slot: int) -> dict[str, str]:
    """The variables of a run of worker `slot`."""
    return {name: _numbered(value, slot) for name, value in self.environment.items()}


def _numbered(text: str, slot: int) -> str:
  return text.replace('{job}', str(slot))


class Worker:
  """A trial that this process works on; `advance` is called again and again until it gives the trial's state."""

  def __init__(self, plan: Plan, store: study.Store, trial: Any, search: study.Search, launcher: Any, slot: int):
    self.plan, self.store, self.trial, self.launcher, self.slot = plan, store, trial, launcher, slot
    self.number, self.parameters = trial.number, store.parameters(trial, search)
    self.runs, self.workdirs = plan.runs(self.number), plan.workdirs(self.number)
    self.pruned = trial.user_attrs.get('pruned_at') is not None
    self.reported = set(store.storage.get_trial(trial._trial_id).intermediate_values)
    self.seed, self.error, self.ending = 0, '', False
    self.job: jobs.Job | None = None
    self._seen: Any = None
    self._asked = 0.0  # when it was asked to end
    self._idle, self._count = 0, 0  # preemptions without a new record, and records then

  def advance(self) -> str:
    """Starts, follows and ends runs; returns '' while the trial goes on, else 'COMPLETE', 'PRUNED', 'FAIL', or 'LEFT'
    if it was asked to end."""
    if self.job is None:
      return self._next()
    code = self.job.poll()
    if self.seed == 0:
      self._follow()
    if code is None:
      self._press()
      return ''
    self.job = None
    return self._ended(code)

  def end(self) -> None:
    """Asks the run to save and end; the trial is then left for later."""
    self.ending = True

  def _next(self) -> str:
    """Takes up the next run that is not finished."""
    while not self.pruned and self.seed < len(self.runs) and self._settled():
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
    return ''

  def _settled(self) -> bool:
    """Whether the run has ended, and was seen to: the launcher of one that was killed is started again."""
    return finished(self.workdirs[self.seed]) and not (self.runs[self.seed] / RECORD).exists()

  def _follow(self, *, prune: bool = True) -> None:
    """Reports the figures of the first run as they come, and lets the pruner judge them."""
    metric, seen = self.plan.metric, version(self.workdirs[0] / 'metrics.jsonl')
    if metric.final or seen == self._seen or self.pruned:
      return
    self._seen = seen
    for record in records(self.workdirs[0], 'valid'):
      step = int(record['step'])
      if step in self.reported or not isinstance(record.get(metric.name), (int, float, str)):
        continue
      self.reported.add(step)
      self.trial.report(float(record[metric.name]), step)
      if prune and self.plan.pruner != 'none' and self._should_prune(step):
        self.trial.set_user_attr('pruned_at', step)  # first, so that a kill does not undo it
        self.pruned = True
        return

  def _should_prune(self, step: int) -> bool:
    """Asks the pruner, whose first rung is the first step that any trial had a figure of."""
    rungs = self.store.study.user_attrs.get('rungs')
    if rungs is None:
      rungs = [self.plan.least or step, setting(self.workdirs[0], 'train', 'steps') or 0]
      self.store.study.set_user_attr('rungs', rungs)
    self.store.study.pruner = self.store.pruner(self.plan.pruner, rungs[0], rungs[1], self.plan.reduction)
    return self.trial.should_prune()

  def _press(self) -> None:
    """Asks a run to end that is pruned or to be left, and ends it if it does not."""
    if not (self.pruned or self.ending) or self.job is None:
      return
    if not self._asked:
      self._asked = time.monotonic()
      self.job.stop()
    elif time.monotonic() - self._asked > self.plan.grace:
      self.job.kill()

  def _ended(self, code: int) -> str:
    folder, asked = self.workdirs[self.seed], self._asked
    self._asked = 0.0
    if self.pruned:
      return self._next()
    if finished(folder) and code in (0, PREEMPTED):
      return self._next()
    if self.ending and asked:
      return 'LEFT'
    if code == PREEMPTED:
      count = len(records(folder))
      self._idle, self._count = (self._idle + 1, count) if count <= self._count else (0, count)
      if self._idle < PATIENCE:
        self.trial.set_user_attr('restarts', self.trial.user_attrs.get('restarts', 0) + 1)
        return self._next()
    why = {0: ', without results.json', PREEMPTED: f', {PATIENCE} times without getting on'}.get(code, '')
    return self._fail(f'exit code {code}{why}\n{tail(self.runs[self.seed])}', code)

  def _complete(self) -> str:
    """All runs have ended: the mean of their figures is the trial's value."""
    try:
      found = [figure(folder, self.plan.metric) for folder in self.workdirs]
    except InputError as error:
      return self._fail(str(error), 0)
    hashes = {data_hash(folder) for folder in self.workdirs} - {''}
    if len(hashes) > 1:
      return self._fail(f'seeds of one trial: got other data ({", ".join(sorted(hashes))}); expected one data set', 0)
    values = [one.value for one in found]
    self.trial.set_user_attr('values', values)
    if len(values) > 1:
      self.trial.set_user_attr('spread', statistics.stdev(values))
    self.trial.set_user_attr('step', found[0].step)
    return self._conclude('COMPLETE', statistics.fmean(values))

  def _fail(self, error: str, code: int) -> str:
    self.error = error.strip()
    self.trial.set_user_attr('error', self.error)
    self.trial.set_user_attr('exit_code', code)
    return self._conclude('FAIL')

  def _conclude(self, state: str, value: float | None = None) -> str:
    every = [records(folder) for folder in self.workdirs]
    self.trial.set_user_attr('steps', max((r['step'] for r in every[0]), default=0))
    seconds = sum(max((float(r.get('seconds', 0)) for r in run), default=0.0) for run in every)
    self.trial.set_user_attr('seconds', seconds)
    self.store.tell(self.number, state, value)
    return state
