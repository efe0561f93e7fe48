"""Print the lines that a reader of each model opens, and fail where a bound is exceeded.

Counted are the model's file and, whole, every lmx module that it reaches by imports, at module level or in functions.
Not counted are lmx/types.py, errors.py, layout.py and the package's `__init__`, and files that are only a kernel: those
that import Pallas, Numba or lmx.kernels.native. The last column has the lines of the fast paths behind: all files of
lmx/kernels that compute the operations reached, found by name as in lmx/kernels/implementations.py, kernels included.
"""

from __future__ import annotations

import ast
import functools
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
EVERYWHERE = {ROOT / 'lmx' / name for name in ('__init__.py', 'types.py', 'errors.py', 'layout.py')}
KERNEL_IMPORTS = ('jax.experimental.pallas', 'numba', 'lmx.kernels.native')
BOUND = 2600
BOUNDS = {'gpt2': 1900, 'bert': 2000, 'gpt': 2000, 'awd_lstm': 1800, 'transformer': 2400, 'transformer_xl': 2400}
BOUNDS['xlnet'] = 2400


def named(path: pathlib.Path) -> Iterator[str]:
  """Yield the modules that a file imports; of `from a import b` both a and a.b."""
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      assert node.module and not node.level, f'{path}:{node.lineno}: expected an import by its full name'
      yield node.module
      yield from (f'{node.module}.{alias.name}' for alias in node.names)


def source(module: str) -> pathlib.Path | None:
  """Return the file of an lmx module; None if there is none."""
  path = ROOT / module.replace('.', '/')
  files = path.with_suffix('.py'), path / '__init__.py'
  return next((file for file in files if file.exists()), None) if module.partition('.')[0] == 'lmx' else None


@functools.cache
def imported(path: pathlib.Path) -> frozenset[pathlib.Path]:
  """Return the files of lmx that a file imports."""
  return frozenset(file for file in map(source, named(path)) if file)


@functools.cache
def is_kernel(path: pathlib.Path) -> bool:
  """Return True if a file is only a kernel."""
  return any(module.startswith(KERNEL_IMPORTS) for module in named(path))


def reached(start: Iterable[pathlib.Path], keeps: Callable[[pathlib.Path], bool]) -> set[pathlib.Path]:
  """Return these files and all that they import, transitively, without those that are not kept."""
  files: set[pathlib.Path] = set()
  ahead = set(start)
  while ahead:
    files |= ahead
    ahead = {file for path in ahead for file in imported(path) if keeps(file)} - files
  return files


def opened(path: pathlib.Path) -> set[pathlib.Path]:
  """Return the files that a reader of a model opens."""
  return reached({path}, lambda file: file not in EVERYWHERE and not is_kernel(file))


def kernels(files: set[pathlib.Path]) -> set[pathlib.Path]:
  """Return the files of lmx/kernels that compute the operations of these files."""
  computed = {ROOT / 'lmx/kernels' / file.name for file in files if file.parent.name == 'ops'}
  computed = {file for file in computed if file.exists() and file.name != '__init__.py'}
  return reached(computed, lambda file: 'kernels' in file.parts)


@functools.cache
def lengths() -> dict[str, tuple[int, int]]:
  """Return the number of lines of each model, and of the fast paths behind."""
  models = [path for path in sorted((ROOT / 'lmx/models').glob('*.py')) if path.stem not in ('__init__', 'registry')]
  count = lambda files: sum(len(file.read_text().splitlines()) for file in files)
  return {path.stem: (count(files), count(kernels(files) - files)) for path in models for files in [opened(path)]}


def main() -> int:
  """Print a line for each model; return 1 if one is longer than its bound."""
  print(f'{"model":>24} {"lines":>6} {"at most":>8} {"fast paths behind":>18}')
  for model, (lines, behind) in lengths().items():
    print(f'{model:>24} {lines:>6,} {BOUNDS.get(model, BOUND):>8,} {behind:>18,}')
  return int(any(lines > BOUNDS.get(model, BOUND) for model, (lines, _) in lengths().items()))


if __name__ == '__main__':
  sys.exit(main())
