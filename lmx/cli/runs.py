"""`lmx runs [DIR ...] [--metric=NAME] [--output=FILE.json]`: the runs below folders, one a line, the newest last.

A run is finished (it has results.json), running (a process holds its lock), stopped (the same `lmx train` command
resumes it), or imported. On a bucket, where there are no locks, a running run is shown as stopped. The metric of a run
that is not finished is that of its last validation.
"""

from __future__ import annotations

import argparse
import datetime
import math
import pathlib
from collections.abc import Iterator
from typing import Any

from etils import epath

from lmx import documents
from lmx.config import experiment
from lmx.errors import InputError

OWN = ('checkpoints', 'tokenizer', 'tensorboard')  # folders of a run that hold no runs
HEAD = ('run', 'model', 'state', 'step', 'valid loss', 'metric', '', 'changed')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('folders', nargs='*', metavar='DIR', default=['runs'], help='where to look (default: runs)')
  parser.add_argument('--metric', default='', help="a metric of each run; each run's own headline without it")
  parser.add_argument('--output', default='', help='file to write the table to, as JSON')


def run(args: argparse.Namespace) -> int:
  rows = []
  for folder in map(epath.Path, args.folders):
    if not folder.is_dir():
      raise InputError(f'DIR: {folder} is {"a file" if folder.exists() else "missing"}; expected a folder with runs')
    rows += [describe(path, args.metric) for path in find(folder)]
  rows.sort(key=lambda row: row['changed'])
  print('\n'.join(_lines(rows)) if rows else f'no runs in {", ".join(args.folders)}')
  if args.output:
    from lmx.reporting import run_log

    run_log.write_json(args.output, {'rows': rows})
  return 0


def find(folder: Any) -> Iterator[Any]:
  """Yield the work directories in a folder and below it, itself included."""
  names = sorted(path.name for path in folder.iterdir())
  if 'config.json' in names and 'data.json' in names:
    yield folder
  for name in names:
    path = folder / name
    if name not in OWN and not name.startswith('.') and path.is_dir() and not _is_link(path):
      yield from find(path)


def _is_link(path: Any) -> bool:
  """Return True for a link, which may lead back to where it is."""
  return '://' not in str(path) and pathlib.Path(path).is_symlink()


def describe(workdir: Any, metric: str = '') -> dict[str, Any]:
  """Return what the table shows of a run; a file that cannot be read is shown as the state."""
  from lmx.reporting import run_log

  try:
    settings = dict(experiment.flatten(_read(workdir / 'config.json')))
    results = _read(workdir / 'results.json')
    data, records = _read(workdir / 'data.json'), run_log.read_metrics(workdir)
    name = metric or documents.field(results, 'metric', str, f'{workdir}/results.json', 'loss')
    measured = documents.field(results, 'steps', int, f'{workdir}/results.json', 0)
    steps = documents.field(settings, 'train.steps', int, f'{workdir}/config.json', 0)
    valid = [record for record in records if record['split'] == 'valid']
    losses = [record['loss'] for record in valid if math.isfinite(record.get('loss', math.nan))]
  except (InputError, OSError) as error:
    return _row(workdir, state='damaged', error=str(error))
  value = (results or (valid[-1] if valid else {})).get(name)
  imported = 'imported_from' in data and not records
  return _row(
    workdir,
    model=f'{settings.get("model.name")} {settings.get("model.variant")}',
    state='finished' if results else 'imported' if imported else 'running' if is_locked(workdir) else 'stopped',
    step=max((record['step'] for record in records), default=measured),
    steps=steps,
    valid_loss=min(losses, default=None),
    metric=name,
    value=value if isinstance(value, int | float) else None,
  )


def _row(workdir: Any, **shown: Any) -> dict[str, Any]:
  files = [workdir / name for name in ('config.json', 'metrics.jsonl', 'results.json')]
  changed = max(path.stat().mtime for path in files if path.exists())
  row = dict.fromkeys(('model', 'state', 'step', 'steps', 'valid_loss', 'metric', 'value'))
  return {'run': str(workdir), **row, **shown, 'changed': float(changed)}


def _read(path: Any) -> dict[str, Any]:
  """Return a file of JSON, {} if it is missing."""
  content = documents.read_json(path) if path.exists() else {}
  if not isinstance(content, dict):
    raise InputError(f'{path}: got {documents.show(content)}; expected an object')
  return content


def is_locked(workdir: Any) -> bool:
  """Return True if another process trains in a work directory."""
  import filelock

  lock = pathlib.Path(workdir) / '.lock'
  if '://' in str(workdir) or not lock.exists():
    return False
  try:
    with filelock.FileLock(lock, blocking=False):
      return False
  except filelock.Timeout:
    return True
  except (OSError, RuntimeError):  # a file system without locks, or one that cannot be written
    return False


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
  """Yield the table in columns."""
  cells = [HEAD]
  for row in rows:
    step = '' if row['step'] is None else f'{row["step"]:,}'
    step += f' of {row["steps"]:,}' if row['steps'] and row['state'] != 'finished' else ''
    loss, value = ('' if row[key] is None else f'{row[key]:.4g}' for key in ('valid_loss', 'value'))
    changed = datetime.datetime.fromtimestamp(row['changed']).strftime('%Y-%m-%d %H:%M')
    cells.append((row['run'], row['model'] or '', row['state'], step, loss, row['metric'] or '', value, changed))
  widths = [max(len(line[i]) for line in cells) for i in range(len(HEAD))]
  for line in cells:
    yield '  '.join(
      text.rjust(width) if i in (3, 4, 6) else text.ljust(width)
      for i, (text, width) in enumerate(zip(line, widths, strict=True))
    ).rstrip()
  for row in rows:
    if 'error' in row:
      yield f'{row["run"]}: {row["error"]}'
