"""Mutated files of every kind that users bring are read, or refused with an InputError that names the file."""

from __future__ import annotations

import json
import random
import re
import warnings

import pytest

from lmx.data.builders import cloze, parallel, questions, tables, tagged
from lmx.data.builders.text_files import text_files_dataset_builder as text_files
from lmx.errors import InputError
from lmx.metrics import embeddings, translation

ANSWER = {'text': 'he', 'answer_start': 0}
PARAGRAPH = {
  'context': 'he saw', 'qas': [{'id': 'a', 'question': 'Who?', 'answers': [ANSWER], 'is_impossible': False}],
}  # fmt: skip
FILES = {
  'a.csv': ['text,label\na,x\n"b, c",y\n'],
  'a.tsv': ['text\tlabel\na\tx\nb\ty\n'],
  'a.jsonl': ['{"text": "a", "label": "x"}\n{"text": "b", "label": 1}\n', '{"tokens": ["a"], "tags": ["O"]}\n',
              json.dumps(PARAGRAPH)],
  'a.json': [json.dumps({'data': [{'title': 't', 'paragraphs': [PARAGRAPH]}]})],
  'a.txt': ['one two\nthree\n', '0-1 2p3\n', ': capitals\na b c d\n'],
  'a.conll': ['A O\nB B-x\n\nC O\n'],
  'a.conllu': ['1\tA\ta\tNOUN\n2\tB\tb\tVERB\n\n'],
}  # fmt: skip
PARTS = [
  b'"', b'\\ud800', b'null', b'NaN', b'Infinity', b'-1', b'1e999', b'9' * 5_000, b'[' * 100_000, b'{', b'}', b']', b',',
  b'\t', b'\n', b'\r', b'\0', b'\xff', b'\xef\xbb\xbf', b'""', b'[]', b'{}', b'true', b'1.0', b' ',
]  # fmt: skip
TABLE = tables.Table((('text',),))
SCORES = tables.Table((('text',), ('label',)), scores=True)
READERS = {
  'csv': [lambda path: tables.read(TABLE, path, 'train'), lambda path: tables.read(SCORES, path, 'test')],
  'tsv': [lambda path: tables.read(TABLE, path, 'test'), lambda path: parallel._table(path, ('text', 'label'))],
  'jsonl': [lambda path: tables.read(TABLE, path, 'train'), lambda path: tables.read(SCORES, path, 'test'),
            tagged.read, questions.read, lambda path: questions.read(path, known=False), text_files._json_lines,
            cloze.lambada],
  'json': [questions.read, lambda path: questions.read(path, known=False)],
  'txt': [tagged.read, cloze.lambada, cloze.children, embeddings.read_judgements, embeddings.read_questions,
          translation.read_alignments],
  'conll': [tagged.read],
  'conllu': [tagged.read],
}  # fmt: skip


def mutated(draw: random.Random, content: bytes) -> bytes:
  """One to three parts put into the content, or in place of a piece or of a whole value of it."""
  for _ in range(draw.randint(1, 3)):
    at, part = draw.randrange(len(content) + 1), draw.choice(PARTS)
    values = [found.span() for found in re.finditer(rb'"[^"]*"|\d+|false|\[[^\[\]]*\]|\{[^{}]*\}', content)]
    begin, end = draw.choice([(at, at), (at, at + draw.randrange(6)), draw.choice(values or [(at, at)])])
    content = content[:begin] + draw.choice([part, part, b'']) + content[end:]
  return content


@pytest.mark.parametrize('inputs', [500, pytest.param(50_000, marks=pytest.mark.slow)])
def test_files_of_users_are_read_or_refused(inputs, tmp_path):
  draw = random.Random(inputs)
  for _ in range(inputs):
    name = draw.choice(list(FILES))
    content = mutated(draw, draw.choice(FILES[name]).encode())
    (tmp_path / name).write_bytes(content)
    for reader in READERS[name.rpartition('.')[2]]:
      try:
        with warnings.catch_warnings(action='ignore'):
          json.dumps(list(reader(str(tmp_path / name))), ensure_ascii=False, default=list).encode()  # as it is prepared
      except InputError:
        pass
      except Exception as error:
        raise AssertionError(f'{name}: {content[:300]!r}') from error
