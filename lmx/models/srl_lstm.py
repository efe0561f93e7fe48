"""Deep LSTM for semantic role labelling (He et al. 2017, "Deep Semantic Role Labeling: What Works and What's Next").

A tagger that reads a sentence with one of its predicates. The input is the words of lmx/layers/word_input.py, each with
the embedding of a bit that is 1 at the predicate. N highway LSTM layers follow (section 2.1,
lmx/layers/highway_lstm.py), which read forwards and backwards in turn. The labels are BIO; the objective `tag` has a
softmax of each word and decodes the best sequence in which an I follows a B or I of its role (section 2.2, without its
constraints on roles and syntax). Sizes, initialisation and regularisation follow section 3 and the released code
(luheng/deep_srl, config/srl_config.json). ELMo vectors (Peters et al. 2018, arXiv 1802.05365, appendix A) are
concatenated to the input of the first layer, to the output of the last, or both.

Parameters of `base`: V x 100 of words, 200 of the predicate's bit, 811,800 of the first layer and 991,800 of each
other: 7,754,600 without the words.

Deviations: as in lmx/layers/word_input.py; dropout divides by 1 - rate in training, as AllenNLP's, where the released
code multiplies by 1 - rate at evaluation; one model, not a product of five. AllenNLP's model with ELMo
(semantic_role_labeler_elmo.jsonnet) has no word embeddings, and its head is initialised orthonormally; here words have
an embedding and an ELMo vector, as the paper says.

Axes: E width of a word embedding, D cells of a layer, P projection of the biLM.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import check_least
from lmx.layers import embedding, highway_lstm, word_input
from lmx.layers.reversal import reversal
from lmx.ops.dropout import split
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = False
OBJECTIVE = 'tag'
OBJECTIVE_FIELDS = {'crf': False, 'scorer': 'srl_eval', 'init_std': 0.01}
READS = 'characters'
WORDS = False  # no output over words
WORD_TABLE = 'embed/table'  # rows that data.vectors may give
_STD = 0.01  # of embeddings; layer.py


@dataclasses.dataclass(frozen=True)
class Config(word_input.Config):
  """Sizes and switches; the attributes are those of `word_input.Config`, and

  Attributes:
    predicate_width: width of the embedding of the predicate's bit.
    D: cells of a layer.
    N: number of layers.
    dropout: dropout rate of the output of a layer, with one mask for all steps.
  """

  E: int = 100  # srl_config.json, as the four fields below
  predicate_width: int = 100
  D: int = 300
  N: int = 8
  dropout: float = 0.1
  dropout_elmo: float = 0.1  # semantic_role_labeler_elmo.jsonnet

  def __post_init__(self) -> None:
    super().__post_init__()
    check_least('model', self, predicate_width=1, D=1, N=1)


VARIANTS: dict[str, dict[str, Any]] = {
  'base': {},
  **word_input.elmo_variants(),
  'tiny': {**word_input.TINY, 'char_projection': 0, 'predicate_width': 4, 'D': 8, 'N': 2},
}


def init(cfg: Config, key: Array) -> Params:
  """Initialise embed {'table', 'spelling', 'predicate'}, bilm, mix_input, mix_output, layer_00, layer_01, ..."""
  table_key, spelling_key, bilm_key, predicate_key, *keys = jax.random.split(key, 4 + cfg.N)
  params = word_input.init(cfg, table_key, spelling_key, bilm_key)
  params['embed']['table'] = embedding.table(table_key, cfg.V, cfg.E, _STD)
  params['embed']['predicate'] = embedding.table(predicate_key, 2, cfg.predicate_width, _STD)
  width = word_input.word_width(cfg) + cfg.predicate_width + word_input.elmo_width(cfg, 'input')
  for i, layer_key in enumerate(keys):
    params[layout.layer_name(i)] = highway_lstm.init(layer_key, width, cfg.D)
    width = cfg.D
  return params


def read_shapes(cfg: Config, rows: dict[str, jax.ShapeDtypeStruct]) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch with the predicate of each row."""
  del cfg
  return {**rows, 'predicate_BT': jax.ShapeDtypeStruct(rows['tokens_BT'].shape, jnp.int32)}


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the model over rows of words.

  Args:
    batch: tokens_BT, predicate_BT, characters_BTC if characters or ELMo are used, valid_BT (optional).
    state: ().
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the input of the first layer and the output of each.

  Returns:
    (Features with last_BTD: the last layer's output, with ELMo vectors concatenated as in `elmo`; ()).
  """
  valid_BT = word_input.valid(batch)
  bilm_key, elmo_key, *keys = split(key, 2 + cfg.N)
  vectors = word_input.elmo_vectors(cfg, params, batch, valid_BT, bilm_key, elmo_key)
  predicate_BTE = embedding.lookup(params['embed']['predicate'], batch['predicate_BT'], cfg.dtype)
  x_BTD = jnp.concatenate([word_input.embed(cfg, params, batch), predicate_BTE], -1)
  hidden = [word_input.concatenate(x_BTD, vectors, 'input')]
  index_BT1 = reversal(valid_BT)[..., None]
  for i, layer_key in enumerate(keys):
    x_BTD = hidden[-1] if i % 2 == 0 else jnp.take_along_axis(hidden[-1], index_BT1, axis=1)
    inputs = x_BTD.swapaxes(0, 1), valid_BT.T, cfg.dropout, layer_key
    x_TBD = layout.run(highway_lstm.layer, params, i, *inputs, dtype=cfg.dtype)
    x_BTD = x_TBD.swapaxes(0, 1)
    hidden.append(x_BTD if i % 2 == 0 else jnp.take_along_axis(x_BTD, index_BT1, axis=1))
  x_BTD = word_input.concatenate(hidden[-1], vectors, 'output')
  return Features(x_BTD, layers=tuple(hidden) if all_layers else None), state


penalties, penalty_weights, depth = word_input.penalties, word_input.penalty_weights, word_input.depth
