"""ELMo's bidirectional language model.

Peters et al. 2018, "Deep contextualized word representations", arXiv 1802.05365.

Section 3.1 (the two directions and their joint likelihood), section 3.3 (character n-gram convolutions, two highway
layers, two layers of 4,096 cells projected to 512, a residual connection from the first to the second). Both directions
share the output layer. It is trained with `nll` or `sampled_nll` and evaluated with
`nll`. The mix of the layers (section 3.2) belongs to task models, such as lmx/models/bilstm.py.

The release has the variants `original`, `medium` and `small`: 93,600,848, 28,027,728 and 13,593,296 parameters without
the output layer (it prints 93.6, 28.0 and 13.6 million). `mini` is ours.

A batch with `backward_characters_BTC` is two streams, each in its own reading order (training). Any other batch is rows
of words without begin and end tokens, and features are aligned (see lmx/layers/bilm.py). Both carry the state over.
Deviation: TensorFlow's generator drops other units.

Axes: C characters of a word, P projection; features are 2P wide, the forward direction first.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from lmx.errors import check_least, check_range
from lmx.layers import bilm, char_cnn, softmax
from lmx.ops.dropout import dropout, split
from lmx.ops.table import product, select, take
from lmx.types import Array, Batch, Features, Params, ReadRows, State, Table

CAUSAL = False
OBJECTIVE = 'bidirectional_lm'
HEADS = ('softmax',)  # not included in the paper's 93.6 million
READS = 'characters'
VOCABULARY = ROW_TABLES = ('softmax/table', 'softmax/bias')  # the sampled softmax reads them by row
TIED = ('softmax/table',)  # by both directions


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    V: words of the output layer, by decreasing frequency.
    filters: (width in characters, number) of each convolution.
    characters: width of a character's embedding.
    highways: highway layers after the convolutions.
    cells: cells of an LSTM layer in one direction.
    projection: width P of an LSTM layer's output, and of the word vectors.
    N: number of LSTM layers.
    cell_clip: bound of the cell state, 0 for none.
    proj_clip: bound of a layer's output, 0 for none.
    dropout: dropout rate of the input of each layer and of the last output.
    dtype: compute type.
    backend: implementation of the loop over time, 'scan', 'custom' or 'auto' (lmx/kernels/projected_lstm.py).
    remat: recompute a layer's activations in the backward pass.
  """

  V: int = 793_471  # released options: n_tokens_vocab
  filters: char_cnn.Filters = bilm.SIZES['original']['filters']
  characters: int = 16
  highways: int = 2
  cells: int = 4096
  projection: int = 512
  N: int = 2
  cell_clip: float = 3.0
  proj_clip: float = 3.0
  dropout: float = 0.1
  dtype: str = 'float32'
  backend: str = 'auto'
  remat: bool = False

  def __post_init__(self) -> None:
    bilm.check(self)
    check_least('model', self, N=1)
    check_range('model.dropout', self.dropout, 0, 1)


def _variant(name: str) -> dict:
  fields = dict(bilm.SIZES[name])
  return {'N': fields.pop('layers'), **fields}


VARIANTS = {
  'original': _variant('original'),
  'medium': _variant('medium'),
  'small': _variant('small'),
  'mini': _variant('mini'),
  'tiny': {'V': 61, **_variant('tiny')},
}


def sizes(cfg: Config) -> bilm.Sizes:
  """Return the biLM's part of the Config."""
  return bilm.Sizes(
    filters=cfg.filters,
    characters=cfg.characters,
    highways=cfg.highways,
    cells=cfg.cells,
    projection=cfg.projection,
    layers=cfg.N,
    cell_clip=cfg.cell_clip,
    proj_clip=cfg.proj_clip,
    dropout=cfg.dropout,
    dtype=cfg.dtype,
    backend=cfg.backend,
    remat=cfg.remat,
  )


def init(cfg: Config, key: Array) -> Params:
  """Initialise the parameters: embed, layer_00 .., and softmax {'table' (V, P), 'bias' (V,)}."""
  body_key, table_key = jax.random.split(key)
  table_VP = cfg.projection**-0.5 * jax.random.normal(table_key, (cfg.V, cfg.projection), jnp.float32)
  return {**bilm.init(sizes(cfg), body_key), 'softmax': {'table': table_VP, 'bias': jnp.zeros(cfg.V, jnp.float32)}}


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """Return zero carries of both directions; `length` is unused, a carry has one size for any length."""
  del length
  return bilm.init_state(sizes(cfg), batch_size)


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run both directions.

  Args:
    batch: characters_BTC, and backward_characters_BTC if each direction has its own stream; valid_BT (optional).
    state: from `init_state` or the previous call.
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the words and the output of each layer, (B, T, 2P) each.

  Returns:
    (Features with last_BTD (B, T, 2P), forward first, the input of the output layer after dropout; state).
  """
  body_key, last_key = split(key, 2)
  if 'backward_characters_BTC' in batch:
    backward_BTC = batch['backward_characters_BTC']
    layers, state = bilm.run_streams(sizes(cfg), params, batch['characters_BTC'], backward_BTC, state, body_key)
  else:
    valid_BT = batch.get('valid_BT')
    layers, state = bilm.run_sentences(sizes(cfg), params, batch['characters_BTC'], valid_BT, state, body_key)
  last_BTD = dropout(layers[-1], cfg.dropout, last_key)
  return Features(last_BTD, layers=tuple(layers) if all_layers else None), state


def _one_way(cfg: Config, features: Features) -> Array:
  """Return the features of one direction: those given, or the forward half of both."""
  return features.last_BTD[..., : cfg.projection]


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of the next word, (B, T, V) float32; features of both directions give the forward one's."""
  return softmax.tied_logits(_one_way(cfg, features), params['softmax']['table'], params['softmax']['bias'], size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the full negative log-likelihood of each target in nats, (B, T) float32; directions as in `logits`."""
  head = params['softmax']
  return softmax.tied_nll(_one_way(cfg, features), head['table'], targets_BT, head['bias'], size=cfg.V)


def sampled_nll(
  cfg: Config, params: Params, features: Features, targets_BT: Array, key: Array, samples: int, *, correct_target: bool
) -> Array:
  """Return the loss over `samples` sampled words and the target, (B, T) float32: for training, not for reporting."""
  head, x_BTP = params['softmax'], _one_way(cfg, features)
  return sampled_loss(
    x_BTP, head['table'], head['bias'], targets_BT, key, samples, size=cfg.V, correct_target=correct_target
  )


@functools.cache
def expected_draws(V: int, samples: int) -> float:
  """Return the number of draws (a fraction) in which `samples` different classes of V are expected."""
  p_V = np.log1p(1.0 / (np.arange(V) + 1.0)) / math.log(V + 1)
  log_not_V = np.log1p(-p_V)
  low, high = float(samples), float(samples)
  expected_classes = lambda n: float(-np.expm1(n * log_not_V).sum())
  while expected_classes(high) < samples:
    high *= 2.0
  for _ in range(60):
    middle = 0.5 * (low + high)
    low, high = (middle, high) if expected_classes(middle) < samples else (low, middle)
  return high


def _probability(ids: Array, V: int) -> Array:
  return jnp.log1p(1.0 / (ids.astype(jnp.float32) + 1.0)) / math.log(V + 1)


def draw(key: Array, V: int, samples: int) -> Array:
  """Sample different classes from the log-uniform distribution, in no order that matters, (S,) int32; samples < V.

  p(v) = log((v + 2) / (v + 1)) / log(V + 1) is near Zipf's law where class v is the (v + 1)-th most frequent.
  `tf.nn.sampled_softmax_loss` (unique) samples until `samples` different classes are found. The same distribution comes
  from one top-k: the classes with the largest log p(v) + Gumbel noise.
  """
  score_V = jnp.log(_probability(jnp.arange(V), V)) + jax.random.gumbel(key, (V,), jnp.float32)
  return jax.lax.top_k(score_V, samples)[1].astype(jnp.int32)


def log_expected(ids: Array, V: int, samples: int) -> Array:
  """Return the log-probability that a class is among the samples, in the shape of `ids`.

  TensorFlow uses the number n of draws that it needed in 1 - (1 - p(v))^n. Here n is the number for
  which these expectations sum to `samples`, so the correction is not random.
  """
  return jnp.log(-jnp.expm1(expected_draws(V, samples) * jnp.log1p(-_probability(ids, V))))


def sampled_loss(
  x_BTD: Array,
  table_VD: Table | ReadRows,
  bias_V: Array | ReadRows,
  targets_BT: Array,
  key: Array,
  samples: int,
  *,
  size: int,
  correct_target: bool = True,
) -> Array:
  """Return the sampled softmax loss of each target in nats, (B, T) float32; it is not a perplexity's logarithm.

  Jean et al. 2015 (arXiv 1412.2007), section 3: logits are corrected by the logarithm of the expected number of times
  (0 to 1) that a class is among the samples.

  Args:
    x_BTD: last hidden layer.
    table_VD: output matrix, rows by decreasing frequency.
    bias_V: output bias.
    targets_BT: int32.
    key: PRNG key of the classes, the same for all positions; a position's own target is removed from them.
    samples: number of sampled classes, below V.
    size: number V of classes.
    correct_target: correct the target's logit too, as TensorFlow does: if the logits are log-probabilities, the
      expected gradient is then 0. Without it the expectation of exp(loss) is exp(full loss) for any logits.
  """
  V, ids_S = size, draw(key, size, samples)
  rows_BTD = take(table_VD, targets_BT, str(x_BTD.dtype), 'BT')
  score_BTS = product(x_BTD, select(table_VD, ids_S)) + (select(bias_V, ids_S) - log_expected(ids_S, V, samples))
  score_BTS = jnp.where(targets_BT[..., None] == ids_S, -jnp.inf, score_BTS)
  target_BT = jnp.einsum('BTD,BTD->BT', x_BTD, rows_BTD, preferred_element_type=jnp.float32)
  target_BT = target_BT + select(bias_V, targets_BT)
  if correct_target:
    target_BT = target_BT - log_expected(targets_BT, V, samples)
  return jnp.logaddexp(target_BT, jax.nn.logsumexp(score_BTS, axis=-1)) - target_BT
