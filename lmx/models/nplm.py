"""Neural probabilistic language model: a window of words, shared embeddings, one tanh layer.

Paper: Bengio, Ducharme, Vincent & Jauvin 2003, "A Neural Probabilistic Language Model", JMLR 3, 1137-1155, section 2:

    x = (C(w_t-1), C(w_t-2), ..., C(w_t-n+1))        the previous words, the nearest first
    y = b + W x + U tanh(d + H x)                    equation 1; p(w_t | ...) = softmax(y)

with |V| (1 + n m + h) + h (1 + (n - 1) m) parameters. Without direct connections W = 0, and with h = 0 there is no
hidden layer ("MLP3" and "MLP4" of table 1). `layer_00` holds H and d; `output/table` holds U and, after its h columns,
W, so that both are one product.

Run as a causal model over a row of tokens: position t reads its own word and the n - 2 before it. Words before
the row come from the state, so rows of any length give the same result as a window over the whole text. Before the
first word the feature vector is 0. The paper specifies neither this nor the initialisation, which here is
uniform in +-init_scale / sqrt(columns), the rows of C in +-embed_scale. Training (stochastic
gradient ascent, decay, early stopping) and the mixture with a trigram belong to the experiment and to evaluation.

Axes: E width (n - 1) m of x, L = n - 2 + T positions of the row with its context, S words of the context in the state.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lmx.errors import InputError, check_least
from lmx.layers import embedding, softmax
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'causal_lm'
VOCABULARY = ('embed/table', 'output/table', 'output/bias')  # leaves with a row for each word


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches, in the letters of the paper.

  Attributes:
    V: vocabulary size.
    n: order of the model: it reads n - 1 words.
    m: width of the embedding.
    h: hidden units; 0 removes the hidden layer and needs `direct`.
    direct: use connections W from the embeddings to the output.
    init_scale: matrices are initialised uniformly in +-init_scale / sqrt(their inputs), biases at 0.
    embed_scale: the embedding is initialised uniformly in +-embed_scale.
    dtype: compute type.
  """

  V: int = 16_383  # section 4.1, Brown
  n: int = 5
  m: int = 60
  h: int = 50
  direct: bool = True
  init_scale: float = 1.0
  embed_scale: float = 0.1
  dtype: str = 'float32'

  def __post_init__(self) -> None:
    check_least('model', self, n=2, m=1, h=0)
    if not self.h and not self.direct:
      raise InputError('model.direct: got false without hidden units (model.h=0); set model.direct=true or model.h')

  @property
  def N(self) -> int:  # noqa: N802
    """Number of layers between the embedding and the output: 1, or 0 without hidden units."""
    return 1 if self.h else 0

  @property
  def D(self) -> int:  # noqa: N802
    """Width of the output layer's input: the hidden units, and x if there are direct connections."""
    return self.h + (self.E if self.direct else 0)

  @property
  def E(self) -> int:  # noqa: N802
    """Width of x."""
    return (self.n - 1) * self.m


VARIANTS = {  # table 1; every second row mixes the previous model with the trigram
  'mlp1': dict(n=5, h=50, m=60, direct=True),
  'mlp3': dict(n=5, h=0, m=60, direct=True),
  'mlp5': dict(n=5, h=50, m=30, direct=True),
  'mlp7': dict(n=3, h=50, m=30, direct=True),
  'mlp9': dict(n=5, h=100, m=30, direct=False),
  'ap': dict(V=17_964, n=6, h=60, m=100, direct=True),  # table 2, "MLP10"
  'tiny': dict(V=61, n=8, m=4, h=16, direct=True, embed_scale=0.5),
}


def _uniform(key: Array, shape: tuple[int, ...], scale: float) -> Array:
  return jax.random.uniform(key, shape, jnp.float32, -scale, scale)


def init(cfg: Config, key: Array) -> Params:
  """Initialise embed/table C (V, m), layer_00/kernel H (E, h) and bias d, output/table [U W] (V, D) and bias b."""
  embed_key, hidden_key, output_key = jax.random.split(key, 3)
  params: dict[str, Any] = {'embed': {'table': _uniform(embed_key, (cfg.V, cfg.m), cfg.embed_scale)}}
  if cfg.h:
    kernel = _uniform(hidden_key, (cfg.E, cfg.h), cfg.init_scale * cfg.E**-0.5)
    params['layer_00'] = {'kernel': kernel, 'bias': jnp.zeros(cfg.h, jnp.float32)}
  table = _uniform(output_key, (cfg.V, cfg.D), cfg.init_scale * cfg.D**-0.5)
  params['output'] = {'table': table, 'bias': jnp.zeros(cfg.V, jnp.float32)}
  return params


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """Return the n - 2 words before the row, (B, S) int32, -1 where there is none; () for a bigram model."""
  del length  # the context size does not depend on the length
  return () if cfg.n == 2 else {'context_BS': jnp.full((batch_size, cfg.n - 2), -1, jnp.int32)}


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run over the window that ends at each position of `tokens_BT`.

  Args:
    batch: tokens_BT; valid_BT (optional): invalid words, on the right, do not enter the state.
    state: from `init_state` or the previous call.
    key: unused, there is no dropout.
    all_layers: also return x and, if there is one, the hidden layer.

  Returns:
    (Features with last_BTD = [hidden units, x], or the part that the output layer uses; state).
  """
  del key
  tokens_BT = batch['tokens_BT']
  B, T = tokens_BT.shape
  words_BL = jnp.concatenate([state['context_BS'], tokens_BT], axis=1) if state else tokens_BT
  there_BL1 = (words_BL >= 0)[..., None].astype(cfg.dtype)
  c_BLE = embedding.lookup(params['embed']['table'], jnp.maximum(words_BL, 0), cfg.dtype) * there_BL1
  x_BTE = jnp.concatenate([c_BLE[:, i : i + T] for i in reversed(range(cfg.n - 1))], axis=-1)
  output_inputs = [x_BTE] if cfg.direct else []
  layers = [x_BTE]
  if cfg.h:
    kernel_ED = params['layer_00']['kernel'].astype(cfg.dtype)
    sum_BTD = jnp.einsum('BTE,ED->BTD', x_BTE, kernel_ED, preferred_element_type=jnp.float32)
    layers.append(jnp.tanh(sum_BTD + params['layer_00']['bias']).astype(cfg.dtype))
    output_inputs.insert(0, layers[-1])
  if state:
    valid_BT = batch.get('valid_BT')
    count_B = jnp.full(B, T) if valid_BT is None else jnp.sum(valid_BT, axis=1, dtype=jnp.int32)
    last_BS = count_B[:, None] + jnp.arange(cfg.n - 2)
    state = {'context_BS': jnp.take_along_axis(words_BL, last_BS, axis=1)}
  return Features(jnp.concatenate(output_inputs, axis=-1), layers=tuple(layers) if all_layers else None), state


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits y of the next word, (B, T, V) float32."""
  return softmax.tied_logits(features.last_BTD, params['output']['table'], params['output']['bias'], size=cfg.V)


def nll(cfg: Config, params: Params, features: Features, targets_BT: Array) -> Array:
  """Return the negative log-likelihood of each target in nats, (B, T) float32."""
  return softmax.tied_nll(
    features.last_BTD, params['output']['table'], targets_BT, params['output']['bias'], size=cfg.V
  )
