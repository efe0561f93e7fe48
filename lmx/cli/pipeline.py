"""`lmx pipeline --config=FILE[:arg] --workdir=DIR`: run the stages of an experiment in order, each resumable.

The experiment's `stages(arg)` lists them. {'name', 'config', 'overrides'} trains `config` in DIR/name; '{dir}' in an
override is replaced by DIR. {'name', 'ensemble': (names), 'which'} averages the probabilities of earlier classifiers,
with their 'best' or 'last' parameters. Stages with results are skipped, so the same command resumes a pipeline.
Data, labels and weights of every stage are checked before the first one runs, except what an earlier stage writes.
`--config.NAME.section.key=value` changes the stage NAME, `--config.section.key=value` every training stage.
"""

from __future__ import annotations

import argparse
import pathlib
import shlex
import sys
from typing import Any

from lmx import documents, records
from lmx.config import experiment, schema
from lmx.errors import InputError, nearest
from lmx.redaction import redact


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--config', required=True, help='experiment file with stages(arg), with :arg if it has any')
  parser.add_argument('--workdir', required=True, help='work directory with one folder per stage')
  parser.add_argument('--until', default='', help='last stage to run (default: all)')
  parser.add_argument('--dry_run', action='store_true', help="print the stages' commands and run nothing")


def run(args: argparse.Namespace) -> int:
  directory = pathlib.Path(args.workdir)
  stages = plan(args.config, directory, args.overrides)
  if args.until and args.until not in [stage['name'] for stage in stages]:
    raise InputError(f'--until: unknown "{args.until}"{nearest(args.until, [stage["name"] for stage in stages])}')
  if args.dry_run:
    for stage in stages:
      print(redact(command(stage, directory)))
    return 0
  from lmx.engine import distributed

  distributed.initialize()
  last = [stage['name'] for stage in stages].index(args.until) if args.until else len(stages)
  _check(stages[: last + 1], directory)
  _check_inputs(stages[: last + 1], directory)
  for stage in stages:
    code = _run(stage, directory)
    if code:
      return code
    if stage['name'] == args.until:
      break
  print(table(directory, stages))
  return 0


def plan(config: str, directory: pathlib.Path, overrides: list[str]) -> list[dict[str, Any]]:
  """Return the stages with every override as text.

  Raises:
    InputError: the experiment has no stages, or the config of one has a mistake.
  """
  path, arg = experiment.split(config)
  module = experiment.module(path)
  if not hasattr(module, 'stages'):
    raise InputError(f'--config: got {path}, which has no stages; expected a pipeline; train it with `lmx train`')
  with experiment.running(path):
    stages = module.stages(arg)
  names = [stage['name'] for stage in stages]
  stages = [{**stage} for stage in stages]
  trained = [stage for stage in stages if 'config' in stage]
  for stage in trained:
    own = [f'{key}={_text(value, directory)}' for key, value in stage['overrides'].items()]
    changes = [
      text.removeprefix(stage['name'] + '.') for text in overrides if _is_for_stage(text, names, stage['name'])
    ]
    stage['overrides'] = own + changes
    schema.check(experiment.read(stage['config']), stage['overrides'])
  from lmx.config import resolve as config_lib  # imports JAX
  from lmx.reporting import trackers

  for stage in trained:  # loaded, so that an error in any stage is raised before the first one runs
    loaded = config_lib.load(stage['config'], stage['overrides'])
    stage['overrides'] += trackers.group_settings(loaded.log, directory)
  return stages


def _is_for_stage(override: str, names: list[str], name: str) -> bool:
  """Return whether an override is for the stage `name`: it begins with that name, or with no stage's name."""
  first = override.partition('.')[0]
  return first == name or first not in names


def _text(value: Any, directory: pathlib.Path) -> str:
  return value.replace('{dir}', str(directory)) if isinstance(value, str) else repr(value)


def command(stage: dict[str, Any], directory: pathlib.Path) -> str:
  """Return the equivalent command of a stage."""
  if 'ensemble' in stage:
    first, *rest = (directory / name for name in stage['ensemble'])
    output = directory / stage['name'] / 'results.json'
    others, split = ','.join(map(str, rest)), _split(first)
    return (
      f'lmx evaluate --workdir={first} --ensemble={others} --split={split} --which={stage["which"]} --output={output}'
    )
  changes = [shlex.quote(f'--config.{text}') for text in stage['overrides']]
  return ' '.join([f'lmx train --config={stage["config"]} --workdir={directory / stage["name"]}', *changes])


def _split(workdir: pathlib.Path) -> str:
  """Return the split on which a member of an ensemble was evaluated; 'test' before that."""
  results = records.read_results(workdir)
  return documents.field(results, 'split', str, str(workdir / records.RESULTS)) if results else 'test'


def _check(stages: list[dict[str, Any]], directory: pathlib.Path) -> None:
  """Raise InputError if a stage that has begun has other settings now, before any stage runs."""
  from lmx.config import resolve
  from lmx.runs import work_directory

  for stage in stages:
    workdir = directory / stage['name']
    if 'config' in stage and _has_run(workdir) and not _imported_from(workdir):
      loaded = resolve.load(stage['config'], stage['overrides'])
      for note in work_directory.check_stage(workdir, loaded, str(directory)):
        print(f'{stage["name"]}: {note}', file=sys.stderr)


def _check_inputs(stages: list[dict[str, Any]], directory: pathlib.Path) -> None:
  """Check data, labels and weights of every unfinished stage, except those that an earlier stage will write.

  Raises:
    InputError: a stage would end with it; names the stage.
  """
  from lmx.checkpoint import orbax_format
  from lmx.cli import dry_start
  from lmx.config import resolve

  awaited: list[pathlib.Path] = []
  for stage in stages:
    workdir = directory / stage['name']
    if 'ensemble' in stage or (workdir / 'results.json').exists() or _has_run(workdir) and _imported_from(workdir):
      continue
    config = resolve.load(stage['config'], stage['overrides'])
    is_awaited = lambda path: any(pathlib.Path(path).is_relative_to(folder) for folder in awaited)
    begun = _has_run(workdir) and orbax_format.entries(workdir / 'checkpoints')
    with_weights = not (begun or is_awaited(config.train.init_from))
    try:
      if any(map(is_awaited, (config.data.tokenizer_path, config.data.vectors))):
        dry_start.check_files(config, workdir, with_weights=with_weights)
      else:
        dry_start.check_start(config, workdir, with_weights=with_weights)
    except InputError as error:
      raise InputError(f'stage {stage["name"]}: {error}') from None
    awaited.append(workdir)


def _has_run(workdir: pathlib.Path) -> bool:
  from lmx.config import run_files

  return run_files.exists(workdir)


def _imported_from(workdir: pathlib.Path) -> str:
  """Return the source of imported weights, '' for a run that was trained."""
  from lmx.config import run_files

  return str(run_files.read_data(workdir).get('imported_from', ''))


def _sources(stage: dict[str, Any], directory: pathlib.Path) -> list[pathlib.Path]:
  """Return the work directories that initialise a stage, or whose predictions it averages."""
  from lmx.config import resolve

  if 'ensemble' in stage:
    return [directory / name for name in stage['ensemble']]
  start = resolve.load(stage['config'], stage['overrides']).train.init_from
  return [pathlib.Path(start)] if start else []


def _check_origin(stage: dict[str, Any], directory: pathlib.Path) -> None:
  """Raise InputError if a stage began from another run than the one that is there now."""
  from lmx.runs import origin

  workdir = directory / stage['name']
  if changed := origin.changed(workdir, _sources(stage, directory)):
    raise InputError(
      f'{workdir}: got a stage that started from another run than the one now in {", ".join(changed)}; remove '
      f'{workdir} and repeat the command, or choose another --workdir'
    )


def _run(stage: dict[str, Any], directory: pathlib.Path) -> int:
  from lmx import train
  from lmx.checkpoint import manager
  from lmx.config import resolve
  from lmx.evaluation import ensemble
  from lmx.reporting import run_log
  from lmx.runs import origin

  workdir = directory / stage['name']
  if _has_run(workdir) or 'ensemble' in stage:
    _check_origin(stage, directory)
  if (workdir / 'results.json').exists():
    manager.remove_leftovers(workdir / 'checkpoints')
    print(f'{stage["name"]}: finished', file=sys.stderr)
    return 0
  if _has_run(workdir) and (source := _imported_from(workdir)):
    print(f'{stage["name"]}: imported from {source}', file=sys.stderr)
    return 0
  print(f'{stage["name"]}: {redact(command(stage, directory))}', file=sys.stderr)
  if 'ensemble' in stage:
    members = _sources(stage, directory)
    metrics = ensemble.evaluate(members, _split(members[0]), stage['which']).metrics
    origin.write(workdir, members)
    run_log.write_json(str(workdir / 'results.json'), metrics)
    return 0
  loaded = resolve.load(stage['config'], stage['overrides'])
  return train.train(loaded, workdir, command=['lmx', *sys.argv[1:]])


def table(directory: pathlib.Path, stages: list[dict[str, Any]]) -> str:
  """Return a line for each stage with results; write them to the pipeline's results.json too."""
  from lmx.reporting import run_log

  rows = {}
  for stage in stages:
    metrics = records.read_results(directory / stage['name'], ('metric', 'dataset', 'split'))
    if metrics:
      keys = ('metric', 'split', 'dataset', 'protocol', 'training_seconds', 'accuracy', 'loss')
      rows[stage['name']] = {'value': metrics[metrics['metric']], **{k: metrics[k] for k in keys if k in metrics}}
  run_log.write_json(str(directory / 'results.json'), rows)
  width = max([len(name) for name in rows], default=0)
  return '\n'.join(
    f'{name:{width}}  {row["value"]:10.2f}  {row["metric"].replace("_", " ")} on {row["dataset"]}/{row["split"]}'
    for name, row in rows.items()
  )
