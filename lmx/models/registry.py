"""Finds the models by listing this folder: one file is one paper, and nothing has to be registered."""

from __future__ import annotations

import importlib
import pathlib
from types import ModuleType

from lmx.errors import InputError, nearest


def names() -> list[str]:
  """Names of all models, in alphabetical order."""
  skip = {'__init__', 'registry'}
  return sorted(p.stem for p in pathlib.Path(__file__).parent.glob('*.py') if p.stem not in skip)


def get(name: str) -> ModuleType:
  """Returns the module of model `name`; InputError with the nearest name if there is none."""
  if name not in names():
    raise InputError(f'unknown model "{name}"{nearest(name, names())}')
  return importlib.import_module(f'lmx.models.{name}')


def config(name: str, variant: str, **changes):
  """Returns `Config` of `name` at the size `variant`, with `changes` on top.

  Raises:
    InputError: unknown model, variant or field.
  """
  module = get(name)
  if variant not in module.VARIANTS:
    raise InputError(f'model "{name}" has no variant "{variant}"{nearest(variant, module.VARIANTS)}')
  fields = module.Config.__dataclass_fields__
  for field in changes:
    if field not in fields:
      raise InputError(f'model "{name}" has no field "{field}"{nearest(field, fields)}')
  return module.Config(**{**module.VARIANTS[variant], **changes})
