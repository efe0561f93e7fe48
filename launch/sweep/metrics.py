"""Metrics of a run, read from its work directory on a disk or a bucket."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from launch import jobs
from lmx import documents, records
from lmx.errors import InputError
from lmx.metrics import metric


@dataclasses.dataclass(frozen=True)
class Metric:
  """Metric that a sweep optimises.

  Attributes:
    name: key of the record.
    direction: 'minimize' or 'maximize'.
    final: from results.json, at the end of a run; else of the validation split, during the run.
  """

  name: str
  direction: str
  final: bool = False

  @classmethod
  def parse(cls, text: str) -> Metric:
    """Parse 'loss', 'accuracy', 'reward:max', 'results.bleu'. Raises InputError."""
    name, _, order = text.partition(':')
    final, name = name.startswith('results.'), name.removeprefix('results.')
    known = {'min': 'minimize', 'max': 'maximize'}
    order = order or ('' if not name else {True: 'max', False: 'min', None: ''}[is_higher_better(name)])
    if order not in known or not name:
      raise InputError(f'--metric={text}: expected a direction; give {name or "NAME"}:min or :max')
    return cls(name, known[order], final)


class Measurement(NamedTuple):
  """A metric of a run and its step, with the last step and the seconds of the run."""

  value: float
  step: int
  steps: int
  seconds: float


def read_records(folder: Any, split: str = '') -> list[dict[str, Any]]:
  """Return the records of metrics.jsonl by step, of one split or all. Raises InputError if it is damaged."""
  every = [record for record in records.read_metrics(folder) if not split or record['split'] == split]
  return sorted(every, key=lambda record: (record['step'], record['split']))


def file_version(path: Any) -> Any:
  """Return a value that changes with the file, on a disk or a bucket; None without a file."""
  if not path.exists():
    return None
  state = path.stat()
  if isinstance(path, pathlib.Path) and hasattr(state, 'st_ino'):
    return state.st_mtime_ns, state.st_size, state.st_ino
  return state.mtime, state.length


def has_ended(folder: Any) -> bool:
  """Return whether a run has ended."""
  return (folder / 'results.json').exists()


def measure(folder: Any, metric: Metric) -> Measurement:
  """Return a finished run's validation metric, for the parameters that it evaluates: the best by `train.best_by`,
  unless `evaluation.which` sets others.

  Raises:
    InputError: the metric is missing or not finite, or a record of the run is damaged.
  """
  every = read_records(folder)
  steps = max((record['step'] for record in every), default=0)
  seconds = max((float(record.get('seconds', 0)) for record in every), default=0.0)
  if metric.final:
    candidates = [{'step': steps, **records.read_results(folder)}]
  else:
    candidates = [record for record in every if record['split'] == 'valid']
  with_metric = [record for record in candidates if records.is_number(record.get(metric.name))]
  if not with_metric:
    known = sorted({k for record in candidates for k, v in record.items() if isinstance(v, float)} - {'seconds'})
    raise InputError(f'the run has no metric "{metric.name}"; it has: {", ".join(known) or "none"}')
  last = metric.final or records.read_setting(folder, 'evaluation', 'which') in ('last', 'average')
  chosen = with_metric[-1] if last else _best(folder, with_metric)
  value = float(chosen[metric.name])
  if not math.isfinite(value):
    raise InputError(f'the metric "{metric.name}" of the run is {value}')
  return Measurement(value, int(chosen['step']), steps, seconds)


def _best(folder: Any, validations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
  """Return the validation of the step that a finished run evaluates.

  Results of earlier versions may have no step; then the best step by `train.best_by` counts.
  """
  results = records.read_results(folder)
  if evaluated := [record for record in validations if record['step'] == results.get('step')]:
    return evaluated[-1]
  name = str(records.read_setting(folder, 'train', 'best_by') or 'loss')
  if name == 'headline':
    name = documents.field(results, 'metric', str, str(folder / records.RESULTS))
  ranked = [record for record in validations if name in record]
  if not ranked:
    raise InputError(f'the validations of the run have no "{name}", by which train.best_by ranks them')
  sign = -1 if is_higher_better(name) else 1
  return min(ranked, key=lambda record: math.inf if math.isnan(float(record[name])) else sign * float(record[name]))


def is_higher_better(name: str) -> bool | None:
  """Return the direction that an objective declares for a metric, None if there is none."""
  declared = (metric.Metric(*one) for one in (() if name == metric.LOSS.name else _declared()))
  found = metric.find(declared, name)
  return None if found is None else found.higher_is_better


@functools.cache
def _declared() -> list[tuple[str, bool | None]]:
  """Return (name, direction) of the metrics of all objectives, read by another process, because these import JAX."""
  code = (
    'import json; from lmx import objectives\n'
    'print(json.dumps([(name, one.higher_is_better) for name, one in objectives.metrics().items()]))'
  )
  done = subprocess.run([sys.executable, '-c', code], stdout=subprocess.PIPE, encoding='utf-8', check=True)
  return [(name, is_higher) for name, is_higher in json.loads(done.stdout)]


def progress(folder: Any) -> str:
  """Return the last step of a run, of how many if they are known, and its last losses, or that it is damaged."""
  try:
    steps, last = records.read_total(folder), {record['split']: record for record in read_records(folder)}
  except InputError as error:
    return f'damaged: {error}'
  if not last:
    return 'begins'
  step = max(int(record['step']) for record in last.values())
  losses = [
    f'{split} {float(last[split]["loss"]):.4g}' for split in ('train', 'valid') if 'loss' in last.get(split, {})
  ]
  return ', '.join([f'step {step:,}' + (f' of {steps:,}' if steps else ''), *losses])


def log_tail(folder: pathlib.Path, lines: int = 20, most: int = 2000) -> str:
  """Return the end of a run's log."""
  path = folder / jobs.LOG
  return (
    '\n'.join(path.read_text(errors='replace', encoding='utf-8').splitlines()[-lines:])[-most:] if path.exists() else ''
  )
