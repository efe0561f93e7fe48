"""Check of a command's files before its work: outputs must not overwrite an input, another output or a run's record,
and inputs must exist.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator

from lmx import console, storage
from lmx.errors import InputError

# Options of all commands that name a file or folder to write.
OUTPUTS = (
  *('output', 'null_odds', 'translations', 'by_length', 'metrics', 'plot', 'json', 'markdown', 'picture', 'hlo'),
  *('export', 'save_rows', 'total', 'save', 'write_tasks'),
)
# Options that name files and folders to read, which must exist.
INPUTS = (
  *('input', 'reference', 'alignments', 'dictionary', 'vectors', 'analogies', 'similarity', 'masks', 'report'),
  *('combine', 'context', 'pairs', 'subset_file', 'seen_text', 'card', 'source', 'ensemble', 'beside', 'rows'),
)
FOLDERS = (
  *('workdir', 'workdirs', 'folders', 'to', 'source', 'ensemble', 'beside', 'masks', 'rows', 'save', 'write_tasks'),
)
# Options that take several paths with commas between.
LISTS = ('input', 'similarity', 'combine', 'workdirs', 'ensemble', 'beside', 'seen_text')
EITHER = (  # options of commands that name a file or a folder
  *(('predict', 'input'), ('import', 'source'), ('results', 'workdirs')),
  ('compare', 'workdirs'),
  *(('predict', 'output'), ('context', 'output'), ('translate', 'plot'), ('evaluate', 'save_rows')),
  *(('evaluate', 'pairs'), ('harness', 'pairs')),
)
HUB = (  # options of commands that name published weights too
  ('export', 'to'),
  ('import', 'source'),
  *((command, 'workdir') for command in ('evaluate', 'generate', 'score', 'translate', 'embed', 'predict')),
)
# Options of commands that create the folder they write into; the others need one that exists.
CREATED = (
  *(('evaluate', 'save_rows'), ('ngrams', 'save'), ('context', 'output'), ('translate', 'plot')),
  ('harness', 'write_tasks'),
)
# Files and folders of a work directory that only training writes.
RECORDS = (
  *('config.json', 'data.json', 'checksums.json', 'metrics.jsonl', 'progress.json', 'results.json'),
  'rows.jsonl',
  *('checkpoints', 'logs', 'tokenizer'),
)


def check(args: argparse.Namespace) -> None:
  """Raise InputError unless outputs can be written and overwrite nothing that the command needs."""
  outputs = list(_paths(args, OUTPUTS))
  for option, path in outputs:
    _check_record(option, path)
    _check_writable(option, path)
    if not path.absolute().parent.is_dir() and not _is_created(getattr(args, 'command', ''), option, path):
      raise InputError(f'--{option}: got {path}; expected a file in a folder that exists; create {path.parent}')
  for (option, path), (other, read) in itertools.product(outputs, _paths(args, INPUTS)):
    if _is_same(path, read):
      raise InputError(f'--{option}: got {path}, the file of --{other}; expected another file, or its content is lost')
  for (option, path), (other, written) in itertools.combinations(outputs, 2):
    if _is_same(path, written):
      raise InputError(f'--{other}: got {written}, the file of --{option}; expected two files; name another')


def expand(args: argparse.Namespace, actions: Iterable[argparse.Action]) -> None:
  """Check that a command's paths are valid and its inputs exist, and expand `~` in them.

  Args:
    args: parsed arguments, which are changed.
    actions: options and arguments of the command's parser.

  Raises:
    InputError: an option lacks its path, an input does not exist, or see `storage.path`.
  """
  for action in actions:
    option, value = action.dest, getattr(args, action.dest, None)
    if option not in (*OUTPUTS, *INPUTS, *FOLDERS) or value in (None, action.default) and not action.required:
      continue
    field = action.option_strings[0] if action.option_strings else str(action.metavar)
    kind, hub = _kind(args.command, option), (args.command, option) in HUB
    check_one = functools.partial(_check_path, field, kind=kind, hub=hub, is_input=option in INPUTS)
    if isinstance(value, list):
      setattr(args, option, [*map(check_one, value)])
    elif isinstance(value, str):
      texts = value.split(',') if option in LISTS and value and not _exists(value) else [value]
      setattr(args, option, ','.join(map(check_one, texts)))


def _check_path(field: str, value: str, *, kind: str, hub: bool, is_input: bool) -> str:
  """Return the path of an option with `~` expanded. Raises InputError if it is invalid, or an input is missing."""
  path = storage.check_path(field, value, kind, hub=hub)
  is_elsewhere = path == '-' or storage.is_remote(path) or path.startswith(storage.HUB)
  if is_input and not is_elsewhere and not os.path.exists(path):
    raise InputError(f'{field}: got {value}; expected an existing {kind or "file or folder"}; check its name')
  return path


def _kind(command: str, option: str) -> str:
  """Return FILE or FOLDER if an option's existing path must be one, else ''."""
  if (command, option) in EITHER:
    return ''
  return storage.FOLDER if option in FOLDERS else storage.FILE


def _exists(path: str) -> bool:
  """Return whether a file or folder with this name exists; False for an invalid path."""
  try:
    return os.path.exists(path)
  except ValueError:
    return False


def given(args: argparse.Namespace) -> bool:
  """Return True if a command was given a file to write."""
  return any(_values(args, OUTPUTS))


def training_log(workdir: str) -> pathlib.Path | None:
  """Return the file that continues the output of a training; None for a work directory in a bucket."""
  return None if storage.is_remote(workdir) else pathlib.Path(storage.expand(workdir), console.LOG)


def _values(args: argparse.Namespace, options: tuple[str, ...]) -> Iterator[tuple[str, str]]:
  """Yield (option, value) for the given options, except standard input and output."""
  for option in options:
    value = getattr(args, option, None)
    if isinstance(value, str) and value not in ('', '-'):
      yield option, value


def _paths(args: argparse.Namespace, options: tuple[str, ...]) -> Iterator[tuple[str, pathlib.Path]]:
  """Yield (option, path) for the given options like `_values`, except pipes and buckets."""
  for option, value in _values(args, options):
    for text in [value] if options is OUTPUTS or os.path.exists(value) else value.split(','):
      path = pathlib.Path(text)
      if text and not storage.is_remote(text) and (path.is_file() or path.is_dir() or not os.path.lexists(path)):
        yield option, path


def _is_created(command: str, option: str, path: pathlib.Path) -> bool:
  """Return True if a command creates the folder of a path: the masks of `predict` are a folder without an ending."""
  return (command, option) in CREATED or (command, option) == ('predict', 'output') and not path.suffix


def _is_same(one: pathlib.Path, other: pathlib.Path) -> bool:
  if one.exists() and other.exists():
    return os.path.samefile(one, other)  # also through links
  return os.path.realpath(one) == os.path.realpath(other)


def _check_record(option: str, path: pathlib.Path) -> None:
  """Raise InputError if a path is a record of a run, or in its checkpoints or tokenizer."""
  real = pathlib.Path(os.path.realpath(path))
  for part in (real, *real.parents):
    if part.name in RECORDS and (part.parent / 'config.json').is_file() and (part.parent / 'checkpoints').is_dir():
      raise InputError(f'--{option}: got {path}, a record of the run {part.parent}; name another file')


def _check_writable(option: str, path: pathlib.Path) -> None:
  """Raise InputError unless the path, or the nearest folder above it that exists, can be written."""
  existing = next(one for one in (path, *path.absolute().parents) if one.exists())
  if existing != path and not existing.is_dir():
    raise InputError(f'--{option}: got {path}; expected a path in a folder, but {existing} is a file; name another')
  if not os.access(existing, os.W_OK):
    raise InputError(f'--{option}: got {path}; expected a writable path; {existing} cannot be written')
