"""Input of an objective's head: model layers, and optional bidirectional LSTM layers over them.

Devlin et al. 2019 (arXiv 1810.04805): features from a frozen model for a tagger (section 5.3, table 7), "a randomly
initialized two-layer 768-dimensional BiLSTM before the classification layer", and a BiLSTM on top of a left-to-right
model (section 5.1). The weights of a sum are learned (`scalar_mix`). The paper does not say whether 768 is the width of
one direction; here it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lmx import objectives
from lmx.errors import InputError, check_choice, check_least
from lmx.layers import bidirectional, packing, scalar_mix
from lmx.types import Array, Batch, Features, Model, Params, State

FEATURES = ('last', 'second_to_last', 'embeddings', 'sum_last_4', 'concat_last_4', 'sum_all')


@dataclasses.dataclass(frozen=True)
class Config(objectives.Config):
  """Options of the head's input, in addition to those of `objectives.Config`.

  Attributes:
    features: layers that are read: 'last'; 'second_to_last'; 'embeddings', the input of the first layer; 'sum_last_4'
      and 'sum_all', with learned weights, of the last four and of all but the embeddings; 'concat_last_4'.
    frozen: stop the gradient into the model, and disable its dropout. Weight decay is `optim.groups`'.
    lstm_layers: bidirectional LSTM layers over them.
    lstm_width: cells of a layer in one direction.
  """

  features: str = 'last'
  frozen: bool = False
  lstm_layers: int = 0
  lstm_width: int = 768

  def __post_init__(self) -> None:
    super().__post_init__()
    check_choice('objective.features', self.features, FEATURES)
    check_least('objective', self, lstm_layers=0, lstm_width=1)
    if not self.lstm_layers and self.lstm_width != Config.lstm_width:
      raise InputError(f'objective.lstm_width: got {self.lstm_width} without layers; set objective.lstm_layers')

  @property
  def is_last_layer(self) -> bool:
    """Return True if the head reads the model's last layer directly."""
    return self.features == 'last' and not self.lstm_layers


def init(cfg: Config, width: int, layers: int, key: Array) -> Params:
  """Initialise {'mix': of a sum, 'lstm': {'layer_00': see `bidirectional.init`, ..}}, or {} for the last layer.

  Args:
    width: of the model's layers.
    layers: number of the model's layers, embeddings not counted.
  """
  params: dict[str, Any] = {}
  if cfg.features.startswith('sum'):
    params['mix'] = scalar_mix.init(4 if cfg.features == 'sum_last_4' else layers)
  width *= 4 if cfg.features == 'concat_last_4' else 1
  if cfg.lstm_layers:
    params['lstm'] = {}
    for i, layer_key in enumerate(jax.random.split(jax.random.fold_in(key, 1), cfg.lstm_layers)):
      params['lstm'][_name(i)] = bidirectional.init(tuple(jax.random.split(layer_key)), width, cfg.lstm_width)
      width = 2 * cfg.lstm_width
  return params


def _name(i: int) -> str:
  return f'layer_{i:02d}'


def sizes(cfg: Config, features: Features) -> tuple[int, int, int]:
  """Return (width of the head's input, width of the model's layers, their number without the embeddings)."""
  width, layers = features.last_BTD.shape[-1], len(features.layers or ()) - 1
  if cfg.features in ('sum_last_4', 'concat_last_4') and layers < 4:
    raise InputError(f'objective.features: got "{cfg.features}" with {layers} layers; expected a model with at least 4')
  if cfg.features != 'last':
    width = (features.layers or ())[-1].shape[-1]
  read = width * (4 if cfg.features == 'concat_last_4' else 1)
  return 2 * cfg.lstm_width if cfg.lstm_layers else read, width, layers


def one_token(model: Model, model_cfg: Any, shapes: Mapping[str, Any]) -> Batch:
  """Return a batch of zeros for a trace.

  Args:
    shapes: those of the objective for one row of one token; what else the model reads is added.
  """
  shapes = model.read_shapes(model_cfg, dict(shapes))
  return {name: jnp.zeros(leaf.shape, leaf.dtype) for name, leaf in shapes.items()}


def apply(
  cfg: Config,
  model: Model,
  model_cfg: Any,
  params: Params,
  batch: Batch,
  state: State,
  key: Array | None,
  *,
  all_layers: bool = False,
) -> tuple[Features, State]:
  """Apply the model; return its features, with all layers if the head reads others than the last, and its state.

  Args:
    params: {'model': ..., 'objective': ...}.
    batch: that of the model; with `packed_PT` its rows are computed as lmx/layers/packing.py says.
    key: PRNG key of the model's dropout; None at evaluation.
    all_layers: also return all layers if the head's input is the last.
  """
  own, layers = params['model'], {'all_layers': True} if all_layers or cfg.features != 'last' else {}
  if cfg.frozen:
    own, key = jax.lax.stop_gradient(own), None
  if 'packed_PT' not in batch:
    return model.apply(model_cfg, own, batch, state, key, **layers)
  features, state = model.apply(model_cfg, own, packing.pack(batch), state, key, **layers)
  return packing.unpack(model, own, features, batch), state


def read(cfg: Config, params: Params, features: Features, valid_BT: Array) -> Array:
  """Return the head's input, (B, T, D), from the model's features.

  Args:
    params: of the objective, with those of `init`.
    valid_BT: bool, positions that the LSTM reads, which come first.
  """
  layers = features.layers or ()
  if cfg.features == 'last':
    x_BTD = features.last_BTD
  elif cfg.features in ('second_to_last', 'embeddings'):
    x_BTD = layers[-2 if cfg.features == 'second_to_last' else 0]
  elif cfg.features == 'concat_last_4':
    x_BTD = jnp.concatenate(layers[-4:], -1)
  else:
    x_BTD = scalar_mix.mix(params['mix'], layers[-4:] if cfg.features == 'sum_last_4' else layers[1:])
  for i in range(cfg.lstm_layers):
    x_BTD = bidirectional.layer(params['lstm'][_name(i)], x_BTD, valid_BT)
  return x_BTD
