"""`lmx bench`: time of a training step, optionally alternating with the same step in PyTorch.

The step belongs to a model of given sizes (MODEL[:variant], random tokens, one device), a preset, or a run with its own
data, devices and optimizer (--config). --attention only times factorized and dense attention at several lengths,
--evaluation only the evaluation of a model with a memory. With --peer the step of transformers or torch.nn runs in
another interpreter. --data times the batches that one of --hosts builds, compared with the step time. `lmx.benchmark`
implements the measurements.

--preset=all measures the whole table against other libraries, preset by preset: training steps, word2vec epochs
(gensim), generation and beam search (transformers), and whole processes of fine-tuning (the Trainer) and `lmx prepare`
(tokenizers). --combine merges several tables. --growth measures the time per token at several sizes.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from lmx import documents, ranges
from lmx.benchmark import attention, evaluation, growth, growth_figure, row, table, train_step
from lmx.benchmark.task import build_task, resolve_length, split_changes
from lmx.benchmark.train_step import Preset, Subject
from lmx.errors import InputError, explain


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('model', nargs='?', metavar='MODEL[:variant]', help='a model on random tokens or images')
  parser.add_argument('--config', help='config of a run with its own data, as for `lmx train`')
  parser.add_argument('--preset', help='all, or of these some with commas between: ' + ', '.join(table.NAMES))
  parser.add_argument('--attention', metavar='T,T,...', help='factorized and dense attention at these lengths')
  parser.add_argument(
    '--set',
    action='append',
    default=[],
    metavar='FIELD=VALUE',
    help='change a field of MODEL, or of its step: parallel.logits_dtype=float32',
  )
  parser.add_argument('--batch', type=ranges.integer(1, 1_000_000), help='rows, for MODEL (default 8)')
  parser.add_argument(
    '--length',
    type=ranges.integer(0, 1_000_000),
    help="tokens per row, or pixels per image side, for MODEL (default: the model's window)",
  )
  parser.add_argument('--optimizer', help='adamw, adam or sgd, for MODEL (default adamw)')
  parser.add_argument(
    '--steps', type=ranges.integer(1, 1_000_000), help='timed steps per round (default 10, presets 2 to 5)'
  )
  parser.add_argument(
    '--warmup', type=ranges.integer(0, 1_000_000), help='untimed warm-up steps (default 3, presets 2)'
  )
  parser.add_argument(
    '--rounds',
    type=ranges.integer(1, 1000),
    default=3,
    help='number of rounds, in which lmx and the peer alternate (default %(default)s)',
  )
  parser.add_argument(
    '--peer',
    metavar='PYTHON,...',
    help='interpreters with torch, transformers, gensim or tokenizers to compare with; each comparison takes the '
    'first that has its library',
  )
  parser.add_argument(
    '--rows', type=ranges.integer(32, 10_000_000), help='rows per epoch of preset fine_tuning (default 1024)'
  )
  parser.add_argument('--megabytes', type=ranges.integer(1, 100_000), help='text size of preset prepare (default 32)')
  parser.add_argument('--combine', metavar='FILE,...', help='combine tables written by --preset --json')
  parser.add_argument(
    '--evaluation',
    metavar='LENGTHS',
    help="time MODEL's evaluation with a memory and with windows instead of the step: attention lengths, separated "
    'by commas',
  )
  parser.add_argument(
    '--growth',
    nargs='?',
    const=','.join(growth.VALUES),
    metavar='SIZES',
    help='time per token of MODEL, or of all, as these sizes grow (default width,length,vocabulary,batch)',
  )
  parser.add_argument('--picture', metavar='FILE', help='plot the result of --growth')
  parser.add_argument('--data', action='store_true', help='time the batches that one host builds, for --config')
  parser.add_argument(
    '--hosts',
    type=ranges.integer(1, 1_000_000),
    help='for --data: number of hosts that share a batch, such as 16 of 4 chips for a v5e-64 (default 1)',
  )
  step = parser.add_mutually_exclusive_group()
  step.add_argument('--topology', help='for --data: estimate the step time by compiling for it, as in `lmx compile`')
  step.add_argument('--report', metavar='FILE', help='for --data: a report of `lmx compile --json` instead')
  step.add_argument('--step_seconds', type=ranges.number(0, above=True), help='for --data: the step time')
  parser.add_argument('--json', metavar='FILE', help='file for the metrics')
  parser.add_argument('--markdown', metavar='FILE', help='file for the table, for --preset and --combine')


def run(args: argparse.Namespace) -> int:
  if args.growth and args.model is None and not set(args.growth.split(',')) & set(growth.VALUES):
    args.model, args.growth = args.growth, ','.join(growth.VALUES)  # --growth MODEL, whose value is optional
  _check(args)
  if args.combine:
    metrics = row.combine(table.read(args.combine))
  elif args.preset:
    metrics = _presets(args)
  else:
    metrics = _measure(args)
  if args.json:
    _write('--json', args.json, json.dumps(metrics, indent=1) + '\n')
  if args.combine or args.preset:
    text = row.markdown(metrics)
    print(text)
    if args.markdown:
      _write('--markdown', args.markdown, text + '\n')
  if args.picture:
    try:
      growth_figure.write(args.picture, metrics)
    except (OSError, ValueError) as error:  # ValueError: an unknown format
      raise InputError(
        f'--picture: got {args.picture}, which cannot be written ({explain(error)}); expected a writable path'
      ) from None
  return 0


def _write(option: str, path: str, text: str) -> None:
  try:
    pathlib.Path(path).write_text(text, encoding='utf-8')
  except OSError as error:
    raise InputError(
      f'{option}: got {path}, which cannot be written ({explain(error)}); expected a writable path'
    ) from None


def _measure(args: argparse.Namespace) -> list[dict[str, Any]]:
  args.steps = 10 if args.steps is None else args.steps
  args.warmup = 3 if args.warmup is None else args.warmup
  if args.data:
    return [_input_pipeline(args)]
  if args.growth:
    return growth.measure_all(args.model, growth.parse(args.growth))
  if args.attention:
    return attention.measure(attention.parse(args.attention), args.steps)
  if args.evaluation is not None:
    return _evaluation(args)
  return [_train_step(_subject(args), args)]


def _presets(args: argparse.Namespace) -> list[dict[str, Any]]:
  """Return the rows of one preset, measured here, or of several, each measured in its own process."""
  if args.evaluation is not None:
    raise InputError('--evaluation: got --config, --preset or --peer too; expected MODEL without them; omit them')
  names = table.parse(args.preset)
  given = {name: getattr(args, name) for name in ('steps', 'warmup', 'rows', 'megabytes')}
  given = {name: value for name, value in given.items() if value is not None} | {'rounds': args.rounds}
  if len(names) == 1:
    return table.measure(names[0], table.Options(**given, peers=args.peer))
  words = [f'--{name}={value}' for name, value in given.items()]
  return table.measure_all(names, words + ([f'--peer={args.peer}'] if args.peer else []))


def _check(args: argparse.Namespace) -> None:
  """Raise InputError unless there is one thing to do, with its own options."""
  if args.growth and (args.model is None or args.set or args.peer or args.evaluation):
    raise InputError('--growth: got no MODEL, or other options; expected only --growth MODEL, or all')
  if sum(x is not None for x in (args.model, args.config, args.preset, args.attention, args.combine)) != 1:
    raise InputError(
      'MODEL: got nothing to time, or several; expected one of MODEL[:variant], --preset=NAME, '
      '--config=FILE, --attention=T or --combine=FILES'
    )
  if args.set and args.model is None:
    raise InputError(
      '--set: got it without MODEL; expected MODEL, whose fields it changes; change those of a run by '
      '--config.model.FIELD=VALUE'
    )
  for name, default in {'batch': 8, 'length': 0, 'optimizer': 'adamw'}.items():
    if getattr(args, name) is None:
      setattr(args, name, default)
    elif args.model is None:
      raise InputError(f'--{name}: got it without MODEL; expected it only with MODEL[:variant]; a config has its own')
  if args.picture and not args.growth:
    raise InputError('--picture: got it without --growth; expected --growth MODEL; omit it')
  for name in ('rows', 'megabytes', 'markdown'):
    if getattr(args, name) is not None and args.preset is None and (name != 'markdown' or args.combine is None):
      raise InputError(f'--{name}: got it without --preset; expected it with presets; omit it')
  if args.overrides and args.config is None:
    raise InputError(
      f'--config.{args.overrides[0]}: got it without --config=FILE; expected a run; change a field of '
      'MODEL by --set=FIELD=VALUE'
    )
  _check_data(args)


def _check_data(args: argparse.Namespace) -> None:
  """Raise InputError unless the options of --data are with it and --config, and no others are."""
  options = ('hosts', 'topology', 'report', 'step_seconds')
  given = [name for name in options if getattr(args, name) is not None]
  if given and not args.data:
    raise InputError(f'--{given[0]}: got it without --data; expected --data --config=FILE; add --data')
  others = [name for name in ('peer', 'evaluation') if getattr(args, name) is not None]
  if args.data and (args.config is None or others):
    got = f'--{others[0]}' if others else 'no --config'
    raise InputError(f'--data: got {got}; expected only --config=FILE, whose batches are timed')


def _input_pipeline(args: argparse.Namespace) -> dict[str, Any]:
  from lmx.benchmark import input_pipeline

  subject = input_pipeline.subject(args.config, args.overrides, args.hosts or 1)
  step = _step(args, subject)
  metrics = input_pipeline.measure(subject, steps=args.steps, warmup=args.warmup, rounds=args.rounds)
  if step:
    metrics['step'] = input_pipeline.compare(metrics, *step)
  print('\n'.join(input_pipeline.format_lines(metrics)), flush=True)
  return metrics


def _step(args: argparse.Namespace, subject: Any) -> tuple[float, str] | None:
  """Return the seconds of a step and their source; None if no option gives them."""
  from lmx.benchmark import input_pipeline

  if args.step_seconds:
    return args.step_seconds, '--step_seconds'
  if args.report:
    return input_pipeline.step_of_report(subject, documents.read_json(args.report), args.report)
  if not args.topology:
    return None
  with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / 'report.json'
    words = ['compile', f'--config={args.config}', f'--topology={args.topology}', f'--json={file}']
    words += [f'--vocabulary={subject.vocabulary}', *(f'--config.{override}' for override in args.overrides)]
    code = subprocess.run([sys.executable, '-m', 'lmx.cli.main', *words], check=False).returncode
    if code or not file.exists():
      raise InputError(f'--topology: got {args.topology}, for which the step is not compiled (above)')
    return input_pipeline.step_of_report(subject, documents.read_json(str(file)), args.topology)


def _evaluation(args: argparse.Namespace) -> list[dict[str, Any]]:
  if args.config or args.preset or args.peer:
    raise InputError('--evaluation: got --config, --preset or --peer too; expected MODEL without them; omit them')
  lengths = evaluation.parse(args.evaluation)
  segment = args.length or evaluation.SEGMENT
  task, _ = build_task(args.model, args.set)
  repeats = {'steps': args.steps, 'warmup': args.warmup, 'rounds': args.rounds}
  return evaluation.measure_all(args.model, task, lengths, segment, args.batch, **repeats)


def _train_step(subject: Subject, args: argparse.Namespace) -> dict[str, Any]:
  metrics = train_step.measure(subject, steps=args.steps, warmup=args.warmup, rounds=args.rounds, peer=args.peer)
  for line in train_step.format_lines(metrics):
    print(line, flush=True)
  return metrics


def _subject(args: argparse.Namespace) -> Subject:
  if args.config:
    return train_step.subject_from_config(args.config, args.overrides)
  task, _ = build_task(args.model, split_changes(args.set)[0])
  length = resolve_length(task, args.batch, args.length)
  preset = Preset(args.model, tuple(args.set), args.batch, length, args.optimizer)
  return train_step.subject_from_preset(args.model, preset)
