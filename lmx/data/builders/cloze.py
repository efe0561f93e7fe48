"""Tests of which word is missing: LAMBADA (Paperno et al. 2016) and the Children's Book Test (Hill et al. 2015).

A row of LAMBADA is a text without its last word, and that word. One of the Children's Book Test is the twenty sentences
before a sentence with what of that stands before its missing word, an empty question, and the ten candidates, each with
the rest of the sentence behind it; its label is the number of the right one.
No TFDS here, so a token cache that is complete can be found without importing it.
"""

from __future__ import annotations

from collections.abc import Iterator

from lmx import documents
from lmx.errors import InputError

Cells = Iterator[tuple[int, dict[str, str]]]  # number of the line, column -> cell
BLANK = 'XXXXX'
SENTENCES = 21  # of a question, the last one with the missing word
CANDIDATES = 10


def lambada(path: str) -> Cells:
  """Texts of a file of LAMBADA: JSON lines with the field "text", or plain lines.

  Raises:
    InputError: an empty line, a line that is no such JSON, or a text of one word.
  """
  as_json = path.removesuffix('.gz').endswith('.jsonl')
  for number, line in enumerate(documents.read_lines(path), 1):
    where = f'{path}, line {number}'
    if not line.strip():
      raise InputError(f'{where}: the line is empty; a text is expected on each')
    text = documents.field(documents.parse_json(line, where), 'text', str, where) if as_json else line
    parts = text.strip().rsplit(None, 1)
    if len(parts) < 2:
      raise InputError(f'{where}: "{text[:60]}" has no word before its last one')
    yield number, {'context': parts[0], 'word': parts[1]}


def children(path: str) -> Cells:
  """Questions of a file of the Children's Book Test: 21 numbered lines, the last one with tabs before the answer and
  the candidates, which have `|` between them; empty lines stand between questions.

  Raises:
    InputError: a question of fewer lines, or without missing word, candidates or right answer; the line is named.
  """
  held: list[str] = []
  for number, line in enumerate(documents.read_lines(path), 1):
    if not line.strip():
      if held:
        raise InputError(f'{path}, line {number}: an empty line after {len(held)} of the {SENTENCES} of a question')
      continue
    where = f'{path}, line {number}'
    place, _, text = line.strip().partition(' ')
    if place != str(len(held) + 1):
      raise InputError(f'{where}: begins with "{place}" where number {len(held) + 1} of a question is expected')
    held.append(text)
    if len(held) == SENTENCES:
      yield number, _question(held, where)
      held = []
  if held:
    raise InputError(f'{path}: ends after {len(held)} of the {SENTENCES} lines of a question')


def _question(lines: list[str], where: str) -> dict[str, str]:
  """The cells of a question."""
  asked, *rest = lines[-1].split('\t')
  words = asked.split()
  place = next((i for i, word in enumerate(words) if BLANK in word), None)
  if place is None:
    raise InputError(f'{where}: the sentence has no {BLANK}, so no word is missing')
  answer, choices = (rest[0].strip(), rest[-1].strip().split('|')) if len(rest) > 1 else ('', [])
  if len(choices) != CANDIDATES:
    raise InputError(
      f'{where}: {len(choices)} candidates instead of {CANDIDATES}; the sentence, a tab, the answer, '
      'two tabs and the candidates with | between them are expected'
    )
  if answer not in choices:
    raise InputError(f'{where}: the answer "{answer}" is none of the candidates {", ".join(choices)}')
  after = ' '.join(words[place + 1 :])
  ends = {f'choice_{i}': f'{words[place].replace(BLANK, one)} {after}' for i, one in enumerate(choices)}
  context = ' '.join([*lines[:-1], *words[:place]])
  return {'context': context, 'question': '', 'label': str(choices.index(answer)), **ends}
