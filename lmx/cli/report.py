"""`lmx report`: a run as one HTML page, or several runs on one.

lmx report DIR [--output=FILE.html] [--attention] [--attention="TEXT"] [--words[=A,B]] [--rows=ROWS]
lmx report DIR DIR .. --output=FILE.html

The page of a run has curves, results, classes and confusions with the misclassified rows, samples, config and
environment; it opens from the disk and loads nothing. It may be written while the run trains. --attention and --words
read the checkpoint of results.json: attention weights of a few rows, and nearest neighbours in the embedding table. The
page of several finished runs has their curves overlaid, their results and the differences of their configs.
"""

from __future__ import annotations

import argparse
import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx import documents, records, storage
from lmx.cli import config as config_command
from lmx.cli import runs
from lmx.errors import InputError, writing
from lmx.redaction import redact
from lmx.reporting import ledger

DEFAULT = 'report.html'
_SHOWN = ('loss.png', 'confusion.png')  # which the page draws itself
_MOST_PICTURES, _MOST_BYTES = 12, 4_000_000
_SAMPLES = 12  # number of steps with samples
_OPERATIONS = 30  # of a profile
_ATTENTION_ROWS = 3  # of the evaluated split


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument(
    'workdirs', metavar='DIR', nargs='+', help='work directory of a run, finished or not, or of imported weights'
  )
  parser.add_argument('--output', default='', metavar='FILE.html', help=f'page to write (default: DIR/{DEFAULT})')
  parser.add_argument(
    '--attention',
    default=[],
    action='append',
    nargs='?',
    const='',
    metavar='TEXT',
    help='show the attention on TEXT, which an encoder-decoder translates, on two texts separated by a tab, or without '
    'TEXT on rows of the evaluated split; repeatable',
  )
  parser.add_argument(
    '--words', nargs='?', const='', metavar='A,B', help='show the nearest words of these, or of frequent words'
  )
  parser.add_argument(
    '--rows',
    default='',
    metavar='ROWS',
    help='folder of lmx evaluate --save_rows=ROWS: lists misclassified rows, or the largest errors of a regression',
  )


def run(args: argparse.Namespace) -> int:
  from lmx.config import run_files

  workdirs = [storage.path('DIR', name, storage.FOLDER) for name in args.workdirs]
  if len(workdirs) > 1:
    return _compare(args, workdirs)
  (workdir,) = workdirs
  run_files.read_config(workdir)  # a missing run is reported before JAX is imported
  from lmx.reporting import html_report

  path = storage.path('--output', args.output, storage.FILE) if args.output else workdir / DEFAULT
  report = read(workdir, storage.path('--rows', args.rows, storage.FOLDER) if args.rows else None)
  check_output(path, is_named=bool(args.output))
  report = report._replace(**_learned(workdir, args.attention, args.words))
  _write(path, html_report.render(report))
  print(f'wrote {path}: {report.name}, {report.state}')
  return 0


def _compare(args: argparse.Namespace, workdirs: Sequence[Any]) -> int:
  """Write the page of several runs."""
  from lmx.config import run_files
  from lmx.reporting import COLOURS

  for name in ('attention', 'words', 'rows'):
    if getattr(args, name) not in ([], None, ''):
      raise InputError(f'--{name}: got it with {len(workdirs)} runs; expected one run; omit it')
  if not args.output:
    raise InputError(f'--output: got none with {len(workdirs)} runs; expected a file, such as --output=compare.html')
  if len(workdirs) > COLOURS:
    raise InputError(f'DIR: got {len(workdirs)} runs; expected at most {COLOURS}; name fewer')
  if len({*map(str, workdirs)}) < len(workdirs):
    raise InputError('DIR: got a run twice; expected different runs; name each once')
  for workdir in workdirs:
    run_files.read_config(workdir)  # a missing run is reported before JAX is imported
  from lmx.reporting import html_report

  path = storage.path('--output', args.output, storage.FILE)
  reports = [read(workdir) for workdir in workdirs]
  for workdir, report in zip(workdirs, reports, strict=True):
    if not report.results:
      raise InputError(f'{workdir}: got a run without results ({report.state}); expected a finished run; omit it')
  check_output(path, is_named=True)
  _write(path, html_report.compare(reports))
  print(f'wrote {path}: {", ".join(report.name for report in reports)}')
  return 0


def _learned(workdir: Any, texts: Sequence[str], words: str | None) -> dict[str, Any]:
  """Return what the page shows of the measured checkpoint: attention on texts, and neighbours of words."""
  if not texts and words is None:
    return {}
  from lmx import inference
  from lmx.evaluation import attention_maps
  from lmx.prediction import word_neighbours

  loaded = inference.load(workdir)
  rows = attention_maps.of_split(loaded, _ATTENTION_ROWS) if '' in texts else []
  given = [text for text in texts if text]
  rows += attention_maps.of_texts(loaded, given) if given else []
  if words is None:
    return {'attention': rows}
  chosen = list(dict.fromkeys(word.strip() for word in words.split(',') if word.strip()))
  return {'attention': rows, 'neighbours': word_neighbours.find(loaded, chosen)}


def check_output(path: Any, *, is_named: bool) -> None:
  """Raise InputError if a page would overwrite a file that `lmx report` did not write.

  Args:
    path: the file.
    is_named: the user named the file, so any page may be overwritten.
  """
  from lmx.reporting import html_report

  is_file = path.is_file()
  if path.is_dir():
    raise InputError(f'--output: got the folder {path}; expected a file, such as {path / DEFAULT}')
  if path.suffix not in ('.html', '.htm') and (is_file or not path.exists()):  # a pipe has any name
    raise InputError(f'--output: got {path}; expected a name that ends in .html')
  if is_file and not is_named and html_report.MARK.encode() not in documents.read_bytes(path)[:2000]:
    raise InputError(f'{path}: got a file that lmx report did not write; choose another by --output')


def _write(path: Any, text: str) -> None:
  from lmx.reporting import run_log

  content = text.encode(errors='replace').decode()  # a path may have bytes that are not UTF-8
  if storage.is_remote(path):
    with writing(str(path)):
      path.write_text(content, encoding='utf-8')
  else:
    run_log.write_text(str(path), content)


def read(workdir: Any, rows: Any = None) -> Any:
  """Return the `Report` of a work directory, with the wrong rows in `rows`, or those that the run saved.

  Raises:
    InputError: a file is damaged, or `rows` is of another evaluation.
  """
  from lmx import objectives
  from lmx.config import fields, resolve, run_files
  from lmx.evaluation import pairs_files
  from lmx.models import registry
  from lmx.reporting import html_report

  config = resolve.resolve(run_files.read_config(workdir), saved=True)
  required = ('model', 'dataset', 'split', 'metric')
  data, results = run_files.read_data(workdir), redact(records.read_results(workdir, required))
  log = sorted(records.read_metrics(workdir), key=lambda record: record['step'])
  shown, values, run_config = runs.read_row(workdir), resolve.flatten(config), resolve.to_run(config)
  metric, value = headline(run_config, log, results)
  settings = {
    f'{section.name or "run"}: {section.summary}': [
      html_report.Setting(field.key, value, default, field.help, _is_changed(field, default))
      for field, value, default in config_command.settings(section, values)
    ]
    for section in fields.sections(config)
  }
  return html_report.Report(
    run=redact(str(workdir)),
    state=shown['state'],
    name=str(results.get('name') or values.get('name') or workdir.name),
    model=str(results.get('model') or registry.label(run_config.model_name, run_config.variant, run_config.model)),
    step=shown['step'],
    steps=shown['steps'] or 0,
    metric=metric,
    value=value,
    records=log,
    best=runs.best_validation(records.read_config(workdir), log),
    results=results,
    time=ledger.read(workdir),
    data=data,
    settings=settings,
    samples=read_samples(workdir),
    translations=_text(workdir / 'translations.txt').splitlines(),
    answers=records.read_if_exists(workdir / 'predictions.json'),
    pictures=list(_pictures(workdir)),
    pairs=pairs_files.read(workdir),
    profile=_profile(workdir),
    mistakes=_mistakes(workdir, results, rows),
    rows=objectives.get(run_config.objective_name).ROWS,
    save_rows=redact(records.save_rows_command(workdir, results)),
    has_tokens=registry.get(run_config.model_name).READS not in ('images', 'vectors'),
    shares=frozenset(one.name for one in objectives.get(run_config.objective_name).METRICS if one.is_share),
  )


def _profile(workdir: Any) -> Any:
  """Return the `ProfileTables` of the newest profile, None without one."""
  from lmx.compilation import profile
  from lmx.reporting import html_report

  found = profile.folders(workdir)
  if not found:
    return None
  newest = profile.load(found[-1])
  tables = profile.table(newest, _OPERATIONS), profile.layer_table(newest)
  return html_report.ProfileTables(profile.title(newest), *tables)


def headline(config: Any, log: Sequence[Mapping[str, Any]], results: Mapping[str, Any]) -> tuple[str, Any]:
  """Return the main metric and its value: of the results, or of the last validation; None before there is one."""
  from lmx import objectives

  if results:
    return results['metric'], results[results['metric']]
  last: Mapping[str, Any] = next((record for record in reversed(log) if record['split'] == 'valid'), {})
  name = objectives.get(config.objective_name).headline(config.objective, last)
  name = name if name in last else 'loss'
  return name, last.get(name)


def _is_changed(field: Any, default: str) -> bool:
  """Return True if a value differs from its default; a required key has no default."""
  return bool(default) and (field.default is not None or 'None' in field.type)


def _text(path: Any) -> str:
  """Return a file's text, '' if there is no file; bytes that are not UTF-8 are escaped."""
  return documents.read_bytes(path).decode(errors='replace') if path.exists() else ''


def read_samples(workdir: Any) -> list[tuple[str, str]]:
  """Return (title, text) of samples, the newest first: of the first and the last step, and evenly of those between."""
  from lmx.reporting import run_log

  before, *parts = run_log.SAMPLE.split(_text(workdir / 'samples.txt'))
  pairs = [(f'step {int(step):,}', text.strip('\n')) for step, text in zip(parts[::2], parts[1::2], strict=True)]
  other = [('without a step', before.strip('\n'))] if before.strip() else []
  chosen = {*np.linspace(0, len(pairs) - 1, min(len(pairs), _SAMPLES)).round().astype(int)}
  return [pairs[i] for i in sorted(chosen, reverse=True)] + other


def _mistakes(workdir: Any, results: Mapping[str, Any], folder: Any) -> list[Any] | None:
  """Return the wrong rows of the run's evaluation, of `folder` if given, as `Report.mistakes`.

  Raises:
    InputError: `folder` has the rows of another evaluation, or rows that the page does not list.
  """
  from lmx.evaluation import rows
  from lmx.reporting import html_report

  about = results if folder is None else records.read_results(folder, ('dataset', 'split'))
  if folder is not None:
    for name in ('dataset', 'split', 'step', 'config_hash'):
      if about.get(name) != results.get(name):
        raise InputError(
          f'--rows: got {name}={about.get(name)} in {folder}; expected {results.get(name)}, as in {workdir}; '
          f'evaluate the run again by `{records.save_rows_command(workdir, results)}`'
        )
    if (kind := about.get('rows', {}).get('kind')) not in html_report.LISTED:
      raise InputError(
        f'--rows: got rows of {kind} in {folder}; expected rows of {" or ".join(html_report.LISTED)}, which the page '
        'lists; omit it'
      )
  if about.get('rows', {}).get('kind') not in html_report.LISTED:
    return None
  if folder is None and not (workdir / records.ROWS).exists():
    return None
  found = rows.read(workdir if folder is None else folder, about) or []
  last, wrong = 'probability', [row for row in found if row['label'] != row['prediction']]
  if about['rows']['kind'] == 'regression':
    last, wrong = 'error', [row | {'error': row['prediction'] - row['label']} for row in wrong]
  wrong.sort(key=lambda row: -abs(row.get(last) or 0))
  fields = ('row', 'label', 'prediction', last, 'text')
  return [tuple(redact(row.get(name, '' if name == 'text' else None)) for name in fields) for row in wrong]


def _pictures(workdir: Any) -> Any:
  """Yield (name, base64) of the pictures that the page does not draw itself."""
  names = sorted(path.name for path in workdir.iterdir() if re.search(r'\.png$', path.name) and path.name not in _SHOWN)
  for name in names[:_MOST_PICTURES]:
    content = documents.read_bytes(workdir / name)
    if content.startswith(b'\x89PNG') and len(content) <= _MOST_BYTES:
      yield name, base64.b64encode(content).decode()
