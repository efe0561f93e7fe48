"""Rows of a user's file as the input of a classifier."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from lmx.data.tokenizers import build, word_characters
from lmx.objectives import regress
from lmx.prediction import classification


@pytest.mark.parametrize('characters', [0, 8])
def test_words_that_a_run_has_not_seen_are_spelled(characters, tmp_path):
  """A model of characters tells two of them apart; without characters both are unknown."""
  path = tmp_path / 'in.txt'
  path.write_text('the zyzzyva\nthe quagga\n')
  data = SimpleNamespace(dataset='trec', label='label', characters=characters, reverse=False)
  run = SimpleNamespace(data=data, objective=regress.Config())
  loaded = SimpleNamespace(run=run, labels=[], tokenizer=build.train('words', ['the cat sat'], rule='space'))
  inputs = classification.read_file(loaded, str(path))
  split, tokenizer = inputs.corpus.splits[str(path)], inputs.corpus.tokenizer
  rows = np.split(np.asarray(split.tokens), split.offsets[1:-1])
  words = [tokenizer.id_to_token(row[1]) for row in rows]
  assert words == (['zyzzyva', 'quagga'] if characters else ['<unk>', '<unk>'])
  if characters:
    letters = word_characters.create(tokenizer, characters).character_ids(np.array([row[1] for row in rows]))
    assert not np.array_equal(letters[0], letters[1])
