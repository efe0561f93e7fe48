"""The n-gram baselines against a restatement with dictionaries, and against a published figure."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from lmx.errors import InputError
from lmx.metrics import ngram
from tests.reference import kneser_ney as reference

V = 7


def _texts(seed: int, count: int) -> list[list[int]]:
  random = np.random.default_rng(seed)
  # Falling frequencies, so that counts of 1 to 4 all occur; the last id never does.
  p = np.array([8, 5, 3, 2, 1, 1, 0]) / 20
  return [random.choice(V, size=random.integers(1, 12), p=p).tolist() for _ in range(count)]


def _flat(texts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
  return np.concatenate([np.array(t, np.uint16) for t in texts]), np.cumsum([0, *map(len, texts)])


@pytest.mark.parametrize('order', [1, 2, 3, 5])
@pytest.mark.parametrize('modified', [False, True])
@pytest.mark.parametrize('boundaries', ['stream', 'document'])
@pytest.mark.parametrize('backoff, minimum', [(False, 1), (True, 1), (True, 2), (False, 2)])
def test_matches_reference(order, modified, boundaries, backoff, minimum):
  train, test = _texts(0, 40), _texts(1, 6) + [[6, 6, 0, 1]]
  x, offsets = _flat(train)
  y, test_offsets = _flat(test)
  model = ngram.kneser_ney(
    x, V, order=order, modified=modified, boundaries=boundaries, offsets=offsets, backoff=backoff, minimum=minimum
  )
  _, nll = ngram.score(model, y, boundaries=boundaries, offsets=test_offsets)
  joined = lambda texts: texts if boundaries == 'document' else [sum(texts, [])]
  slow = (reference.BackOff if backoff else reference.KneserNey)(joined(train), V, order, modified, minimum)
  expected = []
  for text in joined(test):
    expected += [slow.probability(w, (reference.START, *text[:i])) for i, w in enumerate(text)]
  np.testing.assert_allclose(np.exp(-nll), expected, rtol=1e-9)


@pytest.mark.parametrize('backoff', [False, True])
@pytest.mark.parametrize('count', [40, 400])  # of texts; many leave contexts that saw every word
def test_probabilities_sum_to_one_after_every_context(backoff, count):
  x, offsets = _flat(_texts(2, count))
  model = ngram.kneser_ney(x, V, order=3, boundaries='document', offsets=offsets, backoff=backoff)
  contexts = [(), *((a,) for a in range(V)), *((a, b) for a in range(V) for b in range(V))]
  for context in contexts:
    ends = [[*context, w] for w in range(V)]
    y, test_offsets = _flat(ends)
    _, nll = ngram.score(model, y, boundaries='document', offsets=test_offsets)
    last = nll[test_offsets[1:] - 1]
    assert np.exp(-last).sum() == pytest.approx(1, abs=1e-12), context


def test_context_with_every_word_does_not_back_off():
  x = np.array([0, 0, 1, 0, 0, 1, 1, 1, 0, 1])  # after 0 and after 1 both words were seen
  model = ngram.kneser_ney(x, 2, order=2, backoff=True)
  slow = reference.BackOff([x.tolist()], 2, 2, True)
  for a in (0, 1):
    P = [np.exp(-ngram.score(model, np.array([a, b]))[1][1]) for b in (0, 1)]
    assert sum(P) == pytest.approx(1, abs=1e-12)
    assert P == pytest.approx([slow.probability(b, (a,)) for b in (0, 1)], rel=1e-9)


def test_parts_scored_separately_equal_the_whole(monkeypatch):
  x, _ = _flat(_texts(3, 60))
  model = ngram.kneser_ney(x[:200], V, order=4)
  total, whole = ngram.score(model, x[200:])
  monkeypatch.setattr(ngram, '_CHUNK', 7)
  _, pieces = ngram.score(model, x[200:])
  np.testing.assert_array_equal(pieces, whole)
  assert total == pytest.approx(whole.sum()) and len(whole) == len(x) - 200


def test_equal_counts_leave_no_discount_to_estimate():
  model = ngram.kneser_ney(np.zeros(50, int), 3, order=3)
  total, _ = ngram.score(model, np.array([0, 1, 2]))
  assert np.isfinite(total)


def test_unigram_adds_one():
  np.testing.assert_allclose(ngram.unigram(np.array([0, 0, 2]), 4), [3 / 7, 1 / 7, 2 / 7, 1 / 7])
  np.testing.assert_allclose(ngram.unigram(np.array([0, 0, 2]), 4, add=0), [2 / 3, 0, 1 / 3, 0])


def test_baselines_normalise_by_available_counts():
  x, _ = _flat(_texts(4, 60))
  counts = {'words': 20, 'characters': 50}
  found, nll_of = ngram.baselines(x[:300], V, {'test': (x[300:], counts), 'seen': (x[:300], counts)}, order=3)
  assert found['seen']['kneser_ney']['loss'] < found['test']['kneser_ney']['loss']
  found = found['test']
  tokens = len(x) - 300
  for name in ('unigram', 'kneser_ney'):
    nll = found[name]['loss'] * tokens
    assert found[name]['perplexity_per_token'] == pytest.approx(np.exp(nll / tokens))
    assert found[name]['perplexity_per_word'] == pytest.approx(np.exp(nll / 20))
    assert found[name]['bits_per_character'] == pytest.approx(nll / 50 / np.log(2))
  assert nll_of['test'].mean() == pytest.approx(found['kneser_ney']['loss'])
  assert found['kneser_ney']['order'] == 3 and len(found['kneser_ney']['discounts']) == 3


@pytest.mark.parametrize(
  'call',
  [
    lambda: ngram.kneser_ney(np.array([0, 9]), 9),
    lambda: ngram.kneser_ney(np.array([], int), 9),
    lambda: ngram.kneser_ney(np.array([0]), 9, order=0),
    lambda: ngram.kneser_ney(np.array([0]), 9, boundaries='line'),
    lambda: ngram.kneser_ney(np.array([0]), 9, boundaries='document'),
    lambda: ngram.unigram(np.array([9]), 9),
  ],
)
def test_invalid_input_is_rejected(call):
  with pytest.raises(InputError):
    call()


def _words(path, vocabulary: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
  ids, offsets = [], [0]
  with gzip.open(path, 'rt', encoding='utf-8') as file:
    for line in file:
      ids += [vocabulary.setdefault(w, len(vocabulary)) for w in [*line.split(), '<eos>']]
      offsets.append(len(ids))
  return np.array(ids), np.array(offsets)


@pytest.mark.real_data
def test_penn_treebank_matches_published(data_dir):
  vocabulary: dict[str, int] = {}
  x, offsets = _words(data_dir / 'lm/ptb/train.txt.gz', vocabulary)
  y, test_offsets = _words(data_dir / 'lm/ptb/test.txt.gz', vocabulary)
  assert (len(x), len(y), len(vocabulary)) == (929_589, 82_430, 10_000)
  model = ngram.kneser_ney(x, len(vocabulary), boundaries='document', offsets=offsets)
  total, _ = ngram.score(model, y, boundaries='document', offsets=test_offsets)
  assert round(np.exp(total / len(y)), 1) == 141.2  # Mikolov & Zweig 2012, table 1, KN5


@pytest.mark.real_data
def test_wikitext2_metric_is_unchanged(data_dir):
  vocabulary: dict[str, int] = {}
  x, _ = _words(data_dir / 'lm/wikitext2/train.txt.gz', vocabulary)
  y, _ = _words(data_dir / 'lm/wikitext2/test.txt.gz', vocabulary)
  found, _ = ngram.baselines(x, len(vocabulary), {'test': (y, {'words': len(y)})})
  found = found['test']
  assert found['kneser_ney']['perplexity_per_word'] == pytest.approx(217.8, abs=0.1)  # our own, to notice a change
