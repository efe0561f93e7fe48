"""GLUE's baseline of recurrent sentence encoders (Wang et al. 2019, arXiv 1804.07461, section 5 and appendix B.1).

Words of lmx/layers/word_input.py and N bidirectional LSTM layers encode each text. With u and v for the two texts:

  no attention   u = max_t h_t of the encoder, v likewise
  attention      u = max_t h'_t, with h' a second biLSTM over [h_t; c_t] and c the context of h in the other text
                 (lmx/layers/text_alignment.py); one encoder and one second biLSTM for both texts
  a pair         [u; v; |u - v|; u * v]
  one text       u of the encoder

The classifier above has a tanh layer of 512 (OBJECTIVE_FIELDS). "BiLSTM+ELMo+Attn" reads ELMo vectors in place of word
embeddings (`words=False`), as the paper's section "Pre-Training" and final_exps.sh (-eg) of nyu-mll/GLUE-baselines.

From that code and not the paper: the sizes of the second biLSTM (one layer of D cells), dropout rates and where
they apply, tanh, no dropout in the classifier, and ELMo vectors at `output` (--deep_elmo), which join h of the encoder
or, with attention, [h; c].

Parameters without the classifier: 165,636,000 and 300 V of `base`, 267,924,852 of `elmo_original`.

Deviations: no CoVe, and no multi-task training; as in lmx/layers/word_input.py; LSTMs have one bias, PyTorch's have
two.

Axes: T, S positions of the first and the second text; C characters of a word; D cells of one direction.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import InputError, check_least, check_range
from lmx.layers import bidirectional, pooling, text_alignment, word_input
from lmx.ops.dropout import dropout, split
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = False
OBJECTIVE = 'classify'
OBJECTIVE_FIELDS: dict[str, Any] = {
  'pooling': 'pooled',
  'bptt': 0,
  'head': (512,),  # section 5
  'activation': 'tanh',  # models.py, as the next
  'normalize': False,
  'dropout_pooled': 0.0,
  'dropout_head': 0.0,
}
READS = 'characters'
WORDS = False  # no output over words
WORD_TABLE = 'embed/table'
TEXTS = {1: {'texts': 1, 'attention': False}, 2: {'texts': 2}}


@dataclasses.dataclass(frozen=True)
class Config(word_input.Config):
  """Sizes and switches; the attributes are those of `word_input.Config`, and

  Attributes:
    texts: number of texts of a row, 1 or 2; in a config 0 is the number of columns in data.texts.
    attention: each of two texts reads the other before the second biLSTM.
    words: read word embeddings, not only ELMo vectors.
    D: cells of an LSTM layer in one direction.
    N: number of layers of the encoder.
    dropout: dropout rate of the words, and of the output of each biLSTM.
  """

  texts: int = 2
  attention: bool = True
  words: bool = True
  D: int = 1500  # section 5, as N
  N: int = 2
  dropout: float = 0.2  # final_exps.sh

  def __post_init__(self) -> None:
    super().__post_init__()
    check_range('model.texts', self.texts, 1, 3)
    check_least('model', self, D=1, N=1)
    if self.attention and self.texts == 1:
      raise InputError('model.attention: got True with model.texts=1; expected two texts; set model.attention=False')
    if not self.words and 'input' not in word_input.mixes(self):
      raise InputError(f'model.words: got False with model.elmo "{self.elmo}"; expected ELMo vectors at the input')
    if not self.words and self.char_filters:
      raise InputError('model.char_filters: got filters with model.words=False; expected (), or model.words=True')


VARIANTS: dict[str, dict[str, Any]] = {
  'base': {},
  **word_input.elmo_variants(words=False),
  'tiny': {**word_input.TINY, 'D': 8, 'N': 1, 'dropout': 0.1},
}


def init(cfg: Config, key: Array) -> Params:
  """Initialise embed, bilm, mix_input and mix_output of `word_input.init`, layer_00 {'forward', 'backward'}, ..., and

  with attention `modeling`, the second biLSTM.
  """
  table_key, spelling_key, bilm_key, *keys = jax.random.split(key, 3 + 2 * (cfg.N + 1))
  params = word_input.init(cfg, table_key, spelling_key, bilm_key)
  if not cfg.words:
    del params['embed']
  width = word_input.word_width(cfg) * cfg.words + word_input.elmo_width(cfg, 'input')
  for i in range(cfg.N):
    params[layout.layer_name(i)] = bidirectional.init(keys[2 * i : 2 * i + 2], width, cfg.D)
    width = 2 * cfg.D
  if cfg.attention:
    params['modeling'] = bidirectional.init(keys[-2:], 2 * width + word_input.elmo_width(cfg, 'output'), cfg.D)
  return params


def read_shapes(cfg: Config, shapes: dict[str, Any]) -> dict[str, Any]:
  """Return the shapes of a batch with the second text, if the model reads one."""
  return word_input.read_shapes(shapes, cfg.texts)


def encode(
  cfg: Config, params: Params, batch: Batch, words: dict[str, Array], axis: str, valid_BT: Array, key: Array | None
) -> tuple[list[Array], dict[str, Array]]:
  """Return (the encoder's input and the output of each layer (B, T, 2D), ELMo vectors by place) of one text.

  Args:
    words: from `word_input.look_up`, if the model reads words.
    axis: letter of the text's positions, 'T' or 'S'.
    valid_BT: False at padding.
    key: PRNG key of dropout, None at evaluation.
  """
  bilm_key, elmo_key, input_key = split(key, 3)
  vectors = word_input.elmo_vectors(cfg, params, batch, valid_BT, bilm_key, elmo_key, axis)
  if cfg.words:
    x_BTD = word_input.concatenate(word_input.embed(cfg, params, batch, axis, words=words), vectors, 'input')
  else:
    x_BTD = vectors['input']
  hidden = [dropout(x_BTD, cfg.dropout, input_key)]
  for i in range(cfg.N):
    hidden.append(layout.run(_bilstm, params, i, cfg, hidden[-1], valid_BT))
  return hidden, vectors


def _bilstm(params: Params, cfg: Config, x_BTD: Array, valid_BT: Array) -> Array:
  return bidirectional.layer(params, x_BTD, valid_BT, dtype=cfg.dtype, backend=cfg.backend)


def compare(u_BD: Array, v_BD: Array) -> Array:
  """Return [u; v; |u - v|; u * v], (B, 4D)."""
  return jnp.concatenate([u_BD, v_BD, jnp.abs(u_BD - v_BD), u_BD * v_BD], -1)


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the model over rows of one or two texts.

  Args:
    batch: tokens_BT, characters_BTC if characters or ELMo are used, valid_BT (optional); the same with S if texts=2.
    state: ().
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the encoder's input and the output of each of its layers, of the first text.

  Returns:
    (Features with last_BTD, whose maximum is u, and pooled_BD, u or the comparison of u and v; ()).

  Raises:
    InputError: the batch has another number of texts than `texts`.
  """
  word_input.check_texts(cfg.texts, batch)
  axes = 'TS'[: cfg.texts]
  keys = split(key, 3 * cfg.texts)
  valid = [word_input.valid(batch, axis) for axis in axes]
  words = word_input.look_up(cfg, params, batch) if cfg.words else {}
  texts = [encode(cfg, params, batch, words, axis, valid[i], keys[i]) for i, axis in enumerate(axes)]
  outputs = []
  for i, (hidden, vectors) in enumerate(texts):
    x_BTD, other = hidden[-1], cfg.texts - 1 - i
    if cfg.attention:
      x_BTD = jnp.concatenate([x_BTD, text_alignment.context(x_BTD, texts[other][0][-1], valid[other])], -1)
    x_BTD = dropout(word_input.concatenate(x_BTD, vectors, 'output'), cfg.dropout, keys[cfg.texts + i])
    if cfg.attention:
      x_BTD = dropout(_bilstm(params['modeling'], cfg, x_BTD, valid[i]), cfg.dropout, keys[2 * cfg.texts + i])
    outputs.append(x_BTD)
  pooled = [pooling.pool('max', x_BTD, valid_BT) for x_BTD, valid_BT in zip(outputs, valid, strict=True)]
  pooled_BD = compare(*pooled) if cfg.texts == 2 else pooled[0]
  return Features(outputs[0], pooled_BD=pooled_BD, layers=tuple(texts[0][0]) if all_layers else None), state


penalties, penalty_weights, depth = word_input.penalties, word_input.penalty_weights, word_input.depth
