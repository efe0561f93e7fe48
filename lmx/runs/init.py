"""Parameters of a run before its first update."""

from __future__ import annotations

from collections.abc import Mapping

import jax
from flax.traverse_util import flatten_dict

from lmx import objectives
from lmx.config import schema
from lmx.data.batching.base import round_up
from lmx.errors import InputError
from lmx.layout import Layout
from lmx.models import registry
from lmx.types import Array, Params


def init_params(run: schema.Run, key: Array) -> Params:
  """Initialise the parameters: {'model': the model's, 'objective': the head's}."""
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)
  model_key, head_key = jax.random.split(key)
  head = objective.init(run.objective, model, run.model, head_key)
  return {'model': model.init(run.model, model_key), 'objective': head}


def stored_layout(run: schema.Run, shapes: Params) -> Layout:
  """Return the layout in which a run stores its parameters.

  Args:
    run: the run, with the vocabulary of its data.
    shapes: shapes of the parameters as `init_params` returns them.

  Raises:
    InputError: the vocabulary is to be padded, but the model has no table with a row for each token.
  """
  V, multiple = getattr(run.model, 'V', 0), run.parallel.pad_vocabulary
  sizes = {'/'.join(path): x.shape for path, x in flatten_dict(dict(shapes['model'])).items()}
  model = registry.get(run.model_name)
  names = dict.fromkeys((*model.VOCABULARY, *model.ROW_TABLES))
  tables = [name for name in names if sizes.get(name, (0,))[0] == V]
  if multiple > 1 and not tables:
    raise InputError(
      f'parallel.pad_vocabulary: got {multiple}; expected 1, because {run.model_name} has no table of {V} rows here'
    )
  unfreezes = run.optim.unfreeze_every or run.optim.stages
  stacked = bool(getattr(run.model, 'scan', False)) and run.parallel.stack_layers and not unfreezes
  return Layout(tuple(tables), V, round_up(V, multiple), stacked)


def merge(params: Params, replacements: Params) -> Params:
  """Return `params` with the leaves of `replacements`, a partial nested dict, substituted."""
  inner = lambda name, x: merge(x, replacements[name]) if isinstance(x, Mapping) else replacements[name]
  return {name: inner(name, x) if name in replacements else x for name, x in params.items()}
