"""The embedded corpus: prose of the running CPython, see `prose`."""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow_datasets.public_api as tfds

from lmx.data.builders import base
from lmx.data.builders.embedded import prose


class Builder(base.TextBuilder):
  """Topics and docstrings, ordered by a hash of their name, which mixes packages."""

  BUILDER_CONFIGS = [base.TextConfig(name='default')]

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    chosen = [document for document in prose.documents() if prose.split_of(document[0]) == split]
    yield from sorted(chosen, key=lambda document: prose.digest(document[0]))

  def _paths(self, dl_manager: tfds.download.DownloadManager) -> dict[str, str]:
    return {}
