"""Memory-compressed attention against the restatement; causality, what each layer sees, cached decoding, counts."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.models import registry
from tests import drawn
from tests.models import compiled
from tests.reference import memory_compressed as reference

memory_compressed = registry.get('memory_compressed')

B, T = 2, 14


def config(**changes) -> memory_compressed.Config:
  return registry.config('memory_compressed', 'tiny', **({'dropout': 0.0, 'pattern': 'LML'} | changes))


def params_of(cfg):
  return drawn.params(memory_compressed.init, cfg, std=drawn.by_size())


def tokens(cfg, shape=(B, T), seed=0):
  return np.random.default_rng(seed).integers(0, cfg.V, shape).astype(np.int32)


def logits(cfg, batch, state=()):
  return compiled.logits(memory_compressed, cfg, params_of(cfg), batch, state)


@pytest.mark.parametrize(
  'pattern,norm,compress,attention',
  [
    ('LM', 'post', 'keys', 'xla'),
    pytest.param('MF', 'pre', 'input', 'xla', marks=pytest.mark.slow),
    ('ML', 'post', 'input', 'blocked'),
  ],
)
def test_matches_reference(pattern, norm, compress, attention):
  """Of texts of one token, less than a block, and several blocks."""
  cfg = config(pattern=pattern, norm=norm, compress=compress, attention=attention)
  texts = [tokens(cfg, (B, length)) for length in (1, 2, T)]
  apply = functools.partial(memory_compressed.apply, cfg)
  run = jax.jit(
    lambda params: [
      memory_compressed.logits(cfg, params, apply(params, {'tokens_BT': tokens_BT}, ())[0]) for tokens_BT in texts
    ]
  )
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params_of(cfg))
  for tokens_BT, found in zip(texts, run(params_of(cfg)), strict=True):
    for b in range(B):
      expected = reference.model(exact, tokens_BT[b], pattern, cfg.window, compress, norm, memory_compressed.EPS)
      np.testing.assert_allclose(found[b], expected, rtol=1e-5, atol=2e-5)


def seen_from(cfg, t):
  """Which tokens of 14 the output at t depends on; one layer."""
  same_TT = np.repeat(tokens(cfg, (1, T)), T, axis=0)
  changed_TT = (same_TT + np.eye(T, dtype=np.int32)) % cfg.V  # row i has another token at i
  before, after = (logits(cfg, {'tokens_BT': tokens_BT})[0][:, t] for tokens_BT in (same_TT, changed_TT))
  np.testing.assert_array_equal(after[t + 1 :], before[t + 1 :])
  return np.flatnonzero((after != before).any(-1)).tolist()


def test_local_layer_sees_its_own_block_up_to_itself():
  cfg = config(pattern='L')  # blocks of 4
  assert seen_from(cfg, 6) == [4, 5, 6]
  assert seen_from(cfg, 8) == [8]
  assert seen_from(cfg, 3) == [0, 1, 2, 3]


@pytest.mark.parametrize('compress', ['keys', 'input'])
def test_compressed_layer_sees_the_first_token_and_blocks_that_end_before_it(compress):
  cfg = config(pattern='M', compress=compress)  # blocks of 3
  assert seen_from(cfg, 0) == [0]
  assert seen_from(cfg, 2) == [0, 2]  # itself by the residual connection
  assert seen_from(cfg, 3) == [0, 1, 2, 3]
  assert seen_from(cfg, 8) == [0, 1, 2, 3, 4, 5, 8]


@pytest.mark.parametrize('compress', ['keys', 'input'])
def test_cached_decoding_in_chunks_equals_one_pass(compress):
  """Rows at positions of their own, so that blocks are filled by several calls; then a row begins anew."""
  cfg = config(compress=compress, pattern='LMF' if compress == 'keys' else 'LM')
  tokens_BT = tokens(cfg)
  whole, _ = logits(cfg, {'tokens_BT': tokens_BT})
  state = memory_compressed.init_state(cfg, B, T)
  lengths = np.array([5, 2])
  prompt = {'tokens_BT': tokens_BT[:, :6], 'valid_BT': np.arange(6) < lengths[:, None], 'reset_B': np.zeros(B, bool)}
  found, state = logits(cfg, prompt, state)
  for b, n in enumerate(lengths):
    np.testing.assert_allclose(found[b, :n], whole[b, :n], rtol=1e-5, atol=2e-5)
  for size in (1, 4, 1, 1):
    at = (np.arange(B)[:, None], lengths[:, None] + np.arange(size))
    found, state = logits(cfg, {'tokens_BT': tokens_BT[at]}, state)
    np.testing.assert_allclose(found, whole[at], rtol=1e-5, atol=2e-5)
    lengths = lengths + size
  np.testing.assert_array_equal(state['position_B'], lengths)
  found, state = logits(cfg, {**prompt, 'reset_B': np.array([True, False])}, state)
  np.testing.assert_allclose(found[0, :5], whole[0, :5], rtol=1e-5, atol=2e-5)
  np.testing.assert_array_equal(state['position_B'], [5, 11])


def test_prompt_padded_beyond_the_cache_keeps_its_real_tokens():
  cfg = config(pattern='LM')
  tokens_BT = tokens(cfg, (1, 12))
  valid_BT = np.arange(12)[None] < 5
  _, state = logits(cfg, {'tokens_BT': tokens_BT, 'valid_BT': valid_BT}, memory_compressed.init_state(cfg, 1, 7))
  found, _ = logits(cfg, {'tokens_BT': tokens_BT[:, 5:7]}, state)
  np.testing.assert_allclose(found, logits(cfg, {'tokens_BT': tokens_BT[:, :7]})[0][:, 5:], rtol=1e-5, atol=2e-5)


def test_memory_grows_with_the_length_and_not_with_its_square():
  """The largest array of a local layer on a text of 64 blocks, forward."""
  cfg = config(pattern='L', window=32, V=11)
  made = jax.make_jaxpr(functools.partial(memory_compressed.apply, cfg))(
    params_of(cfg), {'tokens_BT': tokens(cfg, (1, 2048))}, ()
  )
  largest = 0
  todo = [made.jaxpr]
  while todo:
    for equation in todo.pop().eqns:
      largest = max([largest, *(v.aval.size for v in equation.outvars)])
      todo += [p.jaxpr for p in equation.params.values() if hasattr(p, 'jaxpr')]
  assert 2048 * 32 <= largest < 2048 * 2048 // 4


def test_cache_of_a_compressed_layer_is_as_much_shorter():
  state = memory_compressed.init_state(config(dtype='bfloat16'), 2, 13)
  assert [layer[0].shape[1] for layer in state['layers']] == [13, 6, 13]
  assert state['layers'][1][1].dtype == 'bfloat16'
  assert memory_compressed.init_state(config(), 2) == ()


def test_parameter_counts():
  for variant, expected in (('t_d', 35_286_016), ('t_dmca', 35_283_456)):
    cfg = registry.config('memory_compressed', variant)
    D, F = cfg.D, cfg.F
    layer = 4 * D * D + 2 * D * F + F + D + 4 * D
    compression = 2 * (3 * D * D + D)
    assert cfg.V * D + cfg.N * layer + cfg.pattern.count('M') * compression == expected
    params = jax.eval_shape(functools.partial(memory_compressed.init, cfg), jax.random.key(0))
    assert sum(x.size for x in jax.tree.leaves(params)) == expected


def test_invalid_settings_are_rejected():
  for change in (
    dict(H=5),
    dict(pattern='LXM'),
    dict(pattern=''),
    dict(window=0),
    dict(stride=0),
  ):
    with pytest.raises(InputError, match=next(iter(change))):
      config(**change)
  cfg = config()
  with pytest.raises(InputError, match='packed'):
    logits(cfg, {'tokens_BT': tokens(cfg), 'documents_BT': np.zeros((B, T), np.int32)})
