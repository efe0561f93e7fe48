"""Steps compiled for TPU slices: their record, slices.csv, and the pages that print it.

  python -m benchmarks.slices              print the record in docs/notes/slices.md and the docstrings of experiments
  python -m benchmarks.slices gpt2 v5p     compile the steps first whose config or topology has one of these words
  python -m benchmarks.slices changed      ... whose attention kernels have changed since their commit

A row is the command `lmx compile --config=experiments/CONFIG --topology=TOPOLOGY OPTIONS`, what it reports, and the
commit that compiled it. The docstring of an experiment has its rows with the option `pod` as it is, and no others.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import jax
import jax.numpy as jnp

from lmx.kernels import relative_attention as kernels
from lmx.kernels import row_attention
from lmx.ops import masks, relative_attention
from lmx.ops.visible import Segments, Visible

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORD = ROOT / 'benchmarks/slices.csv'
TABLE = '| Step | Slice, mesh | '  # begins the header of the table of docs/notes/slices.md
DOCSTRING = '  option `pod` of'  # begins the header of the table of a docstring
CHANGED = 'changed'  # word for the rows whose kernels have changed
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
    'kernels': kernels_of(report),
    'counted': counted(report),
    'commit': commit(),
  }


def kernels_of(report: dict[str, Any]) -> str:
  """Return the attention kernels of a report, those of lmx with their hash."""
  found = [name for name in ('row_attention', 'relative_rows', 'splash') if any(name in x for x in report['attention'])]
  return ' '.join(name if name == 'splash' else f'{name}={kernel(name)}' for name in found) or '-'


def counted(report: dict[str, Any]) -> str:
  """Return how the cycles that XLA does not estimate are counted."""
  estimate = report['estimate']
  parts = {
    'calls by bundles': estimate['pallas_calls_by_bundles'],
    'calls at half the peak': estimate['pallas_calls_at_half_peak'],
    'calls not counted': report['pallas_calls_not_counted'],
    'loops once': report['loops_of_unknown_length'],
  }
  return ', '.join(f'{n} {name}' for name, n in parts.items() if n) or '-'


def changed(row: Row) -> list[str]:
  """Return the kernels of a row that have changed since, as far as this version of JAX can tell."""
  then = dict(word.split('=') for word in row['kernels'].split() if '=' in word)
  now = {name: kernel(name) for name in then}
  return [name for name in then if then[name] != now[name] and then[name].startswith(jax.__version__)]


@functools.cache
def kernel(name: str) -> str:
  """Return the version of JAX and a hash of the attention kernels that it traces, forward and backward."""
  text = '\n'.join(str(jax.make_jaxpr(run)(*arguments)) for run, arguments in getattr(_Kernels, name)())
  return f'{jax.__version__}:{hashlib.sha256(text.encode()).hexdigest()[:8]}'


class _Kernels:
  """Calls of each kernel, with the gradients of its arrays."""

  @staticmethod
  def row_attention() -> list[Any]:
    array, groups = jax.ShapeDtypeStruct((2, 512, 2, 64), jnp.bfloat16), jax.ShapeDtypeStruct((2, 512), jnp.int32)
    plain = lambda *x: row_attention.attention(*x, masks.AttentionMask(), causal=True)

    def grouped(*x: Any) -> Any:
      *arrays, group_BT, key = x
      mask = masks.AttentionMask(None, group_BT, group_BT)
      return row_attention.attention(*arrays, mask, causal=False, rate=0.1, key=key)

    return [(_with_gradients(plain, 3), [array] * 3), (_with_gradients(grouped, 3), [array] * 3 + [groups, _KEY])]

  @staticmethod
  def relative_rows() -> list[Any]:
    T, M, P = 256, 128, 32  # noqa: N806
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    integers = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.int32)
    keys, heads = [array(2, M + T, 2, 64)] * 2, [array(2, 64)] * 2

    def past(*x: Any) -> Any:
      *arrays, filled_B, key = x
      visible = relative_attention.causal(T, M + T, filled_B)
      return kernels.rows(*arrays, visible, rate=0.1, key=key)

    def streams(*x: Any) -> Any:
      *arrays, s_HK, e_2HK, order_BS, first_BX, last_BX, segment_BX, segment_BS, positions_BP, key = x
      segments = Segments(s_HK, e_2HK, segment_BX, segment_BS)
      visible = Visible(order_BS, first_BX, last_BX)
      return kernels.rows(*arrays, visible, segments=segments, positions_BP=positions_BP, rate=0.1, key=key)

    of_past = [array(2, T, 2, 64), *keys, array(M + T, 2, 64), *heads]
    of_streams = [array(2, T + P, 2, 64), *keys, array(M + 2 * T, 2, 64), *heads, array(2, 64), array(2, 2, 64)]
    given = [integers(2, M + T), *[integers(2, T + P)] * 3, integers(2, M + T), integers(2, P)]
    return [
      (_with_gradients(past, 6), [*of_past, integers(2), _KEY]),
      (_with_gradients(streams, 8), [*of_streams, *given, _KEY]),
    ]


_KEY = jax.eval_shape(lambda: jax.random.key(0))


def _with_gradients(run: Any, n: int) -> Any:
  """Return a function of the arguments to the output and the gradients of the first `n`."""

  def both(*x: Any) -> Any:
    y, back = jax.vjp(lambda *arrays: run(*arrays, *x[n:]), *x[:n])
    return y, back(jnp.ones_like(y))

  return both


def commit() -> str:
  """Return the commit of this clone."""
  words = ['git', 'rev-parse', '--short=8', 'HEAD']
  return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


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
  heads = *heads, 'Compiled, s', 'Kernels', 'Commit'
  lines = [f'{TABLE}{" | ".join(heads)} |', '|---' * (2 + len(heads)) + '|']
  for row in rows():
    config, topology, options, mesh, *cells, _, counted_, commit_ = row.values()
    cells += counted_, f'`{commit_}`'
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


def save(path: pathlib.Path, record: list[Row]) -> None:
  """Write a record."""
  with path.open('w', newline='', encoding='utf-8') as file:
    writer = csv.DictWriter(file, record[0].keys(), lineterminator='\n')
    writer.writeheader()
    writer.writerows(record)


def _is_named(row: Row, word: str) -> bool:
  return word in f'{row["config"]} {row["topology"]}'


def main(words: list[str]) -> None:
  """Compile the rows that `words` name, then write the record and the pages."""
  if words[:1] == ['--help']:
    print(__doc__)
    return
  record = rows()
  unknown = [word for word in words if word != CHANGED and not any(_is_named(row, word) for row in record)]
  if unknown:
    sys.exit(f'benchmarks.slices: no config or topology of {RECORD.name} has "{unknown[0]}"\n\n{__doc__}')
  for i, row in enumerate(record):
    if any(_is_named(row, word) for word in words) or (CHANGED in words and changed(row)):
      record[i] = compile_row(row)
      print(','.join(record[i].values()), flush=True)
      save(RECORD, record)
  for path, text in pages().items():
    path.write_text(text, encoding='utf-8')


if __name__ == '__main__':
  main(sys.argv[1:])
