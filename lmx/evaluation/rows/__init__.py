"""Predictions of every row of an evaluated split (`evaluation.save_rows`), and metrics as functions of these rows.

`ROWS` of an objective names a file of this folder. Every process predicts all rows on one of its devices, so the rows
do not depend on the number of hosts. rows.jsonl has a row a line, in the order of the split. results.json describes
them under 'rows', and has the 95% bootstrap interval of the headline metric under 'interval'.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lmx import documents, records, statistics
from lmx.errors import InputError, writing
from lmx.evaluation.parts import Evaluation, Subject
from lmx.registry import Registry
from lmx.reporting import run_log

Row = Mapping[str, Any]
_MOST_TOKENS, _MOST_CHARACTERS = 100, 300  # of each text, and of a row


class Measure(NamedTuple):
  """A metric as a function of rows.

  Attributes:
    values: numbers of each row that determine the metric, (n,) or (n, columns).
    statistic: values of some rows -> the metric.
    is_binary: the metric is a share of correct rows, and `values` is 1 for each of them.
  """

  values: np.ndarray
  statistic: Callable[[np.ndarray], Any]
  is_binary: bool = False


class Rows:
  """Interface of a file of this folder. `get` adds the defaults below to the names of the file.

  Attributes:
    TRUTH: fields of a row that come from the data, and are equal in all runs on the same rows.
    collect: (subject, outputs of the objective's part of the evaluation) -> (rows in the order of the split, their
      unit in the plural). A row has 'row', its number from 0.
    measure: (metric, rows, results) -> the metric as a function of these rows, None if they do not determine it.
    UNITS: units, in the plural, of a metric that is tested over other units than rows.
  """

  TRUTH: tuple[str, ...] = ()
  UNITS: Mapping[str, str] = {}
  collect: Callable[[Subject, Sequence[Any]], tuple[list[dict[str, Any]], str]]
  measure: Callable[[str, Sequence[Row], Mapping[str, Any]], Measure | None]

  def library_test(
    self, metric: str, a: Sequence[Row], b: Sequence[Row], results: Mapping[str, Any], test: str
  ) -> tuple[str, float] | None:
    """Return (name, p-value) of the paired test of the library that computes the metric; None if it has none."""
    return None


_registry = Registry(__name__, 'rows', Rows)
get = _registry.get


def add(evaluation: Evaluation, subject: Subject) -> Evaluation:
  """Return an evaluation with its rows as the text of rows.jsonl, their description and the headline's interval."""
  kind, run = evaluation.objective.ROWS, subject.run
  found, unit = get(kind).collect(subject, evaluation.outputs)
  text, about = describe(kind, found, unit)
  about |= {'objective': run.objective_name, 'options': dataclasses.asdict(run.objective)}
  metrics = {**evaluation.metrics, 'rows': about}
  measured = measure(metrics['metric'], found, metrics)
  interval = statistics.bootstrap(measured.values, measured.statistic)
  return evaluation._replace(metrics={**metrics, 'interval': [interval.low, interval.high]}, rows=text)


def describe(kind: str, rows: Sequence[Row], unit: str) -> tuple[str, dict[str, Any]]:
  """Return rows as the text of rows.jsonl, and their description for results.json; `unit` is in the plural."""
  text = ''.join(json.dumps(run_log.to_json(row), ensure_ascii=False) + '\n' for row in rows)
  digest = _digest(text.encode('utf-8', 'surrogatepass'))
  return text, {'kind': kind, 'count': len(rows), 'unit': unit, 'digest': digest}


def measure(metric: str, rows: Sequence[Row], results: Mapping[str, Any]) -> Measure:
  """Return a metric of an evaluation as a function of its rows. Raises InputError if they do not determine it."""
  found = get(results['rows']['kind']).measure(metric, rows, results) if metric in results else None
  if found is None:
    raise InputError(f'--metric: got "{metric}"; expected a metric of single rows, such as {results["metric"]}')
  return found


def write(folder: Any, text: str) -> None:
  """Write rows.jsonl to a folder. Raises InputError."""
  with writing(str(folder / records.ROWS)):
    (folder / records.ROWS).write_bytes(text.encode('utf-8', 'surrogatepass'))


def read(folder: Any, results: Mapping[str, Any]) -> list[dict[str, Any]] | None:
  """Return the rows of the evaluation whose results.json is given; None if it saved none.

  Raises:
    InputError: rows.jsonl is missing, damaged or of another evaluation.
  """
  if 'rows' not in results:
    return None
  path, where = folder / records.ROWS, f'{folder / records.RESULTS}: rows'
  digest = documents.field(results['rows'], 'digest', str, where)
  _registry.get(documents.field(results['rows'], 'kind', str, where))
  if _digest(documents.read_bytes(path)) != digest:
    raise InputError(f'{path}: got other rows than those of {records.RESULTS}; evaluate again with --save_rows')
  return [records.from_json(row, str(path)) for _, row in documents.read_json_lines(path)]


def _digest(content: bytes) -> str:
  return hashlib.sha256(content).hexdigest()[:16]


def begin_of_texts(corpus: Any, split: str, row: int, *, reverse: bool) -> str:
  """Return the beginning of the texts of a row, decoded from its tokens."""
  count, part, tokenizer = corpus.manifest.get('texts', 1), corpus.split(split), corpus.tokenizer
  texts = []
  for begin, end in zip(*(part.offsets[row * count + i :][:count] for i in (0, 1)), strict=True):
    ids = part.tokens[max(begin, end - _MOST_TOKENS) : end][::-1] if reverse else part.tokens[begin:end][:_MOST_TOKENS]
    texts.append(tokenizer.decode([int(i) for i in ids if i != tokenizer.eos_id]).strip())
  text = ' | '.join(texts)
  return text if len(text) <= _MOST_CHARACTERS else f'{text[:_MOST_CHARACTERS]} ...'


def column(rows: Sequence[Row], *names: str) -> np.ndarray:
  """Return numeric fields of all rows, (n,) of one field, else (n, fields), float64."""
  for number, row in enumerate(rows, 1):
    for name in names:
      if not isinstance(row.get(name), (int, float)):
        raise InputError(f'{records.ROWS}, line {number}: {name}: got {row.get(name)!r}; expected a number')
  values = np.array([[row[name] for name in names] for row in rows], np.float64)
  return values[:, 0] if len(names) == 1 else values
