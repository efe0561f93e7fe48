"""Rematerialisation of layers: which activations are kept for the backward pass (Chen et al. 2016, arXiv 1604.06174).

A policy keeps the input of each layer and the activations of some names (`jax.ad_checkpoint.checkpoint_name`). The
backward pass recomputes all others. `placement.constrain` names an activation by its axes, `dense.dot` by PROJECTION.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax

PROJECTION = 'projection'
HEADS = ('BTHK', 'BSHK')  # axes of queries, keys, values and weighted values
Policy = Literal['none', 'full', 'attention', 'dots']
_KEPT: dict[Policy, tuple[str, ...]] = {
  'full': (),
  'attention': HEADS,
  'dots': (PROJECTION,),  # the results of all products with parameters
}


def layer(function: Callable[..., Any], policy: Policy, scan: bool) -> Callable[..., Any]:
  """Wrap a layer so that its backward pass recomputes what the policy does not keep.

  Args:
    function: the layer.
    policy: not 'none', which keeps all activations.
    scan: the layer is a loop body, where XLA cannot merge forward pass and recomputation.
  """
  kept = jax.checkpoint_policies.save_only_these_names(*_KEPT[policy])
  return jax.checkpoint(function, policy=kept, prevent_cse=not scan)
