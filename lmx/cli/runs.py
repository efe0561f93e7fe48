"""`lmx runs [DIR ...] [--metric=NAME] [--time] [--output=FILE]`: the runs below folders, one per line, the newest last.

A run is finished (it has results.json), running, stopped (the same `lmx train` command resumes it), imported, or
damaged: the reason is below the table, and the exit code is 2 if all are. A run is running if a process of this machine
holds its lock. Where there is no such lock (in a bucket, in a copy, on another host), it is running for three intervals
after the last heartbeat of its process 0 (`train.heartbeat`, a minute), unless that process has ended. The step is the
last one logged or saved, out of the run's total updates. The best validation is the one that `train.best_by` selects:
the lowest loss, or the best value of a metric, which is named. The metric of an unfinished run is from its last
validation. Goodput is the share of the wall time of all sessions in training steps; `--time` lists the other parts.
Checkpoints that `checkpoint.at_words` keeps are below the table.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import json
import math
import pathlib
import socket
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lmx import documents, records, storage
from lmx.errors import InputError, explain
from lmx.metrics import language
from lmx.reporting import ledger
from lmx.reporting.waiting import duration

OWN = ('checkpoints', 'logs', 'tokenizer', 'tensorboard')  # folders of a run that hold no runs
HEAD = ('run', 'model', 'state', 'step', 'best validation', 'metric', '', 'goodput', 'changed')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('folders', nargs='*', metavar='DIR', default=['runs'], help='folders to search (default: runs)')
  parser.add_argument('--metric', default='', help="a metric of each run (default: each run's headline)")
  parser.add_argument('--time', action='store_true', help='list the parts of the wall time of each run')
  parser.add_argument('--output', default='', help='file to write the table to, as JSON')


def run(args: argparse.Namespace) -> int:
  rows = []
  for folder in (storage.path('DIR', text, storage.FOLDER) for text in args.folders):
    if not folder.is_dir():
      raise InputError(f'DIR: {folder} is missing; expected a folder with runs')
    rows += [describe(path, args.metric) for path in find(folder)]
  rows.sort(key=lambda row: row['changed'])
  print('\n'.join(_lines(rows, args.time)) if rows else f'no runs in {", ".join(args.folders)}')
  if args.output:
    from lmx.reporting import run_log

    run_log.write_json(args.output, {'rows': rows})
  return 2 if rows and all(row['state'] == 'damaged' for row in rows) else 0


def find(folder: Any) -> Iterator[Any]:
  """Yield the work directories in a folder and below it, itself included; a folder that cannot be listed is one."""
  try:
    names = sorted(path.name for path in folder.iterdir())
  except OSError:
    yield folder
    return
  if records.CONFIG in names and records.DATA in names:
    yield folder
  for name in names:
    path = folder / name
    if name not in OWN and not name.startswith('.') and _is_folder(path):
      yield from find(path)


def _is_folder(path: Any) -> bool:
  """Return True for a folder that is not a link, because links may form a loop."""
  return path.is_dir() and ('://' in str(path) or not pathlib.Path(path).is_symlink())


def describe(workdir: Any, metric: str = '') -> dict[str, Any]:
  """Return the row of a run in the table; a record that cannot be read makes its state "damaged"."""
  try:
    return read_row(workdir, metric)
  except (InputError, OSError) as error:
    return _row(workdir, state='damaged', error=explain(error))


def read_row(workdir: Any, metric: str = '') -> dict[str, Any]:
  """Return the row of a run in the table. Raises InputError for a record that cannot be read."""
  path = workdir / records.CONFIG
  model = documents.field(records.read(path), 'model', dict, str(path))
  results, log = records.read_results(workdir), records.read_metrics(workdir)
  data = records.read_if_exists(workdir / records.DATA)
  valid = [record for record in log if record['split'] == 'valid']
  best = best_validation(records.read_config(workdir), log)
  name = metric or results.get('metric', 'loss')
  value = (results or (valid[-1] if valid else {})).get(name)
  imported = 'imported_from' in data and not log
  reached = max([record['step'] for record in log] + [records.last_checkpoint(workdir), results.get('steps', 0)])
  at_words = records.read_setting(workdir, 'checkpoint', 'at_words')
  return _row(
    workdir,
    kept=read_kept(workdir) if at_words else [],
    model=results.get('model') or _model_label(json.dumps(model)),
    state='finished' if results else 'imported' if imported else 'running' if is_running(workdir) else 'stopped',
    step=reached,
    steps=None if imported else records.read_total(workdir),
    best_by=best and best.metric,
    best_value=best and best.value,
    best_step=best and best.step,
    metric=name,
    value=value if records.is_number(value) else None,
    uncharged=language.describe_uncharged(results, name),
    time=ledger.read(workdir),
  )


def _row(workdir: Any, **shown: Any) -> dict[str, Any]:
  row = dict.fromkeys(('model', 'state', 'step', 'steps', 'best_by', 'best_value', 'best_step', 'metric', 'value'))
  return {'run': str(workdir), **row, 'kept': [], 'time': {}, 'uncharged': '', **shown, 'changed': _changed(workdir)}


class Best(NamedTuple):
  """The validation that `train.best_by` selects: the metric, its value and step, and True if higher is better."""

  metric: str
  value: float
  step: int
  is_highest: bool


def best_validation(config: records.Record, log: Sequence[records.Record]) -> Best | None:
  """Return the validation of a run that `train.best_by` selects, None before there is one.

  Args:
    config: content of config.json.
    log: records of metrics.jsonl.
  """
  valid = [record for record in log if record['split'] == 'valid']
  train, objective = (documents.field(config, name, dict, records.CONFIG, {}) for name in ('train', 'objective'))
  name, is_highest = 'loss', False
  if valid and train.get('best_by', name) != name:
    name, is_highest = _score(train['best_by'], objective, valid[-1])
  found = [(record[name], record['step']) for record in valid if math.isfinite(record.get(name, math.nan))]
  if not found:
    return None
  value = (max if is_highest else min)(x for x, _ in found)
  steps = [step for x, step in found if x == value]
  return Best(name, value, steps[-1 if train.get('ties') == 'later' else 0], is_highest)


def _score(best_by: str, section: records.Record, last: records.Record) -> tuple[str, bool]:
  """Return the metric that `train.best_by` names, and True if higher is better; the loss if there is none.

  Args:
    best_by: 'headline' or a metric.
    section: the config's objective.
    last: the last validation.
  """
  from lmx import cast, objectives
  from lmx.metrics import metric

  fields = dict(section)
  try:
    objective = objectives.get(fields.pop('name', ''))
    if best_by == 'headline':
      best_by = objective.headline(objective.Config(**cast.convert('objective', objective.Config, fields)), last)
  except (InputError, KeyError):  # a config of another version
    return 'loss', False
  declared = metric.find(objective.METRICS, best_by)
  return (best_by, bool(declared.higher_is_better)) if declared and best_by in last else ('loss', False)


@functools.cache
def _model_label(section: str) -> str:
  """Return `registry.label` of a config's model section, as JSON; only the name if this version does not read it."""
  from lmx.models import registry

  fields = json.loads(section)
  name, variant = fields.pop('name', ''), fields.pop('variant', 'tiny')
  try:
    return registry.label(name, variant, registry.config(name, variant, **fields))
  except InputError:
    return str(name)


def read_kept(workdir: Any) -> list[tuple[int, int]]:
  """Return (step, words) of the checkpoints that `checkpoint.at_words` keeps."""
  from lmx.checkpoint import manager

  return manager.kept(workdir)


def describe_kept(kept: Sequence[tuple[int, int]]) -> str:
  """Return the checkpoints at given numbers of words as text."""
  return ', '.join(f'{words:,} words (step {step:,})' for step, words in kept)


def _changed(workdir: Any) -> float:
  """Return when a run's records last changed, 0 if unknown."""
  times = [0.0]
  for name in (records.CONFIG, records.METRICS, records.RESULTS):
    with contextlib.suppress(OSError):
      times.append(float((workdir / name).stat().mtime))
  return max(times)


def is_running(workdir: Any) -> bool:
  """Return True if another process trains in a work directory. Raises InputError for a damaged heartbeat."""
  locked, beat = _is_locked(workdir), records.read_heartbeat(workdir)
  if locked or not beat or (locked is False and beat['host'] == socket.gethostname()):
    return bool(locked)
  return bool(beat['is_fresh'])


def _is_locked(workdir: Any) -> bool | None:
  """Return True if another process of this machine holds the lock of a work directory, None if there is no lock."""
  import filelock

  lock = pathlib.Path(workdir) / '.lock'
  if '://' in str(workdir) or not lock.exists():
    return None
  try:
    with filelock.FileLock(lock, blocking=False):
      return False
  except filelock.Timeout:
    return True
  except (OSError, RuntimeError):  # a file system without locks, or one that cannot be written
    return None


def _lines(rows: list[dict[str, Any]], with_time: bool = False) -> Iterator[str]:
  """Yield the table in columns."""
  cells = [HEAD]
  for row in rows:
    step = '' if row['step'] is None else f'{row["step"]:,}'
    step += f' of {row["steps"]:,}' if row['steps'] else ''
    best, value = ('' if row[key] is None else f'{row[key]:.4g}' for key in ('best_value', 'value'))
    best = f'{row["best_by"]} {best}' if best else ''
    time = datetime.datetime.fromtimestamp(row['changed'])
    changed = time.strftime('%Y-%m-%d %H:%M') if row['changed'] else ''
    goodput = f'{row["time"]["goodput"]:.1%}' if row['time'] else ''
    name = row['metric'] if value else ''
    cells.append((row['run'], row['model'] or '', row['state'], step, best, name, value, goodput, changed))
  widths = [max(len(line[i]) for line in cells) for i in range(len(HEAD))]
  for line in cells:
    yield '  '.join(
      text.rjust(width) if i in (3, 4, 6, 7) else text.ljust(width)
      for i, (text, width) in enumerate(zip(line, widths, strict=True))
    ).rstrip()
  for row in rows:
    if row['kept']:
      yield f'{row["run"]}: kept at {describe_kept(row["kept"])}'
    if row['uncharged']:
      yield f'{row["run"]}: {row["uncharged"]} in {row["metric"]}'
    if with_time and row['time']:
      sessions = row['time']['sessions']
      yield (
        f'{row["run"]}: {duration(row["time"]["wall_seconds"])} in {sessions:,} session{"s" * (sessions > 1)}: '
        + ledger.describe(row['time'])
      )
    if 'error' in row:
      yield f'{row["run"]}: {row["error"]}'
