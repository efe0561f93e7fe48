"""ESIM against NumPy, with and without ELMo; its dropout, its parameters, and what it refuses."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.layers import bidirectional, bilm, scalar_mix, word_input
from lmx.models import registry
from lmx.objectives import classify, regress
from lmx.types import Features
from tests import drawn
from tests.reference import esim as reference

esim = registry.get('esim')

B, T, S, C = 3, 6, 4, 7
LENGTHS = {'T': np.array([6, 3, 1]), 'S': np.array([2, 4, 0])}  # the last pair has no second text
RNG = np.random.default_rng(0)
SIZES = {'T': T, 'S': S}
BATCH = {
  **{f'tokens_B{axis}': RNG.integers(0, 61, (B, n)).astype(np.int32) for axis, n in SIZES.items()},
  **{f'characters_B{axis}C': RNG.integers(1, 262, (B, n, C)).astype(np.int32) for axis, n in SIZES.items()},
  **{f'valid_B{axis}': np.arange(n) < LENGTHS[axis][:, None] for axis, n in SIZES.items()},
}


def config(**changes):
  quiet = {name: 0.0 for name in esim.Config.__dataclass_fields__ if name.startswith('dropout')}
  return registry.config('esim', 'tiny', **{**quiet, 'bilm_layers': 1, **changes})


def params_of(cfg):
  return drawn.params(esim.init, cfg, std=drawn.by_size(2))


@functools.partial(jax.jit, static_argnums=0)
def run(cfg, params):
  """Features, and for each text its words and the mixes of the biLM's layers, computed apart."""
  words, mixed = {}, {}
  for axis in SIZES:
    words[axis] = word_input.embed(cfg, params, BATCH, axis)
    if cfg.elmo != 'none':
      sizes, valid = word_input.bilm_sizes(cfg), BATCH[f'valid_B{axis}']
      characters = BATCH[f'characters_B{axis}C']
      layers, _ = bilm.run_sentences(sizes, params['bilm'], characters, valid, bilm.init_state(sizes, B))
      for place in ('input', 'output'):
        mixed[place, axis] = scalar_mix.mix(params[f'mix_{place}'], layers, valid, normalise=cfg.mix_normalise)
  return esim.apply(cfg, params, BATCH, (), all_layers=True)[0], words, mixed


@pytest.mark.parametrize('elmo', ['none', 'both'])
def test_pair_is_composed_as_in_the_paper(elmo):
  cfg = config(elmo=elmo)
  found, words, mixed = jax.device_get(run(cfg, params_of(cfg)))
  params = jax.tree.map(lambda x: np.asarray(x, np.float64), params_of(cfg))
  for b in range(B):
    texts, outputs = [], []
    for axis in SIZES:
      n = LENGTHS[axis][b]
      x = words[axis][b, :n]
      texts.append(np.concatenate([x, mixed['input', axis][b, :n]], axis=1) if mixed else x)
      outputs.append(mixed['output', axis][b, :n] if mixed else None)
    composed, summary = reference.pair(params, *texts, outputs)
    n = LENGTHS['T'][b]
    np.testing.assert_allclose(found.layers[0][b, :n], texts[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.last_BTD[b, :n], composed, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.pooled_BD[b], summary, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('locked', [True, False])
def test_locked_mask_is_one_for_all_words_of_a_text(locked, monkeypatch):
  monkeypatch.setattr(bidirectional, 'layer', lambda params, x_BTD, valid_BT, **sizes: x_BTD)
  x_BTD = np.ones((B, T, 40), np.float32)
  y_BTD = np.asarray(esim._layer(config(dropout=0.5, locked=locked), {}, x_BTD, BATCH['valid_BT'], jax.random.key(0)))
  assert set(np.unique(y_BTD)) == {0.0, 2.0} and (y_BTD[0] != y_BTD[1]).any()
  assert (y_BTD == y_BTD[:, :1]).all() == locked


def test_parameters_of_the_paper_without_its_embeddings():
  """2 LSTMs of 300 in two directions, F and the hidden layer of 2,400 x 300, and three classes: 4.3M in table 1."""
  cfg = registry.config('esim', 'base')
  objective_cfg = classify.Config(**esim.OBJECTIVE_FIELDS, classes=3)
  shapes = drawn.shapes(esim.init, cfg)
  head = jax.eval_shape(lambda: classify.init(objective_cfg, esim, cfg, jax.random.key(0)))
  count = lambda tree: sum(x.size for x in jax.tree.leaves(tree))
  layers = 2 * 2 * (300 * 1200 + 300 * 1200 + 1200)
  assert count(shapes) - count(shapes['embed']) + count(head) == layers + 2 * (2400 * 300 + 300) + 903 == 4_326_303


def test_scores_of_pairs_can_be_learned_too():
  cfg, objective_cfg = config(), regress.Config(**esim.OBJECTIVE_FIELDS)
  batch = {**BATCH, 'scores_B': np.ones(B, np.float32), 'row_weights_B': np.ones(B, np.float32)}

  def loss(key):
    params = {'model': esim.init(cfg, key), 'objective': regress.init(objective_cfg, esim, cfg, key)}
    return regress.loss(objective_cfg, esim, cfg, params, batch, (), key)

  assert jax.eval_shape(loss, jax.random.key(0)).sums['squared_error'].shape == ()


def test_incompatible_settings_are_rejected():
  one = {name: x for name, x in BATCH.items() if 'BS' not in name}
  with pytest.raises(InputError, match='got one text per row'):
    esim.apply(config(), {}, one, ())
  with pytest.raises(InputError, match='predicts no words'):
    esim.logits(config(), {}, Features(np.zeros((B, T, 16), np.float32)))
