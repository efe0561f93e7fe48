"""Batches of a corpus. Each file is one kind of batching, found by its name.

`Batching` lists its names, with defaults for optional ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from lmx.errors import InputError
from lmx.registry import Registry


class Batching:
  """Interface of a file in this folder; names without a value are required.

  Attributes:
    Config: frozen dataclass whose first field is `name`; the `data.batching` section of a config.
    build: (data, corpus, split, seed, *, train) -> Batches, from the whole `data` section.
    CHARACTERS: 'may' if it supports `data.characters` (added by lmx/data/pipeline.py), 'must' if it adds the
      characters itself, 'no' if `data.characters` is not supported.
    IMAGES: it reads an image data set (lmx/data/image_corpus.py), not text.
    SENTENCES: it needs sentences, which can be neither reversed nor dropped.
    corpus: () -> the Corpus, if rows are generated; data.dataset is then 'generated'.
  """

  Config: type[Any]
  build: Callable[..., Any]

  CHARACTERS: str = 'no'
  IMAGES: bool = False
  SENTENCES: bool = False
  corpus: Callable[[], Any] | None = None

  def check(self, data: Any, /) -> None:
    """Raise InputError if other fields of the section do not fit."""

  def longest(self, data: Any, corpus: Any) -> int:
    """Return the length of the longest row, if it may exceed the lengths of the section, else 0."""
    return 0


_registry = Registry(__name__, 'data.batching', Batching, excluded=('base', 'bucketed'))
names, get = _registry.names, _registry.get


def fields(value: Any) -> dict[str, Any]:
  """Return the fields of a batching, including `name`, from its name or a mapping; else raise InputError."""
  if isinstance(value, str):
    return {'name': value}
  if isinstance(value, Mapping):
    return {'name': 'streams', **value}
  raise InputError(f'data.batching: got {value!r}; expected a section or one of {", ".join(names())}')


def config(value: Any) -> Any:
  """Return the Config of a batching from a Config or from the input of `fields`."""
  if dataclasses.is_dataclass(value):
    return value
  section = fields(value)
  return get(section['name']).Config(**section)
