"""What the objective of a trained run says of every row of a split: the loop that all predictions are made by.

What rows mean is known to one module for each kind of question: lmx/predictions.py (labels and scores of rows),
lmx/tags.py (a label for each word) and lmx/answers.py (answers that are spans of a passage). `lmx predict` uses of each

  of_file(loaded, path) -> Asked           what is asked in a file of the user's
  of_split(loaded, split) -> Asked         the same of a split of the run's own data
  said(loaded, asked) -> [{...}]           what is said, JSON-able, one for each thing asked
  judged(loaded, asked, said) -> str       how much of it is right, where that is known; '' where it is not
  FORMS = {'name': form}                   other forms than JSON lines: form(loaded, asked, said) -> text
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lmx import config, evaluate, objectives, precision
from lmx.data import corpus as corpora
from lmx.data import pipeline
from lmx.data.batching.base import Batches
from lmx.errors import InputError
from lmx.models import registry
from lmx.restored import Restored
from lmx.types import Params

Arrays = dict[str, np.ndarray]
_TRUTHS = ('labels_B', 'scores_B', 'labels_BT', 'starts_B', 'ends_B')


class Asked(NamedTuple):
  """What a run is asked about.

  Attributes:
    corpus: it in tokens.
    split: of the corpus.
    items: it in words, with what is known to be right; a module's own type.
    notes: what a user should know of how it is read, such as what is cut.
  """

  corpus: corpora.Corpus
  split: str
  items: Sequence[Any]
  notes: tuple[str, ...] = ()


Form = Callable[[Restored, Asked, Sequence[Mapping[str, Any]]], str]


def batches(run: config.Run, corpus: corpora.Corpus, split: str) -> Batches:
  """The batches of a split in one exact pass, as an evaluation reads them."""
  return pipeline.batches(run.data, corpus, split, evaluate.SEED, train=False)


def over(run: config.Run, batches: Batches, params: Params) -> Iterator[tuple[Arrays, Arrays]]:
  """Each batch and what the objective's `predict` says of it, without having seen what is right.

  Args:
    run: the run.
    batches: see `batches`.
    params: {'model': ..., 'objective': ...}, whole on one device.
  """
  objective, model = objectives.get(run.objective_name), registry.get(run.model_name)
  own = functools.partial(objective.predict, run.objective, model, run.measured)
  predict = jax.jit(precision.at(run.matmul_precision, own))
  for step in range(batches.steps):
    batch = batches(step)
    made, _ = predict(params, {key: x for key, x in batch.items() if key not in _TRUTHS}, ())
    yield batch, {name: np.asarray(x) for name, x in made.items()}


def ending(path: str, endings: Iterable[str], what: str) -> str:
  """Which of the endings a file's name has, compressed by gzip or not. InputError if none."""
  name = path.removesuffix('.gz')
  found = next((end for end in endings if name.endswith(end)), None)
  if found is None:
    raise InputError(f'{path}: {what} are read from files whose names end in {", ".join(endings)}')
  if not pathlib.Path(path).is_file():
    raise InputError(f'{path}: cannot be read (there is no such file)')
  return found
