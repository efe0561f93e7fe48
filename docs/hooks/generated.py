"""Generated pages of the site: commands, configuration, models, recipes, data sets, API, results, and copies.

A page has the line `<!-- generated: NAME -->` where the text of `PARTS[NAME]` goes. Pages without a file in docs/ are
CONTRIBUTING.md, CHANGELOG.md, the API's and those of docs/results, which launch.tables renders.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import inspect
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

ROOT = pathlib.Path(__file__).parents[2]
COPIES = {'contributing.md': 'CONTRIBUTING.md', 'changelog.md': 'CHANGELOG.md'}
LAUNCHERS = ('local', 'slurm', 'tpu_vm', 'gke', 'preflight', 'sweep', 'tables')
API = {
  'api/models.md': (
    'Models',
    'models',
    'A file of `lmx/models` is a paper. Every model has the functions of [the contract](../contract.md).',
  ),
  'api/layers.md': ('Layers', 'layers', 'Parts of networks: pure functions over arrays, each equation once.'),
  'api/ops.md': (
    'Operations',
    'ops',
    'Equations of the layers; see [operations and kernels](../code.md#operations-and-kernels).',
  ),
  'api/objectives.md': (
    'Objectives',
    'objectives',
    'An objective makes a loss of a model and a batch; see [the contract](../contract.md#objectives).',
  ),
}


def on_config(config: Any) -> Any:
  """List the pages of results in the navigation; an event of MkDocs."""
  next(part for part in config.nav if 'Results' in part)['Results'] = list(results())
  return config


def on_files(files: Any, config: Any) -> Any:
  """Add the generated pages; an event of MkDocs."""
  from mkdocs.structure.files import File

  made = {page: (ROOT / path).read_text(encoding='utf-8') for page, path in COPIES.items()}
  made |= {page: api_page(*of) for page, of in API.items()} | results()
  for page, text in made.items():
    if rendered := files.get_file_from_path(page):  # by launch.tables --pages
      files.remove(rendered)
    files.append(File.generated(config, page, content=text))
  return files


@functools.cache
def results() -> dict[str, str]:
  """Return the pages of results: path in the site -> text."""
  from launch.tables import pages

  return {f'results/{name}': text for name, text in pages.pages().items()}


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
  """Put the generated parts into a page; an event of MkDocs."""
  del page, config, files
  return re.sub(r'(?m)^<!-- generated: (\w+) -->$', lambda match: PARTS[match[1]](), markdown)


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


def command_parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
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


def commands() -> str:
  """Return the reference of the `lmx` commands."""
  text = []
  for name, parser in command_parsers():
    parser.prog = f'lmx {name}'
    module = inspect.getmodule(_adder(name))
    notes = inspect.cleandoc(module.__doc__ or '').partition('\n\n')[2] if module else ''
    summary = f'{(parser.description or "").rstrip(".")}.'
    text += [f'### lmx {name}', summary[:1].upper() + summary[1:], _block(notes), options(parser)]
  return '\n\n'.join(filter(None, text))


def _adder(name: str) -> Any:
  from lmx.cli import main

  return main._module(name).add_arguments


def launchers() -> str:
  """Return the reference of the programs of launch/."""
  text = []
  for name, parser in launcher_parsers():
    first, _, rest = inspect.cleandoc(parser.description or '').partition('\n\n')
    text += [f'## launch.{name}', _escape(' '.join(first.split())), _block(rest), options(parser)]
  return '\n\n'.join(filter(None, text))


def _block(text: str) -> str:
  return f'```text\n{text.strip()}\n```' if text.strip() else ''


def options(parser: argparse.ArgumentParser) -> str:
  """Return a parser's options as a table."""
  formatter = argparse.HelpFormatter(parser.prog)
  rows = ['| Option | Meaning | Default |', '|---|---|---|']
  for action in parser._actions:
    if action.dest == 'help':
      continue
    names = ', '.join(f'`{_usage(action, name)}`' for name in action.option_strings or [action.metavar or action.dest])
    text = formatter._expand_help(action) if action.help else ''
    choices = [str(choice) for choice in action.choices or ()]
    text += f' ({", ".join(choices)})' if choices else ''
    shown = action.default not in (None, '', argparse.SUPPRESS, False, []) and action.nargs != 0
    required = ' **required**' if action.required and action.option_strings else ''
    rows.append(f'| {names} | {_cell(text)}{required} | {f"`{action.default}`" if shown else ""} |')
  return '\n'.join(rows) if len(rows) > 2 else 'No options.'


def _usage(action: argparse.Action, name: str) -> str:
  if not action.option_strings or action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
    return name
  value = action.metavar or action.dest.upper()
  return f'{name}[={value}]' if action.nargs == '?' else f'{name}={value}'


def _escape(text: str) -> str:
  return text.replace('<', '&lt;').replace('*', r'\*')


def _cell(text: str) -> str:
  """Return text for a cell of a table; Markdown's signs are shown as they are."""
  parts = re.split(r'(`[^`]*`)', ' '.join(text.split()))
  shown = [part if part.startswith('`') else _escape(part).replace('_', r'\_') for part in parts]
  return ''.join(shown).replace('|', r'\|')


def configuration() -> str:
  """Return every field of every section of a config."""
  from lmx import objectives
  from lmx.config import fields, resolve
  from lmx.data import batching
  from lmx.models import registry

  text = [_section('The run', fields.TOP)]
  for name, cls in resolve.SECTIONS.items():
    text.append(_section(f'`{name}`', fields.section(name, cls)))
  kinds = (('Models', 'model', registry), ('Objectives', 'objective', objectives))
  for title, section, part in (*kinds, ('Ways to build rows', 'data.batching', batching)):
    text.append(f'## {title}\n\n`{section}.name` selects one of these, which has the fields of its table.')
    for name in part.names():
      found = fields.section(section, part.get(name).Config)
      own = [field for field in found.fields if not field.key.endswith('.name')]
      text.append(_section(f'{section}: {name}', found._replace(fields=own), level=3))
  return '\n\n'.join(text)


def _section(title: str, section: Any, level: int = 2) -> str:
  rows = ['| Key | Type | Default | Meaning |', '|---|---|---|---|']
  for field in section.fields:
    kind, default = (str(value).replace('|', r'\|') for value in (field.type, repr(field.default)))
    rows.append(f'| `{field.key}` | `{kind}` | `{default}` | {_cell(field.help)} |')
  table = '\n'.join(rows) if len(rows) > 2 else 'No fields.'
  return f'{"#" * level} {title}\n\n{_escape(section.summary)}.\n\n{table}'


def _modules(folder: pathlib.Path) -> list[str]:
  """Return the names of the modules of a folder."""
  skipped = ('__init__', 'registry')
  return sorted(path.stem for path in folder.glob('*.py') if path.stem not in skipped)


def _is_empty(path: pathlib.Path) -> bool:
  nodes = ast.parse(path.read_text(encoding='utf-8')).body
  return not any(isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != '_' for node in nodes)


def api_page(title: str, folder: str, text: str) -> str:
  """Return a page with the documentation of each module of a folder of lmx."""
  parts = [f'# {title}', text]
  for name in _modules(ROOT / 'lmx' / folder):
    if not _is_empty(ROOT / 'lmx' / folder / f'{name}.py'):
      parts.append(f'::: lmx.{folder}.{name}\n    options:\n      heading_level: 2')
  return '\n\n'.join(parts) + '\n'


def models() -> str:
  """Return a table of the models: paper and variants."""
  from lmx.cli import list as list_command
  from lmx.models import registry

  rows = ['| Model | Paper | Variants |', '|---|---|---|']
  for path in list_command.model_files():
    about = list_command.summary(ast.get_docstring(ast.parse(path.read_text(encoding='utf-8'))))
    rows.append(f'| `{path.stem}` | {_cell(about)} | {_names(registry.get(path.stem).VARIANTS)} |')
  return '\n'.join(rows)


def recipes() -> str:
  """Return a table of the experiments: what they train, their variants, and the first command of the docstring."""
  from lmx.cli import list as list_command

  rows = ['| Experiment | Variants | Command |', '|---|---|---|']
  for path, about in list_command.experiments():
    module = importlib.import_module(path.removesuffix('.py').replace('/', '.'))
    text = re.sub(r'[ \\]*\n {3,}(?=--)', ' ', inspect.getdoc(module) or '')
    commands = re.findall(rf'(?m)^ *(lmx .*?--config={path}.*?)(?:  .*)?$', text)
    command = next(iter(commands), f'lmx train --config={path} --workdir=DIR')
    rows.append(f'| {_cell(about)} | {_names(module.VARIANTS)} | `{command}` |')
  return '\n'.join(rows)


def _names(variants: Iterable[str]) -> str:
  return ' '.join(f'`{name}`' for name in variants if name != 'tiny')


def data_sets() -> str:
  """Return a table of the data sets."""
  from lmx.data.datasets import DATA_SETS

  rows = ['| `data.dataset` | What it is |', '|---|---|']
  rows += [f'| `{name}` | {_cell(DATA_SETS[name].about)} |' for name in sorted(DATA_SETS)]
  return '\n'.join(rows)


PARTS: dict[str, Callable[[], str]] = {
  'commands': commands,
  'launchers': launchers,
  'configuration': configuration,
  'data_sets': data_sets,
  'models': models,
  'recipes': recipes,
}
