"""Counts of figures and rows, by the verdicts of recorded and live runs."""

from __future__ import annotations

import pytest

from experiments.tables import Row
from launch.tables import collection, counts, measured, pages, printed, verdict
from launch.tables import plan as plans
from launch.tables.__main__ import main
from tests.launch.tables.runs import all_pages

SMALL = 'rnn_lm/ptb/small/test'


def line(**cells: str) -> measured.Measurement:
  """A line of measured.csv about PTB small."""
  given = {'id': SMALL, 'system': 'rnn_lm', 'value': '114.6', 'seeds': '0', 'command': 'lmx train'} | cells
  return measured.Measurement(**dict.fromkeys(measured.Measurement._fields, '') | given)


@pytest.fixture
def recorded(monkeypatch):
  """Puts lines in place of those of measured.csv."""

  return lambda *lines: monkeypatch.setattr(measured, 'measurements', lambda: lines)


@pytest.mark.parametrize('name, rows', [('cfnet', 11), ('self_attention', 6)])
def test_own_rows_are_counted_and_shown(name, rows, tmp_path, capsys):
  assert main(['--list', name, f'--runs={tmp_path}']) == 0
  _, first, *lines = capsys.readouterr().out.splitlines()
  assert first.split()[:4] == [name, '0', str(len(plans.table(name).rows)), str(rows)]
  assert sum('recorded: ' in text for text in lines) == rows
  assert sum('not run' in text for text in lines) == len(plans.table(name).rows) - rows


def test_page_says_how_many_figures_differ_from_print():
  ids = [key for number in '123' for key in printed.figures_of(('Graves et al. 2014', number))]
  assert counts.count(ids, set(verdict.rows()), counts.verdicts()) == (15, 15, 15, 15, 4)
  assert 'measured: 15 of 15. Reproduced: 4. Different from print: 11. Not comparable: 0.' in all_pages()['ntm.md']


def test_only_comparable_runs_of_lmx_can_be_reproduced(recorded):
  count = lambda: counts.count([SMALL], {SMALL}, counts.verdicts())
  for one, found in (
    (line(), (1, 1, 1, 1, 1)),
    (line(value='140'), (1, 1, 1, 1, 0)),
    (line(differs='other data'), (1, 1, 1, 0, 0)),
    (line(command='gensim 4.4.0'), (1, 1, 0, 0, 0)),
  ):
    recorded(one)
    assert count() == found


def test_finished_runs_replace_recorded_ones(recorded, tmp_path):
  recorded(line(value='140'))
  seed = collection.SeedResult(114.5, 0, 1.0, '', 0.0, tmp_path, '')
  row = Row(SMALL, 'run', 'ppl')
  assert counts.verdicts([collection.RowResult(row, 1, [seed], [])])[SMALL].kind == verdict.REPRODUCED
  assert counts.verdicts([collection.RowResult(row, 2, [seed], [])])[SMALL].kind == verdict.OUTSIDE, 'unfinished'


def test_index_counts_other_programs_apart(recorded):
  recorded(line(), line(id='rnn_lm/own'), line(id='rnn_lm/other', command='gensim 4.4.0'))
  index = pages._index({'rnn_lm': ['rnn_lm_ptb']})
  [cells] = [text.split(' | ') for text in index.splitlines() if '(rnn_lm.md)' in text]
  assert cells[3:] == ['1', '1', '1', '1', '1 |']
  assert '| scores | 1 | 1 | 1 |\n| parameter counts | 0 | 0 | 0 |' in index
