"""Parameters of a run before its first update."""

from __future__ import annotations

from collections.abc import Mapping

import jax

from lmx import objectives
from lmx.config import schema
from lmx.models import registry
from lmx.types import Array, Params


def init_params(run: schema.Run, key: Array) -> Params:
  """Initialise the parameters: {'model': the model's, 'objective': the head's}."""
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)
  model_key, head_key = jax.random.split(key)
  head = objective.init(run.objective, model, run.model, head_key)
  return {'model': model.init(run.model, model_key), 'objective': head}


def merge(params: Params, replacements: Params) -> Params:
  """Return `params` with the leaves of `replacements`, a nested dict of some of them, in place of its own."""
  inner = lambda name, x: merge(x, replacements[name]) if isinstance(x, Mapping) else replacements[name]
  return {name: inner(name, x) if name in replacements else x for name, x in params.items()}
