"""Pages of the commands, one per `lmx` command: its parser, its module's docstring, and an example with its output."""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import markup

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = pathlib.Path(__file__).with_name('examples.txt')  # written by examples.py
LAUNCHERS = ('local', 'slurm', 'tpu_vm', 'gce', 'gke', 'preflight', 'sweep', 'tables')


class Example(NamedTuple):
  """A shell command and what it prints; one that only prepares others is not shown and has no output."""

  command: str
  output: str
  shown: bool


def pages() -> dict[str, str]:
  """Return the pages of the commands: path in the site -> text."""
  return {f'commands/{name}.md': page(name, parser) for name, parser in parsers()}


def page(name: str, parser: argparse.ArgumentParser) -> str:
  """Return the page of a command."""
  parser.prog = f'lmx {name}'
  module = inspect.getmodule(_adder(name))
  notes = inspect.cleandoc(module.__doc__ or '').partition('\n\n')[2] if module else ''
  shown = '\n\n'.join(f'$ {one.command}\n{one.output}'.rstrip() for one in examples().get(name, ()))
  used = ', '.join(f'[{title}](../{path})' for path, title in _guides(name))
  keys = f'Keys of the config are set by `--config.KEY=VALUE`; see [Configuration](../configuration.md). {_COMMON}'
  parts = [f'# lmx {name}', markup.sentence(parser.description or ''), prose(notes)]
  parts += ['## Example', block(shown)] if shown else []
  parts += ['## Options', keys if parser.epilog else _COMMON, options(parser)]
  return '\n\n'.join(filter(None, [*parts, f'## Guides\n\n{used}.' if used else '']))


_COMMON = 'Paths and exit codes are those of [all commands](../commands.md#paths).'


@functools.cache
def examples() -> dict[str, list[Example]]:
  """Return the recorded examples of each command, in the order of the file."""
  found: dict[str, list[Example]] = {}
  for one in read_examples(EXAMPLES.read_text(encoding='utf-8')):
    if one.shown and (name := re.search(r'\blmx (\w+)', one.command)):
      found.setdefault(name[1], []).append(one)
  return found


def read_examples(text: str) -> list[Example]:
  """Return the examples of a file: lines `$ COMMAND` with their output below, or `$$ COMMAND` to prepare others."""
  parts = re.findall(r'(?ms)^(\$\$?) ([^\n]*)\n?(.*?)(?=^\$\$? |\Z)', text)
  return [Example(command, output, mark == '$') for mark, command, output in parts]


def _guides(name: str) -> Iterator[tuple[str, str]]:
  """Yield the path and the title of the written pages that show a command in a block."""
  for path in sorted((ROOT / 'docs').rglob('*.md')):
    text = path.read_text(encoding='utf-8')
    blocks = ''.join(re.findall(r'(?ms)^```.*?^```', text))
    if path.name not in ('index.md', 'commands.md') and re.search(rf'\blmx {name} ', blocks):
      yield path.relative_to(ROOT / 'docs').as_posix(), re.findall(r'(?m)^# (.*)', text)[0]


class _Parser(BaseException):
  """A program has built its parser; no handler of a program's own errors takes it."""


def parser_of(program: Callable[[list[str]], Any], words: list[str]) -> argparse.ArgumentParser:
  """Return the parser that a program builds for some words, which are then not parsed."""

  def stop(parser: argparse.ArgumentParser, *args: Any, **options: Any) -> None:
    raise _Parser(parser)

  with mock.patch.object(argparse.ArgumentParser, 'parse_known_args', stop):
    try:
      program(words)
    except _Parser as found:
      return found.args[0]
  raise ValueError(f'{program.__module__} builds no parser')


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
  """Yield the name and the parser of every `lmx` command."""
  from lmx.cli import main

  for name in main.COMMANDS:
    actions = parser_of(main.parse, [name])._actions
    yield name, next(action for action in actions if action.choices and name in action.choices).choices[name]


def launcher_parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
  """Yield the name and the parser of every program of launch/."""
  for name in LAUNCHERS:
    folder = (ROOT / 'launch' / name).is_dir()
    module = importlib.import_module(f'launch.{name}.__main__' if folder else f'launch.{name}')
    yield name, parser_of(module.main, [])


def _adder(name: str) -> Any:
  from lmx.cli import main

  return main._module(name).add_arguments


def flags() -> str:
  """Return a table of the presets of compiler flags."""
  from lmx.compilation.flags import PRESETS

  rows = ['| `--flags` | For | Flags | Source |', '|---|---|---|---|']
  for name, preset in PRESETS.items():
    rows.append(f'| `{name}` | {", ".join(preset.accelerators)} | {len(preset.flags)} | {preset.source} |')
  return '\n'.join(rows)


def launchers() -> str:
  """Return the reference of the programs of launch/."""
  text = []
  for name, parser in launcher_parsers():
    first, _, rest = inspect.cleandoc(parser.description or '').partition('\n\n')
    text += [f'## launch.{name}', markup.escape(' '.join(first.split())), block(rest), options(parser, f'{name}-')]
  return '\n\n'.join(filter(None, text))


def block(text: str) -> str:
  """Return a block of text as it is, '' for an empty one."""
  return f'```text\n{text.strip()}\n```' if text.strip() else ''


def prose(text: str) -> str:
  """Return a docstring's paragraphs, those of command lines as blocks."""
  parts = []
  for part in text.split('\n\n'):
    lines = part.split('\n')
    commands = all(re.match(r'(lmx|lm_eval|python|\.\.\.| {2,}) ?', line) for line in lines)
    parts.append(block(part) if commands else markup.plain(part))
  return '\n\n'.join(filter(None, parts))


def options(parser: argparse.ArgumentParser, prefix: str = '') -> str:
  """Return the options of a parser, each under a heading with the anchor `prefix` and the option's name."""
  formatter = argparse.HelpFormatter(parser.prog)
  entries = []
  for action in parser._actions:
    if action.dest == 'help':
      continue
    names = [_usage(action, name) for name in action.option_strings or [action.metavar or action.dest]]
    text = formatter._expand_help(action) if action.help else ''
    choices = [str(choice) for choice in action.choices or ()]
    text += f' ({", ".join(choices)})' if choices else ''
    shown = action.default not in (None, '', argparse.SUPPRESS, False, []) and action.nargs != 0
    required = action.required and action.option_strings
    note = 'Required' if required else f'Default `{action.default}`' if shown else ''
    entries.append(markup.entry('`, `'.join(map(str, names)), f'{prefix}{action.dest}', note, text))
  return '\n\n'.join(entries) or 'No options.'


def _usage(action: argparse.Action, name: Any) -> Any:
  if not action.option_strings or action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
    return name
  value = action.metavar or action.dest.upper()
  return f'{name}[={value}]' if action.nargs == '?' else f'{name}={value}'
