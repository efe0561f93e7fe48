"""Registries of one-file modules."""

from __future__ import annotations

import types

import pytest

from lmx.errors import InputError
from lmx.registry import check_names
from lmx.types import Model, Objective


def module(source: str) -> types.ModuleType:
  part = types.ModuleType('part')
  part.__file__ = 'part.py'
  exec(source, vars(part))  # noqa: S102, source of these tests
  return part


def test_misspelt_names_of_an_interface_are_refused():
  function = 'def {}(cfg, batch_size, length=0):\n  return ()\n'
  cases = ('init_sate', 'init_state', Model), ('penaltys', 'penalties', Model), ('captoins', 'captions', Objective)
  for written, meant, interface in cases:
    with pytest.raises(InputError, match=f'part.py: got the name "{written}"; expected {meant}'):
      check_names(interface, module(function.format(written)))
  with pytest.raises(InputError, match='part.py: got the name "VOCABULRY"; expected VOCABULARY'):
    check_names(Model, module("VOCABULRY = ('embed',)"))


def test_names_that_only_the_file_uses_are_accepted():
  source = 'def _init_sate():\n  pass\ndef attention_flow():\n  pass\nVALIDATION = 1'
  check_names(Model, module(source))
  check_names(Objective, module(source))
