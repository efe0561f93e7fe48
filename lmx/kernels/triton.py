"""Pallas kernels that Triton compiles for NVIDIA GPUs.

XLA knows nothing about such a kernel but its operands and results. So each declares its operations and the bytes that
it moves between chip and memory, for the estimates of `lmx compile` (lmx/compilation/roofline.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_COST = 'cost'  # of a kernel's metadata


class Cost(NamedTuple):
  """Cost of one call.

  Attributes:
    operations: operations of its products, 2 per multiply-add.
    moved: bytes that it reads and writes.
  """

  operations: int
  moved: int


def call(body: Callable[..., None], cost: Cost, *, name: str, warps: int, stages: int, **options: Any) -> Any:
  """Return `pallas_call` of a kernel for Triton.

  Args:
    body: the kernel.
    cost: what it declares.
    name: its name in programs.
    warps: warps of a program.
    stages: stages of its software pipeline.
    options: other arguments of `pallas_call`.
  """
  from jax.experimental import pallas as pl  # takes a second
  from jax.experimental.pallas import triton

  return pl.pallas_call(
    body,
    compiler_params=triton.CompilerParams(num_warps=warps, num_stages=stages),
    metadata={_COST: json.dumps(cost)},
    name=name,
    **options,
  )


def declared(metadata: Mapping[str, str]) -> Cost | None:
  """Return the cost in a kernel's metadata, None if it declares none."""
  return Cost(*json.loads(metadata[_COST])) if _COST in metadata else None
