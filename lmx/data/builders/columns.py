"""Shared parts of builders of sentences in columns; lmx/data/builders/tagged.py reads the files."""

from __future__ import annotations

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
