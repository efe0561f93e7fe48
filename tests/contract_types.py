"""Checks with mypy that each file of lmx/models is a `Model`, of lmx/objectives an `Objective`, and so on.

`python tests/contract_types.py` writes a protocol for every module: the required names of its interface, and those with
a default that the module defines. mypy then checks the module against it.
"""

from __future__ import annotations

import ast
import inspect
import pathlib
import sys
import tempfile
import types

from mypy import api

import lmx.types
from lmx import objectives
from lmx.data import batching
from lmx.models import registry

INTERFACES = {
  'lmx.models': (lmx.types.Model, registry.names()),
  'lmx.objectives': (lmx.types.Objective, objectives.names()),
  'lmx.data.batching': (batching.Batching, batching.names()),
}


def is_required(member: ast.stmt) -> bool:
  return isinstance(member, ast.AnnAssign) and member.value is None


def name_of(member: ast.stmt) -> str:
  return member.name if isinstance(member, ast.FunctionDef) else getattr(getattr(member, 'target', None), 'id', '')


def declaration(member: ast.stmt) -> str:
  """Return a member of an interface as one of a protocol; constants are read only."""
  if isinstance(member, ast.FunctionDef):
    return f'  def {member.name}({ast.unparse(member.args)}) -> {ast.unparse(member.returns)}: ...'
  return f'  @property\n  def {name_of(member)}(self) -> {ast.unparse(member.annotation)}: ...'


def source() -> str:
  """Return a program that assigns each module to a variable of its protocol."""
  lines = ['from lmx.types import *', 'from typing import *', 'from collections.abc import Callable, Mapping, Sequence']
  for package, (interface, names) in INTERFACES.items():
    members = ast.parse(inspect.getsource(interface)).body[0].body
    needed = required(members)
    for name in names:
      module = vars(__import__(f'{package}.{name}', fromlist=['_']))
      defined = {key for key, value in module.items() if not isinstance(value, types.ModuleType)}
      own = [member for member in members if name_of(member) in needed | (defined - {'__name__'})]
      lines += [f'import {package}.{name}', f'class {interface.__name__}_{name}(Protocol):', *map(declaration, own)]
      lines.append(f'{name}_{interface.__name__}: {interface.__name__}_{name} = {package}.{name}')
  return '\n'.join(lines) + '\n'


def required(members: list[ast.stmt]) -> set[str]:
  """Return the names that every file defines: those without a value, up to the first with one."""
  values = [not is_required(member) and isinstance(member, ast.AnnAssign) for member in members]
  first = values.index(True) if True in values else len(members)
  return {name_of(member) for member in members[:first] if is_required(member)} - {'__name__'}


def main() -> int:
  """Print what mypy reports, and return its exit code."""
  with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / 'contract.py'
    file.write_text(source())
    report, faults, code = api.run([str(file)])
  print(report + faults, end='')
  return code


if __name__ == '__main__':
  sys.exit(main())
