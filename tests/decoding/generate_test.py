"""Decoding: every model with a state against the model without one."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from lmx.decoding import generate
from lmx.errors import InputError, InputWarning
from lmx.kernels import dense
from lmx.models import registry
from lmx.types import Features
from tests import drawn, placed
from tests.reference import constraints

MODELS = ('gpt2', 'rnn_lm', 'nplm')
KEY = jax.random.key(3)
PROMPT_BT = np.random.default_rng(0).integers(0, 60, (3, 9)).astype(np.int32)
LENGTHS_B = np.array([9, 2, 5])
SAMPLER = generate.Sampler(top_k=20)
_sample = jax.jit(generate.sample, static_argnums=0)


@functools.cache
def _model(name: str):
  module, cfg = registry.get(name), registry.config(name, 'tiny')
  return module, cfg, drawn.params(module.init, cfg)


@functools.cache
def _scorer(name: str):
  module, cfg, params = _model(name)

  @jax.jit
  def score(tokens_BT):
    features, _ = module.apply(cfg, params, {'tokens_BT': tokens_BT}, module.init_state(cfg, tokens_BT.shape[0]))
    return module.logits(cfg, params, Features(features.last_BTD))

  return score


def _next_logits(name: str, ids: list[int]) -> np.ndarray:
  """Scores of the next token by one pass over the whole text, without a cache; padded to spare compilations."""
  padded_BT = np.zeros((1, 64), np.int32)
  padded_BT[0, : len(ids)] = ids
  return np.asarray(_scorer(name)(padded_BT))[0, len(ids) - 1]


@functools.cache
def _generated(name: str):
  """Fifteen tokens for each of the prompts, drawn, so that the text wanders."""
  return generate.generate(*_model(name), PROMPT_BT, LENGTHS_B, steps=15, key=KEY, sampler=SAMPLER)


@pytest.mark.parametrize('name', MODELS)
def test_cached_decoding_equals_teacher_forcing(name):
  """The score of every draw is compared through the draw itself."""
  found = _generated(name)
  for b in range(3):
    ids, key = PROMPT_BT[b, : LENGTHS_B[b]].tolist(), jax.random.fold_in(KEY, b)
    for t, token in enumerate(found.tokens_BT[b]):
      expected = _sample(SAMPLER, _next_logits(name, ids)[None], jax.random.fold_in(key, t)[None])
      assert int(expected[0]) == token, (b, t)
      ids.append(int(token))
  assert len(set(found.tokens_BT.ravel().tolist())) > 10  # a model that repeats itself would show nothing


@pytest.mark.parametrize('name', MODELS)
def test_finished_rows_freeze_and_rows_are_independent(name, monkeypatch):
  monkeypatch.setattr(dense, 'LEAST_KERNEL', 1)  # the loop of `generate` reads kernels by outputs, `stream` not
  first = _generated(name)
  eos_id = int(first.tokens_BT[1, 4])
  options = dict(steps=15, sampler=SAMPLER, eos_ids=(eos_id,))
  with placed.on('cpu'):
    found = generate.generate(*_model(name), PROMPT_BT, LENGTHS_B, key=KEY, **options)
  for row, count, before in zip(found.tokens_BT, found.counts_B, first.tokens_BT, strict=True):
    ended = np.flatnonzero(before == eos_id)
    expected = before.copy()
    if ended.size:
      expected[ended[0] :] = eos_id
    np.testing.assert_array_equal(row, expected)
    assert count == (ended[0] + 1 if ended.size else 15)
  assert found.counts_B[1] <= 5
  streamed = np.stack(list(generate.stream(*_model(name), PROMPT_BT, LENGTHS_B, key=KEY, **options)), 1)
  np.testing.assert_array_equal(streamed, found.tokens_BT[:, : streamed.shape[1]])
  for b in range(3):
    key = jax.random.fold_in(KEY, b)[None]
    alone = generate.generate(*_model(name), PROMPT_BT[b : b + 1, : LENGTHS_B[b]], key=key, **options)
    np.testing.assert_array_equal(alone.tokens_BT[0], found.tokens_BT[b])


def test_constraints_apply_to_prompt_and_continuation():
  """Greedy decoding of prompts of several lengths against a loop; the last token is forced."""
  rules = {'bad_words': ((3, 4), (7,)), 'forbidden': (11,), 'forbidden_first': (2,), 'min_tokens': 4}
  rules |= {'no_repeat_ngram': 2, 'repetition_penalty': 1.4}
  steps, ends = 12, (5, 40, 41)
  call = dict(steps=steps, key=KEY, sampler=generate.Sampler(greedy=True, force_end=True, **rules), eos_ids=ends)
  found = generate.generate(*_model('rnn_lm'), PROMPT_BT, LENGTHS_B, **call)
  for b in range(3):
    ids = PROMPT_BT[b, : LENGTHS_B[b]].tolist()
    for t in range(found.counts_B[b]):
      scores = constraints.apply(_next_logits('rnn_lm', ids), ids, t, ends=ends, **rules)
      assert found.tokens_BT[b, t] == (np.argmax(scores) if t < steps - 1 else ends[0]), (b, t)
      ids.append(int(found.tokens_BT[b, t]))
    assert ids[-1] in ends and not {*ends} & {*ids[LENGTHS_B[b] : -1]}
  streamed = np.stack(list(generate.stream(*_model('rnn_lm'), PROMPT_BT, LENGTHS_B, **call)), 1)
  np.testing.assert_array_equal(streamed, found.tokens_BT[:, : streamed.shape[1]])


def test_constraints_that_exclude_all_tokens_are_an_error():
  sampler = generate.Sampler(greedy=True, no_repeat_ngram=1, forbidden=tuple(range(8, 61)))
  call = dict(steps=12, key=KEY, sampler=sampler)
  for decode in (generate.generate, lambda *given, **call: list(generate.stream(*given, **call))):
    with pytest.raises(InputError, match='forbidden, no_repeat_ngram: got values that exclude every token'):
      decode(*_model('nplm'), PROMPT_BT, LENGTHS_B, **call)


def test_generation_beyond_the_window_reencodes_its_last_half():
  module, cfg, params = _model('gpt2')
  context = 8
  keys = jax.random.split(KEY, 2)
  prompt_BT = PROMPT_BT[:2, :5]
  lengths_B = np.array([5, 2])  # so that the rows reach the end of the window at different tokens
  options = dict(steps=19, key=keys, sampler=SAMPLER, context=context)
  found = generate.generate(module, cfg, params, prompt_BT, lengths_B, **options)
  for b in range(2):
    seen = prompt_BT[b, : lengths_B[b]].tolist()
    for t, token in enumerate(found.tokens_BT[b]):
      drawn_B = _sample(SAMPLER, _next_logits('gpt2', seen)[None], jax.random.fold_in(keys[b], t)[None])
      assert int(drawn_B[0]) == token, (b, t)
      seen.append(int(token))
      if len(seen) > context:
        seen = seen[-context // 2 :]


def test_generation_passes_the_window_length():
  module, cfg, params = _model('gpt2')
  options = dict(key=KEY, sampler=generate.Sampler())
  prompt_BT = np.tile(PROMPT_BT, (1, 7))[:, :60]
  fits = generate.generate(module, cfg, params, prompt_BT, steps=cfg.T - 60, **options)
  passes = generate.generate(module, cfg, params, prompt_BT, steps=cfg.T - 60 + 9, **options)
  np.testing.assert_array_equal(passes.tokens_BT[:, : cfg.T - 60], fits.tokens_BT)


def test_long_prompt_is_truncated_on_the_left():
  module, cfg, params = _model('gpt2')
  options = dict(steps=3, key=KEY, sampler=generate.Sampler(greedy=True))
  long_BT = np.random.default_rng(1).integers(0, cfg.V, (1, cfg.T + 30))
  with pytest.warns(InputWarning, match=f'only its last {cfg.T} tokens'):
    found = generate.generate(module, cfg, params, long_BT, **options)
  end = generate.generate(module, cfg, params, long_BT[:, -cfg.T :], **options)
  np.testing.assert_array_equal(found.tokens_BT, end.tokens_BT)


def test_forbidden_ids_are_never_sampled():
  module, cfg, params = _model('rnn_lm')
  sampler = generate.Sampler(forbidden=tuple(range(0, cfg.V, 2)))
  found = generate.generate(module, cfg, params, PROMPT_BT, steps=30, key=KEY, sampler=sampler)
  assert np.all(found.tokens_BT % 2 == 1)


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    (dict(prompt_BT=np.array([[0, 97]])), 'token 97'),
    (dict(prompt_BT=np.array([[-1, 0]])), 'token -1'),
    (dict(prompt_BT=np.zeros((1, 0), int)), 'lengths_B: got'),
    (dict(lengths_B=np.array([0, 1, 1])), 'lengths_B: got'),
    (dict(steps=0), 'steps: got 0'),
    (dict(context=65), 'context: got 65'),
    (dict(sampler=generate.Sampler(forbidden=(97,))), 'forbidden: got the id 97'),
    (dict(sampler=generate.Sampler(bad_words=((1,), (2, 97)))), 'bad_words: got the id 97'),
    (dict(sampler=generate.Sampler(forbidden=tuple(range(97)))), 'forbidden: got all 97 ids'),
    (dict(eos_ids=(3, 97)), 'eos_ids: got the id 97'),
    (dict(sampler=generate.Sampler(force_end=True)), 'force_end: got True'),
    (dict(key=jax.random.split(KEY, 2)), r'key: got shape \(2,\) for 3 rows'),
    (dict(key=None), 'key: got None'),
  ],
)
def test_invalid_input_is_rejected(change, message):
  module, cfg, params = _model('gpt2')
  options = dict(prompt_BT=PROMPT_BT, lengths_B=None, steps=2, key=KEY, sampler=generate.Sampler()) | change
  with pytest.raises(InputError, match=message):
    generate.generate(module, cfg, params, **options)


@pytest.mark.parametrize('change', [dict(temperature=-1), dict(top_k=-1), dict(top_p=0), dict(top_p_form='x')])
def test_invalid_sampler_is_rejected(change):
  with pytest.raises(InputError):
    generate.Sampler(**change)


def test_generation_rejects_a_bidirectional_model():
  cfg = registry.config('bert', 'tiny')
  with pytest.raises(InputError, match='both directions'):
    generate.generate(registry.get('bert'), cfg, {}, PROMPT_BT, steps=1, key=KEY, sampler=generate.Sampler())
