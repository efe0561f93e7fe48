"""Registry of modules with one file each, such as models: found by listing their folder."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from lmx.errors import InputError, nearest


class Registry:
  """The modules of a package.

  Args:
    package: its dotted name.
    what: name of one module in a message.
    excluded: modules of the package that are excluded.
  """

  def __init__(self, package: str, what: str, excluded: tuple[str, ...] = ()):
    self._package, self._what, self._excluded = package, what, excluded
    self._modules: dict[str, ModuleType] = {}  # given before, because listing a folder takes longer than all else

  def names(self) -> list[str]:
    """Return their names, in alphabetical order."""
    folder = importlib.import_module(self._package).__path__
    return sorted(m.name for m in pkgutil.iter_modules(folder) if m.name not in self._excluded)

  def get(self, name: str) -> ModuleType:
    """Return the module `name`; raise InputError with the nearest name if there is none."""
    if not isinstance(name, str) or name not in self._modules:
      names = self.names()
      if name not in names:
        raise InputError(f'unknown {self._what} "{name}"{nearest(str(name), names)}')
      self._modules[name] = importlib.import_module(f'{self._package}.{name}')
    return self._modules[name]
