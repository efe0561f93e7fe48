"""Rows whose end is predicted: what each position reads and predicts, what is cut, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lmx.data import pipeline, stop_words
from lmx.data.corpus import Corpus
from lmx.data.tokenizers import build
from lmx.errors import InputError, InputWarning

TEXTS = ['The old man', ' went', 'A', ' thereupon', 'All of the people in it', ' the']
ROWS = ['He had', '', ' one.', ' two words.', 'She', ' was', ' not', ' it']


def corpus(texts, choices=0, labels=None):
  tokenizer = build.train('bpe', TEXTS + ROWS, vocab_size=300)
  made = Corpus.from_texts({'test': texts}, tokenizer, labels=labels and {'test': labels})
  names = ['1', '3'] if choices else []  # as where not every choice is a right one
  manifest = {**made.manifest, 'texts': 2 + choices, 'choices': choices, 'label_names': names}
  return dataclasses.replace(made, manifest=manifest)


def batches(made, length=32, rows=2, **options):
  data = pipeline.Config(batching={'name': 'continuations', **options}, batch_size=rows, length=length)
  return pipeline.batches(data, made, 'test', 0, train=False)


def read(tokenizer, batch, b):
  """(what row b reads, [(text before, what is to follow)]) of its valid positions."""
  tokens = batch['tokens_BT'][b][batch['valid_BT'][b]]
  live = batch['weights_BP'][b] > 0
  pairs = zip(batch['positions_BP'][b][live], batch['targets_BP'][b][live], strict=True)
  return tokenizer.decode(tokens), [(tokenizer.decode(tokens[: p + 1]), tokenizer.decode([t])) for p, t in pairs]


def test_each_subword_of_a_continuation_is_predicted_from_all_before_it():
  made = corpus(TEXTS)
  found = batches(made, rows=3)
  batch = found(0)
  assert found.steps == 1 and sorted(batch['index_B']) == [0, 1, 2] and 'labels_B' not in batch
  for b, i in enumerate(batch['index_B']):
    before, after = TEXTS[2 * i], TEXTS[2 * i + 1]
    text, steps = read(made.tokenizer, batch, b)
    assert steps[0][0] == before and ''.join(piece for _, piece in steps) == after
    assert (before + after).startswith(text) and text == steps[-1][0]
    assert all(said == before + ''.join(piece for _, piece in steps[:n]) for n, (said, _) in enumerate(steps))


def test_choices_share_a_row_and_padding_rows_have_no_weight():
  made = corpus(ROWS, choices=2, labels=[1, -1, -1, -1, 0, -1, -1, -1])
  batch = batches(made, rows=3)(0)
  assert batch['tokens_BGT'].shape[:2] == (3, 2) and 'stops_BW' not in batch
  np.testing.assert_array_equal(batch['row_weights_B'], [1, 1, 0])
  assert not batch['weights_BGP'][2].any() and not batch['valid_BGT'][2].any()
  for b, i in enumerate(batch['index_B'][:2]):
    assert batch['labels_B'][b] == (3, 1)[i]
    for g in range(2):
      one = {key.replace('_BG', '_B'): x[:, g] for key, x in batch.items() if '_BG' in key}
      text, steps = read(made.tokenizer, one, b)
      assert steps[0][0] == ''.join(ROWS[4 * i : 4 * i + 2])
      assert ''.join(piece for _, piece in steps) == ROWS[4 * i + 2 + g]


def test_long_contexts_are_truncated_at_the_beginning():
  made = corpus(TEXTS)
  with pytest.warns(InputWarning, match=r'1 of 3 rows of split test'):
    batch = batches(made, length=12, rows=3, buckets=(4,))(0)
  b = int(np.flatnonzero(batch['index_B'] == 2)[0])
  text, steps = read(made.tokenizer, batch, b)
  assert batch['tokens_BT'].shape == (3, 12) and batch['valid_BT'][b].all()
  assert text != TEXTS[4] and (TEXTS[4] + TEXTS[5]).endswith(text + steps[-1][1])
  assert steps[0][0] == text[: len(steps[0][0])] and ''.join(piece for _, piece in steps) == ' the'


@pytest.mark.parametrize(
  'texts, message',
  [
    (['a', ' b', 'a', ' thereupon' * 9], 'row 2: .*data.length is 32'),
    (['', ' b'], 'row 1: it has no context'),
    (['a b', ''], 'row 1: it has nothing to predict'),
  ],
)
def test_rows_that_cannot_be_predicted_are_rejected(texts, message):
  with pytest.raises(InputError, match=message):
    batches(corpus(texts))


def test_other_data_is_rejected():
  made = corpus(TEXTS)
  with pytest.raises(InputError, match='data.batching: got "continuations"'):
    batches(dataclasses.replace(made, manifest={**made.manifest, 'texts': 1}))


def test_stop_words_are_single_subwords():
  made = corpus(TEXTS)
  found = {made.tokenizer.decode([i]) for i in stop_words.token_ids(made.tokenizer)}
  assert ' the' in found and ' went' not in found and all(piece.strip().lower() in stop_words.WORDS for piece in found)
  batch = batches(made)(0)
  np.testing.assert_array_equal(batch['stops_BW'][1], stop_words.token_ids(made.tokenizer))


def test_document_ends_are_input_but_not_predicted():
  tokenizer = build.train('bpe', TEXTS, vocab_size=300)
  made = Corpus.from_texts({'test': ['The old man', 'went', 'A']}, tokenizer)
  data = pipeline.Config(batching={'name': 'windows', 'ends': False}, batch_size=2, length=4)
  found = pipeline.batches(data, made, 'test', 0, train=False)
  whole = pipeline.batches(dataclasses.replace(data, batching={'name': 'windows'}), made, 'test', 0, train=False)
  counted = read_ends = 0
  for step in range(found.steps):
    batch, full = found(step), whole(step)
    ends_BT = full['targets_BT'] == tokenizer.eos_id
    np.testing.assert_array_equal(batch['tokens_BT'], full['tokens_BT'])
    np.testing.assert_array_equal(batch['weights_BT'], full['weights_BT'] * ~ends_BT)
    counted, read_ends = counted + batch['weights_BT'].sum(), read_ends + (ends_BT * full['weights_BT']).sum()
  assert read_ends == 3 and counted == len(made.splits['test'].tokens) - 1 - 3
