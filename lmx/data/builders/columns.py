"""Shared parts of builders of sentences in columns; tagged.py and propositions.py of this folder read the files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmx.data.builders import base
from lmx.errors import InputError


class ColumnBuilder(base.TextBuilder, skip_registration=True):  # type: ignore[call-arg]
  """A data set of sentences whose words have labels, read from user files."""

  def sizes(self, text: Any) -> dict[str, int]:
    return {'sentences': 1, 'tokens': len(text.split())}

  def urls(self) -> dict[str, str]:
    return {}

  def find_downloads(self, paths: dict[str, str]) -> Any:
    del paths
    raise InputError(f'data set {self.name} is not downloaded: set data.manual_dir to the directory of its files')


class PropositionBuilder(ColumnBuilder, skip_registration=True):  # type: ignore[call-arg]
  """A data set of sentences with the roles of a predicate: the label is the predicate's index, then BIO labels."""

  def sizes(self, text: Any) -> dict[str, int]:
    del text
    return {'propositions': 1}

  def rows(self, split: str, propositions: Iterator[tuple[int, list[str], list[str]]]) -> Iterator[base.Document]:
    """Yield the documents of (index of the predicate, words, labels)."""
    for number, (predicate, words, labels) in enumerate(propositions):
      yield f'{split}-{number}', ' '.join(words), ' '.join([str(predicate), *labels])
