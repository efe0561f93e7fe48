"""Evaluation of an ensemble: the mean of the predictions of several runs on one split.

The objective's part of the evaluation (lmx/evaluation/parts) averages:

  language models  probabilities of the next token, each member with its own carried state (Zaremba et al. 2014, arXiv
                   1409.2329, section 4.1)
  classifiers      probabilities of the classes (Howard and Ruder 2018, arXiv 1801.06146, section 3.4)
  answers          start and end logits of BERT's head, which its spans are ranked by over all windows of a passage;
                   Devlin et al. 2019 do not state the form of their ensemble
  translation      probabilities of the next token in one beam search (lmx/decoding/ensemble.py)

Members are loaded one after another, for translation together.
"""

from __future__ import annotations

import itertools
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any

from lmx.config import schema
from lmx.errors import InputError, InputWarning
from lmx.evaluation import parts
from lmx.evaluation.parts import Evaluation, Members
from lmx.runs import restore
from lmx.runs.restore import RestoredRun


def evaluate(
  workdirs: Sequence[Any], split: str, which: str | int = 'measured', overrides: Sequence[str] = ()
) -> Evaluation:
  """Evaluate the mean of the predictions of several runs.

  Args:
    workdirs: their work directories. All have the same objective, data and tokenizer.
    split: split to evaluate.
    which: see `lmx.runs.restore.load`.
    overrides: overrides of each run, see there.

  Returns:
    Metrics as in `evaluate.compute_results`, with each run's under 'members', and the translations or answers.

  Raises:
    InputError: the runs do not predict the same tokens, labels or answers, or there is no ensemble of their objective.
    NonFiniteLoss: a probability is NaN.
  """
  first = restore.load(workdirs[0], which, overrides)
  _check_options(first.run, overrides)
  part = parts.get(first.objective.EVALUATION)
  part.check_ensemble(first.run)
  return part.ensemble(itertools.chain([first], load_others(first, workdirs[1:], which, overrides)), split)


def load_others(
  first: RestoredRun, workdirs: Sequence[Any], which: str | int = 'measured', overrides: Sequence[str] = ()
) -> Members:
  """Load the further members of an ensemble one by one; InputError if one has another objective or tokenizer."""
  places = [pathlib.Path(workdir).resolve() for workdir in (first.workdir, *workdirs)]
  for place in dict.fromkeys(place for place in places if places.count(place) > 1):
    warnings.warn(
      InputWarning(f'--ensemble: {place} is given {places.count(place)} times, and counts as often'), stacklevel=2
    )
  for workdir in workdirs:
    if not str(workdir):
      raise InputError('--ensemble: got an empty name between commas; expected work directories')
    loaded = restore.load(workdir, which, overrides)
    _check_alike(first, loaded)
    yield loaded


def _check_options(run: schema.Run, overrides: Sequence[str]) -> None:
  """Raise InputError for an evaluation that ensembles do not support."""
  if run.evaluation.save_rows and any(setting.startswith('evaluation.save_rows=') for setting in overrides):
    raise InputError('evaluation.save_rows: got true for an ensemble, which saves no rows; omit it')
  if run.evaluation.cache or run.evaluation.mixture:
    raise InputError(
      'evaluation.cache, evaluation.mixture: an ensemble is evaluated without them; omit --cache and --mixture, or add '
      '--config.evaluation.cache=() --config.evaluation.mixture='
    )


def _check_alike(first: RestoredRun, other: RestoredRun) -> None:
  """Raise InputError if two runs differ in objective, head or tokenizer."""
  for name, one, two in (
    ('objective', first.run.objective_name, other.run.objective_name),
    ('head', *(getattr(loaded.run.objective, 'head', '') for loaded in (first, other))),
    ('vocabulary', first.tokenizer.hash[:12], other.tokenizer.hash[:12]),
  ):
    if one != two:
      raise InputError(
        f'--ensemble: {other.workdir} has the {name} {two} and {first.workdir} {one}; expected runs with the same '
        f'{name}, so omit one of them'
      )
