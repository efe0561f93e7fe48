"""Runs of a table, with their work directories and commands, from experiments/tables/."""

from __future__ import annotations

import csv
import dataclasses
import functools
import importlib
import json
import pathlib
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from experiments.tables import DATA, Row, Run, Table
from lmx import storage
from lmx.config import experiment
from lmx.errors import InputError, nearest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / 'experiments' / 'tables'
_OWN = ('dir', 'seed')  # in braces: no other run
_BRACES = re.compile(r'\{(data\.)?([\w./-]+)(?::(\d+)(?:-(\d+))?)?\}')
# Settings that do not change the computation: paths of data and weights, speed, logging.
_FREE = (
  *experiment.EXECUTION,
  'train.init_from',
  'data.tokenizer_path',
  'name',
  'seed',
  'optim.accumulate',
  'model.remat',
  'model.scan',
)
_LIKE_INIT = ('model.variant', 'data.tokenizer', 'data.lower_case')  # settings that train.like_init copies


_CONVERTED = ('value', 'spread', 'verified')  # columns of published.csv that are not kept as text


class Printed(NamedTuple):
  """Line of published.csv; `spread` is a standard deviation over runs, NaN and '' as text if none is printed."""

  value: float
  text: str
  spread: float
  spread_text: str
  metric: str
  row: str
  dataset: str
  split: str
  table: str
  paper: str
  protocol: str
  parameters: str
  verified: bool
  source: str


class Command(NamedTuple):
  """Arguments of lmx, and the file that proves that the command is done."""

  words: tuple[str, ...]
  proof: pathlib.Path


class Missing(InputError):
  """Error: the user has not given a data set that the run needs."""


@dataclasses.dataclass(frozen=True)
class Plan:
  """Options of the command line for all runs.

  Attributes:
    runs: directories of runs; new ones go into the first.
    data: name in DATA -> directory or file.
    seeds: number for every run that is repeated; 0 for the table's.
    options: options added to the argument of every experiment, such as 'epochs=6'.
    settings: 'section.key=value' for every training.
    directories: (name of a run, seed) -> its work directory, if that is not the default one.
  """

  runs: tuple[pathlib.Path, ...] = (pathlib.Path('runs'),)
  data: Mapping[str, str] = dataclasses.field(default_factory=dict)
  seeds: int = 0
  options: str = ''
  settings: tuple[str, ...] = ()
  directories: dict[tuple[str, int | None], pathlib.Path] = dataclasses.field(default_factory=dict)

  @property
  def changed(self) -> str:
    """Return the part of the command line that changes the table's protocol; '' if there is none."""
    overrides = [f'--config.{text}' for text in self.settings if not is_free(text)]
    return ' '.join([*overrides, *([f'--options={self.options}'] if self.options else [])])


@functools.cache
def names() -> tuple[str, ...]:
  """Return the names of the tables, by listing their folder."""
  return tuple(sorted(path.stem for path in FOLDER.glob('*.py') if path.name != '__init__.py'))


def table(name: str, options: str = '') -> Table:
  """Return the table `name`; of a study with `options` the stage that they name, with a run for each choice.

  Raises:
    InputError: there is no such table, with the nearest name; or a study has no such options.
  """
  module = _module(name)
  if not options or not is_study(name):
    return module.TABLE
  try:
    return module.build(options, assume=True)
  except ValueError as error:
    raise InputError(f'--options: {error}') from None


def of_rows(name: str, options: Mapping[str, str]) -> Table:
  """Return the table of rows of a study, from their options (`Row.options`).

  Raises:
    InputError: the study has no such options, or no such row with them.
  """
  try:
    return _module(name).of_rows(options)
  except ValueError as error:
    raise InputError(f'{name}: {error}') from None


def is_study(name: str) -> bool:
  """Return whether the runs of a table depend on choices; its options are then its own, not those of experiments."""
  return hasattr(_module(name), 'build')


def _module(name: str) -> Any:
  if name not in names():
    renamed = name.removeprefix('seq2seq_')
    hint = f'; it is now "{renamed}"' if renamed != name and renamed in names() else nearest(name, names())
    raise InputError(f'unknown table "{name}"{hint}')
  return importlib.import_module(f'experiments.tables.{name}')


def stages(name: str) -> list[Table]:
  """Return the table `name` with its default options, and those with others that its file lists."""
  return [table(name), *getattr(_module(name), 'STAGES', ())]


@functools.cache
def published() -> dict[str, Printed]:
  """Return the printed metric of the paper by id."""
  printed = {}
  with (FOLDER / 'published.csv').open(newline='', encoding='utf-8') as file:
    for line in csv.DictReader(file):
      texts = {name: line[name] for name in Printed._fields if name in line and name not in _CONVERTED}
      printed[line['id']] = Printed(
        value=float(line['value']),
        text=line['value'],
        spread=float(line['spread'] or 'nan'),
        spread_text=line['spread'],
        verified=line['verified'] == 'yes',
        **texts,
      )
  return printed


def path(field: str, text: str) -> pathlib.Path:
  """Return a path, of an address in a bucket as epath."""
  if storage.is_remote(text):
    storage.check_path(field, text)
  return unchecked_path(text)


def unchecked_path(text: str) -> pathlib.Path:
  """Return the path of a text that is checked, or only printed."""
  there: Any = storage.unchecked(text) if storage.is_remote(text) else pathlib.Path(text)
  return there


def seeds(run: Run, plan: Plan) -> list[int | None]:
  """Return the seeds of a run; [None] if it is not repeated."""
  return list(range(plan.seeds or run.seeds)) if run.seeds else [None]


def default_directory(run: Run, seed: int | None, root: pathlib.Path) -> pathlib.Path:
  """Return the default work directory of a run below `root`."""
  return root / run.name / f'seed{seed}' if seed is not None else root / run.name


def directory(run: Run, seed: int | None, plan: Plan) -> pathlib.Path:
  """Return the work directory of a run."""
  return plan.directories.get((run.name, seed)) or default_directory(run, seed, plan.runs[0])


def dependencies(run: Run, runs: Mapping[str, Run]) -> list[Run]:
  """Return the runs that `run` starts from, reads a file of, or measures."""
  return _named(' '.join((*run.settings, *run.then)), runs)


def prerequisites(run: Run, seed: int | None, runs: Mapping[str, Run]) -> list[tuple[str, int | None]]:
  """Return (name, seed) of each run that `run` needs, with the seeds in its braces or else its own seed."""
  needed: list[tuple[str, int | None]] = []
  for data, name, first, last in _BRACES.findall(' '.join((*run.settings, *run.then))):
    if not data and name not in _OWN:
      needed += [(name, each) for each in _seeds_of(runs[name], seed, first, last)]
  return list(dict.fromkeys(needed))


def _seeds_of(run: Run, seed: int | None, first: str, last: str) -> list[int | None]:
  """Return the seeds of a run in braces: '{NAME:FIRST-LAST}', '{NAME:FIRST}', or '{NAME}' of the seed `seed`."""
  if first:
    return list(range(int(first), int(last or first) + 1))
  return [seed if run.seeds else None]


def planned_seeds(names: Iterable[str], runs: Mapping[str, Run], plan: Plan) -> dict[str, list[int | None]]:
  """Return the seeds of the runs named, and of those that they need, in an order that respects dependencies."""
  ordered = sort_by_dependency(list(names), runs)
  planned = {run.name: seeds(run, plan) for run in ordered}
  for run in reversed(ordered):
    for seed in planned[run.name]:
      for name, each in prerequisites(run, seed, runs):
        if each not in planned[name]:
          planned[name].append(each)
  return planned


def starts(run: Run, seed: int | None, runs: Mapping[str, Run], plan: Plan) -> list[pathlib.Path] | None:
  """Return the work directories that `run` starts from; [] if the user gives them, None for newly initialised ones."""
  texts = [text for text in run.settings if text.startswith('train.init_from=')]
  if not texts:
    return None
  return [directory(other, seed if other.seeds else None, plan) for other in _named(texts[-1], runs)]


def _named(text: str, runs: Mapping[str, Run]) -> list[Run]:
  names_of_runs = [name for data, name, *_ in _BRACES.findall(text) if not data and name not in _OWN]
  return [runs[name] for name in dict.fromkeys(names_of_runs)]


def of_seed(run: Run) -> list[str]:
  """Return the keys of a run's settings whose values follow from its seed."""
  return [text.partition('=')[0] for text in run.settings if '{seed}' in text]


def read_from(rows: Iterable[Row]) -> list[str]:
  """Return the names of the runs that rows are read from, each once."""
  return list(dict.fromkeys(name for row in rows for name in row.runs))


def sort_by_dependency(names: list[str], runs: Mapping[str, Run]) -> list[Run]:
  """Return the runs named in `names`, each after those that it needs."""
  ordered_runs: dict[str, Run] = {}

  def add(run: Run) -> None:
    for other in dependencies(run, runs):
      add(other)
    ordered_runs.setdefault(run.name, run)

  for name in names:
    add(runs[name])
  return list(ordered_runs.values())


def commands(run: Run, seed: int | None, runs: Mapping[str, Run], plan: Plan, *, shown: bool = False) -> list[Command]:
  """Return the commands of a run in order.

  Args:
    shown: for display only: DATA/NAME replaces data that the user has not given.

  Raises:
    Missing: required data was not given, and `shown` is False.
  """
  where = directory(run, seed, plan)

  def fill(text: str) -> str | None:
    left_out = False

    def expand(match: re.Match) -> str:
      nonlocal left_out
      data, name, first, last = match.groups()
      if not data:
        other = runs.get(name)
        if name == 'seed':
          return str(seed or 0)
        if name == 'dir' or other is None:
          return str(where)
        return ','.join(str(directory(other, each, plan)) for each in _seeds_of(other, seed, first, last))
      if name in plan.data:
        return plan.data[name]
      left_out |= not DATA[name].required
      if DATA[name].required and not shown:
        raise Missing(f'{run.name} needs {DATA[name].files} ({DATA[name].terms}): --data={name}=DIR')
      return f'DATA/{name}'

    filled_text = _BRACES.sub(expand, text)
    return None if left_out else filled_text

  planned = []
  if run.config:
    changes = [fill(text) for text in (*run.settings, *plan.settings)]
    words = [run.kind, f'--config={argument(run, plan)}', f'--workdir={where}']
    words += [f'--config.{text}' for text in changes if text is not None]
    words += [] if seed is None else [f'--config.seed={seed}']
    planned.append(Command(tuple(words), where / 'results.json'))
  for text in run.then:
    filled = [fill(word) for word in shlex.split(text)]
    words = [word for word in filled if word is not None]
    words = [_with_options(word, plan) if words[0] == 'ngrams' else word for word in words]
    planned.append(Command(tuple(words), _proof(words)))
  return planned


def argument(run: Run, plan: Plan) -> str:
  """Return the experiment file of a run with its argument."""
  return _with_options(run.config, plan)


def _with_options(text: str, plan: Plan) -> str:
  if not plan.options or not re.match(r'(--config=)?experiments/', text):
    return text
  return f'{text}{"," if ":" in text else ":"}{plan.options}'


def _proof(words: list[str]) -> pathlib.Path:
  named = dict(word.partition('=')[::2] for word in words)
  file = named.get('--output') or named.get('--json')
  return unchecked_path(file or f'{named["--workdir"]}/config.json')


def configs(run: Run, plan: Plan) -> dict[str, dict[str, Any]]:
  """Return the settings that the config.json of a run must have: {folder below its directory: {'section.key': value}}.

  They come from the experiment and the table, without lmx's defaults and the keys of `is_free`. They are the same for
  every seed, where '{seed}' stands for it.
  """
  return _configs(argument(run, plan), run.kind, run.settings, plan.settings)


@functools.cache
def _configs(config: str, kind: str, settings: tuple[str, ...], added: tuple[str, ...]) -> dict[str, dict[str, Any]]:
  path, _, arg = config.partition(':')
  module = _experiment(path)
  with experiment.running(path):
    if kind != 'pipeline':
      return {'': _flat(module.get_config(arg), (*settings, *added))}
    stages = {}
    for stage in module.stages(arg):
      if 'config' in stage:
        file, _, text = stage['config'].partition(':')
        part = _experiment(file)
        own = [f'{key}={value}' for key, value in stage['overrides'].items()]
        changes = [s.removeprefix(stage['name'] + '.') for s in settings if s.startswith(stage['name'] + '.')]
        stages[stage['name']] = _flat(part.get_config(text), (*own, *changes, *added))
    return stages


_experiment = functools.cache(experiment.load)


def _flat(config: Any, changes: tuple[str, ...]) -> dict[str, Any]:
  tree = config.to_dict()
  for text in changes:
    key, _, value = text.partition('=')
    experiment.set_value(tree, key.split('.'), value)
  flat = dict(experiment.flatten(json.loads(json.dumps(tree))))
  if isinstance(tree.get('data', {}).get('batching'), str):
    flat['data.batching.name'] = flat.pop('data.batching')
  changed = {text.partition('=')[0] for text in changes}
  copied = set(_LIKE_INIT) - changed if flat.get('train.like_init') and 'train.init_from' in changed else set()
  return {key: x for key, x in computation_settings(flat).items() if key not in copied}


def computation_settings(flat: Mapping[str, Any]) -> dict[str, Any]:
  """Return the settings in a flat config that affect the computation."""
  averaged = {'checkpoint.every_steps'} if flat.get('evaluation.which') == 'average' else set()
  return {key: x for key, x in flat.items() if key in averaged or not is_free(key)}


def is_free(key: str) -> bool:
  """Return whether 'section.key' does not affect the computation."""
  return key.startswith(_FREE)
