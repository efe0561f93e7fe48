"""lmx: the line of pre-trained language models as small pure functions in JAX.

`lmx.load` gives a trained run, or published weights, to Python; everything else is imported from its own module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from lmx.inference import TrainedRun

__version__ = '0.2.0'


def load(source: Any, which: str | int = 'measured') -> TrainedRun:
  """Load a run from its work directory, or import published weights; see `lmx.inference.load`."""
  from lmx import inference

  return inference.load(source, which)
