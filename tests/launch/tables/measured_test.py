"""Lines of measured.csv: what a reader needs to compare a figure and to measure it again."""

import math
import re

import pytest

from launch.tables import measured, pages
from launch.tables import plan as plans
from lmx.models import registry

SYSTEMS = {*registry.names(), *pages.by_system(), 'ngrams'}
PROGRAMS = ('lmx ', 'python -m ', 'gensim ', 'transformers ', 'fairseq')  # lmx and those that it is compared with


def problems(one: measured.Measurement) -> list[str]:
  """Return what is wrong with a line."""
  found = []
  if one.system not in SYSTEMS:
    found.append(f'system {one.system}')
  try:
    numbers = [float(text) for text in (one.value, one.spread or '0', one.seeds)]
    if not all(map(math.isfinite, numbers)) or int(one.seeds) < 1:
      found.append('numbers')
  except ValueError:
    found.append('numbers')
  if not one.command.startswith(PROGRAMS):
    found.append(f'command {one.command}')
  if not all((one.id, one.row, one.dataset, one.metric)) or re.search(r'[^a-z0-9_./+-]', one.id):
    found.append('no label')
  if one.date and not re.fullmatch(r'20\d\d-\d\d-\d\d', one.date):
    found.append(f'date {one.date}')
  line = plans.published().get(one.id)
  if line and (one.dataset, one.split, one.metric) != (line.dataset, line.split, line.metric) and not one.differs:
    found.append(f'not of the printed {line.dataset} {line.split} {line.metric}')
  if one.differs and not line:
    found.append('differs from no printed figure')
  return found


def test_every_record_can_be_reproduced():
  wrong = {one.id: text for one in measured.measurements() if (text := problems(one))}
  assert not wrong


def test_metric_is_recorded_once():
  keys = [(one.id, one.split, one.metric, one.differs, one.protocol) for one in measured.measurements()]
  assert len(keys) > 400 and len(set(keys)) == len(keys)


GOOD = measured.Measurement(
  'rnn_lm/ptb/small/test', 'rnn_lm', 'small', 'ptb', 'test', 'ppl', '115.6', '', '1', '', '', 'lmx train', '', '', ''
)


@pytest.mark.parametrize(
  ('change', 'problem'),
  [
    ({}, None),
    ({'system': 'rnnlm'}, 'system rnnlm'),
    ({'value': 'nan'}, 'numbers'),
    ({'spread': '1,2'}, 'numbers'),
    ({'seeds': '0'}, 'numbers'),
    ({'command': 'train'}, 'command train'),
    ({'row': ''}, 'no label'),
    ({'date': '26 November'}, 'date 26 November'),
    ({'split': 'valid'}, 'not of the printed ptb test ppl'),
    ({'split': 'valid', 'differs': 'the validation split'}, None),
    ({'id': 'rnn_lm/own', 'differs': 'other data'}, 'differs from no printed figure'),
  ],
)
def test_malformed_lines_are_reported(change, problem):
  assert problems(GOOD._replace(**change)) == ([problem] if problem else [])
