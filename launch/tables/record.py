"""Record of collected metrics in experiments/tables/measured.csv."""

from __future__ import annotations

import csv
import datetime
import math
import shlex
import subprocess
from collections.abc import Sequence

from experiments.tables import METRICS
from launch.tables import collection, measured, pages
from launch.tables import plan as plans


def add(name: str, results: Sequence[collection.RowResult], plan: plans.Plan) -> int:
  """Write the rows of a table whose runs are all done; return their number.

  A line of the same row, protocol and command is replaced, others stay.
  """
  lines = list(measured.measurements()) if measured.FILE.exists() else []
  new = [_line(name, one, plan) for one in results if one.state == collection.DONE and one.seeds]
  for line in new:
    same = [i for i, old in enumerate(lines) if (old.id, old.command) == (line.id, line.command)]
    if same:
      lines[same[0]] = line
    else:
      lines.append(line)
  with measured.FILE.open('w', newline='', encoding='utf-8') as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(measured.Measurement._fields)
    writer.writerows(lines)
  measured.measurements.cache_clear()
  return len(new)


def _line(name: str, one: collection.RowResult, plan: plans.Plan) -> measured.Measurement:
  row, line = one.row, plans.published().get(one.row.id)
  digits = len(line.text.partition('.')[2]) if line else 2
  record = collection.read_json(one.seeds[0].workdir / f'{row.file}.json')
  record = record if isinstance(record, dict) else {}
  options = [f'--options={plan.options}'] if plan.options else []
  words = ['python', '-m', 'launch.tables', name, f'--rows={row.id}', *options]
  words += [f'--config.{text}' for text in plan.settings if not plans.is_free(text)]
  return measured.Measurement(
    id=row.id,
    system=pages.system(plans.table(name)),
    row=line.row if line else row.id,
    dataset=line.dataset if line else str(record.get('dataset', '')),
    split=line.split if line and not row.differs else str(record.get('split', '')),
    metric=line.metric if line else METRICS[row.metric].title,
    value=f'{one.mean:.{digits}f}',
    spread='' if math.isnan(one.deviation) else f'{one.deviation:.{max(digits, 1) + 1}f}',
    seeds=str(len(one.seeds)),
    protocol=str(record.get('protocol', '')),
    differs=row.differs,
    command=shlex.join(words),
    commit=_commit(),
    hardware='; '.join(sorted({seed.device for seed in one.seeds if seed.device})),
    date=datetime.datetime.now(datetime.UTC).date().isoformat(),
  )


def _commit() -> str:
  """Return the short hash of the code, '' outside a git checkout."""
  words = ['git', '-C', str(plans.ROOT), 'rev-parse', '--short', 'HEAD']
  done = subprocess.run(words, capture_output=True, text=True, check=False)
  return done.stdout.strip() if done.returncode == 0 else ''
