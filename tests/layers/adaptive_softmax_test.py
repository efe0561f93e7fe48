"""Adaptive embeddings and softmax against a plain re-statement, for every way in which words can fall."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.kernels import adaptive_softmax as kernels
from lmx.layers import adaptive_embedding, adaptive_softmax
from tests import drawn, placed
from tests.reference import transformer_xl as reference

B, T, V, D = 3, 7, 40, 12
SIZES = {
  'alike': adaptive_embedding.Sizes(V, D, D, (10, 25)),
  'projected': adaptive_embedding.Sizes(V, D, 8, (10, 25)),
  'projected twice': adaptive_embedding.Sizes(V, D, 8, (10, 25), 1, 'none'),
  'head projected apart': adaptive_embedding.Sizes(V, D, 8, (10, 25), 1, 'head'),
  'clusters projected apart': adaptive_embedding.Sizes(V, D, 8, (10, 25), 1, 'clusters'),
  'narrower': adaptive_embedding.Sizes(V, D, D, (10, 25), 2),
  'first apart': adaptive_embedding.Sizes(V, D, D, (10, 25), 2, 'but_first'),
  'all apart': adaptive_embedding.Sizes(V, D, D, (10, 25), 2, 'none'),
  'one cluster': adaptive_embedding.Sizes(V, D, D),
}
WORDS = {  # which words a batch has
  'any': lambda rng: rng.integers(0, V, (B, T)),
  'frequent': lambda rng: rng.integers(0, 10, (B, T)),
  'last cluster': lambda rng: rng.integers(25, V, (B, T)),
  'one row rare': lambda rng: np.concatenate([rng.integers(0, 10, (B - 1, T)), rng.integers(10, V, (1, T))]),
}
every_size = pytest.mark.parametrize('name', SIZES)


def draw(sizes):
  """(input, output) with no bias at 0."""
  return drawn.params(lambda key: adaptive_embedding.init(sizes, key, 0.5, 0.3), std=0.5)


def hidden(seed=0):
  return np.random.default_rng(seed).standard_normal((B, T, D)).astype(np.float32)


@every_size
def test_word_probability_is_cluster_times_within_cluster(name):
  sizes, x_BTD = SIZES[name], hidden()
  given, output = draw(sizes)

  @jax.jit
  def run(given, output, x_BTD):
    log_p_BTV = adaptive_softmax.log_probabilities(adaptive_embedding.clusters(sizes, given, output), x_BTD)
    return log_p_BTV if sizes.cutoffs else jax.nn.log_softmax(log_p_BTV)

  log_p_BTV = np.asarray(run(given, output, x_BTD))
  np.testing.assert_allclose(np.exp(log_p_BTV).sum(-1), 1, rtol=1e-5)
  for word in (0, 9, 10, 24, 25, V - 1):
    expected = reference.word_nll(given, output, sizes.cutoffs, V, x_BTD[1, 2].astype(np.float64), word)
    assert float(-log_p_BTV[1, 2, word]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
  'name, shards, block',
  [
    ('alike', 1, 0),
    pytest.param('projected twice', 1, 4, marks=pytest.mark.slow),
    ('projected twice', B, 3),
    ('first apart', B, 3),
    pytest.param('one cluster', 1, 4, marks=pytest.mark.slow),
  ],
)
def test_loss_and_its_gradients_match_all_probabilities(monkeypatch, name, shards, block):
  """Whatever words come, in however many blocks: no position is dropped, and none counts twice."""
  if block:
    monkeypatch.setattr(kernels, 'block_size', lambda positions, classes, _: min(block, positions))
  sizes, x_BTD, params = SIZES[name], hidden(), draw(SIZES[name])
  weights_BT = np.random.default_rng(3).random((B, T)).astype(np.float32)

  def plain(params, x_BTD, targets_BT):
    log_p_BTV = jax.nn.log_softmax(
      adaptive_softmax.log_probabilities(adaptive_embedding.clusters(sizes, *params), x_BTD)
    )
    return -jnp.take_along_axis(log_p_BTV, targets_BT[..., None], axis=-1)[..., 0]

  ours = lambda params, *xs: adaptive_softmax.nll(adaptive_embedding.clusters(sizes, *params), *xs)

  def both(f):
    def total(*args):
      nll_BT = f(*args)
      return jnp.sum(nll_BT * weights_BT), nll_BT

    return jax.grad(total, argnums=(0, 1), has_aux=True)

  run = jax.jit(lambda *args: (both(ours)(*args), both(plain)(*args)))
  for words, targets in WORDS.items():
    with placed.on(data=shards):
      found, expected = run(params, x_BTD, targets(np.random.default_rng(2)).astype(np.int32))
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(expected), strict=True):
      np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=words + jax.tree_util.keystr(path))


@every_size
def test_embeddings_are_the_rows_of_the_words(name):
  sizes = SIZES[name]
  given, _ = draw(sizes)
  lookup = jax.jit(lambda given, ids: adaptive_embedding.lookup(sizes, given, ids, 'float32'))
  table_VD = np.asarray(lookup(given, np.arange(V)[:, None]))[:, 0]
  for i, (ending, rows, _) in enumerate(sizes.tables):
    start = (0, *sizes.cutoffs)[i]
    for row in (0, rows - 1):
      expected = given[f'tokens{ending}'][row]
      if f'projection{ending}' in given:
        expected = expected @ given[f'projection{ending}']
      np.testing.assert_allclose(table_VD[start + row], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
  'wrong, words',
  [
    (dict(cutoffs=(25, 10)), r'model.cutoffs: got \(25, 10\)'),
    (dict(cutoffs=(10, 50)), r'model.cutoffs: got \(10, 50\)'),
    (dict(cutoffs=(10, 25), div_val=8), 'model.div_val: got 8'),
    (dict(tie_projections='al'), 'did you mean "all"'),
  ],
)
def test_invalid_sizes_are_rejected(wrong, words):
  with pytest.raises(InputError, match=words):
    adaptive_embedding.Sizes(V, D, D, **wrong)
