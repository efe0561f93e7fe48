"""Predictions of a trained tagger: a label for each word of a split, or of sentences in a file.

A sentence of more tokens than a row of the run (`data.length`) is split into parts of similar size that fit, read
independently, so that every word gets a label. A word of more tokens than that is truncated to its first ones. A tagger
of semantic roles reads each sentence with one predicate, given by the index of its word, and in one part.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from lmx import documents
from lmx.data import corpus as corpora
from lmx.data import encoding, pipeline
from lmx.data.batching import tagged as batching
from lmx.data.builders import tagged
from lmx.data.builders.tagged import Sentence
from lmx.data.splits import Split
from lmx.errors import InputError, InputWarning, nearest
from lmx.metrics import spans
from lmx.objectives import tag
from lmx.prediction import batched
from lmx.prediction.batched import Inputs
from lmx.runs.restore import RestoredRun


def read_file(loaded: RestoredRun, path: str, *, strip: bool = True) -> Inputs:
  """Return the sentences of a file; see `lmx.data.builders.tagged.read`.

  Raises:
    InputError: the file cannot be read, has no sentence, or has a label unknown to the tagger.
  """
  del strip
  batched.check_suffix(path, tagged.ENDINGS, 'sentences')
  sentences, names = list(tagged.read(path)), loaded.run.objective.labels
  if not sentences:
    raise InputError(f'{path}: the file has no sentences')
  if spans.is_scheme(names):  # IOB1 is converted to BIO, as in training data
    sentences = [one._replace(tags=one.tags and tuple(tagged.bio(one.tags))) for one in sentences]
  inputs = _build_inputs(loaded, sentences, path)
  return inputs._replace(notes=(*inputs.notes, *_missing_tags(path, sentences)))


def _missing_tags(path: str, sentences: Sequence[Sentence]) -> tuple[str, ...]:
  """Return a note if JSON lines have no tags, but other lists that may be the labels."""
  if documents.ending(path) != '.jsonl' or any(one.tags is not None for one in sentences):
    return ()
  row = next(documents.read_json_lines(path))[1]
  others = [name for name, value in row.items() if isinstance(value, list) and name != 'tokens']
  return (f'{path}: no field tags, so nothing is measured; it has {", ".join(row)}',) if others else ()


def line(loaded: RestoredRun, one: Any, number: int) -> Mapping[str, Any]:
  """Return a text, a list of words or a dict as the object of a line."""
  del loaded, number
  return one if isinstance(one, Mapping) else {'tokens': one.split() if isinstance(one, str) else list(one)}


def read_split(loaded: RestoredRun, split: str) -> Inputs:
  """Return the sentences of a split of the run's data set."""
  rows = [(name, text.split(), label.split()) for name, text, label in pipeline.examples(loaded.run.data, split)]
  first = int(loaded.run.data.rules.predicates)  # predicate index, before the tags
  sentences = [
    Sentence(
      tuple(words), tuple(tags[first:]), (i,) * len(words), int(tags[0]) if first else None, tagged.document_of(name)
    )
    for i, (name, words, tags) in enumerate(rows, 1)
  ]
  return _build_inputs(loaded, sentences, f'split {split}')


def _build_inputs(loaded: RestoredRun, sentences: Sequence[Sentence], where: str) -> Inputs:
  """Return sentences as a corpus whose documents are parts of sentences."""
  data, names = loaded.run.data, loaded.run.objective.labels
  for one in sentences:
    for name, line in zip(one.tags or (), one.lines, strict=False):
      if name not in names:
        raise InputError(f'{where}, line {line}: the tagger has no label "{name}"{nearest(name, names)}')
  with_predicates = data.rules.predicates
  if with_predicates and (lacking := next((one for one in sentences if one.predicate is None), None)):
    raise InputError(
      f'{where}, line {lacking.lines[0]}: got no predicate; expected JSON lines with "tokens" and "predicate", '
      "a word index from 0, because the run labels a predicate's roles"
    )
  words = [[tagged.plain(word) for word in one.words] for one in sentences]
  tokenizer = batched.tokenizer(loaded, map(' '.join, words))
  limit = (data.eval_length or data.length) - batching.template(data.batching.form, tokenizer).special
  parts, long, truncated = [], [], 0
  numbers: list[int] = []  # of the document of each part
  for one, word_ids in zip(sentences, encoding.encode_words(words, tokenizer), strict=True):
    truncated += sum(len(ids) > limit for ids in word_ids)
    sentence_parts = _split_sentence([ids[:limit] for ids in word_ids], limit)
    if with_predicates and len(sentence_parts) > 1:
      raise InputError(
        f'{where}, line {one.lines[0]}: got a sentence of {sum(map(len, word_ids))} tokens; expected at most '
        f'{limit} with a predicate; raise data.length'
      )
    parts += sentence_parts
    numbers += [len(numbers) if one.document is None else one.document] * len(sentence_parts)
    long += [len(sentence_parts)] if len(sentence_parts) > 1 else []
  notes: list[str] = []
  if long:
    notes.append(
      f'{len(long):,} of {len(sentences):,} sentences have more than {limit} tokens and are split into '
      f'{sum(long):,} parts'
    )
  if truncated:
    notes.append(f'{truncated:,} words have more than {limit} tokens and are truncated to their first {limit}')
  if data.keeps_file_documents and any(one.document is None for one in sentences):
    notes.append(
      f'{where} marks no documents by lines -DOCSTART- or # newdoc, so each sentence is read without the context that '
      'the run was trained with'
    )
  split = _split(where, parts, tokenizer.eos_id, [one.predicate for one in sentences] if with_predicates else None)
  split = dataclasses.replace(split, file_documents=np.asarray(numbers, np.int32))
  corpus = corpora.Corpus(tokenizer, {where: split}, {'dataset': {'name': 'sentences'}}, hash='')
  return Inputs(corpus, where, sentences, tuple(notes))


def _split_sentence(word_ids: Sequence[np.ndarray], limit: int) -> list[list[np.ndarray]]:
  """Split a sentence, given by the ids of each word, into parts of similar size and at most `limit` tokens."""
  total = sum(map(len, word_ids))
  parts: list[list[np.ndarray]] = [[]]
  target, size = total / -(-total // limit), 0
  for ids in word_ids:
    if parts[-1] and (size >= target or size + len(ids) > limit):
      parts.append([])
      size = 0
    parts[-1].append(ids)
    size += len(ids)
  return parts


def _split(
  name: str, parts: Sequence[Sequence[np.ndarray]], eos_id: int | None, predicates: Sequence[int | None] | None
) -> Split:
  """Return parts as documents. The first token of each word has a placeholder label, so that it is predicted.

  Args:
    name: name of the split.
    parts: ids of each word of each part.
    eos_id: id that ends a document; None for none.
    predicates: index of each part's predicate, if the run's data set has them.
  """
  end = [] if eos_id is None else [np.asarray([eos_id])]
  tokens = [np.concatenate([*word_ids, *end]) for word_ids in parts]
  labels = [np.full(len(row), -1, np.int32) for row in tokens]
  for row, word_ids in zip(labels, parts, strict=True):
    row[np.cumsum([0, *map(len, word_ids[:-1])])] = 0
  offsets = np.cumsum([0, *map(len, tokens)])
  predicate_D = None if predicates is None else np.asarray(predicates, np.int32)
  return Split(name, np.concatenate(tokens), offsets, None, predicate_D, {}, np.concatenate(labels))


def predict(loaded: RestoredRun, inputs: Inputs) -> list[dict[str, Any]]:
  """Return {'tokens', 'tags'} for each sentence, with its 'predicate' between them if it has one."""
  batches = batched.batches(loaded.run, inputs.corpus, inputs.split)
  numbers: list[np.ndarray] = [np.zeros(0, np.int32)] * batches.examples
  for batch, predictions in batched.predict(loaded.run, batches, loaded.params):
    for b in np.flatnonzero(batch['index_B'] >= 0):
      numbers[batch['index_B'][b]] = predictions['labels_BT'][b][predictions['words_BT'][b]]
  names, row = loaded.run.objective.labels, iter(np.concatenate(numbers).tolist())
  return [
    {'tokens': list(one.words)}
    | ({} if one.predicate is None else {'predicate': one.predicate})
    | {'tags': [names[next(row)] for _ in one.words]}
    for one in inputs.items
  ]


def compute_metrics(cfg: tag.Config, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> dict[str, float]:
  """Return the metrics that the objective reports.

  Args:
    cfg: the objective.
    pairs: (predicted labels, true labels) of each sentence.

  Returns:
    {'accuracy'} over words, and for span labels {'span_precision', 'span_recall', 'span_f1'} in percent, with a warning
    where there is no true span.
  """
  T, number = max(len(true) for _, true in pairs), {name: i for i, name in enumerate(cfg.labels)}
  table = lambda side: np.asarray([[number[tag] for tag in one[side]] + [0] * (T - len(one[side])) for one in pairs])
  valid_BT = np.arange(T) < np.asarray([len(true) for _, true in pairs])[:, None]
  predicted_BT, true_BT = table(0), table(1)
  metrics = {'accuracy': float((predicted_BT == true_BT)[valid_BT].mean())}
  if spans.is_scheme(cfg.labels):
    numbers_3R = tag.count_spans(cfg, *map(jnp.asarray, (predicted_BT, true_BT, valid_BT)))
    right, predicted, true = map(float, numbers_3R.sum(axis=1))
    if not true:
      warnings.warn('F1 of spans: got no true spans; undefined values are 0, as in seqeval', InputWarning, stacklevel=2)
    metrics |= spans.compute_scores(right, predicted, true)
  return metrics


def score(loaded: RestoredRun, inputs: Inputs, predictions: Sequence[Mapping[str, Any]]) -> str:
  """Return a sentence with the metrics over the sentences whose labels are known."""
  pairs = [(row['tags'], one.tags) for row, one in zip(predictions, inputs.items, strict=True) if one.tags is not None]
  if not pairs:
    return ''
  metrics = compute_metrics(loaded.run.objective, pairs)
  first = ''
  if 'span_f1' in metrics:
    first = 'F1 of spans {span_f1:.2f} (precision {span_precision:.2f}, recall {span_recall:.2f}), '.format(**metrics)
  count = sum(len(true) for _, true in pairs)
  return f'{first}{metrics["accuracy"]:.2%} of {count:,} words in {len(pairs):,} sentences with labels are right'


def _columns(loaded: RestoredRun, inputs: Inputs, predictions: Sequence[Mapping[str, Any]]) -> str:
  """Return a word a line, with its true label (if all are known) and the predicted one, for conlleval and seqeval."""
  del loaded
  is_labelled = all(one.tags is not None for one in inputs.items)
  text = ''
  for one, row in zip(inputs.items, predictions, strict=True):
    columns = [map(tagged.plain, one.words), *([one.tags] if is_labelled else []), row['tags']]
    text += ''.join(' '.join(cells) + '\n' for cells in zip(*columns, strict=True)) + '\n'
  return text


FORMATS: dict[str, batched.Format] = {'conll': _columns}
