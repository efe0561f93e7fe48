"""Names shared by all files of lmx, and the legend of axis letters.

Axes: B batch, T query/time, S key/time, D model width, H heads, K head width, F feed-forward width, V vocabulary,
N layers, M memory length, C characters or classes, P predicted positions; Y, X rows and columns of an image. Arrays
used in more than one line have their axes in their name (`x_BTD`), and einsums use the same capitals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax

# Operands of a float32 product stay float32 on every device, unless JAX_DEFAULT_MATMUL_PRECISION or a run's
# `matmul_precision` (lmx/engine/precision.py) is set.
if jax.config.values['jax_default_matmul_precision'] is None:
  jax.config.update('jax_default_matmul_precision', 'float32')

Array = jax.Array
Params = Mapping[str, Any]  # nested dict of float32 arrays
Batch = Mapping[str, Array]  # see docs/batch_keys.md for the keys
State = Any  # pytree; every leaf has the batch as its leading axis; () for a stateless model
Totals = dict[str, Any]  # metrics of a whole split, in float64: name -> (sum, weight), or the rows of an array


class Features(NamedTuple):
  """Features that a model's body passes to its output layer.

  Attributes:
    last_BTD: last hidden layer.
    pooled_BD: summary of the row (BERT's pooler), or None.
    layers: every layer's output, embeddings first, each (B, T, D), if requested; else None.
    raw_BTD: last hidden layer before the output dropout, if the model has one; else None.
    alignment_BTS: attention of the target to the source, if a term of the loss needs it; else None.
    choice_BT: hard attention: log-probability of the sampled source position, 0 where none was sampled; else None.
    table_VD: output matrix after a dropout of its elements shared with the input; else None.
    query_BPD: last layer of a second stream, which does not see the tokens at its P positions (XLNet); else None.
    auxiliary_BTD: features of an earlier layer, for an auxiliary loss; else None.
    statistics: in training, new values of the model's parameters without gradients (running means and variances of
      batch normalisation), as a nested dict of only these leaves of its parameters; else None.
  """

  last_BTD: Array
  pooled_BD: Array | None = None
  layers: tuple[Array, ...] | None = None
  raw_BTD: Array | None = None
  alignment_BTS: Array | None = None
  choice_BT: Array | None = None
  table_VD: Array | None = None
  query_BPD: Array | None = None
  auxiliary_BTD: Array | None = None
  statistics: Params | None = None


class Rows(NamedTuple):
  """Rows gathered from a table, replacing the table among the parameters (`lmx.engine.sparse_step`).

  Attributes:
    values: (shape of the ids) + (D,); for a tuple of ids a tuple.
  """

  values: Any


class ReadRows(NamedTuple):
  """Rows of a table that a batch reads, replacing the table among the parameters (`lmx.engine.table_rows`).

  Attributes:
    values_RD: the rows, an array or `Copies`; (R,) of a bias.
    place_V: place of each row of the table among them; out of range for rows that are not read.
  """

  values_RD: Any
  place_V: Array


class Copies(NamedTuple):
  """Copies of a table, one for each shard of the rows, replacing the table among the parameters (`lmx.engine.step`).

  A lookup and an output layer that share a table each have a gradient. The gradients are added shard by shard, so
  that only their sum is reduced over devices.

  Attributes:
    values_SVD: equal copies, S of them.
  """

  values_SVD: Array


Table = Array | Copies  # (V, D)


class Output(NamedTuple):
  """Sums and metrics that an objective returns.

  Attributes:
    sums: sum of each term of the loss over the given rows; the step divides by the global weight of the term.
    metrics: for reports only: name -> (sum, weight), or at evaluation an array of all rows, such as 'pairs_B3', for
      metrics that no sum determines.
    state: the model's state after the batch.
    statistics: new values of parameters without gradients, written after the update (the running mean of batch
      normalisation), as a nested dict of only these leaves of `params`; None if there are none.
    features: features of the model, for its penalties; None if the objective returns none.
  """

  sums: dict[str, Array]
  metrics: dict[str, Any]
  state: State
  statistics: Params | None = None
  features: Features | None = None


class Model(Protocol):
  """Interface of a module of lmx/models; docs/contract.md documents each name.

  `cfg` is the module's own `Config`.
  """

  def __getattr__(self, name: str) -> Any: ...  # optional names, such as `penalties`; check `hasattr` first
  @property
  def __name__(self) -> str: ...

  @property
  def Config(self) -> type[Any]: ...  # noqa: N802
  @property
  def VARIANTS(self) -> Mapping[str, Any]: ...  # noqa: N802
  @property
  def CAUSAL(self) -> bool: ...  # noqa: N802
  @property
  def OBJECTIVE(self) -> str: ...  # noqa: N802
  @property
  def HEADS(self) -> tuple[str, ...]: ...  # noqa: N802

  def init(self, cfg: Any, key: Array) -> Params: ...
  def init_state(self, cfg: Any, batch_size: int, length: int = 0) -> State: ...
  def apply(
    self, cfg: Any, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
  ) -> tuple[Features, State]: ...
  def logits(self, cfg: Any, params: Params, features: Features) -> Array: ...
  def nll(self, cfg: Any, params: Params, features: Features, targets: Array, /) -> Array: ...
  def depth(self, cfg: Any, path: tuple[str, ...]) -> int: ...


class Loss(Protocol):
  """Loss of an objective; it may have keyword arguments of its own, see the docstring of lmx/objectives."""

  def __call__(
    self, cfg: Any, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State, key: Array | None = None
  ) -> Output: ...


class Objective(Protocol):
  """Interface of a module of lmx/objectives; the package's docstring documents each name.

  `cfg` is the module's own `Config`.
  """

  def __getattr__(self, name: str) -> Any: ...  # optional names, such as `resolve`; check `hasattr` first

  @property
  def Config(self) -> type[Any]: ...  # noqa: N802
  @property
  def SAMPLES(self) -> str: ...  # noqa: N802

  def init(self, cfg: Any, model: Model, model_cfg: Any, key: Array) -> Params: ...
  def terms(self, cfg: Any) -> tuple[str, ...]: ...
  def weights(self, cfg: Any, batch: Batch) -> dict[str, Array]: ...
  @property
  def loss(self) -> Loss: ...
  def predict(
    self, cfg: Any, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State
  ) -> tuple[Any, State]: ...
  def report(self, cfg: Any, totals: Any, counts: Any) -> dict[str, float]: ...
  def headline(self, cfg: Any) -> str: ...
  def protocol(self, cfg: Any, data: Any, batches: Any) -> list[str]: ...
  def shapes(self, cfg: Any, batch_size: int, length: int) -> dict[str, jax.ShapeDtypeStruct]: ...
