"""GLUE's BiLSTM baseline: attention, features of a pair and the whole model against NumPy; its Config."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.layers import word_input
from lmx.models import registry
from lmx.types import Features
from tests import drawn
from tests.reference import glue_bilstm as reference

glue_bilstm = registry.get('glue_bilstm')

B, T, S, C = 3, 6, 5, 7
LENGTHS = {'T': (6, 3, 1), 'S': (4, 5, 0)}
RNG = np.random.default_rng(0)
PAIRS = {}
for axis, size in (('T', T), ('S', S)):
  PAIRS |= {
    f'tokens_B{axis}': RNG.integers(0, 61, (B, size)).astype(np.int32),
    f'characters_B{axis}C': RNG.integers(1, 262, (B, size, C)).astype(np.int32),
    f'valid_B{axis}': np.arange(size) < np.array(LENGTHS[axis])[:, None],
  }
SINGLES = {key: x for key, x in PAIRS.items() if 'BS' not in key}
PLAIN = {'elmo': 'none', 'char_filters': (), 'mix_l2': 0.0}


def config(**changes):
  quiet = {'dropout': 0.0, 'dropout_elmo': 0.0, 'dropout_bilm': 0.0}
  return registry.config('glue_bilstm', 'tiny', **{**quiet, 'bilm_layers': 1, **changes})


@pytest.mark.parametrize(
  'changes',
  [
    {**PLAIN, 'N': 2},
    {**PLAIN, 'attention': False},
    {**PLAIN, 'attention': False, 'texts': 1},
    {'words': False, 'char_filters': ()},
    {'attention': False},
  ],
  ids=['attention', 'independent', 'single', 'elmo_alone', 'elmo_and_words'],
)
def test_pair_vector_matches_the_paper(changes):
  cfg = config(**changes)
  batch = PAIRS if cfg.texts == 2 else SINGLES
  params = drawn.params(glue_bilstm.init, cfg, std=drawn.by_size(2))

  @jax.jit
  def run(params):
    inputs = {}
    for axis in 'TS'[: cfg.texts]:
      words = word_input.embed(cfg, params, batch, axis) if cfg.words else None
      inputs[axis] = words, word_input.elmo_vectors(cfg, params, batch, batch[f'valid_B{axis}'], None, None, axis)
    return glue_bilstm.apply(cfg, params, batch, (), all_layers=True)[0], inputs

  features, inputs = jax.device_get(run(params))
  plain = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
  assert ('embed' in params) == cfg.words and len(features.layers) == cfg.N + 1
  for b in range(B):
    texts, extra = [], []
    for axis in 'TS'[: cfg.texts]:
      n, (words, vectors) = LENGTHS[axis][b], inputs[axis]
      parts = [x[b, :n] for x in (words, vectors.get('input')) if x is not None]
      texts.append(np.concatenate(parts, -1).astype(np.float64))
      extra.append(vectors['output'][b, :n] if 'output' in vectors else np.zeros((n, 0)))
    wanted = reference.pooled(plain, texts, extra, cfg.N, cfg.attention)
    np.testing.assert_allclose(features.pooled_BD[b], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
  ('changes', 'batch', 'message'),
  [
    ({}, SINGLES, r'texts: got 2'),
    ({'attention': False, 'texts': 1}, PAIRS, r'texts: got 1'),
  ],
)
def test_rows_of_another_number_of_texts_are_rejected(changes, batch, message):
  cfg = config(**changes)
  with pytest.raises(InputError, match=message):
    jax.eval_shape(lambda p: glue_bilstm.apply(cfg, p, batch, ())[0], drawn.shapes(glue_bilstm.init, cfg))


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'texts': 3}, 'texts: got 3'),
    ({'texts': 1}, 'attention: got True'),
    ({'words': False, 'elmo': 'output'}, 'words: got False'),
    ({'words': False}, 'char_filters: got filters'),
  ],
)
def test_invalid_settings_are_rejected(changes, message):
  with pytest.raises(InputError, match=message):
    config(**changes)


def test_has_no_word_logits():
  with pytest.raises(InputError, match='predicts no words'):
    glue_bilstm.nll(config(), {}, Features(np.zeros((B, T, 8), np.float32)), PAIRS['tokens_BT'])
