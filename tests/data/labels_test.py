"""Labels of a data set in the numbers of a run."""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest

from lmx.data import labels
from lmx.errors import InputError


@dataclasses.dataclass(frozen=True)
class Corpus:
  manifest: dict
  splits: dict


@dataclasses.dataclass(frozen=True)
class Split:
  labels: np.ndarray | None = None
  token_labels: np.ndarray | None = None


def test_labels_get_the_numbers_of_a_run_and_none_stays_none():
  manifest = {'dataset': {'name': 'x'}, 'label_names': ['a', 'b', 'c']}
  corpus = Corpus(manifest, {'train': Split(np.array([0, 1, 2, -1])), 'test': Split()})
  found = labels.renumbered(corpus, ['c', 'a', 'z', 'b'])
  assert found.splits['train'].labels.tolist() == [1, 3, 0, -1] and found.splits['test'].labels is None
  assert labels.of(found.manifest) == ['c', 'a', 'z', 'b']
  assert labels.renumbered(corpus, ['a', 'b', 'c']) is corpus
  with pytest.raises(InputError, match='data set x has labels that the run does not know: c; it knows a, b'):
    labels.renumbered(corpus, ['a', 'b'])


def test_labels_of_words_too():
  manifest = {'dataset': {'name': 'x'}, 'label_names': [], 'token_label_names': ['B', 'O']}
  corpus = Corpus(manifest, {'train': Split(token_labels=np.array([1, -1, 0]))})
  found = labels.renumbered(corpus, ['O', 'B'])
  assert found.splits['train'].token_labels.tolist() == [0, -1, 1] and found.manifest['label_names'] == []


def test_names_of_labels():
  assert labels.of(types.MappingProxyType({'label_names': ['a']})) == ['a']
