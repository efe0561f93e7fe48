"""`lmx list`: the models with their sizes, and the experiments, found by listing their folders."""

from __future__ import annotations

import argparse
import ast
import pathlib
import re


def add_arguments(parser: argparse.ArgumentParser) -> None:
  parser.add_argument('what', nargs='?', choices=('models', 'experiments'), help='only these (default: both)')


def run(args: argparse.Namespace) -> int:
  if args.what != 'experiments':
    _models()
  if args.what is None:
    print()
  if args.what != 'models':
    _experiments()
  return 0


def _models() -> None:
  from lmx.cli import describe
  from lmx.models import registry

  print('models')
  for name in registry.names():
    module = registry.get(name)
    print(f'  {name:12} {summary(module.__doc__)}')
    for variant in module.VARIANTS:
      task, full = describe.task_of(f'{name}:{variant}')
      print(f'    {full:24} {describe.totals(task)[-1].split()[-1]:>16} parameters')


def _experiments() -> None:
  print('experiments (lmx train --config=FILE --workdir=DIR)')
  print('\n'.join(lines()))


def lines(function: str = 'get_config') -> list[str]:
  """Return one line for each experiment that has `function`: its path and its summary."""
  return [f'  {path:50} {text}' for path, text in experiments(function)]


def experiments(function: str = 'get_config') -> list[tuple[str, str]]:
  """(path below the repository, first line of its docstring) of every experiment that has `function`."""
  root = pathlib.Path(__file__).parents[2]
  found = []
  for file in sorted((root / 'experiments').glob('*/*.py')):
    tree = ast.parse(file.read_text())
    # What only helps other experiments has no get_config and cannot be trained.
    if any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body):
      found.append((file.relative_to(root).as_posix(), summary(ast.get_docstring(tree))))
  return found


def summary(docstring: str | None) -> str:
  """First sentence of a docstring, on one line."""
  text = ' '.join((docstring or '').strip().split('\n\n')[0].split())
  return re.split(r'(?<!et al)\. ', text)[0].rstrip('.')
