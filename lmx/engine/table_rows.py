"""Restriction of a training state to the table rows that a batch reads.

A sampled softmax reads few rows of its output layer. Where the optimizer leaves a row without a gradient as it is
(`optim.build.is_by_row`), an update needs these rows only: of the parameters, of the gradient and of the optimizer's
state. So there is no gradient of a table's size, on one device or between devices. A table with at most twice as many
rows is updated as a whole, and so is every table with microbatches or under `pmap`, where each part reads other rows.

Axes: R ids that a batch reads, repeated ones included. For equal ids, only one row has the gradient and is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

from lmx.engine.state import TrainState, leaf_name
from lmx.placement import constrain
from lmx.types import Array, Params, ReadRows


class Restriction(NamedTuple):
  """A training state with the rows of its tables that a batch reads.

  Attributes:
    state: the state, with (R, ...) rows of its tables.
    wrap: function that replaces these rows among parameters by `ReadRows`.
    write: function from such a state to the whole one.
  """

  state: TrainState
  wrap: Callable[[Params], Params]
  write: Callable[[TrainState], TrainState]


def restrict(whole: TrainState, ids: Mapping[str, Array]) -> Restriction:
  """Return the restriction of a state to the rows at ids (R,), by the names of tables below params['model']."""
  if not ids:
    return Restriction(whole, lambda params: params, lambda state: state)
  flat = flatten_dict(dict(whole.params['model']), sep='/')
  ids = {name: constrain(ids_R, '') for name, ids_R in ids.items() if 2 * len(ids_R) < len(flat[name])}
  places = {name: _places(ids_R, len(flat[name])) for name, ids_R in ids.items()}

  def wrap(params: Params) -> Params:
    flat = flatten_dict(dict(params['model']), sep='/')
    rows = {name: ReadRows(flat[name], place_V) for name, place_V in places.items()}
    return {**params, 'model': unflatten_dict({**flat, **rows}, sep='/')}

  def put(rows: Array, name: str, table: Array) -> Array:
    is_owner_R = places[name][ids[name]] == jnp.arange(len(ids[name]))
    return table.at[jnp.where(is_owner_R, ids[name], len(table))].set(rows, mode='drop')

  read = lambda x, name: constrain(x.at[ids[name]].get(mode='promise_in_bounds'), '')
  return Restriction(_map_tables(read, ids, whole), wrap, lambda state: _map_tables(put, ids, state, whole))


def _places(ids_R: Array, rows: int) -> Array:
  """Return each table row's index among the ids, (V,) int32; for equal ids the first."""
  places_R = jnp.arange(len(ids_R), dtype=jnp.int32)
  return jnp.full(rows, len(ids_R), jnp.int32).at[ids_R].min(places_R, mode='promise_in_bounds')


def _map_tables(function: Callable[..., Array], ids: Mapping[str, Array], state: Any, *others: Any) -> Any:
  """Map a function of (leaf, name, leaves of other states) over the tables, with the optimizer's state of them."""
  names = {f'model/{name}': name for name in ids}

  def leaf(path: Any, x: Any, *more: Any) -> Any:
    name = names.get(leaf_name(path))
    return x if name is None else function(x, name, *more)

  return jax.tree_util.tree_map_with_path(leaf, state, *others)
