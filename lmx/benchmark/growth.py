"""Growth of the time per token with width, length, vocabulary and batch (`lmx bench --growth MODEL`).

Every model is measured at small sizes (`BASE`, mostly 2 layers), and then with one size at a time halved and doubled
(`VALUES`; the vocabulary by 4). Time is a whole training step divided by the tokens in its batch. The sizes alternate,
and the minimum over all steps is kept, because other programs disturb it less than the median. The exponent is the
least-squares slope of log(time per token) over log(size): 0 if the time does not depend on the size, 1 if it doubles
with the size. At these sizes fixed costs still count, so large models have larger exponents.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from lmx.benchmark.attention import exponent
from lmx.benchmark.train_step import Preset, subject_from_preset
from lmx.errors import InputError, nearest

VALUES = {'width': (64, 128, 256), 'length': (16, 32, 64), 'vocabulary': (1000, 4000, 16_000), 'batch': (4, 8, 16)}
BASE = {name: values[1] for name, values in VALUES.items()}
_ROUNDS, _SECONDS = 4, 0.15  # rounds over the sizes; timed seconds per size in a round

_TRANSFORMER: dict[str, float] = {'D': 1, 'F': 4}
_RECURRENT: dict[str, float] = {'E': 1, 'D': 1}
_WORD_INPUT = ('char_filters=((3, 32),)', 'E=100')
# Fields that scale with the width, as multiples of it; other models only have D.
_WIDTHS: dict[str, dict[str, float]] = {
  'awd_lstm': _RECURRENT,
  'bahdanau': {**_RECURRENT, 'A': 1, 'maxout': 0.5},
  'bcn': {'D': 1, 'F': 1},
  'character_transformer': _TRANSFORMER,
  'elmo': {'projection': 1, 'cells': 4},
  'esim': {'D': 1, 'F': 1},
  'luong': {**_RECURRENT, 'A': 1},
  'memory_compressed': _TRANSFORMER,
  'nplm': {'m': 1, 'h': 1},
  'quaternion_text': _TRANSFORMER,
  'quaternion_transformer': _TRANSFORMER,
  'rnn_encdec': {**_RECURRENT, 'maxout': 0.5},
  'rnn_lm': _RECURRENT,
  'self_attention': {**_TRANSFORMER, 'A': 1},
  'transformer': _TRANSFORMER,
  'transformer_xl': _TRANSFORMER,
  'xlnet': _TRANSFORMER,
}
# Variant and other fields; of the models that are absent the variant 'tiny'.
_OTHERS: dict[str, tuple[str, tuple[str, ...]]] = {
  'bcn': ('base', _WORD_INPUT),
  'bidaf': ('base', _WORD_INPUT),
  'bilstm': ('base', _WORD_INPUT),
  'elmo': ('tiny', ('filters=((1, 16), (2, 16), (3, 32))',)),
  'esim': ('base', _WORD_INPUT),
  'glue_bilstm': ('base', _WORD_INPUT),
  'memory_compressed': ('tiny', ('window=16',)),
  'ntm': ('copy_ff', ()),
  'sparse_transformer': ('tiny', ('stride=8',)),
  'srl_lstm': ('base', (*_WORD_INPUT, 'N=2')),
  'transformer_xl': ('tiny', ('cutoffs=()', 'div_val=1', 'M=32')),
}


def parse(text: str) -> list[str]:
  """Return the names in 'width,length', in their order."""
  names = [name.strip() for name in text.split(',')]
  for name in names:
    if name not in VALUES:
      raise InputError(f'--growth: got "{name}"; expected some of {", ".join(VALUES)}{nearest(name, VALUES)}')
  return names


def models(name: str) -> list[str]:
  """Return the models for 'all' or a name."""
  from lmx.models import registry

  if name == 'all':
    return registry.names()
  registry.get(name)  # an unknown one is an error
  return [name]


def inapplicable(model: str, size: str) -> str:
  """Return the reason why a model has no such size, '' if it has."""
  from lmx.models import registry

  fields = {field.name for field in dataclasses.fields(registry.get(model).Config)}
  if size == 'vocabulary' and 'V' not in fields:
    return 'it reads no tokens'
  if size == 'width' and model == 'cfnet':
    return 'a ResNet has a width a stage; see blocks and widths of its Config'
  return ''


def preset(model: str, sizes: dict[str, int]) -> Preset:
  """Return the step of a model at the given sizes, small otherwise."""
  from lmx.models import registry

  fields = {field.name for field in dataclasses.fields(registry.get(model).Config)}
  variant, changes = _OTHERS.get(model, ('tiny', ()))
  if model != 'cfnet':
    widths = _WIDTHS.get(model, {'D': 1})
    changes += tuple(f'{field}={int(factor * sizes["width"])}' for field, factor in widths.items())
  if 'V' in fields:
    changes += (f'V={sizes["vocabulary"]}',)
  if 'T' in fields and model != 'transformer':  # T are learned positions
    changes += (f'T={sizes["length"]}',)
  if 'S' in fields:
    changes += (f'S={sizes["length"]}',)
  return Preset(f'{model}:{variant}', changes, sizes['batch'], sizes['length'])


def measure(model: str, names: Sequence[str]) -> list[dict[str, Any]]:
  """Return a row for each size in `names`: model, size, values, seconds a token, exponent; or why it does not apply."""
  applied = [name for name in names if not inapplicable(model, name)]
  all_sizes = [tuple({**BASE, name: value}.items()) for name in applied for value in VALUES[name]]
  seconds = token_seconds({sizes: preset(model, dict(sizes)) for sizes in all_sizes})
  rows = []
  for name in names:
    row: dict[str, Any] = {'model': model, 'size': name}
    if name in applied:
      values = VALUES[name]
      times = [seconds[tuple({**BASE, name: value}.items())] for value in values]
      row |= {'values': list(values), 'seconds_per_token': times, 'exponent': exponent(values, times)}
    else:
      row['inapplicable'] = inapplicable(model, name)
    rows.append(row)
  return rows


def token_seconds(presets: Mapping[Any, Preset]) -> dict[Any, float]:
  """Return each preset's minimum step time per position; the presets alternate."""
  subjects = {key: subject_from_preset(one.model, one) for key, one in presets.items()}
  for subject in subjects.values():
    subject.steps(1)
  least = dict.fromkeys(presets, float('inf'))
  for _ in range(_ROUNDS):
    for key, subject in subjects.items():
      end = time.perf_counter() + _SECONDS
      while True:
        least[key] = min(least[key], subject.steps(1)[0][0].seconds)
        if time.perf_counter() > end:
          break
  positions = {key: one.batch * subjects[key].task.positions(one.length) for key, one in presets.items()}
  return {key: least[key] / positions[key] for key in presets}


def measure_all(model: str, names: Sequence[str]) -> list[dict[str, Any]]:
  """Measure a model or 'all', print a line for each row, and return the rows; one that fails has a row with `error`."""
  import jax

  from lmx.reporting import run_log

  print(f'training time per token on {run_log.device()}, and its exponent', flush=True)
  rows = []
  all_models = models(model)
  for one in all_models:
    try:
      new = measure(one, names)
    except Exception as error:
      if len(all_models) == 1:
        raise
      new = [{'model': one, 'size': names[0], 'error': f'{type(error).__name__}: {error}'}]
    for row in new:
      print(format_line(row), flush=True)
    rows += new
    jax.clear_caches()
  return rows


def format_line(row: dict[str, Any]) -> str:
  """Return a row as a line for a reader."""
  start = f'{row["model"]:24} {row["size"]:12}'
  for name in ('error', 'inapplicable'):
    if name in row:
      return f'{start} {name}: {row[name]}'
  pairs = zip(row['values'], row['seconds_per_token'], strict=True)
  times = '   '.join(f'{value:>6,}: {1e6 * seconds:9,.1f} us' for value, seconds in pairs)
  return f'{start} {times}   exponent {row["exponent"]:5.2f}'
