"""Metrics that an evaluation adds to those that an objective reports from the totals of a split.

`EVALUATION` of an objective names a file of this folder. `OPTIONS` of that file names further ones, for options of the
section `evaluation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lmx.config.schema import Run
from lmx.errors import InputError
from lmx.registry import Registry
from lmx.types import Objective

Members = Iterator[Any]  # `lmx.runs.restore.RestoredRun`


class Evaluation(NamedTuple):
  """Evaluation of a split.

  Attributes:
    metrics: metrics as in `results.json`, with the number of scored tokens and the protocol.
    objective: the objective, which declares them.
    outputs: predictions of the split that a part evaluates: translations or answers.
    rows: text of rows.jsonl, with `evaluation.save_rows`.
  """

  metrics: dict[str, Any]
  objective: Objective
  outputs: Sequence[Any] = ()
  rows: str = ''


class Subject(NamedTuple):
  """Parameters and the split that they are evaluated on; names as in `report.evaluate_run`."""

  run: Run
  corpus: Any
  params: Any
  engine: Any
  split: str
  validation_baselines: bool = False


class Added(NamedTuple):
  """Metrics that a part adds, the predictions behind them, and a phrase for the protocol."""

  metrics: dict[str, Any]
  outputs: Sequence[Any] = ()
  protocol: str = ''


class Part:
  """Interface of a file of this folder. `get` adds the defaults below to the names of the file.

  Attributes:
    OPTIONS: option of the section `evaluation`, which is also the key of its metrics -> the part that it adds.
    SCORES: metrics of `measure` that `train.best_by` may name, so that validations measure the part too.
    ensemble: (members, split) -> evaluation of the mean of their predictions, where `check_ensemble` accepts them.
  """

  OPTIONS: Mapping[str, str] = {}
  SCORES: tuple[str, ...] = ()
  ensemble: Callable[[Members, str], Evaluation]

  def check(self, run: Run, corpus: Any, batches: Any) -> None:
    """Raise InputError for a setting that would fail in `measure`, after the training."""

  def measure(self, subject: Subject) -> Added:
    """Return the metrics that the part adds."""
    return Added({})

  def write(self, workdir: Any, metrics: Mapping[str, Any], outputs: Sequence[Any]) -> None:
    """Write further files of a finished run to its work directory."""

  def lines(self, metrics: Mapping[str, Any]) -> list[str]:
    """Return further lines of the report."""
    return []

  def notes(self, metrics: Mapping[str, Any]) -> list[str]:
    """Return lines below the protocol."""
    return []

  def check_ensemble(self, run: Run) -> None:
    """Raise InputError unless there is an ensemble of runs like this one."""
    head = f' with the head "{run.objective.head}"' if 'head' in vars(run.objective) else ''
    raise InputError(
      f'--ensemble: got runs of the objective "{run.objective_name}"{head}; expected left-to-right language models '
      '("causal_lm"), classifiers ("classify", "multiple_choice"), answers with BERT\'s head ("span") or "translation"'
    )


_registry = Registry(__name__, 'evaluation', Part)


def get(name: str) -> Part:
  """Return the part `name`; '' is the one that adds nothing."""
  return _registry.get(name) if name else Part()


def select(objective: Objective, options: Mapping[str, Any]) -> list[Part]:
  """Return the part of an objective, and the parts of those of its options that are set; '' or () is unset."""
  part = get(objective.EVALUATION)
  return [part, *(get(name) for option, name in part.OPTIONS.items() if options.get(option))]


def check_options(run: Run, objective: Objective) -> None:
  """Raise InputError if `evaluation` has an option that cannot be measured.

  These are a cache or a mixture for an objective that is no language model's, and bags of words without scikit-learn.
  """
  if run.evaluation.bag_of_words:
    from lmx.metrics import bag_of_words

    if not bag_of_words.is_installed():
      raise InputError(
        "evaluation.bag_of_words: got True; expected scikit-learn; pip install 'lmx[baselines]', or omit it"
      )
  for option in ('cache', 'mixture'):
    if (value := getattr(run.evaluation, option)) and option not in get(objective.EVALUATION).OPTIONS:
      raise InputError(
        f'evaluation.{option}: got {value}; expected none, because the objective "{run.objective_name}" does not '
        'predict each token of a text from those before it; omit it'
      )
