"""The filters of a sampler, by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.decoding import sampling
from lmx.errors import InputError
from tests.reference import constraints

KEY = jax.random.key(3)
P = np.array([[0.4, 0.3, 0.2, 0.1]])


def _kept(logits) -> list[int]:
  return np.flatnonzero(np.isfinite(np.asarray(logits)[0])).tolist()


def test_top_k_keeps_k_tokens():
  logits = np.log(P)
  assert _kept(sampling.top_k(logits, 2)) == [0, 1]
  assert _kept(sampling.top_k(logits, 0)) == _kept(sampling.top_k(logits, 9)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
  ('p', 'paper', 'released'),
  [
    (0.75, [0, 1, 2], [0, 1]),  # 0.4 + 0.3 is below: the third token crosses
    (0.35, [0], [0]),  # the most probable one is never dropped
    (0.65, [0, 1], [0]),
    (1.0, [0, 1, 2, 3], [0, 1, 2, 3]),
  ],
)
def test_top_p_includes_the_crossing_token(p, paper, released):
  # In another order, so that sorting has to be undone.
  order = np.array([2, 0, 3, 1])
  logits = np.log(P[:, order])
  assert sorted(order[_kept(sampling.top_p(logits, p))]) == paper
  assert sorted(order[_kept(sampling.top_p(logits, p, 'released'))]) == released


def test_filters_apply_in_order():
  # Top-p looks at what temperature and top-k left: 0.16 and 0.09 become 0.64 and 0.36.
  logits = jnp.log(P)
  sampler = sampling.Sampler(temperature=0.5, top_k=2, top_p=0.6)
  assert _kept(sampling.filter_logits(sampler, logits)) == [0]
  assert _kept(sampling.filter_logits(sampling.Sampler(temperature=0.5, top_k=2, top_p=0.65), logits)) == [0, 1]
  assert _kept(sampling.filter_logits(sampling.Sampler(greedy=True, forbidden=(0,)), logits)) == [1]


def test_sample_frequencies_match_probabilities():
  keys = jax.random.split(KEY, 20_000)
  sample = jax.jit(sampling.sample, static_argnums=0)
  drawn = sample(sampling.Sampler(forbidden=(3,)), np.log(np.broadcast_to(P, (20_000, 4))), keys)
  found = np.bincount(np.asarray(drawn), minlength=4) / 20_000
  np.testing.assert_allclose(found, [4 / 9, 3 / 9, 2 / 9, 0], atol=0.015)


def test_most_probable_token_is_the_first_allowed_one():
  logits_BV = jnp.array([[1.0, 3.0, 2.0, 2.0], [4.0, 0.0, 1.0, 1.0]])
  for sampler in (
    sampling.Sampler(greedy=True, forbidden=(1,)),
    sampling.Sampler(temperature=0.0, top_k=1, forbidden=(1,)),
  ):
    np.testing.assert_array_equal(sampling.sample(sampler, logits_BV, jax.random.split(jax.random.key(0), 2)), [2, 0])


RULES = {
  'forbidden': (2,),
  'forbidden_first': (0, 3),
  'bad_words': ((1,), (5,), (4, 0), (3, 4, 2), (0, 0)),
  'min_tokens': 3,
}


@pytest.mark.parametrize('n', [1, 2, 3, 11])
def test_constraints_match_reference(n):
  rng = np.random.default_rng(n)
  rules = RULES | {'no_repeat_ngram': n}
  length_B, count_B = rng.integers(1, 10, 40), rng.integers(0, 5, 40)
  ids_BL, logits_BV = rng.integers(0, 6, (40, 10)), rng.normal(size=(40, 6)).astype(np.float32)

  @jax.jit
  def constrain(logits_BV, text):
    penalised_BV = sampling.penalise_repetition(logits_BV, *text[:2], 1.7)
    return sampling.constrain(sampling.Constraints(**rules), penalised_BV, text, (5, 1))

  found_BV = np.asarray(constrain(logits_BV, sampling.Text(ids_BL, length_B, count_B)))
  for b in range(40):
    given = logits_BV[b], ids_BL[b, : length_B[b]].tolist(), int(count_B[b])
    expected = constraints.apply(*given, ends=(5, 1), repetition_penalty=1.7, **rules)
    np.testing.assert_allclose(found_BV[b], expected, rtol=1e-6)
  assert np.isfinite(found_BV).any() and np.isinf(found_BV).any()


def test_forced_ids_are_the_only_ones():
  found = sampling.force(jnp.asarray(np.log(np.repeat(P, 2, 0))), jnp.array([True, False]), (1, 3))
  np.testing.assert_array_equal(found[0], [-np.inf, 0, -np.inf, 0])
  np.testing.assert_allclose(found[1], np.log(P[0]))


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (dict(min_tokens=-1), 'min_tokens: got -1'),
    (dict(no_repeat_ngram=-2), 'no_repeat_ngram: got -2'),
    (dict(repetition_penalty=0.0), 'repetition_penalty: got 0'),
    (dict(bad_words=((1, 2), ())), 'bad_words: got a sequence without ids'),
  ],
)
def test_invalid_constraints_are_rejected(change, message):
  with pytest.raises(InputError, match=message):
    sampling.Sampler(**change)
