"""Beam search against a plain re-statement, exhaustive search, greedy decoding and teacher forcing."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.decoding import beam_search as beam_lib
from lmx.decoding import generate
from lmx.decoding.beam_search import Beam
from lmx.decoding.sampling import Sampler
from lmx.errors import InputError
from lmx.models import registry
from lmx.registry import complete
from lmx.types import Model
from tests import drawn, tiny_translator
from tests.reference import beam as reference

tiny = complete(Model, tiny_translator)

EOS = 1
CFG = tiny.Config()
RNG = np.random.default_rng(0)
LENGTHS = (5, 9, 2, 7)
SOURCE_BS = RNG.integers(2, CFG.V, (4, 9)).astype(np.int32)
SOURCE = {'source_BS': SOURCE_BS, 'source_valid_BS': np.arange(9)[None] < np.array(LENGTHS)[:, None]}
SEEDS = (1, 9, 15)  # of parameters with which the rules of stopping differ
LIMITS = np.array([14, 9, 20, 1])


def _rows(source, rows):
  return {name: x[rows] for name, x in source.items()}


_init = jax.jit(tiny.init, static_argnums=0)


@functools.cache
def _params(seed: int = 1):
  return jax.device_get(_init(CFG, jax.random.key(seed)))


@functools.cache
def _scorer(cfg=CFG):
  @jax.jit
  def score(params, batch):
    features, _ = tiny.apply(cfg, params, batch)
    return jax.nn.log_softmax(tiny.logits(cfg, params, features))

  return score


def _next(row: int, seed: int = 1):
  """Log-probabilities of the next token of a row by one pass over the whole prefix, without a state."""

  @functools.cache
  def next_log_p(prefix: tuple[int, ...]) -> np.ndarray:
    tokens_BT = np.zeros((1, 24), np.int32)
    tokens_BT[0, : len(prefix) + 1] = (EOS, *prefix)
    batch = {'tokens_BT': tokens_BT} | _rows(SOURCE, slice(row, row + 1))
    return np.asarray(_scorer()(_params(seed), batch), np.float64)[0, len(prefix)]

  return next_log_p


def _search(options, source=SOURCE, limits=LIMITS, seed=1, **more):
  more = {'eos_ids': (EOS,), **more}
  return beam_lib.search(tiny, CFG, _params(seed), beam=Beam(**options), limits=limits, source=source, **more)


def _hypotheses(found, row):
  return [tuple(y[:n].tolist()) for y, n in zip(found.tokens_BKT[row], found.counts_BK[row], strict=True) if n]


@pytest.mark.parametrize(
  'options',
  [
    pytest.param(dict(size=4), marks=pytest.mark.slow),
    pytest.param(dict(size=3, alpha=1.2), marks=pytest.mark.slow),
    dict(size=3, alpha=1.2, stop='current'),
    dict(size=3, alpha=1.2, stop='full'),
    dict(size=3, alpha=1.2, penalty='power'),
    dict(size=5, alpha=0.6, min_length=(4, 0, 2, 3), forbidden=(0, 3)),
    dict(size=20, alpha=0.6),  # more than the vocabulary has
    dict(size=3, alpha=1.2, forbidden=(0, 3), renormalise=True, first=4, force_end=True, min_length=(0, 3, 0, 0)),
    dict(size=3, alpha=-0.7, penalty='power', ends=(EOS, 6, 2)),
    dict(
      size=3,
      alpha=0.9,
      stop='current',
      no_repeat_ngram=2,
      repetition_penalty=1.6,
      bad_words=((4, 5), (9,), (EOS, 7)),
      forbidden_first=(8,),
    ),
  ],
)
def test_matches_reference(options):
  names = {'size': 4, 'alpha': 0.6, 'penalty': 'gnmt', 'stop': 'bound'} | options
  plain = {'form' if name == 'penalty' else name: value for name, value in names.items()}
  least, ends = plain.pop('min_length', (0, 0, 0, 0)), plain.pop('ends', (EOS,))
  options = {name: value for name, value in options.items() if name not in ('min_length', 'ends')}
  found_by_seed = {seed: _search(options, seed=seed, least=np.array(least), eos_ids=ends) for seed in SEEDS}
  plain |= {'others': ends[1:], 'prompt': (EOS,)}
  for row, (seed, found) in itertools.product(range(4), found_by_seed.items()):
    expected = reference.search(_next(row, seed), limit=int(LIMITS[row]), eos=EOS, min_length=least[row], **plain)
    assert _hypotheses(found, row) == [h[0] for h in expected]
    np.testing.assert_allclose(found.log_p_BK[row, : len(expected)], [h[1] for h in expected], atol=1e-4)
    np.testing.assert_allclose(found.scores_BK[row, : len(expected)], [h[2] for h in expected], atol=1e-4)
    assert np.all(found.counts_BK[row, len(expected) :] == 0)
    assert found.counts_BK[3, 0] == 1  # its limit


def test_options_change_the_result_on_test_rows():
  # Else the comparison above would show less than it seems to.
  options = {
    'bound': dict(alpha=1.2),
    'current': dict(alpha=1.2, stop='current'),
    'full': dict(alpha=1.2, stop='full'),
    'probability': dict(alpha=0.0),
    'power': dict(alpha=1.2, penalty='power'),
  }
  texts = []
  for o in options.values():
    found = [_search(dict(size=3, **o), seed=seed) for seed in SEEDS]
    texts.append([_hypotheses(each, row) for each in found for row in range(4)])
  assert all(a != b for a, b in itertools.combinations(texts, 2))


@pytest.mark.parametrize('alpha', [0.0, 1.0])
def test_full_beam_is_exhaustive_search(alpha):
  cfg = tiny.Config(V=4, T=9)
  params = _init(cfg, jax.random.key(5))
  source = {'source_BS': SOURCE_BS[:2] % 4, 'source_valid_BS': SOURCE['source_valid_BS'][:2]}
  found = beam_lib.search(tiny, cfg, params, beam=Beam(size=200, alpha=alpha), limits=5, eos_ids=(EOS,), source=source)

  @functools.cache
  def scores(prefix, row):
    tokens_BT = np.array([[EOS, *prefix, *[0] * (5 - len(prefix))]])
    log_p_BTV = _scorer(cfg)(params, {'tokens_BT': tokens_BT} | _rows(source, slice(row, row + 1)))
    return np.asarray(log_p_BTV, np.float64)[0, len(prefix)]

  for row in range(2):
    every = reference.exhaustive(lambda p, row=row: scores(p, row), alpha=alpha, form='gnmt', limit=5, eos=EOS)
    assert _hypotheses(found, row) == [h[0] for h in every[:200]]
    np.testing.assert_allclose(found.scores_BK[row], [h[2] for h in every[:200]], atol=1e-4)


def test_beam_of_one_is_greedy():
  found = _search(dict(size=1, alpha=0.0), limits=20)
  greedy = generate.generate(
    tiny,
    CFG,
    _params(),
    np.full((4, 1), EOS),
    steps=20,
    key=jax.random.key(0),
    sampler=Sampler(greedy=True),
    eos_ids=(EOS,),
    source=SOURCE,
  )
  np.testing.assert_array_equal(found.tokens_BKT[:, 0], greedy.tokens_BT)
  np.testing.assert_array_equal(found.counts_BK[:, 0], greedy.counts_B)
  assert len({int(n) for n in greedy.counts_B}) > 1


def test_log_probabilities_match_teacher_forcing():
  found = _search(dict(size=5, forbidden=(0, 3)))
  for row in range(4):
    for k, tokens in enumerate(_hypotheses(found, row)):
      each = [_next(row)(tokens[:t])[y] for t, y in enumerate(tokens)]
      assert found.log_p_BK[row, k] == pytest.approx(sum(each), abs=1e-4)


def test_hypotheses_are_sorted_distinct_and_frozen_after_eos():
  found = _search(dict(size=4))
  for row in range(3):
    texts = _hypotheses(found, row)
    assert len(set(texts)) == 4 and np.all(np.diff(found.scores_BK[row]) <= 0)
    for tokens, count in zip(found.tokens_BKT[row], found.counts_BK[row], strict=True):
      assert np.all(tokens[count:] == EOS) and EOS not in tokens[: count - 1]
      assert tokens[count - 1] == EOS or count == LIMITS[row]
  # A higher limit for the other rows changes nothing that has ended.
  longer = _search(dict(size=4), limits=np.array([14, 20, 20, 1]))
  np.testing.assert_array_equal(longer.tokens_BKT[0], found.tokens_BKT[0])
  np.testing.assert_array_equal(longer.scores_BK[0], found.scores_BK[0])


@pytest.mark.parametrize(('stop', 'seed', 'rows'), [('bound', 1, (0, 2)), ('current', 9, (1,))])
def test_rows_are_independent_of_others_and_padding(stop, seed, rows):
  options = dict(size=3, alpha=1.2, stop=stop)
  whole = _search(options, seed=seed)
  wide = {
    'source_BS': np.pad(SOURCE_BS, ((0, 0), (0, 11)), constant_values=5),
    'source_valid_BS': np.pad(SOURCE['source_valid_BS'], ((0, 0), (0, 11))),
  }
  padded = _search(options, wide, seed=seed, steps=33)
  for row in range(4):
    others = [(padded, row)]
    if row in rows:
      alone = {name: x[row : row + 1, : LENGTHS[row]] for name, x in SOURCE.items()}
      others.append((_search(options, alone, LIMITS[row], seed), 0))
    for other, at in others:
      assert _hypotheses(other, at) == _hypotheses(whole, row)
      np.testing.assert_allclose(other.log_p_BK[at], whole.log_p_BK[row], atol=1e-5)
      np.testing.assert_allclose(other.scores_BK[at], whole.scores_BK[row], atol=1e-5)


@pytest.mark.parametrize('name', ['gpt2', 'rnn_lm'])
def test_continues_prompts_of_a_causal_model(name):
  model, cfg = registry.get(name), registry.config(name, 'tiny')
  params = drawn.params(model.init, cfg)
  prompt_BT, lengths_B = RNG.integers(0, 60, (2, 6)), np.array([6, 3])
  found = beam_lib.search(
    model,
    cfg,
    params,
    prompt_BT,
    lengths_B,
    beam=Beam(size=3, forbidden=tuple(range(30, cfg.V))),
    limits=8,
    eos_ids=(7,),
  )

  @jax.jit
  def scores(tokens_BT):
    features, _ = model.apply(cfg, params, {'tokens_BT': tokens_BT}, model.init_state(cfg, 1))
    return jax.nn.log_softmax(model.logits(cfg, params, features))

  for row in range(2):
    start = prompt_BT[row, : lengths_B[row]].tolist()

    @functools.cache
    def next_log_p(prefix, start=tuple(start)):
      text = np.zeros((1, 16), np.int32)
      text[0, : len(start) + len(prefix)] = start + prefix
      return np.asarray(scores(text), np.float64)[0, len(start) + len(prefix) - 1]

    expected = reference.search(
      next_log_p, size=3, alpha=0.6, form='gnmt', stop='bound', limit=8, eos=7, forbidden=tuple(range(30, cfg.V))
    )
    assert _hypotheses(found, row) == [h[0] for h in expected]
    np.testing.assert_allclose(found.scores_BK[row], [h[2] for h in expected], atol=1e-4)


def test_window_bounds_the_continuation():
  found = _search(dict(size=4), limits=99, least=99)
  assert np.all(found.counts_BK == CFG.T)
  again = _search(dict(size=4), limits=20, least=99)
  np.testing.assert_array_equal(again.counts_BK, 20)


@pytest.mark.parametrize('penalty', ['gnmt', 'power'])
def test_length_penalty(penalty):
  lengths = np.array([1, 7, 40])
  expected = [reference.penalty(int(n), 0.6, penalty) for n in lengths]
  np.testing.assert_allclose(beam_lib.length_penalty(Beam(penalty=penalty), jnp.asarray(lengths)), expected, rtol=1e-6)


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (dict(options=dict(size=0)), 'beam size'),
    (dict(options=dict(alpha=-200)), 'beam alpha: got -200'),
    (dict(options=dict(alpha=100)), 'beam alpha: got 100'),
    (dict(options=dict(stop='late')), 'beam stop'),
    (dict(options=dict(penalty='none')), 'beam penalty'),
    (dict(options=dict(forbidden=(13,))), 'forbidden'),
    (dict(limits=0), 'no room'),
    (dict(source=None), 'expected prompts of 1 to|needs a source'),
    (dict(source=SOURCE | {'source_BS': SOURCE_BS + 5}), 'source has token'),
    (dict(source={name: np.tile(x, (1, 5)) for name, x in SOURCE.items()}), 'only T = 40'),
  ],
)
def test_invalid_input_is_rejected(change, message):
  with pytest.raises(InputError, match=message):
    _search(**(dict(options={}) | change))
