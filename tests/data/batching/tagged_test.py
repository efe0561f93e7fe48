"""Rows of labelled sentences with the words around them in their document, restated word by word."""

from __future__ import annotations

import numpy as np
import pytest

from lmx.data import pipeline
from lmx.data.batching import tagged
from lmx.data.splits import Split
from lmx.data.tokenizers.base import row_template
from lmx.errors import InputError

CLS, SEP = 1, 2


def split_of(seed=0):
  """Sentences of one to four words of one to three subwords each, in documents of one to five sentences."""
  draw = np.random.default_rng(seed)
  sentences = [draw.integers(1, 4, draw.integers(1, 5)).tolist() for _ in range(30)]
  documents = np.repeat(np.arange(30), draw.integers(1, 6, 30))[:30]
  labels = [label for words in sentences for n in words for label in (draw.integers(0, 3), *[-1] * (n - 1))]
  offsets = np.cumsum([0, *map(sum, sentences)])
  tokens = np.arange(10, 10 + offsets[-1])
  return Split('train', tokens, offsets, None, None, {}, np.asarray(labels, np.int32), documents.astype(np.int32))


def batches_of(split, length, train=False):
  cfg = tagged.Config(form='bert', context='document')
  options = dict(template=row_template([(CLS,), (SEP,)]), end_id=None, cfg=cfg, vocab_size=1000, seed=0)
  return tagged.Tagged(split, 4, length, train=train, **options)


def row_of(split, sentence, room):
  """Tokens and labels of a row: words are added on both sides while they fit into its share of the room."""
  label_of = split.token_labels
  inside = lambda i: range(split.offsets[i], split.offsets[i + 1])
  document = np.flatnonzero(split.file_documents == split.file_documents[sentence])
  positions = [t for i in document for t in inside(i)]
  own = [*inside(sentence)]
  before, after = own[0] - positions[0], positions[-1] - own[-1]
  free = room - len(own)
  left = min(before, max(free // 2, free - after))
  right = min(after, free - left)
  read = [t for t in positions if own[0] - left <= t <= own[-1] + right]
  while label_of[read[0]] < 0:  # the rest of a word that does not fit
    read.pop(0)
  if read[-1] != positions[-1] and label_of[read[-1] + 1] < 0:
    while label_of[read.pop()] < 0:
      pass
  labels = [label_of[t] if t in own else -1 for t in read]
  return [CLS, *split.tokens[read], SEP], [-1, *labels, -1]


@pytest.mark.parametrize('length', [14, 15, 24, 200])
def test_row_is_a_sentence_in_the_whole_words_around_it(length):
  split = split_of()
  batches, seen = batches_of(split, length), []
  for step in range(batches.steps):
    batch = batches(step)
    for b in np.flatnonzero(batch['index_B'] >= 0):
      tokens, labels = row_of(split, batch['index_B'][b], length - 2)
      n = batch['valid_BT'][b].sum()
      assert batch['valid_BT'][b, :n].all() and batch['tokens_BT'][b, :n].tolist() == tokens
      counted = np.asarray(labels) >= 0
      np.testing.assert_array_equal(batch['weights_BT'][b, :n], counted)
      np.testing.assert_array_equal(batch['labels_BT'][b, :n][counted], np.asarray(labels)[counted])
      seen += batch['tokens_BT'][b][batch['weights_BT'][b] > 0].tolist()
  assert sorted(seen) == split.tokens[split.token_labels >= 0].tolist()  # each word is scored once


def test_contexts_that_cannot_be_read_are_rejected():
  with pytest.raises(InputError, match='data.length: got 8; expected at least'):
    batches_of(split_of(), 8)
  for batching, data, message in (
    ({'context': 'file'}, {}, 'data.batching.context: unknown "file"'),
    ({'context': 'document'}, {}, 'data.batching.context: got "document" with data.batching.form "plain"'),
    ({'context': 'document', 'form': 'bert'}, {'dataset': 'conll2005'}, 'which has a sentence once for each predicate'),
  ):
    with pytest.raises(InputError, match=message):
      pipeline.Config(
        **{'dataset': 'conll2003', 'tokenizer': 'wordpiece', 'batching': {'name': 'tagged', **batching}, **data}
      )
