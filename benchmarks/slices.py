"""Steps compiled for TPU slices: their record, slices.csv, and the pages that print it.

  python -m benchmarks.slices              print the record in docs/notes/slices.md and the docstrings of experiments
  python -m benchmarks.slices gpt2 v5p     compile the steps first whose config or topology has one of these words

A row is the command `lmx compile --config=experiments/CONFIG --topology=TOPOLOGY OPTIONS` and what it reports. The
docstring of an experiment has its rows with the option `pod` as it is, and no others.
"""

from __future__ import annotations

import csv
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORD = ROOT / 'benchmarks/slices.csv'
TABLE = '| Step | Slice, mesh | '  # begins the header of the table of docs/notes/slices.md
DOCSTRING = '  option `pod` of'  # begins the header of the table of a docstring
Row = dict[str, str]


def rows() -> list[Row]:
  """Return the record."""
  with RECORD.open(newline='', encoding='utf-8') as file:
    return list(csv.DictReader(file))


def command(row: Row) -> list[str]:
  """Return the words of `lmx` that compile a row."""
  config = f'--config=experiments/{row["config"]}'
  return ['compile', config, f'--topology={row["topology"]}', *row['options'].split()]


def figures(report: dict[str, Any]) -> Row:
  """Return the figures of a report of `lmx compile`, as the record has them."""
  estimate, bound = report['estimate'], sum(report['bound'].values())
  return {
    'mesh': ' x '.join(f'{axis} {n}' for axis, n in report['mesh'].items()) or 'one',
    'gib': f'{report["memory"]["total"] / 2**30:.2f}',
    'collectives_mb': f'{report["communicated"] / 1e6:,.0f}',
    'of_needed': f'{report["communicated"] / bound:.2f}' if bound else '-',
    'float32': f'{report["float32_share"]:.1%}',
    'compute_s': f'{estimate["compute_seconds"]:.4f}',
    'collectives_s': f'{estimate["collective_seconds"]:.4f}',
    'mfu': f'{estimate["mfu_if_not"]:.3f}',
    'compile_s': f'{report["compile_seconds"]:.0f}',
  }


def compile_row(row: Row) -> Row:
  """Return a row with the figures of a compilation on this machine."""
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'report.json'
    words = [sys.executable, '-m', 'lmx.cli.main', *command(row), f'--json={path}']
    subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return row | figures(json.loads(path.read_text(encoding='utf-8')))


def replace_table(text: str, header: str, lines: list[str]) -> str:
  """Return a text with other lines in its table whose first line begins with `header`.

  Raises:
    ValueError: there is no such table.
  """
  before, found, rest = text.partition(f'\n{header}')
  if not found:
    raise ValueError(f'no line begins with "{header}"')
  old = rest.splitlines(keepends=True)
  mark = '|' if header.startswith('|') else '  '
  end = next((i for i, line in enumerate(old) if i and not line.startswith(mark)), len(old))
  return f'{before}\n' + ''.join(f'{line}\n' for line in lines) + ''.join(old[end:])


def page_lines() -> list[str]:
  """Return the table of docs/notes/slices.md."""
  heads = 'GiB a chip', 'Collectives, MB', 'Of needed', 'float32 products', 'Compute, s', 'Collectives, s', 'MFU'
  lines = [f'{TABLE}{" | ".join(heads)} | Compiled, s |', '|---' * 10 + '|']
  for row in rows():
    config, topology, options, mesh, *cells = row.values()
    step = ' '.join([f'`{config}`', *(f'`{word.removeprefix("--config.")}`' for word in options.split())])
    lines.append(f'| {step} | {topology}, {mesh} | {" | ".join(cells)} |')
  return lines


def docstring_lines(file: str) -> list[str]:
  """Return the table of the docstring of an experiment."""
  cells = [('option `pod` of', 'slice', 'GiB a chip', 's an update', 'MFU (compiled, not run)')]
  for row in rows():
    path, _, words = row['config'].partition(':')
    if path == file and words.endswith(',pod') and '--config.' not in row['options']:
      seconds = float(row['compute_s']) + float(row['collectives_s'])
      cells.append((words.removesuffix(',pod'), row['topology'], row['gib'], f'{seconds:.4f}', row['mfu']))
  widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
  return [
    '  ' + '  '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
  ]


def pages() -> dict[pathlib.Path, str]:
  """Return the text of every file that prints the record."""
  page = ROOT / 'docs/notes/slices.md'
  texts = {page: replace_table(page.read_text(encoding='utf-8'), TABLE, page_lines())}
  for file in {config.split(':')[0] for row in rows() if (config := row['config']).endswith(',pod')}:
    path = ROOT / 'experiments' / file
    texts[path] = replace_table(path.read_text(encoding='utf-8'), DOCSTRING, docstring_lines(file))
  return texts


def main(words: list[str]) -> None:
  """Compile the rows that `words` name, then write the record and the pages."""
  record = rows()
  for i, row in enumerate(record):
    if any(word in f'{row["config"]} {row["topology"]}' for word in words):
      record[i] = compile_row(row)
      print(','.join(record[i].values()), flush=True)
      with RECORD.open('w', newline='', encoding='utf-8') as file:
        writer = csv.DictWriter(file, record[i].keys(), lineterminator='\n')
        writer.writeheader()
        writer.writerows(record)
  for path, text in pages().items():
    path.write_text(text, encoding='utf-8')


if __name__ == '__main__':
  main(sys.argv[1:])
