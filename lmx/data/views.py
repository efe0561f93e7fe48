"""Other ways to read a tokenised data set: backwards, with more splits to train on, or a part of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from lmx.data import noise
from lmx.data.corpus import Corpus, Split, manifest_hash
from lmx.errors import InputError, nearest


def view(
  corpus: Corpus, *, reverse: bool = False, train_splits: Sequence[str] = ('train',), fraction: float = 1.0
) -> Corpus:
  """Returns the corpus read another way; itself where nothing is changed.

  Args:
    corpus: what `lmx.data.corpus.load` gave.
    reverse: whether each document is read from its end to its beginning; its last end-of-text id stays last.
    train_splits: the splits that together are 'train'. Text to learn a language model from may be that of splits whose
      labels are held out.
    fraction: share of the documents (of translations: of the pairs) of each split that is kept; a smaller share is a
      part of a larger one.

  Raises:
    InputError: there is no such split.
  """
  if not reverse and tuple(train_splits) == ('train',) and fraction == 1:
    return corpus
  for name in train_splits:
    if name not in corpus.splits:
      raise InputError(f'data.train_splits: the data set has no split "{name}"{nearest(name, corpus.splits)}')
  splits = {**corpus.splits, 'train': _joined([corpus.splits[name] for name in train_splits])}
  if fraction < 1:
    together = corpus.manifest.get('texts', 2 if corpus.manifest.get('sides') else 1)
    splits = {name: _part(split, fraction, together) for name, split in splits.items()}
  if reverse:
    splits = {name: _reversed(split, corpus.tokenizer.eos_id) for name, split in splits.items()}
  manifest = {**corpus.manifest, 'reverse': reverse, 'train_splits': list(train_splits), 'fraction': fraction}
  return dataclasses.replace(corpus, splits=splits, manifest=manifest, hash=manifest_hash(manifest))


def kept(count: int, fraction: float) -> np.ndarray:
  """Which of `count` documents (or pairs) `data.fraction` keeps, bool; at least one of them."""
  drawn = noise.generator(0, 'fraction').random(count)
  return drawn < max(fraction, np.nextafter(drawn.min(), 1))


def _part(split: Split, fraction: float, together: int) -> Split:
  """The documents whose number, drawn for their place in the split, is below `fraction`; at least one. So many one
  after another stay `together`."""
  taken = np.repeat(kept((len(split.offsets) - 1) // together, fraction), together)
  sizes = np.diff(split.offsets)
  tokens = np.asarray(split.tokens)[np.repeat(taken, sizes)]
  share = len(tokens) / max(len(split.tokens), 1)
  counts = {unit: round(share * count) for unit, count in split.counts.items()}  # characters and words: near enough
  return dataclasses.replace(
    split,
    tokens=tokens,
    offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[taken])]),
    sentences=None,
    token_labels=None,
    labels=None if split.labels is None else split.labels[taken],
    counts=counts | {'tokens': len(tokens), 'documents': int(taken.sum())},
  )


def _reversed(split: Split, eos_id: int | None) -> Split:
  """Documents backwards, without the starts of sentences and the labels of words."""
  tokens = np.array(split.tokens)
  for begin, end in zip(split.offsets[:-1].tolist(), split.offsets[1:].tolist(), strict=True):
    end -= end > begin and tokens[end - 1] == eos_id
    tokens[begin:end] = tokens[begin:end][::-1].copy()
  return dataclasses.replace(split, tokens=tokens, sentences=None, token_labels=None)


def _joined(parts: Sequence[Split]) -> Split:
  """Splits one after another, as one split 'train'; of several, without the starts of sentences."""
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
