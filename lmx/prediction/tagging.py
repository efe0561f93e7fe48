"""The labels that a trained tagger gives to words: of a split, and of sentences in files.

A sentence of more tokens than a row of the run holds (`data.length`) is read in parts, each by itself and as long as
fits, so that every word gets a label; a word of more tokens than that is read by its first ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from lmx.data import corpus as corpora
from lmx.data import pipeline
from lmx.data.builders import tagged
from lmx.data.builders.tagged import Sentence
from lmx.data.splits import Split
from lmx.data.tokenizers.words import with_all_words
from lmx.errors import InputError, nearest
from lmx.metrics import spans
from lmx.prediction import batched
from lmx.prediction.batched import Asked
from lmx.runs.restore import Restored


def of_file(loaded: Restored, path: str) -> Asked:
  """The sentences of a file; see `lmx.data.builders.tagged.read`.

  Raises:
    InputError: the file cannot be read, holds no sentence, or has a label that the tagger does not know.
  """
  batched.ending(path, tagged.ENDINGS, 'sentences')
  found, names = list(tagged.read(path)), loaded.run.objective.labels
  if not found:
    raise InputError(f'{path}: the file has no sentences')
  if spans.is_scheme(names):  # as data sets in IOB1 are read
    found = [one._replace(tags=one.tags and tuple(tagged.bio(one.tags))) for one in found]
  return _asked(loaded, found, path)


def of_split(loaded: Restored, split: str) -> Asked:
  """The sentences of a split of the run's data set."""
  rows = [(text.split(), label.split()) for _, text, label in pipeline.examples(loaded.run.data, split)]
  found = [Sentence(tuple(words), tuple(tags), (i,) * len(words)) for i, (words, tags) in enumerate(rows, 1)]
  return _asked(loaded, found, f'split {split}')


def _asked(loaded: Restored, found: Sequence[Sentence], where: str) -> Asked:
  """Sentences as a corpus, in which a part of a sentence is a document."""
  data, tokenizer, names = loaded.run.data, loaded.tokenizer, loaded.run.objective.labels
  for one in found:
    for tag, line in zip(one.tags or (), one.lines, strict=False):
      if tag not in names:
        raise InputError(f'{where}, line {line}: the tagger has no label "{tag}"{nearest(tag, names)}')
  words = [[tagged.plain(word) for word in one.words] for one in found]
  if data.characters:
    tokenizer = with_all_words(tokenizer, map(' '.join, words))
  room = (data.eval_length or data.length) - 2 * (data.batching.form == 'bert')
  parts, long, cut = [], [], 0
  for pieces in corpora.encoded_words(words, tokenizer):
    cut += sum(len(ids) > room for ids in pieces)
    made = _parts([ids[:room] for ids in pieces], room)
    parts += made
    long += [len(made)] if len(made) > 1 else []
  notes: list[str] = []
  if long:
    notes.append(
      f'{len(long):,} of {len(found):,} sentences have more than {room} tokens and are read in {sum(long):,} parts'
    )
  if cut:
    notes.append(f'{cut:,} words have more than {room} tokens and are read by their first {room}')
  split = _split(where, parts, tokenizer.eos_id)
  corpus = corpora.Corpus(tokenizer, {where: split}, {'dataset': {'name': 'sentences'}}, hash='')
  return Asked(corpus, where, found, tuple(notes))


def _parts(pieces: Sequence[np.ndarray], room: int) -> list[list[np.ndarray]]:
  """The words of a sentence, given by their tokens, in parts of like size and at most `room` tokens."""
  total = sum(map(len, pieces))
  parts: list[list[np.ndarray]] = [[]]
  like, size = total / -(-total // room), 0
  for ids in pieces:
    if parts[-1] and (size >= like or size + len(ids) > room):
      parts.append([])
      size = 0
    parts[-1].append(ids)
    size += len(ids)
  return parts


def _split(name: str, parts: Sequence[Sequence[np.ndarray]], eos_id: int | None) -> Split:
  """Parts as documents. The first piece of each word has a label, so that it counts; which one is not looked at."""
  end = [] if eos_id is None else [np.asarray([eos_id])]
  tokens = [np.concatenate([*pieces, *end]) for pieces in parts]
  labels = [np.full(len(row), -1, np.int32) for row in tokens]
  for row, pieces in zip(labels, parts, strict=True):
    row[np.cumsum([0, *map(len, pieces[:-1])])] = 0
  offsets = np.cumsum([0, *map(len, tokens)])
  return Split(name, np.concatenate(tokens), offsets, None, None, {}, np.concatenate(labels))


def said(loaded: Restored, asked: Asked) -> list[dict[str, Any]]:
  """{'tokens', 'tags'} of each sentence."""
  batches = batched.batches(loaded.run, asked.corpus, asked.split)
  numbers: list[np.ndarray] = [np.zeros(0, np.int32)] * batches.examples
  for batch, made in batched.over(loaded.run, batches, loaded.params):
    for b in np.flatnonzero(batch['index_B'] >= 0):
      numbers[batch['index_B'][b]] = made['labels_BT'][b][made['words_BT'][b]]
  names, row = loaded.run.objective.labels, iter(np.concatenate(numbers).tolist())
  return [{'tokens': list(one.words), 'tags': [names[next(row)] for _ in one.words]} for one in asked.items]


def figures(names: Sequence[str], pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> dict[str, float]:
  """Figures as the objective reports them.

  Args:
    names: of the labels.
    pairs: labels said and true labels of each sentence.

  Returns:
    {'accuracy'} of the words, and of labels of spans {'span_precision', 'span_recall', 'span_f1'} in percent.
  """
  T, number = max(len(true) for _, true in pairs), {name: i for i, name in enumerate(names)}
  table = lambda side: np.asarray([[number[tag] for tag in one[side]] + [0] * (T - len(one[side])) for one in pairs])
  valid_BT = np.arange(T) < np.asarray([len(true) for _, true in pairs])[:, None]
  said_BT, true_BT = table(0), table(1)
  found = {'accuracy': float((said_BT == true_BT)[valid_BT].mean())}
  if spans.is_scheme(names):
    numbers = spans.counts(spans.scheme(names), *map(jnp.asarray, (said_BT, true_BT, valid_BT)))
    found |= spans.scores(*map(float, numbers))
  return found


def judged(loaded: Restored, asked: Asked, found: Sequence[Mapping[str, Any]]) -> str:
  """The figures over the sentences whose labels are known."""
  pairs = [(row['tags'], one.tags) for row, one in zip(found, asked.items, strict=True) if one.tags is not None]
  if not pairs:
    return ''
  figure = figures(loaded.run.objective.labels, pairs)
  first = ''
  if 'span_f1' in figure:
    first = 'F1 of spans {span_f1:.2f} (precision {span_precision:.2f}, recall {span_recall:.2f}), '.format(**figure)
  count = sum(len(true) for _, true in pairs)
  return f'{first}{figure["accuracy"]:.2%} of {count:,} words in {len(pairs):,} sentences with labels are right'


def _columns(loaded: Restored, asked: Asked, found: Sequence[Mapping[str, Any]]) -> str:
  """A word a line, with its true label if all are known and the one that is said, as conlleval and seqeval read it."""
  del loaded
  known = all(one.tags is not None for one in asked.items)
  text = ''
  for one, row in zip(asked.items, found, strict=True):
    columns = [map(tagged.plain, one.words), *([one.tags] if known else []), row['tags']]
    text += ''.join(' '.join(cells) + '\n' for cells in zip(*columns, strict=True)) + '\n'
  return text


FORMS: dict[str, batched.Form] = {'conll': _columns}
