"""Reader of the records that lmx writes: config.json, results.json, metrics.jsonl, heartbeats and other JSON.

Each is read through one schema. A record that is damaged, of another type or of another program raises an InputError
that names the file, the line and the field; nothing is skipped but the last line of metrics.jsonl, which a kill may
truncate.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lmx import documents, storage
from lmx.errors import InputError, explain

Record = dict[str, Any]

CONFIG, DATA, RESULTS, METRICS, PROGRESS = 'config.json', 'data.json', 'results.json', 'metrics.jsonl', 'progress.json'
ROWS = 'rows.jsonl'
NGRAMS = 'ngrams.json'  # of a saved n-gram model
LOGS = 'logs'  # folder of the processes' logs and heartbeats
SILENT = 3  # heartbeats after which a process without one counts as silent
NONFINITE = {'NaN': math.nan, 'Infinity': math.inf, '-Infinity': -math.inf}  # strings, as JSON has no such numbers
_DEEPEST = 32  # levels of lists and objects
_LARGEST = 2**63 - 1  # of steps and seeds
_CHECKPOINT = re.compile(r'step_(\d{1,18})(\.\d+)?')
_COUNTS = ('step', 'steps', 'seed', 'skipped_updates', 'tokens_counted', 'words_counted', 'unknown_words')
_TEXTS = (
  'name',
  'model',
  'dataset',
  'split',
  'metric',
  'unit',
  'data_hash',
  'config_hash',
  'commit',
  'device',
  'protocol',
  'word_rule',
)
_AS_WRITTEN = (*_TEXTS, 'labels', 'command', 'versions', 'flags')  # where 'NaN' and 'Infinity' are texts
_SECONDS = ('seconds', 'training_seconds')
_OPTIONAL = (*_AS_WRITTEN, *_SECONDS, 'baselines', 'validation_baselines', 'classes', 'bleu_by_length', 'utilisation')
_SHARES = ('precision', 'recall', 'f1')


def read(path: Any) -> Record:
  """Return the object of a JSON file. Raises InputError."""
  value = read_json(path)
  if not isinstance(value, dict):
    raise InputError(f'{path}: got {documents.show(value)}; expected an object')
  return value


def read_json(path: Any) -> Any:
  """Return the value of a JSON file. Raises InputError, also for one nested too deep or with a too large integer."""
  value = documents.read_json(path)
  from_json(value, str(path))
  return value


def read_if_exists(path: Any) -> Record:
  """Return the object of a JSON file, {} without one. Raises InputError."""
  return read(path) if exists(path) else {}


def exists(path: Any) -> bool:
  """Return True if a path exists. Raises InputError if the file system cannot be read."""
  try:
    return path.exists()
  except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
    raise InputError(f'{path} cannot be read ({explain(error)})') from None


def from_json(value: Any, where: str = '', depth: int = _DEEPEST) -> Any:
  """Return a JSON value with numbers for the strings that lmx writes for NaN and infinities.

  Raises:
    InputError: it has more than 32 levels, or an integer that no float holds.
  """
  if isinstance(value, (dict, list)) and not depth:
    raise InputError(f'{where}: got JSON nested too deep; expected at most {_DEEPEST} levels')
  if isinstance(value, dict):
    return {key: from_json(inner, where, depth - 1) for key, inner in value.items()}
  if isinstance(value, list):
    return [from_json(inner, where, depth - 1) for inner in value]
  if isinstance(value, int) and value.bit_length() > 1000:
    raise InputError(f'{where}: got {documents.show(value)}; expected a number that a float can hold')
  return NONFINITE.get(value, value) if isinstance(value, str) else value


def is_number(value: Any) -> bool:
  """Return True for a number, NaN and infinities included, False for a truth value."""
  return isinstance(value, int | float) and not isinstance(value, bool)


def check_number(value: Any, where: str) -> None:
  """Raise InputError unless a value is a number; `where` ends with the name of its field."""
  if not is_number(value):
    raise InputError(f'{where}: got {documents.show(value)}; expected a number')


def check_count(value: Any, where: str) -> int:
  """Return a value as an integer. Raises InputError unless it is at least 0 and below 2**63."""
  count = documents.convert(value, int, where)
  if not 0 <= count <= _LARGEST:
    raise InputError(f'{where}: got {documents.show(value)}; expected an integer from 0 to 2^63 - 1')
  return count


# config.json


def read_config(workdir: Any) -> Record:
  """Return the config of a run as it is recorded, {} without one. Raises InputError if it is no config of a run."""
  path = workdir / CONFIG
  config = read_if_exists(path)
  if 'model' in config:
    documents.field(config['model'], 'name', str, f'{path}: model')
  train = documents.field(config, 'train', dict, str(path), {})
  check_count(documents.field(train, 'steps', int, f'{path}: train', 0), f'{path}: train: steps')
  return config


def read_setting(workdir: Any, section: str, key: str) -> Any:
  """Return a setting of a run's config.json, None if it is not set. Raises InputError if config.json is damaged."""
  return documents.field(read_config(workdir), section, dict, str(workdir / CONFIG), {}).get(key)


# results.json


def describe_checkpoint(metrics: Mapping[str, Any]) -> str:
  """Return the checkpoint that metrics are of, such as 'step 1,000' or 'mean of steps 500, 1,000'; '' without one."""
  if steps := metrics.get('averaged_steps'):
    return f'mean of steps {", ".join(f"{step:,}" for step in steps)}'
  return '' if metrics.get('step') is None else f'step {metrics["step"]:,}'


def save_rows_command(workdir: Any, results: Mapping[str, Any], folder: str = 'ROWS') -> str:
  """Return the command that repeats the evaluation of a run's results.json and saves its rows to a folder."""
  which = read_setting(workdir, 'evaluation', 'which') or 'best'
  options = f'--split={results.get("split", "test")} --which={which} --save_rows={folder}'
  return f'lmx evaluate --workdir={shlex.quote(str(workdir))} {options}'


def read_results(workdir: Any, required: Sequence[str] = ()) -> Record:
  """Return results.json of a work directory, {} without one. Raises InputError as `read_results_file` does."""
  path = workdir / RESULTS
  return read_results_file(path, required) if exists(path) else {}


def read_results_file(path: Any, required: Sequence[str] = ()) -> Record:
  """Return the content of results.json if it has the types that lmx writes.

  Args:
    path: the file.
    required: fields that it must have; with 'metric', the metric that it names too.

  Raises:
    InputError: a field is missing, or has another type.
  """
  where, raw = str(path), read(path)
  raw = {name: value for name, value in raw.items() if value is not None or name not in _OPTIONAL}
  results = {name: value if name in _AS_WRITTEN else from_json(value, where) for name, value in raw.items()}
  for name in required:
    documents.field(results, name, str, where)
  for name in _TEXTS:
    documents.field(results, name, str, where, '')
  for name in set(_COUNTS) & results.keys():
    check_count(results[name], f'{where}: {name}')
  if results.get('trigger_step') is not None:  # null: the averaging has not begun
    check_count(results['trigger_step'], f'{where}: trigger_step')
  for name in _SECONDS:
    if documents.field(results, name, float, where, 0.0) < 0:
      raise InputError(f'{where}: {name}: got {results[name]}; expected at least 0')
  if 'metric' in required or results.get('metric', '') in results:
    check_number(results.get(results['metric']), f'{where}: {results["metric"]}')
  for name in ('versions', 'flags', 'baselines', 'validation_baselines'):
    for part, inner in documents.field(results, name, dict, where, {}).items():
      documents.convert(inner, str if name in ('versions', 'flags') else dict, f'{where}: {name}: {part}')
  for name, value in documents.field(results, 'utilisation', dict, where, {}).items():
    check_number(value, f'{where}: utilisation: {name}')
  for part in documents.field(results, 'command', list, where, []):
    documents.convert(part, str, f'{where}: command')
  if 'rows' in results or 'interval' in results:
    rows = documents.field(results, 'rows', dict, where)
    check_count(documents.field(rows, 'count', int, f'{where}: rows'), f'{where}: rows: count')
  interval = documents.field(results, 'interval', list, where, [0, 0])
  if len(interval) != 2 or not all(map(is_number, interval)):
    raise InputError(f'{where}: interval: got {documents.show(interval)}; expected two numbers')
  _check_classes(results, where)
  _check_lengths(results, where)
  return results


def _check_classes(results: Mapping[str, Any], where: str) -> None:
  """Raise InputError unless `classes`, `labels` and `confusion` are tables."""
  for name, one in documents.field(results, 'classes', dict, where, {}).items():
    for key in _SHARES:
      documents.field(one, key, float, f'{where}: classes: {name}')
    check_count(documents.field(one, 'count', int, f'{where}: classes: {name}'), f'{where}: classes: {name}: count')
  for label in documents.field(results, 'labels', list, where, []):
    documents.convert(label, str, f'{where}: labels')
  if 'confusion' not in results:
    return
  labels, rows = (documents.field(results, name, list, where) for name in ('labels', 'confusion'))
  size = len(labels)
  if not all(isinstance(row, list) and len(row) == size for row in rows) or len(rows) != size:
    raise InputError(f'{where}: confusion: got {documents.show(rows)}; expected {size} lists of {size}, as of labels')
  for row in rows:
    for count in row:
      check_count(count, f'{where}: confusion')


def _check_lengths(results: Mapping[str, Any], where: str) -> None:
  """Raise InputError unless `bleu_by_length` is a table as `lmx.metrics.translation` writes it."""
  for row in documents.field(results, 'bleu_by_length', list, where, []):
    at = f'{where}: bleu_by_length'
    for name, kind in (('words', str), ('above', int), ('sentences', int)):
      documents.field(row, name, kind, at)
    documents.field(row, 'unit', str, at, '')
    documents.field(row, 'up_to', int, at, 0)  # null: no limit
    check_number(row.get('bleu'), f'{at}: bleu')


# metrics.jsonl


def read_metrics(workdir: str | os.PathLike[str]) -> list[Record]:
  """Return the records of metrics.jsonl: `step`, `split` ('train', 'valid', ...) and values; [] without one.

  Raises:
    InputError: a line is no record, except a last one without a line end.
  """
  path = storage.path('DIR', workdir, storage.FOLDER) / METRICS
  return parse_metrics(documents.read_bytes(path).decode(errors='replace'), str(path)) if exists(path) else []


def parse_metrics(text: str, path: str, on_fault: Callable[[str], None] | None = None) -> list[Record]:
  """Return the records of a text, the last one of each (step, split); a last line without its end may be truncated.

  Args:
    text: content of metrics.jsonl, or some of its lines.
    path: its path, for messages.
    on_fault: called with the message about each line that is no record, which is then skipped; None raises it.

  Raises:
    InputError: a line is no record.
  """
  records: dict[tuple[int, str], Record] = {}
  *lines, rest = text.split('\n')
  for number, line in enumerate([*lines, rest], 1):
    try:
      record = _record(line, f'{path}, line {number}')
    except InputError as error:
      if number > len(lines):
        break
      if on_fault is None:
        raise
      on_fault(str(error))
      continue
    key = (record['step'], record['split'])
    records.pop(key, None)  # so that the last record also comes last
    records[key] = record
  return list(records.values())


def _record(line: str, where: str) -> Record:
  """Return a record of metrics.jsonl; every value but `split` is a number. Raises InputError."""
  value = documents.parse_json(line, where)
  step = check_count(documents.field(value, 'step', int, where), f'{where}: step')
  split = documents.field(value, 'split', str, where)
  record = {**from_json(value, where), 'step': step, 'split': split}
  for name in record.keys() - {'split'}:
    check_number(record[name], f'{where}: {name}')
  return record


# progress


def read_total(workdir: Any) -> int | None:
  """Return the run's total updates; None if they depend on the data and no session has recorded them."""
  if total := read_setting(workdir, 'train', 'steps'):
    return int(total)
  path = workdir / PROGRESS
  return check_count(documents.field(read(path), 'steps', int, str(path)), f'{path}: steps') if exists(path) else None


def last_checkpoint(workdir: Any) -> int:
  """Return the step of the newest checkpoint, 0 without one."""
  return max(_checkpoint_steps(workdir / 'checkpoints'), default=0)


def _checkpoint_steps(folder: Any) -> Iterator[int]:
  try:
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
  except OSError as error:
    raise InputError(f'{folder} cannot be read ({explain(error)})') from None
  for name in names:
    if match := _CHECKPOINT.fullmatch(name):
      yield int(match[1])


# logs/host-NNN.json


def heartbeat_name(process: int) -> str:
  """Return the name of the file with the last heartbeat of a process."""
  return f'host-{process:03d}.json'


def read_heartbeat(workdir: Any) -> Record:
  """Return `host` and `is_fresh` of the last heartbeat of process 0, {} without one. Raises InputError.

  A heartbeat is fresh for SILENT intervals, unless it is the one with which the process ended.
  """
  path = workdir / LOGS / heartbeat_name(0)
  found, where = read_if_exists(path), str(path)
  if not found:
    return {}
  host, written = documents.field(found, 'host', str, where), documents.field(found, 'time', float, where)
  interval = documents.field(found, 'interval', float, where, 60.0)
  ended = documents.field(found, 'ended', bool, where, False)
  return {'host': host, 'is_fresh': not ended and time.time() - written < SILENT * interval}
