"""Checks with mypy that each file of lmx/models is a `Model` and each of lmx/objectives an `Objective`.

`python tests/contract_types.py` writes the assignments for every module that is found, and runs mypy over them.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile

from mypy import api

from lmx import objectives
from lmx.models import registry


def source() -> str:
  """Return a program that assigns each module to a variable of its protocol."""
  parts = [('lmx.models', 'Model', registry.names()), ('lmx.objectives', 'Objective', objectives.names())]
  lines = ['from lmx.types import Model, Objective']
  for package, protocol, names in parts:
    for name in names:
      lines += [f'from {package} import {name} as {protocol}_{name}', f'{name}_: {protocol} = {protocol}_{name}']
  return '\n'.join(lines) + '\n'


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
