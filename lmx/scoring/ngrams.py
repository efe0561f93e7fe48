"""Kneser-Ney models in a folder, written by `lmx ngrams --save`, and their scores of texts.

    ngrams.json     the record: model, boundaries, discounts, config, data hash, SHA-256 of the other files
    arrays.npz      the n-grams and their probabilities (lmx/metrics/ngram.py), NumPy arrays without pickles
    tokenizer/      the tokenizer

A text starts at a document boundary: under `boundaries` 'document' the boundary that every document was counted with;
under 'stream' the token that ends a document or a line, if the tokenizer has one, after which longer contexts are
unknown.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lmx import documents, records, storage
from lmx.data.tokenizers import build
from lmx.data.tokenizers.base import FILE, Tokenizer
from lmx.errors import InputError, check_choice, explain
from lmx.metrics import ngram
from lmx.redaction import redact
from lmx.reporting import run_log
from lmx.scoring.rows import Done, Row, Scored, ignore
from lmx.scoring.scorer import STARTS, Scorer, check_tokens

ARRAYS, TOKENIZER = 'arrays.npz', f'tokenizer/{FILE}'
FORMAT = 1


def is_saved(path: Any) -> bool:
  """Return whether a folder holds a saved model."""
  return records.exists(storage.path('--workdir', path) / records.NGRAMS)


def check_empty(path: str) -> None:
  """Raise InputError unless a folder to write is missing or empty."""
  folder = storage.path('--save', path, storage.FOLDER)
  if folder.exists() and any(folder.iterdir()):
    raise InputError(f'--save: got {path}, which has files; expected a new or an empty folder; name another')


def save(
  path: str, name: str, model: ngram.KneserNey, boundaries: str, tokenizer: Tokenizer, record: Mapping[str, Any]
) -> None:
  """Write a model as a whole or not at all.

  Args:
    path: a missing or an empty folder.
    name: name of the model, such as 'ikn5'.
    model: the model.
    boundaries: those of its estimation.
    tokenizer: tokenizer of its data.
    record: further fields of ngrams.json.

  Raises:
    InputError: the folder has files, or cannot be written.
  """
  check_empty(path)
  folder = storage.path('--save', path, storage.FOLDER)
  about: dict[str, Any] = {
    'format': FORMAT,
    'model': name,
    'order': 1 + len(model.orders),
    'boundaries': boundaries,
    'backoff': model.backoff,
    'discounts': model.discounts,
    **redact(dict(record)),
    'versions': run_log.versions(),
  }

  def write(directory: str) -> None:
    os.makedirs(directory, exist_ok=True)
    arrays: Any = ngram.to_arrays(model)
    np.savez(os.path.join(directory, ARRAYS), **arrays)
    tokenizer.save(os.path.join(directory, 'tokenizer'))
    sums = {name: _digest(os.path.join(directory, name)) for name in (ARRAYS, TOKENIZER)}
    sums['form'] = _form(about)
    run_log.write_json(os.path.join(directory, records.NGRAMS), {**about, 'sha256': sums})

  try:
    with storage.whole(folder) as part:
      storage.write_directory(part, write)
  except OSError as error:
    raise InputError(f'--save: got {path}, which cannot be written ({explain(error)}); name another') from None


def _form(record: Mapping[str, Any]) -> str:
  """Return the SHA-256 of what the record says of the model's form."""
  text = json.dumps([record[name] for name in ('order', 'boundaries', 'backoff', 'discounts')])
  return hashlib.sha256(text.encode()).hexdigest()


def _digest(path: str) -> str:
  digest = hashlib.sha256()
  for block in documents.read_blocks(path):
    digest.update(block)
  return digest.hexdigest()


class NgramScorer(Scorer):
  """Scores texts under a saved model.

  Args:
    path: its folder.
    start: 'symbol' reads a document boundary first, 'none' does not predict the first token; 'auto' is 'symbol' where
      there is one.
    end: also score the end of a text.

  Raises:
    InputError: the folder is damaged, or has no such start or end.
  """

  method = 'causal'

  def __init__(self, path: Any, start: str = 'auto', *, end: bool = False):
    folder = storage.local_copy(storage.path('--workdir', path, storage.FOLDER))
    record = _read_record(folder)
    self.name, self.source, self.end = record['model'], str(path), end
    self.model, self.tokenizer = _read_model(folder, record), build.load(os.path.join(folder, 'tokenizer'))
    if self.tokenizer.vocab_size != self.model.V:
      raise InputError(
        f'{path}: got a vocabulary of {self.tokenizer.vocab_size}; expected {self.model.V}; save it again'
      )
    self.prefix_id = self.model.V if record['boundaries'] == 'document' else self.tokenizer.eos_id
    check_choice('--start', start, STARTS)
    self._set_start(start, 'the model of a stream has no document boundary')
    self._check_end()
    self._context = np.asarray([self.prefix_id] if self.start == 'symbol' else [], np.int32)
    self._best_after: dict[tuple[int, ...], float] = {}

  def read_context(self, text: str) -> None:
    ids = np.asarray(self.tokenizer.encode(text), np.int32)
    check_tokens(len(ids), '--context')
    self._context, self.continues = np.concatenate([self._context[:1], ids]), True

  def row(self, text: str, name: str = '') -> Row:
    ids = self._encode(text, name)
    return Row(ids, self._context[-len(self.model.orders) :] if self.model.orders else self._context[-1:], name)

  def score(self, rows: Sequence[Row], *, greedy: bool = False, done: Done = ignore) -> list[Scored]:
    read = [np.concatenate([row.context_S, row.ids_T]).astype(np.int64) for row in rows]
    scored = []
    for row, ids, log_p in zip(rows, read, ngram.log_probabilities(self.model, read), strict=True):
      before = len(row.context_S)
      log_p_T = log_p[before:].copy()
      log_p_T[: int(not before)] = np.nan
      scored.append(Scored(log_p_T, self._is_greedy(ids, max(1, before), log_p) if greedy else None))
      done(len(row.ids_T))
    return scored

  def _is_greedy(self, ids: np.ndarray, first: int, log_p: np.ndarray) -> bool:
    """Return whether no token is more probable than each of `ids` from `first` on."""
    order = len(self.model.orders)
    return all(
      self._best(tuple(ids[max(0, t - order) : t].tolist())) <= log_p[t] + 1e-12 for t in range(first, len(ids))
    )

  def _best(self, context: tuple[int, ...]) -> float:
    """Return the log-probability of the most probable token after a context; texts share their first ones."""
    if context not in self._best_after:
      rows = [np.asarray([*context, token]) for token in range(self.model.V)]
      self._best_after[context] = max(row[-1] for row in ngram.log_probabilities(self.model, rows))
    return self._best_after[context]


def _read_record(folder: str) -> dict[str, Any]:
  path = os.path.join(folder, records.NGRAMS)
  record = records.read(storage.path('--workdir', path))
  if documents.field(record, 'format', int, path) != FORMAT:
    raise InputError(f'{path}: format: got {record["format"]}; expected {FORMAT}; save the model again')
  for name, kind in (
    ('model', str),
    ('order', int),
    ('boundaries', str),
    ('backoff', bool),
    ('discounts', list),
    ('sha256', dict),
  ):
    documents.field(record, name, kind, path)
  if documents.field(record['sha256'], 'form', str, f'{path}: sha256') != _form(record):
    raise InputError(f'{path}: got an order, boundaries, backoff or discounts that were changed; restore the file')
  for name in (ARRAYS, TOKENIZER):
    recorded = documents.field(record['sha256'], name, str, f'{path}: sha256')
    if _digest(os.path.join(folder, name)) != recorded:
      raise InputError(
        f'{folder}/{name}: got content that differs from its SHA-256 in {records.NGRAMS}; restore the file'
      )
  return record


def _read_model(folder: str, record: Mapping[str, Any]) -> ngram.KneserNey:
  path = os.path.join(folder, ARRAYS)
  try:
    with np.load(path, allow_pickle=False) as arrays:
      return ngram.from_arrays({name: arrays[name] for name in arrays.files}, record['discounts'], record['backoff'])
  except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
    raise InputError(f'{path}: cannot be read ({explain(error)}); save the model again') from None
