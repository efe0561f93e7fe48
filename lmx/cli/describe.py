"""`lmx describe MODEL[:variant]`: a model's parameters, operations and memory, without building it.

`lmx describe --workdir=DIR` describes a run's model and its training compute. The last line is the model's parameter
count. The line above it counts the heads that papers exclude (BERT's masked LM and next sentence heads).
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from typing import Any

from lmx import ranges, storage
from lmx.benchmark.task import build_task, resolve_length
from lmx.cli import runs
from lmx.errors import InputError

_BATCH = 8
Row = tuple[str, tuple[int, ...], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
    'model', nargs='?', default='', metavar='MODEL[:variant]', help='such as gpt2:124m; without a variant, the first'
  )
  parser.add_argument('--workdir', default='', help='instead of MODEL: the run whose model and training are described')
  parser.add_argument('--set', action='append', default=[], metavar='FIELD=VALUE', help='change a field of the model')
  parser.add_argument('--batch', type=ranges.integer(1), help=f"rows of a batch (default: the run's, or {_BATCH})")
  parser.add_argument(
    '--length',
    type=ranges.integer(0),
    default=0,
    help="tokens per row, or pixels per image side (default: the run's, or the window)",
  )
  parser.add_argument('--output', default='', help='file to write the counts to, as JSON')
  parser.add_argument('--all', action='store_true', help='show every layer, even with equal shapes')


def run(args: argparse.Namespace) -> int:
  if bool(args.model) == bool(args.workdir):
    raise InputError('MODEL: got none, or --workdir too; expected either MODEL, or a run by --workdir=DIR')
  if args.workdir and args.set:
    raise InputError('--set: got it with --workdir; expected MODEL, whose fields it changes; a run has its own')
  run = _run(args.workdir) if args.workdir else None
  task, name = _build_task_of_run(run) if run else build_task(args.model, args.set)
  batch = args.batch if args.batch is not None else _rows(run) if run else _BATCH
  length = resolve_length(task, batch, args.length or (run.data.length if run else 0))
  print(name)
  print('  ' + ', '.join(f'{f.name}={getattr(task.cfg, f.name)}' for f in dataclasses.fields(task.cfg)))
  print()
  for line in table(task, collapse=not args.all):
    print(line)
  print()
  for line in costs(task, batch, length):
    print(line)
  print()
  own = run and args.batch is None and not args.length
  training = _training(run, task, args.workdir) if own else {}
  if training:
    print(f'training, {training["updates"]:,} updates of {_shape(task, batch, length)} {task.unit}s')
    print(f'  {"operations":28} {_quantity(training["training_flops"], 1000, "FLOP"):>16}')
    print()
  kept = runs.read_kept(args.workdir) if run and run.checkpoint.at_words else []
  if kept:
    print(f'checkpoints kept at {runs.describe_kept(kept)}')
    print()
  for line in totals(task):
    print(line)
  if args.output:
    from lmx.reporting import run_log

    heads, body = counts(task)
    every = body + sum(heads.values())
    record = {
      'model': name,
      'parameters': body,
      'parameters_with_heads': every,
      'parameters_without_embeddings': body - embeddings(task),
      'heads': heads,
    }
    run_log.write_json(args.output, record | training | ({'kept': kept} if kept else {}))
  return 0


def _run(workdir: str) -> Any:
  """Return the run in a work directory; reads only its config."""
  from lmx.config import run_files

  config = run_files.read_config(workdir)
  from lmx.config import resolve  # imports JAX

  return resolve.to_run(resolve.resolve(config, saved=True))


def _build_task_of_run(run: Any) -> Any:
  """Return (flops.Task, label of the model) of a run."""
  from lmx import objectives
  from lmx.engine import flops
  from lmx.models import registry

  task = flops.Task(registry.get(run.model_name), run.model, objectives.get(run.objective_name), run.objective)
  return task, registry.label(run.model_name, run.variant, run.model)


def _training(run: Any, task: Any, workdir: str) -> dict[str, Any]:
  """Return the training compute for the updates made or, before the end, the configured ones.

  Where the config does not fix their number, as with `train.epochs`, these are the updates so far; {} without any.
  """

  from lmx import records
  from lmx.engine import flops

  folder = storage.path('--workdir', workdir, storage.FOLDER)
  updates = records.read_results(folder).get('steps', run.train.steps)
  updates = updates or max((record['step'] for record in records.read_metrics(folder)), default=0)
  if not updates:
    return {}
  rows = _rows(run)
  each = flops.flops_per_token(task, rows, run.data.length, training=True)
  tokens = rows * task.positions(run.data.length) * updates
  return {'flops_per_token': each, 'tokens': tokens, 'updates': updates, 'training_flops': each * tokens}


def _rows(run: Any) -> int:
  """Return the number of rows in a batch of maximum-length rows, which `data.batching.tokens` may limit."""
  tokens = getattr(run.data.batching, 'tokens', 0)
  return tokens // run.data.length if tokens else run.data.batch_size


def table(task: Any, *, collapse: bool) -> list[str]:
  """Return lines of the parameters, a group for each layer; `collapse` shows consecutive equal layers once."""
  from lmx.engine import flops

  shapes = task.shapes()
  groups: list[tuple[str, list[Row]]] = []
  for name, value in shapes['model'].items():
    groups.append((name, flops.rows(value) if hasattr(value, 'items') else flops.rows({'': value})))
  for name, value in shapes['objective'].items():
    groups.append((f'objective {name}', flops.rows(value) if hasattr(value, 'items') else flops.rows({'': value})))
  merged = _collapse(groups) if collapse else [(name, 1, rows) for name, rows in groups]
  lines = [_line('parameter', 'shape', 'count')]
  for name, times, rows in merged:
    total = times * sum(count for _, _, count in rows)
    lines.append(_line(name + (f'  ({times} equal layers)' if times > 1 else ''), '', f'{total:,}'))
    for part, shape, count in rows:
      lines.append(_line(f'  {part}', ' x '.join(map(str, shape)), f'{count:,}'))
  return lines


def _line(name: str, shape: str, count: str) -> str:
  return f'{name:44} {shape:>20} {count:>16}'


def _collapse(groups: list[tuple[str, list[Row]]]) -> list[tuple[str, int, list[Row]]]:
  """Join neighbours `name_00`, `name_01`, ... of equal shapes into one (name, number of layers, rows)."""
  merged: list[tuple[str, int, list[Row]]] = []
  first = last = ''
  for name, rows in groups:
    stem, number = _split_number(name)
    if merged and number is not None and merged[-1][2] == rows and _split_number(last) == (stem, number - 1):
      merged[-1] = (f'{first} .. {name}', merged[-1][1] + 1, rows)
    else:
      merged.append((name, 1, rows))
      first = name
    last = name
  return merged


def _split_number(name: str) -> tuple[str, int | None]:
  match = re.fullmatch(r'(.*?)(\d+)', name)
  return (match[1], int(match[2])) if match else (name, None)


def costs(task: Any, batch: int, length: int) -> list[str]:
  """Return lines of the operations per token, or pixel, and the memory of a batch."""
  from lmx.engine import flops

  forward = flops.flops_per_token(task, batch, length, training=False)
  training = flops.flops_per_token(task, batch, length, training=True)
  memory = flops.memory(task, batch, length)
  names = {
    'parameters': 'parameters',
    'gradients': 'gradients',
    'optimizer': 'optimizer (two moments)',
    'activations': 'activations, traced',
    'training': 'training, sum',
    'state': 'state for decoding',
  }
  size = f'length {length:,}' if task.unit == 'token' else f'images of {length:,} x {length:,}'
  lines = [f'operations a {task.unit}, {size}', f'  {"forward":28} {_quantity(forward, 1000, "FLOP"):>16}']
  lines += [f'  {"training step":28} {_quantity(training, 1000, "FLOP"):>16}', '']
  lines.append(f'memory for batch {_shape(task, batch, length)}')
  shown = [(text, memory[key]) for key, text in names.items() if memory[key]]
  return lines + [f'  {text:28} {_quantity(number, 1024, "B"):>16}' for text, number in shown]


def _shape(task: Any, batch: int, length: int) -> str:
  """Return the shape of a batch, such as '8 x 512', or of images '8 x 96 x 96'."""
  return ' x '.join(f'{n:,}' for n in (batch, length, length)[: 2 if task.unit == 'token' else 3])


def _quantity(number: float, base: int, unit: str) -> str:
  for prefix in ('', 'K', 'M', 'G', 'T', 'P'):
    if number < base or prefix == 'P':
      return f'{number:,.2f} {prefix}{"i" if base == 1024 and prefix else ""}{unit}'
    number /= base
  raise AssertionError


def totals(task: Any) -> list[str]:
  """Return a line of the heads, if there are any, and the last line: the parameters of the model without them."""
  heads, body = counts(task)
  tables = embeddings(task)
  lines = [f'without embeddings  {body - tables:,}'] if tables else []
  if heads:
    each = ', '.join(f'{name} {count:,}' for name, count in heads.items())
    lines.append(f'heads, not in the total ({each})  {sum(heads.values()):,}')
  return [*lines, f'total parameters  {body:,}']


def counts(task: Any) -> tuple[dict[str, int], int]:
  """Return (parameters of each head, and running statistics; parameters of the model without these)."""
  from lmx.engine import flops

  shapes, names = task.shapes(), task.model.STATISTICS
  rows = _leaves(shapes['model'])
  trained = [(part, number) for part, leaf, number in rows if leaf not in names]
  heads = {name: sum(number for part, number in trained if part == name) for name in task.model.HEADS}
  body = sum(number for _, number in trained) - sum(heads.values())
  if statistics := sum(number for _, leaf, number in rows if leaf in names):
    heads['running statistics'] = statistics
  return heads | {f'objective {name}': flops.count(value) for name, value in shapes['objective'].items()}, body


def embeddings(task: Any) -> int:
  """Return the parameters of tables with a row for each token or position, the output layer's included."""
  from lmx.engine import flops

  names = {*task.model.VOCABULARY, *task.model.POSITIONS}
  rows = flops.rows(task.shapes()['model'])
  return sum(number for path, _, number in rows if path in names and path.split('/')[0] not in task.model.HEADS)


def _leaves(model: Any) -> list[tuple[str, str, int]]:
  """Return (first name, last name, size) for each parameter."""
  from lmx.engine import flops

  return [(path.split('/')[0], path.rsplit('/', 1)[-1], number) for path, _, number in flops.rows(model)]
