"""Predictions of a trained classifier or regression model on a split or on new rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lmx import documents
from lmx.config import schema
from lmx.data import corpus as corpora
from lmx.data import labels, pipeline, sources, transforms
from lmx.data.builders import cells, files, tables
from lmx.engine import state
from lmx.errors import InputError, nearest
from lmx.metrics import correlation
from lmx.prediction import batched
from lmx.prediction.batched import Inputs
from lmx.runs.restore import RestoredRun
from lmx.types import Params

ENDINGS = ('.txt', '.jsonl', '.tsv', '.csv', '.parquet')


def label_names(loaded: RestoredRun) -> list[str]:
  """Return the labels of a classifier in the order of its logits: for multiple choice the choice indices, for a
  regression none.
  """
  return loaded.labels or [str(choice) for choice in range(_choices(loaded))]


def _choices(loaded: RestoredRun) -> int:
  """Return the number of choices of a row, 0 if rows have none."""
  return int(vars(loaded.run.objective).get('choices', 0))


def compute_outputs(run: schema.Run, corpus: corpora.Corpus, params: Params, split: str) -> dict[str, np.ndarray]:
  """Return the predictions of every row of a split, in the order of the rows.

  Args:
    run: the run.
    corpus: data tokenised by the run's tokenizer, in its direction of reading.
    params: {'model': ..., 'objective': ...}, unsharded on one device.
    split: name of the split.

  Returns:
    Name -> (I, ...), such as 'logits_BC'; and 'truth', labels or scores (I,), if the split has them.
  """
  batches = batched.batches(run, corpus, split)
  arrays: dict[str, np.ndarray] = {}
  for batch, predictions in batched.predict(run, batches, params):
    truth = [batch[key] for key in ('labels_B', 'scores_B') if key in batch]
    live_B = batch['index_B'] >= 0
    for name, rows in [*predictions.items(), *(('truth', x_B) for x_B in truth)]:
      arrays.setdefault(name, np.zeros((batches.examples, *rows.shape[1:]), rows.dtype))
      arrays[name][batch['index_B'][live_B]] = rows[live_B]
  return arrays


def softmax(logits_IC: np.ndarray) -> np.ndarray:
  """Return the probabilities of the classes, float64."""
  logits_IC = np.asarray(logits_IC, np.float64)
  with np.errstate(invalid='ignore'):  # infinity minus infinity is NaN
    p_IC = np.exp(logits_IC - logits_IC.max(axis=1, keepdims=True))
  return p_IC / p_IC.sum(axis=1, keepdims=True)


def compute_probabilities(loaded: RestoredRun, corpus: corpora.Corpus, split: str) -> tuple[np.ndarray, np.ndarray]:
  """Return (class probabilities (I, C) float64, labels (I,)) of every row of a split; see `compute_outputs`.

  Raises:
    InputError: rows have no label.
    NonFiniteLoss: a probability is NaN.
  """
  predictions = compute_outputs(loaded.run, corpus, loaded.params, split)
  truth = predictions.get('truth', np.full(len(predictions['logits_BC']), -1))
  if (truth < 0).any():
    lines = pipeline.unlabelled_rows(loaded.run.data, split)
    raise InputError(f'split {split} has {(truth < 0).sum():,} rows without a label{lines}, so it cannot be measured')
  p_IC = softmax(predictions['logits_BC'])
  if not np.isfinite(p_IC).all():
    raise state.nonfinite_error(f'the probabilities of {loaded.workdir} on split {split} are', loaded.params)
  return p_IC, truth


@dataclasses.dataclass(frozen=True)
class Row:
  """Row of a user's file: its texts, its label in the file ('' for none), and its line number."""

  texts: tuple[str, ...]
  label: str
  line: int


def text_columns(loaded: RestoredRun) -> tuple[str, ...]:
  """Return the names of the text columns of the run's data set; ('text',) if it is no table."""
  return tuple(names[0] for names in _table(loaded).texts)


def _table(loaded: RestoredRun) -> files.Table:
  """Return the layout of a table with new rows: the one of the data set's own files, or a column of texts and labels.

  Every row is kept, with its label as in the file.
  """
  data = loaded.run.data
  known = sources.DATA_SETS[data.dataset]
  texts = known.columns.texts or tuple((name,) for name in (data.texts if known.table else ('text',)))
  labels = tuple(dict.fromkeys((data.label, *known.columns.label)))
  whole: dict[str, Any] = {'classes': {}, 'skipped': (), 'broken': False, 'read': '', 'is_own': False, 'is_new': True}
  is_scored, choices = loaded.run.objective.is_scored, _choices(loaded)
  return dataclasses.replace(known.columns, texts=texts, label=labels, scores=is_scored, choices=choices, **whole)


def read_rows(path: str, loaded: RestoredRun, *, strip: bool = True) -> list[Row]:
  """Return the rows of a file.

  A .txt file has a text a line. Other files are tables (`lmx.data.builders.cells`) with the columns `text_columns` and
  optionally the label column.

  Args:
    path: the file.
    loaded: the run.
    strip: texts of tables lose the white space around them, as in training.

  Raises:
    InputError: the file cannot be read or is empty, a line is empty or malformed, a label is unknown, or a score of a
      regression is no number.
  """
  batched.check_suffix(path, ENDINGS, 'rows')
  names = label_names(loaded)
  if documents.ending(path) == '.txt':
    rows = [Row((text,), '', number) for number, text in _lines(path, text_columns(loaded))]
  else:
    entries = tables.read(dataclasses.replace(_table(loaded), strip=strip), path, 'test')
    rows = [Row(texts, label, int(name.rpartition('-')[2])) for name, texts, label in entries]
  if not rows:
    raise InputError(f'{path}: the file has no rows')
  if not names:
    return rows
  columns, known = sources.DATA_SETS[loaded.run.data.dataset].columns, labels.known_names(names)
  cells_of = {**columns.classes, **dict.fromkeys(columns.skipped, '')}  # as in the data set's own files
  return [_name_label(row, known, cells_of, path) for row in rows]


def _name_label(row: Row, known: Mapping[str, str], cells_of: Mapping[str, str], path: str) -> Row:
  """Return a row with the run's name for its label. Raises InputError if the run has no such label."""
  label = row.label if row.label in known else cells_of.get(row.label, documents.compose(row.label))
  if label and label not in known:
    hint = nearest(label, known.values())
    raise InputError(f'{path}, line {row.line}: label: got "{row.label}"; expected a label of the classifier{hint}')
  return dataclasses.replace(row, label=known.get(label, ''))


def _lines(path: str, columns: Sequence[str]) -> Iterator[tuple[int, str]]:
  """Yield (line number, text) of each line of a .txt file; blank lines at its end are skipped."""
  if len(columns) > 1:
    names = ' and '.join(columns)
    raise InputError(f'{path}: rows have {len(columns)} texts, {names}; give a .jsonl, .tsv or .csv file')
  for number, line in documents.read_rows(path):
    if not line.strip():
      raise InputError(f'{path}, line {number}: got no text; expected a text to classify')
    yield number, line


def read_file(loaded: RestoredRun, path: str, *, strip: bool = True) -> Inputs:
  """Return the rows of a file; see `read_rows`."""
  rows = read_rows(path, loaded, strip=strip)
  texts = [text for row in rows for text in row.texts]
  no_labels = {path: [0] * len(texts)}  # placeholders: batches of documents need labels
  corpus = corpora.Corpus.from_texts({path: texts}, batched.tokenizer(loaded, texts), labels=no_labels)
  choices = _choices(loaded)
  corpus = dataclasses.replace(corpus, manifest={**corpus.manifest, 'texts': len(rows[0].texts), 'choices': choices})
  corpus = transforms.view(corpus, reverse=loaded.run.data.reverse, train_splits=())
  return Inputs(corpus, path, rows, () if any(row.label for row in rows) else _missing_label(path, loaded))


def _missing_label(path: str, loaded: RestoredRun) -> tuple[str, ...]:
  """Return a note if a table without labels has other columns that may be the labels."""
  table = _table(loaded)
  texts = [name for names in table.texts for name in names]
  row = {} if documents.ending(path) == '.txt' else next(cells.read(path, plain=table.plain))[1]
  if {*table.label} & {*row} or {*row} <= {*texts}:
    return ()
  name = loaded.run.data.label
  hint = nearest(name, [column for column in row if column not in texts])
  return (f'{path}: no column {name}, so nothing is measured; it has {", ".join(row)}{hint}',)


def line(loaded: RestoredRun, one: Any, number: int) -> Mapping[str, Any]:
  """Return a text, a tuple of texts or a dict as the object of a line."""
  if isinstance(one, Mapping):
    return one
  names, texts = text_columns(loaded), (one,) if isinstance(one, str) else tuple(one)
  batched.check_count(number, texts, names)
  return dict(zip(names, texts, strict=True))


def read_split(loaded: RestoredRun, split: str) -> Inputs:
  """Return the rows of a split."""
  return Inputs(pipeline.load(loaded.run.data), split, ())


def predict(loaded: RestoredRun, inputs: Inputs) -> list[dict[str, Any]]:
  """Return {'label', 'probabilities': {label: p}} for each row in order, or {'score'} for a regression."""
  predictions = compute_outputs(loaded.run, inputs.corpus, loaded.params, inputs.split)
  if loaded.run.objective.is_scored:
    return [{'score': round(float(score), 6)} for score in predictions['scores_B']]
  names, p_IC = label_names(loaded), softmax(predictions['logits_BC'])
  return [
    {'label': names[int(np.argmax(p_C))], 'probabilities': dict(zip(names, p_C.round(6).tolist(), strict=True))}
    for p_C in p_IC
  ]


def score(loaded: RestoredRun, inputs: Inputs, predictions: Sequence[Mapping[str, Any]]) -> str:
  """Return a sentence with the accuracy, or a regression's correlations, on the labelled rows of a file."""
  name = 'score' if loaded.run.objective.is_scored else 'label'
  pairs = [(one[name], row.label) for one, row in zip(predictions, inputs.items, strict=False) if row.label]
  if not pairs:
    return ''
  if name == 'score':
    found = correlation.correlations(*np.asarray(pairs, np.float64).T)
    return 'Pearson {pearson:.4f}, Spearman {spearman:.4f}'.format(**found) + f' on {len(pairs):,} rows with a score'
  right = sum(label == true for label, true in pairs)
  return f'{right} of {len(pairs)} documents with a label are right ({right / len(pairs):.1%})'


def submission(loaded: RestoredRun, inputs: Inputs | None, predictions: Sequence[Mapping[str, Any]]) -> str:
  """Return the submission file for GLUE's test server: index and prediction, with the task's label names.

  Raises:
    InputError: the run was not trained on a GLUE task.
  """
  name = loaded.run.data.dataset
  if not name.startswith('glue/'):
    raise InputError(f'{loaded.workdir} was trained on {name}, which is not a GLUE task')
  names = {label: cell for cell, label in sources.DATA_SETS[name].columns.classes.items()}
  cell_of = lambda row: f'{row["score"]:.3f}' if 'score' in row else names[row['label']]
  return 'index\tprediction\n' + ''.join(f'{i}\t{cell_of(row)}\n' for i, row in enumerate(predictions))


FORMATS: dict[str, batched.Format] = {'glue': submission}
