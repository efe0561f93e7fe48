"""The task of a run: the module that predicts for it, and inputs given in Python in place of a file.

`PREDICTION` of an objective names the file of this folder.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lmx import objectives
from lmx.errors import InputError
from lmx.prediction.batched import Format, Inputs
from lmx.registry import Registry
from lmx.runs.restore import RestoredRun

_FILE = 'inputs.jsonl'


class Task:
  """Interface of a task. `get` adds the defaults below to the names of its file.

  Attributes:
    FORMATS: output formats besides JSON lines, name -> (loaded, inputs, predictions) -> text.
    IMAGES: its inputs are images.
    read_file: (loaded, path, *, strip=True) -> inputs of a user's file; `strip` removes the white space around texts of
      tables, as in training.
    line: (loaded, one, number) -> an input given in Python as the object that a line of a file has for it.
    read_split: (loaded, split) -> inputs of a split of the run's own data.
    predict: (loaded, inputs) -> predictions, JSON-able, one for each input.
    N_BEST: predictions have candidates under 'n_best'.
  """

  FORMATS: Mapping[str, Format] = {}
  IMAGES: bool = False
  N_BEST: bool = False

  read_file: Callable[..., Inputs]
  line: Callable[[RestoredRun, Any, int], Mapping[str, Any]]
  read_split: Callable[[RestoredRun, str], Inputs]
  predict: Callable[[RestoredRun, Inputs], list[dict[str, Any]]]

  def read_inputs(self, loaded: RestoredRun, inputs: Any) -> Inputs:
    """Return the inputs of a file, or of a list, which is read like a file of JSON lines.

    Texts of a list keep the white space around them, which a byte-level BPE reads.
    """
    if isinstance(inputs, (str, os.PathLike)):
      return self.read_file(loaded, os.fspath(inputs))
    with tempfile.TemporaryDirectory() as folder:
      path = os.path.join(folder, _FILE)
      with open(path, 'w', encoding='utf-8', errors='replace') as file:
        for number, one in enumerate(inputs, 1):
          file.write(json.dumps(self.line(loaded, one, number)) + '\n')
      try:
        read = self.read_file(loaded, path, strip=False)
      except InputError as error:
        raise InputError(str(error).replace(path, 'inputs')) from None
      return read._replace(notes=tuple(note.replace(path, 'inputs') for note in read.notes))

  def score(self, loaded: RestoredRun, inputs: Inputs, predictions: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence with the metrics, if labels are known; '' otherwise."""
    return ''


_OTHERS = ('batched', 'contextual_embeddings', 'tasks', 'word_neighbours', 'word_vectors')
_registry = Registry('lmx.prediction', 'task', Task, excluded=_OTHERS)


def get(loaded: RestoredRun) -> Task:
  """Return the task of a run."""
  return _registry.get(objectives.get(loaded.run.objective_name).PREDICTION)


class Predictions(list[dict[str, Any]]):
  """Predictions, JSON-able, one for each input in order.

  Attributes:
    notes: notes for the user on the reading of the input, such as truncation.
    score: a sentence with the metrics if the labels of the inputs are known, else ''.
  """

  def __init__(self, loaded: RestoredRun, inputs: Inputs, rows: Sequence[dict[str, Any]]):
    """Store the predictions with what the formats need."""
    super().__init__(rows)
    self._task, self._given = get(loaded), (loaded, inputs, list(rows))
    self.notes = inputs.notes
    self.score: str = self._task.score(*self._given)

  def text(self, form: str) -> str:
    """Return the predictions in one of the task's formats, `FORMATS` of its module."""
    return self._task.FORMATS[form](*self._given)


def predict(loaded: RestoredRun, inputs: Any = None, split: str = '', n_best: int = 0) -> Predictions:
  """Return the predictions of a run for inputs or for a split; see `lmx.inference.TrainedRun.predict`."""
  task = get(loaded)
  if (inputs is None) != bool(split):
    raise InputError('predict: got inputs and a split, or neither; expected one of the two')
  if n_best and not task.N_BEST:
    raise InputError('--n_best is for runs that answer questions')
  read = task.read_split(loaded, split) if split else task.read_inputs(loaded, inputs)
  rows = [_shorten(row, n_best) for row in task.predict(loaded, read)]
  return Predictions(loaded, read, rows)


def _shorten(row: Mapping[str, Any], n_best: int) -> dict[str, Any]:
  """Return a prediction with at most `n_best` candidates for a question."""
  return {key: x[:n_best] if key == 'n_best' else x for key, x in row.items() if key != 'n_best' or n_best}
