"""Classifiers: the most frequent class and the confusion matrix of a split, and ensembles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx import objectives
from lmx.config.schema import Run
from lmx.data import labels
from lmx.errors import InputError
from lmx.evaluation import members
from lmx.evaluation.parts import Added, Evaluation, Members, Subject
from lmx.prediction import classification
from lmx.reporting import plots

OPTIONS = {'baselines': 'bag_of_words'}


def measure(subject: Subject) -> Added:
  """Return the metrics of `summarize` and the labels, if the classes are labels."""
  run, corpus, params, engine, split, _ = subject
  objective = objectives.get(run.objective_name)
  if not objective.labelled(run.objective):
    return Added({})
  outputs = classification.compute_outputs(run, corpus, engine.to_one_device(params), split)
  # These label `majority_class`, accuracy_class_<i> and the confusion matrix.
  metrics = objective.summarize(run.objective, outputs) | {'labels': list(corpus.manifest['label_names'])}
  return Added(metrics | ({'bag_of_words': _bag_of_words(run, corpus, split)} if run.evaluation.bag_of_words else {}))


def _bag_of_words(run: Run, corpus: Any, split: str) -> dict[str, float]:
  """Return the accuracies of classifiers of words on the labelled documents of a split."""
  from lmx.evaluation.parts.bag_of_words import labelled_rows
  from lmx.metrics import bag_of_words

  if (texts := corpus.manifest.get('texts', 1)) > 1:
    raise InputError(f'evaluation.bag_of_words: got rows of {texts} texts; expected rows of one; omit it')
  (train, labels_I), (test, truth_J) = (labelled_rows(run, corpus, name) for name in ('train', split))
  words = lambda rows: [text for (text,) in rows]
  predicted = {
    'naive_bayes': bag_of_words.naive_bayes(words(train), labels_I, words(test)),
    'tfidf': bag_of_words.classify(train, labels_I, test, len(corpus.manifest['label_names'])),
  }
  return {name: float(np.mean(predicted_J == truth_J)) for name, predicted_J in predicted.items()}


def write(workdir: Any, metrics: Mapping[str, Any], outputs: Sequence[Any]) -> None:
  """Write confusion.png, if there is a confusion matrix."""
  del outputs
  if 'confusion' in metrics:
    plots.confusion(workdir / 'confusion.png', metrics['confusion'], metrics['labels'])


def notes(metrics: Mapping[str, Any]) -> list[str]:
  """Return a warning if a classifier is not better than always predicting one class."""
  majority = metrics.get('majority_accuracy', 1)
  if not metrics['accuracy'] <= majority < 1:
    return []
  constant = f'always predicting "{metrics["labels"][metrics["majority_class"]]}" has {majority:.1%}'
  return [f'  warning: accuracy: got {metrics["accuracy"]:.1%}; {constant}; train longer, or change optim.lr']


def check_ensemble(run: Run) -> None:
  """Accept every classifier."""
  del run


def ensemble(runs: Members, split: str) -> Evaluation:
  """Sum the probabilities of the classes, in the first member's order of the labels."""
  names: list[str] = []
  each: list[dict[str, Any]] = []
  sums, truth = np.zeros(()), np.zeros(0)
  for loaded in runs:
    own = classification.label_names(loaded)
    corpus = loaded.corpus()
    names = names or own
    same = sorted(own) == sorted(names)
    if same:
      corpus = labels.renumber(corpus, names) if loaded.labels else corpus
      p_IC, labels_I = classification.compute_probabilities(loaded, corpus, split)
      p_IC = p_IC[:, [own.index(name) for name in names]]
    if not same or each and not np.array_equal(labels_I, truth):
      raise InputError(f'{loaded.workdir} does not classify the same documents into the same labels as the first run')
    truth, sums = labels_I, sums + p_IC
    each.append(members.describe(loaded, error_percent=_error(p_IC, labels_I)))
  mean_IC = sums / len(each)
  metrics = {
    'metric': 'error_percent',
    'error_percent': _error(mean_IC, truth),
    'accuracy': 1 - _error(mean_IC, truth) / 100,
    'loss': float(-np.mean(np.log(np.maximum(mean_IC[np.arange(len(truth)), truth], 1e-300)))),
    'tokens_counted': len(truth),
    'unit': 'documents',
  }
  metrics = members.complete(metrics, 'classifiers', 'probabilities', loaded, split, each)
  return Evaluation(metrics, objectives.get(loaded.run.objective_name))


def _error(p_IC: np.ndarray, labels_I: np.ndarray) -> float:
  return float(100 * np.mean(np.argmax(p_IC, axis=1) != labels_I))
