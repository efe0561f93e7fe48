"""Search for an experiment's best settings: many runs of `lmx train`, several at a time, recorded by Optuna.

  python -m launch.sweep --config=experiments/rnn_lm/quickstart.py --workdir=runs/sweep --trials=20 --jobs=2 \\
    --pruner=asha [--config.section.key=value ...]

The experiment's `sweep()` defines the search space: points for a grid, or ranges for random and tpe. Trial 7 is an
ordinary run in the work directory DIR/trials/0007. The sweep follows the metric on the validation split; a trial that
falls behind saves and stops (pruned). However the sweep ends, the same command resumes it: it follows runs that are
still running and resumes the others. Failed runs keep their error.

With --where=slurm, gke or tpu_vm each run is a job of that launcher, with the options --launch.

DIR then has table.md, trials.csv, parallel.png, importance.png, and best.json for `lmx train --config=DIR/best.json`.

Several machines share a study when each runs the same command with --storage=postgresql://USER@HOST/DATABASE and one
--study. Put the password into PGPASSWORD or ~/.pgpass, or the URL into LMX_SWEEP_STORAGE, because command lines are
visible.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shlex
import subprocess
import sys
import traceback
from collections.abc import Sequence

from experiments import spaces
from launch import command, jobs, local, wait
from launch.sweep import metrics, report, study, trial
from launch.sweep.scheduler import Scheduler
from lmx import ranges, storage
from lmx.cli.main import split_overrides
from lmx.config import experiment
from lmx.console import LOG, Console
from lmx.errors import InputError, ReaderGone, explain
from lmx.redaction import redact

RELEASE_SECONDS = 2.0  # seconds for a run that a killed sweep was just starting to release its lock


def read_search(config: str, fixed: Sequence[str]) -> study.Search:
  """Return the search of the `sweep()` of an experiment file. Raises InputError."""
  path, _ = experiment.split(config)
  module = experiment.load(path)
  if not hasattr(module, 'sweep'):
    raise InputError(f'{path} has no function sweep(), which returns the search space')
  with experiment.running(path):
    space = module.sweep()
  return study.Search.create(space, fixed)


def check_config(config: str, overrides: Sequence[str], search: study.Search) -> None:
  """Raise InputError with the message of lmx if the config at the first corner of the search is wrong."""
  points = list(search.points) or spaces.Space(search.axes).corners()
  first = [f'{key}={value}' for key, value in next(iter(points)).items()]
  code = (
    'import sys; from lmx import errors; from lmx.config import resolve\n'
    'try: resolve.load(sys.argv[1], sys.argv[2:])\n'
    'except errors.InputError as error: sys.exit(str(error))'
  )
  done = subprocess.run(
    [sys.executable, '-c', code, config, *overrides, *first], capture_output=True, encoding='utf-8', errors='replace'
  )
  if done.returncode:
    raise InputError(done.stderr.strip())


def check_launch(args: argparse.Namespace, plan: trial.Plan) -> None:
  """Raise InputError if the launcher refuses its options, or if they pass secrets of the sweep to runs."""
  command.search_path(wait.PROGRAMS[args.where])
  tried = plan.command(0, 0, {}, 0, '--dry_run')
  named = [name for name in jobs.SECRETS if {f'--secret={name}', name} & set(tried[: tried.index('--')])]
  if named:
    raise InputError(f'--launch: got {named[0]}, a secret of the sweep; expected none of these')
  done = subprocess.run(
    tried, capture_output=True, encoding='utf-8', errors='replace', env=jobs.environment(), check=False
  )
  if done.returncode:
    raise InputError(f'--launch: {done.stderr.strip()}')


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """Return the arguments, with `--config.*` in `overrides` and the command line in `command`."""
  parser = argparse.ArgumentParser(
    prog='python -m launch.sweep', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = parser.add_argument
  add('--config', required=True, help='experiment file with a sweep(), with :variant if it has any')
  add('--workdir', required=True, help='directory of the sweep; the same command resumes it')
  add('--trials', type=ranges.integer(0), default=0, help='how many in all; by default every point of a grid')
  add('--jobs', type=ranges.integer(1, 100_000), default=1, help='runs at a time')
  add(
    '--seeds',
    type=ranges.integer(1, 100_000),
    default=1,
    help='runs of a trial, with seeds 0, 1, ..., whose metrics are averaged',
  )
  add('--metric', default='loss', help='figure of the validation split, or results.FIGURE; :min or :max if not known')
  add('--sampler', choices=study.SAMPLERS, help='default: grid for points, tpe for a space')
  add('--sampler_seed', type=ranges.seed, default=0, help='the same seed draws the same parameters')
  add('--pruner', choices=study.PRUNERS, default='none', help='stop trials that fall behind on the validation split')
  add(
    '--reduction',
    type=ranges.integer(2, 1_000_000),
    default=3,
    help='asha, hyperband: one of so many continues at each rung',
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
  add('--program', default='', help='program that takes `train ...` and waits for it, such as "srun -n1 lmx"')
  add('--grace', type=ranges.number(0, 1e6), default=300.0, help='seconds that a run has to save before it is killed')
  add(
    '--stale',
    type=ranges.number(0, 1e6),
    default=300.0,
    help='seconds without a sign of life after which another machine is gone',
  )
  add('--poll', type=ranges.number(0, 1e6), default=1.0, help='seconds between two checks of the runs')
  add('--dry_run', action='store_true', help='print the first commands and run nothing')
  rest, overrides = split_overrides(list(argv))
  args = parser.parse_args(rest)
  args.overrides = overrides
  args.command = ' '.join(['python -m launch.sweep', *map(shlex.quote, argv)])
  for name, least in (('trials', 0), ('jobs', 1), ('seeds', 1), ('reduction', 2), ('min_steps', 0)):
    if getattr(args, name) < least:
      parser.error(f'--{name}: got {getattr(args, name)}; expected at least {least}')
  bad = [setting for setting in args.env if not setting.partition('=')[0].isidentifier() or '=' not in setting]
  if bad:
    parser.error(f'--env={bad[0]}: expected NAME=VALUE')
  if storage.is_remote(args.workdir):
    raise InputError(
      f'--workdir: got {args.workdir}; expected a folder on a disk; work directories of runs may be in a bucket, '
      '--runs=gs://BUCKET/PATH'
    )
  if args.where == 'local' and args.launch or args.where != 'local' and args.program:
    parser.error('--launch needs a launcher in --where, and --program needs --where=local')
  args.workdir = storage.check_path('--workdir', args.workdir, storage.FOLDER)
  if args.runs:
    args.runs = wait.check_path('--runs', args.runs, args.where, storage.FOLDER)
  return args


def make_plan(args: argparse.Namespace) -> trial.Plan:
  """Return the plan that all trials share."""
  return trial.Plan(
    program=tuple(shlex.split(args.program)) or local.PROGRAM,
    where=args.where,
    launch=args.launch,
    runs_parent=args.runs and args.runs.rstrip('/'),
    config=args.config,
    overrides=tuple(args.overrides),
    folder=pathlib.Path(args.workdir) / 'trials',
    seeds=args.seeds,
    metric=metrics.Metric.parse(args.metric),
    pruner=args.pruner,
    reduction=args.reduction,
    min_steps=args.min_steps,
    environment=dict(setting.split('=', 1) for setting in args.env),
    grace=args.grace,
  )


def storage_url(args: argparse.Namespace) -> str:
  """Return the URL of the study's storage."""
  folder = pathlib.Path(args.workdir)
  files = {'journal': f'journal:{folder / "study.journal"}', 'sqlite': f'sqlite:///{(folder / "study.db").absolute()}'}
  if args.storage not in files and '://' not in args.storage:
    raise InputError(f'--storage={args.storage}: expected journal, sqlite or a URL such as postgresql://user@host/db')
  return files.get(args.storage, args.storage)


def resolve(args: argparse.Namespace) -> tuple[trial.Plan, study.Search]:
  """Return the plan and the search; fill in the sampler and the number of trials. Raises InputError."""
  plan = make_plan(args)
  fixed = [text.partition('=')[0] for text in args.overrides] + (['seed'] if args.seeds > 1 else [])
  search = read_search(args.config, fixed)
  args.sampler = args.sampler or ('grid' if search.points else 'tpe')
  args.trials = args.trials or (len(search.points) if args.sampler == 'grid' else 0)
  search.check(args.sampler, args.trials)
  if not args.trials:
    raise InputError(f'--trials: expected a number with --sampler={args.sampler}; give --trials=N')
  if plan.metric.final and args.pruner != 'none':
    raise InputError(f'--pruner: --metric={args.metric} is measured only at the end of a run; set --pruner=none')
  return plan, search


def dry_run(args: argparse.Namespace, plan: trial.Plan, search: study.Search) -> None:
  """Print the commands of the first trials."""
  identity = study.Identity.create(plan.folder)
  store = study.Store('', 'dry', plan.metric.direction, args.sampler, args.sampler_seed, identity, args.stale)
  store.enqueue(args.trials, search)
  for number in range(min(args.trials, max(3, args.jobs))):
    claimed = store.claim(args.trials, set(range(number)))
    for seed in range(args.seeds):
      print(redact(shlex.join(plan.command(number, seed, store.parameters(claimed, search), number % args.jobs))))


def sweep(args: argparse.Namespace) -> int:
  """Run or resume the sweep of the arguments; return the exit code."""
  plan, search = resolve(args)
  if args.dry_run:
    dry_run(args, plan, search)
    return 0
  folder, url = plan.folder.parent, storage_url(args)
  if args.where != 'local':
    check_launch(args, plan)
  study.load()
  if not args.program:
    check_config(args.config, args.overrides, search)
  identity = study.Identity.create(folder)
  try:
    folder.mkdir(parents=True, exist_ok=True)
    held = jobs.lock(folder / f'.sweep-{identity.place.partition(":")[0]}', RELEASE_SECONDS)
  except OSError as error:
    raise InputError(f'--workdir={folder}: {explain(error)}') from None
  if held is None:
    raise InputError(
      f'--workdir={folder}: another sweep on this machine uses it; stop that one, or give another --workdir'
    )
  try:
    name, direction = args.study or folder.absolute().name, plan.metric.direction
    store = study.Store(url, name, direction, args.sampler, args.sampler_seed, identity, args.stale)
    settings = {name: getattr(args, name) for name in ('config', 'overrides', 'seeds', 'metric', 'sampler')}
    store.check_settings(settings | {'space': {k: list(v) for k, v in search.axes.items()}})
    store.enqueue(args.trials, search)
    code = Scheduler(args, plan, store, search).run()
    rows = report.rows(store, plan, args.trials)
    report.write(folder, rows, plan, args.command)
    report.draw(folder, rows, plan, search, store)
    print(report.summarize(folder, rows, plan), flush=True)
    return code or int(not any(row.rank for row in rows))  # 1: no trial is complete, so there is no best one
  finally:
    os.close(held)


def main(argv: Sequence[str] | None = None) -> int:
  """Entry point; returns the exit code."""
  words = list(sys.argv[1:] if argv is None else argv)
  return command.run_main('sweep', lambda streams: _main(words, streams), argv is None)


def _main(words: list[str], streams: Console) -> int:
  url = os.environ.get('LMX_SWEEP_STORAGE', '')
  try:
    args = parse(words)
    url = args.storage
    args.command = study.redact(args.command, url)
    if not args.dry_run:
      streams.keep(pathlib.Path(args.workdir, LOG))
    return sweep(args)
  except InputError as error:
    raise InputError(study.redact(str(error), url)) from None
  except ReaderGone:
    raise
  except Exception:
    print(study.redact(traceback.format_exc(), url), file=sys.stderr)
    return 1


if __name__ == '__main__':
  sys.exit(main())
