"""A small encoder-decoder of the contract, for tests: a recurrent decoder that attends to embeddings of the source."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from lmx.layers import softmax
from lmx.types import Features

CAUSAL = True
READS = 'source'
OBJECTIVE = 'translation'
HEADS = ('output',)


@dataclasses.dataclass(frozen=True)
class Config:
  V: int = 13
  D: int = 8
  N: int = 1
  T: int = 40
  std: float = 0.6
  ends: float = 1.5  # score that the end mark has before it all


def init(cfg, key):
  keys = jax.random.split(key, 4)
  draw = lambda k, *shape: cfg.std * jax.random.normal(k, shape)
  return {
    'embed': draw(keys[0], cfg.V, cfg.D),
    'places': draw(keys[1], cfg.T, cfg.D),
    'layer_00': draw(keys[2], cfg.D, cfg.D),
    'output': draw(keys[3], cfg.V, 2 * cfg.D),
    'bias': jnp.zeros(cfg.V).at[1].set(cfg.ends),
  }


def init_state(cfg, batch_size, length=0):
  return ()


def begin(cfg, params, batch, length):
  B, S = batch['source_BS'].shape
  keys_BSD = jnp.tanh(params['embed'][batch['source_BS']] + params['places'][:S])
  valid_BS = jnp.asarray(batch['source_valid_BS'])
  return {'h_BD': jnp.zeros((B, cfg.D)), 'source': {'keys_BSD': keys_BSD, 'valid_BS': valid_BS}}


def apply(cfg, params, batch, state=(), key=None, *, all_layers=False):
  begun = state or begin(cfg, params, batch, 0)
  tokens_BT = batch['tokens_BT']
  valid_BT = batch.get('valid_BT', jnp.ones(tokens_BT.shape, bool))

  def step(h_BD, xs):
    x_BD, valid_B = xs
    new_BD = jnp.where(valid_B[:, None], jnp.tanh(h_BD @ params['layer_00'] + x_BD), h_BD)
    return new_BD, new_BD

  h_BD, h_TBD = jax.lax.scan(step, begun['h_BD'], (params['embed'][tokens_BT].swapaxes(0, 1), valid_BT.T))
  h_BTD = h_TBD.swapaxes(0, 1)
  a_BTS = jnp.einsum('BTD,BSD->BTS', h_BTD, begun['source']['keys_BSD'])
  a_BTS = jax.nn.softmax(jnp.where(begun['source']['valid_BS'][:, None], a_BTS, -1e9))
  c_BTD = jnp.einsum('BTS,BSD->BTD', a_BTS, begun['source']['keys_BSD'])
  return Features(jnp.concatenate([h_BTD, c_BTD], -1)), {**begun, 'h_BD': h_BD} if state else ()


def alignment(cfg, params, batch):
  B, T = batch['tokens_BT'].shape
  weight_BTS = jnp.broadcast_to(batch['source_valid_BS'][:, None], (B, T, batch['source_BS'].shape[1]))
  return weight_BTS / weight_BTS.sum(-1, keepdims=True)


def logits(cfg, params, features):
  return softmax.tied_logits(features.last_BTD, params['output'], params['bias'])


def nll(cfg, params, features, targets_BT):
  return softmax.tied_nll(features.last_BTD, params['output'], targets_BT, params['bias'])


def depth(cfg, path):
  return {'embed': 0, 'places': 0, 'layer_00': 1, 'output': 2, 'bias': 2}[path[0]]
