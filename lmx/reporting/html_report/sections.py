"""Sections of the page: head, results, classes, confusions, texts, attention, config and environment."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from lmx.metrics import by_class
from lmx.reporting.html_report import charts, markup
from lmx.reporting.html_report.markup import Markup, tag

if TYPE_CHECKING:
  from lmx.reporting.html_report import Report

_COUNTS = ('sentences', 'questions', 'sources_cut')
_ABOUT = (  # numbers of results.json that are no metrics
  *('step', 'steps', 'seed', 'seconds', 'training_seconds', 'skipped_updates', 'tokens_counted', 'majority_class'),
  *_COUNTS,
)
_NAMED = ('name', 'model', 'dataset', 'split', 'metric', 'unit', 'data_hash', 'config_hash', 'commit', 'device')
_MOST_CLASSES = 60  # of a confusion matrix; of more, the largest confusions are listed
_MOST_CONFUSIONS = 30
_MOST_LINES = 10  # of translations and answers, shown at once
_MOST_IN_ALL = 500
_LONGEST = 20_000  # characters of a sample
_VARIANTS = {'cache': 'with a cache of {window}', 'mixture': 'mixed with {name}'}  # results of other predictions

number, section, table = markup.number, markup.section, markup.table


def header(report: Report) -> Markup:
  """Return the name, the state and the main numbers of a run."""
  title = tag('div', tag('h1', report.name), tag('span', report.state, cls=f'state {report.state}'), cls='title')
  data = report.data.get('dataset')
  data = data if isinstance(data, dict) else {}
  about = ' · '.join(filter(None, [report.model, str(data.get('name') or ''), str(data.get('config') or '')]))
  tiles = list(_tiles(report))
  parts = [title, tag('p', about, cls='faint'), tag('dl', *tiles, cls='tiles') if tiles else '']
  if report.state in ('running', 'stopped') and report.steps:
    share = min(report.step / report.steps, 1)
    bar = tag('div', tag('div', style=f'width:{share:.1%}'), cls='progress', title=f'{share:.1%} of the updates')
    parts.append(bar)
  return tag('header', *parts)


def _tiles(report: Report) -> Iterator[Markup]:
  """Yield the main numbers, the headline first."""
  results = report.results
  if report.value is not None:
    note = f'on {results["dataset"]}/{results["split"]}' if results else 'in the last validation'
    yield _tile(markup.words(report.metric), number(report.value, report.metric), note, 'headline')
  validations = [record for record in report.records if record['split'] == 'valid']
  valid = [(r['loss'], r['step']) for r in validations if math.isfinite(r.get('loss', math.nan))]
  if valid:
    loss, step = min(valid)
    yield _tile('lowest validation loss', number(loss), f'at step {step:,}')
  if report.step or report.steps:
    is_partial = report.steps and report.state not in ('finished', 'imported')
    yield _tile('updates', number(report.step), f'of {report.steps:,}' if is_partial else '')
  seconds = results.get('training_seconds') or max((r.get('seconds', 0) for r in report.records), default=0)
  if seconds:
    yield _tile('training time', markup.duration(seconds))
  if 'tokens_counted' in results:
    yield _tile(f'{results.get("unit", "tokens")} counted', number(results['tokens_counted']))


def _tile(name: str, value: Any, note: str = '', cls: str = '') -> Markup:
  small = tag('small', note) if note else ''
  return tag('div', tag('dt', name), tag('dd', value, small), cls=f'tile {cls}'.strip())


def navigation(parts: Sequence[Markup]) -> Markup:
  """Return links to the sections."""
  found = [re.match(r'<section id="(\w+)"><h2>(.*?)</h2>', part) for part in parts]
  links = [tag('a', Markup(match[2]), href=f'#{match[1]}') for match in found if match]
  return tag('nav', *links, aria_label='sections')


def results(report: Report) -> Iterator[Markup]:
  """Yield the sections of results.json: metrics, classes, confusions."""
  values = report.results
  if not values:
    texts = {
      'imported': 'This run holds imported weights; lmx has neither trained nor measured it.',
      'running': f'The run is at step {report.step:,} of {report.steps:,}. Results are written after the last one.',
      'stopped': f'The run stopped at step {report.step:,} of {report.steps:,}. Its `lmx train` command resumes it.',
    }
    yield section('results', 'Results', tag('p', markup.prose(texts[report.state]), cls='note'))
    return
  parts = [_metrics(report), _warning(values), table((), _facts(values), 'facts'), *_lists(values)]
  raw = tag('pre', json.dumps(_strict(values), indent=1, ensure_ascii=False))
  yield section('results', 'Results', *parts, markup.details('results.json', raw))
  if 'classes' in values:
    yield section('classes', 'Classes', _classes(values['classes']))
  if 'confusion' in values:
    yield section('confusion', 'Confusion matrix', *_confusion(values['confusion'], values['labels']))


def _strict(values: Any) -> Any:
  from lmx.reporting import run_log

  return run_log.to_json(values)


def _is_number(value: Any) -> TypeGuard[float]:
  return isinstance(value, int | float) and not isinstance(value, bool)


def _metrics(report: Report) -> Markup:
  """Return the table of the metrics: those of the run, of its validation, of the baselines."""
  values = report.results
  names = [name for name, value in values.items() if _is_number(value) and name not in _ABOUT and not _is_best(name)]
  if 'classes' in values:
    names = [name for name in names if not charts.OF_A_CLASS.search(name)]
  names.sort(key=lambda name: name != values['metric'])
  columns: dict[str, Mapping[str, Any]] = {f'{values["dataset"]}/{values["split"]}': values}
  at = values.get('step')
  valid = [r for r in report.records if (r['split'], r['step']) == ('valid', at)]
  if valid and values['split'] != 'valid':
    columns[f'validation, step {at:,}'] = valid[-1]
  for name, label in _VARIANTS.items():
    if isinstance(values.get(name), dict):
      columns[markup.fill(label, values[name])] = values[name]
  for name, baseline in values.get('baselines', {}).items():
    columns[markup.fill(charts.BASELINES.get(name, markup.words(name)), baseline)] = baseline
  rows = []
  for name in names:
    cells = [column.get(name) for column in columns.values()]
    of_class = f' of {values["positive"]}' if name == 'f1' and 'positive' in values else ''
    rows.append([markup.words(name) + of_class, *(number(x, name) if _is_number(x) else Markup('') for x in cells)])
  return table(['metric', *columns], rows, 'numbers', strong=0)


def _is_best(name: str) -> bool:
  """Return True for the figures of the best validation, which may be that of another checkpoint."""
  return name.startswith('validation_') and name != 'validation_baselines'


def _warning(values: Mapping[str, Any]) -> Markup:
  """Return a note if a classifier is not better than always predicting one class."""
  majority, accuracy = (values.get(name) for name in ('majority_accuracy', 'accuracy'))
  if not (_is_number(majority) and _is_number(accuracy)) or not accuracy <= majority < 1:
    return Markup('')
  text = f'Accuracy {accuracy:.1%} is not above that of always predicting the most frequent class, {majority:.1%}.'
  return tag('p', text, cls='note')


def _facts(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
  """Yield what says how the metrics were measured."""
  yield 'split', f'{values["dataset"]}/{values["split"]}'
  if 'tokens_counted' in values:
    yield 'counted', tag('span', number(values['tokens_counted']), f' {values.get("unit", "tokens")}')
  for name in _COUNTS:
    if _is_number(values.get(name)):
      yield markup.words(name), number(values[name])
  best = [(markup.words(name), number(x, name)) for name, x in values.items() if _is_best(name) and _is_number(x)]
  if best:
    yield 'best validation', _listed((f'{name} '.replace('validation ', ''), x) for name, x in best)
  if 'step' in values:
    yield 'checkpoint', tag('span', 'step ', number(values['step']))
  for name, value in values.items():
    if isinstance(value, str) and name not in _NAMED:
      yield markup.words(name), value
    elif isinstance(value, list) and value and len(value) <= 12 and all(map(_is_number, value)):
      yield markup.words(name), _listed((number(x),) for x in value)


def _listed(items: Iterable[tuple[str, ...]]) -> Markup:
  """Return items of one or more texts each, with commas between the items."""
  return tag('span', *(text for i, item in enumerate(items) for text in (', ' * (i > 0), *item)))


def _lists(values: Mapping[str, Any]) -> Iterator[Markup]:
  """Yield a table of each metric that is a list of rows, such as BLEU by length."""
  for name, rows in values.items():
    if isinstance(rows, list) and rows and all(isinstance(row, dict) and row for row in rows):
      keys = [k for k in rows[0] if not (k in ('above', 'up_to') and 'words' in rows[0])]
      cells = [[row.get(k) for k in keys] for row in rows]
      shown = [[number(x) if _is_number(x) else '' if x is None else str(x) for x in line] for line in cells]
      head = [markup.words(k) for k in keys]
      yield Markup(tag('h3', charts.title(name)) + table(head, shown, 'numbers'))


def _classes(classes: Mapping[str, Mapping[str, Any]]) -> Markup:
  """Return precision, recall and F1 of each class; the bars are the shares."""
  rows = []
  for name, one in classes.items():
    empty = by_class.undefined(one)
    shown = lambda key, one=one, empty=empty: (
      '-' if key in empty else number(one[key], 'f1 of a class' if key == 'f1' else key)
    )
    bars = [tag('td', shown(key), cls='bar', style=f'--s:{one[key]:.3f}') for key in ('precision', 'recall', 'f1')]
    rows.append([name, *bars, number(one['count'])])
  return table(['class', 'precision', 'recall', 'F1', 'count'], rows, 'numbers')


def _confusion(counts: Sequence[Sequence[int]], names: Sequence[str]) -> Iterator[Markup]:
  """Yield the matrix, or the largest confusions of many classes."""
  counts_CC = np.asarray(counts, np.int64).reshape(len(names), len(names))
  right, total = int(np.trace(counts_CC)), int(counts_CC.sum())
  yield tag('p', f'{right:,} of {total:,} on the diagonal. A shade is the share of the true class.', cls='faint')
  if len(names) > _MOST_CLASSES:
    wrong = counts_CC * (1 - np.eye(len(names), dtype=np.int64))
    order = np.argsort(-wrong, axis=None, kind='stable')[:_MOST_CONFUSIONS]
    pairs = [np.unravel_index(i, wrong.shape) for i in order if wrong.flat[i]]
    yield table(['true', 'predicted', 'count'], [[names[i], names[j], number(int(wrong[i, j]))] for i, j in pairs])
    return
  share_CC = counts_CC / np.maximum(counts_CC.sum(axis=1, keepdims=True), 1)
  cells = [
    [
      (
        float(share_CC[i, j]),
        f'{counts_CC[i, j]:,}' if counts_CC[i, j] else '',
        f'true {true}, predicted {predicted}: {counts_CC[i, j]:,} of {counts_CC[i].sum():,} ({share_CC[i, j]:.1%})',
        i == j,
      )
      for j, predicted in enumerate(names)
    ]
    for i, true in enumerate(names)
  ]
  yield markup.matrix(names, names, cells, ('true', 'predicted'))


def texts(report: Report) -> Markup:
  """Return samples, translations and answers."""
  parts: list[Markup] = []
  for i, (title, text) in enumerate(report.samples):
    left = f'\n... {len(text) - _LONGEST:,} more characters in samples.txt' if len(text) > _LONGEST else ''
    parts.append(markup.details(title, tag('pre', text[:_LONGEST] + left), is_open=i == 0))
  if report.translations:
    count = len(report.translations)
    rows = [[f'{i:,}', line] for i, line in enumerate(report.translations[:_MOST_IN_ALL], 1)]
    parts.append(_long_table(f'Translations: {count:,} lines', ('line', 'translation'), rows, count))
  if report.answers:
    count = len(report.answers)
    rows = [[key, str(text)] for key, text in list(report.answers.items())[:_MOST_IN_ALL]]
    parts.append(_long_table(f'Answers: {count:,} questions', ('question', 'answer'), rows, count))
  return section('samples', 'Samples', *parts)


def _long_table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], count: int) -> Markup:
  """Return a table whose first rows are shown, and the rest below a line that opens."""
  parts = [tag('h3', title), table(head, rows[:_MOST_LINES])]
  if len(rows) > _MOST_LINES:
    left = f' (of {count:,})' if count > len(rows) else ''
    parts.append(markup.details(f'lines {_MOST_LINES + 1} to {len(rows)}{left}', table(head, rows[_MOST_LINES:])))
  return Markup(''.join(parts))


def attention(report: Report) -> Markup:
  """Return the attention maps, target tokens down and source tokens across."""
  maps = []
  for one in report.maps:
    cells = [
      [(float(a), '', f'{word} → {of}: {a:.3f}', True) for of, a in zip(one.source, row_S, strict=True)]
      for word, row_S in zip(one.target, one.weights_TS, strict=True)
    ]
    maps.append(markup.matrix(one.target, one.source, cells, ('target', 'source'), 'map'))
  about = tag('p', 'Weights of the source tokens for each target token; a row sums to 1.', cls='faint')
  return section('attention', 'Attention', *([about, tag('div', *maps, cls='maps')] if maps else []))


def pictures(report: Report) -> Markup:
  """Return the further pictures of the work directory."""
  figures = [
    tag('figure', tag('figcaption', tag('b', name)), tag('img', src=f'data:image/png;base64,{content}', alt=name))
    for name, content in report.pictures
  ]
  return section('pictures', 'Pictures', tag('div', *figures, cls='pictures') if figures else '')


def config(report: Report) -> Markup:
  """Return every key of the config by section, those that are not the default marked."""
  count = sum(setting.is_changed for each in report.settings.values() for setting in each)
  options = tag(
    'div',
    tag('input', type='search', placeholder='key, value or help', aria_label='filter the keys'),
    tag('label', tag('input', type='checkbox', checked=True), f'only the {count:,} that are not the default'),
    cls='options',
    hidden=True,
  )
  parts = [options]
  for title, settings in report.settings.items():
    rows = [
      tag(
        'tr',
        tag('th', tag('span', _breakable(setting.key), cls='key'), scope='row'),
        tag('td', setting.value, cls='value'),
        tag('td', setting.default if setting.is_changed else '', cls='value'),
        cls='changed' if setting.is_changed else '',
        title=setting.help or None,
      )
      for setting in settings
    ]
    names = tag('tr', *(tag('th', name, scope='col') for name in ('key', 'value', 'default')))
    inner = tag('table', tag('thead', names), tag('tbody', *rows), cls='keys')
    parts.append(markup.details(markup.prose(title), inner, is_open=True, cls='part'))
  return section('config', 'Config', *parts)


def _breakable(key: str) -> Markup:
  """Return a key that may continue on the next line after a dot or an underscore."""
  return Markup(re.sub(r'([._])', r'\1<wbr>', markup.escape(key)))


def environment(report: Report) -> Markup:
  """Return the command, devices, versions and hashes of the run."""
  values = report.results
  rows: list[tuple[str, Any]] = [('work directory', report.run)]
  if command := values.get('command'):
    rows.append(('command', tag('code', shlex.join(map(str, command)))))
  for name in ('device', 'commit', 'seed', 'config_hash', 'data_hash', 'skipped_updates'):
    if values.get(name) not in (None, ''):
      rows.append((markup.words(name), tag('code', str(values[name]))))
  for name, text in (('training_seconds', 'training'), ('seconds', 'in all')):
    if _is_number(values.get(name)):
      rows.append((text, tag('span', number(values[name]), f' s ({markup.duration(values[name])})')))
  rows += [(f'{name}', tag('code', str(version))) for name, version in values.get('versions', {}).items()]
  if 'imported_from' in report.data:
    rows.append(('imported from', str(report.data['imported_from'])))
  dataset = report.data.get('dataset')
  if isinstance(dataset, dict):
    parts = [f'{name} {value}' for name, value in dataset.items() if not isinstance(value, dict)]
    rows.append(('data', ', '.join(parts)))
  note = ''
  if not values and report.state != 'imported':
    note = tag('p', 'Versions, devices and the command are written when the run is finished.', cls='faint')
  return section('environment', 'Environment', table((), rows, 'facts'), note)


def footer(report: Report) -> Markup:
  """Return the line at the end of the page."""
  import lmx

  return tag('footer', f'Written by lmx {lmx.__version__}: lmx report {shlex.quote(report.run)}')
