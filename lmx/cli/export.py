"""`lmx export --workdir=DIR --to=OUT`: a folder that transformers loads (AWD-LSTM: fastai; ELMo: bilm-tf).

`--to=hub:NAME` uploads it to huggingface.co.
"""

from __future__ import annotations

import argparse

from lmx import storage
from lmx.cli import which
from lmx.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
    '--workdir',
    required=True,
    help='work directory of a run of BERT, GPT, GPT-2, XLNet, Transformer-XL, Marian, AWD-LSTM or ELMo',
  )
  parser.add_argument('--to', required=True, help='folder to write; hub:NAME or hub:NAME@BRANCH to upload it')
  parser.add_argument(
    '--max_shard_size', default='', help='size of a file of weights at most, such as 200MB (default: 5GB)'
  )
  parser.add_argument(
    '--license', default='', help='licence in README.md, such as apache-2.0 (default: of unchanged imported weights)'
  )
  parser.add_argument(
    '--card', default='', metavar='FILE', help='text to add to README.md; fields of its front matter replace the others'
  )
  parser.add_argument('--private', action='store_true', help='create a private repository; with --to=hub:NAME')
  parser.add_argument(
    '--overwrite',
    action='store_true',
    help='replace the weights, config and tokenizer of a repository that has files; with --to=hub:NAME',
  )
  which.add_argument(parser)


def run(args: argparse.Namespace) -> int:
  from lmx.config import run_files

  if not storage.is_remote(args.workdir):
    run_files.read_config(args.workdir)  # a missing run is reported before JAX is imported
  _check_model(args.workdir)
  from lmx.runs import convert

  card = {'license_id': args.license, 'card': args.card}
  push = {'private': args.private, 'overwrite': args.overwrite}
  for line in convert.export_run(args.workdir, args.to, args.which, args.max_shard_size, card, **push):
    print(line)
  return 0


def _check_model(workdir: str) -> None:
  """Raise InputError if no other library reads the run's model; the message names the commands that use the run."""
  from lmx import inference
  from lmx.config import resolve, run_files
  from lmx.interop import huggingface
  from lmx.models import registry

  run = resolve.to_run(resolve.resolve(run_files.read_config(workdir), saved=True))
  name, module = run.model_name, registry.get(run.model_name)
  if name in huggingface.MODELS:
    return
  able = [way for way in inference.METHODS if not inference.obstacle(module, name, run.objective_name, way, run.model)]
  commands = [f'lmx {way} --workdir={workdir}' for way in able] or [f'lmx evaluate --workdir={workdir}']
  if module.READS == 'windows':
    commands = [f'lmx vectors --workdir={workdir} --export=vectors.txt']
  raise InputError(
    f'model: got "{name}" in {workdir}; expected one of {", ".join(huggingface.MODELS)}, which other libraries read; '
    f"use the run in lmx: {', '.join(commands)}, or in Python lmx.load('{workdir}')"
  )
