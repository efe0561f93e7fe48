"""Reproduce papers' tables: run what is missing, collect the metrics, and compare them with the published ones.

  python -m launch.tables --list                              every table: figures printed, run, reproduced
  python -m launch.tables --feasible=2cores                   rows that two cores (1gpu, pod) can run, and their data
  python -m launch.tables --decks                             the tables that lectures show, as printed
  python -m launch.tables awd_lstm_words                        runs what is missing, resumes what is unfinished
  python -m launch.tables bert_glue --runs=runs --collect     only renders, such as after copying runs/ from a cluster
  python -m launch.tables bert_glue --dry_run --rows='*cola'  the commands, and nothing else
  python -m launch.tables --check                             whether all measured lines can be run again
  python -m launch.tables --rerun --rows=quickstart/ntm       runs measured lines again and compares

Runs are in runs/tables/NAME/seedK, those of earlier versions in runs/NAME/seedK; with --runs=DIR in DIR/NAME/seedK. The
table is runs/tables/TABLE.md, .html and .png, or DIR/tables/TABLE.md: first as the paper prints it, then row by row.
`--record` adds the metrics to experiments/tables/measured.csv. `--pages` writes docs/results/ from it, as does the
site's build.

`--data=squad=DIR` says where a data set is, `--data=DIR` that DIR has a folder for each; `--list TABLE` shows what a
table needs. With `--where=slurm` (or the name of another launcher) each command is passed to `python -m launch.slurm
OPTIONS -- COMMAND`, the OPTIONS from `--launch`; the same command later passes those that depend on it.
A study (lineage) chooses learning rates first: `--options` says which part of it runs, and the estimated hours are
printed before the first run.

`--config.section.key=value` changes every training, and `--options=epochs=6` is added to the argument of every
experiment. The runs then follow another protocol than the table's: their metrics are shown without a comparison, and a
collection without the same options does not count them.
Only --check imports JAX.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import pathlib
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from experiments.tables import BEST, DATA, MEAN, Row, Run, Table
from launch import command as launched
from launch.tables import (
  check,
  collection,
  counts,
  measured,
  needs,
  options,
  pages,
  paradigms,
  phenomena,
  pod,
  printed,
  record,
  rehearsal,
  report,
  rerun,
  runner,
  study,
  verdict,
)
from launch.tables import plan as plans
from lmx import storage
from lmx.cli.main import split_overrides
from lmx.console import Console
from lmx.errors import writing
from lmx.redaction import redact


def main(argv: Sequence[str] | None = None) -> int:
  """Entry point; returns the exit code: 0, 1 if a run failed, 2 for wrong input, 75 if stopped (start it again)."""
  words = list(sys.argv[1:] if argv is None else argv)
  return launched.run_main('tables', lambda streams: _main(words, streams), argv is None)


def _main(words: list[str], streams: Console) -> int:
  rest, settings = split_overrides(words)
  args = options.parser(__doc__).parse_args(rest)
  options.check(args, settings)
  plan = options.plan(args, settings)
  if args.check:
    return check.run(args, plan.data)
  if args.rerun:
    return rerun.run(args, plan, _say)
  if args.decks:
    print(pages.decks().strip())
    return 0
  if args.pages is not None:
    streams.keep()
    for path in pages.write(
      pathlib.Path(storage.check_path('--pages', args.pages or str(pages.FOLDER), storage.FOLDER))
    ):
      print(path)
    return 0
  if args.feasible:
    return _list_feasible([args.table] if args.table else plans.names(), args.feasible)
  if args.list or not args.table:
    return _list([args.table] if args.table else plans.names(), plan)
  if not args.dry_run:
    streams.keep(_folder(args, plan) / f'{args.table}.log')
  if args.rehearse:
    options.check_rehearsal(args, settings)
    return _rehearse(args, plan)
  return _reproduce(args, plan)


def _study(args: argparse.Namespace, plan: plans.Plan) -> int:
  """Run a table whose runs depend on choices."""
  options.check_study(args)
  own, code = study.of_runs(plan), 0
  stage = study.resolve(args.table, plan)
  if args.dry_run:
    for line in study.describe(study.costs(args.table, plan)):
      _say(line)
    for task in study.tasks(stage, own, shown=True):
      for command in task.commands:
        print(_shown(command))
    return 0
  if not args.collect:
    stage, code = study.run(args.table, plan, args.jobs, _say)
  table = stage.table
  results = collection.collect(table, options.select_rows(table, args.rows), own)
  for name in stage.failed:
    _say(f'launch.tables: {name} failed; its rate was chosen among the others')
  return _finish(args, table, results, plan, own, code)


def _rehearse(args: argparse.Namespace, plan: plans.Plan) -> int:
  """Run the commands of a pod on tiny variants, and render their table."""
  folder = pathlib.Path(storage.check_path('--rehearse', args.rehearse, storage.FOLDER)).absolute()
  table = rehearsal.tiny(plans.table(args.table))
  plan, rows = rehearsal.plan(folder, plan), options.select_rows(table, args.rows)
  runs = {run.name: run for run in table.runs}
  todo = runner.plan_tasks([runs[name] for name in plans.read_from(rows)], runs, plan)
  if args.dry_run:
    for task in todo:
      for command in task.commands:
        print(*(f'python {shlex.join(words)}' for words in rehearsal.words(command)), sep='\n')
    return 0
  rehearsal.prepare(folder)
  if code := rehearsal.run(folder, todo, _say):
    return code
  return _finish(args, table, collection.collect(table, rows, plan), plan, plan, 0)


def _reproduce(args: argparse.Namespace, plan: plans.Plan) -> int:
  if plans.is_study(args.table):
    return _study(args, plan)
  table = plans.table(args.table)
  rows = options.select_rows(table, args.rows)
  runs = {run.name: run for run in table.runs}
  for run in plans.sort_by_dependency(plans.read_from(rows), runs) if plan.changed else ():
    if run.config:
      plans.configs(run, plan)  # refuses options that an experiment does not have
  if args.where != 'local' and not (args.dry_run or args.collect):
    options.check_launch(args)
  if local := options.local_paths(args, plan):
    paths = ' '.join(local)
    _say(f'launch.tables: machines of launch.{args.where} need these paths, mounted or in their image: {paths}')
  is_shown = args.dry_run and options.lacks_runs(args)  # of runs in a bucket without a name
  results = [] if is_shown else collection.collect(table, rows, plan)
  wrong = {name for one in results if one.state == collection.WRONG for name in one.row.runs}
  selected = [runs[name] for name in plans.read_from(rows) if name not in wrong]
  todo = runner.plan_tasks(selected, runs, plan, shown=args.dry_run)
  if args.dry_run:
    for text, count in collections.Counter(_statistics(rows, runs, plan)).items():
      _say(f'{count} row{"s" * (count > 1)}: {text}')
    if args.where != 'local':
      print(*pod.describe(args.table, todo, runs, plan, args), sep='\n')
      return 0
    for task in todo:
      for command in task.commands:
        print(_shown(command))
    return 0
  code = 0
  if not args.collect and todo:
    code = _run(args, todo)
    plan.directories.clear()
    results = collection.collect(table, rows, plan)
  results = [_mark_changed(one, plan, runs) for one in results]
  return _finish(args, table, results, plan, plan, code)


def _statistics(rows: Iterable[Row], runs: Mapping[str, Run], plan: plans.Plan) -> Iterator[str]:
  """Yield 'best of 3 seeds' and the like for each row that does not have the mean."""
  for row in rows:
    if row.statistic != MEAN:
      yield measured.of_seeds(row.statistic, len(plans.seeds(runs[row.runs[0]], plan)))


def _finish(
  args: argparse.Namespace,
  table: Table,
  results: list[collection.RowResult],
  plan: plans.Plan,
  of_runs: plans.Plan,
  code: int,
) -> int:
  """Render and record the results; return the exit code."""
  render(args.table, table, results, of_runs, _folder(args, plan))
  if args.record:
    number = record.add(args.table, table, results, plan)
    print(f'{number} lines of {measured.FILE} written; --pages renders docs/results')
  for problem in dict.fromkeys(problem for one in results for problem in one.problems):
    print(f'launch.tables: not counted: {problem}', file=sys.stderr)
  return code or (2 if any(one.problems for one in results) else 0)


def _folder(args: argparse.Namespace, plan: plans.Plan) -> pathlib.Path:
  """Return the directory of the rendered table."""
  first = plan.runs[0]
  if args.output:
    return pathlib.Path(storage.check_path('--output', args.output, storage.FOLDER))
  if storage.is_remote(first):  # where --collect of a copy renders it later
    first = pod.copy_of(args.table)
  return first if first.name == 'tables' else first / 'tables'


def _mark_changed(one: collection.RowResult, plan: plans.Plan, runs: Mapping[str, Run]) -> collection.RowResult:
  """Exclude a row from the comparison if the command line changed its protocol or the seeds whose best counts."""
  row = one.row
  if row.differs or row.id not in plans.published():
    return one
  reason = f'ours is of runs with {plan.changed}' if plan.changed else ''
  if row.statistic == BEST and one.expected_seeds != runs[row.run].seeds:
    shown = measured.of_seeds(BEST, one.expected_seeds)
    reason = reason or f'printed: the {measured.of_seeds(BEST, runs[row.run].seeds)}; ours: the {shown}'
  return dataclasses.replace(one, row=row._replace(differs=reason)) if reason else one


def _shown(command: plans.Command) -> str:
  return f'lmx {redact(shlex.join(command.words))}'


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


def render(
  name: str, table: Table, results: list[collection.RowResult], plan: plans.Plan, folder: pathlib.Path
) -> None:
  """Write NAME.md, NAME.html and, if there is something to draw, pictures into `folder`; print the table."""
  drawn, groups = report.has_picture(table, results), paradigms.of_table(table, paradigms.of_results(results))
  texts = report.documents(name, table, results, plan, groups)
  with writing(f'--output={folder}'):
    folder.mkdir(parents=True, exist_ok=True)
    for end, text in texts.items():
      (folder / f'{name}.{end}').write_text(text, encoding='utf-8')
    if drawn:
      report.draw(folder / f'{name}.png', table, results)
    if groups:
      phenomena.draw(folder / f'{name}{phenomena.SUFFIX}', table, groups)
  print(texts['md'].partition(report.MEASURED_HOW)[0].rstrip())
  pictures = [', .png'] * drawn + [f', {phenomena.SUFFIX}'] * bool(groups)
  print(f'\n{folder / name}.md, .html{"".join(pictures)}')


def _list(names: Sequence[str], plan: plans.Plan) -> int:
  """Print every table with its counts, and the tables of papers that each prints; or the rows of one."""
  here = needs.here()
  lines: list[tuple[str, counts.Count, str]] = []
  everywhere: dict[str, verdict.Verdict] = {}
  possible: set[str] = set()
  ids: set[str] = set()
  for name in names:
    table = plans.table(name)
    results = collection.collect(table, list(table.rows), plan)
    run, fits = counts.verdicts(results), counts.runnable(table, here)
    everywhere |= run
    possible |= fits
    states = [one.state for one in results if one.state not in (collection.DONE, collection.ABSENT)]
    rest = ', '.join(f'{states.count(state)} {state}' for state in dict.fromkeys(states))
    own = {*printed.figures(table), *(row.id for row in table.rows)}
    ids |= own
    lines.append((name, counts.count(own, fits, run), f'{table.title}{f" ({rest})" if rest else ""}'))
    for place in table.prints:
      lines.append((f'  {pages.heading(place)}', counts.count(printed.figures_of(place), fits, run), ''))
  if len(names) > 1:
    lines.append(('all', counts.count(ids, possible, everywhere), ''))
    for (system, number, part), keys in pages.deck_figures().items():
      lines.append((f'decks: {system}, table {number}', counts.count(keys, possible, everywhere), part))
  width = max(len(label) for label, *_ in lines)
  print(f'{"table":{width}} {"printed":>7} {f"on {here}":>9} {"run":>5} {"comparable":>10} {"reproduced":>10}')
  for label, one, title in lines:
    texts = f'{one.printed:>7} {one.runnable:>9} {one.run:>5} {one.comparable:>10} {one.reproduced:>10}'
    print(f'{label:{width}} {texts}  {title}'.rstrip())
  if len(names) == 1:
    _list_rows(table, results)
  return 0


def _list_rows(table: Table, results: list[collection.RowResult]) -> None:
  runs = {run.name: run for run in table.runs}
  for line in report.lines(results):
    row = line.result.row
    needed = needs.describe(needs.of_row(row, runs)._replace(data=()))
    print(f'  {row.id:56} {line.cells[3]:>12} {line.cells[4]:>12}  {line.cells[2]}; {needed}')
  for key in report.data_of(table, results):
    print(
      f'  --data={key}={"DIR" if DATA[key].required else "DIR (or made, or downloaded)"}: {DATA[key].files}; '
      f'{DATA[key].terms}'
    )


def _list_feasible(names: Sequence[str], hardware: str) -> int:
  """Print the table rows that `hardware` can run, with their needs."""
  for name in names:
    table = plans.table(name)
    runs = {run.name: run for run in table.runs}
    fits = counts.runnable(table, hardware)
    if fits:
      one = counts.count(fits, fits, counts.verdicts())
      how = f'{one.run} run, {one.comparable} comparable, {one.reproduced} reproduced'
      print(f'{name}: {len(fits)} of {len(table.rows)} rows ({how})  {table.title}')
    for row in table.rows:
      if row.id in fits:
        print(f'  {row.id:56} {needs.describe(needs.of_row(row, runs))}')
  return 0


if __name__ == '__main__':
  sys.exit(main())
