"""What a trained classifier says of documents: of a split, alone or averaged with others, and of new text."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from lmx import evaluate
from lmx import restored as restored_lib
from lmx.data import corpus as corpora
from lmx.data import pipeline, views
from lmx.errors import InputError, nearest
from lmx.restored import Restored


def label_names(loaded: Restored) -> list[str]:
  """The labels of a classifier, in the order of its probabilities. InputError if the run is no classifier."""
  if loaded.run.objective_name != 'classify':
    raise InputError(
      f'{loaded.workdir} was trained with objective "{loaded.run.objective_name}"; predictions need "classify"'
    )
  return list(json.loads((loaded.workdir / 'data.json').read_text())['label_names'])


def probabilities(loaded: Restored, corpus: corpora.Corpus, split: str) -> tuple[np.ndarray, np.ndarray]:
  """Probabilities of the classes of every document of a split.

  Args:
    loaded: the classifier.
    corpus: tokenised by the classifier's tokenizer, in its direction of reading.
    split: name of the split.

  Returns:
    (p_IC float64 in the order of the documents, their labels (I,)).
  """
  run = loaded.run
  batches = pipeline.batches(run.data, corpus, split, evaluate.SEED, train=False)
  predict = jax.jit(functools.partial(loaded.objective.predict, run.objective, loaded.model, run.model))
  labels = corpus.splits[split].labels
  p_IC = np.zeros((batches.examples, run.objective.classes))
  for step in range(batches.steps):
    batch = batches(step)
    found, _ = predict(loaded.params, batch, ())
    live_B = batch['index_B'] >= 0
    logits_BC = np.asarray(found['logits_BC'], np.float64)[live_B]
    p_BC = np.exp(logits_BC - logits_BC.max(axis=1, keepdims=True))
    p_IC[batch['index_B'][live_B]] = p_BC / p_BC.sum(axis=1, keepdims=True)
  return p_IC, np.asarray(labels)


def ensemble(workdirs: Sequence[Any], split: str, which: str | int = 'best') -> dict[str, Any]:
  """Measures the mean of the probabilities of several classifiers (Howard and Ruder 2018, section 3.4).

  Args:
    workdirs: their work directories; all must be trained on the same documents and labels.
    split: split to measure.
    which: see `lmx.restored.load`.

  Returns:
    Figures as `evaluate.figures` has them, and those of each classifier under 'members'.

  Raises:
    InputError: the classifiers have other labels, or documents in another number or with other labels.
  """
  names: list[str] = []
  members: list[dict[str, Any]] = []
  sums, truth = np.zeros(()), np.zeros(0)
  for workdir in workdirs:
    loaded = restored_lib.load(workdir, which)
    own = label_names(loaded)
    corpus = pipeline.load(loaded.run.data)
    if corpus.tokenizer.hash != loaded.tokenizer.hash:
      raise InputError(f'the data is tokenised by another tokenizer than the run\'s ({loaded.workdir}/tokenizer)')
    p_IC, labels_I = probabilities(loaded, corpus, split)
    if members and (own != names or not np.array_equal(labels_I, truth)):
      raise InputError(f'{workdir} does not classify the same documents into the same labels as {workdirs[0]}')
    names, truth, sums = own, labels_I, sums + p_IC
    members.append({'workdir': str(workdir), 'error_percent': _error(p_IC, labels_I), 'step': loaded.step})
  mean_IC = sums / len(members)
  return {
    'name': 'ensemble', 'model': f'mean of {len(members)} classifiers', 'dataset': loaded.run.data.dataset,
    'split': split, 'metric': 'error_percent', 'error_percent': _error(mean_IC, truth),
    'accuracy': 1 - _error(mean_IC, truth) / 100,
    'loss': float(-np.mean(np.log(np.maximum(mean_IC[np.arange(len(truth)), truth], 1e-300)))),
    'tokens_counted': len(truth), 'unit': 'documents', 'protocol': 'mean of the probabilities', 'members': members,
  }  # fmt: skip


def _error(p_IC: np.ndarray, labels_I: np.ndarray) -> float:
  return float(100 * np.mean(np.argmax(p_IC, axis=1) != labels_I))


@dataclasses.dataclass(frozen=True)
class Document:
  """A document of a user's file: its text, the label that the file gives ('' for none), and its line number."""

  text: str
  label: str
  line: int


def read(path: str, names: Sequence[str]) -> list[Document]:
  """Documents of a file: one a line, for .jsonl {"text": ..., "label": ... (optional)}.

  Raises:
    InputError: the file cannot be read or holds nothing, a line is empty or not as it should be, a label is unknown.
  """
  try:
    with open(path, encoding='utf-8') as file:
      lines = file.read().splitlines()
  except (OSError, UnicodeDecodeError) as error:
    raise InputError(f'{path}: cannot be read ({error})') from None
  if not lines:
    raise InputError(f'{path}: the file is empty')
  found = []
  for number, line in enumerate(lines, 1):
    text, label = _parsed(line, f'{path}, line {number}') if path.endswith('.jsonl') else (line, '')
    if not text.strip():
      raise InputError(f'{path}, line {number}: there is no text to classify')
    if label and label not in names:
      raise InputError(f'{path}, line {number}: the classifier has no label "{label}"{nearest(label, names)}')
    found.append(Document(text, label, number))
  return found


def _parsed(line: str, where: str) -> tuple[str, str]:
  try:
    row = json.loads(line) if line.strip() else {'text': ''}
  except json.JSONDecodeError as error:
    raise InputError(f'{where}: not JSON ({error.msg} at column {error.colno})') from None
  if not isinstance(row, dict) or not isinstance(row.get('text'), str):
    raise InputError(f'{where}: has no field "text" with a string in it')
  return row['text'], str(row['label']) if 'label' in row else ''


def of_texts(loaded: Restored, texts: Sequence[str]) -> Iterator[dict[str, Any]]:
  """{'label', 'probabilities': {label: p}} of each text, in order."""
  names = label_names(loaded)
  no_labels = {'train': [0] * len(texts)}  # batches of documents have some
  made = corpora.Corpus.from_texts({'train': texts}, loaded.tokenizer, labels=no_labels)
  corpus = views.view(made, reverse=loaded.run.data.reverse)
  p_IC, _ = probabilities(loaded, corpus, 'train')
  for p_C in p_IC:
    yield {'label': names[int(np.argmax(p_C))], 'probabilities': dict(zip(names, p_C.round(6).tolist(), strict=True))}
