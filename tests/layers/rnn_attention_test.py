"""The attention family against the papers' equations, its windows, and what is drawn from it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.layers import rnn_attention
from lmx.layers.masked_softmax import masked_softmax
from tests.reference import alignment as reference

B, T, S, REACH = 3, 5, 9, 2
LENGTHS = (9, 4, 1)
SIZES = rnn_attention.Sizes(query=6, key=6, align=7, positions=12)
UNEVEN = SIZES._replace(key=8)
every_score = pytest.mark.parametrize('name', sorted(rnn_attention.SCORES))
every_window = pytest.mark.parametrize('window', rnn_attention.WINDOWS)


def case(name, window='global', sizes=None):
  """(params, queries, keys, valid) in float32 and away from zero."""
  sizes = sizes or (SIZES if rnn_attention.SCORES[name].needs_equal_widths else UNEVEN)
  rng = np.random.default_rng(3)
  draw = lambda shape: rng.normal(size=shape).astype(np.float32)
  params = {key: 0.7 * draw(shape) for key, shape in rnn_attention.shapes(name, window, sizes).items()}
  return params, draw((B, T, sizes.query)), draw((B, S, sizes.key)), np.arange(S) < np.array(LENGTHS)[:, None]


def exact(tree):
  return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def aligned(name, window, params, q_BTD, k_BSE, valid_BS):
  """What the model does with a score, for all queries at once."""
  scores_BTS = rnn_attention.get(name)(params, q_BTD, k_BSE)
  count_B = jnp.sum(valid_BS, axis=1)
  centre_BT = None
  if window == 'local_m':
    centre_BT = rnn_attention.monotonic_centre(jnp.broadcast_to(jnp.arange(T), (B, T)), count_B)
  elif window == 'local_p':
    centre_BT = rnn_attention.predictive_centre(params, q_BTD @ params['centre_query'], count_B)
  return rnn_attention.align(window, scores_BTS, valid_BS, centre_BT=centre_BT, reach=REACH)


@every_score
def test_scores_equal_the_equations(name):
  params, q_BTD, k_BSE, _ = case(name)
  found = jax.jit(rnn_attention.get(name).__call__)(params, q_BTD, k_BSE)
  expected = [reference.scores(name, exact(params), q, k) for q, k in zip(exact(q_BTD), exact(k_BSE), strict=True)]
  assert found.shape == (B, T, S) and found.dtype == jnp.float32
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@every_window
@pytest.mark.parametrize('name', ['general', 'cosine'])
def test_weights_match_the_equations_and_masked_keys_get_zero(name, window):
  """Of any score: its own equation is tested above."""
  params, q_BTD, k_BSE, valid_BS = case(name, window)
  k_BSE[~valid_BS] = 50.0  # would win everything
  found = np.asarray(jax.jit(aligned, static_argnums=(0, 1))(name, window, params, q_BTD, k_BSE, valid_BS))
  p, q, k = exact(params), exact(q_BTD), exact(k_BSE)
  for b, n in enumerate(LENGTHS):
    scores_TS = reference.scores(name, p, q[b], k[b])
    for t in range(T):
      expected = reference.weights(window, p, scores_TS[t], q[b, t], t, n, REACH)
      np.testing.assert_allclose(found[b, t], expected, rtol=1e-5, atol=1e-5)
  assert not found[np.broadcast_to(~valid_BS[:, None], found.shape)].any()
  if window != 'local_p':
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)


def test_row_without_keys_gets_zeros_and_finite_gradients():
  params, q_BTD, k_BSE, valid_BS = case('additive', 'local_p')
  valid_BS[1] = False

  def total(p, q):
    a_BTS = aligned('additive', 'local_p', p, q, k_BSE, valid_BS)
    return jnp.sum(a_BTS[..., 0]), a_BTS

  gradients, a_BTS = jax.jit(jax.grad(total, (0, 1), has_aux=True))(params, q_BTD)
  assert not np.asarray(a_BTS)[1].any() and np.asarray(a_BTS)[0].any()
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradients))


def test_gradients_of_local_p_are_finite_differences():
  """Through window, Gaussian and softmax into the score, W_p, v_p, queries and keys, in float64."""
  inputs = case('general', 'local_p')
  mix_BTS = np.random.default_rng(5).normal(size=(B, T, S))
  rng, step = np.random.default_rng(6), 1e-6
  with jax.enable_x64(True):
    *arrays, valid_BS = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64 if x.dtype != bool else bool), inputs)
    centre = lambda params, q: rnn_attention.predictive_centre(params, q @ params['centre_query'], np.array(LENGTHS))
    centre_BT = np.asarray(jax.jit(centre)(*arrays[:2]))
    # No position enters or leaves a window within the differences that are taken.
    assert np.abs(np.abs(np.arange(S) - centre_BT[..., None]) - REACH).min() > 1e-4
    total = jax.jit(lambda *x: jnp.sum(aligned('general', 'local_p', *x, valid_BS) * mix_BTS))
    gradients, tree = jax.tree.flatten(jax.device_get(jax.jit(jax.grad(total, (0, 1, 2)))(*arrays)))
    leaves = jax.tree.leaves(jax.device_get(tuple(arrays)))
    for i, x in enumerate(leaves):
      way = rng.normal(size=x.shape)
      along = [total(*tree.unflatten([*leaves[:i], x + h * way, *leaves[i + 1 :]])) for h in (step, -step)]
      slope = np.vdot(gradients[i], way)
      assert gradients[i].dtype == jnp.float64 and abs(slope) > 1e-4
      np.testing.assert_allclose(slope, (along[0] - along[1]) / (2 * step), rtol=1e-6, atol=1e-8)


def test_samples_follow_the_weights_with_log_probabilities():
  a_S = np.array([0.5, 0.0, 0.3, 0.2], np.float32)
  a_BTS = np.broadcast_to(a_S, (4000, 1, 4))
  sample = jax.jit(lambda key: rnn_attention.draw(a_BTS, rnn_attention.noise(key, a_BTS.shape)))
  drawn, log_p_BT = jax.device_get(sample(jax.random.key(0)))
  np.testing.assert_allclose(np.mean(drawn[:, 0], axis=0), a_S, atol=0.03)
  assert (np.asarray(drawn).sum(-1) == 1).all()
  chosen = np.argmax(drawn[:, 0], axis=-1)
  np.testing.assert_allclose(log_p_BT[:, 0], np.log(a_S[chosen]), rtol=1e-5)
  best, log_p = jax.jit(lambda a_BTS: rnn_attention.draw(a_BTS, None))(a_BTS[:1])
  np.testing.assert_array_equal(best[0, 0], [1, 0, 0, 0])
  np.testing.assert_allclose(log_p[0, 0], np.log(0.5), rtol=1e-5)


def test_sample_has_no_gradient_but_its_probability_has():
  scores, seen = np.random.default_rng(2).standard_normal((B, T, S), np.float32), np.ones((B, T, S), bool)

  @jax.jit
  def run(scores):
    noise = rnn_attention.noise(jax.random.key(1), scores.shape)
    draw = lambda x: rnn_attention.draw(masked_softmax(x, seen), noise)
    of_draw, of_probability = jax.grad(lambda x: jnp.sum(draw(x)[0] * scores)), jax.grad(lambda x: jnp.sum(draw(x)[1]))
    return draw(scores)[0], masked_softmax(scores, seen), of_draw(scores), of_probability(scores)

  one_hot, weights, of_draw, of_probability = jax.device_get(run(scores))
  assert not of_draw.any()
  np.testing.assert_allclose(of_probability, one_hot - weights, rtol=1e-5, atol=1e-6)


def test_entropy_and_unevenness():
  a_BTS = np.array([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]], np.float32)
  np.testing.assert_allclose(jax.jit(rnn_attention.entropy)(a_BTS), [[np.log(2), 0.0]], atol=1e-6)
  valid_BS = np.array([[True, True, False]])
  unevenness = jax.jit(rnn_attention.unevenness)
  both = unevenness(a_BTS, valid_BS, np.ones((1, 2)))
  np.testing.assert_allclose(both, (1 - 1.5) ** 2 + (1 - 0.5) ** 2, rtol=1e-6)
  np.testing.assert_allclose(unevenness(a_BTS, valid_BS, np.array([[1.0, 0.0]])), 0.25 + 0.25, rtol=1e-6)
  assert unevenness(a_BTS, valid_BS, np.zeros((1, 2))) == 0  # a row of padding owes nothing


def test_concat_of_two_halves_is_additive_without_a_bias():
  """One family of functions, two parameterisations: W over [q; k] is a matrix for each side."""
  params, q_BTD, k_BSE, _ = case('concat')
  D = SIZES.query
  apart = {'query': params['matrix'][:D], 'key': params['matrix'][D:], 'energy': params['energy']}
  apart['bias'] = np.zeros(D, np.float32)
  np.testing.assert_allclose(
    rnn_attention.get('concat')(params, q_BTD, k_BSE),
    rnn_attention.get('additive')(apart, q_BTD, k_BSE),
    rtol=1e-5,
    atol=1e-6,
  )


@pytest.mark.parametrize('name', ['cosine_plain', 'dot', 'scaled_dot'])
def test_widths_that_differ_are_rejected(name):
  with pytest.raises(InputError, match='model.score: got'):
    rnn_attention.shapes(name, 'global', UNEVEN)


def test_location_scores_are_limited_to_s_positions():
  params, q_BTD, k_BSE, _ = case('location', sizes=UNEVEN._replace(positions=8))
  with pytest.raises(InputError, match='model.S: got 8'):
    rnn_attention.get('location')(params, q_BTD, k_BSE)


def test_unknown_score_names_the_nearest():
  with pytest.raises(InputError, match='did you mean "additive"'):
    rnn_attention.get('aditive')
