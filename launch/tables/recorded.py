"""Commands of the lines of measured.csv, and the words in capitals that stand for directories and seeds in them.

DIR     the line's work directory; so does every other word that a `--workdir` of its trainings begins with
SEED    each of the line's seeds
others  where a command starts from a run, the runs of `start` in their order; elsewhere the directories and files of
        `data`
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from experiments.tables import DATA
from launch.tables import measured
from lmx.errors import InputError

SEED = 'SEED'
WITHOUT_FILES = ('embedded', 'generated')  # data that need no files
OWN, START, GIVEN = 'own', 'start', 'data'
TABLES, PYTEST = ('python', '-m', 'launch.tables'), ('python', '-m', 'pytest')
_PLACEHOLDER = re.compile(r'(?:^|(?<=[=,/]))([A-Z][A-Z0-9_]*)(?=$|[,/.])')
_MAKES = ('train', 'pipeline', 'import')  # commands whose --workdir is a new run
_STARTS = re.compile(r'--(workdir|workdirs|ensemble|beside|runs|config\..*(init_from|tokenizer_path))')
_OUTPUTS = re.compile(r'--(output|by_length|translations|plot|export|null_odds)')
_INPUTS = re.compile(r'--(input|analogies|similarity|vectors|masks|config\..*manual_dir)')


class Word(NamedTuple):
  """Word in capitals of a command: the option that it is in, and its role, OWN, START or GIVEN."""

  name: str
  option: str
  role: str


def commands(one: measured.Measurement) -> list[list[str]]:
  """Return the commands of a line as words. Raises InputError for quotes that do not end."""
  return [list(words) for words in _split(one.command)]


@functools.cache
def _split(command: str) -> tuple[tuple[str, ...], ...]:
  lexer = shlex.shlex(command, posix=True, punctuation_chars=';')
  lexer.whitespace_split, lexer.commenters = True, ''
  found: list[list[str]] = [[]]
  try:
    for word in lexer:
      if word == ';':
        found.append([])
      else:
        found[-1].append(word)
  except ValueError as error:
    raise InputError(f'command: got {command}; {error}; close its quotes') from None
  found = [words for words in found if words]
  if ['lmx'] in found:
    raise InputError(f'command: got {command}; expected a command of lmx')
  return tuple(map(tuple, found))


def starts(one: measured.Measurement) -> list[str]:
  """Return the runs of `start` in order: ids of lines, and 'imported NAME'."""
  return re.findall(r'imported \S+|\S+', one.start)


def data_of(one: measured.Measurement) -> list[str]:
  """Return the data of a line that are files, in the order of their words in capitals; a description is one."""
  parts = [part for part in one.data.split() if part not in WITHOUT_FILES]
  return parts if all(part in DATA for part in parts) else [one.data]


def is_named(one: measured.Measurement) -> bool:
  """Return whether the data of a line are names in DATA, without files or none, not a description."""
  return all(part in DATA for part in data_of(one))


def weights(start: str) -> str:
  """Return the name in DATA of a start 'imported NAME'; '' for the id of a line."""
  return start.removeprefix('imported ') if start.startswith('imported ') else ''


def printing(found: Sequence[Sequence[str]]) -> list[str]:
  """Return the first command that only prints its metric, which no program reads; [] if all leave a file."""
  prints = [list(words) for words in found if words[0] != 'lmx' or words[1] == 'predict']
  is_table = len(found) == 1 and tuple(found[0][:3]) == TABLES
  return prints[0] if prints and not is_table else []


def is_training(words: Sequence[str]) -> bool:
  """Return whether a command of lmx makes a run."""
  return words[0] == 'lmx' and words[1] in _MAKES


def options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
  """Yield (option, value) of `--option=value` and `--option value`; a flag has the value ''."""
  for word, after in zip(words, [*words[1:], ''], strict=True):
    if word.startswith('--'):
      name, equals, value = word.partition('=')
      yield name, value if equals or after.startswith('--') else after


def option(words: Sequence[str], name: str) -> str:
  """Return the value of an option; '' without it."""
  return dict(options(words)).get(name, '')


def roles(found: Sequence[Sequence[str]]) -> list[Word]:
  """Return the words in capitals of commands in order, each once; SEED is not among them."""
  own = {'DIR'} if any(words[0] == 'python' for words in found) else set()
  for words in found:
    if is_training(words):
      own |= set(_PLACEHOLDER.findall(option(words, '--workdir'))[:1])
  by_name: dict[str, Word] = {}
  for words in found:
    for name, value in options(words):
      for text in _PLACEHOLDER.findall(_paths(name, value)):
        is_own = text in own or _OUTPUTS.fullmatch(name)
        by_name.setdefault(text, Word(text, name, OWN if is_own else START if _STARTS.fullmatch(name) else GIVEN))
  by_name.pop(SEED, None)
  return list(by_name.values())


def _paths(name: str, value: str) -> str:
  """Return the part of an option's value that may hold directories: in `--data=NAME=DIR` what follows NAME."""
  return value.partition('=')[2] or value if name == '--data' else value


def literal_paths(found: Sequence[Sequence[str]]) -> Iterator[str]:
  """Yield the options that name a directory or file of one machine, which a word in capitals should stand for."""
  for words in found:
    for name, value in options(words):
      is_path = _STARTS.fullmatch(name) or _INPUTS.fullmatch(name)
      if is_path and value and not all(_PLACEHOLDER.match(part) for part in value.split(',')):
        yield f'{name}={value}'


def is_output(word: str) -> bool:
  """Return whether a word is an option that names a file to write by a path of its own."""
  name, _, value = word.partition('=')
  return bool(_OUTPUTS.fullmatch(name) and value and not _PLACEHOLDER.match(value) and not value.startswith('/'))


def fill(text: str, values: dict[str, str]) -> str:
  """Return a word of a command with the words in capitals replaced."""
  return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[1]), text)
