"""The two formats of word2vec.c, byte by byte, and gensim reading and writing them."""

from __future__ import annotations

import gzip
import os
import subprocess

import numpy as np
import pytest

from lmx.errors import InputError
from lmx.interop import word2vec

WORDS = ['the', 'naïve', 'new_york', ',', '3.14']


def table(D=3):
  return np.random.default_rng(0).normal(size=(len(WORDS), D)).astype(np.float32)


def test_the_bytes_of_both_formats(tmp_path):
  vectors = np.array([[1.0, -0.5], [0.1, 3e-8]], np.float32)
  word2vec.write(str(tmp_path / 'v.txt'), ['a', 'é'], vectors)
  assert (tmp_path / 'v.txt').read_bytes() == '2 2\na 1 -0.5\né 0.100000001 2.99999989e-08\n'.encode()
  word2vec.write(str(tmp_path / 'v.bin'), ['a', 'é'], vectors, binary=True)
  rows = b'a ' + bytes.fromhex('0000803f000000bf') + b'\n' + 'é '.encode() + vectors[1].astype('<f4').tobytes() + b'\n'
  assert (tmp_path / 'v.bin').read_bytes() == b'2 2\n' + rows


@pytest.mark.parametrize('name', ['v.txt', 'v.bin', 'v.txt.gz', 'v.bin.gz'])
def test_a_round_trip_is_exact(tmp_path, name):
  path = str(tmp_path / name)
  word2vec.write(path, WORDS, table(), binary='.bin' in name)
  words, found = word2vec.read(path)
  assert words == WORDS
  np.testing.assert_array_equal(found, table())
  assert word2vec.read(path, limit=2)[0] == WORDS[:2]
  assert name.endswith('.gz') == (gzip.GzipFile(path).readable() and open(path, 'rb').read(2) == b'\x1f\x8b')


def test_the_format_is_seen_from_the_content(tmp_path):
  for binary in (True, False):
    path = str(tmp_path / f'vectors{binary}')
    word2vec.write(path, WORDS, table(5), binary=binary)
    np.testing.assert_array_equal(word2vec.read(path)[1], table(5))


def test_binary_without_line_ends_is_read_too(tmp_path):
  rows = b''.join(w.encode() + b' ' + v.tobytes() for w, v in zip(WORDS, table(), strict=True))
  (tmp_path / 'v.bin').write_bytes(b'5 3\n' + rows)
  words, found = word2vec.read(str(tmp_path / 'v.bin'))
  assert words == WORDS
  np.testing.assert_array_equal(found, table())


def test_damaged_files_are_named(tmp_path):
  path = tmp_path / 'v.bin'
  word2vec.write(str(path), WORDS, table(), binary=True)
  path.write_bytes(path.read_bytes()[:-8])
  with pytest.raises(InputError, match='ends after 4 of 5'):
    word2vec.read(str(path))
  for text, message in (('no header\n', 'first line'), ('2 3\na 1 2 3\nb 1 2\n', 'line 3 has 2 numbers')):
    (tmp_path / 'v.txt').write_text(text)
    with pytest.raises(InputError, match=message):
      word2vec.read(str(tmp_path / 'v.txt'), binary=False)
  with pytest.raises(InputError, match='cannot read'):
    word2vec.read(str(tmp_path / 'none.txt'))
  with pytest.raises(InputError, match='white space'):
    word2vec.write(str(path), ['new york'], table()[:1])


GENSIM = """
import sys, numpy as np
from gensim.models import KeyedVectors
for name in ('v.txt', 'v.bin'):
  found = KeyedVectors.load_word2vec_format(name, binary=name.endswith('bin'))
  np.savez(name + '.npz', words=found.index_to_key, vectors=found.vectors)
  found.save_word2vec_format('back_' + name, binary=name.endswith('bin'))
"""


@pytest.mark.peer
def test_gensim_reads_and_writes_the_same(tmp_path):
  """LMX_GENSIM names a Python that has gensim."""
  python = os.environ.get('LMX_GENSIM', '')
  if not python:
    pytest.skip('set LMX_GENSIM to an interpreter with gensim')
  for name in ('v.txt', 'v.bin'):
    word2vec.write(str(tmp_path / name), WORDS, table(), binary=name.endswith('bin'))
  subprocess.run([python, '-c', GENSIM], cwd=tmp_path, check=True, capture_output=True, timeout=300)
  for name in ('v.txt', 'v.bin'):
    found = np.load(tmp_path / f'{name}.npz')
    assert found['words'].tolist() == WORDS
    np.testing.assert_array_equal(found['vectors'], table())
    words, back = word2vec.read(str(tmp_path / f'back_{name}'))
    assert words == WORDS
    np.testing.assert_array_equal(back, table())
