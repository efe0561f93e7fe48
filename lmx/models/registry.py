"""Registry of the models: each file of this folder is a model, found by listing the folder."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from lmx import cast
from lmx.errors import InputError, check_choice, check_range, nearest
from lmx.registry import Registry

if TYPE_CHECKING:  # imports JAX, which listing the models does not need
  from lmx.types import Model


def _defaults() -> Model:
  from lmx.kernels import implementations

  return implementations.Model()


_registry = Registry('lmx.models', 'model', _defaults, excluded=('registry',))
names, get = _registry.names, _registry.get
_LAYERS = 10_000
DTYPES = ('float32', 'bfloat16', 'float16')  # compute types


def config(name: str, variant: str, **changes: Any) -> Any:
  """Return `Config` of `name` at the size `variant`, with `changes` on top.

  Raises:
    InputError: unknown model, variant, field or compute type, or a value of another type or out of range.
  """
  module = get(name)
  if variant not in module.VARIANTS:
    raise InputError(f'model "{name}" has no variant "{variant}"{nearest(variant, module.VARIANTS)}')
  fields = module.Config.__dataclass_fields__
  for field in changes:
    if field not in fields:
      raise InputError(f'model.{field}: got a field that model "{name}" does not have{nearest(field, fields)}')
  if 'dtype' in changes:
    check_choice('model.dtype', changes['dtype'], DTYPES)
  cfg = module.Config(**{**module.VARIANTS[variant], **cast.convert('model', module.Config, changes)})
  check_range('model.V', getattr(cfg, 'V', 1), 1)
  check_layers(cfg)
  return cfg


def check_layers(cfg: Any) -> None:
  """Raise InputError if a model has more than 10,000 layers, each of which takes JAX milliseconds to trace."""
  if getattr(cfg, 'N', 0) > _LAYERS:
    raise InputError(f'model.N: got {cfg.N:,}; expected at most {_LAYERS:,} layers')


def label(name: str, variant: str, cfg: Any) -> str:
  """Return 'model:variant', or the sizes, such as 'bert 6x384, 22.9M', where parameters differ from the variant's.

  Args:
    name: of the model.
    variant: the starting point of the sizes.
    cfg: Config of the model. Its vocabulary (V) and its positions (T) may be the data's.
  """
  try:
    data = {field: getattr(cfg, field) for field in ('V', 'T') if hasattr(cfg, field)}
    variant_cfg = config(name, variant, **data)
    if variant_cfg == cfg or _shapes(name, variant_cfg) == _shapes(name, cfg):
      return f'{name}:{variant}'
  except InputError:  # sizes that fit only the variant's own vocabulary
    pass
  import jax

  sizes = f' {cfg.N}x{cfg.D}' if getattr(cfg, 'N', 0) and hasattr(cfg, 'D') else ''
  return f'{name}{sizes}, {_short(sum(math.prod(x.shape) for x in jax.tree.leaves(_shapes(name, cfg))))}'


def _shapes(name: str, cfg: Any) -> Any:
  import jax  # imported here, because listing the models does not need it

  return jax.eval_shape(functools.partial(get(name).init, cfg), jax.random.key(0))


def _short(number: float) -> str:
  """Return a count with three significant digits, such as 22.9M."""
  for unit in ('', 'K', 'M'):
    if number < 999.5:
      return f'{number:.3g}{unit}'
    number /= 1000
  return f'{number:.3g}B'
