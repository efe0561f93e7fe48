"""Words of a text and their surprisals, unknown words and their spelling, under each kind of tokenizer."""

from __future__ import annotations

import numpy as np
import pytest

from lmx.data.tokenizers import build
from lmx.data.tokenizers.characters import Bytes, Characters
from lmx.data.tokenizers.words import Words
from lmx.metrics import language
from lmx.scoring import sentences, surface
from lmx.scoring.rows import Row, Scored
from lmx.scoring.scorer import Scorer
from lmx.scoring.total import Total, line

TEXTS = ['The cat (a tom) sat.', 'A dog, is what it is.'] * 10
TEXT = '  The cat,  "a tom" satisfied. '


class Uniform(Scorer):
  """Scores every token by log 1/V; the first one is not predicted if `start` is 'none'."""

  name, method = 'uniform', 'causal'

  def __init__(self, tokenizer, *, start='symbol', end=False, method='causal'):
    self.tokenizer, self.start, self.end, self.method = tokenizer, start, end, method

  def row(self, text, name=''):
    ids = self.tokenizer.encode(text)
    return Row(np.append(ids, self.tokenizer.eos_id) if self.end else ids, name=name)

  def score(self, rows, *, greedy=False, done=None):
    each = [np.full(len(row.ids_T), -np.log(self.tokenizer.vocab_size)) for row in rows]
    for log_p_T in each:
      log_p_T[: self.start == 'none'] = np.nan
    return [Scored(log_p_T) for log_p_T in each]

  def read_context(self, text):
    raise AssertionError


def words_of(scorer, text=TEXT):
  (one,) = sentences.score(scorer, [text], detail='words')
  assert sum(word.surprisal or 0 for word in one.words) == pytest.approx(-one.sum)
  return one


TOKENIZERS = {
  'bpe': lambda: build.train('bpe', TEXTS, vocab_size=280),
  'spaced': lambda: build.train('bpe', TEXTS, vocab_size=280, prefix_space=True),
  'wordpiece': lambda: build.train('wordpiece', TEXTS, vocab_size=60),
  'unigram': lambda: build.train('unigram', TEXTS, vocab_size=380),
  'gpt_bpe': lambda: build.train('gpt_bpe', TEXTS, vocab_size=60),
  'word_bpe': lambda: build.train('word_bpe', TEXTS, vocab_size=60),
  'words': lambda: build.train('words', TEXTS),
  'bytes': lambda: Bytes(eos=True),
  'characters': lambda: Characters(['<unk>', *'The cat,"omsif.']),
}


@pytest.mark.parametrize('kind', TOKENIZERS)
def test_words_stand_between_white_space(kind):
  one = words_of(Uniform(TOKENIZERS[kind]()))
  assert [word for word, _ in one.words] == TEXT.split()
  assert all(word.surprisal > 0 for word in one.words)
  if kind == 'bytes':  # white space belongs to the word after it, at the end to the last
    each = [len(text) for text in ('  The', ' cat,', '  "a', ' tom"', ' satisfied. ')]
    assert [word.surprisal for word in one.words] == pytest.approx([n * np.log(257) for n in each])
  if kind == 'words':  # "cat" and its comma
    assert one.words[1].surprisal == pytest.approx(2 * one.words[0].surprisal)


def test_end_is_a_word_and_an_unpredicted_word_has_no_surprisal():
  tokenizer = build.train('words', TEXTS, rule='lines')
  one = words_of(Uniform(tokenizer, end=True, start='none'), 'A dog, is')
  assert [word for word, _ in one.words] == ['A', 'dog,', 'is', '<eos>']
  assert one.words[0].surprisal is None and one.words[3].surprisal > 0


def test_words_that_the_tokenizer_adds_stand_alone():
  tokenizer = build.train('words', TEXTS, rule='lines', marks='double')
  one = words_of(Uniform(tokenizer), 'A dog')
  assert [word for word, _ in one.words] == ['<eos>', 'A', '<unk>'] and one.unknown == (1, 3)


@pytest.mark.parametrize('kind', ['words', 'wordpiece', 'characters'])
def test_unknown_words_are_counted_with_their_bytes(kind):
  (one,) = sentences.score(Uniform(TOKENIZERS[kind]()), ['The κατ sat.'], detail='text')
  # WordPiece and words know no such word, characters none of its three letters.
  assert one.unknown == {'words': (1, 6), 'wordpiece': (1, 6), 'characters': (3, 6)}[kind]


def test_unknown_word_of_the_text_itself_is_known():
  (one,) = sentences.score(Uniform(Words(['<unk>', 'a'], 'space')), ['a <unk> b'], detail='text')
  assert one.unknown_T.tolist() == [False, True, True] and one.unknown == (1, 1)


def total_of(scorer, texts):
  total = Total()
  for one in sentences.score(scorer, texts, detail='text'):
    total.add(one)
  return total.report(scorer)


def test_bits_of_tokenizers_have_one_unit():
  """A uniform model over bytes has 8 bits a byte, whatever it predicts; unknown words are charged for theirs."""
  texts = ['The cat sat.', 'κατ']
  found = total_of(Uniform(Bytes(eos=True)), texts)
  assert found['bytes'] == 18 and found['words'] == 4 and found['notes'] == []
  assert found['bits_per_byte'] == pytest.approx(np.log2(257))
  assert found['nats_per_byte'] == pytest.approx(np.log(257))
  assert found['perplexity_per_word'] == pytest.approx(257 ** (18 / 4))
  unknown = total_of(Uniform(Words(['<unk>'], 'space')), texts)  # spells all words; white space costs nothing
  assert unknown['unknown_words'] == 4 and unknown['unknown_bytes'] == 16 and 'vocabularies' in unknown['notes'][0]
  assert 'counts 4 words between white space; lmx evaluate' in unknown['notes'][1]
  assert unknown['bits_per_byte'] == 0
  assert unknown['bits_per_byte_with_spelling'] == pytest.approx((16 + 4) * np.log2(257) / 18)
  assert unknown['perplexity_per_word_with_spelling'] == pytest.approx(257 ** (20 / 4))
  assert 'bits per byte 8.8951' in line(unknown)


def test_what_is_no_probability_of_the_text_has_no_bits():
  texts = ['The cat sat.']
  pseudo = total_of(Uniform(Bytes(), method='pll', start=''), texts)
  assert pseudo['pseudo_perplexity_per_token'] == pytest.approx(256) and 'no probability' in pseudo['notes'][0]
  both = total_of(Uniform(Bytes(), method='both', start=''), texts)
  partly = total_of(Uniform(Bytes(), start='none'), texts)
  assert partly['perplexity_per_token'] == pytest.approx(256) and 'first token' in partly['notes'][0]
  for found in (pseudo, both, partly):
    assert not {'bits_per_byte', 'nats_per_byte', 'perplexity_per_word'} & {*found}
  assert 'pseudo_perplexity_per_token' not in both


def test_texts_that_the_tokenizer_changes_are_counted():
  lower = build.train('words', ['the cat sat'], lower_case=True)
  found = total_of(Uniform(lower), ['The cat sat', 'the  cat'])
  assert 'changes 1 texts' in found['notes'][0]


def test_spelling_is_uniform_over_bytes_and_an_end():
  counts = {'words': 10, 'bytes': 60, 'unknown_words': 2, 'unknown_bytes': 11}
  found = language.report(30.0, 12, counts)
  assert found['bits_per_byte_with_spelling'] == pytest.approx((30 / np.log(2) + 13 * np.log2(257)) / 60)
  assert found['perplexity_per_word_with_spelling'] == pytest.approx(np.exp((30 + 13 * np.log(257)) / 10))
  assert found['bits_per_byte'] == pytest.approx(30 / np.log(2) / 60) and found['unknown_words'] == 2
  assert surface.Unknown(2, 11).nats == pytest.approx(13 * np.log(257))
