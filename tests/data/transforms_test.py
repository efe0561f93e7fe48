"""Other ways to read a corpus change what they say and keep what they do not."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from lmx.data import corpus as corpora
from lmx.data import pipeline, transforms
from lmx.data.tokenizers import build
from lmx.errors import InputError

TEXTS = {
  'train': [f'a{i} b{i} c' for i in range(50)],
  'valid': ['v w'],
  'test': ['x y z', 'x'],
}
LABELS = {name: [i % 2 for i in range(len(texts))] for name, texts in TEXTS.items()}


def corpus() -> corpora.Corpus:
  tokenizer = build.train('words', [text for texts in TEXTS.values() for text in texts])
  return corpora.Corpus.from_texts(TEXTS, tokenizer, labels=LABELS)


def words(made, split) -> list[str]:
  return [made.tokenizer.id_to_token(int(i)) for i in made.splits[split].tokens]


def test_empty_selection_keeps_the_corpus():
  made = corpus()
  assert transforms.view(made) is made


def test_reversed_documents_keep_their_eos():
  made = corpus()
  back = transforms.view(made, reverse=True)
  assert words(back, 'test') == ['z', 'y', 'x', '<eos>', 'x', '<eos>']
  np.testing.assert_array_equal(back.splits['test'].offsets, made.splits['test'].offsets)
  assert back.hash != made.hash and dict(back.splits['test'].counts) == dict(made.splits['test'].counts)
  again = transforms.view(back, reverse=True)
  for name in TEXTS:
    np.testing.assert_array_equal(again.splits[name].tokens, made.splits[name].tokens)
  assert words(made, 'test')[0] == 'x'  # the first corpus is as it was


def test_other_splits_to_train_on():
  made = transforms.view(corpus(), train_splits=('train', 'test'))
  train = made.splits['train']
  assert words(made, 'train')[-6:] == ['x', 'y', 'z', '<eos>', 'x', '<eos>'] and len(train.offsets) == 53
  np.testing.assert_array_equal(train.labels, LABELS['train'] + LABELS['test'])
  assert train.counts['tokens'] == len(train.tokens) == train.offsets[-1] and train.counts['documents'] == 52
  with pytest.raises(InputError, match='data.train_splits: got "tset".*did you mean "test"'):
    transforms.view(corpus(), train_splits=('train', 'tset'))


def test_data_fraction_is_deterministic():
  made = corpus()
  half, fifth = transforms.view(made, fraction=0.5), transforms.view(made, fraction=0.2)
  texts = lambda made: {
    ' '.join(words(made, 'train')[b:e])
    for b, e in zip(made.splits['train'].offsets[:-1], made.splits['train'].offsets[1:], strict=True)
  }
  assert texts(fifth) < texts(half) < texts(made) and 15 <= len(texts(half)) <= 35
  assert len(half.splits['valid'].offsets) == 2  # a split is never empty
  for made in (half, fifth):
    train = made.splits['train']
    assert train.offsets[-1] == len(train.tokens) == train.counts['tokens']
    assert len(train.labels) == len(train.offsets) - 1 == train.counts['documents']
  with pytest.raises(InputError, match='data.fraction: got 0'):
    pipeline.Config(fraction=0.0)


@pytest.mark.parametrize('kind', ['words', 'characters'])
def test_part_of_a_split_has_no_counts_of_text(kind):
  tokenizer = build.train(kind, [text for texts in TEXTS.values() for text in texts])
  made = corpora.Corpus.from_texts(TEXTS, tokenizer, labels=LABELS)
  part, whole = transforms.view(made, fraction=0.2), transforms.view(made, train_documents=10**6)
  for name, split in made.splits.items():
    used = len(part.splits[name].offsets) - 1
    if used < len(split.offsets) - 1:
      size = len(part.splits[name].tokens)
      assert part.splits[name].counts == {'tokens': size, 'documents': used} | (
        {'words': size} if kind == 'words' else {}
      )
    assert whole.splits[name].counts == split.counts


def test_few_documents_to_train_on_leave_the_rest_whole():
  made = corpus()
  texts = lambda made: [tuple(words(made, 'train')[b:e]) for b, e in itertools.pairwise(made.splits['train'].offsets)]
  seven, twenty = (transforms.view(made, train_documents=n) for n in (7, 20))
  assert [len(texts(made)) for made in (seven, twenty)] == [7, 20]
  assert set(texts(seven)) < set(texts(twenty)) < set(texts(made))
  places = [texts(made).index(text) for text in texts(seven)]
  assert places == sorted(places)  # in the order of the data
  np.testing.assert_array_equal(seven.splits['train'].labels, np.asarray(LABELS['train'])[places])
  for split in ('valid', 'test'):
    np.testing.assert_array_equal(seven.splits[split].tokens, made.splits[split].tokens)
  assert texts(transforms.view(made, train_documents=10**6)) == texts(made)
  both = transforms.view(made, train_documents=20, fraction=0.2)
  assert texts(both) == [text for text in texts(transforms.view(made, fraction=0.2)) if text in texts(twenty)]
  cfg = pipeline.Config(train_documents=7)
  assert pipeline.select_documents(cfg, 'train', len(texts(made))).tolist() == places
  assert pipeline.select_documents(cfg, 'test', 9).tolist() == list(range(9)) and not len(
    pipeline.select_documents(cfg, 'train', 0)
  )
  with pytest.raises(InputError, match='data.train_documents: got -1'):
    pipeline.Config(train_documents=-1)
  with pytest.raises(InputError, match='needs sentences'):
    pipeline.Config(batching='pairs', train_documents=7, length=32)


@pytest.mark.parametrize('pairs', [{'sides': ['en', 'de']}, {'spans': True}, {'texts': 2}])
def test_documents_of_a_row_stay_together(pairs):
  made = dataclasses.replace(corpus(), manifest={**corpus().manifest, **pairs})
  texts = lambda made: [tuple(words(made, 'train')[b:e]) for b, e in itertools.pairwise(made.splits['train'].offsets)]
  for fields in ({'train_documents': 7}, {'fraction': 0.3}):
    places = [texts(made).index(text) for text in texts(transforms.view(made, **fields))]
    assert places[::2] == [place - 1 for place in places[1::2]] and not any(place % 2 for place in places[::2])
    assert 0 < len(places) < 50


def test_data_section_selects_the_view(monkeypatch):
  monkeypatch.setattr(corpora, 'load', lambda cfg, processes: corpus())
  view = {'reverse': True, 'train_splits': ('test',), 'train_documents': 9, 'fraction': 0.5}
  cfg = pipeline.Config(**view)
  assert pipeline.load(cfg).hash == transforms.view(corpus(), **view).hash
  assert pipeline.load(cfg).hash != transforms.view(corpus(), **view | {'train_documents': 8}).hash
  with pytest.raises(InputError, match='data.batching: got "pairs"'):
    pipeline.Config(batching='pairs', reverse=True, length=32)
