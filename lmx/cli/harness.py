"""`lmx harness ARGS`: run lm-evaluation-harness on a trained model; needs the extra `lmx[harness]`.

lmx harness --model_args workdir=runs/gpt2 --tasks lambada_openai --limit 100     the arguments are lm_eval's
lmx harness ls tasks
lmx harness --pairs=DIR --write_tasks=FOLDER        task files for minimal pairs on this machine, such as BLiMP's

`--model lmx` is added where no model is given. With a folder of these task files plain lm_eval finds lmx too:

lm_eval --model lmx --model_args workdir=runs/gpt2 --tasks FOLDER
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import sys

from lmx import documents
from lmx.errors import InputError, writing

_ENDINGS = ('.jsonl', '.jsonl.gz')


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('--write_tasks', default='', metavar='FOLDER', help='folder to write task files to, for --pairs')
  parser.add_argument(
    '--pairs', default='', metavar='DIR', help="folder of minimal pairs in BLiMP's format, .jsonl or .jsonl.gz"
  )
  parser.epilog = 'All other arguments are passed to lm_eval; lmx harness -- run --help lists them.'


def run(args: argparse.Namespace) -> int:
  if args.write_tasks or args.pairs:
    return _write_tasks(args)
  try:
    import lm_eval._cli
    import lm_eval.utils
  except ImportError as error:
    raise InputError(f"lmx harness needs lm-evaluation-harness ({error}); pip install 'lmx[harness]'") from None
  import lmx.harness  # noqa: F401 (registers the model)

  arguments = [word for word in args.others if word != '--']
  if arguments[:1] != ['ls'] and arguments[:1] != ['validate'] and '--help' not in arguments:
    if not any(word in ('--model', '-M') or word.startswith('--model=') for word in arguments):
      arguments += ['--model', 'lmx']
  lm_eval.utils.setup_logging()
  sys.argv = ['lmx harness', *arguments]  # which its parser reads
  parser = lm_eval._cli.HarnessCLI()
  parser.execute(parser.parse_args())
  return 0


def _write_tasks(args: argparse.Namespace) -> int:
  """Write a task file for each file of minimal pairs."""
  if not (args.write_tasks and args.pairs):
    raise InputError('--write_tasks, --pairs: got one of them; expected both')
  if args.others:
    raise InputError(f'--write_tasks: got it with {args.others[0]}; expected only --pairs; omit the rest')
  source, folder = pathlib.Path(args.pairs), pathlib.Path(args.write_tasks)
  files = sorted(path for path in source.glob('*') if path.name.endswith(_ENDINGS)) if source.is_dir() else []
  if not files:
    raise InputError(f'--pairs: got {source}, without .jsonl files; expected a folder of minimal pairs')
  names = {path: re.sub(r'\W', '_', path.name.split('.')[0]) for path in files}
  if len(set(names.values())) < len(names):
    raise InputError(f'--pairs: got {source}, where two files have one name; remove one of them')
  for path in files:
    _check_pairs(path)
  with writing(args.write_tasks):
    folder.mkdir(parents=True, exist_ok=True)
    for path, name in names.items():
      (folder / f'{name}.yaml').write_text(_task(path, name), encoding='utf-8')
  print(f'wrote {len(files)} task files to {folder}')
  return 0


def _check_pairs(path: pathlib.Path) -> None:
  """Raise InputError unless the first line of a file is a minimal pair."""
  for number, row in documents.read_json_lines(path):
    for name in ('sentence_good', 'sentence_bad'):
      documents.field(row, name, str, f'{path}, line {number}')
    return
  raise InputError(f'{path}: got no lines; expected minimal pairs')


def _task(path: pathlib.Path, name: str) -> str:
  """Return a task file: the harness's own task for BLiMP, over a file on this machine.

  `lmx.harness.keep`, which changes nothing, makes the harness import lmx.
  """
  return f"""# Written by lmx harness --write_tasks; the text is read from the file below.
task: {name}
tag: minimal_pairs
dataset_path: json
dataset_kwargs:
  data_files:
    train: {json.dumps(str(path.resolve()))}
output_type: multiple_choice
validation_split: train
process_docs: !function lmx.harness.keep
doc_to_text: ""
doc_to_target: 0
doc_to_choice: "{{{{[sentence_good, sentence_bad]}}}}"
num_fewshot: 0
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""
