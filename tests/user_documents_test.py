"""Tests of lmx/documents.py: every fault of a file is an InputError that names it."""

from __future__ import annotations

import gzip
import random

import pytest

from lmx import documents
from lmx.errors import InputError
from lmx.reporting import run_log


def test_lines_end_in_lf_cr_lf_or_cr_and_a_cr_within_lines_stays(tmp_path):
  path = tmp_path / 'a.txt'
  for content, lines in (
    (b'a\nb\n', ['a\n', 'b\n']),
    (b'\xef\xbb\xbfa\r\nb', ['a\n', 'b\n']),
    (b'a\rb\rc', ['a\n', 'b\n', 'c\n']),
    (b'a\rb\r', ['a\n', 'b\n']),
    (b'a\rb\nc\n', ['a\rb\n', 'c\n']),
    (b'alone\r', ['alone\n']),
  ):
    path.write_bytes(content)
    assert list(documents.read_lines(path)) == lines, content


@pytest.mark.parametrize('ending', ['', '.gz', '.XZ', '.zst'])
def test_what_is_written_compressed_is_read_again(tmp_path, ending):
  path = tmp_path / f'a.txt{ending}'
  for mode, content in (('w', 'a\rκ\n'), ('a', 'b\n')):
    with documents.open_to_write(path, mode) as file:
      file.write(content)
  assert documents.read_text(path) == 'a\rκ\nb\n'
  assert (path.read_bytes() == 'a\rκ\nb\n'.encode()) == (not ending)
  run_log.write_json(str(path), {'a': [1]})
  assert documents.read_json(path) == {'a': [1]}


def test_rows_are_lines_without_the_blank_ones_at_the_end(tmp_path):
  (tmp_path / 'a.txt').write_text('a\n\nb\n \n\n')
  assert list(documents.read_rows(tmp_path / 'a.txt')) == [(1, 'a'), (2, ''), (3, 'b')]


@pytest.mark.parametrize(
  'name, content, said',
  [
    ('a.txt', b'', 'the file is empty'),
    ('a.txt', b'a\nb\0\n', 'line 2: got a zero byte'),
    ('a.txt', b'a\nb\xff\n', 'line 2: not UTF-8'),
    ('a.txt', 'a\nb\n'.encode('utf-16'), 'got UTF-16 text; expected UTF-8'),
    ('a.txt.gz', b'plain', 'got damaged gzip data'),
    ('a.txt.gz', gzip.compress(b'complete', mtime=0)[:-5], 'got damaged gzip data'),
  ],
)
def test_damaged_file_is_named_with_the_line(tmp_path, name, content, said):
  path = tmp_path / name
  path.write_bytes(content)
  with pytest.raises(InputError, match=f'{name}.*{said}'):
    documents.read_text(path)


def test_files_that_are_missing_or_directories_are_reported(tmp_path):
  with pytest.raises(InputError, match=r'none\.txt: cannot be read'):
    documents.read_bytes(tmp_path / 'none.txt')
  with pytest.raises(InputError, match='cannot be read'):
    documents.read_text(str(tmp_path))


@pytest.mark.parametrize(
  'text, said',
  [
    ('[' * 100_000 + ']' * 100_000, 'nested too deep'),
    ('9' * 5_000, 'an integer too long'),
    ('{"a": 1', 'not JSON .* at column 8'),
    ('{\n"a": 1', 'not JSON .* at line 2, column 7'),
    ('"\\ud800"', 'half a surrogate pair'),
    ('{"text": 1, "label": 2, "text": 1}', 'got the key "text" twice'),
    (
      '{"data": [\n{"id": 1},\n{"id": 1,\n"text": 2, "id": 1}]}',
      'the key "id" twice .*line 3',
    ),
    (f'{"[" * 600}\n{{"a": 1, "a": 2}}{"]" * 600}', 'got the key "a" twice'),
  ],
)
def test_json_that_python_cannot_read_is_an_input_error(text, said):
  with pytest.raises(InputError, match=f'a.json: .*{said}'):
    documents.parse_json(text, 'a.json')


def test_fields_have_their_type_or_name_it():
  row = {'text': 'a', 'count': 3.0, 'flag': True, 'huge': 10**400, 'infinite': float('inf'), 'none': None}
  assert documents.field(row, 'count', int, 'f') == 3
  assert documents.field(row, 'count', float, 'f') == 3.0
  assert documents.field(row, 'none', str, 'f', default='') == documents.field(row, 'other', str, 'f', default='') == ''
  for name, kind, said in (
    ('flag', int, 'f, line 2: flag: got true'),
    ('infinite', int, 'f, line 2: infinite: got Infinity'),
    ('huge', float, 'huge: got 1000'),
    ('none', str, 'none: got null'),
    ('txt', str, 'no field "txt"; did you mean "text"'),
  ):
    with pytest.raises(InputError, match=said):
      documents.field(row, name, kind, 'f, line 2')
  with pytest.raises(InputError, match='got a list of 1'):
    documents.field([1], 'text', str, 'f')


def test_no_bytes_end_in_anything_but_lines_or_an_input_error(tmp_path):
  draw, path = random.Random(0), tmp_path / 'a.jsonl'
  parts = [
    b'{',
    b'}',
    b'[',
    b']',
    b'"',
    b'\\u',
    b'd800',
    b'1e999',
    b'-',
    b'NaN',
    b'\r',
    b'\n',
    b'\xff',
    b'\0',
    b'null',
    b':',
  ]
  for _ in range(500):
    path.write_bytes(b''.join(draw.choices(parts, k=draw.randrange(12))))
    try:
      for number, value in documents.read_json_lines(path):
        documents.field(value, 'a', int, f'line {number}')
    except InputError:
      pass


def test_zstd_with_a_window_of_two_gigabytes_is_read(tmp_path):
  from backports import zstd

  options = {zstd.CompressionParameter.window_log: 31, zstd.CompressionParameter.enable_long_distance_matching: 1}
  path = tmp_path / 'train.txt.zst'
  with zstd.open(path, 'wb', options=options) as file:  # of unknown size, so that the window stays
    file.write(b'one two\n' * 400)
  assert len(list(documents.read_lines(str(path)))) == 400
  path.write_bytes(path.read_bytes()[:-3])
  with pytest.raises(InputError, match='damaged zstd data'):
    list(documents.read_lines(str(path)))


@pytest.mark.parametrize('path', ['/dev/zero', '/dev/null'])
def test_devices_are_rejected(path, tmp_path):
  (tmp_path / 'link.txt').symlink_to(path)
  for name in (path, str(tmp_path / 'link.txt')):
    with pytest.raises(InputError, match='got a device'):
      list(documents.read_lines(name))


def test_endless_lines_and_files_are_rejected(tmp_path, monkeypatch):
  monkeypatch.setattr(documents, 'LONGEST', 3 << 20)
  path = tmp_path / 'train.txt'
  path.write_bytes(b'a\n' + b'b' * (5 << 20))
  with pytest.raises(InputError, match='train.txt, line 2: got a line'):
    list(documents.read_lines(str(path)))
  with pytest.raises(InputError, match='got more than 3,145,728 bytes'):
    documents.read_bytes(str(path))
