"""Curves of the page of a run: their marks, ranges and points; and its files are in a wheel."""

from __future__ import annotations

import configparser
import math
import pathlib

import pytest

from lmx.reporting.html_report import charts, markup

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
  'low, high, texts',
  [
    (0, 1, ['0', '0.2', '0.4', '0.6', '0.8', '1.0']),
    (0, 1.2e-3, ['0', '2.5e-4', '5e-4', '7.5e-4', '1e-3']),
    (-3, 7, ['-2', '0', '2', '4', '6']),
    (0, 41_000, ['0', '10k', '20k', '30k', '40k']),
    (4.9, 5.15, ['4.90', '4.95', '5.00', '5.05', '5.10', '5.15']),
  ],
)
def test_marks_are_round_numbers(low, high, texts):
  marks = charts.ticks(low, high, 5)
  assert [charts.tick_text(mark, marks) for mark in marks] == texts


def chart(points, **more):
  return charts.Chart('Loss', '', [charts.Curve('training', points, 0, False)], {}, **more)


def test_the_first_fall_of_a_loss_does_not_hide_the_rest():
  points = [(step, 1000.0 if step < 2 else 2 + 0.01 * (step % 10)) for step in range(200)]
  data = charts.draw(chart(points), 0)[1]
  assert data['y'][0] < 2 and data['y'][1] < 3
  assert charts.draw(chart([(1, 5.0), (2, 4.0)]), 0)[1]['y'][1] > 5
  assert charts.draw(chart([(1, 3.0)]), 0)[1]['y'] == (1.32, 4.68)


def test_long_curves_keep_their_extremes():
  points = [(step, math.sin(step)) for step in range(30_000)]
  points[12_345] = (12_345, 9.0)
  points[777] = (777, math.nan)
  thin = charts.thin(points)
  assert len(thin) <= 1002 and (12_345, 9.0) in thin and thin[0] == points[0] and thin[-1] == points[-1]
  assert thin == sorted(thin)


def test_a_value_that_is_not_finite_is_a_gap():
  figure, _ = charts.draw(chart([(1, 1.0), (2, math.inf), (3, 2.0), (4, 1.0)]), 0)
  assert [path.count('M') for path in figure.split('d="')[1:] if 'style' in path.partition('>')[0]] == [2]


def test_everything_is_escaped_but_markup():
  found = markup.tag('td', '<b>', markup.tag('i', '&'), title='"<', hidden=True, cls='')
  assert found == '<td title="&quot;&lt;" hidden>&lt;b&gt;<i>&amp;</i></td>'
  assert markup.number(0.25, 'accuracy') == '<data value="0.25">25.0%</data>'


def test_a_wheel_has_the_files_of_the_page():
  metadata = configparser.ConfigParser()
  metadata.read(ROOT / 'setup.cfg')
  listed = metadata['options.package_data']['lmx.reporting.html_report'].replace(' ', '').split(',')
  files = {p.name for p in (ROOT / 'lmx/reporting/html_report').iterdir() if p.is_file() and p.suffix != '.py'}
  assert files == {*listed}
