"""Names shared by every file of lmx, and the legend of axis letters.

Axes: B batch, T query/time, S key/time, D model width, H heads, K head width, F feed-forward width, V vocabulary,
N layers, M memory length, C characters, P predicted positions. Arrays that live longer than a line carry
their axes in their name (`x_BTD`), and einsums use the same capitals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

# Operands of a float32 product stay float32 on every device, unless JAX_DEFAULT_MATMUL_PRECISION or a run's
# `matmul_precision` (lmx/engine/precision.py) says otherwise.
if jax.config.values['jax_default_matmul_precision'] is None:
  jax.config.update('jax_default_matmul_precision', 'float32')

Array = jax.Array
Params = Mapping[str, Any]  # nested dict of float32 arrays
Batch = Mapping[str, Array]  # see CONTRIBUTING.md for the keys
State = Any  # pytree; every leaf has the batch as its leading axis; () for a stateless model
Totals = dict[str, Any]  # metrics of a whole split, in float64: name -> (sum, weight), or the rows of an array


class Features(NamedTuple):
  """What a model's body hands to its output layer.

  Attributes:
    last_BTD: last hidden layer.
    pooled_BD: summary of the row (BERT's pooler), or None.
    layers: every layer's output, embeddings first, each (B, T, D), when asked for; else None.
    raw_BTD: last hidden layer before the dropout of the output, where a model has such a dropout; else None.
    alignment_BTS: weights with which the target looked at the source, where a term of the loss needs them; else None.
    choice_BT: hard attention: log-probability of the source position that was drawn, 0 where none was; else None.
    table_VD: the output matrix after a dropout of its entries that the input shares with it; else None.
    query_BPD: last layer of a second stream, which does not see the tokens at its P positions (XLNet); else None.
  """

  last_BTD: Array
  pooled_BD: Array | None = None
  layers: tuple[Array, ...] | None = None
  raw_BTD: Array | None = None
  alignment_BTS: Array | None = None
  choice_BT: Array | None = None
  table_VD: Array | None = None
  query_BPD: Array | None = None


class Rows(NamedTuple):
  """Rows already read from a table, in the place of the table among the parameters (`lmx.engine.sparse_step`).

  Attributes:
    values: (shape of the ids) + (D,); for a tuple of ids a tuple.
  """

  values: Any


class Output(NamedTuple):
  """What an objective returns.

  Attributes:
    sums: for each term of the loss its sum over the rows given; the step divides by the global weight of the term.
    metrics: for reports only: name -> (sum, weight), or at evaluation an array of all rows, such as 'pairs_B3', for
      what no sum tells.
    state: the model's state after the batch.
    statistics: parameters that no gradient changes and that stand so after the update, as a nested dict of these leaves
      of `params` alone (the running mean of batch normalisation); None where there are none.
    features: of the model, from which the step takes the model's penalties; None if the objective has none to give.
  """

  sums: dict[str, Array]
  metrics: dict[str, Any]
  state: State
  statistics: Params | None = None
  features: Features | None = None
