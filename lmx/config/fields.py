"""The keys that a config may set, each with its type, default and help.

They are dataclass fields of each part; the help is in `Attributes:` of their docstrings.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lmx import objectives
from lmx.config import schema
from lmx.data import batching
from lmx.models import registry


class Field(NamedTuple):
  """A key of a config.

  Attributes:
    key: 'section.key'.
    type: without the rules of `Annotated`.
    default: value of a config that does not set the key; None if there is none.
    help: its line of the docstring, in one paragraph.
  """

  key: str
  type: str
  default: Any
  help: str


class Section(NamedTuple):
  """A section of a config: its name, one sentence about it, and its fields."""

  name: str
  summary: str
  fields: list[Field]


TOP = Section(
  '',
  'The run as a whole',
  [
    Field('name', 'str', None, "name of the run; by default the model's."),
    Field('seed', 'int', 0, 'determines parameters, dropout and data order.'),
    Field('matmul_precision', 'str', 'float32', 'precision of products, see lmx/engine/precision.py.'),
  ],
)


def section(name: str, cls: Any, defaults: Mapping[str, Any] | None = None) -> Section:
  """Return the section with a dataclass's fields.

  Args:
    name: such as 'data.batching'.
    cls: the dataclass.
    defaults: defaults instead of the dataclass's.
  """
  helps, hints, defaults = attributes(cls), typing.get_type_hints(cls), defaults or {}
  fields = []
  for field in dataclasses.fields(cls):
    text = _NAME if field.name == 'name' else helps.get(field.name, '')
    kind = inspect.formatannotation(hints[field.name])
    fields.append(Field(f'{name}.{field.name}', kind, defaults.get(field.name, _default(field)), text))
  return Section(name, summary(cls), fields)


_NAME = 'the file of lmx/data/batching that builds the rows.'


def sections(config: Mapping[str, Any]) -> list[Section]:
  """Return the sections of a resolved config, with the defaults of its model, variant, objective and batching."""
  return list(_sections(config))


def _sections(config: Mapping[str, Any]) -> Iterator[Section]:
  yield TOP
  name, variant, objective = config['model']['name'], config['model']['variant'], config['objective']['name']
  sizes = dataclasses.asdict(registry.config(name, variant)) | {'V': 0}  # 0: that of the tokenizer
  module = registry.get(name)
  model = section('model', module.Config, sizes)
  own = [
    Field('model.name', 'str', None, 'a file of lmx/models; `lmx list models` shows them.'),
    Field('model.variant', 'str', 'tiny', f'sizes of its paper: {", ".join(module.VARIANTS)}.'),
  ]
  yield model._replace(fields=own + model.fields)
  fixed = module.OBJECTIVE_FIELDS if objective == module.OBJECTIVE else {}
  chosen = section('objective', objectives.get(objective).Config, fixed)
  loss = Field('objective.name', 'str', module.OBJECTIVE, 'a file of lmx/objectives.')
  yield chosen._replace(fields=[loss, *chosen.fields])
  for name, cls in schema.SECTIONS.items():
    found = section(name, cls)
    if name == 'data':
      yield found._replace(fields=[field for field in found.fields if field.key != 'data.batching'])
      way = config['data']['batching']['name']
      rows = section('data.batching', batching.get(way).Config)
      first = rows.fields[0]._replace(default=found.fields[_index(found, 'data.batching')].default)
      yield rows._replace(fields=[first, *rows.fields[1:]])
    else:
      yield found


def _index(found: Section, key: str) -> int:
  return next(i for i, field in enumerate(found.fields) if field.key == key)


def _default(field: dataclasses.Field[Any]) -> Any:
  if field.default_factory is not dataclasses.MISSING:
    return field.default_factory()
  return None if field.default is dataclasses.MISSING else field.default


def summary(cls: Any) -> str:
  """Return the first sentence of a docstring, without its full stop."""
  return ' '.join((inspect.getdoc(cls) or '').split('\n\n')[0].split()).split('. ')[0].rstrip('.')


@functools.cache
def attributes(cls: Any) -> dict[str, str]:
  """Return {field: help} from `Attributes:` of a dataclass and of those it inherits from."""
  found: dict[str, str] = {}
  for one in reversed(cls.__mro__):
    lines = inspect.cleandoc(one.__doc__ or '').partition('Attributes:\n')[2].split('\n')
    names: list[str] = []
    for line in lines:
      start = re.match(r' {2}(\w+(?:, \w+)*): (.*)', line)
      if start:
        names = start[1].split(', ')
        found |= dict.fromkeys(names, start[2])
      elif line.startswith('    ') and names:
        found |= {name: f'{found[name]} {line.strip()}' for name in names}
      elif line and not line.startswith(' '):
        break  # the next part of the docstring
  return found
