"""Ten training steps of each tiny model on any layout of devices, for the tests of the engine.

Run as a program it is one process of several (see launch/local.py): it trains every case named on the command line
from the parameters in the second file, and process 0 writes the results to the first.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterable

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.experimental import multihost_utils

from lmx import objectives
from lmx.engine import distributed, sharding
from lmx.engine import state as state_lib
from lmx.engine import step as step_lib
from lmx.models import registry
from lmx.optim import averaging, build

ROWS, LENGTH, PREDICTED, STEPS = 16, 12, 4, 10
AWD_LSTM_DROPOUTS = ('input', 'hidden', 'output', 'embedding', 'weight')
ESIM_DROPOUTS = dict.fromkeys(('dropout', 'dropout_attention', 'dropout_elmo', 'dropout_bilm'), 0.0)
SIZES = {
  'gpt': {
    'V': 64,
    'T': 16,
    'D': 32,
    'H': 4,
    'N': 1,
    'fidelity': 'released',
    'dropout_embedding': 0.0,
    'dropout_attention': 0.0,
    'dropout_residual': 0.0,
  },
  'gpt2': {'V': 64, 'T': 16, 'D': 32, 'H': 4, 'N': 2},
  'rnn_lm': {'V': 64, 'E': 32, 'D': 32, 'N': 1, 'dropout': 0.0},
  'awd_lstm': {'V': 64, 'E': 32, 'D': 32, 'N': 1, **{f'dropout_{where}': 0.0 for where in AWD_LSTM_DROPOUTS}},
  'ulmfit': {'V': 64, 'E': 32, 'D': 32, 'N': 1, **{f'dropout_{where}': 0.0 for where in AWD_LSTM_DROPOUTS}},
  'nplm': {'V': 64, 'n': 4, 'm': 8, 'h': 16},
  'ntm': {'D': 32, 'H': 2, 'rows': 8, 'width': 8},
  'elmo': {'V': 64, 'filters': ((1, 16), (2, 16)), 'cells': 16, 'projection': 32, 'N': 1, 'dropout': 0.0},
  'bilstm': {'V': 64, 'E': 32, 'D': 16, 'N': 1, 'dropout': 0.0, 'dropout_elmo': 0.0, 'dropout_bilm': 0.0},
  'glue_bilstm': {'V': 64, 'E': 32, 'D': 16, 'dropout': 0.0, 'dropout_elmo': 0.0, 'dropout_bilm': 0.0},
  'esim': {'V': 64, 'E': 32, 'D': 16, 'F': 16, 'bilm_cells': 16, 'bilm_projection': 16, **ESIM_DROPOUTS},
  'bcn': {
    'V': 64,
    'texts': 2,
    'E': 32,
    'F': 16,
    'D': 16,
    'dropout': 0.0,
    'dropout_feed_forward': 0.0,
    'dropout_elmo': 0.0,
    'dropout_bilm': 0.0,
  },
  'bidaf': {'V': 64, 'E': 32, 'D': 16, 'dropout': 0.0, 'dropout_elmo': 0.0, 'dropout_bilm': 0.0},
  'srl_lstm': {'V': 64, 'E': 32, 'D': 16, 'dropout': 0.0, 'dropout_elmo': 0.0, 'dropout_bilm': 0.0},
  'self_attention': {'V': 64, 'D': 32, 'F': 32, 'N': 1, 'dropout': 0.0},
  # Reads the mean, as layouts draw positions of their own; what hard attention adds to the loss is all the same there.
  'bahdanau': {
    'V': 64,
    'E': 32,
    'D': 32,
    'A': 16,
    'maxout': 16,
    'reading': 'hard',
    'expected': 1.0,
    'doubly_stochastic': 0.1,
  },
  'bert': {'V': 64, 'T': 16, 'D': 32, 'H': 4, 'N': 1, 'dropout_hidden': 0.0, 'dropout_attention': 0.0},
  'transformer': {'V': 64, 'D': 32, 'F': 32, 'H': 4, 'encoder_layers': 1, 'decoder_layers': 1, 'dropout': 0.0},
  'memory_compressed': {'V': 64, 'D': 32, 'F': 32, 'H': 4, 'pattern': 'LM', 'dropout': 0.0},
  'quaternion_transformer': {
    'V': 64,
    'D': 32,
    'F': 32,
    'H': 4,
    'encoder_layers': 1,
    'decoder_layers': 1,
    'dropout': 0.0,
    'dropout_attention': 0.0,
    'dropout_relu': 0.0,
  },
  'transformer_xl': {'V': 64, 'D': 32, 'F': 32, 'H': 4, 'M': 8, 'dropout': 0.0},
  'sparse_transformer': {'V': 64, 'T': 16, 'merge': 'heads', 'fidelity': 'released', 'dropout': 0.0},
  'xlnet': {'V': 64, 'D': 32, 'F': 32, 'H': 4, 'M': 8, 'dropout': 0.0, 'dropout_attention': 0.0},
  'character_transformer': {'V': 64, 'T': 16, 'D': 32, 'F': 32, 'H': 2, 'N': 2, 'dropout': 0.0},
  'cfnet': {'blocks': (1, 1), 'widths': (8, 8), 'D': 32, 'dropout': 0.0, 'dropout_attention': 0.0},
}
AVERAGED = {'ema': 0.0, 'asgd': 'start', 'asgd_lag': True}
OPTIONS = {  # of a model's own objective
  **dict.fromkeys(('bilstm', 'srl_lstm', 'self_attention'), {'labels': ('B-x', 'I-x', 'O')}),
  'glue_bilstm': {'classes': 3, 'head': (8,)},
  'esim': {'classes': 3, 'head': (8,), 'dropout_pooled': 0.0, 'dropout_head': 0.0},
  'bcn': {
    'classes': 3,
    'head': (16, 8),
    'activation': 'maxout',
    'normalize': True,
    'dropout_pooled': 0.0,
    'dropout_head': 0.0,
  },
  'bahdanau': {'smoothing': 0.1, 'reinforce': 1.0, 'entropy': 0.1},
  'transformer': {'smoothing': 0.1},
  'quaternion_transformer': {'smoothing': 0.1},
  'cfnet': {'classes': 3},
}
FINE_TUNED = {  # model, objective other than its own, options of that objective
  'gpt': (
    'gpt',
    'regress',
    {'pooling': 'last', 'head': (), 'normalize': False, 'bptt': 0, 'dropout_pooled': 0.0, 'lm_weight': 0.5},
  ),
  'ulmfit': (
    'awd_lstm',
    'classify',
    {'classes': 3, 'head': (8,), 'bptt': 5, 'dropout_pooled': 0.0, 'dropout_head': 0.0},
  ),
}
OPTIMIZERS = {
  'gpt': {'optimizer': 'adamw', 'lr': 1e-3, 'eps_form': 'uncorrected', 'schedule': 'linear', 'layer_decay': 0.9},
  'gpt2': {'optimizer': 'adamw', 'lr': 1e-3, 'weight_decay': 0.1, 'schedule': 'cosine', 'warmup_steps': 2},
  'rnn_lm': {'optimizer': 'sgd', 'lr': 1.0, 'clip_norm': 0.25, 'momentum': 0.5},
  'awd_lstm': {'optimizer': 'sgd', 'lr': 1.0, 'clip_norm': 0.25, 'momentum': 0.5, **AVERAGED},
  'ulmfit': {'optimizer': 'adam', 'lr': 0.01, 'b1': 0.7, 'layer_decay': 1 / 2.6, 'unfreeze_every': 0.3},
  'nplm': {'optimizer': 'sgd', 'lr': 0.5, 'momentum': 0.5, 'schedule': 'inverse_time', 'decrease': 0.01},
  'ntm': {'optimizer': 'rmsprop_graves', 'lr': 1e-3, 'momentum': 0.9, 'clip_value': 10.0},
  'elmo': {'optimizer': 'adagrad', 'lr': 0.2, 'accumulator': 0.01, 'clip_norm': 1.0},
  'bilstm': {'optimizer': 'adam', 'lr': 1e-3, 'weight_decay': 0.01, 'groups': (('/bilm/', 0.5, 0.0), ('.*', 1.0, 1.0))},
  'glue_bilstm': {'optimizer': 'adam', 'lr': 1e-3, 'weight_decay': 1e-5, 'clip_norm': 5.0},
  'esim': {'optimizer': 'adam', 'lr': 1e-3, 'weight_decay': 0.01, 'clip_norm': 1.0},
  # With its usual epsilon Adam makes 7e-5 of rounding in 10 updates behind batch normalisation: on eight devices beside
  # one, and on one that begins with other last bits of the parameters.
  'bcn': {
    'optimizer': 'adam',
    'lr': 1e-3,
    'eps': 1e-4,
    'clip_norm': 5.0,
    'groups': (('/bilm/', 0.5, 0.0), ('.*', 1.0, 1.0)),
  },
  'bidaf': {'optimizer': 'adadelta', 'lr': 1.0},
  'srl_lstm': {'optimizer': 'adadelta', 'lr': 1.0, 'clip_norm': 1.0},
  'self_attention': {'optimizer': 'adam', 'lr': 1e-3, 'clip_norm': 1.0, 'schedule': 'linear'},
  'bahdanau': {'optimizer': 'adadelta', 'lr': 1.0, 'clip_norm': 1.0},
  'bert': {'optimizer': 'bert_adam', 'lr': 1e-3, 'weight_decay': 0.01, 'clip_norm': 1.0},
  'transformer': {
    'optimizer': 'adam',
    'lr': 0.1,
    'b2': 0.98,
    'eps': 1e-9,
    'schedule': 'inverse_sqrt',
    'width': 32,
    'warmup_steps': 4,
  },
  'quaternion_transformer': {'optimizer': 'adam', 'lr': 2e-3, 'schedule': 'inverse_sqrt', 'warmup_steps': 4},
  'memory_compressed': {'optimizer': 'adam', 'lr': 2e-3, 'schedule': 'inverse_sqrt', 'warmup_steps': 4},
  'transformer_xl': {'optimizer': 'adam', 'lr': 2e-3, 'clip_norm': 0.25, 'schedule': 'cosine', 'end_fraction': 0.01},
  'sparse_transformer': {'optimizer': 'adamw', 'lr': 1e-3, 'weight_decay': 0.01, 'schedule': 'cosine'},
  'xlnet': {'optimizer': 'adamw', 'lr': 1e-3, 'eps': 1e-6, 'weight_decay': 0.01, 'schedule': 'linear'},
  'character_transformer': {'optimizer': 'sgd', 'lr': 0.02, 'momentum': 0.99},
  'cfnet': {'optimizer': 'sgd', 'lr': 0.01, 'momentum': 0.9, 'weight_decay': 1e-4, 'schedule': 'poly'},
}


def batch(name: str, step: int) -> dict[str, np.ndarray]:
  """A batch with ragged rows, three rows of padding, and state that some rows reset."""
  rng = np.random.default_rng(step)
  lengths_B = rng.integers(6, LENGTH + 1, ROWS)
  lengths_B[-3:] = 0
  valid_BT = np.arange(LENGTH) < lengths_B[:, None]
  tokens = np.where(np.arange(LENGTH + 1) <= lengths_B[:, None], rng.integers(1, 64, (ROWS, LENGTH + 1)), 0)
  found = {'tokens_BT': tokens[:, :-1].astype(np.int32), 'valid_BT': valid_BT}
  if name == 'cfnet':  # pixels without a label too
    return {
      'images_BYXC': rng.integers(0, 256, (ROWS, 24, 24, 3)).astype(np.uint8),
      'labels_BYX': rng.integers(-1, 3, (ROWS, 24, 24)).astype(np.int32),
      'row_weights_B': (lengths_B > 0).astype(np.float32),
    }
  if name == 'ntm':
    bits = lambda x, width: ((x[..., None] >> np.arange(width)) & 1).astype(np.float32)
    return {
      'inputs_BTI': bits(tokens[:, :-1], 6),
      'target_bits_BTO': bits(tokens[:, 1:], 5),
      'valid_BT': valid_BT,
      'weights_BT': (valid_BT & (np.arange(LENGTH) >= lengths_B[:, None] - 2)).astype(np.float32),
      'row_weights_B': (lengths_B > 0).astype(np.float32),
      'size_B': lengths_B.astype(np.int32),
    }
  if name == 'self_attention':
    return found | {'labels_BT': tokens[:, :-1].astype(np.int32) % 3, 'weights_BT': valid_BT.astype(np.float32)}
  if name in ('elmo', 'bilstm', 'srl_lstm', 'bidaf', 'esim', 'glue_bilstm', 'bcn'):
    letters = lambda x: np.stack([260 + 0 * x, 1 + x % 7, 50 + x // 7, 261 + 0 * x], -1).astype(np.int32)
    found |= {'characters_BTC': letters(tokens[:, :-1]), 'weights_BT': valid_BT.astype(np.float32)}
    if name in ('bilstm', 'srl_lstm'):
      predicate_BT = np.arange(LENGTH) == (lengths_B // 2)[:, None]
      found |= {'predicate_BT': predicate_BT.astype(np.int32)} if name == 'srl_lstm' else {}
      return found | {'labels_BT': tokens[:, :-1].astype(np.int32) % 3}
    if name in ('esim', 'glue_bilstm', 'bcn'):  # the second text is the first of another row, whose length differs
      second = {key.replace('_BT', '_BS'): np.roll(x, 1, 0) for key, x in found.items() if key != 'weights_BT'}
      labels = {'labels_B': tokens[:, 0].astype(np.int32) % 3, 'row_weights_B': (lengths_B > 0).astype(np.float32)}
      return found | second | labels
    if name == 'bidaf':
      other = np.roll(np.arange(ROWS), 2)  # some rows have no question
      asked = {'tokens_BS': found['tokens_BT'][other, :8], 'valid_BS': valid_BT[other, :8]}
      ends = {'starts_B': lengths_B // 3, 'ends_B': np.maximum(lengths_B - 2, 0)}
      ends = {key: x.astype(np.int32) for key, x in ends.items()}
      rows = {'row_weights_B': (lengths_B > 0).astype(np.float32)}
      return found | asked | ends | rows | {'characters_BSC': letters(asked['tokens_BS'])}
    back = {'backward_characters_BTC': letters(tokens[:, :0:-1])}
    back['backward_targets_BT'] = tokens[:, -2::-1].astype(np.int32)
    return found | back | {'targets_BT': tokens[:, 1:].astype(np.int32), 'reset_B': np.arange(ROWS) % 4 == step % 4}
  if name == 'gpt':  # both orders of two texts, the second order here the row of another
    two = {key.replace('_BT', '_BGT'): np.stack([x, np.roll(x, 1, 0)], 1) for key, x in found.items()}
    return two | {'scores_B': tokens[:, 0] / 10, 'row_weights_B': (lengths_B > 0).astype(np.float32)}
  if name == 'ulmfit':
    real_B = lengths_B > 0
    return found | {'labels_B': tokens[:, 0].astype(np.int32) % 3, 'row_weights_B': real_B.astype(np.float32)}
  if name == 'xlnet':
    positions_BP = np.sort(rng.permuted(np.tile(np.arange(6), (ROWS, 1)), axis=1)[:, :PREDICTED], axis=1)
    order_BT = np.zeros((ROWS, LENGTH), np.int32)
    order_BP = rng.permuted(np.tile(np.arange(1, PREDICTED + 1), (ROWS, 1)), axis=1)
    np.put_along_axis(order_BT, positions_BP, order_BP, axis=1)
    return found | {
      'types_BT': (np.arange(LENGTH) >= 4).astype(np.int32) + np.zeros((ROWS, 1), np.int32),
      'order_BT': order_BT,
      'positions_BP': positions_BP.astype(np.int32),
      'targets_BP': np.take_along_axis(found['tokens_BT'], positions_BP, axis=1),
      'weights_BP': np.repeat(lengths_B[:, None] > 0, PREDICTED, axis=1).astype(np.float32),
      'backward_B': np.arange(ROWS) >= ROWS // 2,
      'reset_B': np.arange(ROWS) % 4 == step % 4,
    }
  if name == 'bert':
    positions_BP = np.sort(rng.integers(0, np.maximum(lengths_B, 1)[:, None], (ROWS, PREDICTED)))
    real_B = lengths_B > 0
    weights_BP = real_B[:, None] & (rng.random((ROWS, PREDICTED)) < 0.7)
    return found | {
      'types_BT': (np.arange(LENGTH) >= lengths_B[:, None] // 2).astype(np.int32),
      'positions_BP': positions_BP.astype(np.int32),
      'targets_BP': rng.integers(1, 64, (ROWS, PREDICTED)).astype(np.int32),
      'weights_BP': weights_BP.astype(np.float32),
      'next_B': rng.integers(0, 2, ROWS).astype(np.int32),
      'row_weights_B': real_B.astype(np.float32),
    }
  found |= {'targets_BT': tokens[:, 1:].astype(np.int32), 'weights_BT': valid_BT.astype(np.float32)}
  if name in ('bahdanau', 'transformer', 'quaternion_transformer'):
    other = np.roll(np.arange(ROWS), 2)  # the row of another, so that some rows have no target or only a source's end
    source_valid_BS = np.arange(LENGTH + 1) < np.maximum(lengths_B[other], 1)[:, None]
    return found | {'source_BS': tokens[other].astype(np.int32), 'source_valid_BS': source_valid_BS}
  if name == 'character_transformer':  # the token after the target, unknown at a third of the rows' ends
    last_BT = np.arange(LENGTH) == lengths_B[:, None] - 1
    second_BT = np.where(last_BT & (np.arange(ROWS) % 3 == 0)[:, None], -1, np.roll(tokens, -2, 1)[:, :-1])
    return found | {'second_BT': second_BT.astype(np.int32)}
  if name == 'awd_lstm':
    found['rate_B'] = np.full(ROWS, 0.5 + 0.1 * step, np.float32)
  return found | {'reset_B': np.arange(ROWS) % 4 == step % 4}


def parts(name: str, change: dict | None = None) -> tuple:
  """(model, its config, objective, its config)."""
  body, head, options = name, '', OPTIONS[name] if name in OPTIONS else {}
  if name in FINE_TUNED:
    body, head, options = FINE_TUNED[name]
  module = registry.get(body)
  objective = objectives.get(head or module.OBJECTIVE)
  model_cfg = registry.config(body, 'tiny', **(SIZES[name] | (change or {})))
  fields = module.OBJECTIVE_FIELDS if objective is objectives.get(module.OBJECTIVE) else {}
  return module, model_cfg, objective, objective.Config(**(fields | options))


@functools.cache
def start(name: str, **model) -> dict:
  """The parameters that training starts from, the same for every layout; compiled once, as that takes its time."""
  module, model_cfg, objective, objective_cfg = parts(name, model)

  @jax.jit
  def init(key):
    model_key, objective_key = jax.random.split(key)
    return {
      'model': module.init(model_cfg, model_key),
      'objective': objective.init(objective_cfg, module, model_cfg, objective_key),
    }

  return jax.tree.map(np.asarray, init(jax.random.key(0)))


def train(
  name: str,
  cfg: sharding.Config,
  *,
  devices: int | None = None,
  first: dict | None = None,
  model: dict | None = None,
  optim: dict | None = None,
  lengths: tuple[int, ...] = (),
  steps: int = STEPS,
  donate: bool = True,
  evaluate: bool = False,
) -> dict:
  """Returns {'params', 'ema', 'state', 'losses', 'eval', 'sharded', 'moved'} after `steps` updates."""
  module, model_cfg, objective, objective_cfg = parts(name, model)
  optim_cfg = build.Config(**({'ema': 0.9} | OPTIMIZERS[name] | (optim or {})))
  engine = sharding.Engine(cfg, jax.devices()[:devices])
  params = first or start(name)
  depth = lambda path: module.depth(model_cfg, path)
  tx = build.make(optim_cfg, params, depth, model_cfg.N, STEPS, STEPS)
  state = engine.build(lambda p: state_lib.create(p, tx, build.average(optim_cfg, p)), params)
  rows_state = engine.build_rows(lambda: module.init_state(model_cfg, ROWS), ROWS)
  step = step_lib.make_train_step(
    module,
    model_cfg,
    objective,
    objective_cfg,
    tx,
    build.rate(optim_cfg, STEPS, STEPS),
    accumulate=optim_cfg.accumulate,
    lengths=lengths,
    ema=optim_cfg.ema,
    lag=optim_cfg.asgd_lag,
    total_steps=STEPS,
    reduction=engine.reduction,
  )
  train_step = engine.compile_train(step, state, donate=donate)
  key = engine.replicate(jax.random.key(1))
  mine = engine.process_rows(ROWS)
  losses = []
  for i in range(steps):
    rows = engine.put_batch({k: v[mine] for k, v in batch(name, i).items()})
    state, rows_state, metrics = train_step(state, rows_state, rows, key)
    losses.append(float(metrics['loss']))
    if i == steps // 2:  # as a checkpoint would
      state, rows_state = engine.from_global(*engine.to_global(state, rows_state, ROWS), ROWS)
  measured = {}
  if evaluate:
    eval_step = engine.compile_eval(step_lib.make_eval_step(module, model_cfg, objective, objective_cfg))
    measured, _ = eval_step(averaging.value(state.ema, state.params), rows_state, rows)
  state, rows_state = engine.to_global(state, rows_state, ROWS)
  sharded = [
    jax.tree_util.keystr(path)
    for path, x in jax.tree_util.tree_leaves_with_path((state.params, state.opt_state))
    if not x.sharding.is_fully_replicated
  ]
  return {
    'params': fetch(state.params),
    'ema': fetch(state.ema),
    'state': fetch(rows_state),
    'losses': np.array(losses),
    'eval': {k: (np.divide(*v), v[1]) if isinstance(v, tuple) else v for k, v in fetch(measured).items()},
    'sharded': sharded,
    'moved': max(jax.tree.leaves(jax.tree.map(lambda a, b: np.abs(a - b).max(), params, fetch(state.params)))),
  }


def fetch(tree):
  """The whole of every array, also where this process holds only a part."""
  if jax.process_count() > 1:
    return jax.tree.map(np.asarray, multihost_utils.process_allgather(tree, tiled=True))
  return jax.tree.map(np.asarray, tree)


def flat(result: dict) -> dict[str, np.ndarray]:
  """What two layouts must agree on, by name."""
  kept = {k: result[k] for k in ('params', 'ema', 'state', 'losses', 'eval')}
  return {jax.tree_util.keystr(path): np.asarray(x) for path, x in jax.tree_util.tree_leaves_with_path(kept)}


def deviation(a: dict, b: dict) -> float:
  """Largest absolute difference between two results of `flat`, over what both have."""
  both = {k for k in a.keys() & b.keys() if a[k].size}
  assert any("['params']" in k for k in both) and "['losses']" in both
  return max(float(np.max(np.abs(a[k].astype(np.float64) - b[k].astype(np.float64)))) for k in both)


@functools.cache
def one_device(name: str) -> dict[str, np.ndarray]:
  """The result that every layout must reproduce."""
  result = train(name, sharding.Config(data=1), devices=1, evaluate=name == 'rnn_lm')
  assert result['moved'] > 5e-3 and np.isfinite(result['losses']).all()
  return flat(result)


def save_start(path: str, names: Iterable[str]) -> None:
  """Writes the first parameters of models for `main`."""
  np.savez(path, **{f'{n}/{k}': v for n in names for k, v in flatten_dict(start(n), sep='/').items()})


def main(out: str, first: str, *cases: str) -> None:
  """Trains each case, 'model:{parallel config as JSON}', and writes all results to `out`."""
  distributed.initialize(timeout=60)
  with np.load(first) as saved:
    starts = unflatten_dict(dict(saved), sep='/')
  found = {}
  for case in cases:
    name, _, fields = case.partition(':')
    params = {'objective': {}} | starts[name]  # an empty dict leaves no trace in the file
    result = flat(train(name, sharding.Config(**json.loads(fields)), first=params))
    found |= {f'{case}|{k}': v for k, v in result.items()}
  found['devices'] = np.array([jax.process_count(), jax.device_count(), jax.local_device_count()])
  if jax.process_index() == 0:
    np.savez(out, **found)
  distributed.barrier('written')


if __name__ == '__main__':
  main(*sys.argv[1:])
