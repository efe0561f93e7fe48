"""Biattentive classification network (McCann et al. 2017, arXiv 1708.00107, section 5), with or without ELMo.

Of two texts X (B, T, D) and Y (B, S, D), which are the outputs of one encoder, with softmaxes over the positions of the
text that is read (the biattention is lmx/layers/text_alignment.py):

  encoder       x_t = biLSTM(ReLU(W [word; ELMo] + b))
  biattention   A = X Y^T,   C_x = softmax_t(A)^T X (B, S, D),   C_y = softmax_s(A) Y (B, T, D)
  integration   X|y = biLSTM_1([X; X - C_y; X * C_y]),   Y|x = biLSTM_2([Y; Y - C_x; Y * C_x])
  pooling       x_self = softmax(X|y v)^T X|y,   [max; mean; min; self] of X|y, then of Y|x

One text (`texts=1`) is compared with itself. McCann et al. duplicate it; here, as in AllenNLP, the second copy is not
computed again: one integrating biLSTM, one vector v, and the four poolings once. With `texts=2` the batch has
tokens_BS, and biLSTM_1 and biLSTM_2 each have their own weights.

Peters et al. 2018 (arXiv 1802.05365, section 4 and appendix) use it for SST-5, with hidden states of 300 and two ReLU
layers with dropout instead of three maxout layers with batch normalisation. That network is the head of the objective
(OBJECTIVE_FIELDS); objective.activation=maxout with objective.normalize=True is McCann's. Sizes and dropout rates are
AllenNLP's (biattentive_classification_network_elmo.jsonnet), whose maxout layers have the widths of the ReLU layers
here, because Peters et al. give none. ELMo vectors are concatenated to the words, to the output of the integration as
in AllenNLP, or both; in the paper, at the biLSTM's input and output.
`base` has 6,575,700 parameters without the embedding and the head.

Deviations: as in lmx/layers/word_input.py; self-attention has no bias, which changes no softmax; matrices and LSTMs
are initialised uniformly in +-1/sqrt(width) as in PyTorch.

Axes: T, S positions of the first and of the second text; D output of a biLSTM, of both directions; F width of the
feed-forward layer.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_least
from lmx.layers import bidirectional, pooling, text_alignment, word_input
from lmx.layers.masked_softmax import masked_softmax
from lmx.ops.dropout import dropout, split
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = False
OBJECTIVE = 'classify'
OBJECTIVE_FIELDS: dict[str, Any] = {
  'pooling': 'pooled',
  'bptt': 0,
  'head': (1200, 600),
  'normalize': False,
  'dropout_pooled': 0.1,  # AllenNLP, like the next field; rate of its first layer, the second has 0.3
  'dropout_head': 0.2,
}
READS = 'characters'
WORD_TABLE = 'embed/table'
TEXTS = {1: {'texts': 1}, 2: {'texts': 2}}
WORDS = False  # no output over words
SIDES = ('first', 'second')


@dataclasses.dataclass(frozen=True)
class Config(word_input.Config):
  """Sizes and switches; the attributes are those of `word_input.Config`, and

  Attributes:
    texts: 1 compares a text with itself, 2 compares two texts; in a config 0 is the number of columns in data.texts.
    F: width of the feed-forward layer on each word.
    D: cells of a biLSTM in one direction.
    dropout: dropout rate of the words.
    dropout_feed_forward: dropout rate of the output of the feed-forward layer.
  """

  texts: int = 1
  F: int = 300  # AllenNLP, as the fields below; D also Peters et al. 2018
  D: int = 300
  dropout: float = 0.5
  dropout_feed_forward: float = 0.25

  N = 2  # the encoder and the integration

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.texts not in (1, 2):
      raise InputError(f'model.texts: got {self.texts}; expected 1 or 2')
    check_least('model', self, F=1, D=1)


VARIANTS: dict[str, dict[str, Any]] = {
  'base': {},
  **word_input.elmo_variants(),
  'tiny': {**word_input.TINY, 'F': 12, 'D': 8, 'dropout': 0.1, 'dropout_feed_forward': 0.1},
}


def init(cfg: Config, key: Array) -> Params:
  """Initialise embed, bilm, mix_input and mix_output of `word_input.init`, and

  layer_00 {'feed_forward', 'forward', 'backward'}, layer_01 {'first', 'second': a biLSTM each} and pool {'first',
  'second': v}; 'second' with two texts only.
  """
  table_key, spelling_key, bilm_key, feed_key, *keys = jax.random.split(key, 6 + 3 * cfg.texts)
  params = word_input.init(cfg, table_key, spelling_key, bilm_key)
  width = word_input.word_width(cfg) + word_input.elmo_width(cfg, 'input')
  draw = lambda k, size, *shape: jax.random.uniform(k, shape, jnp.float32, -(size**-0.5), size**-0.5)
  kernel_key, bias_key = jax.random.split(feed_key)
  feed = {'kernel': draw(kernel_key, width, width, cfg.F), 'bias': draw(bias_key, width, cfg.F)}
  params['layer_00'] = {'feed_forward': feed, **bidirectional.init(keys[:2], cfg.F, cfg.D)}
  params['layer_01'], params['pool'] = {}, {}
  pooled = 2 * cfg.D + word_input.elmo_width(cfg, 'output')
  for i, side in enumerate(SIDES[: cfg.texts]):
    *integration_keys, pool_key = keys[2 + 3 * i : 5 + 3 * i]
    params['layer_01'][side] = bidirectional.init(integration_keys, 6 * cfg.D, cfg.D)
    params['pool'][side] = draw(pool_key, pooled, pooled)
  return params


def read_shapes(cfg: Config, shapes: dict[str, Any]) -> dict[str, Any]:
  """Return the shapes of a batch with the second text, if there is one."""
  return word_input.read_shapes(shapes, cfg.texts)


def encode(
  cfg: Config, params: Params, batch: Batch, words: dict[str, Array], axis: str, valid_BT: Array, key: Array | None
) -> tuple[Array, Array, dict[str, Array]]:
  """Return (input of the encoder (B, T, F), its output (B, T, D), ELMo vectors by place) of the text of an axis.

  `words` is from `word_input.look_up`.
  """
  bilm_key, elmo_key, input_key, feed_key = split(key, 4)
  vectors = word_input.elmo_vectors(cfg, params, batch, valid_BT, bilm_key, elmo_key, axis)
  x_BTD = dropout(word_input.embed(cfg, params, batch, axis, words=words), cfg.dropout, input_key)
  x_BTD = word_input.concatenate(x_BTD, vectors, 'input')
  layer = params['layer_00']
  kernel, bias = (layer['feed_forward'][name].astype(cfg.dtype) for name in ('kernel', 'bias'))
  x_BTF = dropout(jax.nn.relu(x_BTD @ kernel + bias), cfg.dropout_feed_forward, feed_key)
  return x_BTF, _bilstm(cfg, layer, x_BTF, valid_BT), vectors


def _bilstm(cfg: Config, params: Params, x_BTD: Array, valid_BT: Array) -> Array:
  return bidirectional.layer(params, x_BTD, valid_BT, dtype=cfg.dtype, backend=cfg.backend)


def integrate(cfg: Config, params: Params, x_BTD: Array, context_BTD: Array, valid_BT: Array) -> Array:
  """Return X|y, the biLSTM over a text, its differences from its context and its products with it, (B, T, D)."""
  joined_BTD = jnp.concatenate([x_BTD, x_BTD - context_BTD, x_BTD * context_BTD], -1)
  return _bilstm(cfg, params, joined_BTD, valid_BT)


def summarize(v_D: Array, x_BTD: Array, valid_BT: Array) -> Array:
  """Return [max; mean; min; self] of a text, (B, 4D) float32, and zeros of an empty one."""
  x_BTD = x_BTD.astype(jnp.float32)
  weights_BT = masked_softmax(x_BTD @ v_D, valid_BT)
  attended_BD = jnp.einsum('BT,BTD->BD', weights_BT, x_BTD)
  return jnp.concatenate([*(pooling.pool(kind, x_BTD, valid_BT) for kind in ('max', 'mean', 'min')), attended_BD], -1)


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the model over rows of one or two texts.

  Args:
    batch: tokens_BT, characters_BTC if characters or ELMo are used, valid_BT (optional); the same with S if texts=2.
    state: ().
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the encoder's input and output and the integration, all of the first text.

  Returns:
    (Features with last_BTD, the integration of the first text with its ELMo vectors, and pooled_BD, the poolings of
    every text; ()).

  Raises:
    InputError: the batch has another number of texts than `texts`.
  """
  word_input.check_texts(cfg.texts, batch)
  words, texts = word_input.look_up(cfg, params, batch), []
  for axis, text_key in zip('TS', split(key, cfg.texts), strict=False):
    valid = word_input.valid(batch, axis)
    texts.append((valid, *encode(cfg, params, batch, words, axis, valid, text_key)))
  outputs, pooled, layers = [], [], []
  for (valid, x_BTF, x_BTD, vectors), (other_valid, _, y_BSD, _), side in zip(texts, texts[::-1], SIDES, strict=False):
    context_BTD = text_alignment.context(x_BTD, y_BSD, other_valid)
    integrated_BTD = integrate(cfg, params['layer_01'][side], x_BTD, context_BTD, valid)
    outputs.append(word_input.concatenate(integrated_BTD, vectors, 'output'))
    pooled.append(summarize(params['pool'][side], outputs[-1], valid))
    layers.append((x_BTF, x_BTD, integrated_BTD))
  return Features(outputs[0], jnp.concatenate(pooled, -1), layers[0] if all_layers else None), state


penalties, penalty_weights, depth = word_input.penalties, word_input.penalty_weights, word_input.depth
