"""Views of a tokenized data set: reversed, with more training splits, or a subset."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from lmx.data import noise
from lmx.data.corpus import Corpus, Split
from lmx.errors import InputError, nearest


def view(
  corpus: Corpus,
  *,
  reverse: bool = False,
  train_splits: Sequence[str] = ('train',),
  train_documents: int = 0,
  fraction: float = 1.0,
) -> Corpus:
  """Return a view of the corpus; the corpus itself if nothing changes.

  Args:
    corpus: result of `lmx.data.corpus.load`.
    reverse: reverse each document; its final end-of-text id stays last.
    train_splits: the splits that together are 'train'; an empty sequence changes nothing. A language model may train on
      the text of splits whose labels are held out.
    train_documents: largest number of training documents (rows, if rows have several); 0 is no limit. The other splits
      stay whole.
    fraction: share of the documents (rows) of each split that is used.

  A split of which only a part is used has no counts of characters and bytes, and of words only if they are the tokens:
  the cache has only those of the whole split.

  The documents under a smaller `train_documents` or `fraction` are a subset of those under a larger one.

  Raises:
    InputError: there is no such split.
  """
  if not reverse and tuple(train_splits) == ('train',) and not train_documents and fraction == 1:
    return corpus
  for name in train_splits:
    if name not in corpus.splits:
      raise InputError(
        f'data.train_splits: got "{name}", which the data set does not have{nearest(name, corpus.splits)}'
      )
  splits = dict(corpus.splits)
  if train_splits:
    splits['train'] = _concatenate([corpus.splits[name] for name in train_splits])
  if fraction < 1 or train_documents:
    group_size = corpus.manifest.get('texts', 2 if {'sides', 'spans'} & corpus.manifest.keys() else 1)
    limits = {'train': train_documents}
    units = ('tokens', 'words') if corpus.tokenizer.kind == 'words' else ('tokens',)
    splits = {name: _subset(split, fraction, limits.get(name, 0), group_size, units) for name, split in splits.items()}
  if reverse:
    splits = {name: _reverse(split, corpus.tokenizer.eos_id) for name, split in splits.items()}
  fields = {'reverse': reverse, 'train_splits': list(train_splits), 'fraction': fraction}
  if train_documents:
    fields['train_documents'] = train_documents
  return dataclasses.replace(corpus, splits=splits).with_record(fields)


def select_documents(count: int, fraction: float = 1.0, most: int = 0) -> np.ndarray:
  """Return the mask of the used ones of `count` documents (or pairs).

  Each position has one random value. Used are those with a number below `fraction`, at least one, and if `most` is not
  0 only the `most` smallest.
  """
  if not count:
    return np.zeros(0, bool)
  numbers = noise.generator(0, 'fraction').random(count)
  least = np.sort(numbers)
  selected = numbers < max(fraction, np.nextafter(least[0], 1))
  return selected & (numbers <= least[min(most or count, count) - 1])


def _subset(split: Split, fraction: float, most: int, group_size: int, units: Sequence[str]) -> Split:
  """Return the documents that `select_documents` selects; each group of `group_size` documents stays whole.

  `units` are the counts that are the number of tokens.
  """
  selected = np.repeat(select_documents((len(split.offsets) - 1) // group_size, fraction, most), group_size)
  sizes = np.diff(split.offsets)
  tokens = np.asarray(split.tokens)[np.repeat(selected, sizes)]
  # Words, characters and bytes are counted per split, so counts and metrics of a part are unknown.
  counts = dict(split.counts) if selected.all() else {}
  return dataclasses.replace(
    split,
    tokens=tokens,
    offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[selected])]),
    sentences=None,
    token_labels=None,
    labels=None if split.labels is None else split.labels[selected],
    counts=counts | dict.fromkeys(units, len(tokens)) | {'documents': int(selected.sum())},
  )


def _reverse(split: Split, eos_id: int | None) -> Split:
  """Return the documents reversed, without sentence starts and word labels."""
  tokens = np.array(split.tokens)
  for begin, end in zip(split.offsets[:-1].tolist(), split.offsets[1:].tolist(), strict=True):
    end -= end > begin and tokens[end - 1] == eos_id
    tokens[begin:end] = tokens[begin:end][::-1].copy()
  return dataclasses.replace(split, tokens=tokens, sentences=None, token_labels=None)


def _concatenate(parts: Sequence[Split]) -> Split:
  """Return the concatenated splits as one split 'train'; without sentence starts if there are several."""
  if len(parts) == 1:
    return dataclasses.replace(parts[0], name='train')
  starts = np.cumsum([0, *(part.offsets[-1] for part in parts)])
  offsets = [part.offsets[1:] + start for part, start in zip(parts, starts[:-1], strict=True)]
  labels = [part.labels for part in parts if part.labels is not None]
  return dataclasses.replace(
    parts[0],
    name='train',
    tokens=np.concatenate([part.tokens for part in parts]),
    offsets=np.concatenate([np.zeros(1, np.int64), *offsets]),
    sentences=None,
    token_labels=None,
    labels=np.concatenate(labels) if len(labels) == len(parts) else None,
    counts={unit: sum(part.counts[unit] for part in parts) for unit in parts[0].counts},
  )
