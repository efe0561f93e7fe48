"""Contents of the sections of the page: tiles, metrics, classes, confusions, texts, attention and environment."""

from __future__ import annotations

import base64
import json
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from markupsafe import Markup

from lmx.metrics import by_class, correlation, language
from lmx.reporting import ledger, loss_curve
from lmx.reporting.html_report import charts, formats
from lmx.reporting.html_report.formats import number, words

if TYPE_CHECKING:
  from lmx.reporting.html_report import AttentionMap, Neighbours, Report

_COUNTS = ('sentences', 'questions', 'sources_cut')
_NOT_METRICS = (  # numbers in results.json
  *('step', 'steps', 'seed', 'seconds', 'training_seconds', 'skipped_updates', 'tokens_counted', 'words_counted'),
  'majority_class',
  *_COUNTS,
)
_NAMED = ('name', 'model', 'dataset', 'split', 'metric', 'unit', 'data_hash', 'config_hash', 'commit', 'device')
_MAX_CLASSES = 60  # in a confusion matrix; for more, the largest confusions are listed
_MAX_CONFUSIONS = 30
_FIRST_LINES = 10  # translations or answers shown before the fold
_MAX_LINES = 500
_MAX_CHARACTERS = 20_000  # per sample
_VARIANTS = {'cache': 'with a cache of {window}', 'mixture': 'mixed with {name}'}  # results with other predictions
MOST_TOKENS = 40  # of an axis of an attention map
_MOST_MISTAKES, _MOST_PER_CELL = 500, 20
LISTED = {  # kind of saved rows -> title and head of the list of wrong ones
  'classification': ('Misclassified rows', ['row', 'true', 'predicted', 'probability', 'text']),
  'regression': ('Largest errors', ['row', 'score', 'predicted', 'error', 'text']),
}
_UNSAVED = (
  'To list the {title} here, save the rows by `{command}` and run `lmx report {run} --rows=ROWS`. A training with '
  '`--config.evaluation.save_rows=true` saves them at its end.'
)
_ADDED = 'Options of `lmx report {run}` add to this page: {options}.'
_OPTIONS = {
  'attention': '`--attention="TEXT"` the attention weights on a text, if the model has attention',
  'neighbours': '`--words=A,B` the nearest words in the embedding table',
}
_UNFINISHED = {
  'finished': '',
  'imported': 'This run holds imported weights; lmx has neither trained nor measured it.',
  'running': 'The run is at step {step:,} of {steps:,}. Results are written after the last one.',
  'stopped': 'The run stopped at step {step:,} of {steps:,}. Its `lmx train` command resumes it.',
}

Table = tuple[list[Any], list[list[Any]]]  # head and rows
# Table of shaded cells: axes, columns, (name, cells) per row, CSS class. A cell is its shade from 0 to 1, its text, its
# tooltip, and whether it counts as correct, which selects the colour.
Matrix = tuple[tuple[str, str], Sequence[str], list[tuple[str, list[tuple[float, str, str, bool]]]], str]


def contents(report: Report) -> dict[str, Any]:
  """Return the template variables that describe the run."""
  values = report.results
  data = report.data.get('dataset')
  data = data if isinstance(data, dict) else {}
  is_partial = report.state in ('running', 'stopped') and report.steps
  return {
    'about': ' · '.join(filter(None, [report.model, str(data.get('name') or ''), str(data.get('config') or '')])),
    'tiles': list(_tiles(report)),
    'progress': f'{min(report.step / report.steps, 1):.1%}' if is_partial else '',
    'unfinished': _UNFINISHED[report.state].format(step=report.step, steps=report.steps),
    'metrics': _metrics(report) if values else None,
    'warning': _warning(values),
    'facts': list(_facts(report)) if values else [],
    'lists': list(_lists(values)),
    'raw': json.dumps(_strict(values), indent=1, ensure_ascii=False),
    'by_class': list(_classes(values.get('classes', {}))),
    'confusions': _confusions(values['confusion'], values['labels']) if 'confusion' in values else None,
    'lines': list(_lines(report)),
    'longest': _MAX_CHARACTERS,
    'attention_rows': [{'title': row.title, 'maps': [_map(one) for one in row.maps]} for row in report.attention],
    'most_tokens': MOST_TOKENS,
    'neighbour_tables': [(one.table, list(_neighbours(one))) for one in report.neighbours],
    'mistakes': _mistakes(report),
    'hint': _hint(report),
    'changed': sum(setting.is_changed for each in report.settings.values() for setting in each),
    'times': _times(report.time) if report.time else None,
    'environment_rows': list(_environment(report)),
  }


def _tiles(report: Report) -> Iterator[tuple[str, Any, str]]:
  """Yield (name, value, note) of the main numbers, the headline metric first."""
  results = report.results
  if report.value is not None:
    note = f'on {results["dataset"]}/{results["split"]}' if results else 'in the last validation'
    note += f', {uncharged}' if (uncharged := language.describe_uncharged(results, report.metric)) else ''
    note += f', 95% interval {_interval(report)}' if 'interval' in results else ''
    yield words(report.metric), shown(report, report.metric, report.value), note
  if report.best:
    name, value, step, is_highest = report.best
    title = f'{"highest" if is_highest else "lowest"} validation {words(name)}'
    yield title, shown(report, name, value), f'at step {step:,}{", selected by train.best_by" * (name != "loss")}'
  if report.step or report.steps:
    is_partial = report.steps and report.state not in ('finished', 'imported')
    yield 'updates', number(report.step), f'of {report.steps:,}' if is_partial else ''
  seconds = results.get('training_seconds') or max((r.get('seconds', 0) for r in report.records), default=0)
  if seconds:
    yield 'training time', formats.duration(seconds), ''
  if report.time:
    yield 'goodput', number(report.time['goodput'], is_share=True), 'of the wall time in training steps'
  if 'tokens_counted' in results:
    yield f'{results.get("unit", "tokens")} counted', number(results['tokens_counted']), ''


def shown(report: Report, name: str, value: Any) -> Markup:
  """Return the value of a metric, or of that of the best validation."""
  return number(value, is_share=name.removeprefix('validation_') in report.shares)


def _interval(report: Report) -> str:
  """Return the bounds of the headline metric's interval."""
  is_share = report.metric in report.shares
  return ' to '.join(formats.plain(bound, is_share=is_share) for bound in report.results['interval'])


def _strict(values: Any) -> Any:
  from lmx.reporting import run_log

  return run_log.to_json(values)


def _is_number(value: Any) -> TypeGuard[float]:
  return isinstance(value, int | float) and not isinstance(value, bool)


def _metrics(report: Report) -> Table:
  """Return the table of metrics: of the run, its validation and the baselines."""
  values = report.results
  names = metric_names(report)
  columns: dict[str, Mapping[str, Any]] = {f'{values["dataset"]}/{values["split"]}': values}
  at = values.get('step')
  valid = [r for r in report.records if (r['split'], r['step']) == ('valid', at)]
  if valid and values['split'] != 'valid':
    columns[f'validation, step {at:,}'] = valid[-1]
  for name, label in _VARIANTS.items():
    if isinstance(values.get(name), dict):
      columns[formats.fill(label, values[name])] = values[name]
  for name, baseline in values.get('baselines', {}).items():
    if 'skipped' not in baseline:
      columns[_baseline(name, baseline)] = baseline
  rows = []
  for name in names:
    cells = [column.get(name) for column in columns.values()]
    of_class = f' of {values["positive"]}' if name == 'f1' and 'positive' in values else ''
    rows.append([words(name) + of_class, *(shown(report, name, x) if _is_number(x) else '' for x in cells)])
  return ['metric', *columns], rows


def _baseline(name: str, baseline: Mapping[str, Any]) -> str:
  """Return the label of a baseline."""
  return formats.fill(loss_curve.BASELINES.get(name, words(name)), baseline)


def metric_names(report: Report) -> list[str]:
  """Return the names of the metrics in the results, the headline first."""
  values = report.results
  names = [
    name for name, value in values.items() if _is_number(value) and name not in _NOT_METRICS and not _is_best(name)
  ]
  if 'classes' in values:
    names = [name for name in names if not charts.PER_CLASS.search(name)]
  return sorted(names, key=lambda name: name != values['metric'])


def _is_best(name: str) -> bool:
  """Return True for metrics of the best validation, which may have had another checkpoint."""
  return name.startswith('validation_') and name != 'validation_baselines'


def _warning(values: Mapping[str, Any]) -> str:
  """Return a note if a classifier does not beat the most frequent class, or a regression predicts nearly a constant."""
  ratio = values.get('deviation_ratio')
  if _is_number(ratio) and ratio < correlation.LEAST_DEVIATION:
    return f'Predictions are nearly equal: their standard deviation is {ratio:.2%} of that of the scores.'
  majority, accuracy = (values.get(name) for name in ('majority_accuracy', 'accuracy'))
  if not (_is_number(majority) and _is_number(accuracy)) or not accuracy <= majority < 1:
    return ''
  return f'Accuracy {accuracy:.1%} is not above the majority-class baseline, {majority:.1%}.'


def _facts(report: Report) -> Iterator[tuple[str, Any]]:
  """Yield the split, counts and protocol of the metrics."""
  values = report.results
  yield 'split', f'{values["dataset"]}/{values["split"]}'
  for name, baseline in values.get('baselines', {}).items():
    if 'skipped' in baseline:
      yield _baseline(name, baseline), baseline['skipped']
  if 'tokens_counted' in values:
    yield 'counted', Markup('{} {}').format(number(values['tokens_counted']), values.get('unit', 'tokens'))
  if 'words_counted' in values:
    yield 'perplexity per word counts', Markup('{} {}').format(number(values['words_counted']), values['word_rule'])
  for name in _COUNTS:
    if _is_number(values.get(name)):
      yield words(name), number(values[name])
  best = [(words(name), shown(report, name, x)) for name, x in values.items() if _is_best(name) and _is_number(x)]
  if best:
    by = f', by {words(report.best[0])}' if report.best else ''
    yield (
      f'best validation{by}',
      _listed(Markup('{} {}').format(name.replace('validation ', ''), x) for name, x in best),
    )
  if 'step' in values:
    yield 'checkpoint', Markup('step {}').format(number(values['step']))
  if 'interval' in values:
    over = f'{values["rows"]["count"]:,} {values["rows"].get("unit", "rows")}'
    yield '95% interval', f'{_interval(report)}, bootstrap over {over}'
  for name, value in values.items():
    if isinstance(value, str) and name not in _NAMED:
      yield words(name), value
    elif isinstance(value, list) and name != 'interval' and value and len(value) <= 12 and all(map(_is_number, value)):
      yield words(name), _listed(number(x) for x in value)


def _listed(items: Iterable[Markup]) -> Markup:
  """Return items with commas between them."""
  return Markup(', ').join(items)


def _lists(values: Mapping[str, Any]) -> Iterator[tuple[str, list[str], list[list[Any]]]]:
  """Yield a table for each metric that is a list of rows, such as BLEU by length."""
  for name, rows in values.items():
    if name == 'minimal_pairs':  # has its own section
      continue
    if isinstance(rows, list) and rows and all(isinstance(row, dict) and row for row in rows):
      keys = [k for k in rows[0] if not (k in ('above', 'up_to') and 'words' in rows[0])]
      cells = [[row.get(k) for k in keys] for row in rows]
      shown = [[number(x) if _is_number(x) else '' if x is None else str(x) for x in line] for line in cells]
      head = [words(k) for k in keys]
      yield charts.title(name), head, shown


def _classes(classes: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
  """Yield the name, (share, text) of precision, recall and F1, and count of each class; '-' for undefined metrics."""
  for name, one in classes.items():
    empty = by_class.undefined(one)
    bars = [
      (one[key], '-' if key in empty else number(one[key], is_share=True)) for key in ('precision', 'recall', 'f1')
    ]
    yield {'name': name, 'bars': bars, 'count': number(one['count'])}


def _confusions(counts: Sequence[Sequence[int]], names: Sequence[str]) -> dict[str, Any]:
  """Return the confusion matrix, or for many classes the largest confusions."""
  counts_CC = np.asarray(counts, np.int64).reshape(len(names), len(names))
  right, total = int(np.trace(counts_CC)), int(counts_CC.sum())
  summary = f'{right:,} of {total:,} on the diagonal. A shade is the share of the true class.'
  if len(names) > _MAX_CLASSES:
    wrong = counts_CC * (1 - np.eye(len(names), dtype=np.int64))
    order = np.argsort(-wrong, axis=None, kind='stable')[:_MAX_CONFUSIONS]
    pairs = [np.unravel_index(i, wrong.shape) for i in order if wrong.flat[i]]
    largest = [[names[i], names[j], number(int(wrong[i, j]))] for i, j in pairs]
    return {'summary': summary, 'matrix': None, 'largest': largest}
  share_CC = counts_CC / np.maximum(counts_CC.sum(axis=1, keepdims=True), 1)
  rows = []
  for i, true in enumerate(names):
    cells = []
    for j, predicted in enumerate(names):
      count, of, share = counts_CC[i, j], counts_CC[i].sum(), float(share_CC[i, j])
      tooltip = f'true {true}, predicted {predicted}: {count:,} of {of:,} ({share:.1%})'
      cells.append((share, f'{count:,}' if count else '', tooltip, i == j))
    rows.append((true, cells))
  return {'summary': summary, 'matrix': (('true', 'predicted'), names, rows, ''), 'largest': []}


def _lines(report: Report) -> Iterator[tuple[str, list[str], list[list[str]], tuple[str, list[list[str]]] | None]]:
  """Yield (title, head, first rows, title and rows of the rest) for translations and answers."""
  translations = [[f'{i:,}', line] for i, line in enumerate(report.translations, 1)]
  answers = [[key, str(text)] for key, text in report.answers.items()]
  for name, unit, head, every in (
    ('Translations', 'lines', ['line', 'translation'], translations),
    ('Answers', 'questions', ['question', 'answer'], answers),
  ):
    rows = every[:_MAX_LINES]
    left = f' (of {len(every):,})' if len(every) > len(rows) else ''
    rest = f'lines {_FIRST_LINES + 1} to {len(rows)}{left}', rows[_FIRST_LINES:]
    if rows:
      yield f'{name}: {len(every):,} {unit}', head, rows[:_FIRST_LINES], rest if rest[1] else None


def _map(one: AttentionMap) -> dict[str, Any]:
  """Return the template variables of an attention map: the last layer's mean over heads, and all weights as bytes."""
  a_TS = one.weights_NHTS[-1].mean(axis=0)
  largest = max(float(a_TS.max(initial=0)), 1e-9)
  rows = [
    (
      query,
      [(math.sqrt(a / largest), '', f'{query} → {key}: {a:.2f}', True) for key, a in zip(one.keys, a_S, strict=True)],
    )
    for query, a_S in zip(one.queries, a_TS, strict=True)
  ]
  weights = np.round(255 * one.weights_NHTS.clip(0, 1)).astype(np.uint8).tobytes()
  return {
    'title': one.title,
    'layers': one.layers,
    'heads': one.weights_NHTS.shape[1],
    'weights': base64.b64encode(weights).decode(),
    'matrix': (('query', 'key'), one.keys, rows, 'map'),
  }


def _neighbours(one: Neighbours) -> Iterator[list[Any]]:
  """Yield a row for each word with its neighbours."""
  for word, found in one.words:
    yield [word, ', '.join(f'{near} {cosine:.2f}' for near, cosine in found)]


def _hint(report: Report) -> str:
  """Return a note on the options that would add a section to the page, '' if there is none."""
  missing = [text for name, text in _OPTIONS.items() if report.has_tokens and not getattr(report, name)]
  is_trained = report.state in ('finished', 'imported')
  return _ADDED.format(run=shlex.quote(report.run), options=', '.join(missing)) if missing and is_trained else ''


def _mistakes(report: Report) -> dict[str, Any] | None:
  """Return the list of wrong rows, each with its cell of the confusion matrix; its `rows` are None if none are saved.

  The value is None if the page lists no rows of this kind, or the run is not finished.
  """
  if report.rows not in LISTED or not report.results:
    return None
  title, head = LISTED[report.rows]
  if report.mistakes is None:
    unsaved = _UNSAVED.format(title=title.lower(), command=report.save_rows, run=shlex.quote(report.run))
    return {'title': title, 'head': head, 'rows': None, 'note': unsaved}
  if report.rows == 'regression':
    rows = [('', [number(i + 1), *map(number, values), text]) for i, *values, text in report.mistakes[:_MOST_MISTAKES]]
    note = f'{len(rows):,} of {len(report.mistakes):,} rows that are not predicted exactly, the largest errors first.'
    return {'title': title, 'head': head, 'rows': rows, 'note': note}
  index = {label: i for i, label in enumerate(report.results.get('labels', ()))}
  counts: dict[tuple[str, str], int] = {}
  rows = []
  for row, true, predicted, probability, text in report.mistakes:
    counts[true, predicted] = counts.get((true, predicted), 0) + 1
    if counts[true, predicted] <= _MOST_PER_CELL and len(rows) < _MOST_MISTAKES:
      share = '' if probability is None else number(probability, is_share=True)
      cells = [number(row + 1), true, predicted, share, text]
      rows.append((f'{index.get(true, -1)} {index.get(predicted, -1)}', cells))
  total = sum(counts.values())
  note = (
    f'{len(rows):,} of {total:,} rows, the most probable predictions first.' if total else 'No row is misclassified.'
  )
  return {'title': title, 'head': head, 'rows': rows, 'note': note}


def _times(time: Mapping[str, Any]) -> Table:
  """Return the table of the wall time of all sessions by parts."""
  wall = time['wall_seconds']
  rows = [
    [ledger.PARTS.get(part, part), formats.duration(seconds), number(seconds / wall, is_share=True)]
    for part, seconds in time['seconds'].items()
  ]
  count = time['sessions']
  return ['part', f'time in {count:,} session{"s" * (count > 1)}', 'share'], [
    *rows,
    ['all', formats.duration(wall), number(1.0, is_share=True)],
  ]


def _environment(report: Report) -> Iterator[tuple[str, Any]]:
  """Yield the command, devices, versions and hashes of the run."""
  values = report.results
  yield 'work directory', report.run
  if command := values.get('command'):
    yield 'command', formats.code(shlex.join(map(str, command)))
  for name in ('device', 'commit', 'seed', 'config_hash', 'data_hash', 'skipped_updates'):
    if values.get(name) not in (None, ''):
      yield words(name), formats.code(values[name])
  for name, text in (('training_seconds', 'training'), ('seconds', 'in all')):
    if _is_number(values.get(name)):
      yield text, Markup('{} s ({})').format(number(values[name]), formats.duration(values[name]))
  for name, value in values.get('utilisation', {}).items():
    if _is_number(value):
      yield charts.title(name), number(value, is_share=name in ('mfu', 'wait_share'))
  for name, version in {**values.get('versions', {}), **values.get('flags', {})}.items():
    yield name, formats.code(version)
  if 'imported_from' in report.data:
    yield 'imported from', str(report.data['imported_from'])
  dataset = report.data.get('dataset')
  if isinstance(dataset, dict):
    yield 'data', ', '.join(f'{name} {value}' for name, value in dataset.items() if not isinstance(value, dict))
