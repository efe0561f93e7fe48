"""The CRF against the enumeration of all paths: its partition function, gradients and best paths."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from lmx.objectives import tag

L, T = 3, 4
LENGTHS = np.array([4, 2, 1, 0])
VALID = np.arange(T) < LENGTHS[:, None]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, T, L)).astype(np.float32)
LABELS = RNG.integers(0, L, (4, T)).astype(np.int32)
PARAMS = {
  name: RNG.normal(size=shape).astype(np.float32)
  for name, shape in (('transitions', (L, L)), ('start', (L,)), ('end', (L,)))
}


crf_nll = jax.jit(tag.crf_nll)


def path_scores(params, x_TL, paths):
  """Written out for paths (N, n), of arrays that can be differentiated."""
  n = paths.shape[1]
  moves = params['transitions'][paths[:, :-1], paths[:, 1:]].sum(1)
  return params['start'][paths[:, 0]] + x_TL[np.arange(n), paths].sum(1) + moves + params['end'][paths[:, -1]]


def all_paths(b):
  return np.array(list(itertools.product(range(L), repeat=LENGTHS[b])))


def enumerated(params, x, b):
  """Negative log-likelihood of row b from all paths."""
  true = path_scores(params, x[b], LABELS[b : b + 1, : LENGTHS[b]])[0]
  return jax.nn.logsumexp(path_scores(params, x[b], all_paths(b))) - true


def test_likelihood_and_all_gradients_equal_the_enumeration():
  every = lambda params, x: jnp.stack([enumerated(params, x, b) for b in range(3)])

  @jax.jit
  def both(params, x):
    nll_B, back = jax.vjp(lambda *args: tag.crf_nll(*args, LABELS, VALID), params, x)
    expected_B, every_back = jax.vjp(every, params, x)
    return nll_B, expected_B, back(jnp.ones(4)), every_back(jnp.ones(3))

  nll_B, expected_B, *gradients = both(PARAMS, X)
  np.testing.assert_allclose(nll_B[:3], expected_B, rtol=1e-5, atol=1e-5)
  assert nll_B[3] == 0
  for found, wanted in zip(*map(jax.tree.leaves, gradients), strict=True):
    assert np.abs(wanted).max() > 1e-2
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_tokens_after_the_end_change_nothing():
  noise = np.where(VALID[..., None], X, 1e3 * RNG.normal(size=X.shape)).astype(np.float32)
  labels = np.where(VALID, LABELS, (LABELS + 1) % L)
  np.testing.assert_allclose(crf_nll(PARAMS, noise, labels, VALID), crf_nll(PARAMS, X, LABELS, VALID), rtol=1e-6)
  viterbi = jax.jit(tag.viterbi)
  np.testing.assert_array_equal(viterbi(PARAMS, noise, VALID), viterbi(PARAMS, X, VALID))


def test_best_path_is_the_best_of_all():
  moves, starts = RNG.random((L, L)) < 0.6, np.array([True, False, True])
  moves |= np.eye(L, dtype=bool)
  for allowed in (None, (moves, starts)):
    found = np.asarray(jax.jit(functools.partial(tag.viterbi, allowed=allowed))(PARAMS, X, VALID))
    for b in range(3):
      paths = all_paths(b)
      if allowed is not None:
        paths = paths[starts[paths[:, 0]] & moves[paths[:, :-1], paths[:, 1:]].all(1)]
      best = paths[np.argmax(path_scores(PARAMS, X[b], paths))]
      np.testing.assert_array_equal(found[b, : LENGTHS[b]], best)
      assert not found[b, LENGTHS[b] :].any()
