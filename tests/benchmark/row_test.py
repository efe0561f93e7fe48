"""Rows of the table: ratios, several runs, Markdown."""

from __future__ import annotations

import pytest

from lmx.benchmark import row


def test_ratio_above_one_means_lmx_is_faster():
  seconds = row.make('a', 's', [1.0, 2.0, 4.0], [2.0, 2.0, 4.0])
  assert seconds['ratio_of_rounds'] == [2.0, 1.0, 1.0] and seconds['ratio'] == 1.0
  rates = row.make('b', 'words/s', [300.0, 100.0, 400.0], [100.0, 100.0, 200.0])
  assert rates['ratio_of_rounds'] == [3.0, 1.0, 2.0] and rates['ratio'] == 2.0
  assert rates['ours'] == {'median': 300.0, 'quartile_1': 200.0, 'quartile_3': 350.0}
  alone = row.make('c', 's', [1.0])
  assert alone['theirs'] is None and alone['ratio'] is None and alone['ours']['quartile_1'] == 1.0


def test_runs_combine_to_medians_and_ranges():
  run = lambda mine, peak: row.make('a', 's', [mine], [6.0], peaks=(peak, 5), compile_seconds=mine)
  runs = [
    [run(1.0, 10), {'name': 'b', 'error': 'broken'}],
    [run(2.0, 30), row.make('b', 's', [1.0])],
    [run(3.0, 20), row.make('b', 's', [3.0])],
  ]
  a, b = row.combine(runs)
  assert a['ours']['median'] == 2.0 and a['ratio'] == 3.0 and a['ratio_of_rounds'] == [6.0, 3.0, 2.0]
  assert (a['our_peak_bytes'], a['peer_peak_bytes'], a['compile_seconds'], a['runs']) == (30, 5, 2.0, 3)
  assert b['ours']['median'] == 2.0 and b['theirs'] is None and (b['runs'], b['failed']) == (2, 1)
  assert row.combine([runs[0]])[1] == {'name': 'b', 'error': 'broken'}
  assert 'Times as fast (runs)' in row.markdown([a, b])


def test_table_lists_missing_and_failed_runs():
  rows = [
    row.make('a', 's', [0.25], [0.5], peaks=(2**20, None), compile_seconds=1.25),
    row.make('b', 'words/s', [1234.4], missing='gensim'),
    {'name': 'c', 'error': 'no | room\nleft'},
  ]
  lines = row.markdown(rows).splitlines()
  assert lines[2] == '| `a` | 250 ms | 500 ms | 2.00 (2.00) | 1.2 s | 1 MiB |  |  |'
  assert lines[3].startswith('| `b` | 1,234 words/s | not measured: no gensim | ')
  assert lines[4].startswith('| `c` | failed: no / room left | ')
  assert {line.count('|') for line in lines} == {9}
  assert row.line(rows[1]) == 'b: lmx 1,234 words/s, peer not measured: no gensim'


def test_step_time_is_compared_with_a_matrix_product():
  step = lambda rate: row.make('a', 's', [1.0], details={'flops_per_second': rate})
  product = row.make('product', 'GFLOP/s', [200.0])
  shares = lambda rows: [line.split(' | ')[-1].strip(' |') for line in row.markdown(rows).splitlines()[2:]]
  assert shares([product, step(50e9), row.make('b', 's', [1.0])]) == ['', '25%', '']
  runs = [[product, step(rate)] for rate in (50e9, 150e9, 100e9)]
  assert shares(row.combine(runs)) == ['', '50%']
  assert shares([step(50e9)]) == shares([{'name': 'product', 'error': 'broken'}, step(50e9)])[1:] == ['']


@pytest.mark.parametrize(
  ('value', 'unit', 'text'), [(12.34, 's', '12.3 s'), (0.0123, 's', '12 ms'), (150, 'MB/s', '150 MB/s')]
)
def test_values_have_units(value, unit, text):
  assert row.show(value, unit) == text
