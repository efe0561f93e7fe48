"""Estimated hours of a training, from its operations, its updates and the device.

A run starts, and compiles each length to which rows are padded. An update takes a time per equation of its traced
program, loops counted as often as they run, and its operations at the device's rate. The constants of two cores are
fitted to the timed lines of measured.csv, word2vec's rate is from docs/notes/speed.md. `python -m launch.tables.hours`
fits them again, and estimates each line by constants that are fitted to the lines of other models.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from experiments.tables import CORES, Run
from launch.tables import measured, operations, trainings
from launch.tables import plan as plans
from lmx.errors import InputError


class Device(NamedTuple):
  """Constants of a device.

  Attributes:
    narrow: operations per second of narrow layers.
    recurrent: operations per second of narrow recurrent layers.
    wide: operations per second of layers with at least 768 features.
    start: seconds per compiled length.
    equation: seconds per executed equation.
  """

  narrow: float
  recurrent: float
  wide: float
  start: float
  equation: float


class Work(NamedTuple):
  """Work of a training.

  Attributes:
    model: name of the model.
    lengths: compiled lengths.
    equations: executed equations of the traced program, in all updates.
    operations: operations in all updates; of word2vec, vector components.
    width: features of a layer.
    is_recurrent: loop over the positions.
  """

  model: str
  lengths: int
  equations: float
  operations: float
  width: int
  is_recurrent: bool


TWO_CORES = Device(7.36e9, 4.75e10, 2.02e11, 1.02, 2.34e-06)  # by `fit`
_PROCESS = 20.0  # seconds to start and to compile a length, of a run with a measured rate
_GUESS = Device(26e9, 120e9, 150e9, 8.0, 2e-6)  # where the lines do not determine a constant
H100 = Device(20e12, 0.1 * 989e12, 0.35 * 989e12, 30.0, 1e-6)  # bfloat16, at most 35% of the peak
_PATIENCE = 0.75  # share of the updates that a training with early stopping makes, about
_WORD2VEC = 60e6  # vector components per second on two cores: words times width
_CHOICES = {'race': 4, 'swag': 4, 'story_cloze': 2}  # texts that a row is read as
# Training splits: tokens of a text that is read as a stream.
_TOKENS = {
  'brown_stream': 800_000,
  'embedded': 253_749,
  'ptb': 929_589,
  'ptb_characters': 5.1e6,
  'wikitext2': 2_088_628,
  'wikitext103': 103e6,
  'enwik8': 90e6,
  'text8': 90e6,
  'text_files': 783e6,  # of word2vec, whose tables read shares of it
  'lm1b': 0.8e9,
  'lm1b_files': 0.83e9,
  'imdb': 20e6,
  'embedded_topics': 150e3,
  'sst2': 150e3,
  'trec': 60e3,
  'zhang2015/ag_news': 6e6,
  'zhang2015/dbpedia': 31e6,
  'zhang2015/yelp_full': 110e6,
  'zhang2015/yelp_polarity': 93e6,
}
# Training splits: rows, and tokens of a mean row, texts of a pair together.
_ROWS: dict[str, tuple[float, float]] = {
  'conll2003': (14_041, 20),
  'conll2012': (75_187, 25),
  'embedded_questions': (2_000, 60),
  'embedded_topics': (2_500, 60),
  'glue/cola': (8_551, 12),
  'glue/mnli': (392_702, 40),
  'glue/mrpc': (3_668, 54),
  'glue/qnli': (104_743, 50),
  'glue/qqp': (363_846, 30),
  'glue/rte': (2_490, 70),
  'glue/sst2': (67_349, 14),
  'glue/stsb': (5_749, 32),
  'glue/wnli': (635, 38),
  'imdb': (25_000, 300),
  'lm1b': (30.3e6, 27),
  'multi30k': (29_000, 16),
  'race': (87_866, 400),
  'race/joined': (87_866, 400),
  'scitail': (23_596, 40),
  'segmentation_files': (20_210, math.inf),
  'snli': (549_367, 28),
  'squad': (87_599, 180),
  'squad2': (130_319, 180),
  'sst2': (6_920, 24),
  'sst2_phrases': (67_349, 14),
  'sst5_long_phrases': (80e3, 20),  # estimate: about nine of a sentence's 37 phrases
  'story_cloze': (1_871, 60),
  'swag': (73_546, 45),
  'trec': (5_452, 13),
  'wmt14_en_de': (4.5e6, 30),
  'wmt14_en_fr': (36e6, 33),
  'zhang2015/ag_news': (120_000, 53),
  'zhang2015/dbpedia': (560_000, 67),
  'zhang2015/yelp_full': (650_000, 180),
  'zhang2015/yelp_polarity': (560_000, 170),
}
_IN_DOCUMENT = {'conll2003': 350}  # estimate: tokens of a mean row with the context of its document


_ROW_BATCHINGS = ('documents', 'images', 'questions', 'tagged', 'texts', 'translation')


def of_run(run: Run, runs: Mapping[str, Run]) -> float:
  """Return the estimated hours of one seed of a training on two cores or one H100; 0 if they are not known."""
  if run.gpu_hours or not run.config:
    return run.gpu_hours
  device = TWO_CORES if run.needs == CORES else H100
  if run.rate and run.needs == CORES:
    device = Device(run.rate, run.rate, run.rate, _PROCESS, 0.0)
  return sum(seconds(work, device) for work in works(run, runs)) / 3600


def works(run: Run, runs: Mapping[str, Run]) -> list[Work]:
  """Return the work of a training, or of each stage of a pipeline; [] if it is not known."""
  sizes = operations.sizes(run, runs)
  settings = plans.configs(run, plans.Plan())
  found = [
    _work(settings[stage], operations.counts().get(operations.digest(sizes[stage])), run.evaluated) for stage in sizes
  ]
  return [one for one in found if one] if all(found) else []


def seconds(work: Work, device: Device) -> float:
  """Return the estimated seconds of a training."""
  start = work.lengths * device.start
  if work.model == 'word2vec':
    return start + work.operations / _WORD2VEC
  narrow = device.recurrent if work.is_recurrent else device.narrow
  rate = narrow + min(1.0, work.width / 768) * (device.wide - narrow)
  return start + work.equations * device.equation + work.operations / rate


def _work(settings: Mapping[str, Any], count: operations.Count | None, evaluated: float) -> Work | None:
  """Return the work of a training and of the evaluation of `evaluated` tokens; None if it is not known."""
  updates, positions = _updates(settings)
  if not updates or count is None:
    return None
  name, length = settings['model.name'], settings.get('data.length', 35)
  share = min(1.0, _row(settings, settings.get('data.dataset', 'embedded'), length) / length)
  equations = updates * (count.equations - (1 - share) * count.in_loops)
  lengths = 1 + len(settings.get('data.batching.buckets', ()))
  each = settings.get('model.D', 100) if name == 'word2vec' else count.operations
  # An evaluation has the forward pass only, a third of a training step.
  equations *= 1 + evaluated / 3 / positions
  return Work(name, lengths, equations, (positions + evaluated / 3) * each, count.width, bool(count.in_loops))


def _updates(settings: Mapping[str, Any]) -> tuple[float, float]:
  """Return the updates of a training and its positions, tokens or pixels; 0 if they are not known."""
  dataset, length = settings.get('data.dataset', 'embedded'), settings.get('data.length', 35)
  tokens = settings.get('data.batching.tokens', 0)
  row = _row(settings, dataset, length)
  each = tokens or _batch(settings) * row
  if settings.get('train.steps'):
    updates = settings['train.steps'] * (_PATIENCE if settings.get('train.patience') else 1)
    return updates, updates * each
  name = settings.get('data.batching.name')
  if name in _ROW_BATCHINGS:
    rows = min(_ROWS.get(dataset, (0, 0))[0], settings.get('data.train_documents') or math.inf)
    positions = rows * row
  else:
    positions = _TOKENS.get(dataset, 0) * settings.get('data.fraction', 1)
  if settings.get('train.patience'):
    positions *= _PATIENCE
  positions *= settings.get('train.epochs', 0) if dataset != 'text_files' or name == 'skipgrams' else 0
  return positions / each, positions


def _row(settings: Mapping[str, Any], dataset: str, length: int) -> float:
  """Return the positions of a row: the shortest bucket that has room for a mean one, else the full length."""
  if settings.get('data.batching.name') in ('images', 'scenes'):
    return length**2
  if settings.get('data.batching.name') == 'algorithmic':
    return 2 * length  # the sequence is read, then written
  if settings.get('data.batching.name') not in _ROW_BATCHINGS:
    return length
  texts = _CHOICES.get(dataset.partition('/')[0], 1) if settings.get('objective.name') == 'multiple_choice' else 1
  mean = _ROWS.get(dataset, (0, math.inf))[1]
  mean = _IN_DOCUMENT[dataset] if settings.get('data.batching.context') == 'document' else mean
  fits = [bucket for bucket in settings.get('data.batching.buckets', ()) if bucket >= mean]
  return texts * min([*fits, length])


def _batch(settings: Mapping[str, Any]) -> int:
  return settings.get('data.batch_size', 32)


def of_line(one: measured.Measurement) -> float:
  """Return the estimated hours of all trainings and seeds of a line of measured.csv; 0 if they are not known."""
  return sum(seconds(work, TWO_CORES) for work in works_of_line(one)) * one.count / 3600


def works_of_line(one: measured.Measurement) -> list[Work]:
  """Return the work of one seed of a line of measured.csv; [] if it is not known."""
  found: list[Work] = []
  try:
    for run, runs in trainings.runs_of(one):
      each = [] if _reads_own_text(run) else works(run, runs)
      if not each:
        return []
      found += each
  except InputError:  # a command of an earlier version
    return []
  return found


def _reads_own_text(run: Run) -> bool:
  """Return whether a training reads epochs of a text of unknown length."""
  settings = plans.configs(run, plans.Plan()).values()
  return any(flat.get('data.dataset') == 'text_files' and not flat.get('train.steps') for flat in settings)


@dataclasses.dataclass(frozen=True)
class Timed:
  """Line of measured.csv with recorded hours, and its work."""

  id: str
  seconds: float
  works: tuple[Work, ...]

  @property
  def models(self) -> set[str]:
    """Models that it trains."""
    return {work.model for work in self.works}

  def ratio(self, device: Device) -> float:
    """Return the estimated time divided by the time taken."""
    return sum(seconds(work, device) for work in self.works) / self.seconds


def timed() -> list[Timed]:
  """Return the lines whose hours were recorded, the first of those with the same work."""
  found: dict[tuple[Work, ...], Timed] = {}
  for one in measured.measurements():
    if one.is_lmx and not one.start and one.hours and not one.hours.startswith('~'):
      each = tuple(works_of_line(one))
      if each:
        found.setdefault(each, Timed(one.id, float(one.hours) * 3600 / one.count, each))
  return list(found.values())


def fit(lines: Sequence[Timed]) -> Device:
  """Return the constants with the least squares of the log ratios; a guess counts as a hundredth of a line."""
  import numpy as np
  from scipy import optimize

  def residuals(logs: np.ndarray) -> np.ndarray:
    device = Device(*map(float, np.exp(logs)))
    return np.array([*(math.log(line.ratio(device)) for line in lines), *(0.1 * (logs - first))])

  first = np.log(np.array(_GUESS))
  return Device(*map(float, np.exp(optimize.least_squares(residuals, first).x)))


def held_out(lines: Sequence[Timed]) -> dict[str, float]:
  """Return the ratio of each line by rates that are fitted to the lines of other models."""
  groups = {frozenset(line.models) for line in lines}
  rates = {models: fit([line for line in lines if not line.models & models]) for models in groups}
  return {line.id: line.ratio(rates[frozenset(line.models)]) for line in lines}


def main() -> None:
  """Print the fitted rates, and the held-out ratio of each line."""
  lines = timed()
  print(', '.join(f'{name} {value:.3g}' for name, value in fit(lines)._asdict().items()))
  for (key, ratio), line in zip(held_out(lines).items(), lines, strict=True):
    print(f'{key:56} taken {line.seconds / 3600:8.4f} h, estimated {ratio * line.seconds / 3600:8.4f} h ({ratio:.2f})')


if __name__ == '__main__':
  main()
