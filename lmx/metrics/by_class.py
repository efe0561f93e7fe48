"""Precision, recall and F1 of each class, and the mean F1 over the classes, as fractions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lmx.metrics.metric import Metric

MACRO_F1 = Metric('macro_f1', True, headline='.1%')


def scores(right: float, predicted: float, true: float) -> dict[str, float]:
  """Return {'precision', 'recall', 'f1', 'count': number of true ones, 'predicted': number of predicted ones}.

  Precision without predictions, recall without true ones and F1 without either are 0, as in scikit-learn.
  """
  precision, recall = right / predicted if predicted else 0.0, right / true if true else 0.0
  f1 = 2 * right / max(predicted + true, 1)
  return {'precision': precision, 'recall': recall, 'f1': f1, 'count': int(true), 'predicted': int(predicted)}


def table(numbers: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
  """Return {class: `scores`} of {class: (right, predicted, true)}."""
  return {name: scores(*three) for name, three in numbers.items()}


def macro_f1(classes: Mapping[str, Mapping[str, float]]) -> float:
  """Return the mean F1 of the classes that the split has or the model predicts, as scikit-learn's macro average.

  A class that is predicted and absent counts as 0; one that is neither does not count. seqeval has the same rule.
  """
  values = [one['f1'] for one in classes.values() if one['count'] or one['predicted']]
  return sum(values) / len(values) if values else 0.0


def undefined(one: Mapping[str, Any]) -> set[str]:
  """Return the undefined metrics (division by 0) among 'precision', 'recall' and 'f1' in a row of `table`."""
  is_predicted = one.get('predicted', 1)  # results of earlier versions lack the number of predictions
  empty = {'precision': not is_predicted, 'recall': not one['count'], 'f1': not is_predicted and not one['count']}
  return {name for name, is_empty in empty.items() if is_empty}


def lines(classes: Mapping[str, Mapping[str, Any]]) -> list[str]:
  """Format the table as aligned text, with - for undefined metrics."""
  width = max(len(name) for name in (*classes, 'class'))
  head = f'  {"class":{width}}  precision  recall      F1   count'
  rows = []
  for name, one in classes.items():
    share = {key: '-' if key in undefined(one) else f'{one[key]:.1%}' for key in ('precision', 'recall', 'f1')}
    rows.append(f'  {name:{width}}  {share["precision"]:>9}  {share["recall"]:>6}  {share["f1"]:>6}  {one["count"]:6,}')
  return [head, *rows]
