"""The two formats of word2vec.c, byte by byte, and gensim reading and writing them."""

from __future__ import annotations

import gzip
import os
import subprocess

import numpy as np
import pytest

from lmx.errors import InputError, InputWarning
from lmx.interop import word2vec
from lmx.prediction import word_vectors

WORDS = ['the', 'naïve', 'new_york', ',', '3.14']


def table(D=3):
  return np.random.default_rng(0).normal(size=(len(WORDS), D)).astype(np.float32)


def read(path):
  found = word_vectors.from_file(path)
  return found.words, found.raw_VD


def test_bytes_of_both_formats(tmp_path):
  vectors = np.array([[1.0, -0.5], [0.1, 3e-8]], np.float32)
  word2vec.write(str(tmp_path / 'v.txt'), ['a', 'é'], vectors)
  assert (tmp_path / 'v.txt').read_bytes() == '2 2\na 1 -0.5\né 0.100000001 2.99999989e-08\n'.encode()
  word2vec.write(str(tmp_path / 'v.bin'), ['a', 'é'], vectors, binary=True)
  rows = b'a ' + bytes.fromhex('0000803f000000bf') + b'\n' + 'é '.encode() + vectors[1].astype('<f4').tobytes() + b'\n'
  assert (tmp_path / 'v.bin').read_bytes() == b'2 2\n' + rows


@pytest.mark.parametrize('name', ['v.txt', 'v.bin', 'v.txt.gz', 'v.bin.gz'])
def test_round_trip_is_exact(tmp_path, name):
  path = str(tmp_path / name)
  word2vec.write(path, WORDS, table(), binary='.bin' in name)
  words, found = read(path)
  assert words == WORDS
  np.testing.assert_array_equal(found, table())
  assert name.endswith('.gz') == (gzip.GzipFile(path).readable() and open(path, 'rb').read(2) == b'\x1f\x8b')


def test_format_is_detected_from_content(tmp_path):
  for binary in (True, False):
    path = str(tmp_path / f'vectors{binary}')
    word2vec.write(path, WORDS, table(5), binary=binary)
    np.testing.assert_array_equal(read(path)[1], table(5))


def test_binary_without_line_ends_is_read_too(tmp_path):
  rows = b''.join(w.encode() + b' ' + v.tobytes() for w, v in zip(WORDS, table(), strict=True))
  (tmp_path / 'v.bin').write_bytes(b'5 3\n' + rows)
  words, found = read(str(tmp_path / 'v.bin'))
  assert words == WORDS
  np.testing.assert_array_equal(found, table())


def test_damaged_files_are_reported(tmp_path):
  path = tmp_path / 'v.bin'
  word2vec.write(str(path), WORDS, table(), binary=True)
  path.write_bytes(path.read_bytes()[:-8])
  with pytest.raises(InputError, match='got 4 words'):
    read(str(path))
  with pytest.raises(InputError, match='which does not exist'):
    read(str(tmp_path / 'none.txt'))
  with pytest.raises(InputError, match='white space'):
    word2vec.write(str(path), ['new york'], table()[:1])


def test_words_with_spaces_are_read_from_text(tmp_path):
  """GloVe's 840B file has such words."""
  (tmp_path / 'v').write_bytes(b'3 2\n. . . 1 2\nnew york 3 4 \na 5 6\n\n')
  words, found = read(str(tmp_path / 'v'))
  assert words == ['. . .', 'new york', 'a'] and found.tolist() == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
  ('line', 'message'),
  [('a  1 2', 'line 3, field 2: got'), (' b 3 4', 'line 3, field 1: got nothing before')],
)
def test_extra_spaces_around_a_word_are_rejected(tmp_path, line, message):
  (tmp_path / 'v').write_text(f'2 2\nx 1 2\n{line}\n')
  with pytest.raises(InputError, match=message):
    read(str(tmp_path / 'v'))


@pytest.mark.parametrize('binary', [True, False])
def test_first_vector_of_a_repeated_word_is_kept_and_the_others_are_counted(tmp_path, binary):
  rows = [('a', [1, 2]), ('b', [3, 4]), ('a', [5, 6]), ('a', [7, 8])]
  line = lambda word, row: (
    f'{word} '.encode() + np.float32(row).tobytes() if binary else f'{word} {row[0]} {row[1]}'.encode()
  )
  (tmp_path / 'v').write_bytes(b'4 2\n' + b'\n'.join(line(*row) for row in rows))
  with pytest.warns(InputWarning, match='v: got 2 vectors'):
    words, found = read(str(tmp_path / 'v'))
  assert words == ['a', 'b'] and found.tolist() == [[1, 2], [3, 4]]


def test_glove_without_a_first_line_of_counts_is_read(tmp_path):
  (tmp_path / 'v').write_text('the 1.5 2\nnew york 3 4\n')
  words, found = read(str(tmp_path / 'v'))
  assert words == ['the', 'new york'] and found.tolist() == [[1.5, 2], [3, 4]]


def test_content_decides_and_not_the_name(tmp_path):
  word2vec.write(str(tmp_path / 'v.bin'), WORDS, table())
  np.testing.assert_array_equal(read(str(tmp_path / 'v.bin'))[1], table())
  word2vec.write(str(tmp_path / 'v.txt'), WORDS, table(), binary=True)
  np.testing.assert_array_equal(read(str(tmp_path / 'v.txt'))[1], table())


ROW = np.float32([1, 2]).tobytes()


@pytest.mark.parametrize(
  'content,message',
  [
    (b'2 2\na 1 nan\nb 1 2\n', 'line 2, field 3: got "nan"'),
    (b'2 2\n 1 2\nb 1 2\n', 'line 2, field 1: got nothing before'),
    (b'2 2\n\na 1 2\n', 'line 2: got 1 fields'),
    (b'2 2\na 1 2\n\nb 1 2\n', 'line 3: got 1 fields'),
    (b'2 2\na 1 x\nb 1 2\n', 'line 2, field 3: got "x"'),
    (b'2 2\na 1 2 3\nb 1 2\n', 'line 2: got 4 fields'),
    ('2 2\na 1 2\nb 1 \uff11.5\n'.encode(), 'line 3, field 3: got "\uff11.5"'),
    (b'1 0_2\na 1 2\n', 'line 1, field 2: got "0_2"'),
    (b'2 2\na 1 2\n\xe9 1 2\n', 'line 3: not UTF-8 text'),
    (b'2 2\n\xe9 1 2\n\xe8 1 2\n', 'line 2: not UTF-8 text'),
    (b'1 2\n\xe9 ' + ROW + b'\n', r"word 1 of 1: got the word b'\\xe9'"),
    (b'2 2\na 1 2\nb 1 2\nc 1 2\n', 'got 3 vectors'),
    (b'2 2\na 1 2\n', 'got 1 vectors'),
    (b'-2 2\na 1 2\n', 'line 2: got 3 fields'),
    (b'2 0\na\nb\n', 'line 2: got 1 fields'),
    (b'1 ' + b'9' * 5000 + b'\na 1\n', 'line 1: got'),
    (b'1 ' + b'9' * 20 + b'\na 1\n', 'line 1: got'),
    (b'9' * 20 + b' 1\na 1\n', 'line 1: got'),
    (b'', 'v: the file is empty'),
    (b'1 2\na ' + ROW + b'\nmore', 'got 5 bytes after the last'),
    (b'1 2\nnew york ' + ROW, 'bytes after the last of 1 words'),
    (b'2 2\na ' + ROW + b'\n ' + ROW, "word 2 of 2: got b''"),
    (b'1 2\na ' + np.float32([1, np.nan]).tobytes(), 'word 1 of 1: got nan'),
  ],
)
def test_every_byte_belongs_to_a_word(tmp_path, content, message):
  (tmp_path / 'v').write_bytes(content)
  with pytest.raises(InputError, match=message):
    read(str(tmp_path / 'v'))


def test_non_finite_vectors_are_not_written(tmp_path):
  with pytest.raises(InputError, match='got nan in the vector of "b"'):
    word2vec.write(str(tmp_path / 'v'), ['a', 'b'], np.float32([[1], [np.nan]]))
  assert not (tmp_path / 'v').exists()


def test_damaged_gzip_is_reported(tmp_path):
  path = tmp_path / 'v.txt.gz'
  word2vec.write(str(path), WORDS, table())
  data = bytearray(path.read_bytes())
  data[20:30] = bytes(10)
  path.write_bytes(data)
  with pytest.raises(InputError, match='cannot be read|damaged gzip'):
    read(str(path))


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
    words, back = read(str(tmp_path / f'back_{name}'))
    assert words == WORDS
    np.testing.assert_array_equal(back, table())
