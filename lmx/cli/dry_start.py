"""Dry start of a sweep or a pipeline: check values, data, labels and weights as the training would, without a step.

`python -m lmx.cli.dry_start`, a process of launch.sweep, reads the fields of `Request` as JSON from standard input. For
an error that the user can fix it prints the message and exits with 2.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax

from lmx import documents, objectives, storage, train
from lmx.config import fields, resolve, run_files
from lmx.data import labels, pipeline, sources
from lmx.errors import InputError
from lmx.evaluation import evaluate, parts, report
from lmx.runs import start, training
from lmx.runs.init import init_params

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


_NOT_READ = ('name', 'seed', 'optim', 'parallel', 'checkpoint', 'log')  # sections that no check reads


def check(request: Request) -> None:
  """Check that each value of the space is valid, and that a trial with it would start. Raises InputError."""
  _check_lists(request)
  started = set()
  for points in request.values:
    config = _first_valid(request, points)
    read = json.dumps({key: value for key, value in config.to_dict().items() if key not in _NOT_READ}, sort_keys=True)
    if request.workdir and read not in started:
      started.add(read)
      check_start(config, request.workdir)


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


def check_start(config: Any, workdir: Any, *, with_weights: bool = True) -> None:
  """Read data, labels and initial weights as a training does before its first update, and check its evaluations.

  Args:
    config: resolved config.
    workdir: work directory of the training.
    with_weights: read the weights of `train.init_from` and `data.vectors`.

  Raises:
    InputError: the training would end with it.
  """
  folder = storage.path('--workdir', workdir, storage.FOLDER)
  corpus = train.load_corpus(resolve.to_run(config, workdir=folder), folder)
  _, run = resolve.with_corpus(config, corpus, folder)
  training.plan(run, corpus, 1)
  batches = lambda data, split: pipeline.batches(data, corpus, split, pipeline.EVAL_SEED, train=False)
  validation, key = batches(run.data, 'valid'), jax.random.key(run.seed)
  evaluate.check(run, validation)
  report.check(run, corpus, batches(evaluate.final_data(run), run.evaluation.split))
  shapes = jax.eval_shape(functools.partial(init_params, run), key)
  predicted = parts.get(objectives.get(run.objective_name).EVALUATION).SCORES
  evaluate.score_name(run, shapes, validation, corpus.splits['valid'].counts, predicted)
  if with_weights:
    start.take(run, shapes, corpus, key)


def check_files(config: Any, workdir: Any, *, with_weights: bool = True) -> None:
  """Check the files and labels of a training whose tokenizer does not exist yet.

  Args:
    config: resolved config.
    workdir: work directory of the training.
    with_weights: check that `train.init_from` is a run, if it is set.

  Raises:
    InputError: a file or a column is missing, or the labels are not the objective's.
  """
  run = resolve.to_run(config, workdir=workdir)
  if with_weights and run.train.init_from and not os.path.isfile(os.path.expanduser(run.train.init_from)):
    try:
      run_files.read_config(storage.path('train.init_from', run.train.init_from, storage.FOLDER))
    except InputError as error:
      raise InputError(f'train.init_from: {error}') from None
  if not pipeline.has_texts(run.data.dataset):
    return
  splits, objective = sources.open_splits(run.data), objectives.get(run.objective_name)
  wanted = [*run.data.train_splits, 'valid']
  if missing := [name for name in wanted if name not in splits]:
    raise InputError(f'data: got no split "{missing[0]}"; expected one; it has {", ".join(splits)}')
  if run.objective.is_scored or not objective.labelled(run.objective):
    return
  composed = lambda label: documents.compose(label) if run.data.label_forms == 'composed' else label
  of_splits = {name: [composed(label) for _, _, label, *_ in rows] for name, rows in splits.items()}
  names, ids = labels.number_labels(of_splits)
  if names:
    labels.check_classes(names, ids['train'], run.data.training_files())
  objective.resolve(run.objective, {'label_names': names, 'dataset': {'name': run.data.dataset}})


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
