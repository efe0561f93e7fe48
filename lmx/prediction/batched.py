"""Predictions of a trained run for every row of a split, batch by batch.

A row's meaning is known to one module for each task: classification.py (labels and scores of rows), tagging.py (a label
for each word), question_answering.py (spans of a passage). `lmx predict` uses these names of each:

  of_file(loaded, path) -> Asked           the inputs of a user's file
  of_split(loaded, split) -> Asked         the inputs of a split of the run's own data
  said(loaded, asked) -> [{...}]           predictions, JSON-able, one for each input
  judged(loaded, asked, said) -> str       the score, where labels are known; '' elsewhere
  FORMS = {'name': form}                   other forms than JSON lines: form(loaded, asked, said) -> text
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lmx import objectives
from lmx.config import schema
from lmx.data import corpus as corpora
from lmx.data import pipeline
from lmx.data.batching.base import Batches
from lmx.engine import precision
from lmx.errors import InputError
from lmx.models import registry
from lmx.runs.restore import Restored
from lmx.types import Params

Arrays = dict[str, np.ndarray]
_TRUTHS = ('labels_B', 'scores_B', 'labels_BT', 'starts_B', 'ends_B')


class Asked(NamedTuple):
  """Input of a prediction.

  Attributes:
    corpus: the input in tokens.
    split: of the corpus.
    items: the input in words, with its labels if known; a module's own type.
    notes: what a user should know of how it is read, such as what is cut.
  """

  corpus: corpora.Corpus
  split: str
  items: Sequence[Any]
  notes: tuple[str, ...] = ()


Form = Callable[[Restored, Asked, Sequence[Mapping[str, Any]]], str]


def batches(run: schema.Run, corpus: corpora.Corpus, split: str) -> Batches:
  """The batches of a split in one exact pass, as an evaluation reads them."""
  return pipeline.batches(run.data, corpus, split, pipeline.EVAL_SEED, train=False)


def over(run: schema.Run, batches: Batches, params: Params) -> Iterator[tuple[Arrays, Arrays]]:
  """Each batch and what the objective's `predict` says of it, without having seen what is right.

  Args:
    run: the run.
    batches: see `batches`.
    params: {'model': ..., 'objective': ...}, whole on one device.
  """
  objective, model = objectives.get(run.objective_name), registry.get(run.model_name)
  own = functools.partial(objective.predict, run.objective, model, run.measured)
  predict = jax.jit(precision.wrap(run.matmul_precision, own))
  for step in range(batches.steps):
    batch = batches(step)
    made, _ = predict(params, {key: x for key, x in batch.items() if key not in _TRUTHS}, ())
    yield batch, {name: np.asarray(x) for name, x in made.items()}


def ending(path: str, endings: Iterable[str], what: str) -> str:
  """Return the ending of a file's name, compressed by gzip or not. InputError if it has none of them."""
  name = path.removesuffix('.gz')
  found = next((end for end in endings if name.endswith(end)), None)
  if found is None:
    raise InputError(f'{path}: {what} are read from files whose names end in {", ".join(endings)}')
  if not pathlib.Path(path).is_file():
    raise InputError(f'{path}: cannot be read (there is no such file)')
  return found
