"""Finds the models by listing this folder: one file is one paper, and nothing has to be registered."""

from __future__ import annotations

from lmx.errors import InputError, nearest
from lmx.parts import Parts

_parts = Parts('lmx.models', 'model', apart=('registry',))
names, get = _parts.names, _parts.get


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
