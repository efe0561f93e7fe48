"""Word vectors in text files: each format, what a line at fault says, how words are looked up, and the vocabulary."""

from __future__ import annotations

import gzip
import os

import numpy as np
import pytest

from lmx.data import corpus, pipeline, vectors
from lmx.data.tokenizers import build
from lmx.errors import InputError
from lmx.interop import word2vec

WORDS = ['the', 'cat', 'new york', 'mat']
ROWS = np.asarray([[0.5, -1.25, 3e-2], [1, 2, 3], [-0.1, 0.2, 1e3], [7, 8, 9]], np.float32)
LINES = [f'{word} ' + ' '.join(f'{x:.9g}' for x in row) for word, row in zip(WORDS, ROWS, strict=True)]


def write(path, lines, end='\n'):
  path.parent.mkdir(parents=True, exist_ok=True)
  content = ''.join(line + end for line in lines).encode('utf-8', 'surrogateescape')
  path.write_bytes(gzip.compress(content) if path.suffix == '.gz' else content)
  return path


def check(path, words=('mat', 'dog', 'the', 'new york')):
  read = vectors.read(str(path), words, 3)
  np.testing.assert_array_equal(read.found, [0, 2, 3])
  np.testing.assert_array_equal(read.rows_KE, ROWS[[3, 0, 2]])
  assert read.rows_KE.dtype == np.float32 and read.counts == (3, 0, 0) and read.duplicates == 0
  assert vectors.find(str(path), words) == ['mat', 'the', 'new york']


@pytest.mark.parametrize('name', ['glove.txt', 'glove.txt.gz'])
def test_glove_has_words_with_spaces(name, tmp_path):
  check(write(tmp_path / name, LINES))
  check(write(tmp_path / name, LINES, end='\r\n'))
  check(write(tmp_path / name, [line.replace('k ', 'k\t').replace('t 7', 't\t7') for line in LINES]))


def test_unicode_white_space_around_values_is_stripped(tmp_path):
  check(write(tmp_path / 'glove.txt', [*LINES[:3], LINES[3].replace(' 9', ' \xa09')]))


def test_word2vec_has_the_counts_in_its_first_line(tmp_path):
  check(write(tmp_path / 'vectors.txt', ['4 3', *(f'{line} ' for line in LINES)]))  # word2vec.c ends a line so
  word2vec.write(str(tmp_path / 'exported.txt.gz'), ['the', 'x', 'mat'], ROWS[[0, 1, 3]])  # as `lmx vectors --export`
  read = vectors.read(str(tmp_path / 'exported.txt.gz'), ['mat', 'the'], 3)
  np.testing.assert_array_equal(read.rows_KE, ROWS[[3, 0]])


@pytest.mark.parametrize(
  ('files', 'given'),
  [
    (('senna/embeddings/embeddings.txt', 'senna/hash/words.lst'), 'senna'),
    (('senna/embeddings/embeddings.txt', 'senna/hash/words.lst'), 'senna/embeddings/embeddings.txt'),
    (('senna/embeddings.txt.gz', 'senna/words.lst.gz'), 'senna'),
    (('senna/embeddings.txt', 'senna/words.lst'), 'senna/embeddings.txt'),
  ],
)
def test_senna_has_its_words_in_another_file(files, given, tmp_path):
  write(tmp_path / files[0], [' '.join(line.split()[-3:]) for line in LINES])
  write(tmp_path / files[1], WORDS)
  check(tmp_path / given)
  assert [name for name, _ in vectors.digest(str(tmp_path / given))] == [file.split('/')[-1] for file in files]


def test_lookup_falls_back_to_lower_case_and_zero_digits(tmp_path):
  names = ['the', 'The', 'b0b', 'b1b', 'x00', '5']
  path = write(tmp_path / 'v.txt', [f'{name} {i} 0.5' for i, name in enumerate(names)])
  words = ['The', 'THE', 'B1b', 'b2B', 'X42', '7', '5', 'cat']
  read = vectors.read(str(path), words, 2)
  assert dict(zip(read.found.tolist(), read.rows_KE[:, 0].tolist(), strict=True)) == {
    0: 1,
    1: 0,
    2: 3,
    3: 2,
    4: 4,
    6: 5,
  }
  assert read.counts == (2, 2, 2)  # The 5, THE B1b, b2B X42
  assert vectors.find(str(path), words) == ['The', 'THE', 'B1b', 'b2B', 'X42', '5']


def test_repeated_word_has_its_first_vector(tmp_path):
  path = write(tmp_path / 'v.txt', [*LINES, 'cat 4 5 6', 'cat 7 8 9', 'other 1 1 1', 'other 2 2 2'])
  read = vectors.read(str(path), ['cat'], 3)
  np.testing.assert_array_equal(read.rows_KE, ROWS[[1]])
  assert read.duplicates == 2  # of the words that are looked up


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('dog  1 2 3', 'v.txt, line 3, field 2: got'),
    ('dog 1 2', 'v.txt, line 3: got 3 fields'),
    ('dog 1 2 3 4', 'v.txt, line 3: got 5 fields'),
    ('', 'v.txt, line 3: got 1 fields'),
    (' 1 2 3', 'v.txt, line 3, field 1: got'),
    (' cat 1 2 3', 'v.txt, line 3, field 1: got'),
    ('dog 1 x 3', 'v.txt, line 3, field 3: got "x"'),
    ('hot dog 1 x 3', 'v.txt, line 3, field 4: got "x"'),
    ('dog 1 2 nan', 'v.txt, line 3, field 4: got "nan"'),
    ('dog -inf 2 3', 'v.txt, line 3, field 2: got "-inf"'),
    ('dog 1 1e39 3', 'v.txt, line 3, field 3: got "1e39"'),
    ('dog 1.5 1e400 3.5', 'v.txt, line 3, field 3: got "1e400"'),
    ('dog 1.5 1.0-2 3.5', 'v.txt, line 3, field 3: got "1.0-2"'),
    ('dog 1 1_0 3', 'v.txt, line 3, field 3: got "1_0"'),
    ('dog 1  3', 'v.txt, line 3, field 3: got ""'),
    ('d\udce9g 1 2 3', 'v.txt, line 3: not UTF-8 text'),
    ('d\0g 1 2 3', 'v.txt, line 3: got a zero byte'),
  ],
)
def test_malformed_line_is_reported(line, message, tmp_path):
  path = write(tmp_path / 'v.txt', [*LINES[:2], line, *LINES[2:]])
  with pytest.raises(InputError, match=message):
    vectors.read(str(path), ['mat', 'dog', 'hot dog'], 3)
  with pytest.raises(InputError, match=message):
    vectors.read(str(path), ['mat'], 3)  # of a word that is not looked up


@pytest.mark.parametrize(
  ('lines', 'message'),
  [
    ([], 'v.txt: the file is empty'),
    (['the'], 'line 1: got 1 fields'),
    (['3 3', *LINES], r'v.txt: got 4 vectors'),
    (['5 3', *LINES], r'v.txt: got 4 vectors'),
    (['0.5 0.1 0.2 0.3'], 'line 1, field 1: got the number 0.5'),
    (['the 1 2', 'cat 3 4'], 'model.E: got 3'),
    (['the  1 2 3', 'cat 1 2 3'], 'v.txt, line 1: "the" and 4 fields'),
  ],
)
def test_malformed_file_is_reported(lines, message, tmp_path):
  with pytest.raises(InputError, match=message):
    vectors.read(str(write(tmp_path / 'v.txt', lines)), ['the'], 3)


@pytest.mark.parametrize(
  ('rows', 'words', 'message'),
  [
    (['1 2 3', '4 5 6'], ['a'], 'words.lst, line 2: got no word'),
    (['1 2 3'], ['a', 'b'], 'words.lst, line 2: got another word'),
    (['1 2 3', '4 5'], ['a', 'b'], 'embeddings.txt, line 2: got 2 fields'),
    (['1 2 3', '4 y 6'], ['a', 'b'], 'embeddings.txt, line 2, field 2: got "y"'),
  ],
)
def test_malformed_senna_files_are_reported(rows, words, message, tmp_path):
  write(tmp_path / 'embeddings.txt', rows)
  write(tmp_path / 'words.lst', words)
  with pytest.raises(InputError, match=message):
    vectors.read(str(tmp_path), ['a'], 3)


def test_path_without_vectors_is_reported(tmp_path):
  with pytest.raises(InputError, match='data.vectors: got .*/no.txt'):
    vectors.digest(str(tmp_path / 'no.txt'))
  with pytest.raises(InputError, match='data.vectors: got .*embeddings.txt and words.lst'):
    vectors.digest(str(tmp_path))


@pytest.fixture
def text(tmp_path):
  for name, content in (('train', 'the cat sat sat rare'), ('valid', 'The dog sat'), ('test', 'the mat zebra')):
    write(tmp_path / 'text' / f'{name}.txt', [content])
  write(tmp_path / 'v.txt', [*LINES, 'dog 1 2 3', 'rare 3 2 1'])
  return tmp_path


def config(text, **options):
  given = {'dataset': 'text_files', 'manual_dir': str(text / 'text'), 'cache_dir': str(text / 'cache'), 'min_count': 2}
  return corpus.Config(**{**given, 'vectors': str(text / 'v.txt'), **options})


@pytest.mark.parametrize('characters', [0, 8])
def test_vocabulary_also_has_the_words_of_all_splits_that_have_a_vector(characters, text):
  """Below `min_count` too: `The` by its lower case, `zebra` not."""
  plain, more = (corpus.load(config(text, characters=characters, **{'vectors': v})) for v in ('', str(text / 'v.txt')))
  known = lambda made: made.tokenizer.tokens[: made.tokenizer.known]
  assert known(more) == [*known(plain), 'the', 'The', 'cat', 'dog', 'mat', 'rare']
  others = ['zebra'] if characters else []
  assert more.tokenizer.tokens == [*known(more), *others] and 'the' not in known(plain)
  ids = more.splits['test'].tokens
  last = 'zebra' if characters else '<unk>'
  assert more.tokenizer.ids_to_tokens(ids) == ['the', 'mat', last, '\n', '<eos>'][: len(ids) - 1] + ['<eos>']
  assert more.manifest['vectors'] == vectors.digest(str(text / 'v.txt')) and 'vectors' not in plain.manifest


def test_other_vectors_are_other_data_and_the_saved_vocabulary_needs_none(text):
  first = corpus.load(config(text))
  write(text / 'v.txt', [*LINES, 'zebra 1 2 3'])
  second = corpus.load(config(text))
  assert second.dir != first.dir and 'zebra' in second.tokenizer.tokens and 'dog' not in second.tokenizer.tokens
  (text / 'v.txt').unlink()
  own = corpus.load(config(text, vectors='', tokenizer_path=first.dir))
  assert own.with_record({'vectors': first.manifest['vectors']}).hash == first.hash
  assert build.load(own.dir).tokens == first.tokenizer.tokens


def test_without_the_file_the_data_are_read_with_a_warning(text):
  data = pipeline.Config(**{k: getattr(config(text), k) for k in ('dataset', 'manual_dir', 'cache_dir', 'vectors')})
  assert pipeline.without_missing_vectors(data) is data
  (text / 'v.txt').unlink()
  with pytest.warns(UserWarning, match='data.vectors: got .*v.txt'):
    assert pipeline.without_missing_vectors(data).vectors == ''


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'tokenizer': 'bpe'}, 'data.vectors: got .* with data.tokenizer "bpe"'),
    ({'other_rows': 'zero'}, 'data.other_rows: unknown "zero"'),
  ],
)
def test_runs_without_vectors_are_rejected(options, message, text):
  with pytest.raises(InputError, match=message):
    config(text, **options)


def test_vectors_of_a_device_or_a_pipe_are_rejected(tmp_path):
  os.mkfifo(tmp_path / 'pipe')
  for path, kind in (('/dev/zero', 'a device'), (str(tmp_path / 'pipe'), 'a pipe')):
    with pytest.raises(InputError, match=f'^{path}: got {kind}'):
      vectors._files(path, '--vectors')
