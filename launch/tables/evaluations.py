"""Evaluation that a line of measured.csv records: its config, data, splits and metrics, and what the line has wrong.

A config is resolved, which imports JAX. Nothing is run.
"""

from __future__ import annotations

import collections
import fnmatch
import functools
import pathlib
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from experiments.tables import DATA, METRICS, Metric, Row, Run
from launch.tables import measured, recorded, trainings, verdict
from launch.tables import plan as plans
from lmx.errors import InputError

_SIZES = ('parameters', 'parameters_with_heads', 'training_flops')
_REPORTED = {  # metrics of commands that evaluate no objective
  'ngrams': ('loss', 'perplexity_per_*', 'bits_per_*'),
  'vectors': ('analogies.*', 'spearman', 'pearson'),
  'describe': _SIZES,
}
_SPLITS = {'ngrams': 'valid,test', 'context': 'valid', 'evaluate': 'test'}  # without --split
_EVERY = ('', 'all')  # split of a command that reads none
_UNPREPARED = (
  *('batching', 'batch_size', 'eval_batch_size', 'length', 'eval_length', 'shuffle', 'row_parts'),
  *('prefetch', 'workers', 'processes'),
)
_PATHS = ('cache_dir', 'manual_dir', 'check_sizes')
_TRAINING_DATA = re.compile(r'--config\.(.*\.)?data\.manual_dir')
_FIRST = re.compile(r'[A-Za-z0-9]{2}[A-Za-z0-9-]*')


class Evaluation(NamedTuple):
  """Evaluation by the last command of a line.

  Attributes:
    configs: resolved configs: one, those of all stages of a pipeline, or none.
    splits: evaluated splits; () if the command names none.
    metrics: names of the reported metrics, with `*` for any text.
  """

  configs: tuple[Any, ...]
  splits: tuple[str, ...]
  metrics: tuple[str, ...]

  @property
  def datasets(self) -> list[str]:
    """Return the values of `data.dataset`."""
    return list(dict.fromkeys(str(config['data']['dataset']) for config in self.configs))


def metrics_of(one: measured.Measurement) -> list[Metric]:
  """Return the metrics that a line may mean: that of its row, else those with its name. Raises InputError for none."""
  row = verdict.rows().get(one.id)
  known = [METRICS[row.metric]] if row else list(METRICS.values())
  found = [metric for metric in known if metric.title == one.metric]
  found = found or [metric for metric in known if one.metric in metric.printed]
  if not found:
    names = sorted({name for metric in known for name in (metric.title, *metric.printed)})
    what = 'the metric of its row' if row else 'a metric that lmx writes'
    raise InputError(f'{one.id}: metric: got {one.metric}; expected {what}: {", ".join(names)}')
  return found


def is_size(one: measured.Measurement) -> bool:
  """Return whether the metric of a line is a size of the model, which depends on no data."""
  return any(metric.key in _SIZES for metric in METRICS.values() if one.metric in (metric.title, *metric.printed))


def of(one: measured.Measurement, lines: trainings.Lines | None = None) -> Evaluation | None:
  """Return the evaluation by the last command of a line; None if it is not one of lmx.

  Args:
    one: the line.
    lines: all lines by id, those of measured.csv without it.

  Raises:
    InputError: its config cannot be resolved.
  """
  words, row = _last_command(one)
  if words[:1] != ['lmx']:
    return None
  training = trainings.measured_run(one, lines)
  found = configs(words, training[0] if training else None)
  pick = dict(part.split('=', 1) for part in row.pick.split(',') if part) if row else {}
  splits = (pick['split'],) if 'split' in pick else _splits(words, found)
  return Evaluation(found, splits, _metrics(words, found))


def _last_command(one: measured.Measurement) -> tuple[list[str], Row | None]:
  """Return the last command of a line, or the one that writes the file of its row; the row of a table's line."""
  words = recorded.commands(one)[-1]
  if tuple(words[:3]) != recorded.TABLES:
    return [recorded.fill(word, {recorded.SEED: '0'}) for word in words], None
  table = trainings.table_of(words[3:])
  row = next(row for row in table.rows if row.id == one.id)
  runs = {run.name: run for run in table.runs}
  for command in plans.commands(runs[row.run], None, runs, trainings.table_plan(words[3:]), shown=True):
    if command.proof.stem in row.file.split(','):
      return ['lmx', *command.words], row
  return [], row


def configs(words: Sequence[str], run: Run | None) -> tuple[Any, ...]:
  """Return the resolved configs that a command evaluates: its own, else those of the run `run`."""
  changes = tuple(
    f'{name.removeprefix("--config.")}={value}'
    for name, value in recorded.options(words)
    if name.startswith('--config.')
  )
  given = recorded.option(words, '--config')
  if words[1] in _REPORTED and words[1] != 'ngrams' and not run:
    return ()
  if given:
    return resolved(given, changes, words[1])
  return resolved(run.config, (*run.settings, *changes), run.kind) if run else ()


@functools.cache
def resolved(config: str, changes: tuple[str, ...], kind: str = 'train') -> tuple[Any, ...]:
  """Return the resolved config of a training, or those of a pipeline's stages. Raises InputError.

  A run that it starts from is not there to take sizes from.
  """
  from lmx.cli import pipeline
  from lmx.config import resolve

  changes = tuple(re.sub(r'^((.*\.)?train.init_from=).*', r'\1', text).replace('{seed}', '0') for text in changes)
  with warnings.catch_warnings(action='ignore'):
    if kind != 'pipeline':
      return (resolve.load(config, changes),)
    stages = pipeline.plan(config, pathlib.Path('DIR'), list(changes))
    return tuple(
      resolve.load(stage['config'], [re.sub(r'^(train.init_from=).*', r'\1', text) for text in stage['overrides']])
      for stage in stages
      if 'config' in stage
    )


def _splits(words: Sequence[str], configs: Iterable[Any]) -> tuple[str, ...]:
  """Return the splits that a command evaluates; () if it names none."""
  if named := recorded.option(words, '--split') or recorded.option(words, '--splits'):
    return tuple(named.split(','))
  if words[1] in ('vectors', 'describe'):
    return _EVERY
  if words[1] in _SPLITS and not (words[1] == 'evaluate' and recorded.option(words, '--config')):
    return tuple(_SPLITS[words[1]].split(','))
  if words[1] in ('train', 'pipeline', 'evaluate'):
    return tuple(split for config in configs for split in str(config['evaluation']['split']).split(','))
  return ()


def _metrics(words: Sequence[str], configs: Iterable[Any]) -> tuple[str, ...]:
  """Return the names of the metrics that a command reports."""
  from lmx import objectives

  if words[1] in _REPORTED:
    return _REPORTED[words[1]]
  names = ['loss', *_SIZES, *(['attention_length'] if recorded.option(words, '--attention') else [])]
  for config in configs:
    declared = ['loss', *(metric.name for metric in objectives.get(config['objective']['name']).METRICS)]
    parts = [name for name in ('cache', 'mixture') if config['evaluation'][name] or recorded.option(words, f'--{name}')]
    names += [*declared, *(f'{part}.{name}' for part in parts for name in declared)]
  return (*names, 'recl') if words[1] == 'context' else tuple(names)


def problems(one: measured.Measurement, lines: trainings.Lines) -> Iterator[str]:
  """Yield what is wrong with the metric, split, data set and data of a line, whose commands have no problem."""
  try:
    keys = [metric.key for metric in metrics_of(one)]
    found = of(one, lines)
  except InputError as error:
    yield str(error).removeprefix(f'{one.id}: ')
    return
  if found is None:
    return
  if not any(fnmatch.fnmatchcase(key, name) for key in keys for name in found.metrics):
    reported = ', '.join(dict.fromkeys(found.metrics))
    yield f'metric: got {one.metric}; expected one that the last command reports: {reported}'
  yield from _split_problems(one, found)
  if found.configs:
    yield from _data_problems(one, found, lines)
  elif one.data not in recorded.WITHOUT_FILES or one.data_hash:
    yield f'data: got {one.data} {one.data_hash}'.rstrip() + '; expected generated without a hash for a size of a model'


def split_of(one: measured.Measurement) -> str:
  """Return the split of a line as lmx names it."""
  return {'dev': 'valid'}.get(one.split, one.split)


def _split_problems(one: measured.Measurement, found: Evaluation) -> Iterator[str]:
  known = {*_EVERY, *(split for name in found.datasets for split in _splits_of(name))}
  unknown = [split for split in found.splits if split not in known] if found.configs else []
  if unknown:
    names = ', '.join(sorted(known - {*_EVERY}))
    yield f'command: got the split {unknown[0]}; expected one of the data set {", ".join(found.datasets)}: {names}'
  if not found.splits and split_of(one) not in _splits_of(''):
    yield f'split: got {one.split or "none"}; expected one of {", ".join(_splits_of(""))}'
  if not unknown and found.splits and split_of(one) not in (_EVERY if is_size(one) else found.splits):
    yield f'split: got {one.split or "none"}; the last command measures {", ".join(found.splits)}'


def _splits_of(name: str) -> Sequence[str]:
  """Return the splits that a data set of lmx may have."""
  from lmx.data import sources

  if name not in sources.DATA_SETS:
    return sources.SPLITS[:3]  # generated
  if name in (*sources.OWN, *sources.NAMED_SPLITS):
    return sources.SPLITS
  row = sources.DATA_SETS[name]
  return (*row.splits, *getattr(row.layout, 'optional', ()))


def _data_problems(one: measured.Measurement, found: Evaluation, lines: trainings.Lines) -> Iterator[str]:
  """Yield what is wrong with the cells `data` and `dataset` of a line."""
  names, others = _read(one)
  read = list(dict.fromkeys([*found.datasets, *_trained(one, lines)]))
  is_described = not recorded.is_named(one) and ' ' in one.data and any(map(_has_files, found.datasets))
  if not is_described:
    wrong = [name for name in names if not any(_fits(name, dataset) for dataset in read)]
    needed = found.datasets if names or not others else []  # other files are the input
    missing = [dataset for dataset in needed if not any(_fits(name, dataset) for name in names)]
    if wrong or missing:
      yield f'data: got {one.data or "none"}; expected the data of the data set {", ".join(missing or read)}'
      return
  texts = [text for config in found.configs for text in _texts(config['data'])]
  for name in (*names, *others):
    texts += [name, *re.findall(r'\w+', DATA[name].files if name in DATA else name)]
  if not _is_named(one.dataset, texts):
    yield f'dataset: got {one.dataset}; expected a name of the data that the last command reads, {", ".join(read)}'


def _read(one: measured.Measurement) -> tuple[list[str], list[str]]:
  """Return the names of the data that the trainings of a line read, and those of its other files."""
  if not recorded.is_named(one):
    return [one.data], []
  found = recorded.commands(one)
  given = [word for word in recorded.roles(found) if word.role == recorded.GIVEN]
  if tuple(found[0][:3]) == recorded.TABLES:
    return one.data.split(), []
  pairs = zip(given, recorded.data_of(one), strict=False)
  others = [name for word, name in pairs if not _TRAINING_DATA.fullmatch(word.option)]
  return [name for name in one.data.split() if name not in others], others


def _trained(one: measured.Measurement, lines: trainings.Lines) -> list[str]:
  """Return the data sets of a line's trainings."""
  found = []
  for run, _ in trainings.runs_of(one, lines):
    found += [str(config['data']['dataset']) for config in resolved(run.config, run.settings, run.kind)]
  return found


def _fits(name: str, dataset: str) -> bool:
  """Return whether a data set of lmx may be read from the data `name` of DATA."""
  from lmx.data import sources

  if not _has_files(dataset):
    return name in (recorded.WITHOUT_FILES if dataset != 'generated' else ('generated',))
  if name not in DATA:
    return False
  is_own = dataset in (*sources.OWN, *sources.NAMED_SPLITS)
  return is_own or name in dataset.split('/') or dataset.startswith(f'{name}_')


def _has_files(dataset: str) -> bool:
  return dataset != 'generated' and not dataset.startswith('embedded')


def _texts(section: Mapping[str, Any]) -> Iterator[str]:
  """Yield the texts of a config section: the data set, the batching, the task of generated data."""
  for value in section.values():
    if hasattr(value, 'values'):
      yield from _texts(value)
    elif isinstance(value, str):
      yield value


def _is_named(label: str, texts: Iterable[str]) -> bool:
  """Return whether the first word of a label is a name in `texts`, or begins with or ends in one: trec-6 is of trec."""
  first = _FIRST.search(label)
  word = first[0].replace('-', '').lower() if first else ''
  names = {
    part for text in texts for part in (*re.split(r'[^a-z0-9]+', text.lower()), re.sub(r'\W|_', '', text.lower()))
  }
  long = {name for name in names if len(name) > 3}
  return word in names or any(word.startswith(name) or word.endswith(name) or name.startswith(word) for name in long)


def hash_problems(one: measured.Measurement, lines: trainings.Lines) -> Iterator[str]:
  """Yield what is wrong with the data hash of a line, by comparison with all others."""
  if not one.data_hash:
    return
  by_preparation, by_hash = _hashes(tuple(lines.values()))
  key = _preparation(one, lines)
  same = by_preparation.get(key, {}) if key else {}
  ours = _digits(one)
  others = {digits: ids for digits, ids in same.items() if not {*digits.split()} & {*ours.split()}}
  most = max(others, key=lambda digits: len(others[digits]), default='')
  if most and len(others[most]) >= len(same.get(ours, ())):
    yield f'data_hash: got {one.data_hash}; expected {most} as of {others[most][0]}, with the same data and preparation'
    return
  own = _all_data(one, lines)
  for digits in ours.split() if recorded.is_named(one) else ():
    for other in by_hash[digits]:
      if not own & _all_data(other, lines):
        yield f'data_hash: got {digits}, the hash of {other.data} ({other.id}); expected the hash of {one.data}'
        return


@functools.lru_cache(maxsize=2)
def _hashes(
  lines: tuple[measured.Measurement, ...],
) -> tuple[dict[Any, dict[str, list[str]]], dict[str, list[measured.Measurement]]]:
  """Return the hashes of each preparation with the ids of their lines, and the lines of each hash."""
  by_id = {one.id: one for one in lines}
  by_preparation: dict[Any, dict[str, list[str]]] = {}
  by_hash: dict[str, list[measured.Measurement]] = collections.defaultdict(list)
  for one in lines:
    if not one.data_hash or not one.is_lmx or one.kept:
      continue
    for digits in _digits(one).split():
      by_hash[digits].append(one)
    try:
      key = _preparation(one, by_id)
    except (InputError, LookupError, SystemExit):
      continue  # reported as a problem of that line's command
    if key:
      by_preparation.setdefault(key, {}).setdefault(_digits(one), []).append(one.id)
  return by_preparation, by_hash


def _digits(one: measured.Measurement) -> str:
  """Return the first eight digits of a line's hashes, by which they are compared."""
  return ' '.join(key[:8] for key in one.data_hash.split())


def _preparation(one: measured.Measurement, lines: trainings.Lines) -> Any:
  """Return what determines the prepared data of a line: names and settings; None if that is not known.

  The tokenizer of a run may be that of the run that it starts from.
  """
  start = lines.get(next(iter(recorded.starts(one)), ''))
  if start and not trainings.runs_of(one, lines):
    last, _ = _last_command(one)
    return None if recorded.option(last, '--config') else _preparation(start, lines)
  found = of(one, lines)
  if not found or len(found.configs) != 1:
    return None
  data = found.configs[0]['data']
  names, others = _read(one)
  unused = _PATHS if data['dataset'] == 'generated' else (*_UNPREPARED, *_PATHS)
  settings = [f'{key}={value}' for key, value in sorted(data.items()) if key not in unused]
  files = others if data['vectors'] or data['tokenizer_path'] else []
  return (*names, *files, one.start, *settings)


def _all_data(one: measured.Measurement, lines: trainings.Lines) -> set[str]:
  """Return the data of a line and of the runs that it starts from."""
  found, left, seen = set(_read(one)[0]), recorded.starts(one), {one.id}
  while left:
    name = left.pop()
    if name in lines and name not in seen:
      seen.add(name)
      found |= set(_read(lines[name])[0])
      left += recorded.starts(lines[name])
  return found
