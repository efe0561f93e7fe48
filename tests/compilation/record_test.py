"""The record of compiled steps, benchmarks/slices.csv, and the pages that print it."""

from __future__ import annotations

import pytest

from benchmarks import slices
from lmx.compilation.slices import CHIPS, parse
from lmx.kernels import row_attention
from tests.experiments_test import PODS, to_run


def test_pages_print_the_record():
  for path, text in slices.pages().items():
    assert path.read_text() == text, f'{path}: run python -m benchmarks.slices'


def test_every_recorded_pod_fits():
  recorded = {f'experiments/{row["config"]}' for row in slices.rows()}
  absent = {
    'experiments/awd_lstm/ptb.py:released,pod',  # described with wikitext2.py
    'experiments/character_transformer/enwik8.py:t64,pod',  # the program of text8.py
  }
  assert PODS.keys() - recorded == absent
  for row in slices.rows():
    assert 0 < float(row['gib']) < CHIPS[parse(row['topology']).generation].memory, row
    to_run(f'experiments/{row["config"]}')


def test_kernels_are_those_of_the_record():
  """So the bundles are, as far as this version of JAX traces the kernels of the record."""
  changed = {f'{row["config"]} {row["topology"]}': slices.changed(row) for row in slices.rows()}
  assert not any(changed.values()), f'{changed}: run python -m benchmarks.slices {slices.CHANGED}'


def test_another_kernel_is_a_change(monkeypatch):
  now = slices.kernel('row_attention')
  row = {'kernels': f'row_attention={now} splash'}
  assert slices.changed(row) == []
  slices.kernel.cache_clear()
  monkeypatch.setattr(row_attention, 'SCORES', 2**16)
  assert slices.changed(row) == ['row_attention']
  slices.kernel.cache_clear()
  assert slices.changed({'kernels': f'row_attention=0.1.2:{now[-8:]}'}) == []  # of another JAX, which traces otherwise


def test_only_the_table_is_replaced():
  text = 'a\n  head x\n  1\n  2\n\nb\n  3\n'
  assert slices.replace_table(text, '  head', ['  head y', '  4']) == 'a\n  head y\n  4\n\nb\n  3\n'
  page = 'a\n| head x |\n|---|\n| 1 |\n\n| b |\n'
  assert slices.replace_table(page, '| head', ['| y |']) == 'a\n| y |\n\n| b |\n'
  with pytest.raises(ValueError, match='no line begins with "  foot"'):
    slices.replace_table(text, '  foot', [])
