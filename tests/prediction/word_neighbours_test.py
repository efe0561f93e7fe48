"""Nearest neighbours in the embedding tables of a run."""

from __future__ import annotations

import types

import numpy as np
import pytest

from lmx.data.tokenizers import build, word_characters
from lmx.errors import InputError
from lmx.prediction import word_neighbours

TEXT = 'the king and the queen saw the king near the castle\n'
TOKENIZER = build.train('words', [TEXT], rule='lines')


def loaded(embed, characters=0):
  run = types.SimpleNamespace(data=types.SimpleNamespace(characters=characters))
  model, params = types.SimpleNamespace(name='a_model', READS='tokens'), {'model': {'embed': embed}}
  return types.SimpleNamespace(model=model, params=params, tokenizer=TOKENIZER, run=run, workdir='run')


def table(words=None):
  """Every word has its own axis, except that queen is near king."""
  words = words or [TOKENIZER.id_to_token(i) for i in range(TOKENIZER.vocab_size)]
  table_VD = np.eye(len(words), dtype=np.float32)
  table_VD[words.index('queen'), words.index('king')] = 3.0
  return table_VD


@pytest.mark.parametrize('characters', [0, 8])
def test_neighbours_of_content_words_are_those_of_largest_cosine(characters):
  run = loaded({'table': table(word_characters.vocabulary(TOKENIZER) if characters else None)}, characters)
  (found,) = word_neighbours.find(run)
  rows = dict(found.words)
  assert found.table == 'embed/table' and {*rows} == {'king', 'queen', 'castle'}  # no stop words
  assert rows['king'][0] == ('queen', pytest.approx(3 / np.sqrt(10), abs=1e-6)) and len(rows['king']) <= 8
  (found,) = word_neighbours.find(run, ['queen', 'near'])
  assert [word for word, _ in found.words] == ['queen', 'near'] and found.words[0][1][0][0] == 'king'


def test_clusters_of_adaptive_embeddings_are_one_table():
  whole = table()
  V, D = whole.shape
  embed = {'tokens_0': whole[:3], 'tokens_1': whole[3:] @ np.eye(D, 2 * D), 'projection_1': np.eye(2 * D, D)}
  (found,) = word_neighbours.find(loaded(embed))
  (expected,) = word_neighbours.find(loaded({'tokens': whole}))
  for (word, near), (other, wanted) in zip(found.words, expected.words, strict=True):
    assert word == other and near[0][1] == pytest.approx(wanted[0][1], abs=1e-6)
    assert word == 'castle' or near[0][0] == wanted[0][0]  # castle is as far from every word
  assert found.table == 'embed/tokens' and V > 4


def test_words_without_a_vector_are_rejected():
  with pytest.raises(InputError, match='--words: got "kings", which is no token .*"king"'):
    word_neighbours.find(loaded({'table': table()}), ['kings'])
  with pytest.raises(InputError, match='--words: model a_model has no table'):
    word_neighbours.find(loaded({'positions': table()}))
