"""One trial of a sweep: its runs one after another, each an ordinary work directory that is followed and resumed."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import statistics
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from launch import jobs, study
from launch.command import PREEMPTED
from lmx.errors import InputError

FALLING = ('loss', 'nll', 'perplexity', 'bits', 'error', 'cost')  # what begins so is better lower
RISING = ('accuracy', 'f1', 'bleu', 'matthews', 'pearson', 'spearman', 'exact_match', 'best_f1', 'mlm_accuracy',
          'nsp_accuracy', 'token_accuracy', 'filtered_accuracy', 'answered_f1', 'span_f1')  # fmt: skip
PATIENCE = 5  # a run that is preempted so often without a new figure has failed


@dataclasses.dataclass(frozen=True)
class Metric:
  """What a sweep is after.

  Attributes:
    name: of the figure.
    direction: 'minimize' or 'maximize'.
    final: from results.json, once a run has ended; else of the validation split, during the run.
  """

  name: str
  direction: str
  final: bool = False

  @classmethod
  def of(cls, text: str) -> Metric:
    """From 'loss', 'accuracy', 'reward:max', 'results.bleu'. Raises InputError."""
    name, _, order = text.partition(':')
    final, name = name.startswith('results.'), name.removeprefix('results.')
    known = {'min': 'minimize', 'max': 'maximize'}
    guess = 'max' if name in RISING else 'min' if name.startswith(FALLING) else ''
    if (order or guess) not in known or not name:
      raise InputError(f'--metric={text}: say whether less or more of it is better: {name or "NAME"}:min or :max')
    return cls(name, known[order or guess], final)


class Figure(NamedTuple):
  """A figure of a run, the step it is of, and how far and how long the run went."""

  value: float
  step: int
  steps: int
  seconds: float


def records(folder: pathlib.Path, split: str = '') -> list[dict[str, Any]]:
  """The records of metrics.jsonl, of one split or of all, the last of each step; a half-written line is left out."""
  path, found = folder / 'metrics.jsonl', {}
  for line in path.read_text(errors='replace').split('\n') if path.exists() else []:
    try:
      record = json.loads(line)
      if not split or record['split'] == split:
        found[int(record['step']), record['split']] = record
    except (ValueError, KeyError, TypeError):
      continue
  return [found[key] for key in sorted(found)]


def finished(folder: pathlib.Path) -> bool:
  """Whether a run has ended."""
  return (folder / 'results.json').exists()


def setting(folder: pathlib.Path, section: str, key: str) -> Any:
  """A setting of a run's own config.json; None without it."""
  try:
    return json.loads((folder / 'config.json').read_text())[section][key]
  except (OSError, ValueError, KeyError, TypeError):
    return None


def figure(folder: pathlib.Path, metric: Metric) -> Figure:
  """What a finished run has reached: on the validation split, of the parameters that the run measures, which are the
  best by loss unless its `evaluation.which` says otherwise.

  Raises:
    InputError: there is no such figure, or it is not finite.
  """
  every = records(folder)
  steps = max((record['step'] for record in every), default=0)
  seconds = max((float(record.get('seconds', 0)) for record in every), default=0.0)
  if metric.final:
    candidates = [{'step': steps, **json.loads((folder / 'results.json').read_text())}]
  else:
    candidates = [record for record in every if record['split'] == 'valid']
  having = [record for record in candidates if isinstance(record.get(metric.name), (int, float, str))]
  if not having:
    known = sorted({k for record in candidates for k, v in record.items() if isinstance(v, float)} - {'seconds'})
    raise InputError(f'the run left no figure "{metric.name}"; it has: {", ".join(known) or "none"}')
  last = metric.final or setting(folder, 'evaluation', 'which') in ('last', 'average')
  chosen = having[-1] if last else min(having, key=lambda record: _number(record.get('loss', 0.0)))
  value = float(chosen[metric.name])
  if not math.isfinite(value):
    raise InputError(f'the figure "{metric.name}" of the run is {value}')
  return Figure(value, int(chosen['step']), steps, seconds)


def _number(value: Any) -> float:
  return math.inf if math.isnan(float(value)) else float(value)


def tail(folder: pathlib.Path, lines: int = 20, most: int = 2000) -> str:
  """The end of what a run has printed."""
  path = folder / jobs.LOG
  return '\n'.join(path.read_text(errors='replace').splitlines()[-lines:])[-most:] if path.exists() else ''


@dataclasses.dataclass(frozen=True)
class Plan:
  """What is the same for all trials.

  Attributes:
    program: what `train ...` is given to.
    config: experiment file, with :variant.
    overrides: 'section.key=value' of all trials.
    folder: where the trials' directories are.
    seeds: runs of a trial; with 1 the seed is the config's.
    metric: what is sought.
    pruner: one of study.PRUNERS.
    reduction: one of so many trials goes on at each rung.
    least: steps before which nothing is pruned; 0 is the first look at the validation split.
    environment: variables of a run; {job} stands for the number of its worker.
    grace: seconds from SIGTERM to SIGKILL.
  """

  program: tuple[str, ...]
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
    """The work directories of a trial."""
    folder = self.folder / f'{number:04d}'
    return [folder] if self.seeds == 1 else [folder / f'seed_{seed}' for seed in range(self.seeds)]

  def command(self, number: int, seed: int, parameters: Mapping[str, str]) -> list[str]:
    """What trains one run."""
    settings = [*self.overrides, *(f'{key}={value}' for key, value in parameters.items())]
    settings += [f'seed={seed}'] if self.seeds > 1 else []
    return [*self.program, 'train', f'--config={self.config}', f'--workdir={self.runs(number)[seed]}',
            *(f'--config.{text}' for text in settings)]  # fmt: skip


class Worker:
  """A trial that this process works on; `advance` is called again and again until it gives the trial's state."""

  def __init__(self, plan: Plan, store: study.Store, trial: Any, search: study.Search, launcher: Any, slot: int):
    self.plan, self.store, self.trial, self.launcher, self.slot = plan, store, trial, launcher, slot
    self.number, self.parameters = trial.number, store.parameters(trial, search)
    self.runs = plan.runs(self.number)
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
    while not self.pruned and self.seed < len(self.runs) and finished(self.runs[self.seed]):
      if self.seed == 0:
        self._follow(prune=False)
      self.seed += 1
    if self.seed == len(self.runs):
      return self._complete()
    folder = self.runs[self.seed]
    self.job = self.launcher.find(folder)
    if self.job is None and self.pruned:
      return self._conclude('PRUNED')
    if self.job is None and self.ending:
      return 'LEFT'
    if self.job is None:
      added = {name: value.replace('{job}', str(self.slot)) for name, value in self.plan.environment.items()}
      folder.mkdir(parents=True, exist_ok=True)
      self.job = self.launcher.start(self.plan.command(self.number, self.seed, self.parameters), folder, added)
    return ''

  def _follow(self, *, prune: bool = True) -> None:
    """Reports the figures of the first run as they come, and lets the pruner judge them."""
    metric, path = self.plan.metric, self.runs[0] / 'metrics.jsonl'
    state = path.stat() if path.exists() else None
    seen = state and (state.st_mtime_ns, state.st_size, state.st_ino)
    if metric.final or seen == self._seen or self.pruned:
      return
    self._seen = seen
    for record in records(self.runs[0], 'valid'):
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
      rungs = [self.plan.least or step, setting(self.runs[0], 'train', 'steps') or 0]
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
    folder, asked = self.runs[self.seed], self._asked
    self._asked = 0.0
    if self.pruned:
      return self._conclude('PRUNED')
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
    return self._fail(f'exit code {code}{why}\n{tail(folder)}', code)

  def _complete(self) -> str:
    """All runs have ended: the mean of their figures is the trial's value."""
    try:
      found = [figure(folder, self.plan.metric) for folder in self.runs]
    except InputError as error:
      return self._fail(str(error), 0)
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
    every = [records(folder) for folder in self.runs]
    self.trial.set_user_attr('steps', max((r['step'] for r in every[0]), default=0))
    seconds = sum(max((float(r.get('seconds', 0)) for r in run), default=0.0) for run in every)
    self.trial.set_user_attr('seconds', seconds)
    self.store.tell(self.number, state, value)
    return state
