"""Search for an experiment's best settings: many runs of `lmx train`, several at a time, recorded by Optuna.

  python -m launch.sweep --config=experiments/rnn_lm/quickstart.py --workdir=runs/sweep --trials=20 --jobs=2 \\
    --pruner=asha [--space KEY=VALUES ...] [--config.section.key=value ...]

The experiment's `sweep()` and --space define the search space: points for a grid, or ranges for random and tpe. Trial 7
is an ordinary run in the work directory DIR/trials/0007. The sweep follows the metric on the validation split; a trial
that falls behind saves and stops (pruned). However the sweep ends, the same command resumes it: it follows runs that
are still running and resumes the others. Failed runs keep their error.

With --where=slurm, gke, tpu_vm or gce each run is a job of that launcher, with the options --launch.

DIR then has table.md, trials.csv, parallel.png, importance.png, expected.png (the expected best validation over k
trials), and best.json for `lmx train --config=DIR/best.json`.

Several machines share a study when each runs the same command with --storage=postgresql://USER@HOST/DATABASE and one
--study. Put the password into PGPASSWORD or ~/.pgpass, or the URL into LMX_SWEEP_STORAGE, because command lines are
visible.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import shlex
import subprocess
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from experiments import spaces
from launch import command, jobs, local, wait
from launch.sweep import budget, metrics, options, report, space, study, trial
from launch.sweep.scheduler import Scheduler
from lmx import storage
from lmx.cli.main import split_overrides
from lmx.config import experiment
from lmx.console import LOG, Console
from lmx.errors import InputError, ReaderGone, explain
from lmx.redaction import redact

UNLIMITED = 1_000_000  # trials of a sweep that only a budget ends
_FILES = {'journal': 'study.journal', 'sqlite': 'study.db'}  # of --storage, in --workdir
RELEASE_SECONDS = 2.0  # seconds for a run that a killed sweep was just starting to release its lock


def read_search(config: str, fixed: Sequence[str], given: spaces.Space | None = None) -> study.Search:
  """Return the search of the `sweep()` of an experiment file and the axes `given` by --space. Raises InputError."""
  given = given or spaces.Space()
  for key in (key for key in given if key in fixed):
    raise InputError(
      f'--space: got {key}, which --config.{key} or --seeds fixes; expected one of the two; omit the other'
    )
  swept = _read_swept(config, is_required=not given)
  search = study.Search.create(space.combine(swept, given), fixed)
  axes = study.Search.create(swept).axes if swept else {}
  return dataclasses.replace(search, lines=tuple(space.describe(search.axes, given, axes)))


def _read_swept(config: str, is_required: bool) -> space.Swept:
  """Return the result of the `sweep()` of an experiment file, an empty space if it has none. Raises InputError."""
  path, _ = experiment.split(config)
  module: Any = None if path.endswith('.json') else experiment.load(path)
  if not hasattr(module, 'sweep'):
    if is_required:
      raise InputError(
        f'{path} has no function sweep(), which returns the search space; give --space KEY=VALUES, such as --space '
        f"'optim.lr=log:1e-4..1e-2'"
      )
    return spaces.Space()
  with experiment.running(path):
    swept = module.sweep()
    return swept if isinstance(swept, spaces.Space) else list(swept)


def check_config(args: argparse.Namespace, plan: trial.Plan, search: study.Search) -> None:
  """Check config, space, and before the first trial also data, labels and weights, in a process that imports JAX.

  The data are checked only for runs on this machine.

  Raises:
    InputError: the first trial would end with an input error, or a value of the space is refused.
  """
  is_first = args.where == 'local' and not plan.folder.exists()
  request = {
    'config': args.config,
    'overrides': args.overrides,
    'lists': [text for text in args.overrides if space.is_list(text.partition('=')[2])],
    'values': list(space.samples(search)),
    'workdir': str(plan.workdirs(0)[0]) if is_first else '',
  }
  done = subprocess.run(
    [sys.executable, '-m', 'lmx.cli.dry_start'],
    input=json.dumps(request),
    env={**jobs.environment(), **plan.settings(0), 'JAX_PLATFORMS': 'cpu'},
    stdout=subprocess.PIPE,
    encoding='utf-8',
    errors='replace',
    check=False,
  )
  if done.returncode == command.INPUT_ERROR:
    raise InputError(done.stdout.strip())
  done.check_returncode()


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
  options.add(parser)
  rest, overrides = split_overrides(list(argv))
  args = parser.parse_args(rest)
  args.overrides = overrides
  args.command = ' '.join(['python -m launch.sweep', *map(shlex.quote, argv)])
  args.timeout = budget.seconds('--timeout', args.timeout) if args.timeout else None
  args.budget = budget.Budget.parse(args.budget) if args.budget else None
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
  elif args.where in wait.OWN_FILES and not os.path.isabs(args.workdir):
    raise InputError(
      f'--runs: got none with --where={args.where}, whose machines keep no files; give --runs=gs://BUCKET/runs'
    )
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
    counts_flops=args.budget is not None and args.budget.unit == 'flops',
  )


def storage_url(args: argparse.Namespace) -> str:
  """Return the URL of the study's storage."""
  folder = pathlib.Path(args.workdir)
  files = {
    'journal': f'journal:{folder / _FILES["journal"]}',
    'sqlite': f'sqlite:///{(folder / _FILES["sqlite"]).absolute()}',
  }
  if args.storage not in files and '://' not in args.storage:
    raise InputError(f'--storage={args.storage}: expected journal, sqlite or a URL such as postgresql://user@host/db')
  return files.get(args.storage, args.storage)


def resolve(args: argparse.Namespace) -> tuple[trial.Plan, study.Search]:
  """Return the plan and the search; fill in the sampler and the number of trials. Raises InputError."""
  plan = make_plan(args)
  fixed = [text.partition('=')[0] for text in args.overrides] + (['seed'] if args.seeds > 1 else [])
  search = read_search(args.config, fixed, space.parse(args.space))
  args.sampler = args.sampler or ('grid' if search.points else 'tpe')
  args.trials = args.trials or (len(search.points) if args.sampler == 'grid' else 0)
  search.check(args.sampler, args.trials)
  args.open_ended = not args.trials
  if args.open_ended and args.budget is None:
    raise InputError(f'--trials: expected a number with --sampler={args.sampler}; give --trials=N or --budget')
  args.trials = args.trials or UNLIMITED
  if args.startup_trials is not None and args.sampler != 'tpe':
    raise InputError(f'--startup_trials: got it with --sampler={args.sampler}; expected tpe; omit it')
  args.startup_trials = args.startup_trials or study.STARTUP_TRIALS
  if plan.metric.final and args.pruner != 'none':
    raise InputError(f'--pruner: --metric={args.metric} is measured only at the end of a run; set --pruner=none')
  is_random = args.sampler == 'tpe' and args.trials <= args.startup_trials
  return dataclasses.replace(plan, sampler='random' if is_random else args.sampler), search


def startup_note(args: argparse.Namespace) -> str:
  """Return the line on the random trials of tpe, '' for other samplers."""
  count, trials = args.startup_trials, args.trials
  if args.sampler != 'tpe':
    return ''
  if count >= trials:
    return (
      f'warning: all {trials} trials are random, because tpe proposes a trial only once {count} have ended; for fewer '
      'set --startup_trials'
    )
  number = f'the first {count}' if args.open_ended else f'{count} of {trials}'
  more = f', and those begun before {count} have ended' if args.jobs > 1 else ''
  return f'tpe: {number} trials are random (--startup_trials){more}'


def dry_run(args: argparse.Namespace, plan: trial.Plan, search: study.Search) -> None:
  """Print the commands of the first trials."""
  print('\n'.join([*search.lines, startup_note(args)]).strip(), file=sys.stderr)
  identity, count = study.Identity.create(plan.folder), min(args.trials, max(3, args.jobs))
  store = study.Store('', 'dry', plan.metric.direction, args.sampler, args.sampler_seed, identity, args.stale)
  folder = plan.folder.parent
  if args.storage in _FILES and (folder / _FILES[args.storage]).exists():
    name = args.study or folder.absolute().name
    store.check_saved_settings(storage_url(args), name, _settings(args, search), _show_setting)
  store.enqueue(count, search)
  for number in range(count):
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
    check_config(args, plan, search)
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
    name = args.study or folder.absolute().name
    store = study.Store(
      url,
      name,
      plan.metric.direction,
      args.sampler,
      args.sampler_seed,
      identity,
      args.stale,
      args.startup_trials,
    )
    store.check_settings(_settings(args, search), _show_setting)
    print('\n'.join([*search.lines, startup_note(args)]).strip(), flush=True)
    store.enqueue(0 if args.open_ended else args.trials, search)
    code = Scheduler(args, plan, store, search).run()
    rows = report.rows(store, plan, args.trials)
    report.write(folder, rows, plan, args.command)
    report.draw(folder, rows, plan, search, store)
    print(report.summarize(folder, rows, plan), flush=True)
    return code or int(not any(row.rank for row in rows))  # 1: no trial is complete, so there is no best one
  finally:
    os.close(held)


def _settings(args: argparse.Namespace, search: study.Search) -> dict[str, Any]:
  """Return the settings that a study keeps."""
  names = ['config', 'overrides', 'seeds', 'metric', 'sampler', *(['startup_trials'] if args.sampler == 'tpe' else [])]
  return {name: getattr(args, name) for name in names} | {'space': {k: list(v) for k, v in search.axes.items()}}


def _show_setting(name: str, value: Any) -> str:
  """Return a setting of a study for a message, the space as `--space` takes it."""
  if name != 'space' or not isinstance(value, dict):
    return repr(value)
  return ' '.join(f"--space '{key}={space.format_axis(axis)}'" for key, axis in value.items())


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
