"""Rows of a user's file as the input of a classifier."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lmx.data import datasets
from lmx.data.tokenizers import build, word_characters
from lmx.prediction import classification
from tests import untrained


@pytest.mark.parametrize('characters', [0, 8])
def test_words_that_a_run_has_not_seen_are_spelled(characters, tmp_path):
  """A model of characters tells two of them apart; without characters both are unknown."""
  path = tmp_path / 'in.txt'
  path.write_text('the zyzzyva\nthe quagga\n')
  tokenizer = build.train('words', ['the cat sat'], rule='space')
  settings = f'data.characters={characters}', 'objective.name=regress', 'objective.metric=pearson'
  loaded = untrained.load('experiments/glue_bilstm/tasks.py:sst2', *settings, tokenizer=tokenizer)
  inputs = classification.read_file(loaded, str(path))
  split, tokenizer = inputs.corpus.splits[str(path)], inputs.corpus.tokenizer
  rows = np.split(np.asarray(split.tokens), split.offsets[1:-1])
  words = [tokenizer.id_to_token(row[1]) for row in rows]
  assert words == (['zyzzyva', 'quagga'] if characters else ['<unk>', '<unk>'])
  if characters:
    letters = word_characters.create(tokenizer, characters).character_ids(np.array([row[1] for row in rows]))
    assert not np.array_equal(letters[0], letters[1])


@pytest.mark.parametrize(
  'dataset,content,expected',
  [
    ('glue/sst2', 'sentence\tlabel\nbad\t0\ngood\t1\nfine\tpositive\n', ['negative', 'positive', 'positive']),
    ('glue/cola', 'gj04\t0\t*\tthem sat\ngj04\t1\t\tthey sat\n', ['unacceptable', 'acceptable']),
    ('glue/qqp', 'id\tquestion1\tquestion2\tis_duplicate\n1\ta\tb\t0\n2\ta\ta\t1\n', ['not_duplicate', 'duplicate']),
    ('snli', 'gold_label\tsentence1\tsentence2\n-\ta\tb\nneutral\ta\tc\n', ['', 'neutral']),
    ('zhang2015/yelp_polarity', 'label\ttext\n1\tbad\n2\tgood\n', ['negative', 'positive']),
  ],
)
def test_labels_are_read_as_in_the_data_sets_own_files(dataset, content, expected, tmp_path):
  path = tmp_path / 'dev.tsv'
  path.write_text(content)
  classes = sorted({*datasets.DATA_SETS[dataset].columns.classes.values()})
  (tmp_path / 'data.json').write_text(json.dumps({'hash': '', 'imported_from': 'x', 'label_names': classes}))
  run = untrained.load('experiments/bert/tasks.py:sst2', f'data.dataset={dataset}', workdir=tmp_path)
  assert [row.label for row in classification.read_rows(str(path), run)] == expected


def test_scores_are_read_as_in_the_data_sets_own_files(tmp_path):
  (tmp_path / 'dev.tsv').write_text('sentence1\tsentence2\tscore\na\tb\t2.5\n')
  rows = classification.read_rows(str(tmp_path / 'dev.tsv'), untrained.load('experiments/bert/tasks.py:stsb'))
  assert [row.label for row in rows] == ['2.5']
