"""Needs of a row: hardware, hours of it, and data under a licence."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments.tables import CORES, DATA, GPU, GPUS, POD, Row, Run
from launch.tables import plan as plans

HARDWARE = {'2cores': (CORES,), '1gpu': (CORES, GPU), 'pod': (CORES, GPU, GPUS, POD)}
_ORDER = (CORES, GPU, GPUS, POD)
_GPU = 0.35 * 989e12  # operations a second: an H100 in bfloat16 at 35% of its peak
_TWO_CORES = 100e9  # the same of two cores in float32
_CHOICES = {'race': 4, 'swag': 4, 'story_cloze': 2}  # texts that a row is read as
# Training sizes: tokens of a text that is read as a stream, rows of other data sets.
_TOKENS = {
  'ptb': 929_589,
  'ptb_characters': 5.1e6,
  'wikitext2': 2_088_628,
  'wikitext103': 103e6,
  'enwik8': 90e6,
  'text8': 90e6,
  'lm1b': 0.8e9,
  'lm1b_files': 0.83e9,
  'imdb': 20e6,
  'trec': 60e3,
  'zhang2015/ag_news': 6e6,
  'zhang2015/dbpedia': 31e6,
  'zhang2015/yelp_full': 110e6,
  'zhang2015/yelp_polarity': 93e6,
}
_ROWS = {
  'conll2003': 14_041,
  'glue/cola': 8_551,
  'glue/mnli': 392_702,
  'glue/mrpc': 3_668,
  'glue/qnli': 104_743,
  'glue/qqp': 363_846,
  'glue/rte': 2_490,
  'glue/sst2': 67_349,
  'glue/stsb': 5_749,
  'imdb': 25_000,
  'lm1b': 30.3e6,
  'multi30k': 29_000,
  'race': 87_866,
  'race/joined': 87_866,
  'scitail': 23_596,
  'snli': 549_367,
  'squad': 87_599,
  'squad2': 130_319,
  'sst2': 6_920,
  'sst2_phrases': 67_349,
  'sst5_long_phrases': 80e3,  # estimate: about nine of a sentence's 37 phrases
  'story_cloze': 1_871,
  'swag': 73_546,
  'trec': 5_452,
  'wmt14_en_de': 4.5e6,
  'wmt14_en_fr': 36e6,
  'zhang2015/ag_news': 120_000,
  'zhang2015/dbpedia': 560_000,
  'zhang2015/yelp_full': 650_000,
  'zhang2015/yelp_polarity': 560_000,
}


class Needs(NamedTuple):
  """Hardware, time and data that a row and its initial runs need.

  Attributes:
    hardware: CORES, GPU, GPUS or POD.
    gpu_hours: estimated H100 hours for all seeds and tries; 0 without an estimate.
    core_hours: hours on two cores, for runs without a GPU.
    data: names in DATA, in its order.
  """

  hardware: str
  gpu_hours: float
  core_hours: float
  data: tuple[str, ...]


def of_row(row: Row, runs: Mapping[str, Run]) -> Needs:
  """Return the needs of a table row, given `runs` by name."""
  seeds = plans.planned_seeds(row.runs, runs, plans.Plan())
  needed = [runs[name] for name in seeds]
  text = ' '.join(' '.join((*run.settings, *run.then)) for run in needed)
  each = [of_run(run, runs, len(seeds[run.name])) for run in needed]
  return Needs(
    hardware(row, runs),
    sum(one.gpu_hours for one in each),
    sum(one.core_hours for one in each),
    tuple(name for name in DATA if f'{{data.{name}}}' in text),
  )


def of_run(run: Run, runs: Mapping[str, Run], seeds: int) -> Needs:
  """Return the needs of `seeds` seeds of only this run, without data."""
  hours = _hours(run, runs) * seeds
  on_cores = run.needs == CORES
  return Needs(run.needs, 0.0 if on_cores else hours, hours if on_cores else 0.0, ())


def hardware(row: Row, runs: Mapping[str, Run]) -> str:
  """Return the most that a run of a row needs: CORES, GPU, GPUS or POD."""
  needed = plans.sort_by_dependency(list(row.runs), runs)
  return max((run.needs for run in needed), key=_ORDER.index)


def _hours(run: Run, runs: Mapping[str, Run]) -> float:
  """Return the estimated hours of one training seed on one H100, or on two cores; 0 if unknown.

  The estimate is 6 operations per parameter and token. It assumes full-length rows and counts the whole embedding
  table, so it does not fit word2vec.
  """
  if run.gpu_hours or not run.config or run.kind == 'pipeline':
    return run.gpu_hours
  settings = plans.configs(run, plans.Plan())['']
  if settings.get('model.name') == 'word2vec':
    return 0.0
  operations = 6 * _parameters(run, runs, settings) * _tokens(settings)
  return operations / (_TWO_CORES if run.needs == CORES else _GPU) / 3600


def _tokens(settings: Mapping[str, Any]) -> float:
  """Return the tokens of a training; 0 if they are not known."""
  dataset = settings.get('data.dataset', '')
  texts = _CHOICES.get(dataset.partition('/')[0], 1) if settings.get('objective.name') == 'multiple_choice' else 1
  length, rows = settings.get('data.length', 0) * texts, settings.get('data.batch_size', 0)
  if settings.get('train.steps'):
    return settings['train.steps'] * (settings.get('data.batching.tokens') or rows * length)
  sizes = _TOKENS if settings.get('data.batching.name') in ('streams', 'both_ways') else _ROWS
  tokens = float(sizes.get(dataset, 0)) * (1 if sizes is _TOKENS else length)
  return settings.get('train.epochs', 0) * tokens


def _parameters(run: Run, runs: Mapping[str, Run], settings: Mapping[str, Any]) -> int:
  """Return the parameters of the model, or of the one that the run starts from; 0 if they are not known."""
  model, variant = settings.get('model.name', ''), settings.get('model.variant', '')
  for start in plans.dependencies(run, runs):
    if not variant and start.name.startswith('imported/'):
      variant = start.name.removeprefix('imported/').removeprefix(model).removesuffix('_cased').strip('_') or 'base'
    elif not variant and start.config:
      return _parameters(start, runs, plans.configs(start, plans.Plan()).get('', {}))
  return _counts().get(model, {}).get('variants', {}).get(variant, 0)


@functools.cache
def _counts() -> dict[str, Any]:
  return json.loads((plans.ROOT / 'lmx/models/parameters.json').read_text(encoding='utf-8'))


def here() -> str:
  """Return this machine's key in HARDWARE: '1gpu' if NVIDIA's tools are installed, else '2cores'."""
  return '1gpu' if shutil.which('nvidia-smi') else '2cores'


def describe(needs: Needs) -> str:
  """Return needs as text: 'one GPU, about 12 hours of an H100; squad (CC BY-SA)'."""
  parts = [_about(needs.gpu_hours, 'an H100'), _about(needs.core_hours, CORES)]
  parts = parts if needs.hardware == CORES and parts[1] else [needs.hardware, *parts]
  data = '; '.join(f'{name} ({DATA[name].terms})' for name in needs.data)
  return ', '.join(filter(None, parts)) + (f'; {data}' if data else '')


def _about(hours: float, what: str) -> str:
  if not hours:
    return ''
  if hours < 0.05:
    return f'minutes of {what}'
  return f'about {f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}"} hours of {what}'
