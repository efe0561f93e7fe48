"""Curves of the page of a run: their marks, ranges and points; and its files are in a wheel."""

from __future__ import annotations

import configparser
import functools
import html.parser
import json
import math
import pathlib
import re

import numpy as np
import pytest

from lmx.reporting import html_report, templates
from lmx.reporting.html_report import charts, formats

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
def test_axis_ticks_are_round_numbers(low, high, texts):
  marks = charts.ticks(low, high)
  assert [charts.tick_text(mark, marks) for mark in marks] == texts


def chart(points, **more):
  return charts.Chart('Loss', '', [charts.Curve('training', points, 0, False)], {}, **more)


def test_first_fall_of_a_loss_does_not_hide_the_rest():
  points = [(step, 1000.0 if step < 2 else 2 + 0.01 * (step % 10)) for step in range(200)]
  data = charts.draw(chart(points), 0).data
  assert data['y'][0] < 2 and data['y'][1] < 3
  assert charts.draw(chart([(1, 5.0), (2, 4.0)]), 0).data['y'][1] > 5
  assert charts.draw(chart([(1, 3.0)]), 0).data['y'] == (1.32, 4.68)


def test_long_curves_keep_their_extremes():
  points = [(step, math.sin(step)) for step in range(30_000)]
  points[12_345] = (12_345, 9.0)
  points[777] = (777, math.nan)
  thin = charts.thin(points)
  assert len(thin) <= 1002 and (12_345, 9.0) in thin and thin[0] == points[0] and thin[-1] == points[-1]
  assert thin == sorted(thin)


def test_non_finite_value_is_a_gap():
  drawing = charts.draw(chart([(1, 1.0), (2, math.inf), (3, 2.0), (4, 1.0)]), 0)
  lines = re.findall(r'<path d="([^"]*)"[^>]*stroke: var\(--c0\)', drawing.pictures[0][0])
  assert [line.count('M') for line in lines] == [2] and drawing.note == '1 value not finite, at step 2'


def test_chart_has_the_colours_of_the_page_and_no_date():
  one = chart([(1, 1.0), (2, 3.0)])._replace(levels={'$\\frac$ & <b>': 2.0})
  first, again, other = (charts.draw(one, i, wide=True).pictures for i in (0, 0, 1))
  assert first == again
  ids = [set(re.findall(' id="([^"]+)"', svg)) for svg, _ in (*first, *other)]
  assert all(ids) and len(set.union(*ids)) == sum(map(len, ids)), 'ids are unique in a page'
  svg = first[0][0]
  assert svg.count('$\\frac$ &amp; &lt;b&gt; 2.000</text>') == 1 and '<style' not in svg and 'metadata' not in svg
  assert not re.search('#[0-9a-f]{6}', svg) and {'var(--c0)', 'var(--faint)', 'var(--line)'} < {
    *re.findall(r'var.*?\)', svg)
  }


def test_number_formatting_is_exact():
  assert formats.number(0.25, is_share=True) == '<data value="0.25">25.0%</data>'


HOSTILE = (
  '<script>alert(1)</script>',
  '"><img src=x onerror=alert(1)>',
  "' onmouseover='alert(1)",
  '</style></title></pre><svg onload=alert(1)>',
  '--></script><!--',
  'javascript:alert(1)',
  '&lt;b&gt; &amp; ${data} {order} %s `code`',
  'a\u202egnp.exe \u2066b',
  'a\0b\x1b[31m\ud800',
)


def hostile_report(text):
  """A report with all sections that has `text` wherever a file of a run may have it."""
  labels = [text, f'{text} 2']
  records = [{'step': s, 'split': n, 'loss': 1.0 / s, text: 0.5} for s in (1, 2) for n in ('train', 'valid', text)]
  classes = {label: {'precision': 0.5, 'recall': 0.5, 'f1': 0.5, 'count': 2} for label in labels}
  results = {
    **dict.fromkeys(('name', 'model', 'dataset', 'unit', 'protocol', 'commit', 'device', 'data_hash', 'note'), text),
    **{'split': 'test', 'metric': text, text: 0.25, 'step': 2, 'steps': 2, 'tokens_counted': 5, 'seconds': 5.0},
    **{'accuracy': 0.1, 'majority_accuracy': 0.5, 'validation_loss': 1.0, f'validation_{text}': 2.0},
    **{'words_counted': 4, 'word_rule': text},
    **{'labels': labels, 'classes': classes, 'confusion': [[1, 2], [3, 4]], 'list': [1, 0.5]},
    **{'baselines': {text: {'loss': 1.0}, 'kneser_ney': {'order': text, 'loss': 1.0}}},
    **{'validation_baselines': {'kneser_ney': {'order': text, 'loss': 1.0}, 'unigram': {'loss': math.nan}}},
    **{'cache': {'window': text, 'loss': 1.0}, 'mixture': {'name': text, 'loss': 1.0}, 'table': [{text: text, 'n': 1}]},
    **{'command': ['lmx', text], 'versions': {text: text}, 'training_seconds': 1.5},
  }
  setting = html_report.Setting(f'data.{text}', text, text, text, True)
  return html_report.Report(
    **{'run': text, 'state': 'finished', 'name': text, 'model': text, 'step': 2, 'steps': 2, 'metric': text},
    **{'value': 0.25, 'records': records, 'results': results, 'settings': {text: [setting]}},
    data={'dataset': {'name': text, 'config': text, text: text}, 'imported_from': text},
    samples=[(text, text)],
    translations=[text] * 12,
    answers={text: text},
    pictures=[(text, 'aaaa')],
    attention=[
      html_report.AttentionRow(text, [html_report.AttentionMap(text, labels, labels, [1], np.eye(2)[None, None])])
    ],
    neighbours=[html_report.Neighbours(text, [(text, [(text, 0.5)])])],
    mistakes=[(0, text, labels[1], 0.75, text)],
    rows='classification',
    save_rows=text,
  )


def overlaid(text):
  """A page of two runs with `text` wherever a file of a run may have it."""
  first = hostile_report(text)
  setting = first.settings[text][0]
  other = first._replace(run=f'{text} 2', settings={text: [setting._replace(value=f'{text} 2')]})
  return html_report.compare([first, other])


class Elements(html.parser.HTMLParser):
  """The elements of a page in order, with the names of their attributes and the values that run or load something."""

  def __init__(self, page):
    super().__init__()
    self.found, self.texts = [], []
    self.feed(page)
    self.close()

  def handle_starttag(self, tag, attributes):
    given = {name: value for name, value in attributes if name in ('href', 'src', 'style', 'class', 'type', 'content')}
    given.pop('content', None)  # of the policy, which names the script's digest
    if tag not in ('wbr', 'code'):  # in keys, and between backticks
      self.found.append((tag, [name for name, _ in attributes], given))

  def handle_data(self, data):
    self.texts.append(data)

  def handle_comment(self, data):
    raise AssertionError(data)


@functools.cache
def benign():
  return html_report.render(hostile_report('word'))


@pytest.mark.parametrize('text', HOSTILE)
def test_hostile_texts_add_no_element_and_no_attribute(text):
  page = html_report.render(hostile_report(text))
  found = Elements(page)
  assert found.found == Elements(benign()).found and len(found.found) > 300
  assert not re.search('[\0-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069\ud800-\udfff]', page)
  shown = templates.visible(text)
  assert sum(shown in x for x in found.texts) > 30  # whole: nothing is dropped
  assert page.partition('id="data">')[2].partition('<')[2].startswith('/script>')
  names = [
    series['name']
    for chart in json.loads(page.partition('id="data">')[2].partition('</script>')[0])
    for series in chart['series']
  ]
  assert shown in names


@pytest.mark.parametrize('text', HOSTILE)
def test_hostile_texts_of_several_runs_add_no_element(text):
  page = overlaid(text)
  found = Elements(page)
  assert found.found == Elements(overlaid('word')).found and len(found.found) > 60
  shown = templates.visible(text)
  assert sum(shown in x for x in found.texts) > 10
  charts = json.loads(page.partition('id="data">')[2].partition('</script>')[0])
  folder = shown.rpartition('/')[2]
  assert {one['name'] for one in charts[0]['series']} == {f'{shown} ({folder})', f'{shown} ({folder} 2)'}


def test_metrics_of_classes_are_named_by_their_class():
  lines = [{'step': 1, 'split': 'valid', 'loss': 1.0, 'miou': 0.5, 'iou_class_0': 0.25, 'iou_class_1': 0.75}]
  first, _ = charts.build(lines, {'classes': {'sea': {}, 'boat': {}}}, 'miou')
  assert [one.title for one in first] == ['Loss', 'mIoU', 'IoU by class']
  assert [(curve.name, curve.points) for curve in first[-1].curves] == [('sea', [(1, 0.25)]), ('boat', [(1, 0.75)])]


def test_metrics_of_groups_share_a_chart():
  names = ['embed', *(f'layer_{i:02}' for i in range(7)), 'head_and_output']
  lines = [
    {'step': s, 'split': 'train', 'loss': 1.0, 'lr': 0.5, **{f'lr_of_{n}': s * i for i, n in enumerate(names)}}
    for s in (1, 2)
  ]
  first, more = charts.build(lines, {}, 'loss')
  assert [one.title for one in first] == ['Loss', 'Learning rate', 'Learning rate by group'] and not more
  by_group = first[-1]
  assert by_group.unit == '6 of 9 groups'
  assert [curve.name for curve in by_group.curves] == [
    'embed',
    'layer_01',
    'layer_02',
    'layer_04',
    'layer_05',
    'head, output',
  ]
  assert [curve.points for curve in by_group.curves][-1] == [(1, 8.0), (2, 16.0)]


def test_page_text_contains_no_markup():
  """A word is no markup, so that any escaped `<` is an element that was escaped again."""
  page = benign()
  assert not re.search('&lt;|&amp;lt;', page.partition('<script type')[0])
  sections = re.findall('<section id="([a-z]+)"', page)
  assert sections == 'curves results classes confusion samples attention neighbours pictures config environment'.split()


def test_extreme_values_are_drawn():
  values = [1e308, -1e308, 5e-324, 10**300, math.nan, -math.inf]
  for points in ([(i, v) for i, v in enumerate(values)], [(2**63 - 1, 1e308)], [(0, -1e308), (2**62, 1e308)]):
    drawing = charts.draw(chart(points), 0)
    assert not re.search('nan|inf', drawing.pictures[0][0], re.IGNORECASE)
    assert all(map(math.isfinite, (*drawing.data['x'], *drawing.data['y'])))


def test_wheel_has_the_files_of_the_pages():
  metadata = configparser.ConfigParser()
  metadata.read(ROOT / 'setup.cfg')
  listed = {key: value.split(', ') for key, value in metadata['options.package_data'].items()}
  for package in ('lmx.reporting.html_report', 'launch.tables'):
    patterns = [*listed['*'], *listed.get(package, ())]
    files = [p for p in (ROOT / package.replace('.', '/')).iterdir() if p.is_file() and p.suffix != '.py']
    assert len(files) > 2 and all(any(p.match(one) for one in patterns) for p in files), package
