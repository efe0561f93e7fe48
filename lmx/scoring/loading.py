"""Loading of whatever scores texts, by its folder: a run, published weights or a saved n-gram model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmx import storage
from lmx.errors import InputError
from lmx.runs import convert
from lmx.scoring import ngrams
from lmx.scoring.scorer import RunScorer, Scorer


def load(
  workdir: Any,
  which: str | int = 'measured',
  overrides: Sequence[str] = (),
  *,
  method: str = 'auto',
  start: str = 'auto',
  end: bool = False,
) -> Scorer:
  """Return the scorer of a folder.

  Args:
    workdir: work directory of a run; published weights: a folder of transformers, a release or 'hub:NAME'; or a model
      of `lmx ngrams --save`.
    which: checkpoint of a run, see `lmx.runs.restore.load`.
    overrides: `section.key=value`, such as model.dtype=bfloat16.
    method: see `RunScorer`.
    start: see `RunScorer`.
    end: see `RunScorer`.

  Raises:
    InputError: there is no such folder, it cannot be read, or see `RunScorer`.
  """
  if not str(workdir).startswith(storage.HUB) and ngrams.is_saved(workdir):
    if method not in ('auto', 'causal'):
      raise InputError(f'--method: got {method} with the n-gram model {workdir}; expected causal; omit it')
    if which not in ('measured', 'best', 'last') or overrides:
      raise InputError(f'--which, --config: got one with {workdir}; expected none: it is an n-gram model; omit it')
    return ngrams.NgramScorer(workdir, start, end=end)
  return RunScorer(convert.load_any(workdir, which, overrides), method, start, end=end)
