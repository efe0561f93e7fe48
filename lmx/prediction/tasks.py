"""The task of a run: the module that predicts for it, and inputs given in Python in place of a file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from lmx.errors import InputError
from lmx.prediction import classification, question_answering, segmentation, tagging
from lmx.prediction.batched import Inputs
from lmx.runs.restore import RestoredRun

TASKS: dict[str, ModuleType] = {
  'classify': classification,
  'multiple_choice': classification,
  'regress': classification,
  'tag': tagging,
  'span': question_answering,
  'segment': segmentation,
}
_FILE = 'inputs.jsonl'


class Predictions(list[dict[str, Any]]):
  """Predictions, JSON-able, one for each input in order.

  Attributes:
    notes: notes for the user on the reading of the input, such as truncation.
    score: a sentence with the metrics if the labels of the inputs are known, else ''.
  """

  def __init__(self, loaded: RestoredRun, inputs: Inputs, rows: Sequence[dict[str, Any]]):
    """Keep what the formats need."""
    super().__init__(rows)
    self._task, self._given = TASKS[loaded.run.objective_name], (loaded, inputs, list(rows))
    self.notes = inputs.notes
    self.score: str = self._task.score(*self._given)

  def text(self, form: str) -> str:
    """Return the predictions in one of the task's formats, `FORMATS` of its module."""
    return self._task.FORMATS[form](*self._given)


def predict(loaded: RestoredRun, inputs: Any = None, split: str = '', n_best: int = 0) -> Predictions:
  """Return the predictions of a run for inputs or for a split; see `lmx.inference.TrainedRun.predict`."""
  task = TASKS[loaded.run.objective_name]
  if (inputs is None) != bool(split):
    raise InputError('predict: got inputs and a split, or neither; expected one of the two')
  if n_best and task is not question_answering:
    raise InputError('--n_best is for runs that answer questions')
  read = task.read_split(loaded, split) if split else _read(loaded, task, inputs)
  rows = [_shorten(row, n_best) for row in task.predict(loaded, read)]
  return Predictions(loaded, read, rows)


def _shorten(row: Mapping[str, Any], n_best: int) -> dict[str, Any]:
  """Return a prediction with at most `n_best` candidates for a question."""
  return {key: x[:n_best] if key == 'n_best' else x for key, x in row.items() if key != 'n_best' or n_best}


def reads_images(loaded: RestoredRun) -> bool:
  """Return True if the inputs of a run's task are images."""
  return TASKS.get(loaded.run.objective_name) is segmentation


def _read(loaded: RestoredRun, task: ModuleType, inputs: Any) -> Inputs:
  """Return the inputs of a file, or of a list, which is read as a file of JSON lines is; or images.

  Texts of a list keep the white space around them, which a byte-level BPE reads.
  """
  if task is segmentation:
    return segmentation.read_inputs(loaded, inputs)
  if isinstance(inputs, (str, os.PathLike)):
    return task.read_file(loaded, os.fspath(inputs))
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, _FILE)
    with open(path, 'w', encoding='utf-8', errors='replace') as file:
      for number, one in enumerate(inputs, 1):
        file.write(json.dumps(_line(loaded, task, one, number)) + '\n')
    try:
      read = task.read_file(loaded, path, **({'strip': False} if task is classification else {}))
    except InputError as error:
      raise InputError(str(error).replace(path, 'inputs')) from None
    return read._replace(notes=tuple(note.replace(path, 'inputs') for note in read.notes))


def _line(loaded: RestoredRun, task: ModuleType, one: Any, number: int) -> Mapping[str, Any]:
  """Return an input as the object that a line of a file holds for it."""
  if isinstance(one, Mapping) and not (task is question_answering and 'question' in one):
    return one
  if task is tagging:
    return {'tokens': one.split() if isinstance(one, str) else list(one)}
  names = ('question', 'context') if task is question_answering else classification.text_columns(loaded)
  if isinstance(one, Mapping):
    names, one = ('question', 'context'), [one.get(name) for name in ('question', 'context')]
  texts = (one,) if isinstance(one, str) else tuple(one)
  if len(texts) != len(names):
    raise InputError(f'inputs, line {number}: got {len(texts)} texts; expected {len(names)}: {", ".join(names)}')
  if task is not question_answering:
    return dict(zip(names, texts, strict=True))
  return {'context': texts[1], 'qas': [{'id': str(number), 'question': texts[0]}]}
