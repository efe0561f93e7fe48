"""Bidirectional LSTM for tasks, with or without ELMo (Peters et al. 2018, arXiv 1802.05365, sections 3.2 and 3.3).

Words of lmx/layers/word_input.py and N bidirectional LSTM layers; ELMo vectors are concatenated to the input of the
first layer, to the output of the last, or both (section 3.3). The sizes are the named-entity tagger's of
appendix A.6, as AllenNLP released it (training_config/ner_elmo.jsonnet): embeddings of 50, 128 character filters of
width 3, two layers of 200 cells per direction. Pooled, it is a classifier. The head belongs to the objective (`tag`,
`classify`): there is no output over words.

Deviations: as in lmx/layers/word_input.py; LSTMs are initialised uniformly in +-1/sqrt(D) as in PyTorch, because the
paper gives nothing; the character CNN as in ELMo. AllenNLP's labels are BIOUL and its CRF has no start and end scores;
here they are BIO, with both.

Axes: C characters of a word, D cells of one direction.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from lmx import layout
from lmx.errors import check_least
from lmx.layers import bidirectional, char_cnn, word_input
from lmx.ops.dropout import dropout, split
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = False
OBJECTIVE = 'tag'
READS = 'characters'
WORDS = False  # no output over words
WORD_TABLE = 'embed/table'  # rows that data.vectors may give


@dataclasses.dataclass(frozen=True)
class Config(word_input.Config):
  """Sizes and switches; the attributes are those of `word_input.Config`, and

  Attributes:
    D: cells of an LSTM layer in one direction.
    N: number of layers.
    dropout: dropout rate of the input of the first layer and the output of each.
  """

  E: int = 50  # ner_elmo.jsonnet, as the filters, the two fields below and the dropout rates
  char_filters: char_cnn.Filters = ((3, 128),)
  D: int = 200
  N: int = 2
  dropout: float = 0.5

  def __post_init__(self) -> None:
    super().__post_init__()
    check_least('model', self, D=1, N=1)


VARIANTS: dict[str, dict[str, Any]] = {
  'base': {},
  **word_input.elmo_variants(),
  'tiny': {**word_input.TINY, 'D': 8, 'N': 1, 'dropout': 0.1},
}


def init(cfg: Config, key: Array) -> Params:
  """Initialise embed {'table', 'spelling'}, bilm, mix_input, mix_output, layer_00 {'forward', 'backward'}, ..."""
  table_key, spelling_key, bilm_key, *keys = jax.random.split(key, 3 + 2 * cfg.N)
  params = word_input.init(cfg, table_key, spelling_key, bilm_key)
  width = word_input.word_width(cfg) + word_input.elmo_width(cfg, 'input')
  for i in range(cfg.N):
    params[layout.layer_name(i)] = bidirectional.init(keys[2 * i : 2 * i + 2], width, cfg.D)
    width = 2 * cfg.D
  return params


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the model over rows of words.

  Args:
    batch: tokens_BT, characters_BTC if characters or ELMo are used, valid_BT (optional).
    state: ().
    key: PRNG key of dropout, None at evaluation.
    all_layers: also return the input of the first layer and the output of each, before dropout.

  Returns:
    (Features with last_BTD: the last layer's output after dropout, with ELMo vectors concatenated as in `elmo`; ()).
  """
  valid_BT = word_input.valid(batch)
  bilm_key, elmo_key, input_key, *keys = split(key, 3 + cfg.N)
  vectors = word_input.elmo_vectors(cfg, params, batch, valid_BT, bilm_key, elmo_key)
  x_BTD = dropout(word_input.embed(cfg, params, batch), cfg.dropout, input_key)
  x_BTD = word_input.concatenate(x_BTD, vectors, 'input')
  hidden = [x_BTD]
  for i, k in enumerate(keys):
    hidden.append(layout.run(bidirectional.layer, params, i, x_BTD, valid_BT, dtype=cfg.dtype, backend=cfg.backend))
    x_BTD = dropout(hidden[-1], cfg.dropout, k)
  x_BTD = word_input.concatenate(x_BTD, vectors, 'output')
  return Features(x_BTD, layers=tuple(hidden) if all_layers else None), state


def read_shapes(cfg: Config, rows: dict[str, Any]) -> dict[str, Any]:
  """Return the shapes of a batch with the characters of its words."""
  del cfg
  return word_input.read_shapes(rows, 1)


penalties, penalty_weights, depth = word_input.penalties, word_input.penalty_weights, word_input.depth
