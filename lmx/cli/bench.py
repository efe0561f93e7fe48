"""`lmx bench`: time of a training step, alone or alternating with the same step in PyTorch.

The timed step is that of a model at given sizes (MODEL[:variant], random tokens, one device), of a preset of these, or
of a run with its own data, devices and optimizer (--config). --attention times factorized and dense attention alone at
several lengths, --evaluation the evaluation of a model with a memory. With --peer the step of transformers or torch.nn
runs in another interpreter. The measurements are in `lmx.benchmark`.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
from collections.abc import Callable
from typing import Any

from lmx import ranges
from lmx.benchmark import attention, evaluation, train_step
from lmx.benchmark.task import build_task, resolve_length
from lmx.benchmark.train_step import PRESETS, Preset, Subject
from lmx.errors import InputError, nearest


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('model', nargs='?', metavar='MODEL[:variant]', help='a model on random tokens')
  parser.add_argument('--config', help='a run with its own data, as `lmx train` takes it')
  parser.add_argument('--preset', help='all, or one of ' + ', '.join(PRESETS))
  parser.add_argument('--attention', metavar='T,T,...', help='factorized and dense attention at these lengths')
  parser.add_argument('--set', action='append', default=[], metavar='FIELD=VALUE', help='change a field of MODEL')
  parser.add_argument(
    '--batch', type=ranges.integer(1, 1_000_000), default=8, help='rows, for MODEL (default %(default)s)'
  )
  parser.add_argument(
    '--length',
    type=ranges.integer(0, 1_000_000),
    default=0,
    help="tokens a row, for MODEL (default: the model's window)",
  )
  parser.add_argument('--optimizer', default='adamw', help='adamw, adam or sgd, for MODEL (default %(default)s)')
  parser.add_argument(
    '--steps', type=ranges.integer(1, 1_000_000), default=10, help='timed steps, in each round (default %(default)s)'
  )
  parser.add_argument(
    '--warmup', type=ranges.integer(0, 1_000_000), default=3, help='steps before, not timed (default %(default)s)'
  )
  parser.add_argument(
    '--rounds', type=ranges.integer(1, 1000), default=3, help='turns with the peer (default %(default)s)'
  )
  parser.add_argument('--peer', metavar='PYTHON', help='interpreter with torch and transformers to compare with')
  parser.add_argument(
    '--evaluation',
    metavar='LENGTHS',
    help='time not the step but evaluation, with a memory and by windows: attention lengths, commas between, for MODEL',
  )
  parser.add_argument('--json', metavar='FILE', help='write the metrics there')


def run(args: argparse.Namespace) -> int:
  if sum(x is not None for x in (args.model, args.config, args.preset, args.attention)) != 1:
    raise InputError(
      'nothing to time, or several; give one of MODEL[:variant], --preset=NAME, --config=FILE or --attention=T'
    )
  if args.set and args.model is None:
    raise InputError('--set changes a field of MODEL; change that of a run by --config.model.FIELD=VALUE')
  if args.overrides and args.config is None:
    raise InputError(
      f'--config.{args.overrides[0]} changes a run, but there is no --config=FILE; change a field of MODEL by '
      '--set=FIELD=VALUE'
    )
  if args.attention:
    metrics = attention.measure(attention.parse(args.attention), args.steps)
  elif args.evaluation is not None:
    metrics = _evaluation(args)
  else:
    metrics = [_train_step(make(), args) for make in _subjects(args)]
  if args.json:
    try:
      pathlib.Path(args.json).write_text(json.dumps(metrics, indent=1) + '\n')
    except OSError as error:
      raise InputError(f'cannot write {args.json}: {error}') from None
  return 0


def _evaluation(args: argparse.Namespace) -> list[dict[str, Any]]:
  if args.config or args.preset or args.peer:
    raise InputError('--evaluation times MODEL alone; omit --config, --preset and --peer')
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


def _subjects(args: argparse.Namespace) -> list[Callable[[], Subject]]:
  if args.config:
    return [functools.partial(train_step.subject_from_config, args.config, args.overrides)]
  if args.model:
    task, _ = build_task(args.model, args.set)
    length = resolve_length(task.cfg, args.batch, args.length)
    preset = Preset(args.model, tuple(args.set), args.batch, length, args.optimizer)
    return [functools.partial(train_step.subject_from_preset, args.model, preset)]
  if args.preset != 'all' and args.preset not in PRESETS:
    raise InputError(f'unknown preset "{args.preset}"{nearest(args.preset, ["all", *PRESETS])}')
  names = PRESETS if args.preset == 'all' else [args.preset]
  return [functools.partial(train_step.subject_from_preset, name, PRESETS[name]) for name in names]
