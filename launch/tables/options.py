"""Options of `python -m launch.tables`."""

from __future__ import annotations

import argparse
import fnmatch
import glob
import os
import pathlib
from collections.abc import Collection, Sequence

from experiments.tables import DATA, Row, Table
from launch import wait
from launch.tables import launching, needs, pod
from launch.tables import plan as plans
from lmx import ranges, storage
from lmx.errors import InputError, nearest

RUNS = 'runs/tables,runs'
SHOWN_RUNS = 'gs://BUCKET/runs'  # in a dry run without --runs


def parser(description: str = '') -> argparse.ArgumentParser:
  """Return the parser of the command line."""
  parser = argparse.ArgumentParser(
    prog='python -m launch.tables',
    description=description,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  parser.add_argument('table', nargs='?', help='name of a table')
  parser.add_argument('--list', action='store_true', help='show all tables, or the rows of one')
  parser.add_argument(
    '--feasible', choices=tuple(needs.HARDWARE), help='show the rows that this hardware can run, and their needs'
  )
  parser.add_argument('--decks', action='store_true', help='show the tables of the decks as printed')
  parser.add_argument(
    '--pages', nargs='?', const='', metavar='DIR', help='write the pages of docs/results, or into DIR'
  )
  parser.add_argument('--check', action='store_true', help='check that every line of measured.csv can be run again')
  parser.add_argument('--rerun', action='store_true', help='run lines of measured.csv again and compare')
  parser.add_argument('--start', default='', metavar='DIR', help='--rerun: run that the lines start from')
  parser.add_argument('--record', action='store_true', help='add the metrics to experiments/tables/measured.csv')
  parser.add_argument('--rows', default='', help='only these: ids, ends of ids or patterns, with commas between')
  parser.add_argument('--runs', default=RUNS, help='directories of runs, with commas; new ones go into the first')
  parser.add_argument('--data', action='append', default=[], metavar='[NAME=]DIR', help='where data and weights are')
  parser.add_argument(
    '--seeds',
    nargs='?',
    type=ranges.integer(0, 100_000),
    default=0,
    help='how many seeds of each run (default: as the table asks)',
  )
  parser.add_argument('--jobs', type=ranges.integer(1, 100_000), default=1, help='runs at once on this machine')
  parser.add_argument('--where', default='local', help='local, or a launcher: slurm, gke, tpu_vm, gce')
  parser.add_argument('--launch', default='', help='options of that launcher, as one text')
  parser.add_argument('--again', action='store_true', help='submit again to the launcher what was submitted before')
  parser.add_argument('--collect', action='store_true', help='only render existing results')
  parser.add_argument('--dry_run', action='store_true', help='print the commands and run nothing')
  parser.add_argument(
    '--rehearse',
    default='',
    metavar='DIR',
    help='run the commands of a pod in DIR: tiny variants, two processes, a folder for the bucket',
  )
  parser.add_argument('--options', default='', help="added to every experiment's argument, such as epochs=6")
  parser.add_argument(
    '--output',
    default='',
    help='directory of the rendered table (default: DIR/tables; runs/TABLE/tables if DIR is in a bucket)',
  )
  return parser


def check(args: argparse.Namespace, settings: Sequence[str] = ()) -> None:
  """Raise InputError for options that do not go together."""
  names = ('list', 'feasible', 'decks', 'pages', 'check', 'rerun')
  modes = [name for name in names if getattr(args, name) not in (False, None)]
  if len(modes) > 1:
    raise InputError(f'{", ".join(f"--{name}" for name in modes)}: expected one of these')
  allowed = {'check': ['rows'], 'rerun': ['rows', 'dry_run', 'start']}.get(''.join(modes), [])
  if modes or not args.table:
    for name in ('rows', 'record', 'collect', 'dry_run', 'options', 'output', 'rehearse'):
      if getattr(args, name) and name not in allowed:
        raise InputError(f'--{name} is for the rows of a table: give its name, without --{(modes or ["list"])[0]}')
  changes = {'seeds': args.seeds, 'where': args.where != 'local', 'launch': args.launch, 'again': args.again}
  for name in [name for name, given in {**changes, 'config': settings}.items() if given and (args.check or args.rerun)]:
    raise InputError(f'--{name}: got it with --{modes[0]}, which takes a line as it was recorded; omit it')
  if args.start and not args.rerun:
    raise InputError('--start is the run that lines of measured.csv start from: give it with --rerun')


def check_launch(args: argparse.Namespace) -> None:
  """Raise InputError if jobs could not be submitted for want of an option."""
  launching.require(args.where, args.launch)
  if lacks_runs(args):
    raise InputError(
      f'--runs: got none with --where={args.where}, whose machines keep no files; give --runs={SHOWN_RUNS}'
    )


def lacks_runs(args: argparse.Namespace) -> bool:
  """Return whether --runs is missing, which names a place that the launcher's machines and this one see."""
  return args.where in wait.OWN_FILES and args.runs == RUNS and not args.collect


def local_paths(args: argparse.Namespace, plan: plans.Plan) -> list[str]:
  """Return the options with local paths that the launcher's machines must have too, such as '--data=ptb=/text'."""
  if args.where not in wait.OWN_FILES or args.collect:
    return []
  given = {f'--runs={plan.runs[0]}': str(plan.runs[0])}
  given |= {f'--data={name}={path}': path for name, path in plan.data.items()}
  return [text for text, path in given.items() if not (storage.is_remote(path) or path.startswith(storage.HUB))]


def check_rehearsal(args: argparse.Namespace, settings: Sequence[str]) -> None:
  """Raise InputError for options that a rehearsal does not support."""
  given = {name: getattr(args, name) for name in ('collect', 'record', 'options', 'data', 'seeds', 'output')}
  given |= {'where': args.where != 'local', 'config': settings}
  for name in [name for name, value in given.items() if value]:
    raise InputError(f'--{name}: got it with --rehearse, whose runs, data and machine are its own; omit it')


def check_study(args: argparse.Namespace) -> None:
  """Raise InputError for options that a study does not support."""
  if args.where != 'local':
    raise InputError(
      f'--where: got {args.where} with {args.table}, whose later runs depend on the results of the first ones; '
      'expected local'
    )
  if args.rows and not (args.collect or args.record):
    raise InputError(f'--rows: got {args.rows} with {args.table}; expected --options, which says what is run')


def plan(args: argparse.Namespace, settings: Sequence[str]) -> plans.Plan:
  """Return the plan of a command line with `--config.` overrides `settings`. Raises InputError for a wrong value."""
  data: dict[str, str] = {}
  for text in args.data:
    name, equals, path = text.partition('=')
    if not equals:
      text = wait.check_path('--data', text, args.where, storage.FOLDER)
      if not pathlib.Path(text).is_dir():
        raise InputError(f'--data={text}: the directory does not exist')
      data |= {key: str(pathlib.Path(text, key)) for key in DATA if pathlib.Path(text, key).exists()}
    elif args.rerun and name.isupper():
      data[name] = path  # word in capitals of a recorded command
    elif name not in DATA:
      raise InputError(f'--data: unknown data set "{name}"{nearest(name, DATA)}')
    else:
      is_there = args.where in wait.OWN_FILES  # machine where `~` is another home directory
      data[name] = path if is_there else storage.check_path(f'--data={name}', path, hub=True)
      if args.where == 'local' and not (args.dry_run or args.collect or args.rerun or args.check or args.rehearse):
        _require_files(name, path)
      if not path.startswith('~'):
        wait.require_shared(f'--data={name}', path, args.where)
  if args.seeds is None:
    raise InputError('--seeds: expected a number of seeds; the tables of the decks are shown by --decks')
  if args.dry_run and lacks_runs(args):
    roots: tuple[pathlib.Path, ...] = (plans.unchecked_path(SHOWN_RUNS),)
  else:
    where = 'local' if args.collect or args.runs == RUNS else args.where
    roots = tuple(
      plans.path('--runs', wait.check_path('--runs', text, where, storage.FOLDER)) for text in args.runs.split(',')
    )
  if args.collect and storage.is_remote(roots[0]):
    raise InputError(
      f'--runs: got {roots[0]} with --collect; expected a local folder; copy it without its checkpoints: '
      f"gcloud storage rsync --recursive '{pod.COPY}' {roots[0]} runs/NAME"
    )
  if storage.is_remote(roots[0]) and not any(text.startswith('data.cache_dir=') for text in settings):
    settings = (*settings, f'data.cache_dir={roots[0]}/cache')  # which all machines see
  return plans.Plan(roots, data, args.seeds, args.options, tuple(settings))


def _require_files(name: str, path: str) -> None:
  """Raise InputError if there is no such file or folder on this machine, before hours of training find out."""
  for part in path.split(','):
    if not (storage.is_remote(part) or part.startswith('hub:') or glob.glob(os.path.expanduser(part))):
      raise InputError(f'--data={name}: got {part}; there is no such file or folder; check the path')


def select_rows(table: Table, text: str) -> list[Row]:
  """Return the rows that `text` names, in the table's order; InputError for a name without a row."""
  selected = select([row.id for row in table.rows], text)
  return [row for row in table.rows if row.id in selected]


def select(ids: Collection[str], text: str) -> set[str]:
  """Return the ids that `text` names: ids, ends of ids or patterns, with commas between; '' is all of them.

  Raises:
    InputError: a name fits no id.
  """
  if not text:
    return set(ids)
  selected: set[str] = set()
  for pattern in text.split(','):
    fits = {one for one in ids for text in (pattern, f'*/{pattern}') if fnmatch.fnmatchcase(one, text)}
    if not fits:
      raise InputError(f'--rows: no row "{pattern}"{nearest(pattern, ids)}')
    selected |= fits
  return selected
