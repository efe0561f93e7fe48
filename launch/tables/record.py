"""Record of collected metrics in experiments/tables/measured.csv."""

from __future__ import annotations

import csv
import datetime
import math
import pathlib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.tables import DATA, MEAN, METRICS, Row, Run, Table
from launch.tables import collection, measured, pages, paradigms, verdict
from launch.tables import plan as plans
from lmx.errors import InputError
from lmx.redaction import redact

# Cells of an earlier line of the same metric that stay where the run's records lack them.
_KEPT = ('protocol', 'hardware', 'commit', 'interval', 'start', 'data_hash', 'hours')


def add(name: str, table: Table, results: Sequence[collection.RowResult], plan: plans.Plan) -> int:
  """Write a table's rows whose runs are all done; return their number.

  A line with the same row and command is replaced, also by one of more seeds; others stay. Commit, hardware and date
  come from the run's records, if any. Accuracies by paradigm go into paradigms.csv.

  Raises:
    InputError: a row has a line with another command, or of more seeds.
  """
  lines = dict(measured.by_id())
  new = [_line(name, table, one, plan) for one in results if one.state == collection.DONE and one.seeds]
  for line in new:
    old = lines.get(line.id, line)
    if _without_seeds(old.command) != _without_seeds(line.command) or old.count > line.count:
      seeds = [measured.of_seeds('', one.count) for one in (line, old)]
      raise InputError(
        f'--record: {line.id}: got `{line.command}` with {seeds[0]}; expected one line per row, and {measured.FILE} '
        f'has one of {seeds[1]} by `{old.command}`; remove that line, or give it another id'
      )
    kept = {key: getattr(old, key) for key in _KEPT if line.value == old.value and not getattr(line, key)}
    labels = {} if line.id in plans.published() else {'row': old.row, 'dataset': old.dataset or line.dataset}
    lines[line.id] = line._replace(**kept, **labels)
  paradigms.record(paradigms.of_results(results))
  with measured.FILE.open('w', newline='', encoding='utf-8') as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(measured.Measurement._fields)
    writer.writerows(lines.values())
  measured.measurements.cache_clear()
  return len(new)


def _without_seeds(command: str) -> str:
  return re.sub(r' --seeds=\d+', '', command)


def _line(name: str, table: Table, one: collection.RowResult, plan: plans.Plan) -> measured.Measurement:
  row, line = one.row, plans.published().get(one.row.id)
  digits = len(line.text.partition('.')[2]) if line else METRICS[row.metric].digits
  runs = {run.name: run for run in table.runs}
  file = collection.files(row, one.seeds[0].workdir)[0]
  record = _record(file)
  given = row.options or plan.options
  options = [f'--options={given}'] if given else []
  options += [f'--seeds={plan.seeds}'] if plan.seeds and one.seeds[0].seed is not None else []
  words = ['python', '-m', 'launch.tables', name, f'--rows={row.id}', *options]
  words += [f'--config.{text}' for text in plan.settings if not plans.is_free(text)]
  return measured.Measurement(
    id=row.id,
    system=pages.system(table),
    row=line.row if line else row.id,
    dataset=line.dataset if line else str(record.get('dataset', '')),
    split=line.split if line and not row.differs else str(record.get('split', '')),
    metric=line.metric if line else METRICS[row.metric].title,
    value=f'{one.value:.{digits}f}',
    spread='' if math.isnan(one.deviation) else f'{one.deviation:.{max(digits, 1) + 1}f}',
    seeds=' '.join(str(seed.seed or 0) for seed in one.seeds),
    statistic='' if row.statistic == MEAN else row.statistic,
    interval=' '.join(f'{bound:.{max(digits, 1) + 1}f}' for bound in one.interval),
    protocol=str(record.get('protocol', '')),
    differs=row.differs,
    command=redact(shlex.join(words)),
    start=' '.join(_starts(runs[one.run], runs)),
    data=_data(row, runs, str(record.get('dataset', ''))),
    data_hash=' '.join(sorted({seed.data_hash for seed in one.seeds if seed.data_hash})),
    commit=str(_record(file.with_name('results.json')).get('commit', '')),
    hours=_hours(one),
    hardware='; '.join(sorted({seed.device for seed in one.seeds if seed.device})),
    date=datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.UTC).date().isoformat(),
    kept='',
  )


def _starts(run: Run, runs: Mapping[str, Run]) -> list[str]:
  """Return the ids of the rows whose runs a run starts from or measures, and 'imported NAME' of weights in DATA."""
  found = []
  for other in plans.dependencies(run, runs):
    if other.name.startswith('imported/'):
      found.append(f'imported {other.name.removeprefix("imported/")}')
    else:
      ids = [key for key, row in verdict.rows().items() if row.run == other.name]
      found += [key for key in ids if key in measured.by_id()][:1] or ids[:1]
  return found


def _data(row: Row, runs: Mapping[str, Run], dataset: str) -> str:
  """Return the names in DATA of what the runs of a row read, without weights; 'embedded' or 'generated' for none."""
  needed = [run for run in plans.sort_by_dependency(list(row.runs), runs) if not run.name.startswith('imported/')]
  text = ' '.join(' '.join((*run.settings, *run.then)) for run in needed)
  names = [name for name in DATA if f'{{data.{name}}}' in text] or [dataset] * (dataset in DATA)
  return ' '.join(names) or ('embedded' if dataset == 'embedded' else 'generated')


def _hours(one: collection.RowResult) -> str:
  """Return the hours of all seeds by their training seconds, '' if these are not recorded."""
  seconds = sum(seed.seconds for seed in one.seeds)
  return '' if math.isnan(seconds) else f'{seconds / 3600:.3g}'


def _record(file: pathlib.Path) -> dict[str, Any]:
  """Return the content of a JSON file, of a list with one record that record; {} of another list, or without a file."""
  content = collection.read_json(file) if file.exists() else {}
  if isinstance(content, list) and len(content) == 1:
    content = content[0]
  return content if isinstance(content, dict) else {}
