"""Labelled documents one a row: each once an epoch, padded to their bucket, the same on any number of hosts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lmx.data import corpus as corpora
from lmx.data import pipeline, transforms
from lmx.data.batching import documents
from lmx.data.tokenizers import build
from lmx.errors import InputError, InputWarning

DOCUMENTS = [' '.join(f'w{(i * 7 + j) % 13}' for j in range(1 + (i * 5) % 23)) for i in range(37)]


def corpus(documents=DOCUMENTS, labels=None) -> corpora.Corpus:
  tokenizer = build.train('words', DOCUMENTS)
  labels = [i % 3 for i in range(len(documents))] if labels is None else labels
  splits = dict.fromkeys(('train', 'valid', 'test'), documents)
  return corpora.Corpus.from_texts(splits, tokenizer, labels=dict.fromkeys(splits, labels))


def batches(train=True, split='train', seed=0, made=None, buckets=(8, 16), **changes):
  batching = {'name': 'documents', 'buckets': buckets}
  cfg = pipeline.Config(**({'batch_size': 4, 'length': 24} | changes), batching=batching)
  made = made or corpus()
  made = transforms.view(made, reverse=cfg.reverse, train_splits=cfg.train_splits, fraction=cfg.fraction)
  return pipeline.batches(cfg, made, split, seed, train=train), made


def text(made, tokens) -> str:
  return ' '.join(made.tokenizer.id_to_token(int(i)) for i in tokens)


def test_row_is_start_token_and_document():
  found, made = batches(train=False)
  for step in range(found.steps):
    batch = found(step)
    for b, index in enumerate(batch['index_B']):
      if index < 0:
        assert not batch['valid_BT'][b].any() and batch['row_weights_B'][b] == 0
        continue
      tokens = batch['tokens_BT'][b][batch['valid_BT'][b]]
      assert text(made, tokens) == '<eos> ' + DOCUMENTS[index]
      assert batch['labels_B'][b] == index % 3 and batch['row_weights_B'][b] == 1
      assert batch['valid_BT'][b].argmin() in (0, len(tokens))  # padding on the right


def test_each_epoch_has_every_document_once():
  found, _ = batches(train=False)
  index = np.concatenate([found(s)['index_B'] for s in range(found.steps)])
  assert sorted(index[index >= 0]) == list(range(37)) and found.steps == 10
  found, _ = batches()
  epochs = [np.concatenate([found(e * found.steps + s)['index_B'] for s in range(found.steps)]) for e in (0, 1)]
  for epoch in epochs:
    assert len(set(epoch.tolist())) == len(epoch) == 36 and epoch.min() >= 0
  assert not np.array_equal(*epochs)
  assert not np.array_equal(batches(seed=1)[0](0)['index_B'], found(0)['index_B'])
  plain, _ = batches(shuffle=False)
  np.testing.assert_array_equal(plain(1)['index_B'], [4, 5, 6, 7])


def test_rows_are_padded_to_the_longest_bucket_of_all_hosts():
  found, _ = batches()
  lengths = set()
  for step in range(3 * found.steps):
    whole = found(step)
    longest = whole['valid_BT'].sum(1).max()
    length = whole['tokens_BT'].shape[1]
    assert length == min(b for b in (8, 16, 24) if b >= longest)
    lengths.add(length)
    for rows in (slice(0, 1), slice(1, 4)):
      part = found(step, rows)
      for key, array in part.items():
        np.testing.assert_array_equal(array, whole[key][rows])
  assert lengths == {8, 16, 24}


def test_host_reads_only_its_rows(monkeypatch):
  found, _ = batches()
  rows_read = []
  read = lambda self, position: rows_read.append(len(position)) or self._tokens[position].astype(np.int32)
  monkeypatch.setattr(type(found), '_read', read)
  found(0, slice(1, 3))
  assert sum(rows_read) == 2


def test_documents_are_bucketed_by_length():
  documents = [' '.join(['w1'] * (1 + i % 40)) for i in range(400)]
  made = corpus(documents)
  drawn = batches(made=made, batch_size=8, length=64, buckets=())[0]
  spread = [np.ptp(drawn(s)['valid_BT'].sum(1)) for s in range(drawn.steps)]
  assert np.mean(spread) < 3
  sizes = [drawn(s)['valid_BT'].sum(1).mean() for s in range(drawn.steps)]
  assert abs(np.corrcoef(sizes, range(len(sizes)))[0, 1]) < 0.5  # and the batches in a drawn order
  evaluated = batches(made=made, train=False, batch_size=8, length=64, buckets=())[0]
  assert pipeline.describe(evaluated)['padding'] == pytest.approx(1 - np.mean([2 + i % 40 for i in range(400)]) / 64)


def test_long_document_keeps_its_end_with_a_warning():
  note = '27 of 37 documents of split train are longer than 6 and keep only their end'
  with pytest.warns(InputWarning, match=note):
    found, made = batches(train=False, length=6, buckets=())
  assert batches(train=True, length=6, buckets=())[0].notes == (note,)
  assert batches(train=True, length=64, buckets=())[0].notes == ()
  batch = found(found.steps - 2)
  for b, index in enumerate(batch['index_B']):
    assert text(made, batch['tokens_BT'][b]) == ' '.join(('<eos> ' + DOCUMENTS[index]).split()[-6:])


def test_reversed_text_is_generated_backwards():
  found, made = batches(train=False, reverse=True)
  batch = found(0)
  forward, _ = batches(train=False)
  for b, index in enumerate(batch['index_B']):
    tokens = batch['tokens_BT'][b][batch['valid_BT'][b]]
    assert text(made, tokens) == ' '.join(['<eos>', *DOCUMENTS[index].split()[::-1]])
  np.testing.assert_array_equal(forward(0)['labels_B'], batch['labels_B'])


def test_tokenizer_without_eos_gives_only_the_document():
  tokenizer = build.train('wordpiece', DOCUMENTS, vocab_size=60)
  labels = {'train': [0] * 37}
  made = corpora.Corpus.from_texts({'train': DOCUMENTS}, tokenizer, labels=labels)
  batch = batches(made=made, train=False, length=64, buckets=())[0](0)
  for b, index in enumerate(batch['index_B']):
    wanted = tokenizer.encode(DOCUMENTS[index])
    np.testing.assert_array_equal(batch['tokens_BT'][b][batch['valid_BT'][b]], wanted)


def test_invalid_options_are_rejected():
  with pytest.raises(InputError, match=r'1 documents without a label \(number 2 is the first\)'):
    batches(made=corpus(labels=[0, -1] + [0] * 35))
  held_out, _ = batches(made=corpus(labels=[0, -1] + [0] * 35), train=False)
  assert held_out.unlabelled == 1
  unlabelled = corpora.Corpus.from_texts({'train': DOCUMENTS}, corpus().tokenizer)
  with pytest.raises(InputError, match='documents without a label'):
    batches(made=unlabelled)
  with pytest.raises(InputError, match='got 37 documents'):
    batches(batch_size=64)
  with pytest.raises(InputError, match='data.batching.buckets'):
    batches(buckets=(8, 0))
  with pytest.raises(IndexError):
    batches(train=False)[0](10)


def test_text_pairs_are_rejected():
  _, made = batches(train=False)
  pairs = dataclasses.replace(made, manifest={**made.manifest, 'texts': 2})
  with pytest.raises(InputError, match='data.batching: got'):
    documents.build(None, pairs, 'train', 0, train=True)
