"""Dry start of a sweep: check its values, data and labels as the training would, without a step.

`python -m lmx.cli.dry_start`, a process of launch.sweep, reads the fields of `Request` as JSON from standard input. For
an error that the user can fix it prints the message and exits with 2.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lmx import storage, train
from lmx.config import fields, resolve
from lmx.data import pipeline
from lmx.errors import InputError
from lmx.evaluation import evaluate, report
from lmx.runs import training

Point = Mapping[str, str]


class Request(NamedTuple):
  """Input of a dry start.

  Attributes:
    config: experiment file, with :variant.
    overrides: 'section.key=value' for all trials.
    lists: those of them whose value is a comma list.
    values: for each value of the search space, points that have it.
    workdir: work directory of the first run; '' to check no data.
  """

  config: str
  overrides: Sequence[str]
  lists: Sequence[str]
  values: Sequence[Sequence[Point]]
  workdir: str


def check(request: Request) -> None:
  """Check that the first trial would start, and that each value of the space is valid. Raises InputError."""
  _check_lists(request)
  for points in request.values:
    _first_valid(request, points)
  if request.workdir:
    _check_data(_first_valid(request, request.values[0]), request.workdir)


def _check_lists(request: Request) -> None:
  """Raise InputError if a comma list is the value of a key that takes no tuple."""
  if not request.lists:
    return
  config = resolve.load(request.config, [text for text in request.overrides if text not in request.lists])
  types = {field.key: field.type for section in fields.sections(config) for field in section.fields}
  for text in request.lists:
    key, _, value = text.partition('=')
    if 'tuple' not in types.get(key, 'tuple'):  # `resolve` reports an unknown key
      raise InputError(
        f'--config.{key}: got {value}, a comma list; expected one value for all trials; search over its values with '
        f"--space '{key}={value}', or quote a text that has commas: --config.{key}='\"{value}\"'"
      )


def _first_valid(request: Request, points: Sequence[Point]) -> Any:
  """Return the config of the first point that resolves. Raises InputError with the first message if none does."""
  first: InputError | None = None
  for point in points:
    try:
      return resolve.load(request.config, [*request.overrides, *(f'{key}={value}' for key, value in point.items())])
    except InputError as error:
      first = first or error
  raise first or InputError('--space: got no value')


def _check_data(config: Any, workdir: str) -> None:
  """Read data and labels as the training does, and check the batches of its splits. Raises InputError."""
  folder = storage.path('--workdir', workdir, storage.FOLDER)
  corpus = train.load_corpus(resolve.to_run(config), folder)
  _, run = resolve.with_corpus(config, corpus, folder)
  training.plan(run, corpus, 1)
  batches = lambda data, split: pipeline.batches(data, corpus, split, pipeline.EVAL_SEED, train=False)
  evaluate.check(run, batches(run.data, 'valid'))
  report.check(run, corpus, batches(evaluate.final_data(run), run.evaluation.split))


def main() -> int:
  """Check the request of standard input; return the exit code."""
  try:
    with contextlib.redirect_stdout(sys.stderr):  # standard output has only the message
      check(Request(**json.load(sys.stdin)))
  except InputError as error:
    print(error)
    return 2
  return 0


if __name__ == '__main__':
  sys.exit(main())
