"""`lmx compile --config=FILE[:variant] --topology=v5e-256`: compile a training step for devices that are absent.

The devices are one or several slices of TPUs (2xv5e-64) or the NVIDIA GPUs of a server (h100x8). Prints whether the
step fits, its largest arrays, its collectives, its attention kernel and an estimate of its time. The exit code is 2 if
it does not fit.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile

from lmx import ranges
from lmx.compilation import cards, flags, slices
from lmx.errors import InputError

# Must be set before JAX starts.
ENVIRONMENT = {
  'JAX_PLATFORMS': 'cpu',
  # libtpu would ask the metadata server of a TPU VM, and wait for a TPU.
  'TPU_SKIP_MDS_QUERY': '1',
  'TPU_ACCELERATOR_TYPE': 'v5litepod-8',  # only silences libtpu; the topology is given by its name
  'TPU_WORKER_HOSTNAMES': 'localhost',
  'TPU_WORKER_ID': '0',
  'TPU_LOG_DIR': 'disabled',
  'TPU_MIN_LOG_LEVEL': '3',
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--config', required=True, help='experiment file, with optional :variant')
  parser.add_argument(
    '--topology',
    required=True,
    help='TPUs: generation and chips, such as v5e-16, or a layout, v5p:4x4x4; 2xv5e-64: two slices; NVIDIA: h100x8',
  )
  parser.add_argument(
    '--partition', action='store_true', help='stop after partitioning: seconds instead of minutes; for TPUs'
  )
  parser.add_argument(
    '--vocabulary',
    type=ranges.integer(0, 100_000_000),
    default=0,
    help='vocabulary size; then the data is not read and need not be prepared on this machine',
  )
  parser.add_argument(
    '--flags', default='', help=f'compiler flags, or those of a recipe: {", ".join(flags.PRESETS)} (launch.md)'
  )
  parser.add_argument('--json', metavar='FILE', help='file for the report')
  parser.add_argument('--hlo', metavar='FILE', help="file for XLA's program")


def run(args: argparse.Namespace) -> int:
  slice_ = slices.parse(args.topology)
  for name, value in ENVIRONMENT.items():
    os.environ.setdefault(name, value)
  server = isinstance(slice_, cards.Server)
  if server and args.partition:
    raise InputError(f'--partition: got {args.topology}; expected a TPU slice; omit --partition')
  # GPU programs are read from the cache only on a machine with a GPU; those of TPUs would come without their bundles.
  os.environ['JAX_ENABLE_COMPILATION_CACHE'] = 'false'
  if not server and not args.partition and (code := _compile_with_more_stack(args)) is not None:
    return code
  with tempfile.TemporaryDirectory() as dump:
    return _compile(args, slice_, dump)


def _compile(args: argparse.Namespace, slice_: slices.Topology | cards.Server, dump: str) -> int:
  """Compile in this process; libtpu writes its bundles into the folder `dump`."""
  from lmx.compilation import bundles, partition, program, report, topology
  from lmx.config import resolve

  added = _flags(args, slice_)
  os.environ.update(flags.joined(added, os.environ))  # before XLA and libtpu are loaded
  if not isinstance(slice_, cards.Server) and not args.partition:
    os.environ['LIBTPU_INIT_ARGS'] = bundles.flags(dump)
  if args.partition and slice_.devices == 1:
    raise InputError('--partition: got one chip; expected several; omit --partition')
  config, devices = resolve.load(args.config, args.overrides), topology.devices(slice_)
  if config.parallel.mode == 'pmap' and (args.partition or len({d.process_index for d in devices}) > 1):
    raise InputError(
      'parallel.mode: got pmap; expected jit; a pmap step is compiled only for one host, and without --partition'
    )
  step = program.build(config, devices, args.vocabulary)
  if args.partition:
    text = partition.text(_command(args))
    result = report.about(step, slice_) | report.read(text, step.model_flops, slice_, estimated=False)
  else:
    result, text = report.compile_step(step, slice_, dump)
  if added:
    result |= {'flags': ' '.join(added.values()), 'notes': [*result['notes'], f'compiled with --flags={args.flags}']}
  print('\n'.join(report.lines(result)))
  for path, content in ((args.json, json.dumps(result, indent=1)), (args.hlo, text)):
    if path:
      pathlib.Path(path).write_text(content, encoding='utf-8')
  return 0 if result.get('fits', True) else 2


def _flags(args: argparse.Namespace, slice_: slices.Topology | cards.Server) -> dict[str, str]:
  """Return the variable with the compiler flags of --flags, {} without."""
  if not args.flags:
    return {}
  if isinstance(slice_, cards.Server):
    return flags.resolve(args.flags, slice_.name, 'gpu')
  return flags.resolve(args.flags, slice_.generation, 'tpu')


def _compile_with_more_stack(args: argparse.Namespace) -> int | None:
  """Compile in a process with an unlimited stack, and return its exit code; None if this stack is unlimited.

  XLA for TPUs plans some fusions recursively and overflows the default stack. A new limit only applies to processes
  that start later.

  Raises:
    InputError: the compiler crashed.
  """
  limit, most = resource.getrlimit(resource.RLIMIT_STACK)
  if limit == most:
    return None
  files = [f'--{name}={path}' for name, path in (('json', args.json), ('hlo', args.hlo)) if path]
  resource.setrlimit(resource.RLIMIT_STACK, (most, most))
  try:
    code = subprocess.run([sys.executable, '-m', 'lmx.cli.main', *_command(args), *files], check=False).returncode
  finally:
    resource.setrlimit(resource.RLIMIT_STACK, (limit, most))
  if code < 0:
    raise InputError(f'the compiler ended by {signal.Signals(-code).name}; --partition stops before it')
  if code == 1 and args.flags:  # of libtpu, which has printed why
    raise InputError(f'--flags: got {args.flags}; libtpu refused it; expected flags that it knows')
  return code


def _command(args: argparse.Namespace) -> list[str]:
  """Return the command that compiles the same step whole."""
  command = ['compile', f'--config={args.config}', f'--topology={args.topology}', f'--vocabulary={args.vocabulary}']
  command += [f'--flags={args.flags}'] if args.flags else []
  return command + [f'--config.{override}' for override in args.overrides]
