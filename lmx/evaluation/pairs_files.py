"""Files with the metrics of minimal pairs: pairs.json, pairs_curve.json and the summary in results.json of a run."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lmx import documents, records
from lmx.errors import InputError
from lmx.evaluation import rows
from lmx.reporting import run_log

if TYPE_CHECKING:
  from lmx.data.minimal_pairs import MinimalPairs
  from lmx.evaluation.minimal_pairs import Evaluated

PAIRS, CURVE = 'pairs.json', 'pairs_curve.json'
SUMMARY = 'minimal_pairs'  # in results.json
_GROUPS = ('fields', 'phenomena', 'paradigms')
_TEXTS = ('dataset', 'data_hash', 'protocol', 'split', 'pipeline', 'method', 'subset')
_SAME = ('dataset', 'data_hash', 'protocol')  # an evaluation replaces another one with the same values


def keep(workdir: Any, metrics: Mapping[str, Any]) -> None:
  """Add an evaluation to pairs.json of a folder, and its summary to results.json if the run is finished.

  An earlier evaluation of the same pairs by the same protocol and checkpoint is replaced. Everything else in
  results.json stays.

  Raises:
    InputError: a file is damaged or cannot be written.
  """
  workdir = pathlib.Path(workdir)
  same = (*_SAME, 'step', 'averaged_steps')
  kept = [one for one in read(workdir) if any(one.get(name) != metrics.get(name) for name in same)]
  run_log.write_json(str(workdir / PAIRS), [*kept, metrics])
  path = workdir / records.RESULTS
  if path.exists():
    results = records.read(path)
    run_log.write_json(str(path), {**results, SUMMARY: [_summary(one) for one in [*kept, metrics]]})


def read(workdir: Any) -> list[dict[str, Any]]:
  """Return the evaluations in pairs.json of a folder, [] without one. Raises InputError if it is damaged."""
  path = workdir / PAIRS
  if not records.exists(path):
    return []
  evaluations = documents.convert(records.read_json(path), list, str(path))
  for one in evaluations:
    _check(one, str(path), str=_TEXTS, int=('equal_tokens',), list=_GROUPS)
    averaged = documents.field(one, 'averaged_steps', list, str(path), [])
    for step in (documents.field(one, 'step', int, str(path), 0), *averaged):
      records.check_count(step, f'{path}: step')
    for group in (one, *(group for name in _GROUPS for group in one[name])):
      _check(group, str(path), str=('name',), float=('accuracy', 'accuracy_per_token'), int=('pairs', 'ties'))
      for name in ('interval', 'paradigm_interval'):
        _check_interval(group.get(name), f'{path}: {name}', is_required=name == 'interval')
    for group in (group for name in _GROUPS for group in one[name]):
      _check(group, str(path), int=('paradigms',))
  return evaluations


def _check(row: Any, where: str, **names: Sequence[str]) -> None:
  """Raise InputError unless an object has fields of the given types."""
  kinds = {'str': str, 'int': int, 'float': float, 'list': list}
  for kind, fields in names.items():
    for name in fields:
      documents.field(row, name, kinds[kind], where)


def _check_interval(value: Any, where: str, *, is_required: bool) -> None:
  """Raise InputError unless a value is two numbers, or nothing where it is not required."""
  if value is None and not is_required:
    return
  if not (isinstance(value, list) and len(value) == 2 and all(map(records.is_number, value))):
    raise InputError(f'{where}: got {documents.show(value)}; expected two numbers')


def newest(workdir: Any, like: Mapping[str, Any] | None = None) -> dict[str, Any]:
  """Return the newest evaluation in pairs.json of a folder.

  Args:
    workdir: the folder.
    like: an evaluation of the same pairs by the same pipeline; None takes any.

  Raises:
    InputError: there is none.
  """
  same = ('dataset', 'split', 'data_hash', 'pipeline')
  evaluations = [one for one in read(workdir) if like is None or all(one.get(name) == like.get(name) for name in same)]
  if not evaluations:
    pairs = f'{like["dataset"]}/{like["split"]} by {like["pipeline"]}' if like else 'minimal pairs'
    raise InputError(f'{workdir}/{PAIRS}: got no evaluation of {pairs}; expected one; run lmx evaluate --pairs=DIR')
  return evaluations[-1]


def paradigm_rows(metrics: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
  """Return the accuracies of an evaluation's paradigms as rows, and the evaluation with their description.

  Only `accuracy` and `accuracy_per_token` are functions of these rows.
  """
  paradigms = metrics['paradigms']
  each = [
    {
      'row': i,
      'paradigm': one['name'],
      'phenomenon': '',
      'correct': one['accuracy'],
      'correct_per_token': one['accuracy_per_token'],
    }
    for i, one in enumerate(paradigms)
  ]
  return each, {**metrics, 'rows': {'kind': 'minimal_pairs', 'count': len(each), 'unit': 'paradigms'}}


def _summary(metrics: Mapping[str, Any]) -> dict[str, Any]:
  low, high = metrics['interval']
  return {
    'dataset': metrics['dataset'],
    'subset': metrics['split'],
    'protocol': metrics['pipeline'],
    'method': metrics['method'],
    **{name: metrics[name] for name in ('step', 'averaged_steps') if name in metrics},  # an n-gram model has none
    'accuracy': metrics['accuracy'],
    'low': low,
    'high': high,
    'accuracy_per_token': metrics['accuracy_per_token'],
    'pairs': metrics['pairs'],
    'ties': metrics['ties'],
  }


def write_rows(folder: pathlib.Path, dataset: MinimalPairs, evaluated: Evaluated) -> None:
  """Write the scores of every pair and the metrics to a folder, which lmx compare reads. Raises InputError."""
  metrics, scores = evaluated.metrics, evaluated.scores
  each = (scores.sums_N2, scores.tokens_N2, evaluated.correct_N, evaluated.correct_per_token_N)
  outputs = list(zip(dataset.pairs, *(values.tolist() for values in each), strict=True))
  no_subject: Any = None  # the pairs belong to no run
  some, unit = rows.get('minimal_pairs').collect(no_subject, outputs)
  text, about = rows.describe('minimal_pairs', some, unit)
  rows.write(folder, text)
  phenomena = {f'accuracy_{one["name"]}': one['accuracy'] for one in metrics['phenomena']}
  run_log.write_json(str(folder / records.RESULTS), {**metrics, **phenomena, 'rows': about})


def write_curve(path: pathlib.Path, points: Sequence[Mapping[str, Any]]) -> None:
  """Write the evaluations of the checkpoints of a run as JSON, and a picture beside it. Raises InputError."""
  from lmx.reporting import plots

  run_log.write_json(str(path), points)
  plots.pairs_curve(path.with_suffix('.png'), points)
