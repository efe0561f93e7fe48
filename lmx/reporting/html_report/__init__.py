"""Report of a run as one HTML page: no network, no files beside it, light and dark.

`render` makes the page of a `Report`. Everything that comes from files is escaped (`markup`), and the page's content
security policy admits no script but its own, whose digest it names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import pathlib
import string
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx.reporting.html_report import charts, markup, sections
from lmx.reporting.html_report.markup import Markup, tag

MARK = '<meta name="generator" content="lmx report">'  # of a page that `lmx report` may replace
_FOLDER = pathlib.Path(__file__).parent


class Setting(NamedTuple):
  """A key of the config: its value and default as texts, its help, and whether the value is not the default."""

  key: str
  value: str
  default: str
  help: str
  is_changed: bool


class AttentionMap(NamedTuple):
  """Attention weights of a sentence pair, a row for each target token; see `lmx.decoding.translate.alignments`."""

  source: list[str]
  target: list[str]
  weights_TS: np.ndarray


class Report(NamedTuple):
  """Contents of a page.

  Attributes:
    run: path of the work directory.
    state: finished, running, stopped or imported.
    model: such as 'rnn_lm 2x256, 2.77M'.
    step, steps: updates made, and those of the whole run.
    metric, value: the headline, or that of the last validation; value is None before there is one.
    records: records of metrics.jsonl.
    results: results.json, {} before the run is finished.
    data: data.json.
    settings: title of a section of the config -> its keys.
    samples: (title, text) of samples.txt, the newest first.
    translations: lines of translations.txt.
    answers: id of a question -> answer.
    pictures: (name of a file, its bytes as base64).
    maps: attention of sentence pairs.
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
  samples: Sequence[tuple[str, str]] = ()
  translations: Sequence[str] = ()
  answers: Mapping[str, Any] = {}
  pictures: Sequence[tuple[str, str]] = ()
  maps: Sequence[AttentionMap] = ()


def render(report: Report) -> str:
  """Return the page."""
  curves, data = _curves(report)
  parts = [
    curves,
    *sections.results(report),
    sections.texts(report),
    sections.attention(report),
    sections.pictures(report),
    sections.config(report),
    sections.environment(report),
  ]
  parts = [part for part in parts if part]
  script = (_FOLDER / 'script.js').read_text(encoding='utf-8')
  title = f'{report.name}: {report.state}'
  if report.value is not None:
    title += f', {markup.words(report.metric)} {markup.plain(report.value, report.metric)}'
  page = string.Template((_FOLDER / 'page.html').read_text(encoding='utf-8'))
  return page.substitute(
    title=markup.escape(title),
    style=(_FOLDER / 'style.css').read_text(encoding='utf-8'),
    script=script,
    digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    data=json.dumps(data, separators=(',', ':')).replace('<', r'\u003c'),
    body=markup.join([sections.header(report), sections.navigation(parts), *parts, sections.footer(report)]),
  )


def _curves(report: Report) -> tuple[Markup, list[dict[str, Any]]]:
  """Return the section of the curves, and their points for the page's script."""
  first, more = charts.build(report.records, report.results, report.metric)
  drawn = [charts.draw(chart, i, wide=i == 0) for i, chart in enumerate([*first, *more])]
  figures = [figure for figure, _ in drawn]
  shown = tag('div', *figures[: len(first)], cls='charts') if first else ''
  rest = markup.details('More curves', tag('div', *figures[len(first) :], cls='charts')) if more else ''
  return markup.section('curves', 'Curves', shown, rest), [data for _, data in drawn]
