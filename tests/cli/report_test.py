"""`lmx report` writes a run as one page: what it shows, what it refuses, and that a browser opens it."""

from __future__ import annotations

import base64
import collections
import html.parser
import json
import re

import numpy as np
import pytest

from lmx import storage
from lmx.cli import main, runs
from lmx.config import resolve
from lmx.data.corpus import manifest_hash
from lmx.evaluation import rows as saved
from lmx.reporting import html_report
from tests import browser

VOID = {'meta', 'link', 'img', 'input', 'wbr'}
HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'
LABELS = ['one', HOSTILE]
CLASSIFIER = 'bert/tasks.py:own'
CLASSES = {
  'one': {'precision': 0.8, 'recall': 0.6153846153846154, 'f1': 0.6956521739130435, 'count': 13},
  HOSTILE: {'precision': 0.5, 'recall': 0.7142857142857143, 'f1': 0.5882352941176471, 'count': 7},
}
CONFUSION = [[8, 5], [2, 5]]
RESULTS = {
  'name': 'a_run',
  'model': 'rnn_lm 1x8',
  'dataset': 'embedded',
  'split': 'test',
  'metric': 'accuracy',
  'accuracy': 0.65,
  'perplexity_per_word': 412.2816356126297,
  'loss': 6.021915530645808,
  'broken': 'NaN',
  'tokens_counted': 28835,
  'unit': 'tokens',
  'protocol': 'streams, batch 20',
  'majority_accuracy': 0.65,
  'labels': LABELS,
  'confusion': CONFUSION,
  'classes': CLASSES,
  'baselines': {'kneser_ney': {'order': 5, 'loss': 4.5, 'perplexity_per_word': 95.87807718646704}},
  'validation_baselines': {'kneser_ney': {'order': 5, 'loss': 4.25}},
  'step': 30,
  'steps': 40,
  'training_seconds': 89.25,
  'command': ['lmx', 'train', '--workdir=a folder'],
  'versions': {'python': '3.11.7', 'jax': '0.10.2'},
  'commit': 'c49d703',
  'device': '1 x cpu (cpu), 2 cores',
}


class Page(html.parser.HTMLParser):
  """A page by section: texts, `data` values and table rows; elements must be closed in order."""

  def __init__(self, text):
    super().__init__()
    self.open, self.section, self.scripts, self.style, self.tags = [], '', [], '', collections.Counter()
    self.text, self.values, self.rows, self.attributes = ({} for _ in range(4))
    self.feed(text)
    self.close()
    assert not self.open

  def handle_starttag(self, tag, attributes):
    self.tags[tag] += 1
    attributes = dict(attributes)
    if tag not in VOID:
      self.open.append(tag)
    if tag in ('section', 'header', 'nav'):
      self.section = attributes.get('id', tag)
    if tag == 'script':
      self.scripts.append('')
    if tag == 'tr':
      self.rows.setdefault(self.section, []).append([])
    if tag in ('td', 'th'):
      self.rows[self.section][-1].append('')
    if tag == 'data':
      self.values.setdefault(self.section, []).append(attributes['value'])
    self.attributes.setdefault(self.section, []).append((tag, attributes))

  def handle_endtag(self, tag):
    assert self.open.pop() == tag

  def handle_data(self, data):
    if 'script' in self.open:
      self.scripts[-1] += data
      return
    self.text[self.section] = self.text.get(self.section, '') + data
    if {'td', 'th'} & {*self.open}:
      self.rows[self.section][-1][-1] += data

  def column(self, section):
    return {row[0]: row[1:] for row in self.rows[section]}


def records():
  lines = [{'step': s, 'split': 'train', 'loss': 9 - 0.1 * s, 'lr': 1e-3, 'seconds': s} for s in range(1, 41)]
  more = {'split': 'valid', 'seconds': 9}
  lines += [
    {'step': s, 'loss': 9.5 - 0.125 * s, 'accuracy': s / 64, 'perplexity_per_word': s + 0.5, **more} for s in (10, 30)
  ]
  return lines


def put(folder, *, results=None, lines=None, data=None, config='rnn_lm/quickstart.py:tiny', **files):
  """Write the files of a run."""
  config = resolve.load(f'experiments/{config}', ['name=<b>run</b>', 'train.steps=64'])
  data = {'dataset': {'name': 'embedded', 'version': '1.0.0'}} if data is None else data
  data.setdefault('hash', manifest_hash(data))
  folder.mkdir(parents=True)
  (folder / 'config.json').write_text(config.to_json())
  (folder / 'data.json').write_text(json.dumps(data))
  lines = records() if lines is None else lines
  (folder / 'metrics.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))
  if results:
    (folder / 'results.json').write_text(json.dumps(results))
  for name, text in files.items():
    (folder / f'{name}.txt').write_text(text)
  return folder


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  texts = {
    'samples': f'a line of mine\n\n=== step 30 ===\nold\n\n=== step 40 ===\n{HOSTILE}\n\n',
    'translations': 'first\nsecond\n',
  }
  return put(tmp_path_factory.mktemp('reports') / 'run', results=RESULTS, **texts)


def write(workdir, *options):
  assert main.main(['report', str(workdir), *options]) == 0
  return (workdir / 'report.html').read_text()


@pytest.fixture(scope='module')
def page(finished):
  return Page(write(finished))


def test_finished_run_has_every_section(page):
  expected = 'Curves Results Classes Confusion_matrix Samples Config Environment'.split()
  assert page.text['nav'].split('\n')[-2] == ''.join(expected).replace('_', ' ')
  assert {'curves', 'results', 'classes', 'confusion', 'samples', 'config', 'environment'} < {*page.text}
  assert 'a_run' in page.text['header'] and 'finished' in page.text['header'] and '0.650' in page.text['header']
  assert page.column('environment')['command'] == ["lmx train '--workdir=a folder'"]
  assert page.column('environment')['jax'] == ['0.10.2']


def test_report_values_match_the_files(page):
  metrics = {row[0]: row[1:] for row in page.rows['results']}
  head = page.rows['results'][0]
  assert head == ['metric', 'embedded/test', 'validation, step 30', 'Kneser-Ney 5-gram']
  assert metrics['perplexity per word'] == ['412.28', '30.50', '95.88']
  assert metrics['accuracy'] == ['0.650', '0.469', ''] and metrics['broken'][0] == 'NaN'
  values = [float(x) for x in page.values['results']]
  assert {412.2816356126297, 95.87807718646704, 6.021915530645808, 28835, 30 / 64} <= {*values}
  shares = [CLASSES[name][key] for name in LABELS for key in ('precision', 'recall', 'f1', 'count')]
  assert [float(x) for x in page.values['classes']] == shares
  assert [row[1:] for row in page.rows['confusion'][1:]] == [['8', '5'], ['2', '5']]
  shades = [a['style'] for tag, a in page.attributes['confusion'] if 'style' in a]
  assert shades == [f'--s:{share:.3f}' for share in (8 / 13, 5 / 13, 2 / 7, 5 / 7)]
  assert 'not above the majority-class baseline' in page.text['results']


def test_interval_of_the_headline_is_shown(tmp_path):
  more = {'interval': [0.45, 0.85], 'rows': {'kind': 'classification', 'count': 20, 'unit': 'documents'}}
  page = Page(write(put(tmp_path / 'run', results=RESULTS | more)))
  assert page.column('results')['95% interval'] == ['0.450 to 0.850, bootstrap over 20 documents']
  assert 'on embedded/test, 95% interval 0.450 to 0.850' in page.text['header'] and 'interval' not in page.column(
    'results'
  )


def test_wall_time_is_shown_by_parts(tmp_path):
  workdir = put(tmp_path / 'run', results=RESULTS)
  record = {'session': 1e9, 'step': 40, 'saved': True, 'seconds': {'steps': 90.0, 'data_wait': 30.0}}
  (workdir / 'logs').mkdir()
  (workdir / 'logs/ledger.jsonl').write_text(json.dumps(record) + '\n')
  page = Page(write(workdir))
  assert page.rows['time'] == [
    ['part', 'time in 1 session', 'share'],
    *(['training steps', '1 min 30 s', '75.0%'], ['waiting for data', '30 s', '25.0%'], ['all', '2 min 0 s', '100.0%']),
  ]
  assert 'goodput' in page.text['header'] and '0.75' in page.values['header']


def test_report_curves_match_the_log(page):
  charts = {chart['title']: chart for chart in json.loads(page.scripts[0])}
  by_name = {one['name']: one['points'] for one in charts['Loss']['series']}
  assert by_name['training'] == [[r['step'], r['loss']] for r in records() if r['split'] == 'train']
  assert by_name['validation'] == [[10, 8.25], [30, 5.75]]
  assert {'Accuracy', 'Learning rate'} < {*charts}
  assert 'Kneser-Ney 5-gram (validation) 4.250' in page.text['curves']
  drawn = [a for tag, a in page.attributes['curves'] if tag == 'figure']
  assert [int(a['data-chart']) for a in drawn] == list(range(len(charts)))


def test_metric_that_repeats_the_loss_has_no_chart(tmp_path):
  """The only term of a loss does, up to rounding; another term keeps its chart, as does a run of which it is none."""
  lines = [r | {'nll': r['loss'] * (1 + 1e-7), 'other': r['loss'] + 1} for r in records() if r['split'] == 'train']
  one = put(tmp_path / 'one', results=RESULTS, lines=lines)
  titles = [chart['title'] for chart in json.loads(Page(write(one)).scripts[0])]
  assert 'Other' in titles and 'NLL' not in titles
  output = tmp_path / 'compare.html'
  for name, times, shown in (('same', 1, False), ('smoothed', 1.1, True)):
    other = put(tmp_path / name, results=RESULTS, lines=[r | {'nll': r['loss'] * times} for r in lines])
    assert main.main(['report', str(one), str(other), f'--output={output}']) == 0
    titles = [chart['title'] for chart in json.loads(Page(output.read_text()).scripts[0])]
    assert ('NLL' in titles) == shown and 'Other' in titles


def test_page_names_the_options_that_it_was_not_given(finished, page):
  hint = f'Options of lmx report {finished} add to this page: --attention="TEXT"'
  assert hint in page.text['environment'] and '--words=A,B' in page.text['environment']


def test_text_from_files_is_escaped(finished, page):
  assert page.tags['script'] == 2 and page.tags['img'] == 0  # the data and the page's own
  assert HOSTILE in page.text['samples'] and HOSTILE in page.text['classes'] and HOSTILE in page.text['confusion']
  policy = (finished / 'report.html').read_text()
  assert "default-src 'none'" in policy and not re.search(r'(src|href)="(?!#|data:)', policy)


def test_newest_sample_is_first_and_expanded(page):
  found = [a for tag, a in page.attributes['samples'] if tag == 'details']
  assert ['open' in a for a in found] == [True, False, False]
  order = [page.text['samples'].index(text) for text in ('step 40', 'step 30', 'without a step', 'a line of mine')]
  assert order == sorted(order)
  assert [row for row in page.rows['samples'] if row[0] == '2'] == [['2', 'second']]


def test_report_marks_changed_config_keys(page):
  keys = resolve.flatten(resolve.load('experiments/rnn_lm/quickstart.py:tiny'))
  rows = {row[0]: row[1:] for row in page.rows['config']}
  assert {key for key in keys if not key.startswith('semantics')} <= {*rows}
  assert rows['train.steps'][0] == '64' and rows['name'] == ['<b>run</b>', '']
  marked = {a['title']: a for tag, a in page.attributes['config'] if tag == 'tr' and 'title' in a}
  unchanged = next(a for title, a in marked.items() if title.startswith('determines parameters'))
  assert 'class' not in unchanged
  assert sum(a.get('class') == 'changed' for a in marked.values()) > 3


def test_unfinished_run_is_described(tmp_path):
  workdir = put(tmp_path / 'run')
  with (workdir / 'metrics.jsonl').open('a') as file:
    file.write('{"step": 41, "spl')  # cut by a kill
  page = Page(write(workdir))
  assert '<b>run</b>' in page.text['header'] and 'stopped' in page.text['header']
  assert 'of 64' in page.text['header'] and '5.750' in page.text['header']
  assert 'perplexity per word30.50in the last validation' in page.text['header']
  assert page.text['curves'].index('Perplexity per word') < page.text['curves'].index('Learning rate')
  assert 'stopped at step 40 of 64' in page.text['results'] and 'classes' not in page.text
  (workdir / 'metrics.jsonl').write_text('')
  assert 'step 0 of 64' in Page(write(workdir)).text['results']


def test_running_run_is_described(tmp_path, monkeypatch):
  monkeypatch.setattr(runs, 'is_running', lambda workdir: True)
  page = Page(write(put(tmp_path / 'run')))
  assert 'running' in page.text['header'] and 'is at step 40 of 64' in page.text['results']
  assert [a['style'] for _, a in page.attributes['header'] if 'style' in a] == ['width:62.5%']


def test_other_results_of_a_run_are_collected(tmp_path):
  """A cache, a list of numbers, a table, answers, a picture, and more classes than a matrix can show."""
  labels = [f'class {i}' for i in range(61)]
  counts = np.diag(np.arange(61)) + 3 * np.eye(61, k=5, dtype=int)
  counts[7, 2] = 99
  more = {
    'cache': {'window': 500, 'loss': 5.5},
    'precisions': [56.25, 20.5],
    'validation_accuracy': 0.5,
    'validation_loss': 0.25,
    'bleu_by_length': [{'words': '1 to 10', 'above': 0, 'up_to': 10, 'sentences': 419, 'bleu': 12.5}],
    'labels': labels,
    'confusion': counts.tolist(),
    'classes': {name: {'precision': 0.5, 'recall': 0.5, 'f1': 0.5, 'count': 2} for name in labels},
  }
  workdir = put(tmp_path / 'run', results=RESULTS | more)
  (workdir / 'predictions.json').write_text(json.dumps({'id1': HOSTILE}))
  picture, alien = b'\x89PNG\r\n', b'<script>'
  for name, content in (('memory_5.png', picture), ('loss.png', picture), ('other.png', alien)):
    (workdir / name).write_bytes(content)
  text = write(workdir)
  assert not re.search('&lt;/?(data|span|td|div)', text)  # markup that was escaped
  page = Page(text)
  assert page.rows['results'][0][3] == 'with a cache of 500' and page.column('results')['loss'][2] == '5.500'
  assert page.column('results')['precisions'] == ['56.25, 20.50']
  assert page.rows['results'][-2:] == [['words', 'sentences', 'BLEU'], ['1 to 10', '419', '12.50']]
  assert page.rows['confusion'][:3] == [
    ['true', 'predicted', 'count'],
    ['class 7', 'class 2', '99'],
    ['class 0', 'class 5', '3'],
  ]
  assert ['id1', HOSTILE] in page.rows['samples']
  shown = [a for tag, a in page.attributes['pictures'] if tag == 'img']
  assert [(a['alt'], base64.b64decode(a['src'].partition(',')[2])) for a in shown] == [('memory_5.png', picture)]


def test_non_finite_values_are_reported(tmp_path):
  lines = [
    {'step': s, 'split': 'train', 'loss': 'NaN' if s in (2, 3) else float(s), 'seconds': s} for s in (1, 2, 3, 4)
  ]
  page = Page(write(put(tmp_path / 'run', lines=lines)))
  assert '2 values not finite, at step 2, 3' in page.text['curves']
  assert json.loads(page.scripts[0])[0]['series'][0]['points'] == [[1, 1.0], [2, None], [3, None], [4, 4.0]]


def test_imported_weights(tmp_path):
  data = {'hash': '', 'imported_from': 'a folder'}
  page = Page(write(put(tmp_path / 'run', lines=(), data=data)))
  assert 'imported' in page.text['header'] and 'imported weights' in page.text['results']
  assert page.column('environment')['imported from'] == ['a folder'] and 'curves' not in page.text


DAMAGES = [
  ('config.json', '{"model"', 'config.json'),
  ('results.json', json.dumps(RESULTS | {'confusion': [[1]]}), 'confusion: got a list of 1; expected 2 lists'),
  ('results.json', json.dumps(RESULTS | {'classes': {'one': {'precision': 1}}}), 'classes: one: no field "recall"'),
  ('metrics.jsonl', '{"step": 1, "split": "train"}\n\x00{\n', 'metrics.jsonl, line 2'),
  ('predictions.json', '[1]', 'predictions.json: got a list of 1'),
]


@pytest.mark.parametrize('name, content, message', DAMAGES)
def test_damaged_file_is_reported(name, content, message, tmp_path, capsys):
  workdir = put(tmp_path / 'run', results=RESULTS)
  (workdir / name).write_text(content)
  assert main.main(['report', str(workdir)]) == 2
  assert message in capsys.readouterr().err
  assert not (workdir / 'report.html').exists()


def test_foreign_file_is_not_overwritten(tmp_path, capsys):
  workdir = put(tmp_path / 'run')
  write(workdir), write(workdir)  # its own page is
  (workdir / 'report.html').write_text('<p>mine')
  assert main.main(['report', str(workdir)]) == 2
  assert 'lmx report did not write' in capsys.readouterr().err
  assert (workdir / 'report.html').read_text() == '<p>mine'
  assert main.main(['report', str(workdir), f'--output={workdir}/report.html']) == 0
  assert html_report.MARK in (workdir / 'report.html').read_text()
  before = (workdir / 'metrics.jsonl').read_text()
  assert main.main(['report', str(workdir), f'--output={workdir}/metrics.jsonl']) == 2
  assert (workdir / 'metrics.jsonl').read_text() == before
  assert main.main(['report', str(workdir), f'--output={tmp_path}/no/report.html']) == 2
  assert main.main(['report', str(tmp_path / 'missing')]) == 2
  assert 'got no config.json' in capsys.readouterr().err


ATTENTION = [
  html_report.AttentionRow(
    'row 1 of test',
    [
      html_report.AttentionMap(
        'Self-attention',
        ['c', 'd'],
        ['<a>', 'b'],
        [1, 2],
        np.asarray([[[[0, 1], [1, 0]]] * 2, [[[0.8, 0.2], [0.2, 0.8]], [[0.6, 0.4], [0, 1]]]]),
      )
    ],
  )
]


def test_attention_map_shows_tokens(finished):
  from lmx.cli import report

  found = report.read(storage.path('DIR', finished))
  page = Page(html_report.render(found._replace(attention=ATTENTION)))
  assert [row[0] for row in page.rows['attention'][1:]] == ['c', 'd']
  cells = [a for tag, a in page.attributes['attention'] if tag == 'td']
  assert [a['title'] for a in cells] == ['c → <a>: 0.70', 'c → b: 0.30', 'd → <a>: 0.10', 'd → b: 0.90']
  assert cells[0]['style'] == f'--s:{(0.7 / 0.9) ** 0.5:.3f}' and cells[3]['style'] == '--s:1.000'
  weights = next(a['data-weights'] for _, a in page.attributes['attention'] if 'data-weights' in a)
  assert list(base64.b64decode(weights)) == [0, 255, 255, 0, 0, 255, 255, 0, 204, 51, 51, 204, 153, 102, 0, 255]


def save_rows(folder, found, results, kind='classification'):
  """Write the rows of an evaluation and its results; return the results."""
  text, about = saved.describe(kind, found, 'documents')
  folder.mkdir(exist_ok=True)
  saved.write(folder, text)
  results = results | {'rows': about, 'interval': [0.5, 0.75]}
  (folder / 'results.json').write_text(json.dumps(results))
  return results


def wrong_rows(count=30):
  """Rows of which one of `one` and the others of the hostile label are misclassified."""
  row = lambda i, label, said, p: {'row': i, 'label': label, 'prediction': said, 'probability': p, 'loss': 1.0}
  found = [row(0, 'one', 'one', 0.9) | {'text': 'right'}, row(1, 'one', HOSTILE, 0.75) | {'text': 'a text'}]
  return found + [row(2 + i, HOSTILE, 'one', 0.5 + i / 100) | {'text': f'{HOSTILE} {i}'} for i in range(count)]


def test_misclassified_rows_are_listed(tmp_path, capsys):
  workdir = put(tmp_path / 'run', results=RESULTS, config=CLASSIFIER)
  page = Page(write(workdir))
  assert f'lmx evaluate --workdir={workdir} --split=test --which=last --save_rows=ROWS' in page.text['confusion']
  save_rows(tmp_path / 'rows', wrong_rows(), RESULTS)
  page = Page(write(workdir, f'--rows={tmp_path}/rows'))
  rows = page.rows['confusion'][4:]
  assert len(rows) == 21 and '21 of 31 rows' in page.text['confusion']  # at most 20 of a cell
  assert (
    rows[0] == ['32', HOSTILE, 'one', '79.0%', f'{HOSTILE} 29'] and ['2', 'one', HOSTILE, '75.0%', 'a text'] in rows
  )
  cells = [a['data-cell'] for _, a in page.attributes['confusion'] if 'data-cell' in a]
  assert sorted({*cells}) == ['0 1', '1 0'] and cells.count('1 0') == 20
  save_rows(workdir, [{k: row[k] for k in ('row', 'label', 'prediction', 'loss')} for row in wrong_rows(2)], RESULTS)
  assert Page(write(workdir)).rows['confusion'][4:][0] == ['2', 'one', HOSTILE, '', '']  # of an earlier version
  for changed in ({'split': 'valid'}, {'step': 20}, {'config_hash': '0'}):
    save_rows(tmp_path / 'rows', wrong_rows(), RESULTS | changed)
    assert main.main(['report', str(workdir), f'--rows={tmp_path}/rows']) == 2
    error = capsys.readouterr().err
    assert f'--rows: got {"=".join(map(str, *changed.items()))}' in error
    assert f'lmx evaluate --workdir={workdir} --split=test --which=last --save_rows=ROWS' in error
  save_rows(tmp_path / 'rows', [{'row': 0, 'loss': 1.0}], RESULTS, 'language_model')
  assert main.main(['report', str(workdir), f'--rows={tmp_path}/rows']) == 2
  assert '--rows: got rows of language_model' in capsys.readouterr().err


def test_largest_errors_of_a_regression_are_listed(tmp_path):
  results = {'metric': 'pearson', 'pearson': 0.5, 'dataset': 'table_files', 'split': 'test', 'model': 'esim', 'step': 4}
  workdir = put(tmp_path / 'run', results=results, config='bert/tasks.py:own_scores')
  assert f'--workdir={workdir} --split=test --which=last --save_rows=ROWS' in Page(write(workdir)).text['wrong']
  lines = [r | {'pearson': r['step'] / 100} for r in records() if r['split'] == 'valid']  # the recipe selects by it
  selected = put(tmp_path / 'selected', lines=lines, config='esim/pairs.py:own_scores')
  text = Page(write(selected)).text['header']
  assert 'highest validation pearson' in text and 'at step 30, selected by train.best_by' in text
  cells = [(1.0, 1.5, 'near'), (2.0, 2.0, 'right'), (4.0, 1.5, HOSTILE)]
  rows = [{'row': i, 'label': a, 'prediction': b, 'loss': (a - b) ** 2, 'text': c} for i, (a, b, c) in enumerate(cells)]
  save_rows(tmp_path / 'rows', rows, results, 'regression')
  page = Page(write(workdir, f'--rows={tmp_path}/rows'))
  assert page.rows['wrong'][1:] == [
    ['3', '4.000', '1.500', '-2.500', HOSTILE],
    ['1', '1.000', '1.500', '0.500', 'near'],
  ]
  assert '2 of 2 rows' in page.text['wrong']
  without_text = [{key: value for key, value in row.items() if key != 'text'} for row in rows]  # of an earlier version
  save_rows(workdir, without_text, results, 'regression')
  assert Page(write(workdir)).rows['wrong'][1][-1] == ''


def test_several_runs_are_overlaid(finished, tmp_path, capsys):
  lines = [r | {'loss': r['loss'] + 1} for r in records()]
  results = RESULTS | {'name': 'other', 'accuracy': 0.75, 'extra': 3.0, 'commit': 'aaa'}
  other = put(tmp_path / 'other', results=results, lines=lines)
  config = json.loads((other / 'config.json').read_text())
  config['optim']['lr'] = 0.0625
  (other / 'config.json').write_text(json.dumps(config))
  output = tmp_path / 'compare.html'
  assert main.main(['report', str(finished), str(other), f'--output={output}']) == 0
  page = Page(output.read_text())
  charts = {(chart['title'], len(chart['series'])): chart for chart in json.loads(page.scripts[0])}
  loss = json.loads(page.scripts[0])[0]['series']
  assert [one['name'] for one in loss] == ['a_run', 'other'] and loss[1]['points'][0] == [1, 9.9]
  assert [one['colour'] for one in loss] == [0, 1] and ('Accuracy', 2) in charts
  table = page.column('results')
  assert table[''] == ['a_run', 'other'] and table['accuracy'] == ['0.650', '0.750'] and table['extra'] == ['', '3.000']
  assert page.column('config')['optim.lr'][1] == '0.0625' and 'train.steps' not in page.column('config')
  assert capsys.readouterr().out.startswith(f'wrote {output}: a_run, other')


def test_runs_that_cannot_be_overlaid_are_rejected(finished, tmp_path, capsys):
  unfinished, output = put(tmp_path / 'unfinished'), f'--output={tmp_path}/compare.html'
  for words, message in (
    ([str(finished), str(unfinished), output], 'got a run without results (stopped)'),
    ([str(finished), str(tmp_path / 'missing'), output], 'got no config.json'),
    ([str(finished), str(finished), output], 'got a run twice'),
    ([str(finished), str(unfinished)], '--output: got none with 2 runs'),
    ([*(f'{tmp_path}/{i}' for i in range(7)), output], 'got 7 runs; expected at most 6'),
    ([str(finished), str(unfinished), output, '--attention'], '--attention: got it with 2 runs'),
    ([str(finished), str(unfinished), output, '--words=a'], '--words: got it with 2 runs'),
    ([str(finished), str(unfinished), output, f'--rows={finished}'], '--rows: got it with 2 runs'),
  ):
    assert main.main(['report', *words]) == 2, words
    assert message in capsys.readouterr().err, words
  assert not (tmp_path / 'compare.html').exists()


def test_run_on_a_bucket_is_described(finished, bucket):
  bucket.mkdir(parents=True)
  for path in finished.iterdir():
    (bucket / path.name).write_text(path.read_text())
  (bucket / 'report.html').unlink(missing_ok=True)
  assert main.main(['report', str(bucket)]) == 0
  page = Page((bucket / 'report.html').read_text())
  assert page.column('results')['loss'][0] == '6.022' and 'curves' in page.text


@pytest.mark.slow
def test_report_opens_in_a_browser(finished, tmp_path):
  write(finished)
  with browser.browser(tmp_path) as tab:
    colours = []
    for width, scheme in ((1200, 'light'), (390, 'dark')):
      tab.open(finished / 'report.html', width, 900, scheme)
      colours.append(tab.value('getComputedStyle(document.body).backgroundColor'))
      assert tab.value('document.documentElement.scrollWidth') <= width  # wide tables scroll by themselves
    assert len({*colours}) == 2
    tab.open(finished / 'report.html')
    plot = 'document.querySelector(".plot")'
    box = json.loads(tab.value(f'JSON.stringify({plot}.getBoundingClientRect())'))
    tab.move(box['x'] + box['width'] * 30 / 40.4, box['y'] + 20)
    tip = tab.value(f'[...{plot}.querySelectorAll(".tip > div")].map(row => row.innerText.replace("\\n", " "))')
    assert tip == ['step 30', 'training 6', 'validation 5.75']
    x = tab.value(f'{plot}.querySelector(".cursor").getBoundingClientRect().x')
    assert abs(x - box['x'] - box['width'] * 30 / 40.4) < 1
    assert tab.value(f'[...{plot}.querySelectorAll(".dot")].map(dot => dot.style.display)') == ['block', 'block']
    tab.value('document.querySelector("figure").focus()')
    for key in ('ArrowLeft', 'ArrowLeft'):
      tab.call('Input.dispatchKeyEvent', type='keyDown', key=key)
    assert tab.value(f'{plot}.querySelector(".step").innerText') == 'step 28'
    shown = 'document.querySelectorAll(".keys tbody tr:not([hidden])").length'
    changed = tab.value('document.querySelectorAll(".keys .changed").length')
    assert tab.value(shown) == changed
    tab.value('document.querySelector(".options input[type=checkbox]").click()')
    assert tab.value(shown) > 2 * changed
    tab.value(
      '(s => { s.value = "warmup"; s.dispatchEvent(new Event("input")) })(document.querySelector("[type=search]"))'
    )
    assert 0 < tab.value(shown) < changed
    assert tab.value('[...document.querySelectorAll(".part")].every(part => part.hidden || part.open)')
    assert tab.problems == []


@pytest.mark.slow
def test_attention_and_neighbours_of_a_run(tmp_path, capsys):
  workdir = tmp_path / 'run'
  tiny = ['train.steps=1', 'train.eval_every=1', 'evaluation.beam=0', 'samples.count=0', 'evaluation.split=test,valid']
  words = [f'--config.{change}' for change in tiny]
  assert main.main(['train', '--config=experiments/bahdanau/quickstart.py:tiny', f'--workdir={workdir}', *words]) == 0
  page = Page(write(workdir, '--attention=eight hundred and seven', '--attention=two', '--attention', '--words'))
  heads = [row for row in page.rows['attention'] if row[0].startswith('query')]
  assert len(heads) == 5 and [len(row) for row in heads[3:]] == [6, 3] and heads[4][1:] == ['two', '<eos>']
  assert 'row 3 of test' in page.text['attention'] and 'Cross-attention' in page.text['attention']
  tips = [a['title'] for tag, a in page.attributes['attention'] if tag == 'td']
  assert abs(sum(float(tip.rpartition(' ')[2]) for tip in tips[-2:]) - 1) < 0.02
  assert 'add to this page' not in page.text['environment']
  near = page.column('neighbours')
  assert near['thousand'][0].count(',') == 7
  for option, message in (('--attention= ', 'got an empty text'), ('--words=thousandth', 'is no token')):
    assert main.main(['report', str(workdir), option]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_attention_of_a_passage_on_its_question(tmp_path):
  """Of a model that reads characters, whose config names several splits to evaluate."""
  workdir, tiny = tmp_path / 'run', ('train.steps=1', 'train.eval_every=1')
  words = [f'--config.{change}' for change in tiny]
  assert main.main(['train', '--config=experiments/bidaf/quickstart.py:tiny', f'--workdir={workdir}', *words]) == 0
  page = Page(write(workdir, '--attention', '--words'))
  assert 'Cross-attention' in page.text['attention'] and 'Self-attention' in page.text['attention']
  assert len(page.column('neighbours')) > 5
  labels = [row[0] for row in page.rows['attention'] if row[0]]
  assert any(len(label) > 8 for label in labels)  # rare words, too, are spelled


@pytest.mark.slow
def test_cells_and_heads_open_in_a_browser(tmp_path):
  from lmx.cli import report

  workdir = put(tmp_path / 'run', results=RESULTS, config=CLASSIFIER)
  save_rows(tmp_path / 'run', wrong_rows(3), RESULTS)
  found = report.read(storage.path('DIR', workdir))
  (workdir / 'report.html').write_text(html_report.render(found._replace(attention=ATTENTION)))
  with browser.browser(tmp_path / 'profile') as tab:
    tab.open(workdir / 'report.html', 390, 900)
    assert tab.value('document.documentElement.scrollWidth') <= 390
    rows = '[...document.querySelectorAll(".mistakes tbody tr:not([hidden]) th")].map(x => x.textContent)'
    assert tab.value(rows) == ['2', '5', '4', '3']
    tab.value('document.querySelectorAll("#confusion .matrix td.miss")[0].click()')
    assert tab.value(rows) == ['2']
    assert '1 listed' in tab.value('document.querySelector(".which").textContent')
    tab.value('document.querySelector("button.all").click()')
    assert len(tab.value(rows)) == 4
    pick = lambda name, value: tab.value(
      f'(s => {{ s.value = "{value}"; s.dispatchEvent(new Event("change")) }})(document.querySelector("select.{name}"))'
    )
    tips = '[...document.querySelectorAll("#attention td")].map(x => x.title)'
    assert tab.value(tips)[0] == 'c → <a>: 0.70'
    pick('head', 1)
    assert tab.value(tips) == ['c → <a>: 0.60', 'c → b: 0.40', 'd → <a>: 0.00', 'd → b: 1.00']
    pick('layer', 0)
    assert tab.value(tips) == ['c → <a>: 0.00', 'c → b: 1.00', 'd → <a>: 1.00', 'd → b: 0.00']
    assert tab.value('document.querySelector("#attention td").style.getPropertyValue("--s")') == '0.000'
    assert tab.problems == []
