"""Batches of a corpus. One file is one kind of batching, found by its name.

A batching exports
  Config: frozen dataclass whose first field is `name`; in a config it is the section `data.batching`;
  of(data, corpus, split, seed, *, train) -> Batches: by the whole `data` section;
  check(data) (optional): InputError where other fields of the section do not suit;
  CHARACTERS (optional): 'may' if its words may be spelled (`data.characters`; lmx/data/pipeline.py does it), 'must' if
    it spells them itself; without it they cannot be;
  longest(data, corpus) (optional): positions of the longest row, where that may exceed the lengths of the section;
  corpus() (optional): the Corpus, where its rows are made of no text; data.dataset is then 'generated';
  SENTENCES (optional): True if its rows are made of sentences, which can be neither reversed nor left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from lmx.errors import InputError
from lmx.registry import Parts

_parts = Parts(__name__, 'data.batching', apart=('base', 'bucketed'))
names, get = _parts.names, _parts.get


def fields(given: Any) -> dict[str, Any]:
  """The fields of a batching, `name` among them, from its name or from a mapping; InputError for anything else."""
  if isinstance(given, str):
    return {'name': given}
  if isinstance(given, Mapping):
    return {'name': 'streams', **given}
  raise InputError(f'data.batching is {given!r}; it must be a name or a section; known: {", ".join(names())}')


def config(given: Any) -> Any:
  """The Config of a batching: as it is, or from what `fields` takes."""
  if dataclasses.is_dataclass(given):
    return given
  found = fields(given)
  return get(found['name']).Config(**found)
