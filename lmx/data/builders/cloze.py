"""Cloze tests: LAMBADA (Paperno et al. 2016) and the Children's Book Test (Hill et al. 2015).

A row of LAMBADA is a text without its last word, and that word. A row of the Children's Book Test is a context, an
empty question and ten candidates. The context is twenty sentences and the next sentence up to its missing word; each
candidate is followed by the rest of that sentence. The label is the number of the correct candidate.
No TFDS is imported here, so a complete token cache can be found without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from lmx import documents
from lmx.errors import InputError

Cells = Iterator[tuple[int, dict[str, str]]]  # number of the line, column -> cell
BLANK = 'XXXXX'
SENTENCES = 21  # of a question; the last one has the missing word
CANDIDATES = 10


def lambada(path: str) -> Cells:
  """Yield the texts of a LAMBADA file: JSON lines with the field "text", or plain lines.

  Raises:
    InputError: an empty line, a line that is not such JSON, or a text of one word.
  """
  as_json = documents.ending(path) == '.jsonl'
  for number, line in enumerate(documents.read_lines(path), 1):
    where = f'{path}, line {number}'
    if not line.strip():
      raise InputError(f'{where}: got an empty line; expected a text')
    text = documents.field(documents.parse_json(line, where), 'text', str, where) if as_json else line
    parts = text.strip().rsplit(None, 1)
    if len(parts) < 2:
      raise InputError(f'{where}: got "{text[:60]}"; expected a word before its last one')
    yield number, {'context': parts[0], 'word': parts[1]}


def children(path: str) -> Cells:
  """Yield the questions in a file of the Children's Book Test.

  A question is 21 numbered lines; in the last one the answer and the candidates, separated by `|`, follow after tabs.
  Empty lines separate questions.

  Raises:
    InputError: a question has too few lines, or no missing word, candidates or correct answer; the line is named.
  """
  pending: list[str] = []
  for number, line in enumerate(documents.read_lines(path), 1):
    if not line.strip():
      if pending:
        raise InputError(
          f'{path}, line {number}: got an empty line after {len(pending)} of the {SENTENCES} of a '
          'question; expected the next of them'
        )
      continue
    where = f'{path}, line {number}'
    start, _, text = line.strip().partition(' ')
    if start != str(len(pending) + 1):
      raise InputError(f'{where}: got "{start}"; expected number {len(pending) + 1} of a question')
    pending.append(text)
    if len(pending) == SENTENCES:
      yield number, _question(pending, where)
      pending = []
  if pending:
    raise InputError(f'{path}: got {len(pending)} lines of the last question; expected {SENTENCES}')


def _question(lines: list[str], where: str) -> dict[str, str]:
  """Return the cells of a question."""
  sentence, *rest = lines[-1].split('\t')
  words = sentence.split()
  index = next((i for i, word in enumerate(words) if BLANK in word), None)
  if index is None:
    raise InputError(f'{where}: got a sentence without {BLANK}; expected it for the missing word')
  answer, choices = (rest[0].strip(), rest[-1].strip().split('|')) if len(rest) > 1 else ('', [])
  if len(choices) != CANDIDATES:
    raise InputError(
      f'{where}: got {len(choices)} candidates; expected {CANDIDATES}: the sentence, a tab, the answer, '
      'two tabs and the candidates with | between them'
    )
  if answer not in choices:
    raise InputError(f'{where}: got the answer "{answer}"; expected one of the candidates {", ".join(choices)}')
  after = ' '.join(words[index + 1 :])
  ends = {f'choice_{i}': f'{words[index].replace(BLANK, one)} {after}' for i, one in enumerate(choices)}
  context = ' '.join([*lines[:-1], *words[:index]])
  return {'context': context, 'question': '', 'label': str(choices.index(answer)), **ends}
