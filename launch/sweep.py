"""Looks for the best settings of an experiment: many runs of `lmx train`, some at a time, remembered by Optuna.

  python -m launch.sweep --config=experiments/rnn_lm/quickstart.py --workdir=runs/sweep --trials=20 --jobs=2 \\
    --pruner=asha [--config.section.key=value ...]

What is varied is what the experiment's `sweep()` says: points, which a grid walks, or a space, from which random and
tpe draw. Trial 7 is the work directory DIR/trials/0007 of an ordinary run. It follows the metric on the validation
split; what falls behind is told to save and stop (pruned). Whatever stops the sweep, the same command goes on: runs
that still go are taken up, others resume where they were. Runs that fail keep their error and are left behind.

With --where=slurm, gke or tpu_vm each run is given to that launcher, with the options --launch, as a job of its own.

DIR then has table.md, trials.csv, parallel.png, importance.png, and best.json for `lmx train --config=DIR/best.json`.

Several machines share a study when each runs the same command with --storage=postgresql://USER@HOST/DATABASE and one
--study. Put the password into PGPASSWORD or ~/.pgpass, or the URL into LMX_SWEEP_STORAGE: a command line can be seen.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

from experiments import spaces
from launch import command, figures, jobs, local, study, sweep_report, trials, wait
from launch.command import PREEMPTED
from lmx import ranges
from lmx.cli.main import split_overrides
from lmx.config import experiment
from lmx.errors import InputError

LETTING_GO = 2.0  # seconds that a run which a killed sweep was just starting may take to let go of its lock


def read_search(config: str, fixed: Sequence[str]) -> study.Search:
  """What `sweep()` of an experiment file gives. Raises InputError."""
  path = config.partition(':')[0]
  module = experiment.load(path)
  if not hasattr(module, 'sweep'):
    raise InputError(f'{path} has no function sweep() that says what to vary')
  return study.Search.of(module.sweep(), fixed)


def check_config(config: str, overrides: Sequence[str], search: study.Search) -> None:
  """Raises InputError with what lmx says of the config at the first corner of the search."""
  points = list(search.points) or spaces.Space(search.axes).corners()
  first = [f'{key}={value}' for key, value in next(iter(points)).items()]
  code = (
    'import sys; from lmx import errors; from lmx.config import resolve\n'
    'try: resolve.load(sys.argv[1], sys.argv[2:])\n'
    'except errors.InputError as error: sys.exit(str(error))'
  )
  done = subprocess.run([sys.executable, '-c', code, config, *overrides, *first], capture_output=True, text=True)
  if done.returncode:
    raise InputError(done.stderr.strip())


def check_launch(args: argparse.Namespace, plan: trials.Plan) -> None:
  """Raises InputError with what the launcher says of its options, or if it would give secrets of the sweep to runs."""
  command.search_path(wait.PROGRAMS[args.where])
  tried = plan.command(0, 0, {}, 0, '--dry_run')
  named = [name for name in jobs.SECRETS if {f'--secret={name}', name} & set(tried[: tried.index('--')])]
  if named:
    raise InputError(f'--launch: {named[0]} is not for the runs')
  done = subprocess.run(tried, capture_output=True, text=True, env=jobs.environment(), check=False)
  if done.returncode:
    raise InputError(f'--launch: {done.stderr.strip()}')


class Sweep:
  """The loop that keeps the workers busy."""

  def __init__(self, args: argparse.Namespace, plan: trials.Plan, store: study.Store, search: study.Search):
    self.args, self.plan, self.store, self.search = args, plan, store, search
    self.launcher = jobs.Local(passes=args.where != 'local')
    self.workers: dict[int, trials.Worker] = {}  # by slot
    self.told = 0  # signals that have come, of which `number` is the first
    self.number = 0
    self._asked = self._beaten = -1e9

  def run(self) -> int:
    """Works until every trial has ended (0), or until told to stop: 75 after SIGTERM, 130 after Ctrl-C."""
    old = {number: signal.signal(number, self._tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
      while not self._done():
        self._fill()
        self._advance()
        self._beat()
        time.sleep(self.args.poll)
    finally:
      for worker in self.workers.values():
        if worker.job is not None:
          worker.job.stop()  # only after an error, such as a database that is gone
      for number, handler in old.items():
        signal.signal(number, handler)
    if self.told:
      self._say(f'stopped; `{self.args.command}` continues')
    return {0: 0, signal.SIGTERM: PREEMPTED, signal.SIGINT: 130}[self.number]

  def _tell(self, number: int, frame: Any) -> None:
    del frame
    self.told, self.number = self.told + 1, self.number or number
    for worker in self.workers.values():
      worker.end()
      if self.told > 1 and worker.job is not None:
        worker.job.kill()

  def _done(self) -> bool:
    if self.workers:
      return False
    if self.told:
      return True
    left = [t for t in self.store.trials('WAITING', 'RUNNING') if t.number < self.args.trials]
    if left and not self._may_ask():
      time.sleep(min(1.0, self.args.stale / 10))  # for those of other machines
    return not left

  def _may_ask(self) -> bool:
    return time.monotonic() - self._asked > min(5.0, self.args.stale / 10)

  def _fill(self) -> None:
    """Gives a trial to every worker that has none."""
    free = [slot for slot in range(self.args.jobs) if slot not in self.workers]
    if not free or self.told or not self._may_ask():
      return
    while free:
      trial = self.store.claim(self.args.trials, {worker.number for worker in self.workers.values()})
      if trial is None:
        self._asked = time.monotonic()  # ask again in a while: another machine may have gone
        return
      kept = trial.user_attrs.get('slot')  # where it was begun: its machine may be that worker's
      slot = kept if kept in free else free[0]
      free.remove(slot)
      trial.set_user_attr('slot', slot)
      worker = trials.Worker(self.plan, self.store, trial, self.search, self.launcher, slot)
      self.workers[slot] = worker
      self._say(f'trial {trial.number:04d}: ' + ' '.join(f'{k}={v}' for k, v in worker.parameters.items()))

  def _advance(self) -> None:
    for slot, worker in list(self.workers.items()):
      state = worker.advance()
      if not state:
        continue
      del self.workers[slot]
      self._asked = -1e9
      if state != 'LEFT':
        self._report(worker, state)

  def _report(self, worker: trials.Worker, state: str) -> None:
    """Says how a trial has ended and where the sweep stands, and writes the table anew."""
    rows = sweep_report.rows(self.store, self.plan, self.args.trials)
    row = next(row for row in rows if row.number == worker.number)
    how = {'COMPLETE': 'done', 'PRUNED': f'pruned at step {row.step}', 'FAIL': 'failed'}[state]
    value = f', {self.plan.metric.name} {row.value:.6g}' if row.value is not None and state != 'FAIL' else ''
    said = f'trial {worker.number:04d}: {how}{value}'
    if state == 'FAIL':
      lines = worker.error.splitlines()
      said += f' ({": ".join(dict.fromkeys([lines[0], lines[-1]]))})'
    self._say(said)
    ended = sum(row.state in ('COMPLETE', 'PRUNED', 'FAIL') for row in rows)
    best = next((f'; best {row.value:.6g}, trial {row.number:04d}' for row in rows if row.rank == 1), '')
    self._say(f'{ended}/{self.args.trials} trials{best}')
    sweep_report.write(self.plan.folder.parent, rows, self.plan, self.args.command)

  def _beat(self) -> None:
    """Shows other machines that this one lives."""
    now = time.monotonic()
    if now - self._beaten > self.args.stale / 6:
      for worker in self.workers.values():
        worker.trial.set_user_attr('pulse', round(now, 3))
      self._beaten = now

  def _say(self, words: str) -> None:
    print(f'[{time.strftime("%H:%M:%S")}] {words}', flush=True)


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """The arguments, with `--config.*` in `overrides` and the command as it may be written down in `command`."""
  parser = argparse.ArgumentParser(
    prog='python -m launch.sweep', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('--config', required=True, help='experiment file with a sweep(), with :variant if it has any')
  add('--workdir', required=True, help='where the sweep lives; the same command goes on there')
  add('--trials', type=ranges.integer(0), default=0, help='how many in all; by default every point of a grid')
  add('--jobs', type=ranges.integer(1, 100_000), default=1, help='runs at a time')
  add(
    '--seeds',
    type=ranges.integer(1, 100_000),
    default=1,
    help='runs of a trial, with seeds 0, 1, ..., whose figures are averaged',
  )
  add('--metric', default='loss', help='figure of the validation split, or results.FIGURE; :min or :max if not known')
  add('--sampler', choices=study.SAMPLERS, help='default: grid for points, tpe for a space')
  add('--sampler_seed', type=ranges.seed, default=0, help='the same seed draws the same parameters')
  add('--pruner', choices=study.PRUNERS, default='none', help='stops what falls behind on the validation split')
  add(
    '--reduction',
    type=ranges.integer(2, 1_000_000),
    default=3,
    help='asha, hyperband: one of so many goes on at each rung',
  )
  add(
    '--min_steps', type=ranges.integer(0), default=0, help='updates before any is pruned; 0: until the first validation'
  )
  add(
    '--storage',
    default=os.environ.get('LMX_SWEEP_STORAGE', 'journal'),
    help='journal or sqlite (files in DIR), or a URL of SQLAlchemy; LMX_SWEEP_STORAGE, else journal',
  )
  add('--study', default='', help='name of the study where a database holds several; default: name of DIR')
  add('--env', action='append', default=[], help='NAME=VALUE for the runs; {job} is the worker, 0 to J-1')
  add('--where', choices=('local', *wait.LAUNCHERS), default='local', help='each run a job of this launcher')
  add('--launch', default='', help='options of that launcher, as one text; {job} is the worker, as in --env')
  add('--runs', default='', help='where the work directories are that the runs see, such as gs://...; DIR/trials')
  add('--program', default='', help='what `train ...` is given to and waits for it, such as "srun -n1 lmx"')
  add('--grace', type=ranges.number(0, 1e6), default=300.0, help='seconds that a run has to save before it is killed')
  add(
    '--stale',
    type=ranges.number(0, 1e6),
    default=300.0,
    help='seconds without a sign of life after which another machine is gone',
  )
  add('--poll', type=ranges.number(0, 1e6), default=1.0, help='seconds between two looks at the runs')
  add('--dry_run', action='store_true', help='print the first commands and run nothing')
  rest, overrides = split_overrides(list(argv))
  args = parser.parse_args(rest)
  args.overrides = overrides
  args.command = ' '.join(['python -m launch.sweep', *map(shlex.quote, argv)])
  for name, least in (('trials', 0), ('jobs', 1), ('seeds', 1), ('reduction', 2), ('min_steps', 0)):
    if getattr(args, name) < least:
      parser.error(f'--{name} is {getattr(args, name)}; it must be at least {least}')
  bad = [setting for setting in args.env if not setting.partition('=')[0].isidentifier() or '=' not in setting]
  if bad:
    parser.error(f'--env={bad[0]}: write NAME=VALUE')
  if '://' in args.workdir:
    parser.error('--workdir must be on a disk; work directories of the runs may be on a bucket: --runs=gs://...')
  if args.where == 'local' and args.launch or args.where != 'local' and args.program:
    parser.error('--launch goes with --where, and --program with --where=local')
  return args


def make_plan(args: argparse.Namespace) -> trials.Plan:
  """What all trials have in common, from the arguments."""
  return trials.Plan(
    program=tuple(shlex.split(args.program)) or local.PROGRAM,
    where=args.where,
    launch=args.launch,
    places=args.runs and args.runs.rstrip('/'),
    config=args.config,
    overrides=tuple(args.overrides),
    folder=pathlib.Path(args.workdir) / 'trials',
    seeds=args.seeds,
    metric=figures.Metric.of(args.metric),
    pruner=args.pruner,
    reduction=args.reduction,
    least=args.min_steps,
    environment=dict(setting.split('=', 1) for setting in args.env),
    grace=args.grace,
  )


def storage_url(args: argparse.Namespace) -> str:
  """Where the study is kept."""
  folder = pathlib.Path(args.workdir)
  files = {'journal': f'journal:{folder / "study.journal"}', 'sqlite': f'sqlite:///{(folder / "study.db").absolute()}'}
  if args.storage not in files and '://' not in args.storage:
    raise InputError(f'--storage={args.storage}: it must be journal, sqlite or a URL such as postgresql://user@host/db')
  return files.get(args.storage, args.storage)


def settle(args: argparse.Namespace) -> tuple[trials.Plan, study.Search]:
  """What is to be done, with the sampler and the number of trials filled in. Raises InputError."""
  plan = make_plan(args)
  fixed = [text.partition('=')[0] for text in args.overrides] + (['seed'] if args.seeds > 1 else [])
  search = read_search(args.config, fixed)
  args.sampler = args.sampler or ('grid' if search.points else 'tpe')
  args.trials = args.trials or (len(search.points) if args.sampler == 'grid' else 0)
  search.check(args.sampler, args.trials)
  if not args.trials:
    raise InputError(f'--sampler={args.sampler} draws without end: say how many --trials=N')
  if plan.metric.final and args.pruner != 'none':
    raise InputError(f'--metric={args.metric} is known only at the end: it cannot be pruned by')
  return plan, search


def dry_run(args: argparse.Namespace, plan: trials.Plan, search: study.Search) -> None:
  """Prints the commands of the first trials."""
  here = study.Here.of(plan.folder)
  store = study.Store('', 'dry', plan.metric.direction, args.sampler, args.sampler_seed, here, args.stale)
  store.fill(args.trials, search)
  for number in range(min(args.trials, max(3, args.jobs))):
    trial = store.claim(args.trials, set(range(number)))
    for seed in range(args.seeds):
      print(shlex.join(plan.command(number, seed, store.parameters(trial, search), number % args.jobs)))


def sweep(args: argparse.Namespace) -> int:
  """Runs, or goes on with, the sweep that the arguments describe; returns the exit code."""
  plan, search = settle(args)
  if args.dry_run:
    dry_run(args, plan, search)
    return 0
  folder, url = plan.folder.parent, storage_url(args)
  if args.where != 'local':
    check_launch(args, plan)
  study.load()
  if not args.program:
    check_config(args.config, args.overrides, search)
  here = study.Here.of(folder)
  try:
    folder.mkdir(parents=True, exist_ok=True)
    held = jobs.lock(folder / f'.sweep-{here.place.partition(":")[0]}', LETTING_GO)
  except OSError as error:
    raise InputError(f'--workdir={folder}: {error.strerror}') from None
  if held is None:
    raise InputError(f'another sweep works in {folder} on this machine; stop it first, or choose another --workdir')
  try:
    name, direction = args.study or folder.absolute().name, plan.metric.direction
    store = study.Store(url, name, direction, args.sampler, args.sampler_seed, here, args.stale)
    settings = {name: getattr(args, name) for name in ('config', 'overrides', 'seeds', 'metric', 'sampler')}
    store.settle(settings | {'space': {k: list(v) for k, v in search.axes.items()}})
    store.fill(args.trials, search)
    code = Sweep(args, plan, store, search).run()
    rows = sweep_report.rows(store, plan, args.trials)
    sweep_report.write(folder, rows, plan, args.command)
    sweep_report.draw(folder, rows, plan, search, store)
    print(sweep_report.summary(folder, rows, plan), flush=True)
    return code
  finally:
    os.close(held)


def main(argv: Sequence[str] | None = None) -> int:
  """Entry point; returns the exit code."""
  argv = list(sys.argv[1:] if argv is None else argv)
  url = os.environ.get('LMX_SWEEP_STORAGE', '')
  try:
    args = parse(argv)
    url = args.storage
    args.command = study.hidden(args.command, url)
    return sweep(args)
  except InputError as error:
    print(f'launch.sweep: {study.hidden(str(error), url)}', file=sys.stderr)
    return 2
  except Exception:
    print(study.hidden(traceback.format_exc(), url), file=sys.stderr)
    return 1


if __name__ == '__main__':
  sys.exit(main())
