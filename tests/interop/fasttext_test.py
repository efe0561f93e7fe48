"""fastText's binary models: bytes put together here, the sums of n-grams, what is refused, and gensim's own files."""

from __future__ import annotations

import json
import os
import struct
import subprocess

import numpy as np
import pytest

from lmx.errors import InputError
from lmx.interop import fasttext

WORDS = ['the', '</s>', 'é']


def model(
  matrix_RE, *, words=WORDS, shortest=2, longest=3, buckets=5, version=12, labels=(), kept=None, kind=2, quantised=False
) -> bytes:
  """A file in the layout of fastText's saveModel; `kept` are pairs of a bucket and its place."""
  rows, width = matrix_RE.shape
  head = struct.pack('<ii', fasttext.MAGIC, version)
  head += struct.pack('<12i', width, 5, 1, 1, 5, 1, 2, kind, buckets, shortest, longest, 100) + struct.pack('<d', 1e-4)
  entries = [(word, 0) for word in words] + [(label, 1) for label in labels]
  pruned = -1 if kept is None else len(kept)
  dictionary = struct.pack('<iiiqq', len(entries), len(words), len(labels), 99, pruned)
  for word, type_ in entries:
    dictionary += word.encode() + b'\0' + struct.pack('<qb', 7, type_)
  for pair in kept or ():
    dictionary += struct.pack('<ii', *pair)
  matrix = struct.pack('<?qq', quantised, rows, width) + matrix_RE.astype('<f4').tobytes()
  return head + dictionary + matrix + b'output layer'


def matrix(rows, width=4):
  return np.random.default_rng(0).normal(size=(rows, width)).astype(np.float32)


def fnv(text: bytes) -> int:
  """FNV-1a of signed bytes, from its definition in 64-bit numbers."""
  value = np.uint64(2166136261)
  for byte in np.frombuffer(text, np.int8):
    value = (value ^ np.uint64(int(byte) & 0xFFFFFFFF)) * np.uint64(16777619) % np.uint64(2**32)
  return int(value)


def select(path, words):
  return dict(fasttext.select(str(path), fasttext.read(str(path)), words))


def test_word_is_the_mean_of_its_row_and_its_n_grams(tmp_path):
  x_RE = matrix(len(WORDS) + 5)
  (tmp_path / 'm.bin').write_bytes(model(x_RE))
  found = select(tmp_path / 'm.bin', ['the', 'é', 'xy', '</s>'])
  rows = lambda *grams: [len(WORDS) + fnv(gram.encode()) % 5 for gram in grams]
  np.testing.assert_allclose(
    found['the'], x_RE[[0, *rows('<t', '<th', 'th', 'the', 'he', 'he>', 'e>')]].mean(axis=0), rtol=1e-6
  )
  np.testing.assert_allclose(found['é'], x_RE[[2, *rows('<é', '<é>', 'é>')]].mean(axis=0), rtol=1e-6)
  np.testing.assert_allclose(found['xy'], x_RE[rows('<x', '<xy', 'xy', 'xy>', 'y>')].mean(axis=0), rtol=1e-6)
  np.testing.assert_array_equal(found['</s>'], x_RE[1])


def test_single_letters_are_words_but_special_tokens_are_not(tmp_path):
  x_RE = matrix(len(WORDS) + 5)
  (tmp_path / 'm.bin').write_bytes(model(x_RE, shortest=1, longest=1))
  rows = [len(WORDS) + fnv(gram) % 5 for gram in (b'a', b'b')]
  np.testing.assert_allclose(select(tmp_path / 'm.bin', ['ab'])['ab'], x_RE[rows].mean(axis=0), rtol=1e-6)


def test_models_without_ngrams_know_only_their_words(tmp_path):
  x_RE = matrix(len(WORDS) + 5)
  (tmp_path / 'm.bin').write_bytes(model(x_RE, labels=('__label__a',), version=11, kind=3))
  found = select(tmp_path / 'm.bin', ['the', 'unseen', '__label__a'])
  assert list(found) == ['the']
  np.testing.assert_array_equal(found['the'], x_RE[0])


def test_n_grams_that_were_removed_do_not_count(tmp_path):
  x_RE = matrix(len(WORDS) + 1)
  bucket = fnv(b'xy') % 5
  (tmp_path / 'm.bin').write_bytes(model(x_RE, kept=[(bucket, 0)], shortest=2, longest=2))
  found = select(tmp_path / 'm.bin', ['xy', 'the'])
  counts = sum(fnv(gram) % 5 == bucket for gram in (b'<t', b'th', b'he', b'e>'))
  np.testing.assert_allclose(found['xy'], x_RE[3], rtol=1e-6)
  np.testing.assert_allclose(found['the'], (x_RE[0] + counts * x_RE[3]) / (1 + counts), rtol=1e-5)


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (model(matrix(8))[:-60], 'damaged model'),
    (model(matrix(8))[:94], 'damaged model .*within a word'),
    (model(matrix(8))[:30], 'damaged model'),
    (model(matrix(8), quantised=True), 'got a quantised model'),
    (model(matrix(8), version=13), 'got version 13 of fastText'),
    (model(matrix(7)), 'got a matrix of 7 by 4'),
    (model(np.full((8, 4), np.nan)), 'not finite in the vector of "the"'),
    (model(matrix(8), words=['the', 'the', 'é']), "entry 2: got a word, b'the'"),
    (model(matrix(8)).replace(b'\0\7\0\0\0\0\0\0\0\0', b'\0\7\0\0\0\0\0\0\0\1', 1), "entry 1: got a label, b'the'"),
    (model(matrix(8), words=['x' * 20_000, 'the', 'é']), 'a word of more than 10,000 bytes'),
    (model(matrix(8), longest=10**9), 'got n-grams of 2 to 1,000,000,000 letters'),
  ],
  ids=['matrix', 'word', 'head', 'quantised', 'version', 'rows', 'finite', 'twice', 'label', 'long word', 'n-grams'],
)
def test_damaged_and_other_models_are_reported(tmp_path, content, message):
  (tmp_path / 'm.bin').write_bytes(content)
  with pytest.raises(InputError, match=message):
    select(tmp_path / 'm.bin', ['the'])


GENSIM = """
import json
from gensim.models import FastText
from gensim.models.fasttext import load_facebook_vectors, save_facebook_model
texts = [['the', 'na\u00efve', 'cat', 'sat'], ['the', 'dog', '\u65e5\u672c\u8a9e', 'cat']] * 5
options = dict(vector_size=4, window=2, min_count=1, epochs=2, bucket=50, min_n=2, max_n=4, seed=1, workers=1)
save_facebook_model(FastText(sentences=texts, **options), 'm.bin')
found = load_facebook_vectors('m.bin')
words = ['the', 'cat', 'na\u00efve', '\u65e5\u672c\u8a9e', 'unseen', '\u00dcber', '\u00e9']
json.dump({word: found[word].tolist() for word in words}, open('m.json', 'w'))
"""


@pytest.mark.peer
def test_gensim_model_vectors_match(tmp_path):
  """LMX_GENSIM names a Python that has gensim."""
  python = os.environ.get('LMX_GENSIM', '')
  if not python:
    pytest.skip('set LMX_GENSIM to an interpreter with gensim')
  subprocess.run([python, '-c', GENSIM], cwd=tmp_path, check=True, capture_output=True, timeout=300)
  expected = json.loads((tmp_path / 'm.json').read_text())
  found = select(tmp_path / 'm.bin', list(expected))
  for word, vector in expected.items():
    np.testing.assert_allclose(found[word], vector, rtol=1e-6, atol=1e-7)
