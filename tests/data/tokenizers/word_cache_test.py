"""Encoding by a table of words, held to the library's."""

import random
import unicodedata

import numpy as np
import pytest
import tokenizers as hf

from lmx.data.tokenizers import build, subword, word_cache

TEXT = [
  "The cat's isn't I'll we've THE'S 'tis ''ll 'll's  two  spaces   three\n\n\tand\ttabs \n lines\r\nend ",
  'naïve café 東京 2019 ½ x²  ... ?!? (a) [b] é’s “quoted” – dash — em',
  '  ',
  '',
  '\n \n',
  "''''s  's 's",
  '日本語のテキスト Привет мир 123abc abc123 12ab34',
]


@pytest.fixture(scope='module')
def tokenizer() -> subword.Bpe:
  return build.train('bpe', TEXT * 3, vocab_size=400)


def encoded_by_words(tokenizer, texts):
  assert all(tokenizer._words.knows(text) for text in texts)
  return tokenizer._words.encode(texts)


def same(found, expected):
  assert len(found) == len(expected)
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_array_equal(one, other)
    assert one.dtype == np.int32


def test_ids_match_the_library(tokenizer):
  same(encoded_by_words(tokenizer, TEXT), tokenizer._encode_by_library(TEXT))
  same(encoded_by_words(tokenizer, TEXT[::-1]), tokenizer._encode_by_library(TEXT[::-1]))
  assert encoded_by_words(tokenizer, []) == []


def test_ids_of_random_characters_match_the_library(tokenizer):
  draw = random.Random(0)
  known = [c for c in map(chr, range(0x3100)) if tokenizer._words.knows(c)]
  pools = [" \n\t'stvemlrd", "ab1. '", known, ' é½東²’–\xa0']
  texts = [''.join(draw.choices(draw.choice(pools), k=draw.randrange(40))) for _ in range(3000)]
  same(encoded_by_words(tokenizer, texts), tokenizer._encode_by_library(texts))


@pytest.mark.slow
def test_word_splitting_matches_the_library(tokenizer):
  known = [c for c in map(chr, range(0x110000)) if tokenizer._words.knows(c)]
  assert len(known) > 90_000
  texts = [f'a{c}b {c}1{c} {c}{c}!{c}\n{c} {c}' for c in known]
  for start in range(0, len(texts), 5000):
    part = texts[start : start + 5000]
    same(encoded_by_words(tokenizer, part), tokenizer._encode_by_library(part))


@pytest.mark.parametrize('character', ['\x1c', '\u2003', '\u0378', '\udc80', '\ue000', '\U0001f9ff'])
def test_characters_of_other_scripts_match_the_library(character, tokenizer, monkeypatch):
  monkeypatch.setattr(subword, '_MANY', 0)
  assert not tokenizer._words.knows(f'a{character}b')
  texts = ['the cat', f'a{character}b', 'end']
  same(tokenizer.encode_batch(texts), tokenizer._encode_by_library(texts))


def test_full_cache_is_cleared(tokenizer, monkeypatch):
  cache = word_cache.WordCache(
    *word_cache.byte_level(), lambda found: [e.ids for e in tokenizer._model.encode_batch_fast(found)]
  )
  monkeypatch.setattr(word_cache, '_LARGEST', 5)
  for _ in range(3):
    same(cache.encode(TEXT), tokenizer._encode_by_library(TEXT))
    assert len(cache._index) > 5


def test_word_cache_needs_gpt2_splitting(tokenizer):
  assert tokenizer._words is not None
  assert build.train('bpe', TEXT * 3, vocab_size=400, lower_case=True)._words is None
  assert build.train('bpe', TEXT * 3, vocab_size=400, prefix_space=True)._words is None
  model = hf.Tokenizer.from_str(tokenizer._model.to_str())
  model.add_tokens(['catlike'])
  assert subword.Bpe(model)._words is None
  assert subword.Bpe(hf.Tokenizer.from_str(tokenizer._model.to_str()), special_in_text=True)._words is None


def test_special_tokens_in_a_text_are_text(tokenizer):
  texts = ['a <|endoftext|> b', '<|endoftext|>']
  same(encoded_by_words(tokenizer, texts), tokenizer._encode_by_library(texts))
  assert tokenizer.eos_id not in np.concatenate(tokenizer._words.encode(texts))


def test_classes_of_known_characters_match_every_version_of_unicode():
  knows = word_cache.byte_level()[1].fullmatch
  for code in range(0x3000):
    character = chr(code)
    if knows(character) and not character.isspace():
      assert unicodedata.category(character)[0] == unicodedata.ucd_3_2_0.category(character)[0] != 'C'
