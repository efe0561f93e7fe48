"""Predictions of a trained run for every row of a split, batch by batch.

The tasks are classification.py (labels or scores of rows), tagging.py (a label for each word), question_answering.py
(spans of a passage) and segmentation.py (masks of images); `tasks.Task` is their interface.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lmx import documents, objectives
from lmx.config import schema
from lmx.data import corpus as corpora
from lmx.data import pipeline
from lmx.data.batching.base import Batches
from lmx.data.tokenizers.words import with_all_words
from lmx.engine import precision
from lmx.errors import InputError
from lmx.models import registry
from lmx.reporting import waiting
from lmx.runs.restore import RestoredRun
from lmx.types import Params

Arrays = dict[str, np.ndarray]
_LABELS = ('labels_B', 'scores_B', 'labels_BT', 'starts_B', 'ends_B')


class Inputs(NamedTuple):
  """Input of a prediction.

  Attributes:
    corpus: the tokenised input, None for images.
    split: split of the corpus.
    items: the input as text, with its labels if known; a module's own type.
    notes: notes for the user on the reading of the input, such as truncation.
  """

  corpus: Any
  split: str
  items: Sequence[Any]
  notes: tuple[str, ...] = ()


Format = Callable[[RestoredRun, Inputs, Sequence[Mapping[str, Any]]], str]


def batches(run: schema.Run, corpus: corpora.Corpus, split: str) -> Batches:
  """Return the batches of one exact pass over a split, as in an evaluation."""
  return pipeline.batches(run.data, corpus, split, pipeline.EVAL_SEED, train=False)


def predict(run: schema.Run, batches: Batches, params: Params) -> Iterator[tuple[Arrays, Arrays]]:
  """Yield each batch and the result of the objective's `predict` on it, from which the labels are removed.

  Args:
    run: the run.
    batches: see `batches`.
    params: {'model': ..., 'objective': ...}, unsharded on one device.
  """
  predict_step = _compiled_step(run.model_name, run.measured, run.objective_name, run.objective, run.matmul_precision)
  with waiting.Bar(batches.steps, f'predict {batches.split}') as progress:
    for step in range(batches.steps):
      batch = batches(step)
      inputs = {key: x for key, x in batch.items() if key not in _LABELS}
      with progress.compiling(predict_step, inputs):
        predictions, _ = predict_step(params, inputs, ())
      yield batch, {name: np.asarray(x) for name, x in predictions.items()}
      progress.update(1)


@functools.lru_cache(maxsize=2)
def _compiled_step(model_name: str, model_cfg: Any, objective_name: str, objective_cfg: Any, products: str) -> Any:
  """Return the objective's `predict`, compiled once for all validations of a training."""
  objective, model = objectives.get(objective_name), registry.get(model_name)
  return jax.jit(precision.wrap(products, functools.partial(objective.predict, objective_cfg, model, model_cfg)))


def tokenizer(loaded: RestoredRun, texts: Iterable[str]) -> Any:
  """Return the tokenizer for new texts; with `data.characters` it spells out-of-vocabulary words."""
  return with_all_words(loaded.tokenizer, texts) if loaded.run.data.all_words else loaded.tokenizer


def check_count(number: int, texts: Sequence[str], names: Sequence[str]) -> None:
  """Raise InputError unless an input given in Python has a text for each column."""
  if len(texts) != len(names):
    raise InputError(f'inputs, line {number}: got {len(texts)} texts; expected {len(names)}: {", ".join(names)}')


def check_suffix(path: str, suffixes: Iterable[str], what: str) -> str:
  """Return a file's extension, without the compression's. Raises InputError if it is not one of `suffixes`."""
  found = documents.ending(path)
  suffix = next((suffix for suffix in suffixes if suffix == found), None)
  if suffix is None:
    raise InputError(
      f'{path}: got an unknown format; {what} are read from files whose names end in {", ".join(suffixes)}'
    )
  documents.check_regular(path)
  if not pathlib.Path(path).is_file():
    raise InputError(f'{path}: cannot be read (there is no such file)')
  return suffix
