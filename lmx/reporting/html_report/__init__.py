"""Report of a run as one self-contained HTML page, light and dark, which loads nothing.

`render` fills the template `page.html.jinja` with a `Report`. The template escapes every text, and the page's content
security policy admits no script but its own, whose digest it names.
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
from lmx.reporting.html_report import charts, formats, pairs, sections

MARK = '<meta name="generator" content="lmx report">'  # marks a page that `lmx report` may replace
_FOLDER = pathlib.Path(__file__).parent


class Setting(NamedTuple):
  """A key of the config: its value and default as texts, its help, and whether the value is not the default."""

  key: str
  value: str
  default: str
  help: str
  is_changed: bool


class AttentionMap(NamedTuple):
  """Attention weights of a sentence pair, one row per target token; see `lmx.decoding.translate.alignments`."""

  source: list[str]
  target: list[str]
  weights_TS: np.ndarray


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
    data: data.json.
    settings: title of a config section -> its keys.
    samples: (title, text) from samples.txt, newest first.
    translations: lines of translations.txt.
    answers: question id -> answer.
    pictures: (file name, its bytes as base64).
    maps: attention weights of sentence pairs.
    shares: names of metrics that are shown in percent.
    pairs: evaluations on minimal pairs, from pairs.json.
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
  shares: frozenset[str] = frozenset()
  pairs: Sequence[Mapping[str, Any]] = ()


def render(report: Report) -> str:
  """Return the page."""
  first, more = charts.build(report.records, report.results, report.metric)
  drawings = [charts.draw(chart, i, wide=i == 0) for i, chart in enumerate([*first, *more])]
  script = (_FOLDER / 'script.js').read_text(encoding='utf-8')
  title = f'{report.name}: {report.state}'
  if report.value is not None:
    title += f', {formats.words(report.metric)} {formats.plain(report.value, is_share=report.metric in report.shares)}'
  environment = templates.environment(_FOLDER)
  environment.filters |= {'prose': formats.prose, 'breakable': formats.breakable}
  return environment.get_template('page.html.jinja').render(
    report=report,
    title=title,
    mark=Markup(MARK),
    style=Markup((_FOLDER / 'style.css').read_text(encoding='utf-8')),
    script=Markup(script),
    digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    data=Markup(json.dumps([one.data for one in drawings], separators=(',', ':')).replace('<', r'\u003c')),
    first=first,
    more=more,
    drawings=drawings,
    version=lmx.__version__,
    path=shlex.quote(report.run),
    pair_evaluations=list(pairs.contents(report.pairs)),
    **sections.contents(report),
  )
