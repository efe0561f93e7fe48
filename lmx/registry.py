"""Registry of one-file modules, such as models, found by listing their folder."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Generic, TypeVar

from lmx.errors import InputError, nearest

Interface = TypeVar('Interface')
_ALIKE = 0.81  # similarity of two names, by difflib, from which one is a misspelling of the other


def complete(defaults: Callable[[], Interface], module: ModuleType) -> Interface:
  """Return the names of a module on top of the defaults of its interface, whose properties it cannot replace."""
  part = defaults()
  for name, value in vars(module).items():
    is_import = isinstance(value, ModuleType) and hasattr(part, name)  # such as an import of lmx.layers.attention
    if not is_import and not isinstance(getattr(type(part), name, None), property):
      setattr(part, name, value)
  return part


def check_names(interface: type, module: ModuleType) -> None:
  """Raise InputError if a module defines a public name that is nearly one of its interface."""
  known = {name for cls in interface.__mro__ for name in (*vars(cls), *vars(cls).get('__annotations__', ()))}
  public = {name for name in known if not name.startswith('_')}
  for name, value in vars(module).items():
    is_own = name.isupper() or callable(value) and getattr(value, '__module__', '') == module.__name__
    close = difflib.get_close_matches(name, public, n=1, cutoff=_ALIKE) if is_own and name not in public else ()
    if close and not name.startswith('_'):
      raise InputError(
        f'{module.__file__}: got the name "{name}"; expected {close[0]}, or a name less like it; rename it, or begin '
        f'it with _ if only this file uses it'
      )


class Registry(Generic[Interface]):
  """The modules of a package.

  Args:
    package: its dotted name.
    what: name of one module in a message.
    defaults: class or function whose result has the defaults of optional names.
    excluded: modules of the package that are excluded.
  """

  def __init__(self, package: str, what: str, defaults: Callable[[], Interface], excluded: tuple[str, ...] = ()):
    self._package, self._what, self._defaults, self._excluded = package, what, defaults, excluded
    self._parts: dict[str, Interface] = {}  # checked first, because listing a folder takes most of the time

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
      module = importlib.import_module(f'{self._package}.{name}')
      part = complete(self._defaults, module)
      check_names(type(part), module)
      self._parts[name] = part
    return self._parts[name]
