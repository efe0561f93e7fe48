"""Runs of a results page."""

from __future__ import annotations

from launch.tables import measurements
from tests.launch.tables.check_test import GOOD


def test_each_start_of_a_run_is_quoted():
  def start(text: str) -> str:
    return measurements._run(1, [GOOD._replace(start=text)])['facts'].get('Starts from', '')

  assert start('') == '' and start('imported bert_tiny') == 'imported bert_tiny'
  assert start('rnn_lm/a imported minilm rnn_lm/b') == 'line `rnn_lm/a`, imported minilm, line `rnn_lm/b`'


def test_figure_of_another_size_is_shown_beside_ours():
  key = 'luong/multi30k/kinds/global_dot/test2016'
  line = GOOD._replace(id=key, system='luong', row=key, value='35.1', differs='ours is smaller')
  found = measurements.sections('luong', [line])
  assert not found['own'] and found['compared'][0][2:5] == ('18.6', '35.1', 'not comparable: ours is smaller')
