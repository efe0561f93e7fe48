"""lmx: the line of pre-trained language models as small pure functions in JAX.

`lmx.load(workdir)` gives a trained run back to Python; everything else is imported from its own module.
"""

from __future__ import annotations

from typing import Any

__version__ = '0.1.0'


def load(workdir: Any, which: str | int = 'best') -> Any:
  """Load a run from its work directory; see `lmx.runs.restore.load`."""
  from lmx.runs import restore

  return restore.load(workdir, which)
