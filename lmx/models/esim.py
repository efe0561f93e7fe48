"""ESIM, the sequential model of "Enhanced LSTM for Natural Language Inference" (Chen et al. 2017, arXiv 1609.06038).

For a premise a and a hypothesis b, with and without ELMo vectors (Peters et al. 2018, arXiv
1802.05365, tables 1 to 3):

  a, b = BiLSTM(a), BiLSTM(b)                                      input encoding
  e_ij = a_i . b_j; a~_i = sum_j softmax_j(e_ij) b_j, b~_j alike   soft alignment
  m_a = [a; a~; a - a~; a (.) a~]                                  enhancement
  v_a = BiLSTM(relu(F m_a))                                        composition
  v = [mean v_a; max v_a; mean v_b; max v_b]                       pooling

Both texts share all parameters. The classifier, a tanh layer of 300 and one linear layer on v, is the head of
objective `classify` or `regress`; Peters et al. have ReLU there (objective.activation). ELMo vectors are concatenated
to the input of the encoding, to its output, or both.

Parameters without the embeddings and with the head of three classes: 4,326,303 (`base`); the paper prints 4.3M.
Without the head: 6,605,100 at V = 10,000 (`base`); 103,892,356 with the released biLM at both places (`elmo_original`).

The release (lukecq1231/nli, scripts/ESIM/main.py) drops single elements at the input of both LSTM layers and of both
layers of the head; AllenNLP's ESIM has one mask for all words of a text (`locked`). With ELMo, Peters et al. also drop
elements between the enhancement and the projection (`dropout_attention`; appendix).

Deviations: as in lmx/layers/word_input.py. The maximum is over the words of a text; in the release padding counts as 0,
so that a row depends on the longest of its batch. The release has the product before the difference, which permutes
rows of F. LSTMs and F are initialised uniformly in +-1/sqrt(width) as in PyTorch (release: orthogonal recurrent
matrices, F normal with 0.01; AllenNLP: Xavier, orthogonal, forget bias 1). An empty text has zeros as summary.

Axes: S words of the second text, C characters of a word, D cells of one direction, F width of the projection.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_least
from lmx.layers import bidirectional, pooling, text_alignment, word_input
from lmx.layers.locked_dropout import locked_dropout
from lmx.ops.dense import affine
from lmx.ops.dropout import dropout, split
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = False
OBJECTIVE = 'classify'
OBJECTIVE_FIELDS = {
  'pooling': 'pooled',
  'bptt': 0,
  'normalize': False,
  'head': (300,),
  'activation': 'tanh',
  'dropout_pooled': 0.5,
  'dropout_head': 0.5,
}
READS = 'characters'
WORDS = False  # no output over words
WORD_TABLE = 'embed/table'
TEXTS: dict[int, dict[str, Any]] = {2: {}}


@dataclasses.dataclass(frozen=True)
class Config(word_input.Config):
  """Sizes and switches; the attributes are those of `word_input.Config`, and

  Attributes:
    D: cells of an LSTM layer in one direction.
    F: width of the projection of the enhanced vectors.
    dropout: dropout rate of the input of both LSTM layers.
    locked: use one mask for all words of a text there, as Peters et al. 2018; otherwise one for each element.
    dropout_attention: dropout rate of the enhanced vectors, the input of the projection.
  """

  D: int = 300
  F: int = 300
  dropout: float = 0.5
  locked: bool = True
  dropout_attention: float = 0.0
  dropout_elmo: float = 0.0  # AllenNLP's esim_elmo.jsonnet: `dropout` also applies to the input vectors

  N = 2  # encoding and composition

  def __post_init__(self) -> None:
    super().__post_init__()
    check_least('model', self, D=1, F=1)


VARIANTS: dict[str, dict[str, Any]] = {
  'base': {},
  **word_input.elmo_variants('both', dropout_attention=0.5, mix_normalise=True, mix_l2=0.001),
  'tiny': {**word_input.TINY, 'D': 8, 'F': 12, 'dropout': 0.1, 'dropout_attention': 0.1, 'mix_normalise': True},
}


def init(cfg: Config, key: Array) -> Params:
  """Initialise embed, bilm, mix_input, mix_output (see `word_input.init`), layer_00, projection, layer_01.

  layer_00 and layer_01 are {'forward', 'backward'}, projection {'kernel': (4 (2D + ELMo at the output), F), 'bias'}.
  """
  table_key, spelling_key, bilm_key, kernel_key, bias_key, *keys = jax.random.split(key, 9)
  params = word_input.init(cfg, table_key, spelling_key, bilm_key)
  params['layer_00'] = bidirectional.init(
    keys[:2], word_input.word_width(cfg) + word_input.elmo_width(cfg, 'input'), cfg.D
  )
  width = 4 * (2 * cfg.D + word_input.elmo_width(cfg, 'output'))
  draw = lambda k, *shape: jax.random.uniform(k, shape, jnp.float32, -(width**-0.5), width**-0.5)
  params['projection'] = {'kernel': draw(kernel_key, width, cfg.F), 'bias': draw(bias_key, cfg.F)}
  params['layer_01'] = bidirectional.init(keys[2:], cfg.F, cfg.D)
  return params


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Compare the two texts of each row.

  Args:
    batch: tokens_BT and tokens_BS; characters_BTC and characters_BSC if characters or ELMo are used; valid_BT and
      valid_BS (optional).
    state: ().
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the input of the encoding, its output and the composition, each of the premise.

  Returns:
    (Features with last_BTD: the composition of the premise, (B, T, 2D); pooled_BD: v, (B, 8D) float32; ()).

  Raises:
    InputError: the rows have one text.
  """
  if 'tokens_BS' not in batch:
    raise InputError('model esim: got one text per row; expected two; set data.texts and data.batching.form=separate')
  texts = _as_rows(batch)
  valid_BT, (B, T) = texts['valid_BT'], batch['tokens_BT'].shape
  bilm_key, elmo_key, encoding_key, attention_key, composition_key = split(key, 5)
  vectors = word_input.elmo_vectors(cfg, params, texts, valid_BT, bilm_key, elmo_key)
  x_BTD = word_input.concatenate(word_input.embed(cfg, params, texts), vectors, 'input')
  a_BTD = word_input.concatenate(_layer(cfg, params['layer_00'], x_BTD, valid_BT, encoding_key), vectors, 'output')
  m_BTD = enhance(a_BTD, text_alignment.context(a_BTD, _other(a_BTD), _other(valid_BT)))
  m_BTD = dropout(m_BTD, cfg.dropout_attention, attention_key).astype(cfg.dtype)
  projection = params['projection']
  h_BTF = jax.nn.relu(affine(m_BTD, projection['kernel'], projection['bias'], 1))
  v_BTD = _layer(cfg, params['layer_01'], h_BTF, valid_BT, composition_key)
  pooled_BD = jnp.concatenate([pooling.pool(kind, v_BTD, valid_BT) for kind in ('mean', 'max')], -1).reshape(B, -1)
  premise = lambda x_BTD: x_BTD.reshape(B, 2, *x_BTD.shape[1:])[:, 0, :T]
  layers = tuple(map(premise, (x_BTD, a_BTD, v_BTD))) if all_layers else None
  return Features(premise(v_BTD), pooled_BD, layers=layers), state


def _as_rows(batch: Batch) -> Batch:
  """Return the batch with the texts of a pair as neighbouring rows of one length: tokens_BT, characters_BTC, valid_BT.

  So a layer that both share runs once, and a pair stays on its device.
  """
  T = max(batch['tokens_BT'].shape[1], batch['tokens_BS'].shape[1])
  valid = {f'valid_B{axis}': word_input.valid(batch, axis) for axis in 'TS'}
  given: Batch = {**batch, **valid}
  texts: dict[str, Array] = {}
  for name in ('tokens_BT', 'valid_BT', 'characters_BTC'):
    if name in given:
      pair = [given[name], given[name.replace('_BT', '_BS')]]
      x = jnp.stack([jnp.pad(x, ((0, 0), (0, T - x.shape[1]), *((0, 0),) * (x.ndim - 2))) for x in pair], 1)
      texts[name] = x.reshape(-1, *x.shape[2:])
  return texts


def _other(x: Array) -> Array:
  """Return, for each row, the row of the other text of its pair."""
  return x.reshape(-1, 2, *x.shape[1:])[:, ::-1].reshape(x.shape)


def enhance(x_BTD: Array, aligned_BTD: Array) -> Array:
  """Return [x; x~; x - x~; x (.) x~], (B, T, 4D) (equations 14 and 15)."""
  return jnp.concatenate([x_BTD, aligned_BTD, x_BTD - aligned_BTD, x_BTD * aligned_BTD], -1)


def _layer(cfg: Config, params: Params, x_BTD: Array, valid_BT: Array, key: Array | None) -> Array:
  """Apply dropout and a bidirectional LSTM layer."""
  x_BTD = locked_dropout(x_BTD, cfg.dropout, key) if cfg.locked else dropout(x_BTD, cfg.dropout, key)
  return bidirectional.layer(params, x_BTD, valid_BT, dtype=cfg.dtype, backend=cfg.backend)


def read_shapes(cfg: Config, rows: dict[str, Any]) -> dict[str, Any]:
  """Return the shapes of a batch with the second text."""
  del cfg
  return word_input.read_shapes(rows, 2)


penalties, penalty_weights = word_input.penalties, word_input.penalty_weights


def depth(cfg: Config, path: tuple[str, ...]) -> int:
  """Return a parameter's layer number: embeddings, biLM and input mix 0, encoding 1; all that follows it is 2."""
  if path[0] in ('embed', 'bilm', 'mix_input'):
    return 0
  return 1 if path[0] == 'layer_00' else 2
