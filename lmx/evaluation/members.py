"""Ensemble members: their records in the results, and their compatibility."""

from __future__ import annotations

from typing import Any

import numpy as np

from lmx.data.corpus import Corpus
from lmx.errors import InputError
from lmx.runs.restore import RestoredRun


def check_text(first: Corpus, other: Corpus, split: str, workdir: Any) -> None:
  """Raise InputError if the tokens of a split differ."""
  if first is not other and not np.array_equal(first.split(split).tokens, other.split(split).tokens):
    raise InputError(
      f'--ensemble: {workdir} reads other tokens of split {split} than the first run; give runs of the same data, in '
      'the same direction'
    )


def describe(loaded: RestoredRun, **metrics: float) -> dict[str, Any]:
  """Return the record of a member: its work directory, its own metrics and its step."""
  return {'workdir': str(loaded.workdir), **metrics, 'step': loaded.step}


def complete(
  metrics: dict[str, Any], what: str, averaged: str, loaded: RestoredRun, split: str, members: list[dict[str, Any]]
) -> dict[str, Any]:
  """Return an ensemble's metrics with its name, data, protocol and members."""
  protocol = '; '.join(filter(None, (metrics.get('protocol'), f'mean of the {averaged} of {len(members)} runs')))
  about = {
    'name': 'ensemble',
    'model': f'mean of {len(members)} {what}',
    'dataset': loaded.run.data.dataset,
    'split': split,
    'protocol': protocol,
  }
  return {**metrics, **about, 'members': members}
