"""Questions on passages whose answers are spans of the passage: SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018).

Supported are the published JSON ({"data": [{"title", "paragraphs": [...]}]}) and JSON lines, one paragraph per line,
each also compressed. A paragraph is
{"context", "qas": [{"id", "question", "answers": [{"text", "answer_start"}], "is_impossible"}]}.
No TFDS is imported here, so a complete token cache can be found without it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from lmx import documents
from lmx.data.builders import files, split_files
from lmx.errors import InputError

ENDINGS = ('.json', '.jsonl')


class Question(NamedTuple):
  """A question on a passage.

  Attributes:
    id: id in the file.
    context: the passage.
    question: text of the question.
    answers: texts and their start in the passage, in code points; () if the passage has no answer, None if
      it is unknown.
  """

  id: str
  context: str
  question: str
  answers: tuple[tuple[str, int], ...] | None

  @property
  def label(self) -> str:
    """Return the answers and the id as JSON, as stored with the texts."""
    return json.dumps({'id': self.id, 'answers': self.answers}, ensure_ascii=False)

  @property
  def span(self) -> str:
    """Return 'begin:end' of the first answer, 'none' without an answer."""
    if not self.answers:
      return 'none'
    text, begin = self.answers[0]
    return f'{begin}:{begin + len(text)}'


def read(path: str, *, require_answers: bool = True) -> Iterator[Question]:
  """Yield the questions of a file, in order.

  Args:
    path: the file.
    require_answers: require answers for every question; else "answers" is optional.

  Raises:
    InputError: the file has another format, a question is repeated, or an answer does not match its start.
  """
  ids: set[str] = set()
  for where, paragraph in _paragraphs(path):
    context = documents.field(paragraph, 'context', str, where)
    for qa in documents.field(paragraph, 'qas', list, where):
      text = documents.field(qa, 'question', str, where).strip()
      number = qa.get('id')
      name = str(number) if isinstance(number, int) else documents.field(qa, 'id', str, where)
      question = Question(name, context, text, _answers(qa, require_answers, f'{where}, question {name}'))
      _check(question, where, ids)
      yield question


def _answers(qa: Any, require_answers: bool, where: str) -> tuple[tuple[str, int], ...] | None:
  if documents.field(qa, 'is_impossible', bool, where, default=False):
    if qa.get('answers'):
      raise InputError(
        f'{where}: answers: got {len(qa["answers"])} with is_impossible; expected none; answers that seem right belong '
        'in plausible_answers'
      )
    return ()
  if not require_answers and qa.get('answers') is None and 'is_impossible' not in qa:
    return None
  field = documents.field
  answers = field(qa, 'answers', list, where)
  return tuple(dict.fromkeys((field(a, 'text', str, where), field(a, 'answer_start', int, where)) for a in answers))


def _check(question: Question, where: str, seen: set[str]) -> None:
  if question.id in seen:
    raise InputError(f'{where}: question {question.id}: got it twice; expected a different id for each question')
  seen.add(question.id)
  if not question.question or not question.context.strip():
    raise InputError(f'{where}: question {question.id}: got an empty question or passage; expected text')
  for text, begin in question.answers or ():
    if not text.strip():
      raise InputError(f'{where}: question {question.id}: got an empty answer at {begin}; expected text')
    if begin < 0 or question.context[begin : begin + len(text)] != text:
      raise InputError(
        f'{where}: question {question.id}: got the answer "{text}", which is not at {begin} of the '
        f'passage of {len(question.context):,} characters; expected its position'
      )


def _paragraphs(path: str) -> Iterator[tuple[str, Any]]:
  """Yield (position in the file, paragraph) of each paragraph."""
  if documents.ending(path) == '.jsonl':
    yield from ((f'{path}, line {number}', paragraph) for number, paragraph in documents.read_json_lines(path))
    return
  for i, article in enumerate(documents.field(documents.read_json(path), 'data', list, path), 1):
    for j, paragraph in enumerate(documents.field(article, 'paragraphs', list, f'{path}, article {i}'), 1):
      yield f'{path}, article {i}, paragraph {j}', paragraph


def find(name: str, layout: files.Layout | None, directory: str, names: str = 'words') -> dict[str, list[str]]:
  """Return {split: files}.

  Args:
    name: the data set.
    layout: published names of its files; None assigns the directory's files to splits by their names.
    directory: the user's directory.
    names: see `split_files.find_splits`.
  """
  if layout:
    return {part: [path] for part, path in files.find(name, layout, directory).items()}
  if not os.path.isdir(directory):
    raise InputError(f'data.manual_dir: got {directory}; expected a directory with the files of data set {name}')
  endings = split_files.with_compression(ENDINGS, names)
  expected = split_files.describe(ENDINGS)
  splits = split_files.find_splits(directory, endings, f'file of questions; expected {expected}', names)
  if 'train' not in splits:
    raise InputError(
      f'data.manual_dir: got {directory} without a training file; expected {expected} of data set {name}'
    )
  return splits
