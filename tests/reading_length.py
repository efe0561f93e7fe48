"""Print the lines that a reader of each model opens, and fail where a bound is exceeded.

Counted are the model's file and all files of lmx/layers and lmx/models that it imports, transitively and whole. The
fast paths of lmx/kernels are not: the layers have their equations.
"""

from __future__ import annotations

import ast
import functools
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BOUNDS = {'gpt2': 850, 'bert': 850, 'transformer_xl': 1200, 'xlnet': 1200, 'awd_lstm': 800}


def imported(path: pathlib.Path) -> set[pathlib.Path]:
  """Return the files of lmx/layers and lmx/models that a file imports."""
  names = set()
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      names |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom) and node.module:
      names |= {node.module} | {f'{node.module}.{alias.name}' for alias in node.names}
  inside = {name for name in names if name.startswith(('lmx.layers.', 'lmx.models.'))}
  files = {ROOT / (name.replace('.', '/') + '.py') for name in inside}
  return {file for file in files if file.exists()}


def opened(path: pathlib.Path) -> set[pathlib.Path]:
  """Return a model's file and all that it imports, transitively."""
  files: set[pathlib.Path] = set()
  ahead = {path}
  while ahead:
    files |= ahead
    ahead = set().union(*map(imported, ahead)) - files
  return files


@functools.cache
def lengths() -> dict[str, int]:
  """Return the number of lines of each model."""
  models = [path for path in sorted((ROOT / 'lmx/models').glob('*.py')) if path.stem not in ('__init__', 'registry')]
  return {path.stem: sum(len(file.read_text().splitlines()) for file in opened(path)) for path in models}


def main() -> int:
  """Print a line for each model; return 1 if one is longer than its bound."""
  found = lengths()
  for model, lines in found.items():
    bound = f'  (at most {BOUNDS[model]:,})' if model in BOUNDS else ''
    print(f'{model:>24} {lines:>6,}{bound}')
  return int(any(found[model] > bound for model, bound in BOUNDS.items()))


if __name__ == '__main__':
  sys.exit(main())
