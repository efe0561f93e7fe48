"""The tagger of semantic roles against the equations in NumPy: directions, predicate, ELMo, padding."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from lmx import objectives
from lmx.errors import InputError
from lmx.models import registry
from tests import drawn
from tests.reference import highway_lstm as reference

srl_lstm = registry.get('srl_lstm')

B, T = 3, 7
LENGTHS = (7, 1, 4)
VALID = np.arange(T) < np.asarray(LENGTHS)[:, None]
BATCH = {
  'tokens_BT': np.random.default_rng(0).integers(0, 9, (B, T)).astype(np.int32),
  'valid_BT': VALID,
  'predicate_BT': (np.arange(T) == np.array([[2], [0], [3]])).astype(np.int32),
  'characters_BTC': np.random.default_rng(1).integers(1, 257, (B, T, 6)).astype(np.int32),
}
PLAIN = {'elmo': 'none', 'char_filters': (), 'mix_l2': 0.0}


def config(**changes):
  return registry.config(
    'srl_lstm', 'tiny', **({'V': 9, 'N': 3, 'bilm_layers': 1, 'dropout': 0.0, 'dropout_elmo': 0.0} | changes)
  )


@functools.cache
def params_of(cfg):
  return drawn.params(srl_lstm.init, cfg, std=drawn.by_size(2.0))


def run(cfg, batch=None, key=None):
  apply = jax.jit(lambda params, batch, key: srl_lstm.apply(cfg, params, batch, (), key, all_layers=True)[0])
  return jax.device_get(apply(params_of(cfg), BATCH if batch is None else batch, key))


@pytest.mark.parametrize('N', [1, 3])
def test_equations_of_rows_of_several_lengths(N):
  cfg = config(**PLAIN, N=N)
  params, found = params_of(cfg), run(cfg)
  for b, n in enumerate(LENGTHS):
    words, bits = BATCH['tokens_BT'][b, :n], BATCH['predicate_BT'][b, :n]
    x_TE = np.concatenate([params['embed']['table'][words], params['embed']['predicate'][bits]], -1)
    layers = [params[f'layer_{i:02d}'] for i in range(N)]
    np.testing.assert_allclose(found.last_BTD[b, :n], reference.stack(layers, x_TE), atol=1e-5)
    np.testing.assert_allclose(found.layers[0][b, :n], x_TE, atol=1e-6)
  assert np.abs(found.last_BTD[VALID]).max() > 0.1 and len(found.layers) == N + 1


def test_roles_depend_on_the_predicate():
  cfg = config(**PLAIN)
  other = {**BATCH, 'predicate_BT': np.roll(BATCH['predicate_BT'], 1, axis=1)}
  difference = np.abs(run(cfg).last_BTD - run(cfg, other).last_BTD).max(-1)
  assert (difference[0] > 1e-4).all()


@pytest.mark.parametrize(('place', 'width_in', 'width'), [('none', 15, 8), ('input', 29, 8), ('both', 29, 22)])
def test_elmo_vectors_are_added_where_configured(place, width_in, width):
  cfg = config(elmo=place, mix_l2=0.0)
  found = run(cfg)
  assert found.layers[0].shape[-1] == width_in and found.last_BTD.shape[-1] == width
  assert {name for name in params_of(cfg) if name.startswith('mix_')} == {
    f'mix_{one}' for one in ('input', 'output') if place in (one, 'both')
  }


def test_dropout_of_each_layer_has_one_mask_of_a_row():
  found = run(config(**PLAIN, dropout=0.5), key=jax.random.key(0))
  dropped = [np.all(layer[0] == 0, axis=0) for layer in found.layers[1:]]  # the row without padding
  assert all(0 < mask.sum() < 8 for mask in dropped) and (dropped[0] != dropped[1]).any()


def test_objective_is_per_word_softmax_with_srl_eval_roles():
  labels = {'dataset': {'name': 'x'}, 'token_label_names': ['B-A0', 'B-V', 'I-A0', 'O']}
  tag, cfg = objectives.default(srl_lstm, labels)
  assert (cfg.crf, cfg.constrained, cfg.scorer, cfg.init_std) == (False, True, 'srl_eval', 0.01)
  assert 'arguments without V, C-X as a part of X, as srl-eval' in tag.protocol(cfg, None, None)
  with pytest.raises(InputError, match='objective.scorer: got "srl_eval"'):
    tag.resolve(tag.Config(scorer='srl_eval'), {**labels, 'token_label_names': ['NOUN', 'VERB']})
  with pytest.raises(InputError, match='predicts no words'):
    srl_lstm.logits(config(), {}, None)
