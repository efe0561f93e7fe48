"""Report of a run as one self-contained HTML page, light and dark, which loads nothing.

`render` fills the template `page.html.jinja` with a `Report`, and `compare` fills `compare.html.jinja` with several.
The templates escape every text. A page's content security policy admits no script but its own, whose digest it names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

import lmx
from lmx.reporting import templates
from lmx.reporting.html_report import charts, comparison, formats, pairs, sections

MARK = '<meta name="generator" content="lmx report">'  # marks a page that `lmx report` may replace
LISTED = tuple(sections.LISTED)  # kinds of saved rows that the page lists
_FOLDER = pathlib.Path(__file__).parent


class Setting(NamedTuple):
  """A key of the config: its value and default as texts, its help, and whether the value is not the default."""

  key: str
  value: str
  default: str
  help: str
  is_changed: bool


class AttentionMap(NamedTuple):
  """Attention weights of layers with the same queries and keys.

  Attributes:
    title: such as 'Cross-attention'.
    queries: token of each query, T of them.
    keys: token of each key, S of them.
    layers: number of each layer, from 1.
    weights_NHTS: weights of every head of each layer.
  """

  title: str
  queries: list[str]
  keys: list[str]
  layers: list[int]
  weights_NHTS: np.ndarray


class AttentionRow(NamedTuple):
  """Attention of a model on one row."""

  title: str
  maps: list[AttentionMap]


class Neighbours(NamedTuple):
  """Nearest words of some words in an embedding table: (word, its (neighbour, cosine) pairs, nearest first)."""

  table: str
  words: list[tuple[str, list[tuple[str, float]]]]


class ProfileTables(NamedTuple):
  """Newest profile of a run: its updates and times, and rows of its longest operations and of its layers.

  The first row of `operations` and of `layers` is the head.
  """

  title: str
  operations: Sequence[Sequence[str]]
  layers: Sequence[Sequence[str]]


class Report(NamedTuple):
  """Contents of a page.

  Attributes:
    run: path of the work directory.
    state: finished, running, stopped or imported.
    model: such as 'rnn_lm 2x256, 2.77M'.
    step, steps: updates so far, and of the whole run.
    metric, value: headline metric of the results, else of the last validation; the value is None before it.
    records: records of metrics.jsonl.
    results: results.json, {} until the run is finished.
    time: wall time by parts, see `lmx.reporting.ledger.total`; {} if an earlier version has trained the run.
    data: data.json.
    settings: title of a config section -> its keys.
    best: (metric, value, step, True if higher is better) of the validation that `train.best_by` selects, or None.
    samples: (title, text) from samples.txt, newest first.
    translations: lines of translations.txt.
    answers: question id -> answer.
    pictures: (file name, its bytes as base64).
    attention: attention weights of some rows.
    neighbours: nearest words in each embedding table.
    mistakes: (row from 0, true class, predicted class, probability of the prediction or None, text) of every
      misclassified row, the most probable predictions first; of a regression (row from 0, score, prediction, their
      difference, text), the largest errors first; None if the evaluation saved no rows.
    rows: kind of the rows that an evaluation saves, '' for none.
    save_rows: command that saves them.
    shares: names of metrics that are shown in percent.
    pairs: evaluations on minimal pairs, from pairs.json.
    has_tokens: the model reads tokens, whose attention and embeddings options add to the page.
    profile: the newest profile, None without one.
  """

  run: str
  state: str
  name: str
  model: str
  step: int
  steps: int
  metric: str
  value: float | None
  records: Sequence[Mapping[str, Any]]
  results: Mapping[str, Any]
  data: Mapping[str, Any]
  settings: Mapping[str, Sequence[Setting]]
  time: Mapping[str, Any] = {}
  best: tuple[str, float, int, bool] | None = None
  samples: Sequence[tuple[str, str]] = ()
  translations: Sequence[str] = ()
  answers: Mapping[str, Any] = {}
  pictures: Sequence[tuple[str, str]] = ()
  attention: Sequence[AttentionRow] = ()
  neighbours: Sequence[Neighbours] = ()
  mistakes: Sequence[tuple[int, Any, Any, float | None, str]] | None = None
  rows: str = ''
  save_rows: str = ''
  shares: frozenset[str] = frozenset()
  pairs: Sequence[Mapping[str, Any]] = ()
  has_tokens: bool = False
  profile: ProfileTables | None = None


def render(report: Report) -> str:
  """Return the page."""
  first, more = charts.build(report.records, report.results, report.metric)
  drawings = [charts.draw(chart, i, wide=i == 0) for i, chart in enumerate([*first, *more])]
  title = f'{report.name}: {report.state}'
  if report.value is not None:
    title += f', {formats.words(report.metric)} {formats.plain(report.value, is_share=report.metric in report.shares)}'
  return _fill(
    'page.html.jinja',
    drawings,
    [report.run],
    report=report,
    title=title,
    first=first,
    more=more,
    pair_evaluations=list(pairs.contents(report.pairs)),
    **sections.contents(report),
  )


def compare(reports: Sequence[Report]) -> str:
  """Return a page of finished runs: curves overlaid, results side by side, and the config keys that differ."""
  names = comparison.names(reports)
  overlaid = charts.overlay([(name, report.records) for name, report in zip(names, reports, strict=True)])
  drawings = [charts.draw(chart, i) for i, chart in enumerate(overlaid)]
  return _fill(
    'compare.html.jinja',
    drawings,
    [report.run for report in reports],
    title=f'{len(reports)} runs',
    charts=overlaid,
    legend=list(zip(names, range(len(names)), strict=True)),
    metrics=comparison.results(names, reports),
    differences=comparison.settings(names, reports),
  )


def _fill(template: str, drawings: Sequence[charts.Drawing], runs: Sequence[str], **values: Any) -> str:
  """Return a page from a template: its style, script, and the points of its charts."""
  script = (_FOLDER / 'script.js').read_text(encoding='utf-8')
  environment = templates.environment(_FOLDER)
  environment.filters |= {'prose': formats.prose, 'breakable': formats.breakable}
  return environment.get_template(template).render(
    mark=Markup(MARK),
    style=Markup((_FOLDER / 'style.css').read_text(encoding='utf-8')),
    script=Markup(script),
    digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    data=Markup(json.dumps([one.data for one in drawings], separators=(',', ':')).replace('<', r'\u003c')),
    drawings=drawings,
    version=lmx.__version__,
    path=shlex.join(runs),
    **values,
  )
