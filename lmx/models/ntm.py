"""Neural Turing Machine (Graves, Wayne & Danihelka 2014, arXiv 1410.5401), and its baseline, the stacked LSTM.

A controller, feed-forward or LSTM, reads the input and the previous step's read vectors. H write heads and
H read heads address a memory of `rows` x `width` (section 3; lmx/layers/ntm_memory.py). Within a step the memory is
written first and then read (equation 2). `H=0` is a network without memory, the LSTM of the paper's table 3:
every layer reads the input and the output layer reads every layer, as its parameter counts imply. The
initial state of an episode is learned ("reset to bias values", section 4): weightings, read vectors, the LSTM's state;
for the memory, see `memory`.

It reads vectors and not words (`READS`, `WORDS`); `logits` are the bits' logits; the loss is lmx/objectives/bits.py.

Choices where the paper gives none: tanh on the controller's layer, the keys and the add vectors. Output and heads read
the controller, the output also the read vectors. `memory='constant'`, 1e-6 in every cell, is from
Collier & Beel 2018 (arXiv 1807.08518), who find that it learns fastest; the paper's is 'learned'; 'random' samples a
memory per episode, at evaluation always the same. Parameter counts differ from tables 1 and 2: with a
learned memory 16,317 and 65,817 for copying, the paper's 17,162 and 67,561. docs/notes/ntm.md discusses what
these counts imply about its layout. The networks without memory have the counts of table 3.

Axes: S rows of the memory (the paper's N), W width of a row (its M), K shifts, I inputs, O outputs.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp

from lmx import layout
from lmx.errors import InputError, check_choice, check_least, check_range
from lmx.layers import ntm_memory as memory_lib
from lmx.layers import recurrent
from lmx.ops import rnn
from lmx.types import Array, Batch, Features, Params, State

CAUSAL = True
OBJECTIVE = 'bits'
READS = 'vectors'
WORDS = False
CONTROLLERS = ('feedforward', 'lstm')
MEMORIES = ('constant', 'learned', 'random')


@dataclasses.dataclass(frozen=True)
class Config:
  """Sizes and switches.

  Attributes:
    I: number of inputs per step.
    O: number of predicted bits per step.
    controller: 'feedforward' or 'lstm'.
    D: width of a controller layer.
    N: number of controller layers; each reads the input, the read vectors and the layer below.
    H: read heads, and as many write heads; 0 for no memory.
    rows: rows of the memory.
    width: width of a row.
    shifts: a weighting moves by up to this many rows in either direction.
    memory: initial content of the memory: 'constant', 'learned' or 'random'.
    memory_value: the constant, or the standard deviation of the initialisation: of 'learned' contents (a
      normal), or of 'random' ones (a normal truncated at two standard deviations).
    focus: initial score of row 0 of each head; the initial weightings are learned from there.
    init_scale: kernels are uniform in +- init_scale / sqrt(width of their input).
    eps: added to the norms of the cosine, see lmx/layers/ntm_memory.py.
    dtype: compute type of the products of the controller; addressing is float32.
    remat: store only the state of each step for the backward pass, which halves the time of a step on a CPU.
  """

  I: int = 10
  O: int = 9
  controller: str = 'lstm'
  D: int = 100
  N: int = 1
  H: int = 1
  rows: int = 128
  width: int = 20
  shifts: int = 1
  memory: str = 'constant'
  memory_value: float = 1e-6  # arXiv 1807.08518, section 3.1
  focus: float = 5.0
  init_scale: float = 1.0
  eps: float = 1e-6
  dtype: str = 'float32'
  remat: bool = True

  def __post_init__(self) -> None:
    check_choice('model.controller', self.controller, CONTROLLERS)
    check_choice('model.memory', self.memory, MEMORIES)
    check_least('model', self, I=1, O=1, D=1, N=1, H=0, rows=1, width=1, shifts=0)
    check_range('model.init_scale', self.init_scale, 0)
    if not self.eps > 0:
      raise InputError(f'model.eps: got {self.eps}; expected a number above 0')
    if self.H and 2 * self.shifts + 1 > self.rows:
      raise InputError(
        f'model.shifts: got {self.shifts}; with {self.rows} rows expected at most {(self.rows - 1) // 2}'
      )


_IO = {  # (inputs, outputs) that give the LSTM networks table 3's parameter counts
  'copy': (10, 9),
  'repeat': (8, 7),
  'recall': (8, 6),
  'ngrams': (1, 1),
  'sort': (10, 8),
}


def _variants() -> dict[str, dict[str, Any]]:
  """Return the variants of tables 1 to 3 of the paper: heads and width of each network."""
  variants: dict[str, dict[str, Any]] = {}
  for task, heads, width in (
    ('copy', 1, 100),
    ('repeat', 1, 100),
    ('recall', 4, 256),
    ('ngrams', 1, 100),
    ('sort', 8, 512),
  ):
    variants[f'{task}_ff'] = dict(controller='feedforward', H=heads, D=width)
  for task, heads, layers in (('copy', 1, 1), ('repeat', 1, 1), ('recall', 1, 1), ('ngrams', 1, 1), ('sort', 5, 2)):
    variants[f'{task}_lstm'] = dict(controller='lstm', H=heads, D=100, N=layers)
  for task, width in (('copy', 256), ('repeat', 512), ('recall', 256), ('ngrams', 128), ('sort', 128)):
    variants[f'{task}_baseline'] = dict(controller='lstm', H=0, D=width, N=3)
  for name, fields in variants.items():
    fields['I'], fields['O'] = _IO[name.split('_')[0]]
  return variants


VARIANTS = {
  **_variants(),
  'tiny': dict(I=6, O=5, D=32, rows=16, width=8, memory='learned', memory_value=0.1, focus=1.0),
}


def _head_sizes(cfg: Config) -> tuple[tuple[int, ...], tuple[int, ...]]:
  """Return the sizes that a read head and a write head take from the controller's output, part by part."""
  addressing = memory_lib.sizes(cfg.width, 2 * cfg.shifts + 1)
  return addressing, (*addressing, cfg.width, cfg.width)


def _kernel(cfg: Config, key: Array, width_in: int, width: int) -> Array:
  half = cfg.init_scale * width_in**-0.5
  return jax.random.uniform(key, (width_in, width), jnp.float32, -half, half)


def init(cfg: Config, key: Array) -> Params:
  """Initialise start, layer_00 .., heads {'kernel', 'bias'} if there is a memory, output {'kernel', 'bias'}."""
  start_key, heads_key, output_key, *keys = jax.random.split(key, 3 + cfg.N)
  read_width = cfg.H * cfg.width
  params: dict[str, Any] = {'start': _init_start(cfg, start_key)}
  for i, k in enumerate(keys):
    width_in = cfg.I + read_width + (cfg.D if i else 0)
    if cfg.controller == 'lstm':
      scale = cfg.init_scale * (width_in + cfg.D) ** -0.5
      params[layout.layer_name(i)] = recurrent.init('lstm', k, width_in, cfg.D, scale=scale)
    else:
      params[layout.layer_name(i)] = {'input': _kernel(cfg, k, width_in, cfg.D), 'bias': jnp.zeros(cfg.D)}
  if cfg.H:
    outputs = cfg.H * sum(map(sum, _head_sizes(cfg)))
    params['heads'] = {'kernel': _kernel(cfg, heads_key, cfg.N * cfg.D, outputs), 'bias': jnp.zeros(outputs)}
  kernel = _kernel(cfg, output_key, cfg.N * cfg.D + read_width, cfg.O)
  return params | {'output': {'kernel': kernel, 'bias': jnp.zeros(cfg.O)}}


def _init_start(cfg: Config, key: Array) -> dict[str, Any]:
  """Initialise the start of an episode, as parameters: weightings as scores before their softmax, and so on."""
  read_key, write_key, memory_key = jax.random.split(key, 3)
  start: dict[str, Any] = {}
  if cfg.H:
    for name, k in (('read', read_key), ('write', write_key)):
      scores = 0.1 * jax.random.normal(k, (cfg.H, cfg.rows), jnp.float32)
      start[name] = scores.at[:, 0].add(cfg.focus)
    start['vectors'] = jnp.zeros((cfg.H, cfg.width))
    if cfg.memory == 'learned':
      start['memory'] = cfg.memory_value * jax.random.normal(memory_key, (cfg.rows, cfg.width), jnp.float32)
  if cfg.controller == 'lstm':
    start |= {name: jnp.zeros((cfg.N, cfg.D)) for name in ('hidden', 'cell')}
  return start


def init_state(cfg: Config, batch_size: int, length: int = 0) -> State:
  """Return zeros; `begun_B` False means that the learned start replaces them; `length` is unused."""
  del length
  empty = lambda *sizes: jnp.zeros((batch_size, *sizes), jnp.float32)
  state: dict[str, Array] = {'begun_B': jnp.zeros(batch_size, bool)}
  if cfg.controller == 'lstm':
    state |= {'hidden_BND': empty(cfg.N, cfg.D), 'cell_BND': empty(cfg.N, cfg.D)}
  if cfg.H:
    state |= {
      'memory_BSW': empty(cfg.rows, cfg.width),
      'vectors_BHW': empty(cfg.H, cfg.width),
      'read_BHS': empty(cfg.H, cfg.rows),
      'write_BHS': empty(cfg.H, cfg.rows),
    }
  return state


def _start(cfg: Config, params: Params, batch_size: int, key: Array | None) -> dict[str, Array]:
  """Return the initial state of episodes, without `begun_B`."""
  start, rows = params['start'], lambda x: jnp.broadcast_to(x, (batch_size, *x.shape))
  state: dict[str, Array] = {}
  if cfg.controller == 'lstm':
    state |= {'hidden_BND': rows(start['hidden']), 'cell_BND': rows(start['cell'])}
  if not cfg.H:
    return state
  if cfg.memory == 'learned':
    memory_BSW = rows(start['memory'])
  elif cfg.memory == 'constant':
    memory_BSW = jnp.full((batch_size, cfg.rows, cfg.width), cfg.memory_value, jnp.float32)
  else:
    shape = (cfg.rows, cfg.width) if key is None else (batch_size, cfg.rows, cfg.width)
    samples = jax.random.truncated_normal(jax.random.key(0) if key is None else key, -2.0, 2.0, shape, jnp.float32)
    memory_BSW = cfg.memory_value * (rows(samples) if key is None else samples)
  return state | {
    'memory_BSW': memory_BSW,
    'vectors_BHW': jnp.tanh(rows(start['vectors'])),
    'read_BHS': rows(jax.nn.softmax(start['read'])),
    'write_BHS': rows(jax.nn.softmax(start['write'])),
  }


def _dot(cfg: Config, x: Array, kernel: Array) -> Array:
  return jnp.matmul(x.astype(cfg.dtype), kernel.astype(cfg.dtype), preferred_element_type=jnp.float32)


def _controller(cfg: Config, params: Params, state: dict[str, Array], x_BNG: Array) -> dict[str, Array]:
  """Run one step of the controller: its new state, and 'outputs_BD' of all its layers, concatenated.

  Args:
    x_BNG: products of each layer with the input of the step, plus its bias.
  """
  B = x_BNG.shape[0]
  vectors_BR = state['vectors_BHW'].reshape(B, -1)
  outputs: list[Array] = []
  cells: list[Array] = []
  for i in range(cfg.N):
    layer = params[layout.layer_name(i)]
    below_BE = jnp.concatenate([vectors_BR, *outputs[-1:]], -1)
    gates_BG = x_BNG[:, i] + _dot(cfg, below_BE, layer['input'][cfg.I :])
    if cfg.controller == 'lstm':
      carry = state['hidden_BND'][:, i], state['cell_BND'][:, i]
      recurrent_BG = _dot(cfg, carry[0], layer['recurrent'])
      (h_BD, c_BD), _ = rnn.CELLS['lstm'].forward(gates_BG, recurrent_BG, carry)
      cells.append(c_BD)
    else:
      h_BD = jnp.tanh(gates_BG)
    outputs.append(h_BD)
  new = {'outputs_BD': jnp.concatenate(outputs, -1)}
  if cfg.controller == 'lstm':
    new |= {'hidden_BND': jnp.stack(outputs, 1), 'cell_BND': jnp.stack(cells, 1)}
  return new


def _heads(cfg: Config, params: Params, outputs_BD: Array, state: dict[str, Array], valid_B: Array) -> dict[str, Array]:
  """Write, then read: return the new weightings, read vectors and memory; in invalid rows the memory is
  unchanged."""
  outputs_BX = _dot(cfg, outputs_BD, params['heads']['kernel']) + params['heads']['bias']
  read_sizes, write_sizes = _head_sizes(cfg)
  *ends, _ = itertools.accumulate((*read_sizes, *write_sizes))
  parts = jnp.split(outputs_BX.reshape(len(outputs_BD), cfg.H, -1), ends, axis=-1)
  read_key, *read_parts = parts[: len(read_sizes)]
  write_key, *write_parts, erase_BHW, add_BHW = parts[len(read_sizes) :]
  head = memory_lib.addressing((jnp.tanh(write_key), *write_parts))
  write_BHS = memory_lib.address(head, state['write_BHS'], state['memory_BSW'], cfg.eps)
  erase_BHW, add_BHW = (x * valid_B[:, None, None] for x in (jax.nn.sigmoid(erase_BHW), jnp.tanh(add_BHW)))
  memory_BSW = memory_lib.write(write_BHS, erase_BHW, add_BHW, state['memory_BSW'])
  head = memory_lib.addressing((jnp.tanh(read_key), *read_parts))
  read_BHS = memory_lib.address(head, state['read_BHS'], memory_BSW, cfg.eps)
  vectors_BHW = memory_lib.read(read_BHS, memory_BSW)
  return {'memory_BSW': memory_BSW, 'vectors_BHW': vectors_BHW, 'read_BHS': read_BHS, 'write_BHS': write_BHS}


def _where_valid(valid_B: Array, new: dict[str, Array], old: dict[str, Array]) -> dict[str, Array]:
  return {k: jnp.where(valid_B.reshape((-1,) + (1,) * (v.ndim - 1)), v, old[k]) for k, v in new.items()}


def _with_memory(
  cfg: Config, params: Params, inputs_BTI: Array, valid_BT: Array, state: dict[str, Array], record: bool
) -> tuple[Array, dict[str, Array], dict[str, Array]]:
  """Run the loop over time: (last_BTD, state, the states of every step for `trace` if `record`)."""
  layers = [params[layout.layer_name(i)] for i in range(cfg.N)]
  x_BTNG = jnp.stack([_dot(cfg, inputs_BTI, p['input'][: cfg.I]) + p['bias'] for p in layers], 2)

  def step(state: State, inputs: Any) -> Any:
    x_BNG, valid_B = inputs
    new = _controller(cfg, params, state, x_BNG)
    outputs_BD = new.pop('outputs_BD')
    new |= _heads(cfg, params, outputs_BD, state, valid_B)
    states = {k: new[k] for k in ('memory_BSW', 'read_BHS', 'write_BHS')} if record else {}
    last_BD = jnp.concatenate([outputs_BD, new['vectors_BHW'].reshape(len(outputs_BD), -1)], -1)
    next_state = _where_valid(valid_B, new, state) | {'memory_BSW': new['memory_BSW']}
    return next_state, (last_BD, states)

  steps = (x_BTNG.swapaxes(0, 1), valid_BT.T)
  state, (last_TBD, states) = jax.lax.scan(jax.checkpoint(step, prevent_cse=False) if cfg.remat else step, state, steps)
  return last_TBD.swapaxes(0, 1), state, jax.tree.map(lambda x: x.swapaxes(0, 1), states)


def _without_memory(
  cfg: Config, params: Params, inputs_BTI: Array, valid_BT: Array, state: dict[str, Array]
) -> tuple[Array, dict[str, Array]]:
  """Run the stack of layers, each over all steps at once: (last_BTD, state)."""
  outputs: list[Array] = []
  carries: list[rnn.Carry] = []
  for i in range(cfg.N):
    layer = params[layout.layer_name(i)]
    x_BTE = jnp.concatenate([inputs_BTI.astype(cfg.dtype), *outputs[-1:]], -1)
    if cfg.controller == 'lstm':
      carry: rnn.Carry = (state['hidden_BND'][:, i], state['cell_BND'][:, i])
      h_TBD, carry = recurrent.layer('lstm', layer, x_BTE.swapaxes(0, 1), carry, valid_BT.T, dtype=cfg.dtype)
      carries.append(carry)
      outputs.append(h_TBD.swapaxes(0, 1))
    else:
      outputs.append(jnp.tanh(_dot(cfg, x_BTE, layer['input']) + layer['bias']).astype(cfg.dtype))
  names = ('hidden_BND', 'cell_BND')
  state = {name: jnp.stack(part, 1) for name, part in zip(names, zip(*carries, strict=True), strict=False)}
  return jnp.concatenate(outputs, -1).astype(jnp.float32), state


def _begin(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None
) -> tuple[Array, Array, dict[str, Array]]:
  """Return (inputs_BTI, valid_BT, the state with the learned start in rows that have not begun)."""
  inputs_BTI = batch['inputs_BTI']
  if inputs_BTI.shape[-1] != cfg.I:
    raise InputError(
      f'model.I: got {cfg.I}, but the data has {inputs_BTI.shape[-1]} inputs; set model.I={inputs_BTI.shape[-1]}'
    )
  valid_BT = batch.get('valid_BT', jnp.ones(inputs_BTI.shape[:2], bool))
  old = {k: v for k, v in state.items() if k != 'begun_B'}
  return inputs_BTI, valid_BT, _where_valid(state['begun_B'], old, _start(cfg, params, len(inputs_BTI), key))


def apply(
  cfg: Config, params: Params, batch: Batch, state: State, key: Array | None = None, *, all_layers: bool = False
) -> tuple[Features, State]:
  """Run the machine over `inputs_BTI`.

  Args:
    batch: inputs_BTI float32; valid_BT (optional): invalid steps leave the state unchanged.
    state: from `init_state` or the previous call.
    key: PRNG key of a random memory, None at evaluation.
    all_layers: also return the inputs and the input of the output layer.

  Returns:
    (Features with last_BTD: the controller's layers and the read vectors, concatenated; state).
  """
  inputs_BTI, valid_BT, begun = _begin(cfg, params, batch, state, key)
  if cfg.H:
    last_BTD, new, _ = _with_memory(cfg, params, inputs_BTI, valid_BT, begun, False)
  else:
    last_BTD, new = _without_memory(cfg, params, inputs_BTI, valid_BT, begun)
  new['begun_B'] = state['begun_B'] | jnp.any(valid_BT, axis=1)
  return Features(last_BTD, layers=(inputs_BTI, last_BTD) if all_layers else None), new


def trace(cfg: Config, params: Params, batch: Batch) -> dict[str, Array]:
  """Return every step of whole episodes, for pictures: logits_BTO and, with a memory, memory_BTSW, read_BTHS and
  write_BTHS after the step."""
  begun = _begin(cfg, params, batch, init_state(cfg, len(batch['inputs_BTI'])), None)
  if cfg.H:
    last_BTD, _, records = _with_memory(cfg, params, *begun, True)
  else:
    last_BTD, records = _without_memory(cfg, params, *begun)[0], {}
  arrays = {name.replace('_B', '_BT', 1): value for name, value in records.items()}
  return arrays | {'logits_BTO': logits(cfg, params, Features(last_BTD))}


def read_shapes(cfg: Config, rows: dict[str, jax.ShapeDtypeStruct]) -> dict[str, jax.ShapeDtypeStruct]:
  """Return the shapes of a batch with the model's numbers of inputs and outputs."""
  last = {'inputs_BTI': cfg.I, 'target_bits_BTO': cfg.O}
  return {k: jax.ShapeDtypeStruct((*v.shape[:-1], last[k]), v.dtype) if k in last else v for k, v in rows.items()}


def logits(cfg: Config, params: Params, features: Features) -> Array:
  """Return the logits of the bits, (B, T, O) float32: a bit is 1 with probability sigmoid(logit)."""
  return _dot(cfg, features.last_BTD, params['output']['kernel']) + params['output']['bias']


def nll(cfg: Config, params: Params, features: Features, targets_BTO: Array) -> Array:
  """Return the negative log-likelihood of the bits of each step in nats, (B, T) float32."""
  scores_BTO = logits(cfg, params, features)
  return jnp.sum(jax.nn.softplus(scores_BTO) - scores_BTO * targets_BTO, axis=-1)


def depth(cfg: Config, path: tuple[str, ...]) -> int:
  """Return a parameter's layer number: the start 0, layer i of the controller i + 1, heads and output N + 1."""
  if path[0].startswith('layer_'):
    return int(path[0].removeprefix('layer_')) + 1
  return 0 if path[0] == 'start' else cfg.N + 1
