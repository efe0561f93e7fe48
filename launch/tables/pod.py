"""A table's trainings on rented machines: their data, compiled step, chip-hours and commands, in the order of use.

`python -m launch.tables TABLE --where=gke --runs=gs://BUCKET/runs --dry_run` prints it. Nothing of it has been run on
such machines: steps are those that `lmx compile` compiled, recorded in benchmarks/slices.csv.
"""

from __future__ import annotations

import argparse
import csv
import functools
import pathlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.tables import DATA, Run
from launch import accelerators, command, compile_first
from launch.gke import plain_job
from launch.tables import hours, launching
from launch.tables import plan as plans
from lmx import storage
from lmx.compilation.slices import CHIPS, GENERATIONS
from lmx.errors import InputError
from lmx.redaction import redact

RECORD = plans.ROOT / 'benchmarks/slices.csv'
COPY = '--exclude=(cache|.*/checkpoints)/.*'  # a table needs metrics, neither tokens nor parameters
_OF_MACHINE = ('parallel.', 'model.dtype', 'model.remat', 'model.scan')  # settings that `pod` changes
_OF_STEP = ('data.batch_size', 'data.length', 'data.batching.name', 'optim.accumulate', 'optim.optimizer')
_SECTIONS_OF_STEP = ('model.', 'objective.')


class Step(NamedTuple):
  """A compiled step of slices.csv: its config, slice, memory of a chip in GiB, seconds, and commit."""

  config: str
  topology: str
  gib: float
  seconds: float
  commit: str

  @property
  def chips(self) -> int:
    """Chips of the slice."""
    return int(self.topology.rpartition('-')[2])


@functools.cache
def record() -> tuple[Step, ...]:
  """Return the steps that were compiled with the option `pod` and no other change of the batch."""
  with RECORD.open(newline='', encoding='utf-8') as file:
    return tuple(
      Step(
        line['config'],
        line['topology'],
        float(line['gib']),
        float(line['compute_s']) + float(line['collectives_s']),
        line['commit'],
      )
      for line in csv.DictReader(file)
      if '--config.' not in line['options']
    )


def steps(run: Run, topology: str = '') -> list[tuple[Step, list[str]]]:
  """Return the compiled steps of a run's sizes, each with the other settings that differ; `topology`: only that slice.

  Sizes are all settings of `_OF_STEP`, and those of the model that are neither True, False nor a float. A run with
  settings of its own that `pod` changes has none.
  """
  if any(text.partition('=')[0].startswith(_OF_MACHINE) for text in run.settings):
    return []
  own, is_pod = _of_step(plans.configs(run, plans.Plan())['']), _has_pod(run.config)
  found = []
  for one in record():
    there = _step(one.config, is_pod)
    unlike = sorted(key for key in {*own, *there} if own.get(key) != there.get(key))
    if topology in ('', one.topology) and not any(_is_size(key, (own.get(key), there.get(key))) for key in unlike):
      found.append((one, unlike))
  return found


def _is_size(key: str, values: Iterable[Any]) -> bool:
  if key.startswith('objective.'):
    return False
  return not key.startswith('model.') or not all(isinstance(value, (bool, float, type(None))) for value in values)


@functools.cache
def _step(config: str, is_pod: bool) -> Mapping[str, Any]:
  """Return the settings that determine a recorded step, with the option `pod` or without it."""
  path, _, argument = config.partition(':')
  names = [name for name in argument.split(',') if is_pod or name != 'pod']
  return _of_step(plans.configs(Run('', f'experiments/{path}:{",".join(names)}'), plans.Plan())[''])


def _of_step(flat: Mapping[str, Any]) -> Mapping[str, Any]:
  return {
    key: value
    for key, value in flat.items()
    if key in _OF_STEP or (key.startswith(_SECTIONS_OF_STEP) and not key.startswith(_OF_MACHINE))
  }


def _has_pod(config: str) -> bool:
  return 'pod' in config.partition(':')[2].split(',')


def describe(
  name: str, todo: Sequence[Any], runs: Mapping[str, Run], plan: plans.Plan, args: argparse.Namespace
) -> Iterator[str]:
  """Yield the lines of each training among the tasks `todo` of the table `name`."""
  machine, before = _machine(args), ''
  for task in todo:
    run = _as_run(runs[task.key[0]], plan)
    yield task.title
    trains = run.config and run.kind == 'train'
    if trains and run.name != before:  # the first seed
      for title, text in _lines(run, task.commands[0].words, runs, args, machine):
        yield f'  {title:9} {text}'
    for one in task.commands:
      title = one.words[0] if one.words[0] in ('train', 'evaluate') else 'then'
      options = launching.with_placeholders(args.where, args.launch, _accelerator(run, args.where))
      words = launching.launcher_command(args.where, options, run.name, task.key[1], one)
      yield f'  {title:9} {redact(shlex.join(["python", *words[1:]]))}'
    before = run.name
  yield f'collect {name}'
  collected = ','.join(map(str, plan.runs))
  if storage.is_remote(plan.runs[0]):
    collected = str(copy_of(name))
    yield f'  copy      gcloud storage rsync --recursive {shlex.quote(COPY)} {plan.runs[0]} {collected}'
  given = {'rows': args.rows, 'options': plan.options, 'seeds': plan.seeds, 'runs': collected}
  words = ['python', '-m', 'launch.tables', name, *(f'--{option}={value}' for option, value in given.items() if value)]
  words += [f'--config.{text}' for text in plan.settings if not plans.is_free(text)]  # else the runs are not counted
  yield f'  table     {redact(shlex.join([*words, "--collect"]))}'


def _as_run(run: Run, plan: plans.Plan) -> Run:
  """Return a run with the options and settings of the command line, whose hours are then not those of the table."""
  if not run.config:
    return run
  given = run._replace(config=plans.argument(run, plan), settings=(*run.settings, *plan.settings))
  return given._replace(gpu_hours=0.0) if plan.changed else given


def copy_of(name: str) -> pathlib.Path:
  """Return the local folder of a table's runs that are copied from a bucket."""
  return pathlib.Path('runs', name)


def _machine(args: argparse.Namespace) -> accelerators.Slice | None:
  """Return the slice or machine that the options of the launcher name; None without one."""
  if args.where not in accelerators.WHERE:
    return None
  found = launching.parse(args.where, args.launch).accelerator
  return accelerators.find(found, args.where) if found else None


def _lines(
  run: Run,
  words: Sequence[str],
  runs: Mapping[str, Run],
  args: argparse.Namespace,
  machine: accelerators.Slice | None,
) -> Iterator[tuple[str, str]]:
  flat = plans.configs(run, plans.Plan())['']
  for data in re.findall(r'\{data\.(\w+)\}', ' '.join(run.settings)):
    one = DATA[data]
    yield 'data', f'{data}: {"; ".join(filter(None, (one.files, one.size, one.terms)))}'
  yield 'prepare', _prepare(run, words, args)
  yield from _compiled(run, words, flat, machine)
  estimate = hours.of_run(run, runs)
  if estimate:
    yield 'estimate', f'{estimate:,.3g} hours of one H100 (launch/tables/hours.py)'


def _accelerator(run: Run, where: str) -> str:
  """Return the launcher's name of a slice on which a step of the run is recorded, '' if it rents none."""
  names = accelerators.names('tpu') if where in accelerators.WHERE else []
  for one, _ in steps(run) if run.config else ():
    chip = CHIPS[one.topology.rpartition('-')[0]]
    name = f'{chip.google}-{one.chips * chip.counted}'
    if name in names and getattr(accelerators.GENERATIONS[chip.google], accelerators.WHERE[where][1]):
      return name
  return ''


def _prepare(run: Run, words: Sequence[str], args: argparse.Namespace) -> str:
  """Return the command that prepares the data on a machine without accelerators."""
  prepare = [
    'lmx',
    'prepare',
    *(word for word in command.config_options(words) if not word.startswith('--config.seed')),
  ]
  if args.where != 'gke':
    return redact(shlex.join(prepare))
  name = re.sub(r'[^a-z0-9]+', '-', f'prepare-{run.name}'.lower())[:60].strip('-')
  given = launching.parse('gke', launching.with_placeholders('gke', args.launch))
  commands = plain_job.create_commands(
    name,
    prepare,
    image=given.image,
    namespace=given.namespace,
    service_account=given.service_account,
    queue=given.queue,
    priority=given.priority,
  )
  return redact(' | '.join(map(shlex.join, commands)))


def _compiled(
  run: Run, words: Sequence[str], flat: Mapping[str, Any], machine: accelerators.Slice | None
) -> Iterator[tuple[str, str]]:
  """Yield the compiled steps of a run with their chip-hours, or the command that compiles it."""
  topology = ''
  if machine is not None:
    name, _, _ = machine.name.rpartition('-')
    topology = f'{GENERATIONS[name]}-{machine.chips * machine.hosts}' if name in GENERATIONS else machine.name
  found, updates = steps(run, topology), flat.get('train.steps')
  if not found:
    yield 'compiled', _not_recorded(words, topology, machine)
  found = found or steps(run)  # on other slices
  for one, unlike in found:
    text = f'{one.config} on {one.topology}: {one.gib:g} GiB a chip, {one.seconds:.4f} s an update (compiled at '
    others = f', with another value of {" and ".join(unlike)}' if unlike else ''
    yield 'compiled', f'{text}{one.commit}, not run{others})'
    if updates:
      chip_hours = updates * one.seconds * one.chips / 3600
      yield 'chips', f'{chip_hours:,.0f} chip-hours of {one.topology.partition("-")[0]} for {updates:,} such updates'
  if found and not _has_pod(run.config):
    yield 'note', '--options=pod trains with these settings; without it the step is that of the table'


def _not_recorded(words: Sequence[str], topology: str, machine: accelerators.Slice | None) -> str:
  """Return what a dry run says of a step that is not recorded: the command that compiles it."""
  shown = f'compile --topology={topology or "TOPOLOGY"} ' + shlex.join(command.config_options(words))
  if machine is not None:
    try:
      shown = shlex.join(compile_first.compile_command(words, machine))
    except InputError:
      pass
  return f'not recorded{f" on {topology}" if topology else ""}; `lmx {redact(shown)}` compiles it'
