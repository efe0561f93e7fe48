"""Lines of measured.csv: what a reader needs to compare a figure and to measure it again."""

import pytest

from launch.tables import check, measured, names, pages
from lmx.errors import InputError
from lmx.models import registry


def test_every_page_has_a_name():
  assert {*pages.by_system(), 'ngrams'} <= names.SYSTEMS.keys() <= {*registry.names(), *pages.by_system(), 'ngrams'}


def test_every_record_can_be_reproduced():
  wrong = {one.id: text for one in measured.measurements() if (text := list(check.cells(one)))}
  assert not wrong


def test_metric_is_recorded_once(tmp_path, monkeypatch):
  assert len(measured.by_id()) == len(measured.measurements()) > 250
  monkeypatch.setattr(measured, 'measurements', lambda: (GOOD, GOOD._replace(value='116')))
  with pytest.raises(InputError, match='line 3: got the id rnn_lm/ptb/small/test a second time'):
    measured.by_id()


GOOD = measured.Measurement(
  **dict.fromkeys(measured.Measurement._fields, '')
  | {'id': 'rnn_lm/ptb/small/test', 'system': 'rnn_lm', 'row': 'small', 'dataset': 'ptb', 'split': 'test'}
  | {'metric': 'ppl', 'value': '115.6', 'seeds': '0', 'command': 'lmx train'}
)


@pytest.mark.parametrize(
  ('change', 'problem'),
  [
    ({}, None),
    ({'system': 'rnnlm'}, 'system rnnlm'),
    ({'value': 'nan'}, 'numbers'),
    ({'spread': '1,2'}, 'numbers'),
    ({'seeds': '0 seeds'}, 'numbers'),
    ({'seeds': '0, 1'}, 'numbers'),
    ({'interval': '114.1'}, 'numbers'),
    ({'hours': '51 minutes'}, 'numbers'),
    ({'hours': '-1'}, 'numbers'),
    ({'hours': '0.0'}, 'numbers'),
    ({'hours': '1e6'}, 'numbers'),
    ({'spread': '0.5'}, 'numbers'),
    ({'interval': '9 1'}, 'numbers'),
    ({'seeds': '0 0'}, 'seeds 0 0'),
    ({'date': '2026-13-45'}, 'date 2026-13-45'),
    ({'seeds': '0 1 2', 'interval': '114.1 115.9', 'hours': '0.85'}, None),
    ({'hours': '~0.85'}, None),
    ({'command': 'train'}, 'command train'),
    ({'command': 'LMX train'}, 'command LMX train'),
    ({'command': ''}, 'command '),
    ({'row': ''}, 'no label'),
    ({'date': '26 November'}, 'date 26 November'),
    ({'date': '2099-12-31'}, 'date 2099-12-31'),
    ({'split': 'valid'}, 'not of the printed ptb test ppl'),
    ({'split': 'valid', 'differs': 'the validation split'}, None),
    ({'id': 'rnn_lm/own', 'differs': 'other data'}, 'differs from no printed figure'),
  ],
)
def test_malformed_lines_are_reported(change, problem):
  assert list(check.cells(GOOD._replace(**change))) == ([problem] if problem else [])


@pytest.mark.parametrize(('seeds', 'count'), [('0', 1), ('0 10 20', 3), ('3 seeds', 3), ('1 seed', 1)])
def test_seeds_are_counted(seeds, count):
  assert GOOD._replace(seeds=seeds).count == count


@pytest.mark.parametrize(
  ('command', 'is_lmx'),
  [
    ('lmx train', True),
    ('python -m launch.tables ntm', True),
    ('python -m pytest tests/metrics/ngram_test.py', True),
    ('gensim 4.4.0, then lmx vectors', False),
    ('python -m fairseq', False),
  ],
)
def test_other_programs_are_told_apart(command, is_lmx):
  assert GOOD._replace(command=command).is_lmx is is_lmx
