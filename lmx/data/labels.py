"""What stands as label in a data set, as arrays: names of classes, scores, places of answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lmx.data.tokenizer import Tokenizer


def arrays(
  labels: Mapping[str, Sequence[str]], *, spans: bool, scores: bool
) -> tuple[list[str], dict[str, np.ndarray]]:
  """(names of the classes, split -> labels of its documents); without names where they are places or scores."""
  if spans:
    return [], places(labels)
  return ([], scored(labels)) if scores else numbered(labels)


def numbered(labels: Mapping[str, Sequence[str]]) -> tuple[list[str], dict[str, np.ndarray]]:
  """(names of the labels in order, split -> their numbers, -1 for none; without splits where there are no labels)."""
  names = sorted({label for found in labels.values() for label in found} - {''})
  ids = {label: i for i, label in enumerate(names)}
  number = lambda found: np.asarray([ids.get(label, -1) for label in found], np.int32)
  return names, {split: number(found) for split, found in labels.items()} if names else {}


def scored(labels: Mapping[str, Sequence[str]]) -> dict[str, np.ndarray]:
  """Split -> the score of each document, float32, NaN for none."""
  number = lambda found: np.asarray([float(label) if label else np.nan for label in found], np.float32)
  return {split: number(found) for split, found in labels.items()}


def places(labels: Mapping[str, Sequence[str]]) -> dict[str, np.ndarray]:
  """Split -> first token of the answer for each passage, last token for each question, int32, -1 for none."""

  def tokens(found: Sequence[str]) -> np.ndarray:
    pairs = [label.split(':') if label != 'none' else ('-1', '-1') for label in found[::2]]
    return np.asarray(pairs, np.int32).ravel()

  return {split: tokens(found) for split, found in labels.items()}


class AtTokens:
  """Examples of passages and questions, whose labels say at which tokens the answer stands.

  Raises:
    InputError: the tokenizer cannot say where its pieces come from.
  """

  def __init__(self, examples: Any, tokenizer: Tokenizer):
    self._examples, self._tokenizer = examples, tokenizer

  def __len__(self) -> int:
    return len(self._examples)

  def __iter__(self) -> Iterator[tuple[str, str, str]]:
    context, places = '', np.zeros((0, 2), np.int32)
    for i, (name, text, label) in enumerate(self._examples):
      if i % 2:
        yield name, text, ''
        continue
      if label != 'none':
        if text != context:  # questions on a passage follow one another
          context, places = text, self._tokenizer.encode_spans(text)[1]
        begin, end = map(int, label.split(':'))
        inside = np.flatnonzero((places[:, 1] > begin) & (places[:, 0] < end) & (places[:, 1] > places[:, 0]))
        label = f'{inside[0]}:{inside[-1]}' if inside.size else 'none'
      yield name, text, label
