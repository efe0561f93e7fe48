"""The commands and Python blocks that the documents show, each with its treatment by tests/shown_commands_test.py."""

from __future__ import annotations

import functools
import re
import shlex
import textwrap
from typing import NamedTuple

from tests import documents_test

PROGRAMS = ('lmx', 'python', 'python3', 'pip', 'git', 'pytest', 'mkdocs', 'docker', 'tensorboard', 'optuna-dashboard')
PROGRAMS += ('lm_eval', 'pre-commit', 'mlflow')
# Documents that another test runs from the first command to the last.
ELSEWHERE = {
  'docs/add_model.md': 'worked_example_test',
  'docs/fine_tune.md': 'pages_test',
  'docs/first_error.md': 'pages_test',
}


class Shown(NamedTuple):
  """A command or code of a document.

  Attributes:
    document: its path.
    text: the command in one line without a comment, or the code.
    block: in a code block, not in a sentence.
    python: Python code.
  """

  document: str
  text: str
  block: bool
  python: bool = False

  @property
  def words(self) -> list[str]:
    """Words of a command after variables; the program without its folder."""
    words = shlex.split(self.text)
    while re.fullmatch(r'[A-Z_]+=\S*', words[0]):
      words.pop(0)
    return [words[0].removeprefix('.venv/bin/'), *words[1:]]

  @property
  def is_form(self) -> bool:
    """True for the form of a command, such as `lmx report DIR` in a sentence, or one with an ellipsis."""
    placeholders = not self.block and any(re.search(r'\b[A-Z]{2,}\b|^[AB]$', word) for word in self.words[1:])
    return placeholders or bool(re.search(r'\.\.\.|\[:|\[D|<this', self.text))


def _commands(line: str) -> list[str]:
  """Return the commands of a line of a shell."""
  line = re.sub(r'(^|\s)#.*| {2,}.*', '', re.sub(r'^\$ ', '', line.strip()))
  parts = re.split(r' && ', line)
  start = rf'(?:[A-Z_]+=\S+ )*(?:echo .* \| )?(?:\.venv/bin/)?(?:{"|".join(PROGRAMS)}) '
  return [part for part in parts if re.match(start, part)]


@functools.cache
def of(document: str) -> tuple[Shown, ...]:
  """Return what a document shows, in its order."""
  text = (documents_test.ROOT / document).read_text(encoding='utf-8')
  found: list[Shown] = []
  for part in re.split(r'(?ms)(^ *```.*?^ *```)', text):
    fence = re.match(r' *```([^\n]*)\n(.*?)^ *```', part, re.S | re.M)
    if fence and fence[1].startswith('python'):
      found.append(Shown(document, textwrap.dedent(fence[2]), True, True))
      continue
    body = re.sub(r'[ ]*\\\n\s*', ' ', fence[2] if fence else part)
    lines = body.splitlines() if fence else re.findall(r'`([^`\n]+)`', body.replace('\n', ' '))
    kept = [line for line in lines if not fence or not fence[1].startswith('text') or line.startswith('$ ')]
    commands = [Shown(document, command, bool(fence)) for line in kept for command in _commands(line)]
    found += [one for one in commands if one.block or len(one.words) > (3 if one.words[1] == '-m' else 2)]
  return tuple(found)


def all_shown() -> list[Shown]:
  """Return what all documents show."""
  return [one for document in documents_test.DOCUMENTS for one in of(document)]


def treatment(shown: Shown) -> str:
  """Return how a command is checked.

  'elsewhere': another test runs it. 'config': its config resolves. 'run': it runs on a tiny run. 'launch': a dry run.
  'form': it parses. 'file': the program is a file of the repository. 'other': a program of others.
  """
  program, *words = shown.words
  if program == 'echo':
    program, *words = shown.words[shown.words.index('|') + 1 :]
  if program == 'lmx':
    if shown.document in ELSEWHERE:
      return 'elsewhere' if shown.block else 'form'
    if re.search(r'--config=(?!FILE)', shown.text) and words[0] not in ('bench', 'ngrams'):
      return 'config'
    is_measured = words[0] == 'bench' and 'tiny' not in shown.text  # minutes; tests/benchmark has each option
    return 'form' if shown.is_form or is_measured or 'hub:' in shown.text else 'run'
  if program.startswith('python'):
    if words[0] == '-m' and words[1].startswith('launch.'):
      return 'form' if shown.is_form else 'launch'
    return 'other' if words[:2] == ['-m', 'venv'] else 'file'
  return 'other'
