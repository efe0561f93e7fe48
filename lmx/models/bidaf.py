"""Bidirectional attention flow with self-attention, for questions on passages.

Seo et al. 2017 (arXiv 1611.01603); Clark and Gardner 2018 (arXiv 1710.10723), section 4; as Peters et al. 2018 (arXiv
1802.05365), appendix, simplify it for ELMo (sizes and order of layers as in their code, allenai/document-qa,
docqa/elmo/ablate_elmo_model.py, lines 49 to 84):

  words       of lmx/layers/word_input.py, for the passage h and the question u; then `highways` highway layers
  contextual  one bidirectional GRU for both; ELMo vectors before it, after it, or both
  attention   s_ts = w · [h_t; u_s; h_t (.) u_s]. a_t is the mean of u under softmax_s(s_ts), and c the mean of h under
              softmax_t(max_s s_ts): [h; a; h (.) a; h (.) c], then a linear layer with ReLU
              (Seo et al. and the code; the paper of Clark and Gardner prints c (.) a as the last)
  self        a bidirectional GRU and s of the passage with itself except for each word with itself, without c:
              [a; h; h (.) a], then a linear layer with ReLU, and the layer's input is added

Objective `span` has the two linear layers for start and end. Linear layers are as wide as the output of a GRU.
Variational dropout, one mask for all words, is before GRUs and linear layers. `self_attention=False` is Seo et al.'s
model: the attention's result G and the modelling layer M, two bidirectional LSTMs over it, are read as [G; M], by the
head `bidaf` of the objective.

`seo` is Seo et al.'s model as released (allenai/bi-att-flow, basic/model.py and my/tensorflow/nn.py; flags in
basic/cli.py, lines 40 to 56): two highway layers over words and characters (section 2, item 2), dropout 0.2 of single
elements before LSTMs and of the characters' embeddings, TensorFlow's initialisation. The code has no dropout before the
passage's contextual layer (model.py, line 127), which the paper does not say.

`no_alignment` lets a word attend to nothing: exp of a learned scalar is added to the denominator of the
self-attention's softmax. Only the code has it. The only word of a passage has a mean of zero.

Deviations: start and end of `base` are scored independently, as in Peters et al.'s appendix; document-qa has two more
GRUs there (line 80). It has variational dropout after GRUs too and none before linear layers. GRUs are initialised
uniformly in +-1/sqrt(D) as in PyTorch. w has no bias, which no softmax depends on. The biLM reads the end of text after
the passage. In `seo` both directions of an LSTM have the same dropout mask, and the characters are bytes, between the
start and the end of the word.

Parameters of `base` with V = 0: 5,220 + 10,100 of the characters, 265,680 contextual, 540 + 129,780 attention, and
146,880 + 541 + 97,380 self-attention: 656,121, and 300 for each word. `seo` with V = 0 and its head: 2,088 + 4,100 of
the characters, 160,800 highway layers, 240,800 contextual, 600 attention, 961,600 modelling, 1,202,802 head: 2,572,790.
The release's graph has 2,570,703 without its tables of characters and words, one more for the bias of w; its table of
characters has 8 for each character that occurs more than 50 times. The paper prints 2.6 million.

Axes: C characters of a word, D cells of one direction, S words of the question or, in the self-attention, the passage.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_choice, check_least
from lmx.layers import bidirectional, char_cnn, unit_scaling, word_input
from lmx.layers.locked_dropout import locked_dropout
from lmx.layers.masked_softmax import masked_softmax
from lmx.ops.dense import einsum
from lmx.ops.dropout import dropout, split
from lmx.types import Array, Batch, Features, Params, State, record_attention

CAUSAL = False
OBJECTIVE = 'span'
READS = 'characters'
WORDS = False  # no output over words
WORD_TABLE = 'embed/table'
NEVER = -1e9  # score of a word that is padding
_KEPT = ('bilm', 'mix_input', 'mix_output')  # not initialised as in Seo et al.'s release
CELLS = ('gru', 'lstm')


@dataclasses.dataclass(frozen=True)
class Config(word_input.Config):
  """Sizes and switches; the attributes are those of `word_input.Config`, and

  Attributes:
    D: cells of a recurrent layer in one direction; a linear layer has 2 D.
    cell: 'gru' or 'lstm'.
    self_attention: Clark and Gardner's model; False is Seo et al.'s.
    no_alignment: the self-attention may attend to nothing, see the module's docstring.
    highways: highway layers over words and their characters.
    dropout: dropout rate before recurrent and linear layers.
    locked: one dropout mask for all words of a text; otherwise one for each word.
    passage_dropout: also drop the input of the passage's contextual layer; otherwise only the question's.
    dropout_characters: dropout rate of the characters' embeddings.
    initial: 'pytorch', or 'tensorflow' for all but the word table and the biLM, see lmx/layers/unit_scaling.py.
  """

  char_filters: char_cnn.Filters = ((5, 100),)  # ablate_elmo_model.py, as the fields below
  char_characters: int = 20
  D: int = 90
  cell: str = 'gru'
  self_attention: bool = True
  no_alignment: bool = True
  highways: int = 0
  dropout: float = 0.2
  locked: bool = True
  passage_dropout: bool = True
  dropout_characters: float = 0.0
  initial: str = 'pytorch'

  def __post_init__(self) -> None:
    super().__post_init__()
    check_least('model', self, D=1, highways=0)
    check_choice('model.cell', self.cell, CELLS)
    check_choice('model.initial', self.initial, ('pytorch', 'tensorflow'))
    if self.initial == 'tensorflow' and (self.self_attention or self.cell != 'lstm'):
      raise InputError(
        f'model.initial: got "tensorflow" with model.cell "{self.cell}" and model.self_attention '
        f'{self.self_attention}; expected "lstm" and False'
      )
    if self.no_alignment and not self.self_attention:
      raise InputError('model.no_alignment: got True with model.self_attention=False; set it to False')

  @property
  def N(self) -> int:  # noqa: N802
    """Layers: the contextual one, attention, and self-attention or the two of the modelling layer."""
    return 3 if self.self_attention else 4


VARIANTS: dict[str, dict[str, Any]] = {
  'base': {},
  **word_input.elmo_variants('both'),
  'seo': {
    'E': 100,
    'char_characters': 8,
    'D': 100,
    'cell': 'lstm',
    'self_attention': False,
    'no_alignment': False,
    'highways': 2,
    'locked': False,
    'passage_dropout': False,
    'dropout_characters': 0.2,
    'initial': 'tensorflow',
  },
  'tiny': {**word_input.TINY, 'D': 8, 'dropout': 0.1},
}


def _linear(key: Array, width_in: int, width: int) -> Params:
  glorot = jax.nn.initializers.glorot_uniform()
  return {'kernel': glorot(key, (width_in, width), jnp.float32), 'bias': jnp.zeros(width, jnp.float32)}


def _trilinear(key: Array, width: int) -> Params:
  """Initialise w of a score: Glorot-uniform as Keras does a vector, whose fan-in and fan-out are both its width."""
  keys = jax.random.split(key, 3)
  uniform = lambda key: jax.random.uniform(key, (width,), jnp.float32, -1.0, 1.0) * (3 / width) ** 0.5
  return {'query': uniform(keys[0]), 'key': uniform(keys[1]), 'product': uniform(keys[2])}


def _as_tensorflow(params: Params, key: Array) -> Params:
  """Return the parameters newly initialised by `unit_scaling`, but the word table, the biLM and the mixes."""
  drawn = unit_scaling.redraw({name: part for name, part in params.items() if name not in _KEPT}, key)
  kept = {name: params[name] for name in _KEPT if name in params}
  return {**drawn, **kept, 'embed': {**drawn['embed'], 'table': params['embed']['table']}}


def init(cfg: Config, key: Array) -> Params:
  """Initialise embed, bilm, mix_input, mix_output (those that the Config has), and the layers.

  Returns:
    'highway': {'highway_0', ...}, if there are any, see `char_cnn.init_highway`; 'layer_00': contextual {'forward',
    'backward'}; 'layer_01': {'attention': {'query', 'key', 'product'}, 'linear'}; 'layer_02': self-attention
    {'forward', 'backward', 'attention', 'nothing', 'linear'}. Without self-attention 'layer_01' has no linear layer,
    and 'layer_02' and 'layer_03' are the modelling layer.
  """
  table_key, spelling_key, bilm_key, *keys = jax.random.split(key, 11)
  recurrent = lambda keys, width: bidirectional.init(keys, width, cfg.D, cfg.cell)
  params = word_input.init(cfg, table_key, spelling_key, bilm_key)
  if cfg.highways:
    pairs = jax.random.split(jax.random.fold_in(key, 1), (cfg.highways, 2))
    layers = [char_cnn.init_highway(pair[0], pair[1], word_input.word_width(cfg), 0.0) for pair in pairs]
    params['highway'] = {f'highway_{i}': layer for i, layer in enumerate(layers)}
  params['layer_00'] = recurrent(keys[:2], word_input.word_width(cfg) + word_input.elmo_width(cfg, 'input'))
  width = 2 * cfg.D
  H = width + word_input.elmo_width(cfg, 'output')
  params['layer_01'] = {'attention': _trilinear(keys[2], H)}
  if not cfg.self_attention:
    params |= {'layer_02': recurrent(keys[4:6], 4 * H), 'layer_03': recurrent(keys[6:8], width)}
    return _as_tensorflow(params, key) if cfg.initial == 'tensorflow' else params
  params['layer_01']['linear'] = _linear(keys[3], 4 * H, width)
  own = {'attention': _trilinear(keys[6], width), 'linear': _linear(keys[7], 3 * width, width)}
  nothing = {'nothing': jnp.float32(-1.0)} if cfg.no_alignment else {}  # document-qa's start
  return {**params, 'layer_02': {**recurrent(keys[4:6], width), **own, **nothing}}


def scores(params: Params, x_BTD: Array, y_BSD: Array) -> Array:
  """Return w · [x; y; x (.) y] for each pair, (B, T, S) float32, without an array (B, T, S, D)."""
  dtype = x_BTD.dtype
  query_BT = einsum('BTD,D->BT', x_BTD, params['query'].astype(dtype))
  key_BS = einsum('BSD,D->BS', y_BSD, params['key'].astype(dtype))
  return query_BT[..., None] + key_BS[:, None] + einsum('BTD,BSD->BTS', x_BTD * params['product'].astype(dtype), y_BSD)


def _softmax_with_null(scores_BTS: Array, mask_BTS: Array, null: Array | None) -> Array:
  """Return the masked softmax over S; with the score `null` a position may attend to nothing."""
  if null is None:
    return masked_softmax(scores_BTS, mask_BTS)
  null_BT1 = jnp.broadcast_to(null, (*scores_BTS.shape[:-1], 1))
  scores_BTS = jnp.concatenate([scores_BTS, null_BT1], -1)
  mask_BTS = jnp.concatenate([mask_BTS, jnp.ones_like(null_BT1, bool)], -1)
  return masked_softmax(scores_BTS, mask_BTS)[..., :-1]


def attention_flow(params: Params, h_BTD: Array, u_BSD: Array, valid_BT: Array, valid_BS: Array) -> Array:
  """Return [h; a; h (.) a; h (.) c] of the module's docstring (Seo et al., equations 1 to 4), (B, T, 4 D)."""
  scores_BTS = scores(params, h_BTD, u_BSD)
  p_BTS = masked_softmax(scores_BTS, jnp.broadcast_to(valid_BS[:, None], scores_BTS.shape))
  record_attention('cross', lambda: p_BTS)
  a_BTD = einsum('BTS,BSD->BTD', p_BTS.astype(u_BSD.dtype), u_BSD).astype(h_BTD.dtype)
  best_BT = jnp.max(jnp.where(valid_BS[:, None], scores_BTS, NEVER), axis=2)
  c_BD = einsum('BT,BTD->BD', masked_softmax(best_BT, valid_BT).astype(h_BTD.dtype), h_BTD).astype(h_BTD.dtype)
  return jnp.concatenate([h_BTD, a_BTD, h_BTD * a_BTD, h_BTD * c_BD[:, None]], -1)


def self_attention(params: Params, x_BTD: Array, valid_BT: Array) -> Array:
  """Return [a; x; x (.) a], a the mean of the other words (Clark and Gardner, section 4), (B, T, 3 D).

  Args:
    params: {'attention'}, and 'nothing' with `no_alignment`.
  """
  others_BTS = valid_BT[:, None] & ~jnp.eye(x_BTD.shape[1], dtype=bool)
  p_BTS = _softmax_with_null(scores(params['attention'], x_BTD, x_BTD), others_BTS, params.get('nothing'))
  record_attention('self', lambda: p_BTS)
  a_BTD = einsum('BTS,BSD->BTD', p_BTS.astype(x_BTD.dtype), x_BTD).astype(x_BTD.dtype)
  return jnp.concatenate([a_BTD, x_BTD, x_BTD * a_BTD], -1)


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the model over passages and their questions.

  Args:
    batch: tokens_BT and valid_BT (optional) of the passage, tokens_BS and valid_BS (optional) of the question;
      characters_BTC and characters_BSC if characters or ELMo are used.
    state: ().
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the input of the passage's first layer and the output of each, before dropout.

  Returns:
    (Features with last_BTD, of the passage, after dropout; ()).
  """
  passage_key, question_key, flow_key, *keys = split(key, 8)
  valid, words = {axis: word_input.valid(batch, axis) for axis in 'TS'}, word_input.look_up(cfg, params, batch)
  drop = lambda x_BTD, key: (locked_dropout if cfg.locked else dropout)(x_BTD, cfg.dropout, key)

  def recurrent(own: Params, x_BTD: Array, key: Array | None, axis: str = 'T') -> Array:
    x_BTD = drop(x_BTD, key)
    return bidirectional.layer(own, x_BTD, valid[axis], cell=cfg.cell, dtype=cfg.dtype, backend=cfg.backend)

  def linear(own: Params, x_BTD: Array, key: Array | None) -> Array:
    x_BTD = drop(x_BTD, key)
    return jax.nn.relu(x_BTD @ own['kernel'].astype(x_BTD.dtype) + own['bias'].astype(x_BTD.dtype))

  def encode(axis: str, key: Array | None) -> tuple[Array, Array]:
    """Return the input of the contextual layer, and its output with the ELMo vectors there."""
    bilm_key, elmo_key, word_key = split(key, 3)
    vectors = word_input.elmo_vectors(cfg, params, batch, valid[axis], bilm_key, elmo_key, axis)
    letters_key = None if key is None else jax.random.fold_in(key, 3)
    x_BTD = word_input.embed(cfg, params, batch, axis, cfg.dropout_characters, letters_key, words=words)
    for i in range(cfg.highways):
      x_BTD = char_cnn.highway(params['highway'][f'highway_{i}'], x_BTD)
    x_BTD = word_input.concatenate(x_BTD, vectors, 'input')
    word_key = word_key if axis == 'S' or cfg.passage_dropout else None
    return x_BTD, word_input.concatenate(recurrent(params['layer_00'], x_BTD, word_key, axis), vectors, 'output')

  x_BTD, h_BTD = encode('T', passage_key)
  _, u_BSD = encode('S', question_key)
  flow = params['layer_01']
  g_BTD = attention_flow(flow['attention'], h_BTD, u_BSD, valid['T'], valid['S'])
  hidden = [x_BTD, h_BTD]
  if cfg.self_attention:
    own = params['layer_02']
    hidden.append(linear(flow['linear'], g_BTD, flow_key))
    y_BTD = self_attention(own, recurrent(own, hidden[-1], keys[0]), valid['T'])
    hidden.append(hidden[-1] + linear(own['linear'], y_BTD, keys[1]))
    last_BTD = hidden[-1]
  else:
    hidden.append(g_BTD)
    hidden.append(recurrent(params['layer_02'], g_BTD, keys[0]))
    hidden.append(recurrent(params['layer_03'], hidden[-1], keys[1]))
    last_BTD = jnp.concatenate([g_BTD, hidden[-1]], -1)
  last_BTD = drop(last_BTD, keys[2])
  return Features(last_BTD, layers=tuple(hidden) if all_layers else None), state


def read_shapes(cfg: Config, rows: dict[str, jax.ShapeDtypeStruct]) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch with the question, see `word_input.read_shapes`."""
  del cfg
  return word_input.read_shapes(rows, 2)


penalties, penalty_weights = word_input.penalties, word_input.penalty_weights


def depth(cfg: Config, path: tuple[str, ...]) -> int:
  """Return a parameter's layer number: embeddings, biLM and input mix 0, layer i is i + 1, output mix 1."""
  if path[0].startswith('layer_'):
    return int(path[0].removeprefix('layer_')) + 1
  return int(path[0] == 'mix_output')
