"""Prose of the running CPython by package, a classification set; see `lmx.data.builders.embedded.prose`."""

from __future__ import annotations

import collections
from collections.abc import Iterator

import tensorflow_datasets.public_api as tfds

from lmx.data.builders import base
from lmx.data.builders.embedded import prose

LEAST = 60  # smallest number of documents of a package
_EDGES = (('valid', 0.1), ('test', 0.2), ('train', 1.0))


class Builder(base.TextBuilder):
  """Documents of the large packages, ordered by a hash of their name."""

  BUILDER_CONFIGS = [base.TextConfig(name='default')]

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    count = collections.Counter(label for _, _, label in prose.documents())
    for document in sorted(prose.documents(), key=lambda document: prose.digest(document[0])):
      if count[document[2]] >= LEAST and _split_of(document[0]) == split:
        yield document

  def _paths(self, dl_manager: tfds.download.DownloadManager) -> dict[str, str]:
    return {}


def _split_of(name: str) -> str:
  share = int.from_bytes(prose.digest(f'topic:{name}')[:8], 'big') / 2**64
  return next(split for split, edge in _EDGES if share < edge)
