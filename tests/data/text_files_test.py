"""The user's text files: formats, parts, and the documents that they are divided into."""

import gzip
import json
import lzma
import random

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from lmx.data import text_files
from lmx.data.builders import files
from lmx.errors import InputError

WORDS = 'the a cat dog list file Method value. Error Class, returns! é 東京 naïve'.split()


def made_up(seed: int, documents: int, lines: int = 6) -> list[str]:
  draw = random.Random(seed)
  line = lambda: ' '.join(draw.choice(WORDS) for _ in range(draw.randrange(1, 9)))
  return ['\n'.join(line() for _ in range(draw.randrange(1, lines))) for _ in range(documents)]


def texts(documents) -> list[str]:
  return [text for _, text, _ in documents]


def joined(documents, size: int, divide: str) -> tuple[list[str], int]:
  """The documents of all parts, and how many parts begin inside one."""
  found: list[str] = []
  parts = documents.parts(size, divide)
  for part in parts:
    for number, (_, text, _) in enumerate(documents.read(part)):
      if number == 0 and documents.continues(part):
        found[-1] += text
      else:
        found.append(text)
  return found, sum(map(documents.continues, parts))


def read(paths, unit='blank_line', column='text'):
  return text_files.Documents([str(path) for path in paths], unit, column)


@pytest.mark.parametrize('ending', ['.gz', '.xz', '.zst'])
def test_compressed_files_are_read(ending, tmp_path):
  content = 'one\ntwo\n\nthree é\n'.encode()
  pack = {'.gz': gzip.compress, '.xz': lzma.compress, '.zst': lambda x: pa.compress(x, 'zstd', asbytes=True)}[ending]
  path = tmp_path / f'a.txt{ending}'
  path.write_bytes(pack(content) + (pack(b'\nfour\n') if ending != '.gz' else b''))
  assert texts(read([path])) == ['one\ntwo', 'three é', *(['four'] if ending != '.gz' else [])]
  assert texts(read([path]).read(read([path]).parts(4, 'before')[0])) == texts(read([path]))
  path.write_bytes(pack(content)[:-5])
  with pytest.raises(InputError, match=rf'a.txt{ending}: got damaged'):
    texts(read([path]))


def test_parquet_with_a_dictionary_of_texts(tmp_path):
  path = tmp_path / 'a.parquet'
  parquet.write_table(pa.table({'text': pa.array(['one two', 'three', 'one two']).dictionary_encode()}), path)
  rows = text_files.Documents([str(path)], 'blank_line', 'text')
  assert [text for _, text, _ in rows] == ['one two', 'three', 'one two']
  numbers = tmp_path / 'b.parquet'
  parquet.write_table(pa.table({'text': pa.array([1, 1]).dictionary_encode()}), numbers)
  with pytest.raises(InputError, match='data.column: got .* of type int64'):
    list(text_files.Documents([str(numbers)], 'blank_line', 'text'))


def test_parquet_has_a_column_of_texts(tmp_path):
  path = tmp_path / 'a.parquet'
  table = pa.table({'body': ['one ', None, 'two\n\nthree', ''], 'label': ['x', 'y', None, 'z'], 'n': [1, 2, 3, 4]})
  parquet.write_table(table, path, row_group_size=1)
  documents = read([path], column='body')
  assert [row[1:] for row in documents] == [('one', 'x'), ('two\n\nthree', '')]
  assert [texts(documents.read(part)) for part in documents.parts(1, '')] == [['one'], [], ['two\n\nthree'], []]
  assert len(documents.parts(10**6, '')) == 1
  with pytest.raises(InputError, match='data.column: got "texts"'):
    texts(read([path], column='texts'))
  with pytest.raises(InputError, match='data.column: got "n" of type int64'):
    texts(read([path], column='n'))
  path.write_bytes(path.read_bytes()[:-9])
  with pytest.raises(InputError, match='a.parquet: cannot be read'):
    texts(documents)


def test_json_lines_have_a_field_of_texts_and_errors_of_parts_name_the_line(tmp_path, monkeypatch):
  monkeypatch.setattr(text_files, '_BLOCK', 64)
  path = tmp_path / 'a.jsonl'
  path.write_text('\n\n'.join(json.dumps({'body': f'text {n}', 'label': n}) for n in range(50)))
  documents = read([path], column='body')
  assert [row[1:] for row in documents] == [(f'text {n}', str(n)) for n in range(50)]
  assert joined(documents, 100, 'before') == (texts(documents), 0) and len(documents.parts(100, '')) > 5
  path.write_text(path.read_text() + '\n{"body": 3}\n')
  with pytest.raises(InputError, match=r'a.jsonl, line 100: body: got 3'):
    texts(documents.read(documents.parts(100, '')[-1]))


@pytest.mark.parametrize('size', [60, 300, 4000])
@pytest.mark.parametrize('unit', ['blank_line', 'line', 'file'])
def test_parts_have_the_documents_of_the_file(size, unit, tmp_path, monkeypatch):
  monkeypatch.setattr(text_files, '_BLOCK', 64)
  path = tmp_path / 'a.txt'
  path.write_bytes(('\ufeff \n\n  ' + '\n \t\n'.join(made_up(0, 40)) + '\r\n\r\nlast\n \n').encode())
  documents = read([path, path], unit)
  whole = texts(documents)
  assert len(whole) == {'blank_line': 82, 'file': 2}.get(unit, len(whole))
  assert joined(documents, size, '') == (whole, 0)
  found, divided = joined(documents, size, 'before')
  assert found == whole and (divided > 0) == (size == 60 and unit == 'blank_line')


@pytest.mark.parametrize('divide', ['before', 'after'])
def test_long_document_is_divided_at_line_ends(divide, tmp_path, monkeypatch):
  monkeypatch.setattr(text_files, '_BLOCK', 50)
  path = tmp_path / 'a.txt'
  path.write_text('\n   '.join(made_up(5, 1, 200)[0].split('\n')) + '\n\nshort\n')
  documents = read([path])
  found, divided = joined(documents, 200, divide)
  assert found == texts(documents) and divided > 5
  for part in filter(documents.continues, documents.parts(200, divide)):
    ((_, text, _), *_) = documents.read(part)
    assert text.startswith('\n') == (divide == 'before') and (divide == 'before' or text[0] != ' ')


@pytest.mark.parametrize('fault', [b'\xff', b'a\0b'])
def test_errors_of_parts_name_the_line(fault, tmp_path):
  path = tmp_path / 'a.txt'
  path.write_bytes(b'line\n\n' * 50 + fault + b'\n')
  documents = read([path])
  with pytest.raises(InputError) as whole:
    texts(documents)
  with pytest.raises(InputError) as part:
    texts(documents.read(documents.parts(60, '')[-1]))
  assert str(part.value) == str(whole.value) and 'line 101' in str(whole.value)


def test_blank_file_is_rejected_and_empty_parts_are_skipped(tmp_path):
  path = tmp_path / 'a.txt'
  for content, message in (('', 'the file is empty'), (' \n\n', 'the file has no text')):
    path.write_text(content)
    with pytest.raises(InputError, match=message):
      texts(read([path]))


def test_splits_held_out_by_hash_have_parts(tmp_path):
  (tmp_path / 'a.txt').write_text('\n\n'.join(f'document {n}' for n in range(600)))
  splits = text_files.open_splits(
    files.find_texts(str(tmp_path)), str(tmp_path), 'blank_line', 'text', 0.05, ['valid', 'test']
  )
  for documents in splits.values():
    assert joined(documents, 500, 'before') == (texts(documents), 0)
  assert np.sum([len(texts(documents)) for documents in splits.values()]) == 600
  (tmp_path / 'a.txt').write_text('\n'.join(f'line {n}' for n in range(60)))
  splits = text_files.open_splits(
    files.find_texts(str(tmp_path)), str(tmp_path), 'blank_line', 'text', 0.05, ['valid', 'test']
  )
  assert [len(texts(s)) for s in splits.values()] == [1, 1, 1] and splits['train'].parts(10, 'before') == []
