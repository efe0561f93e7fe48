"""Every key that a config may set has a help."""

from __future__ import annotations

import dataclasses

from lmx import objectives
from lmx.config import fields, resolve, schema
from lmx.data import batching
from lmx.models import registry


def test_every_field_has_a_help():
  classes = list(schema.SECTIONS.items())
  for kind, parts in (('model', registry), ('objective', objectives), ('data.batching', batching)):
    classes += [(kind, parts.get(name).Config) for name in parts.names()]
  for name, cls in classes:
    section = fields.section(name, cls)
    assert [field.key for field in section.fields if not field.help] == [], cls
    assert len(section.summary) > 5, cls


def test_help_matches_the_nearest_class():
  class Base:
    """Base.

    Attributes:
      a, b: two
        lines.
      c: of the base.

    Raises:
      d: not a field.
    """

  @dataclasses.dataclass
  class Config(Base):
    """The config. It has more.

    Attributes:
      c: its own.
    """

    a: int = 1
    b: int = 2
    c: tuple[int, ...] = ()

  assert fields.attributes(Config) == {'a': 'two lines.', 'b': 'two lines.', 'c': 'its own.'}
  section = fields.section('x', Config, {'b': 5})
  assert section.summary == 'The config'
  assert section.fields[1] == fields.Field('x.b', 'int', 5, 'two lines.')


def test_sections_of_a_config_have_its_keys_and_defaults():
  config = resolve.load('experiments/esim/pairs.py:mrpc')
  found = {field.key: field for section in fields.sections(config) for field in section.fields}
  flat = resolve.flatten(config)
  assert {key for key in flat if not key.startswith('semantics.')} == found.keys() - {'evaluation.model'}
  assert found['objective.head'].default == registry.get('esim').OBJECTIVE_FIELDS['head']
  assert found['model.D'].default == registry.config('esim', config.model.variant).D and found['model.V'].default == 0
