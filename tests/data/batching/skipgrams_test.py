"""Windows, thinning, noise and the tree of word2vec, against word2vec.c's rules written out."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from lmx.data import corpus as corpora
from lmx.data import huffman, pipeline
from lmx.data.batching import skipgrams
from lmx.data.tokenizers import build
from lmx.errors import InputError
from tests.reference import word2vec as reference

WORDS = [f'w{i}' for i in range(40)]
BASE = {'name': 'skipgrams', 'chunk': 8, 'window': 3, 'sample': 0.0, 'negative': 2, 'shared_negatives': 6}


def corpus(lines: int = 300, rare: bool = True):
  rng = np.random.default_rng(3)
  p = 1.0 / np.arange(1, len(WORDS) + 1) ** 1.2
  text = ''.join(' '.join(rng.choice(WORDS, rng.integers(1, 12), p=p / p.sum())) + '\n' for _ in range(lines))
  vocabulary = 20 if rare else 0
  tokenizer = build.train('words', [text], vocab_size=vocabulary)
  return corpora.Corpus.from_texts({'train': [text], 'valid': [text[:400]]}, tokenizer, sentences='lines')


def section(length=24, **changes):
  return pipeline.Config(batching=BASE | changes, batch_size=4, length=length)


def made(train=True, split='train', seed=0, **changes):
  return pipeline.batches(section(**changes), corpus(), split, seed, train=train)


def epoch_of(batches, epoch=0):
  return [batches(epoch * batches.steps + i) for i in range(batches.steps)]


def pairs_of(batch):
  """Counter of (context word, centre word, sentence) of a batch, as the reference sees its windows."""
  found = collections.Counter()
  T = batch['window_BJT'].shape[-1]
  w = (batch['tokens_BJS'].shape[-1] - T) // 2
  for b, j, t in np.argwhere(batch['window_BJT'] > 0):
    tokens, documents = batch['tokens_BJS'][b, j], batch['documents_BJS'][b, j]
    for s in reference.contexts(tokens, documents, w, t + w, batch['window_BJT'][b, j, t]):
      found[int(tokens[s]), int(tokens[t + w])] += 1
  return found


def test_every_word_is_a_centre_once_per_epoch():
  batches, data = made(window=1), corpus()
  unk = data.tokenizer.unk_id
  split = data.splits['train']
  tokens, starts = np.asarray(split.tokens), split.sentences
  expected = collections.Counter()
  for a, b in zip(starts[:-1], starts[1:], strict=True):
    words = [int(i) for i in tokens[a:b] if i not in (unk, data.tokenizer.eos_id) and data.tokenizer.tokens[i].strip()]
    expected.update(zip(words, words[1:], strict=False))
    expected.update(zip(words[1:], words, strict=False))
  for epoch in (0, 1):
    found = sum((pairs_of(batch) for batch in epoch_of(batches, epoch)), collections.Counter())
    assert found == expected  # with window 1 the windows are no draw


def test_window_widths_are_uniform_and_resampled_each_epoch():
  batches = made()
  widths = [np.concatenate([b['window_BJT'].ravel() for b in epoch_of(batches, e)]) for e in (0, 1)]
  live = widths[0][widths[0] > 0]
  np.testing.assert_allclose(np.bincount(live, minlength=4)[1:] / len(live), 1 / 3, atol=0.05)
  assert not np.array_equal(*widths)


def test_subsampling_matches_word2vec():
  counts = np.array([0, 9000, 900, 90, 10])
  keep = skipgrams.keep_probability(counts, 1e-2)
  for word in range(1, 5):  # word2vec.c: ran = (sqrt(cn / (sample * train_words)) + 1) * (sample * train_words) / cn
    scaled = 1e-2 * counts.sum()
    expected = (np.sqrt(counts[word] / scaled) + 1) * scaled / counts[word]
    np.testing.assert_allclose(keep[word], expected, rtol=1e-6)
  assert keep[0] == 0
  np.testing.assert_array_equal(skipgrams.keep_probability(counts, 0.0), counts > 0)


def test_keep_rate_matches_subsampling():
  batches = made(sample=0.01)
  counts = skipgrams.count_words(corpus(), False)
  keep = np.minimum(skipgrams.keep_probability(counts, 0.01), 1.0)
  found = np.zeros(len(counts))
  epochs = 30
  for epoch in range(epochs):
    for batch in epoch_of(batches, epoch):
      centres = batch['tokens_BJS'][..., 3:-3][batch['window_BJT'] > 0]
      found += np.bincount(centres, minlength=len(counts))
  deviation = np.sqrt(epochs * counts * keep * (1 - keep)) + 1
  assert (np.abs(found - epochs * counts * keep) < 5 * deviation).all()


def test_noise_distribution_is_counts_to_the_power():
  for shared in (6, 0):
    batches = made(noise_power=0.75, shared_negatives=shared)
    name = 'negatives_BJM' if shared else 'pair_negatives_BJTWK'
    drawn = np.concatenate([b[name].ravel() for e in range(20) for b in epoch_of(batches, e)])
    counts = skipgrams.count_words(corpus(), False).astype(float)
    p = np.where(counts > 0, counts**0.75, 0)
    p /= p.sum()
    found = np.bincount(drawn, minlength=len(p))
    assert not found[counts == 0].any()
    assert (np.abs(found - len(drawn) * p) < 5 * np.sqrt(len(drawn) * p) + 1).all()
  batch = made()(0)
  np.testing.assert_allclose(batch['weights_BJM'], 2 / 6)


def test_batch_depends_only_on_seed_step_and_row():
  batches, again = made(sample=0.01), made(sample=0.01)
  steps = [batches.steps + 1, 0, 3]
  whole = {s: batches(s) for s in sorted(steps)}
  for s in steps:  # another order, and rows by themselves
    for r in range(4):
      part = again(s, slice(r, r + 1))
      for key, value in whole[s].items():
        np.testing.assert_array_equal(part[key][0], value[r], err_msg=key)
  other = made(sample=0.01, seed=1)(0)
  assert not np.array_equal(other['tokens_BJS'], whole[0]['tokens_BJS'])


def test_evaluation_has_every_centre_once(monkeypatch):
  whole = sum((pairs_of(b) for b in epoch_of(made(train=False, window=1))), collections.Counter())
  monkeypatch.setattr(skipgrams, 'BLOCK', 64)
  batches = made(train=False, window=1)
  cut = sum((pairs_of(b) for b in epoch_of(batches)), collections.Counter())
  words = sum(int((b['window_BJT'] > 0).sum()) for b in epoch_of(batches))
  assert words == batches.tokens_per_epoch == skipgrams.count_words(corpus(), False).sum()
  assert sum(cut.values()) < sum(whole.values()) and not cut - whole  # only windows over the end of a block are lost


def test_huffman_tree_matches_word2vec():
  rng = np.random.default_rng(0)
  for counts in ([5, 3, 2, 1], [4, 4, 4, 4, 4], np.sort(rng.integers(1, 50, 57))[::-1].tolist(), [7, 1]):
    tree = huffman.build(np.array(counts))
    for word, way in reference.codes(counts).items():
      signs = tree.signs[tree.starts_V[word] : tree.starts_V[word + 1]]
      assert ''.join('0' if sign > 0 else '1' for sign in signs) == way
      nodes = tree.nodes[tree.starts_V[word] : tree.starts_V[word + 1]]
      assert nodes[0] == 0 and (np.diff(nodes) > 0).all()
    assert tree.nodes.max() == len(counts) - 2


def test_words_without_a_count_are_not_in_the_tree():
  tree = huffman.build(np.array([0, 5, 0, 3, 2]))
  assert np.diff(tree.starts_V).tolist() == [0, 1, 0, 2, 2]


def test_batch_paths_match_the_tree():
  batches = made(negative=0, top_nodes=3, path_slots=2)
  tree = huffman.build(skipgrams.count_words(corpus(), False))
  live = 0
  for batch in epoch_of(batches):
    for b, j, t in np.argwhere(batch['window_BJT'] > 0):
      word = batch['tokens_BJS'][b, j, t + 3]
      way = {n: s for n, s in enumerate(batch['top_BJTR'][b, j, t]) if s}
      mine = (batch['owner_BJM'][b, j] == t) & (batch['sign_BJM'][b, j] != 0)
      way |= dict(zip(batch['path_BJM'][b, j][mine], batch['sign_BJM'][b, j][mine], strict=True))
      part = slice(tree.starts_V[word], tree.starts_V[word + 1])
      assert way == dict(zip(tree.nodes[part], tree.signs[part], strict=True))
      live += 1
  assert live == batches.tokens_per_epoch  # also where a chunk had to be cut for its nodes
  assert any(0 < n < 8 for batch in epoch_of(batches) for n in (batch['window_BJT'] > 0).sum(-1).ravel())


def test_words_only_skips_punctuation():
  text = 'a b , c . a b c\n' * 20
  data = corpora.Corpus.from_texts({'train': [text]}, build.train('words', [text]))
  counts = skipgrams.count_words(data, True)
  kept = {data.tokenizer.tokens[i] for i in np.flatnonzero(counts)}
  assert kept == {'a', 'b', 'c'}
  assert {',', '.'} < {data.tokenizer.tokens[i] for i in np.flatnonzero(skipgrams.count_words(data, False))}


def test_invalid_settings_are_input_errors():
  with pytest.raises(InputError, match='data.length: got 20'):
    made(length=20)
  with pytest.raises(InputError, match='data.tokenizer: got "bytes"'):
    text = ['some text of letters\n' * 30]
    data = corpora.Corpus.from_texts({'train': text}, build.train('bytes', text))
    pipeline.batches(section(), data, 'train', 0, train=True)
  with pytest.raises(InputError, match='fewer than two words'):
    text = ['. . .\n' * 30]
    data = corpora.Corpus.from_texts({'train': text}, build.train('words', text))
    skipgrams.count_words(data, True)
  with pytest.raises(InputError, match='data.batching.window: got 0'):
    section(window=0)
