"""Nearest neighbours in the embedding tables of a run."""

from __future__ import annotations

import types

import numpy as np
import pytest

from lmx.data.tokenizers import build
from lmx.errors import InputError
from lmx.prediction import word_neighbours

TEXT = 'the king and the queen saw the king near the castle\n'
TOKENIZER = build.train('words', [TEXT], rule='lines')


def loaded(embed, reads='tokens', tokenizer=TOKENIZER):
  model = types.SimpleNamespace(name='a_model', READS=reads)
  return types.SimpleNamespace(model=model, params={'model': {'embed': embed}}, tokenizer=tokenizer, workdir='run')


def table():
  """Every word has its own axis, except that queen is near king."""
  table_VD = np.eye(TOKENIZER.vocab_size, dtype=np.float32)
  king, queen = (int(TOKENIZER.encode(word)[0]) for word in ('king', 'queen'))
  table_VD[queen, king] = 3.0
  return table_VD


@pytest.mark.parametrize('reads', ['tokens', 'characters'])
def test_neighbours_of_content_words_are_those_of_largest_cosine(reads):
  (found,) = word_neighbours.find(loaded({'table': table()}, reads))
  rows = dict(found.words)
  assert found.table == 'embed/table' and {*rows} == {'king', 'queen', 'castle'}  # no stop words
  assert rows['king'][0] == ('queen', pytest.approx(3 / np.sqrt(10), abs=1e-6)) and len(rows['king']) <= 8
  (found,) = word_neighbours.find(loaded({'table': table()}, reads), ['queen', 'near'])
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
