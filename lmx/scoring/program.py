"""Compiled functions that score a batch, kept between calls, so that a shape is compiled once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from lmx.engine import precision
from lmx.runs.restore import RestoredRun


def compiled(function: Callable[..., Any], loaded: RestoredRun, **options: Any) -> Callable[..., Any]:
  """Return `function(model, cfg, ...)` of a run as a compiled function of the other arguments."""
  return _compiled(function, loaded.model, loaded.run.measured, loaded.run.matmul_precision, **options)


@functools.lru_cache(64)
def _compiled(
  function: Callable[..., Any], model: Any, cfg: Any, matmul_precision: str, **options: Any
) -> Callable[..., Any]:
  return jax.jit(precision.wrap(matmul_precision, functools.partial(function, model, cfg, **options)))
