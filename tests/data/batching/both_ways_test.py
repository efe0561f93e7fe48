"""Texts of a task as sentences of a bidirectional language model."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lmx.data import corpus as corpora
from lmx.data import pipeline
from lmx.data.tokenizers import word_characters, words
from lmx.errors import InputError

PASSAGE, OTHER = 'the cat sat . it slept', 'a dog ran'
TEXTS = [PASSAGE, 'who sat ?', PASSAGE, 'who slept ?', OTHER, 'who sat ?']


def read(documents: str) -> list[str]:
  """The sentences that the forward direction reads, of questions on passages, two of them on the same one."""
  tokenizer = words.train(TEXTS, 0, 1, lower_case=False, rule='prose', document_eos=True)
  made = corpora.Corpus.from_texts(dict.fromkeys(('train', 'valid'), TEXTS), tokenizer)
  data = pipeline.Config(
    dataset='squad_files',
    characters=8,
    batch_size=1,
    length=64,
    batching={'name': 'both_ways', 'documents': documents},
  )
  batches = pipeline.batches(data, dataclasses.replace(made), 'valid', 0, train=False)
  batch, known = batches(0), word_characters.vocabulary(tokenizer)
  count = int(batch['weights_BT'].sum())
  return ' '.join(known[i] for i in batch['targets_BT'][0, :count]).split(' </S>')[:-1]


def test_each_text_of_a_task_is_a_sentence_and_is_read_once():
  strip = lambda rows: [row.strip() for row in rows]
  assert strip(read('all')) == [PASSAGE, 'who sat ?', 'who slept ?', OTHER]
  assert strip(read('first')) == [PASSAGE, OTHER]  # passages without their questions
  with pytest.raises(InputError, match='data.batching.documents=all'):
    read('')
  with pytest.raises(InputError, match='batching.documents'):
    read('some')


def test_directions_read_a_text_in_opposite_order():
  tokenizer = words.train(TEXTS, 0, 1, lower_case=False, rule='prose', document_eos=True)
  made = corpora.Corpus.from_texts({'valid': [OTHER]}, tokenizer)
  batching = {'name': 'both_ways', 'documents': 'all'}
  data = pipeline.Config(dataset='squad_files', characters=8, batch_size=1, length=8, batching=batching)
  batch = pipeline.batches(data, made, 'valid', 0, train=False)(0)
  known = word_characters.vocabulary(tokenizer)
  targets = lambda key: [known[i] for i in np.asarray(batch[key])[0, :4]]
  assert targets('targets_BT') == ['a', 'dog', 'ran', '</S>']
  assert targets('backward_targets_BT') == ['ran', 'dog', 'a', '<S>']
