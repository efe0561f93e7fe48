"""Parameters and operations of the trainings of all tables: `python -m launch.tables.operations` counts new ones.

JAX counts them in the traced training step, as `lmx describe` does. They are kept in operations.csv, so that hours are
estimated without JAX. A training is found by the settings that determine its operations: the model with the changes of
its experiment, the objective, and the shape of its batch.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import hashlib
import json
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from experiments.tables import Run
from launch.tables import measured, trainings
from launch.tables import plan as plans
from lmx.errors import InputError

FILE = pathlib.Path(__file__).with_suffix('.csv')
_SETTINGS = ('model.', 'objective.', 'data.length', 'data.vocab_size', 'data.target_vocab_size')
_WITHOUT = re.compile('dropout|objective.(positive|metric)|model.init')  # changes no operation
_ROWS = 8  # of the counted batch: operations per position hardly depend on it
# Vocabularies that the experiment leaves to the text; else the variant's.
_VOCABULARIES = {
  'ptb': 10_000,
  'wikitext2': 33_278,
  'wikitext103': 267_735,
  'brown_stream': 16_383,
  'embedded': 6_708,
  'embedded_numbers': 64,
  'trec': 3_900,
  'multi30k': 6_000,
}
_TOKENIZERS = {'characters': 96, 'bytes': 256}
# Placeholder labels, for heads whose size depends on the data.
_LABELS = {
  'dataset': {'name': 'any'},
  'label_names': ['0', '1'],
  'token_label_names': ['B-x', 'I-x', 'O'],
  'spans': True,
  'scores': True,
  'choices': 4,
}


class Count(NamedTuple):
  """Counts of a training.

  Attributes:
    parameters: parameters with heads.
    operations: operations of a training step per position, a token or a pixel.
    width: features of a layer.
    equations: equations of the traced program that a training step executes at the full length.
    in_loops: equations of these in loops over the positions.
  """

  parameters: int
  operations: int
  width: int
  equations: int
  in_loops: int


def sizes(run: Run, runs: Mapping[str, Run]) -> dict[str, dict[str, Any]]:
  """Return the settings that determine the operations of a training, or of each stage of a pipeline, by its name."""
  return {stage: _sizes(run, runs, stage, flat) for stage, flat in plans.configs(run, plans.Plan()).items()}


def _sizes(run: Run, runs: Mapping[str, Run], stage: str, flat: Mapping[str, Any]) -> dict[str, Any]:
  own = {key: flat[key] for key in flat if key.startswith(_SETTINGS) and not _WITHOUT.search(key)}
  for size in ('data.vocab_size', 'data.target_vocab_size'):
    if not own.get(size, 1):  # without a limit, or as the source's
      del own[size]
  known = _TOKENIZERS.get(flat.get('data.tokenizer', '')) or _VOCABULARIES.get(flat.get('data.dataset', ''))
  started = _started(run, runs) if not stage else {}
  return ({} if started or not known else {'data.vocab_size': known}) | started | own


def _started(run: Run, runs: Mapping[str, Run]) -> dict[str, Any]:
  """Return the settings of the model that a run starts from, which it takes unless it has others."""
  model = plans.configs(run, plans.Plan())[''].get('model.name', '')
  for start in plans.dependencies(run, runs):
    if start.name.startswith('imported/'):
      name = start.name.removeprefix('imported/').removeprefix(model).removesuffix('_wwm').removesuffix('_cased')
      return {'model.variant': name.strip('_') or 'base'}
    if start.config and start.kind == 'train':
      first = sizes(start, runs)['']
      if first.get('model.name') == model:
        return {key: value for key, value in first.items() if key.startswith(('model.', 'data.vocab_size'))}
  return {}


def digest(settings: Mapping[str, Any]) -> str:
  """Return the name of a training in the file."""
  return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


@functools.cache
def counts() -> dict[str, Count]:
  """Return the counts of the file by digest."""
  with FILE.open(newline='', encoding='utf-8') as file:
    lines = list(csv.DictReader(file))
  return {line['digest']: Count(*(int(line[name]) for name in Count._fields)) for line in lines}


def all_sizes() -> Iterator[tuple[str, dict[str, Any]]]:
  """Yield (run, settings) of each training of the tables and of measured.csv, each once."""
  seen: set[str] = set()
  for run, runs in [*_of_measurements(), *_of_tables()]:
    try:
      found = sizes(run, runs)
    except InputError:  # a recorded command of an earlier version
      continue
    for stage, settings in found.items():
      if digest(settings) not in seen:
        seen.add(digest(settings))
        yield f'{run.name}/{stage}'.rstrip('/'), settings


def _of_tables() -> Iterator[tuple[Run, dict[str, Run]]]:
  for name in plans.names():
    for table in plans.stages(name):
      runs = {run.name: run for run in table.runs}
      yield from ((run, runs) for run in runs.values() if run.config)


def _of_measurements() -> Iterator[tuple[Run, dict[str, Run]]]:
  for one in measured.measurements():
    yield from trainings.runs_of(one)


def count(settings: Mapping[str, Any]) -> Count:
  """Return the counts of a training, by JAX."""
  from lmx import cast, objectives
  from lmx.cli import describe
  from lmx.engine import flops
  from lmx.models import registry

  tree: dict[str, Any] = {'model': {}, 'objective': {}, 'data': {}}
  for key, value in settings.items():
    section, _, field = key.partition('.')
    if value or field != 'V':
      tree[section][field] = value
  name = tree['model'].pop('name')
  model = registry.get(name)
  if name == 'glue_bilstm' and tree['model'].get('attention', True):
    tree['model'].setdefault('texts', 2)  # of the data: attention is between two texts
  variant = tree['model'].pop('variant', '') or next(iter(model.VARIANTS))
  cfg = registry.config(name, variant, **cast.convert('model', model.Config, tree['model']))
  if 'vocab_size' in tree['data'] and hasattr(cfg, 'V') and 'V' not in tree['model']:
    cfg = dataclasses.replace(cfg, V=tree['data']['vocab_size'])
  if 'target_vocab_size' in tree['data']:
    cfg = dataclasses.replace(cfg, V=tree['data']['target_vocab_size'], source_V=tree['data']['vocab_size'])
  fields = {**model.OBJECTIVE_FIELDS, **tree['objective']}
  objective = objectives.get(fields.pop('name', model.OBJECTIVE))
  objective_cfg = objective.resolve(objective.Config(**cast.convert('objective', objective.Config, fields)), _LABELS)
  task = flops.Task(model, cfg, objective, objective_cfg)
  heads, body = describe.counts(task)
  parameters = body + sum(heads.values())
  length = tree['data'].get('length') or getattr(cfg, 'T', 0) or 35
  batch = task.arguments(_ROWS, length)[1]
  program = flops.traced_loss(task, batch, training=True)
  each = flops.operations(program) / (_ROWS * task.positions(length))
  # Models with the field `scan` loop over layers, others over positions.
  in_loops = 0 if hasattr(cfg, 'scan') else flops.equations(program, loops=True)
  return Count(parameters, round(each), getattr(cfg, 'D', 0), flops.equations(program), in_loops)


def main() -> None:
  """Count the trainings that are not in the file, and write it."""
  known, lines = counts() if FILE.exists() else {}, []
  for name, settings in all_sizes():
    key = digest(settings)
    lines.append((key, name, *(known.get(key) or count(settings))))
    if key not in known:
      print(*lines[-1], flush=True)
  with FILE.open('w', newline='', encoding='utf-8') as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerows([('digest', 'run', *Count._fields), *sorted(lines, key=lambda line: line[1])])


if __name__ == '__main__':
  main()
