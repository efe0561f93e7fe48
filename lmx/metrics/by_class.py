"""Precision, recall and F1 of each class, and the mean F1 over the classes, as fractions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def scores(right: float, predicted: float, true: float) -> dict[str, float]:
  """Return {'precision', 'recall', 'f1', 'count': number of true ones}; 0 where nothing is predicted or true."""
  precision, recall = right / predicted if predicted else 0.0, right / true if true else 0.0
  return {'precision': precision, 'recall': recall, 'f1': 2 * right / max(predicted + true, 1), 'count': int(true)}


def table(numbers: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
  """Return {class: `scores`} of {class: (right, predicted, true)}."""
  return {name: scores(*three) for name, three in numbers.items()}


def macro_f1(classes: Mapping[str, Mapping[str, float]]) -> float:
  """Return the mean F1 of the classes that the split has or the model predicts, as scikit-learn's macro average."""
  values = [one['f1'] for one in classes.values() if one['count'] or one['precision'] or one['f1']]
  return sum(values) / len(values) if values else 0.0


def lines(classes: Mapping[str, Mapping[str, Any]]) -> list[str]:
  """Return the table as lines of text in columns."""
  width = max(len(name) for name in (*classes, 'class'))
  head = f'  {"class":{width}}  precision  recall      F1   count'
  rows = [
    f'  {name:{width}}  {one["precision"]:9.1%}  {one["recall"]:6.1%}  {one["f1"]:6.1%}  {one["count"]:6,}'
    for name, one in classes.items()
  ]
  return [head, *rows]
