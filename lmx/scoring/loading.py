"""Loading of whatever scores texts, by its folder: a run or published weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmx.runs import convert
from lmx.scoring.scorer import RunScorer, Scorer


def load(
  workdir: Any,
  which: str | int = 'best',
  overrides: Sequence[str] = (),
  *,
  method: str = 'auto',
  start: str = 'auto',
  end: bool = False,
) -> Scorer:
  """Return the scorer of a folder.

  Args:
    workdir: work directory of a run, or published weights: a folder of transformers, a release or 'hub:NAME'.
    which: checkpoint of a run, see `lmx.runs.restore.load`.
    overrides: `section.key=value`, such as model.dtype=bfloat16.
    method: see `RunScorer`.
    start: see `RunScorer`.
    end: see `RunScorer`.

  Raises:
    InputError: there is no such folder, it cannot be read, or see `RunScorer`.
  """
  return RunScorer(convert.load_any(workdir, which, overrides), method, start, end=end)
