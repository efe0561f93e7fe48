"""Finds the models by listing this folder: one file is one paper, and nothing has to be registered."""

from __future__ import annotations

from lmx.errors import InputError, check_choice, nearest
from lmx.parts import Parts

_parts = Parts('lmx.models', 'model', apart=('registry',))
names, get = _parts.names, _parts.get
DTYPES = ('float32', 'bfloat16', 'float16')  # compute types


def config(name: str, variant: str, **changes):
  """Returns `Config` of `name` at the size `variant`, with `changes` on top.

  Raises:
    InputError: unknown model, variant, field or compute type.
  """
  module = get(name)
  if variant not in module.VARIANTS:
    raise InputError(f'model "{name}" has no variant "{variant}"{nearest(variant, module.VARIANTS)}')
  fields = module.Config.__dataclass_fields__
  for field in changes:
    if field not in fields:
      raise InputError(f'model "{name}" has no field "{field}"{nearest(field, fields)}')
  if 'dtype' in changes:
    check_choice('model.dtype', changes['dtype'], DTYPES)
  return module.Config(**{**module.VARIANTS[variant], **changes})
