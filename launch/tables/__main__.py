"""Reproduce tables of papers: run what is missing, collect the metrics, compare them with the published ones.

  python -m launch.tables --list                              every table, and how much of it there is in runs/
  python -m launch.tables awd_lstm_ptb                        runs what is missing, resumes what is unfinished
  python -m launch.tables bert_glue --runs=runs --collect     only renders, such as after copying runs/ from a cluster
  python -m launch.tables bert_glue --dry_run --rows='*cola'  the commands, and nothing else

Runs are in runs/tables/NAME/seedK, those of earlier versions in runs/NAME/seedK; with --runs=DIR in DIR/NAME/seedK. The
table is runs/tables/TABLE.md, .html and .png, or DIR/tables/TABLE.md. `--data=squad=DIR` says where a data set
is, `--data=DIR` that DIR has a folder for each; `--list TABLE` shows what a table needs. With `--where=slurm` (or the
name of another launcher) each command is passed to `python -m launch.slurm OPTIONS -- COMMAND`, the OPTIONS from
`--launch`; the same command later passes those that depend on it. `--config.section.key=value` changes every training,
and `--options=epochs=6` is added to the argument of every experiment. The runs then follow another protocol than the
table's: their metrics are shown without a comparison, and a collection without the same options does not count them.
Imports no JAX.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import pathlib
import shlex
import sys
from collections.abc import Sequence

from experiments.tables import DATA, Row, Table
from launch import command as launched
from launch import wait
from launch.tables import collection, report, runner
from launch.tables import plan as plans
from lmx import ranges
from lmx.cli.main import split_overrides
from lmx.errors import InputError, nearest


def main(argv: Sequence[str] | None = None) -> int:
  """Entry point; returns the exit code: 0, 1 if a run failed, 2 for wrong input, 75 if stopped (start it again)."""
  return launched.run_main('tables', lambda: _main(list(sys.argv[1:] if argv is None else argv)))


def _main(words: list[str]) -> int:
  rest, settings = split_overrides(words)
  args = _parser().parse_args(rest)
  plan = _plan(args, settings)
  if args.list or not args.table:
    return _list([args.table] if args.table else plans.names(), plan)
  return _reproduce(args, plan)


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog='python -m launch.tables',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  parser.add_argument('table', nargs='?', help='name of a table')
  parser.add_argument('--list', action='store_true', help='show all tables, or the rows of one')
  parser.add_argument('--rows', default='', help='only these: ids, ends of ids or patterns, with commas between')
  parser.add_argument(
    '--runs', default='runs/tables,runs', help='directories of runs, with commas; new ones go into the first'
  )
  parser.add_argument('--data', action='append', default=[], metavar='[NAME=]DIR', help='where data and weights are')
  parser.add_argument(
    '--seeds',
    type=ranges.integer(0, 100_000),
    default=0,
    help='how many seeds of each run (default: as the table asks)',
  )
  parser.add_argument('--jobs', type=ranges.integer(1, 100_000), default=1, help='runs at once on this machine')
  parser.add_argument('--where', default='local', help='local, or a launcher: slurm, gke, tpu_vm')
  parser.add_argument('--launch', default='', help='options of that launcher, as one text')
  parser.add_argument('--again', action='store_true', help='pass to the launcher again what was passed before')
  parser.add_argument('--collect', action='store_true', help='run nothing, only render what there is')
  parser.add_argument('--dry_run', action='store_true', help='print the commands and run nothing')
  parser.add_argument('--options', default='', help="added to every experiment's argument, such as epochs=6")
  parser.add_argument('--output', default='', help='directory of the rendered table (default: DIR/tables)')
  return parser


def _plan(args: argparse.Namespace, settings: Sequence[str]) -> plans.Plan:
  data: dict[str, str] = {}
  for text in args.data:
    name, equals, path = text.partition('=')
    if not equals:
      if not pathlib.Path(text).is_dir():
        raise InputError(f'--data={text}: there is no such directory')
      data |= {key: str(pathlib.Path(text, key)) for key in DATA if pathlib.Path(text, key).exists()}
    elif name not in DATA:
      raise InputError(f'--data: unknown data set "{name}"{nearest(name, DATA)}')
    else:
      data[name] = path
  if args.seeds < 0 or args.jobs < 1:
    raise InputError('--seeds: expected at least 0; --jobs: expected at least 1')
  roots = tuple(pathlib.Path(text) for text in args.runs.split(','))
  return plans.Plan(roots, data, args.seeds, args.options, tuple(settings))


def _reproduce(args: argparse.Namespace, plan: plans.Plan) -> int:
  table = plans.table(args.table)
  rows = select_rows(table, args.rows)
  runs = {run.name: run for run in table.runs}
  results = collection.collect(table, rows, plan)
  wrong = {name for one in results if one.state == collection.WRONG for name in one.row.runs}
  selected = [runs[name] for name in plans.read_from(rows) if name not in wrong]
  todo = runner.plan_tasks(selected, runs, plan, shown=args.dry_run)
  if args.dry_run:
    for task in todo:
      for command in task.commands:
        print(_shown(args, command))
    return 0
  code = 0
  if not args.collect and todo:
    code = _run(args, todo)
    plan.directories.clear()
    results = collection.collect(table, rows, plan)
  results = [_mark_changed(one, plan) for one in results]
  render(args.table, table, results, plan, _folder(args, plan))
  for problem in dict.fromkeys(problem for one in results for problem in one.problems):
    print(f'launch.tables: not counted: {problem}', file=sys.stderr)
  return code or (2 if any(one.problems for one in results) else 0)


def _folder(args: argparse.Namespace, plan: plans.Plan) -> pathlib.Path:
  """Return the directory of the rendered table."""
  first = plan.runs[0]
  return pathlib.Path(args.output) if args.output else first if first.name == 'tables' else first / 'tables'


def _mark_changed(one: collection.RowResult, plan: plans.Plan) -> collection.RowResult:
  """Exclude a row from the comparison if the command line changed the protocol."""
  if not plan.changed or one.row.differs or one.row.id not in plans.published():
    return one
  row = one.row._replace(differs=f'ours is of runs with {plan.changed}')
  return dataclasses.replace(one, row=row)


def _shown(args: argparse.Namespace, command: plans.Command) -> str:
  if args.where == 'local':
    return f'lmx {shlex.join(command.words)}'
  return shlex.join(['python', *wait.launcher_command(args.where, args.launch, command.words)[1:]])


def _run(args: argparse.Namespace, todo: list[runner.Task]) -> int:
  if args.where != 'local':
    return runner.submit(todo, args.where, args.launch, _say, again=args.again)
  local = runner.Runner(args.jobs, _say)
  code = local.run(todo)
  if local.failed:
    print(f'launch.tables: {len(local.failed)} of {len(todo)} runs did not finish', file=sys.stderr)
  return code


def _say(text: str) -> None:
  print(text, file=sys.stderr, flush=True)


def select_rows(table: Table, text: str) -> list[Row]:
  """Return the rows that `text` names, in the table's order; InputError for a name without a row."""
  if not text:
    return list(table.rows)
  selected: set[str] = set()
  ids = [row.id for row in table.rows]
  for pattern in text.split(','):
    fits = {one for one in ids for text in (pattern, f'*/{pattern}') if fnmatch.fnmatchcase(one, text)}
    if not fits:
      raise InputError(f'--rows: no row "{pattern}"{nearest(pattern, ids)}')
    selected |= fits
  return [row for row in table.rows if row.id in selected]


def render(
  name: str, table: Table, results: list[collection.RowResult], plan: plans.Plan, folder: pathlib.Path
) -> None:
  """Write NAME.md, NAME.html and, if there is something to draw, NAME.png into `folder`; print the table."""
  folder.mkdir(parents=True, exist_ok=True)
  text = report.markdown(name, table, results, plan)
  (folder / f'{name}.md').write_text(text)
  (folder / f'{name}.html').write_text(report.html_page(name, table, results, plan))
  drawn = report.has_picture(table, results)
  if drawn:
    report.draw(folder / f'{name}.png', table, results)
  print(text.partition('\n## ')[0].rstrip())
  print(f'\n{folder / name}.md, .html{", .png" if drawn else ""}')


def _list(names: list[str], plan: plans.Plan) -> int:
  for name in names:
    table = plans.table(name)
    results = collection.collect(table, list(table.rows), plan)
    states = [one.state for one in results]
    counts = [f'{states.count(state)} {state}' for state in dict.fromkeys(states) if state != collection.DONE]
    done = f'{states.count(collection.DONE)} of {len(results)} rows'
    rest = '' if counts == [f'{len(results)} {collection.ABSENT}'] or not counts else f'  ({", ".join(counts)})'
    print(f'{name:26} {done:16} {table.title}{rest}')
    if len(names) == 1:
      for line in report.lines(results):
        print(f'  {line.result.row.id:56} {line.cells[3]:>12} {line.cells[4]:>12}  {line.cells[2]}')
      for key in report.data_of(table, results):
        print(
          f'  --data={key}={"DIR" if DATA[key].required else "DIR (or made, or downloaded)"}: {DATA[key].files}; '
          f'{DATA[key].terms}'
        )
  return 0


if __name__ == '__main__':
  sys.exit(main())
