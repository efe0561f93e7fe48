"""Shared parts of the two forms of SST-2: tables with columns `label` (1 is positive) and `sentence`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmx.data.builders import base, labelled
from lmx.errors import InputError

HELD_OUT = {'valid': {'documents': 872}, 'test': {'documents': 1_821}}
_CLASSES = {'0': 'negative', '1': 'positive'}


class SstBuilder(base.TextBuilder, skip_registration=True):  # type: ignore[call-arg]
  """One example is one row. GLUE's own test file has no labels and is rejected; the treebank's has."""

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    for index, (number, row) in enumerate(labelled.read_table(paths[split], ('label', 'sentence'))):
      if row['label'] not in _CLASSES:
        raise InputError(f'{paths[split]}, line {number}: label "{row["label"]}" is neither 0 nor 1')
      yield f'{split}-{index}', row['sentence'], _CLASSES[row['label']]

  def sizes(self, text: Any) -> dict[str, int]:
    del text
    return {'documents': 1}

  def _paths(self, dl_manager: Any) -> dict[str, str]:
    try:
      return super()._paths(dl_manager)
    except ValueError as error:
      if isinstance(error, InputError):
        raise
      raise InputError(
        f'data set {self.name} is not downloaded, because the published test file has no labels; set data.manual_dir '
        'to a directory with its tables'
      ) from error
