"""Answers to questions on passages: exact match and F1 of whole questions, the files of answers, and ensembles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx import objectives
from lmx.config.schema import Run
from lmx.data.corpus import Corpus
from lmx.engine import state
from lmx.errors import InputError
from lmx.evaluation import members
from lmx.evaluation.parts import Added, Evaluation, Members, Part, Subject
from lmx.prediction import batched, question_answering
from lmx.runs.restore import RestoredRun

SCORES = ('f1', 'exact_match')


def measure(subject: Subject) -> Added:
  """Return the metrics of the answers to the questions of a split, and the answers."""
  params = subject.engine.to_one_device(subject.params)
  answers = question_answering.answer(subject.run, subject.corpus, params, subject.split)
  return Added(question_answering.compute_metrics(subject.run, answers), answers)


def write(workdir: Any, metrics: Mapping[str, Any], outputs: Sequence[Any]) -> None:
  """Write the files of answers."""
  del metrics
  if outputs:
    question_answering.write_files(workdir, outputs)


def check_ensemble(run: Run) -> None:
  """Raise InputError unless the head is BERT's."""
  if run.objective.head != 'bert':
    Part().check_ensemble(run)


def ensemble(runs: Members, split: str) -> Evaluation:
  """Sum the scores of start and end in each window of each passage."""
  each: list[dict[str, Any]] = []
  sums: list[np.ndarray] = []
  for loaded in runs:
    corpus, run = loaded.corpus(), loaded.run
    batches = batched.batches(run, corpus, split)
    layout = run.data.batching, run.data.length, run.data.eval_batch_size
    scores = [predictions['scores_BT2'] for _, predictions in batched.predict(run, batches, loaded.params)]
    if not each:
      first, first_layout, sums = corpus, layout, scores
    else:
      members.check_text(first, corpus, split, loaded.workdir)
      if layout != first_layout:
        raise InputError(
          f'--ensemble: {loaded.workdir} has other windows than the first run; give all runs the same data.batching, '
          'data.length and data.eval_batch_size'
        )
      sums = [one + other for one, other in zip(sums, scores, strict=True)]
    own = question_answering.compute_metrics(run, _choose(loaded, corpus, split, batches, scores))
    each.append(members.describe(loaded, exact_match=own['exact_match'], f1=own['f1']))
    if not all(np.isfinite(x).all() for x in scores):
      raise state.nonfinite_error(f'the scores of {loaded.workdir} on split {split} are', loaded.params)
  answers = _choose(loaded, corpus, split, batches, [x_BT2 / len(each) for x_BT2 in sums])
  metrics = question_answering.compute_metrics(run, answers)
  metrics |= {'tokens_counted': len(answers), 'unit': 'questions'}
  metrics = members.complete(metrics, 'models', 'start and end logits', loaded, split, each)
  return Evaluation(metrics, objectives.get(run.objective_name), answers)


def _choose(
  loaded: RestoredRun, corpus: Corpus, split: str, batches: Any, scores: Sequence[np.ndarray]
) -> list[question_answering.Answer]:
  pairs = ((batches(i), {'scores_BT2': x_BT2}) for i, x_BT2 in enumerate(scores))
  return question_answering.choose(loaded.run, corpus, split, batches, pairs)
