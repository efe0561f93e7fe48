"""LAMBADA and the Children's Book Test as released: what is read of them, and errors that name file and line."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json

import pytest

from lmx.data import corpus as corpora
from lmx.data import sources
from lmx.data.builders import cloze
from lmx.errors import InputError

CANDIDATES = [f'thing{i}' for i in range(9)] + ['cat']


def question(answer='cat', asked="`` The XXXXX 's gone , '' said she .", candidates=CANDIDATES):
  lines = [f'{i} It was day {i} .' for i in range(1, 21)]
  return '\n'.join([*lines, f'21 {asked}\t{answer}\t\t{"|".join(candidates)}', '', ''])


def rows(name, folder, split, **changes):
  source = sources.Config(dataset=name, manual_dir=str(folder), **{'check_sizes': False} | changes)
  found = list(sources.open_splits(dataclasses.replace(source, cache_dir=str(folder / 'cache')))[split])
  together = source.documents_per_example
  return [found[i : i + together] for i in range(0, len(found), together)]


def test_lambada_from_json_lines_and_from_plain_ones(tmp_path):
  lines = [{'text': 'Yes.\n\n"No," said\tTom Gray'}, {'text': ' A b c. '}]
  (tmp_path / 'lambada_test.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines))
  with gzip.open(tmp_path / 'lambada_development_plain_text.txt.gz', 'wt') as file:
    file.write("`` no , '' said tom\n")
  texts = lambda split: [tuple(text for _, text, _ in row) for row in rows('lambada', tmp_path, split)]
  assert texts('test') == [('Yes.\n\n"No," said\tTom', 'Gray'), ('A b', 'c.')]
  assert texts('valid') == [("`` no , '' said", 'tom')]
  with pytest.raises(InputError, match='lambada, split valid: got 1 rows in'):
    rows('lambada', tmp_path, 'test', check_sizes=True)


def test_question_of_the_childrens_book_test(tmp_path):
  (tmp_path / 'cbtest_NE_valid_2000ex.txt').write_text(question() + question('thing3', 'XXXXX ran .'))
  one, two = rows('cbt/ne', tmp_path, 'valid')
  texts = [text for _, text, _ in one]
  assert texts[0].startswith('It was day 1 . It was day 2 .') and texts[0].endswith('day 20 . `` The')
  assert texts[1] == '' and texts[2] == "thing0 's gone , '' said she ." and texts[11] == "cat 's gone , '' said she ."
  assert len(texts) == 12 and one[0][2] == '9' and two[0][2] == '3' and two[5][1] == 'thing3 ran .'


def test_corpus_of_questions_reads_them_as_written(tmp_path):
  (tmp_path / 'cbtest_CN_valid_2000ex.txt').write_text(question())
  options = {'manual_dir': str(tmp_path), 'check_sizes': False, 'cache_dir': str(tmp_path / 'cache')}
  found = corpora.load(
    corpora.Config(dataset='cbt/cn', tokenizer='bytes', detokenize=True, vocabulary_splits=('valid',), **options)
  )
  split = found.splits['valid']
  texts = [found.tokenizer.decode(split.tokens[a:b]) for a, b in itertools.pairwise(split.offsets)]
  assert texts[0].startswith('It was day 1. It was day 2.') and '20. "The' in texts[0]
  assert texts[11].startswith(' cat\'s gone," said she.')
  assert found.manifest['choices'] == 10 and set(found.splits) == {'valid'}


@pytest.mark.parametrize(
  'text, message',
  [
    ('{"text": "a b"}\n\n', r'lambada_test.jsonl, line 2: '),
    ('{"text": "alone"}\n', 'line 1: got "alone"'),
    ('{"txt": "a b"}\n', 'line 1: no field "text"'),
    ('{"text": \n', 'line 1: not JSON'),
  ],
)
def test_malformed_lambada_is_rejected(tmp_path, text, message):
  path = tmp_path / 'lambada_test.jsonl'
  path.write_text(text)
  with pytest.raises(InputError, match=message):
    list(cloze.lambada(str(path)))


@pytest.mark.parametrize(
  'text, message',
  [
    (question(candidates=['cat']), 'line 21: got 1 candidates'),
    (question().replace('\tcat\t\t', ''), 'line 21: got 0 candidates'),
    (question(answer='dog'), 'line 21: got the answer "dog"'),
    (question(asked='No word is missing .'), 'line 21: got a sentence without XXXXX'),
    (question().replace('20 It', '\n20 It'), 'line 20: got an empty line'),
    (question().replace('7 It', '8 It'), 'line 7: got "8"'),
    (question() + '1 It was .\n', 'got 1 lines of the last question; expected 21'),
  ],
)
def test_malformed_questions_are_rejected(tmp_path, text, message):
  path = tmp_path / 'cbtest_V_valid_2000ex.txt'
  path.write_text(text)
  with pytest.raises(InputError, match=message):
    list(cloze.children(str(path)))


def test_missing_files_are_reported(tmp_path):
  for name, wanted in (('lambada', 'lambada_test.jsonl'), ('cbt/p', 'cbtest_P_valid_2000ex.txt')):
    with pytest.raises(InputError, match=f'data.manual_dir: got .*; expected {wanted}'):
      rows(name, tmp_path, 'valid')
    with pytest.raises(InputError, match=f'data.manual_dir: got no directory of data set {name}'):
      sources.Config(dataset=name).identity()
