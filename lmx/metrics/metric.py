"""Declaration of a metric: its name in the results, which values are better, and how reports show it.

An objective lists the metrics of its evaluation as `METRICS`, the headline first. Whatever selects, sorts or prints a
metric reads its declaration there. Functions that several objectives share declare their metrics next to the code that
computes them, such as `language.METRICS`.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Metric:
  """A metric of an evaluation.

  Attributes:
    name: its key in the results; `*` matches any text, as in accuracy_class_*, numbered by label.
    higher_is_better: None if neither direction is better, such as for a threshold.
    format: format specification of its value in reports.
    headline: format specification as the headline.
    shown: print a line for it below the headline.
  """

  name: str
  higher_is_better: bool | None
  format: str = ',.3f'
  headline: str = ',.2f'
  shown: bool = True

  @property
  def is_share(self) -> bool:
    """True if pages show its values in percent."""
    return '%' in self.format + self.headline


LOSS = Metric('loss', False, shown=False)  # of every objective
ACCURACY = Metric('accuracy', True, '.1%', '.2%')
ERROR_PERCENT = Metric('error_percent', False, shown=False)


def find(metrics: Iterable[Metric], name: str) -> Metric | None:
  """Return a metric's declaration in an objective, None if there is none."""
  return next((metric for metric in (*metrics, LOSS) if fnmatch.fnmatchcase(name, metric.name)), None)


def orient(metrics: Iterable[Metric], name: str, value: float) -> float:
  """Return a value with the sign that makes lower better; the function is its own inverse."""
  metric = find(metrics, name)
  return -value if metric is not None and metric.higher_is_better else value


def class_captions(metrics: Iterable[Metric], labels: Iterable[str]) -> dict[str, str]:
  """Return captions such as 'accuracy of World' for per-class metrics, whose names have the label index."""
  stems = [metric.name.removesuffix('_class_*') for metric in metrics if metric.name.endswith('_class_*')]
  return {f'{stem}_class_{i}': f'{stem} of {label}' for stem in stems for i, label in enumerate(labels)}
