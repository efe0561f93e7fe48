"""`lmx report DIR [--output=FILE.html] [--attention="TEXT"]`: a run as one HTML page, DIR/report.html without --output.

The page has curves, results, classes and confusions, samples, config and environment; it opens from the disk and loads
nothing. It may be written while the run trains. Of an encoder-decoder with attention, --attention translates TEXT with
the best checkpoint and shows the weights.
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

DEFAULT = 'report.html'
_SHOWN = ('loss.png', 'confusion.png')  # which the page draws itself
_MOST_PICTURES, _MOST_BYTES = 12, 4_000_000
_SAMPLES = 8  # number of steps with samples


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('workdir', metavar='DIR', help='work directory of a run, finished or not, or of imported weights')
  parser.add_argument('--output', default='', metavar='FILE.html', help=f'page to write (default: DIR/{DEFAULT})')
  parser.add_argument(
    '--attention', default=[], action='append', metavar='TEXT', help='translate TEXT and show the attention; repeatable'
  )


def run(args: argparse.Namespace) -> int:
  from lmx.config import run_files

  workdir = storage.path('DIR', args.workdir, storage.FOLDER)
  run_files.read_config(workdir)  # a missing run is reported before JAX is imported
  from lmx.reporting import html_report

  path = storage.path('--output', args.output, storage.FILE) if args.output else workdir / DEFAULT
  report = read(workdir)
  check_output(path, is_named=bool(args.output))
  if args.attention:
    report = report._replace(maps=attention_maps(workdir, args.attention))
  _write(path, html_report.render(report))
  print(f'wrote {path}: {report.name}, {report.state}')
  return 0


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


def read(workdir: Any) -> Any:
  """Return the `Report` of a work directory. Raises InputError for a file that is damaged."""
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
    results=results,
    data=data,
    settings=settings,
    samples=read_samples(workdir),
    translations=_text(workdir / 'translations.txt').splitlines(),
    answers=records.read_if_exists(workdir / 'predictions.json'),
    pictures=list(_pictures(workdir)),
    pairs=pairs_files.read(workdir),
    shares=frozenset(one.name for one in objectives.get(run_config.objective_name).METRICS if one.is_share),
  )


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
  """Return (title, text) of the newest samples, the newest first."""
  from lmx.reporting import run_log

  before, *parts = run_log.SAMPLE.split(_text(workdir / 'samples.txt'))
  pairs = [(f'step {int(step):,}', text.strip('\n')) for step, text in zip(parts[::2], parts[1::2], strict=True)]
  other = [('without a step', before.strip('\n'))] if before.strip() else []
  return pairs[: -_SAMPLES - 1 : -1] + other


def _pictures(workdir: Any) -> Any:
  """Yield (name, base64) of the pictures that the page does not draw itself."""
  names = sorted(path.name for path in workdir.iterdir() if re.search(r'\.png$', path.name) and path.name not in _SHOWN)
  for name in names[:_MOST_PICTURES]:
    content = documents.read_bytes(workdir / name)
    if content.startswith(b'\x89PNG') and len(content) <= _MOST_BYTES:
      yield name, base64.b64encode(content).decode()


def attention_maps(workdir: Any, texts: Sequence[str]) -> list[Any]:
  """Return an `AttentionMap` of each text and its translation by the best checkpoint.

  Raises:
    InputError: a text is empty, or the model translates nothing or has no attention.
  """
  from lmx import inference
  from lmx.decoding import translate
  from lmx.engine import precision
  from lmx.reporting import html_report

  if not all(text.strip() for text in texts):
    raise InputError('--attention: got an empty text; expected a line to translate')
  loaded = inference.load(workdir)
  loaded.check('translate')
  translator = loaded.translator()
  translate.check_attention(translator)
  best = [
    np.asarray(hypotheses[0].tokens, np.int32) for hypotheses in loaded.translations(texts, translator=translator)
  ]
  sources = translator.sources(texts)
  with precision.scope(loaded.run.matmul_precision):
    weights = translate.alignments(translator, sources, best)
  label = translate.token_labels
  return [
    html_report.AttentionMap(label(translator.tokenizer, source), label(translator.tokenizer.target, target), a_TS)
    for source, target, a_TS in zip(sources, best, weights, strict=True)
  ]
