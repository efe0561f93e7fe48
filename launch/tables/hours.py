"""Estimated hours of a training, from its operations, its updates and the device.

Each length to which rows are padded is compiled. An update takes a fixed time, a time per step of a recurrent loop, and
its operations at the device's rate. The rates of
two cores are from the recorded hours of measured.csv, word2vec's from docs/notes/speed.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments.tables import CORES, Run
from launch.tables import measured, operations, trainings
from launch.tables import plan as plans
from lmx.errors import InputError


class Device(NamedTuple):
  """Operations per second of a model, and seconds per compiled length, per update and per step of a recurrent
  loop.

  Narrow layers reach `narrow` operations per second, layers of at least 768 features `wide`, a recurrent network's
  products `recurrent`.
  """

  narrow: float
  wide: float
  recurrent: float
  start: float
  update: float
  step: float


TWO_CORES = Device(26e9, 150e9, 120e9, 8.0, 0.005, 0.00025)
H100 = Device(20e12, 0.35 * 989e12, 0.1 * 989e12, 30.0, 0.005, 0.00003)  # bfloat16, at most 35% of the peak
_PATIENCE = 0.75  # share of the updates that a training with early stopping makes, about
_WORD2VEC = 60e6  # vector components per second on two cores: words times width
_LOOPS = {  # recurrent loops of an update: layers, directions and texts
  'awd_lstm': 3,
  'bahdanau': 3,
  'bcn': 6,
  'bidaf': 10,
  'bilstm': 4,
  'elmo': 4,
  'esim': 8,
  'glue_bilstm': 8,
  'luong': 4,
  'ntm': 2,
  'rnn_encdec': 2,
  'rnn_lm': 2,
  'srl_lstm': 8,
}
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


_ROW_BATCHINGS = ('documents', 'images', 'questions', 'tagged', 'texts', 'translation')


def of_run(run: Run, runs: Mapping[str, Run]) -> float:
  """Return the estimated hours of one seed of a training on two cores or one H100; 0 if they are not known."""
  if run.gpu_hours or not run.config:
    return run.gpu_hours
  sizes = operations.sizes(run, runs)
  settings = plans.configs(run, plans.Plan())
  device = TWO_CORES if run.needs == CORES else H100
  seconds = [_seconds(settings[stage], sizes[stage], device) for stage in sizes]
  return sum(seconds) / 3600 if all(seconds) else 0.0


def _seconds(settings: Mapping[str, Any], sizes: Mapping[str, Any], device: Device) -> float:
  """Return the estimated seconds of a training; 0 if they are not known."""
  count = operations.counts().get(operations.digest(sizes))
  updates, positions = _work(settings)
  if not updates or count is None:
    return 0.0
  if settings['model.name'] == 'word2vec':
    return device.start + positions * settings.get('model.D', 100) / _WORD2VEC
  loops = _LOOPS.get(settings['model.name'], 0)
  steps = loops * positions / updates / _batch(settings)
  wide = min(1.0, count.width / 768)
  rate = device.recurrent if loops else device.narrow + wide * (device.wide - device.narrow)
  start = device.start * (1 + len(settings.get('data.batching.buckets', ())))
  return start + updates * (device.update + steps * device.step) + positions * count.operations / rate


def _work(settings: Mapping[str, Any]) -> tuple[float, float]:
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
  fits = [bucket for bucket in settings.get('data.batching.buckets', ()) if bucket >= mean]
  return texts * min([*fits, length])


def _batch(settings: Mapping[str, Any]) -> int:
  return settings.get('data.batch_size', 32)


def of_line(one: measured.Measurement) -> float:
  """Return the estimated hours of all trainings and seeds of a line of measured.csv; 0 if they are not known."""
  try:
    each = [0.0 if _reads_own_text(run) else of_run(run, runs) for run, runs in trainings.runs_of(one)]
  except InputError:  # a command of an earlier version
    return 0.0
  return one.count * sum(each) if all(each) else 0.0


def _reads_own_text(run: Run) -> bool:
  """Return whether a training reads epochs of a text of unknown length."""
  settings = plans.configs(run, plans.Plan()).values()
  return any(flat.get('data.dataset') == 'text_files' and not flat.get('train.steps') for flat in settings)
