"""The model and objective of a benchmark, named on a command line: `gpt2:124m` with `FIELD=VALUE` changes."""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lmx import cast
from lmx.errors import InputError, nearest

if TYPE_CHECKING:
  from lmx.types import Model  # imports JAX, which listing the models does not need

_LENGTH = 35  # tokens per row, for models without a window (arXiv 1409.2329, section 4.1)
_SIDE = 96  # rows and columns of an image
# Placeholder labels, for heads whose size depends on the data.
_LABELS = {
  'dataset': {'name': 'any'},
  'label_names': ['0', '1'],
  'token_label_names': ['B-x', 'I-x', 'O'],
  'spans': True,
}


def build_model(text: str, changes: Iterable[str] = ()) -> tuple[Model, Any, str]:
  """Return (module, config, `registry.label`) of `model[:variant]` with `field=value` changes.

  Raises:
    InputError: unknown model, variant or field, or a value of the wrong type.
  """
  from lmx.config import renames
  from lmx.models import registry

  name, _, variant = text.partition(':')
  section = renames.model({'name': name, 'variant': variant} if variant else {'name': name})
  name, variant = section['name'], section.get('variant', '')
  module = registry.get(name)
  variant = variant or next(iter(module.VARIANTS))
  hints = typing.get_type_hints(module.Config)
  fields = {}
  for change in changes:
    field, equals, value = change.partition('=')
    if not equals:
      raise InputError(f'--set: got "{change}" without a value; expected {change}=VALUE')
    if field not in hints:
      raise InputError(f'--set: got "{field}"; expected a field of model "{name}"{nearest(field, hints)}')
    fields[field] = value if hints[field] is str else cast.parse(value)
  cfg = registry.config(name, variant, **fields)
  return module, cfg, registry.label(name, variant, cfg)


def split_changes(changes: Iterable[str]) -> tuple[list[str], Any]:
  """Return (changes of the model, the `parallel` section that changes 'parallel.field=value' give).

  Raises:
    InputError: an unknown key of `parallel`, or a value of the wrong type.
  """
  from lmx.config import experiment, schema

  changes, settings = list(changes), dict[str, Any]()
  step = [change for change in changes if change.startswith('parallel.')]
  experiment.override(settings, step)
  return [change for change in changes if change not in step], schema.section('parallel', settings.get('parallel', {}))


def build_task(text: str, changes: Iterable[str] = ()) -> tuple[Any, str]:
  """Return (flops.Task with the model's own objective, label of the model); errors as `build_model`."""
  module, cfg, name = build_model(text, changes)

  from lmx import objectives
  from lmx.engine import flops

  return flops.Task(module, cfg, *objectives.default(module, _LABELS)), name


def resolve_length(task: Any, batch: int, length: int) -> int:
  """Return the tokens of a row, or the side of an image: `length`, or the model's window if 0.

  Raises:
    InputError: the length exceeds the window.
  """
  from lmx.decoding import generate

  limit = generate.window(task.cfg)
  if batch < 1 or length < 0 or (limit is not None and length > limit):
    raise InputError(
      f'--batch, --length: got {batch}, {length}; expected positive integers, the length at most {limit or "any"}'
    )
  return length or limit or (_SIDE if task.unit == 'pixel' else _LENGTH)
