"""Baselines of a classifier or regression on the same rows: a constant, and a linear model on TF-IDF."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lmx import objectives
from lmx.config.schema import Run
from lmx.data import pipeline
from lmx.errors import InputError
from lmx.evaluation import evaluate
from lmx.evaluation.parts import Added, Subject
from lmx.metrics import bag_of_words
from lmx.objectives.row_objective import MOST_BY_CLASS
from lmx.reporting import waiting

MOST_ROWS, MOST_CHARACTERS = 100_000, 50_000_000  # of the training split: a minute or two on two cores
_OTHERS = ('spearman', 'rmse')  # metrics of a regression that `lines` shows


def measure(subject: Subject) -> Added:
  """Return 'baselines': metrics of the constant and of TF-IDF, or under 'skipped' the reason why there are none.

  The constant is the most frequent class or the mean score of the training rows.
  """
  run, corpus, _, _, split, _ = subject
  objective = objectives.get(run.objective_name)
  scored = run.objective.is_scored
  if not pipeline.has_texts(run.data.dataset) or not (scored or objective.labelled(run.objective)):
    return Added({})
  truth_J, train_I = _labels(corpus, split), _labels(corpus, 'train') if 'train' in corpus.splits else None
  found: dict[str, Any] = {}
  if scored and train_I is not None:
    found['mean'] = {'rmse': float(np.sqrt(np.mean(np.square(_known(truth_J) - np.mean(_known(train_I))))))}
  if not scored:
    label = int(np.argmax(np.bincount(_known(truth_J if train_I is None else train_I))))
    constant = _scores(run, np.full_like(_known(truth_J), label), _known(truth_J))
    found['majority'] = {'label': corpus.manifest['label_names'][label], **constant}
  return Added({'baselines': {**found, 'tfidf': _tfidf(run, corpus, split)}})


def _tfidf(run: Run, corpus: Any, split: str) -> dict[str, Any]:
  """Return the metrics of the linear model on TF-IDF, or {'skipped': the reason}."""
  texts, scored = corpus.manifest.get('texts', 1), run.objective.is_scored
  about = {'regression': 'ridge regression' if scored else 'logistic regression'}
  if reason := _obstacle(corpus, texts):
    return {**about, 'skipped': reason}
  try:
    with waiting.waiting(f'TF-IDF, {about["regression"]}'):
      (train, known_I), (test, known_J) = (labelled_rows(run, corpus, name) for name in ('train', split))
      if sum(len(text) for row in train for text in row) > MOST_CHARACTERS:
        return {**about, 'skipped': f'the training texts have more than {MOST_CHARACTERS:,} characters'}
      if scored:
        predicted_J = bag_of_words.regress(train, known_I, test)
      else:
        predicted_J = bag_of_words.classify(train, known_I, test, len(corpus.manifest['label_names']))
  except InputError as error:  # the tokens are found without the files
    return {**about, 'skipped': f'the texts cannot be read ({error})'}
  features = bag_of_words.OF_PAIRS if texts == 2 else bag_of_words.FEATURES
  return {**about, 'features': features, 'training_rows': len(train), **_scores(run, predicted_J, known_J)}


def _obstacle(corpus: Any, texts: int) -> str:
  """Return the reason why there is no linear model, '' if there is one."""
  if not bag_of_words.is_installed():
    return "needs pip install 'lmx[baselines]'"
  if 'train' not in corpus.splits:
    return 'the data set has no split "train"'
  count = (len(corpus.splits['train'].offsets) - 1) // texts
  if count > MOST_ROWS:
    return f'{count:,} training rows; at most {MOST_ROWS:,}'
  train_I = _known(_labels(corpus, 'train'))
  return '' if len(train_I) and np.ptp(train_I) > 0 else 'all training rows have the same label'


def labelled_rows(run: Run, corpus: Any, name: str) -> tuple[list[tuple[str, ...]], np.ndarray]:
  """Return the texts and the label or score of each labelled row of a split, in order.

  Raises:
    InputError: the files of the data set cannot be read, or have other rows now.
  """
  texts = corpus.manifest.get('texts', 1)
  splits = run.data.train_splits if name == 'train' else (name,)
  documents = [text for split in splits for _, text, *_ in pipeline.examples(run.data, split)]
  rows = [tuple(documents[i : i + texts]) for i in range(0, len(documents), texts)]
  labels_I = _labels(corpus, name)
  chosen = pipeline.select_documents(run.data, name, len(rows))
  if len(chosen) != len(labels_I):
    raise InputError(f'split {name}: got {len(chosen):,} rows; expected {len(labels_I):,}, as tokenised')
  rows = [rows[i] for i in chosen]
  return [row for row, label in zip(rows, labels_I, strict=True) if _is_known(label)], _known(labels_I)


def _labels(corpus: Any, name: str) -> np.ndarray:
  """Return the label or score of each row of a split."""
  return np.asarray(corpus.split(name).labels)[:: corpus.manifest.get('texts', 1)]


def _is_known(labels: Any) -> Any:
  """Return whether there is a label (not -1) or a score (not NaN)."""
  return ~np.isnan(labels) if labels.dtype.kind == 'f' else labels >= 0


def _known(labels_I: np.ndarray) -> np.ndarray:
  return labels_I[_is_known(labels_I)]


def _scores(run: Run, predicted_J: np.ndarray, truth_J: np.ndarray) -> dict[str, float]:
  """Return the metrics of predictions, as the objective names them."""
  count, totals = float(len(truth_J)), dict[str, Any]()
  if run.objective.is_scored:
    pairs_J3 = np.stack([predicted_J, truth_J, np.ones_like(truth_J)], axis=1)
    totals = {'squared_error': (float(np.sum(np.square(predicted_J - truth_J))), count), 'pairs_B3': pairs_J3}
  else:
    totals = _class_totals(run.objective, predicted_J, truth_J)
  metrics = evaluate.report(run, {}, totals)
  return {name: value for name, value in metrics.items() if name != 'loss'}


def _class_totals(cfg: Any, predicted_J: np.ndarray, truth_J: np.ndarray) -> dict[str, tuple[float, float]]:
  """Return the sums and weights that the objective `classify` has of a split, except of its loss."""
  count, right_J = float(len(truth_J)), predicted_J == truth_J
  totals = {'accuracy': (float(right_J.sum()), count)}
  for c in range(cfg.classes) if cfg.classes <= MOST_BY_CLASS else ():
    totals[f'accuracy_class_{c}'] = float((right_J & (truth_J == c)).sum()), float((truth_J == c).sum())
    totals[f'predicted_class_{c}'] = float((predicted_J == c).sum()), count
  if cfg.classes == 2:
    is_J, found_J = truth_J == cfg.positive_index, predicted_J == cfg.positive_index
    for name, selected_J in (('is', is_J), ('predicted', found_J), ('right', is_J & found_J)):
      totals[f'{name}_positive'] = float(selected_J.sum()), count
  return totals


def lines(metrics: Mapping[str, Any]) -> list[str]:
  """Return the metrics of regressions that are not the headline."""
  baselines, texts = metrics['baselines'], []
  for name, label in (('tfidf', 'TF-IDF'), ('mean', 'mean of the training scores')):
    shown = [f'{key} {baselines[name][key]:.3f}' for key in _OTHERS if key in baselines.get(name, {})]
    texts += [f'{label}: {", ".join(shown)}'] if shown else []
  return [f'  ({"; ".join(texts)})'] if texts else []
