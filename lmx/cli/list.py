"""`lmx list`: models with their sizes, and experiments, from the files in their folders.

Docstrings come from the syntax tree, and parameter counts from `lmx/models/parameters.json`, which saves the time to
import JAX. A new model needs no entry: JAX counts the parameters of a model that is not in the file, or whose digest of
fields and variants differs. `python -m lmx.cli.list` counts all models and writes the file.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import pathlib
import re
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
PARAMETERS = ROOT / 'lmx/models/parameters.json'


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
  print('models')
  for path in model_files():
    print(f'  {path.stem:12} {summary(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))))}')
    for variant, number in parameters(path).items():
      print(f'    {f"{path.stem}:{variant}":24} {number:>16,} parameters')


def parameters(path: pathlib.Path) -> dict[str, int]:
  """Return the number of parameters of each variant of a model file."""
  name, tree = path.stem, ast.parse(path.read_text(encoding='utf-8'))
  record = json.loads(PARAMETERS.read_text(encoding='utf-8')).get(name, {})
  return record['variants'] if record.get('digest') == digest(tree) else count(name, tree)['variants']


def model_files() -> list[pathlib.Path]:
  """Return the files of the models, in alphabetical order."""
  return sorted(path for path in (ROOT / 'lmx/models').glob('*.py') if path.stem not in ('__init__', 'registry'))


def digest(tree: ast.Module) -> str:
  """Return a digest of a model file's constants and Config fields, which determine its sizes."""
  config = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == 'Config')
  parts = [node for node in [*tree.body, *config.body] if isinstance(node, ast.Assign | ast.AnnAssign)]
  values = [[type(node).__name__, *_names(node)] for part in parts for node in ast.walk(part)]
  return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:12]


def _names(node: ast.AST) -> list[str]:
  """Return the plain values of a node; `ast.dump` cannot be used, because it differs between versions of Python."""
  return [str(getattr(node, name)) for name in ('id', 'attr', 'arg', 'value') if _is_plain(getattr(node, name, None))]


def _is_plain(value: Any) -> bool:
  return isinstance(value, str | int | float)


def count(name: str, tree: ast.Module) -> dict[str, Any]:
  """Return the record of a model in the file: its digest and each variant's parameters, counted with JAX."""
  from lmx.benchmark.task import build_task
  from lmx.cli import describe
  from lmx.models import registry

  variants = {}
  for variant in registry.get(name).VARIANTS:
    task, _ = build_task(f'{name}:{variant}')
    variants[variant] = describe.counts(task)[1]
  return {'digest': digest(tree), 'variants': variants}


def count_all() -> dict[str, Any]:
  """Return the content of the file."""
  return {path.stem: count(path.stem, ast.parse(path.read_text(encoding='utf-8'))) for path in model_files()}


def _experiments() -> None:
  print('experiments (lmx train --config=FILE --workdir=DIR)')
  print('\n'.join(lines()))


def lines(function: str = 'get_config') -> list[str]:
  """Return one line for each experiment that has `function`: its path and its summary."""
  return [f'  {path:50} {text}' for path, text in experiments(function)]


def experiments(function: str = 'get_config') -> list[tuple[str, str]]:
  """Return (path in the repository, first sentence of its docstring) of every experiment that has `function`."""
  paths_and_summaries = []
  for file in sorted((ROOT / 'experiments').glob('*/*.py')):
    tree = ast.parse(file.read_text(encoding='utf-8'))
    # Modules shared by experiments have no get_config and cannot be trained.
    if any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body):
      paths_and_summaries.append((file.relative_to(ROOT).as_posix(), summary(ast.get_docstring(tree))))
  return paths_and_summaries


def summary(docstring: str | None) -> str:
  """Return the first sentence of a docstring, on one line."""
  text = ' '.join((docstring or '').strip().split('\n\n')[0].split())
  return re.split(r'(?<!et al)\. ', text)[0].rstrip('.')


if __name__ == '__main__':
  PARAMETERS.write_text(json.dumps(count_all(), indent=1) + '\n', encoding='utf-8')
