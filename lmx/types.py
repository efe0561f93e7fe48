"""Names shared by all files of lmx, and the legend of axis letters.

Axes: B batch, T query/time, S key/time, D model width, H heads, K head width, F feed-forward width, V vocabulary,
N layers, M memory length, C characters or classes, P predicted positions; Y, X rows and columns of an image. Arrays
used in more than one line have their axes in their name (`x_BTD`), and einsums use the same capitals.
"""

from __future__ import annotations

import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax

from lmx import layout, placement
from lmx.errors import InputError

# Float32 products have float32 operands on every device, unless JAX_DEFAULT_MATMUL_PRECISION or a run's
# `matmul_precision` (lmx/engine/precision.py) is set.
if jax.config.values['jax_default_matmul_precision'] is None:
  jax.config.update('jax_default_matmul_precision', 'float32')

Array = jax.Array
Params = Mapping[str, Any]  # nested dict of float32 arrays
Batch = Mapping[str, Array]  # see docs/batch_keys.md for the keys
State = Any  # pytree; every leaf has the batch as its leading axis; () for a stateless model
Totals = dict[str, Any]  # a split's metrics in float64: name -> (sum, weight), or an array with one row per example


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


class AttentionWeights(NamedTuple):
  """Attention weights of one layer.

  Attributes:
    kind: 'self', or 'cross' for queries of one text and keys of another: the target and the source, the passage and the
      question, or the two texts of a pair.
    weights_BHTS: weights of the keys for each query, float32; one head if the model has no heads.
  """

  kind: str
  weights_BHTS: Array


_recorded: contextvars.ContextVar[list[AttentionWeights] | None] = contextvars.ContextVar('recorded', default=None)


@contextmanager
def recording_attention() -> Iterator[list[AttentionWeights]]:
  """Yield the list to which the enclosed layers add their attention weights, in the order of computation."""
  found: list[AttentionWeights] = []
  token = _recorded.set(found)
  try:
    yield found
  finally:
    _recorded.reset(token)


def is_recording_attention() -> bool:
  """Return True inside `recording_attention`."""
  return _recorded.get() is not None


def record_attention(kind: str, weights: Callable[[], Array]) -> None:
  """Add a layer's attention weights, (B, H, T, S) or (B, T, S); nothing outside `recording_attention`.

  Args:
    kind: see `AttentionWeights`.
    weights: the equation of the weights, computed only if they are recorded.
  """
  if (found := _recorded.get()) is not None:
    a_BHTS = weights()
    found.append(AttentionWeights(kind, a_BHTS if a_BHTS.ndim == 4 else a_BHTS[:, None]))


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
    place_V: index of each table row among them; out of range for unread rows.
  """

  values_RD: Any
  place_V: Array


class Copies(NamedTuple):
  """Copies of an array, one per row shard, such as of an embedding table (`lmx.engine.step`).

  A shared table gets a gradient from the lookup and one from the output layer. They are added per shard, so that only
  their sum is reduced over devices.

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


class Apply(Protocol):
  """Forward pass of a model; `key=None` is evaluation. An image model also takes `axis`."""

  def __call__(
    self, cfg: Any, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
  ) -> tuple[Features, State]: ...


class Model:
  """Interface of a file of lmx/models. `lmx.models.registry.get` adds the defaults below to the names of the file.

  The names without a value are required. `cfg` is the file's own `Config`.

  Attributes:
    Config: frozen dataclass with V, N and dtype; every field is read.
    VARIANTS: fields of each size in the paper's table, and of 'tiny' for tests.
    CAUSAL: position t sees only positions up to t.
    OBJECTIVE: objective it is trained with unless the config names another.
    init: (cfg, key) -> parameters.
    apply: see `Apply`.
    OBJECTIVE_FIELDS: fields of this objective that the paper fixes; a config overrides them.
    READS: kind of input: 'tokens', 'characters', 'source', 'windows', 'vectors' or 'images'.
    WORDS: it predicts words, by `logits` and `nll`.
    HEADS: top-level parameters that `lmx describe` counts on their own line.
    VOCABULARY: leaves with a row for each token. `train.init_from` matches the rows by word where two tokenizers
      differ. `parallel.pad_vocabulary` adds rows, which the output layer must mask.
    SOURCE_VOCABULARY: leaves of VOCABULARY with a row for each token of the source.
    POSITIONS: leaves with a row for each position, truncated or repeated where a run has fewer or more.
    TIED: tables that only `embedding.lookup` and `layers/softmax.py` read; the step replaces them by `Copies`, so that
      their gradient is reduced once, not for the lookup and each chunk of the loss.
    ROW_TABLES: tables stored row-major and sharded by rows.
    SPECIAL_TOKENS: special tokens before and after a text that it reads as in pre-training, by their attributes of the
      tokenizer, each with its segment.
    STATISTICS: last names of running statistics, which have no gradient and are not counted as parameters.
    WORD_TABLE: table with a row for each word, which `data.vectors` may initialise; '' for none.
    TEXTS: number of texts in a row that it can read -> fields of its Config for such rows, which model.texts=0 sets;
      {} for a model that reads the texts of a row as one sequence.
    COUNTED: fields of the Config that `with_counts` determines.
    SETTLES: file of lmx/kernels that replaces 'auto' in the Config by an implementation of this machine when a run
      begins; '' for none.
    ATTENTION: choices of the field `attention` of the Config where it is not dot-product attention.
    rows: (cfg, batch) -> {table: ids that the batch reads} of tables that only plain SGD updates row by row, see
      lmx/engine/sparse_step.py.
    pool: (params, first_BD) -> summary of a row from its first token. A model with it reads packed documents.
    attention: (cfg, params, batch) -> attention weights of an image model, for pictures.
    readouts: (cfg, params, features) -> inputs of the classifiers after every layer; `readout_nll`, their losses.
  """

  __name__: str
  Config: type[Any]
  VARIANTS: Mapping[str, Any]
  CAUSAL: bool
  OBJECTIVE: str
  init: Callable[[Any, Array], Params]
  apply: Apply

  OBJECTIVE_FIELDS: Mapping[str, Any] = MappingProxyType({})
  READS: str = 'tokens'
  WORDS: bool = True
  HEADS: tuple[str, ...] = ()
  VOCABULARY: tuple[str, ...] = ()
  SOURCE_VOCABULARY: tuple[str, ...] = ()
  POSITIONS: tuple[str, ...] = ()
  TIED: tuple[str, ...] = ()
  ROW_TABLES: tuple[str, ...] = ()
  SPECIAL_TOKENS: tuple[Mapping[str, int], Mapping[str, int]] = (MappingProxyType({}), MappingProxyType({}))
  STATISTICS: tuple[str, ...] = ()
  WORD_TABLE: str = ''
  TEXTS: Mapping[int, Mapping[str, Any]] = MappingProxyType({})
  COUNTED: tuple[str, ...] = ()
  SETTLES: str = ''
  ATTENTION: tuple[str, ...] = ()
  rows: Callable[[Any, Batch], Mapping[str, Any]] | None = None
  pool: Callable[[Params, Array], Array] | None = None
  attention: Callable[[Any, Params, Batch], Any] | None = None

  readouts: Callable[[Any, Params, Features], Sequence[Any]] | None = None

  # Functions needed by only some objectives; the models that support them define them.
  readout_nll: Callable[[Any, Any, Array, str], Array]
  grid: Callable[[Any, int, int], tuple[int, int]]  # rows and columns of the feature map of an image
  auxiliary_grid: Callable[[Any, int, int], tuple[int, int]]  # and of `Features.auxiliary_BTD`
  trace: Callable[[Any, Params, Batch], dict[str, Array]]  # every step of an episode, for pictures
  sampled_nll: Callable[..., Array]  # loss of a sampled softmax
  draw: Callable[[Array, int, int], Array]  # (key, V, samples) -> its classes

  @property
  def name(self) -> str:
    """Name of the model, which is that of its file."""
    return self.__name__.rpartition('.')[2]

  def settle(self, cfg: Any, /) -> Any:
    """Return the Config with 'auto' replaced by this machine's backend, which a resumed run keeps."""
    return cfg

  def with_counts(self, cfg: Any, counts: Callable[[], Sequence[int]]) -> Any:
    """Return the Config with what follows from the counts of the tokens of the training text, at the start of a run."""
    return cfg

  def init_state(self, cfg: Any, batch_size: int, length: int = 0) -> State:
    """Return the state before the first token, with a cache of `length` positions; () without a state."""
    return ()

  def logits(self, cfg: Any, params: Params, features: Features) -> Array:
    """Return the logits of every position, (B, T, V) float32; raise InputError if the model predicts no words."""
    raise InputError(f'model {self.name} predicts no words; train it with objective "{self.OBJECTIVE}"')

  def nll(self, cfg: Any, params: Params, features: Features, targets: Array, /) -> Array:
    """Return the negative log-likelihood of each target in nats, (B, T) float32; raise InputError without one."""
    raise InputError(f'model {self.name} predicts no words; train it with objective "{self.OBJECTIVE}"')

  def depth(self, cfg: Any, path: tuple[str, ...]) -> int:
    """Return a parameter's layer number: 0 in 'embed' and 'bias', i + 1 in layer i, N + 1 anywhere else."""
    return layout.depth(path, cfg.N)

  def read_shapes(self, cfg: Any, shapes: dict[str, Any], /) -> dict[str, Any]:
    """Return the shapes of a batch with the arrays that the model reads besides those of its objective."""
    return shapes

  def penalties(self, cfg: Any, params: Params, features: Features, batch: Batch) -> dict[str, Array]:
    """Return the sums of further training loss terms, which the step adds for every objective."""
    return {}

  def penalty_weights(self, cfg: Any, batch: Batch) -> dict[str, Array]:
    """Return the weight of each term of `penalties`."""
    return {}

  def without_memory(self, cfg: Any) -> Any:
    """Return the Config, with the same parameters, in which the model sees nothing before a segment."""
    return cfg

  def fused_updates(self, cfg: Any, batch: Batch) -> Callable[..., Any] | None:
    """Return the function that applies all updates of a batch of `rows` at once; None if this machine has none."""
    return None

  def attention_weights(self, cfg: Any, params: Params, batch: Batch, state: State = ()) -> list[AttentionWeights]:
    """Return the attention weights of every layer, in the order of computation; [] without attention.

    Equations compute them, never kernels, without dropout. For a few rows, because a layer has B H T S weights.
    """
    plain = {'scan': False, 'remat': 'none'}  # a recomputed layer would be traced
    plain = {name: value for name, value in plain.items() if isinstance(getattr(cfg, name, None), type(value))}
    with placement.scope(None), recording_attention() as found:
      self.apply(dataclasses.replace(cfg, **plain), params, batch, state)
    return found

  def begin(self, cfg: Any, params: Params, batch: Batch, length: int) -> State:
    """Return the state of a decoder after the source, with a cache of `length` positions."""
    raise InputError(f'model "{self.name}" reads no source')

  def alignment(self, cfg: Any, params: Params, batch: Batch) -> Array:
    """Return the attention of each output to the source, (B, T, S)."""
    raise InputError(f'model "{self.name}" has no attention, so it has no alignments')


class Loss(Protocol):
  """Loss of an objective; with ACROSS_ROWS it also takes `axis`, with PROGRESS also `progress`."""

  def __call__(
    self, cfg: Any, model: Model, model_cfg: Any, params: Params, batch: Batch, state: State, key: Array | None = None
  ) -> Output: ...


class Objective:
  """Interface of a file of lmx/objectives. `lmx.objectives.get` adds the defaults below to the names of the file.

  The names without a value are required. `cfg` is the file's own `Config`.

  Attributes:
    Config: frozen dataclass.
    METRICS: `lmx.metrics.metric.Metric` of every metric that an evaluation has besides the loss, the headline first.
      What selects, sorts or prints a metric reads this declaration.
    loss: (cfg, model, model_cfg, params, batch, state, key=None) -> sums of the terms, metrics and the new state.
    weights: (cfg, batch) -> {term: weight} from the data alone, so that a step can sum them over microbatches, devices
      and hosts before the backward pass.
    predict: (cfg, model, model_cfg, params, batch, state) -> (predictions, state).
    report: (cfg, totals, counts) -> metrics of an evaluation, 'loss' included, from the totals of a split: (sum,
      weight) pairs, and the rows of metrics that `loss` returns as arrays.
    shapes: (cfg, batch_size, length) -> shapes of a batch of the data pipeline.
    UNIT: unit of the weight of the first term.
    PROGRESS: the loss depends on the number of updates; `progress` is (previous updates, updates of the run), None
      outside training.
    ACROSS_ROWS: the rows of a batch depend on one another; `axis` is the devices among which `pmap` divides them.
    EVALUATION: file of lmx/evaluation/parts with metrics that an evaluation adds to `report`; '' for none.
    PREDICTION: file of lmx/prediction that predicts for new inputs; '' for none.
    SAMPLES: file of lmx/evaluation/samples with the samples that a run prints at its end; '' for none.
    ROWS: file of lmx/evaluation/rows with the predictions that `evaluation.save_rows` writes; '' for none.
    score: (cfg, model, model_cfg, params, batch, state) -> (nll_BT, features, state) of an objective that predicts
      each token of a text from those before it.
    probabilities: (cfg, model, model_cfg, params, batch) -> probabilities of the classes of every pixel.
    read_rows: (cfg, model, model_cfg, batch, key) -> {table: ids of the rows that the loss reads}, see
      lmx/engine/table_rows.py; `key` is that of `loss`.
  """

  __name__: str
  Config: type[Any]
  METRICS: tuple[Any, ...]
  loss: Loss
  weights: Callable[[Any, Batch], dict[str, Array]]
  predict: Callable[[Any, Model, Any, Params, Batch, State], tuple[Any, State]]
  report: Callable[[Any, Any, Any], dict[str, float]]
  shapes: Callable[[Any, int, int], dict[str, jax.ShapeDtypeStruct]]

  UNIT: str = 'tokens'
  PROGRESS: bool = False
  ACROSS_ROWS: bool = False
  EVALUATION: str = ''
  PREDICTION: str = ''
  SAMPLES: str = ''
  ROWS: str = ''
  score: Callable[[Any, Model, Any, Params, Batch, State], tuple[Array, Features, State]] | None = None
  read_rows: Callable[[Any, Model, Any, Batch, Array], Mapping[str, Array]] | None = None
  probabilities: Callable[[Any, Model, Any, Params, Batch], Array]  # of segmentation

  @property
  def name(self) -> str:
    """Name of the objective, which is that of its file."""
    return self.__name__.rpartition('.')[2]

  def init(self, cfg: Any, model: Model, model_cfg: Any, key: Array) -> Params:
    """Return the parameters of the objective's own head; {} without one."""
    return {}

  def terms(self, cfg: Any) -> tuple[str, ...]:
    """Return the names of the loss's terms; each is also a metric."""
    return ('nll',)

  def headline(self, cfg: Any, metrics: Mapping[str, Any]) -> str:
    """Return the name of the headline among the metrics of an evaluation."""
    return str(self.METRICS[0].name)

  def captions(self, cfg: Any, metrics: Mapping[str, Any], labels: Sequence[str]) -> dict[str, str]:
    """Return captions for metrics of a validation whose names are unclear; '' hides one."""
    return {}

  def positive(self, cfg: Any, labels: Sequence[str]) -> str:
    """Return the label of the class of metric 'f1'; '' if it has none."""
    return ''

  def undefined(self, cfg: Any, totals: Any, labels: Sequence[str], split: str) -> list[str]:
    """Return a note on each metric that is 0 on a split only because it is undefined there."""
    return []

  def by_class(self, cfg: Any, totals: Any, labels: Sequence[str] | None) -> dict[str, list[float]]:
    """Return {class: (right, predicted, true)} of an evaluation; `labels` are those of rows, None for numbers."""
    return {}

  def summarize(self, cfg: Any, outputs: Any) -> dict[str, Any]:
    """Return metrics that need all rows at once, from the arrays of `predict` and their labels 'truth'."""
    return {}

  def protocol(self, cfg: Any, data: Any, batches: Any) -> list[str]:
    """Return phrases that describe the evaluation protocol beyond its batches."""
    return []

  def labels(self, cfg: Any, recorded: Callable[[], list[str]]) -> list[str]:
    """Return the labels in the order of the head's logits, [] without; `recorded` reads those of the work directory."""
    return []

  def resolve(self, cfg: Any, manifest: Any) -> Any:
    """Return the Config with the fields that the data decides, such as the number of classes."""
    return cfg

  def labelled(self, cfg: Any) -> dict[str, tuple[int, ...]]:
    """Return {leaf of the head: its axes over labels}, which are matched by name where another run orders them so."""
    return {}

  def model_batch(self, cfg: Any, batch: Batch) -> Batch:
    """Return the batch with a row per row of `Output.features`, for the model's penalties."""
    return batch
