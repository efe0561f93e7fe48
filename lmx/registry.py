"""Registry of modules with one file each, such as models: found by listing their folder."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Generic, TypeVar

from lmx.errors import InputError, nearest

Interface = TypeVar('Interface')


def complete(interface: type[Interface], module: ModuleType) -> Interface:
  """Return the names of a module on top of the defaults of its interface."""
  part = interface()
  for name, value in vars(module).items():
    if not (isinstance(value, ModuleType) and hasattr(interface, name)):  # such as an import of lmx.layers.attention
      setattr(part, name, value)
  return part


class Registry(Generic[Interface]):
  """The modules of a package.

  Args:
    package: its dotted name.
    what: name of one module in a message.
    interface: class with the defaults of names that a module may omit.
    excluded: modules of the package that are excluded.
  """

  def __init__(self, package: str, what: str, interface: type[Interface], excluded: tuple[str, ...] = ()):
    self._package, self._what, self._interface, self._excluded = package, what, interface, excluded
    self._parts: dict[str, Interface] = {}  # given before, because listing a folder takes longer than all else

  def names(self) -> list[str]:
    """Return their names, in alphabetical order."""
    folder = importlib.import_module(self._package).__path__
    return sorted(m.name for m in pkgutil.iter_modules(folder) if m.name not in self._excluded)

  def get(self, name: str) -> Interface:
    """Return the module `name`; raise InputError with the nearest name if there is none."""
    if not isinstance(name, str) or name not in self._parts:
      names = self.names()
      if name not in names:
        raise InputError(f'unknown {self._what} "{name}"{nearest(str(name), names)}')
      self._parts[name] = complete(self._interface, importlib.import_module(f'{self._package}.{name}'))
    return self._parts[name]
