"""Transformer-XL: the equations, how far a memory reaches, and sizes."""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.models import registry
from lmx.models import transformer_xl as model
from tests import drawn
from tests.reference import transformer_xl as reference

SMALL = model.Config(V=29, D=16, F=24, H=2, N=3, M=6, dropout=0.0, init_std=0.3, fidelity='pytorch')


def params_of(cfg):
  return drawn.params(model.init, cfg, std=drawn.by_size())


def tokens(cfg, length, rows=1, seed=0):
  return np.random.default_rng(seed).integers(0, cfg.V, (rows, length)).astype(np.int32)


segment = jax.jit(model.apply, static_argnums=0)


def read(cfg, params, tokens_BL, T, state=None):  # noqa: N803
  """The last layer over a text read in segments of T, and the memory after it."""
  state = model.init_state(cfg, len(tokens_BL)) if state is None else state
  found = []
  for start in range(0, tokens_BL.shape[1], T):
    features, state = segment(cfg, params, {'tokens_BT': tokens_BL[:, start : start + T]}, state)
    found.append(features.last_BTD)
  return np.concatenate(found, axis=1), state


@pytest.mark.parametrize(
  'changes',
  [
    dict(),
    dict(untie=True),
    dict(clamp=4),
    dict(same_length=True),
    dict(same_length=True, fidelity='tf'),
    dict(positions='shaw', clamp=3),
    dict(M=0),
  ],
  ids=str,
)
def test_equals_the_papers_equations(changes):
  cfg = dataclasses.replace(SMALL, N=2, **changes)
  params, tokens_BL = params_of(cfg), tokens(cfg, 12)
  x_LD = np.sqrt(cfg.D) * params['embed']['tokens'][tokens_BL[0]].astype(np.float64)
  own = lambda i: params[f'layer_{i:02d}']['attention']
  shared = lambda i: (params['bias']['u_HK'], params['bias']['v_HK'])
  each = lambda i: (own(i)['u'], own(i).get('v'))
  farthest = np.inf if not cfg.same_length else cfg.M - (cfg.fidelity == 'pytorch')
  expected = reference.segments(
    params, x_LD, 4, cfg.M, shared if 'bias' in params else each, clamp=cfg.clamp, farthest=farthest
  )
  empty = model.init_state(cfg, 1) and model.init_state(cfg, 1) | {'filled_B': np.zeros(1, np.int32)}
  found, _ = read(cfg, params, tokens_BL, 4, empty)
  np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)


def test_tf_memory_starts_as_visible_zeros():
  params, tokens_BL = params_of(SMALL), tokens(SMALL, 4)
  x_LD = np.sqrt(SMALL.D) * params['embed']['tokens'][tokens_BL[0]].astype(np.float64)
  biases = params['bias']['u_HK'], params['bias']['v_HK']
  memory = np.zeros((SMALL.M, SMALL.D))
  for i in range(SMALL.N):
    x_LD = reference.layer(params[f'layer_{i:02d}'], x_LD, memory, *biases)
  found, _ = read(dataclasses.replace(SMALL, fidelity='tf'), params, tokens_BL, 4)
  np.testing.assert_allclose(found[0], x_LD, rtol=1e-4, atol=1e-5)
  empty, _ = read(SMALL, params, tokens_BL, 4)
  assert np.abs(empty - found).max() > 1e-2


@pytest.mark.parametrize('layers', [1, 3])
@pytest.mark.parametrize('T, M', [(4, 4), (5, 2), (2, 6)])
def test_token_depends_on_exactly_what_the_memory_reaches(layers, T, M):  # noqa: N803
  """In each layer, position p of a segment from s on reads positions s - M to p; N layers compose."""
  cfg = dataclasses.replace(SMALL, N=layers, M=M)
  params, L = params_of(cfg), 16
  text_LL = np.repeat(tokens(cfg, L), L, axis=0)
  changed_LL = (text_LL + np.eye(L, dtype=np.int32)) % cfg.V  # row q has another token at position q
  before, _ = read(cfg, params, text_LL, T)
  after, _ = read(cfg, params, changed_LL, T)
  depends_pq = (np.abs(after - before).max(-1) > 0).T
  p, q = np.arange(L)[:, None], np.arange(L)[None]
  one_pq = (q <= p) & (q >= p // T * T - M)
  np.testing.assert_array_equal(depends_pq, np.linalg.matrix_power(one_pq.astype(int), layers) > 0)


@pytest.mark.parametrize('layers', [1, 3])
def test_segment_with_its_memory_is_the_end_of_a_longer_window(layers):
  """Of one layer whatever came before the memory; of several where the memory holds all that came."""
  cfg = dataclasses.replace(SMALL, N=layers, M=6)
  params, text = params_of(cfg), tokens(cfg, 16, rows=2)
  pieces, _ = read(cfg, params, text, 4)
  window = lambda start, end: read(dataclasses.replace(cfg, M=0), params, text[:, start:end], end - start)[0]
  np.testing.assert_allclose(pieces[:, 4:8], window(0, 8)[:, 4:], rtol=1e-5, atol=1e-5)
  late, whole = pieces[:, 12:], window(6, 16)[:, 6:]
  if layers == 1:
    np.testing.assert_allclose(late, whole, rtol=1e-5, atol=1e-5)
  else:
    assert np.abs(late - whole).max() > 1e-3


def test_no_gradient_flows_into_the_memory():
  cfg, params = SMALL, params_of(SMALL)
  text = tokens(cfg, 4)
  _, state = read(cfg, params, tokens(cfg, 8, seed=1), 4)

  @jax.jit
  @jax.value_and_grad
  def loss(layers):
    features, _ = model.apply(cfg, params, {'tokens_BT': text}, state | {'layers': layers})
    return jnp.sum(features.last_BTD**3)

  (here, gradient), (there, _) = loss(state['layers']), loss([np.asarray(x) + 0.1 for x in state['layers']])
  assert here != there and all(not np.any(x) for x in jax.tree.leaves(gradient))


def test_only_the_lowest_layers_have_memory():
  cfg = dataclasses.replace(SMALL, recurrent=1)
  params, text = params_of(cfg), tokens(cfg, 12)
  _, state = read(cfg, params, text, 4)
  assert [x.shape[1] for x in state['layers']] == [6, 0, 0]
  none = dataclasses.replace(cfg, recurrent=0)
  without = dataclasses.replace(cfg, M=0)
  np.testing.assert_allclose(read(none, params, text, 4)[0], read(without, params, text, 4)[0], rtol=1e-6, atol=1e-6)
  every = read(dataclasses.replace(cfg, recurrent=3), params, text, 4)[0]
  np.testing.assert_array_equal(every, read(SMALL, params, text, 4)[0])
  some = read(cfg, params, text, 4)[0]
  assert np.abs(some - every).max() > 1e-3 and np.abs(some - read(none, params, text, 4)[0]).max() > 1e-3


def test_evaluation_may_use_a_longer_memory_than_training():
  """M is no size of a parameter."""
  params, text = params_of(SMALL), tokens(SMALL, 12)
  longer, state = read(dataclasses.replace(SMALL, M=11, clamp=6, same_length=True), params, text, 4)
  assert longer.shape == (1, 12, SMALL.D) and state['layers'][0].shape[1] == 11


@pytest.mark.parametrize(
  'changes',
  [dict(M=0), dict(M=6), dict(M=0, positions='absolute'), dict(M=0, positions='layers', clamp=5)],
  ids=str,
)
def test_cached_keys_and_values_match_one_pass(changes):
  """Decoding keeps keys and values instead of what they are made of; a text as long as the memory, token by token."""
  cfg = dataclasses.replace(SMALL, **changes)
  params, text = params_of(cfg), tokens(cfg, 6, rows=2)
  whole, _ = read(cfg, params, text, 6)
  found, _ = read(cfg, params, text, 1, model.init_state(cfg, 2, 6))
  np.testing.assert_allclose(found, whole, rtol=1e-5, atol=1e-5)


def test_absolute_positions_are_vaswanis():
  """Without a memory: the token's place in the segment moves its embedding, and attention knows nothing of places."""
  cfg = dataclasses.replace(SMALL, M=0, positions='absolute')
  params, text = params_of(cfg), tokens(cfg, 5)
  features, _ = jax.jit(functools.partial(model.apply, cfg, all_layers=True))(params, {'tokens_BT': text}, ())
  places = np.stack([reference.encoding(t, cfg.D) for t in range(5)])
  expected = np.sqrt(cfg.D) * params['embed']['tokens'][text[0]] + places
  np.testing.assert_allclose(features.layers[0][0], expected, rtol=1e-5, atol=1e-5)
  assert not {'r', 'u', 'v', 'distances'} & set(params['layer_00']['attention']) and 'bias' not in params


def test_positions_of_each_layer_are_added_to_its_input():
  """Vaswani's sinusoids as the only layer's vectors; later positions have the last vector."""
  layers, absolute = (dataclasses.replace(SMALL, N=1, M=0, positions=p, clamp=4) for p in ('layers', 'absolute'))
  params, text = params_of(layers), tokens(layers, 4)
  assert params['layer_00']['positions'].shape == (4, layers.D)
  params['layer_00']['positions'] = np.stack([reference.encoding(t, layers.D) for t in range(4)]).astype(np.float32)
  plain = params | {'layer_00': {k: x for k, x in params['layer_00'].items() if k != 'positions'}}
  found, expected = (read(cfg, p, text, 4)[0] for cfg, p in ((layers, params), (absolute, plain)))
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_gains_and_the_kernel_of_the_clusters_start_as_released():
  cfg = dataclasses.replace(SMALL, cutoffs=(10, 20))

  @functools.partial(jax.jit, static_argnums=0)
  def begin(fidelity, key):
    params = model.init(dataclasses.replace(cfg, fidelity=fidelity), key)
    return params['layer_00']['norm_1']['scale'], params['output']['clusters']['kernel']

  gain, kernel = jax.device_get(begin('tf', jax.random.key(0)))
  assert (gain == 1).all() and (kernel == 0).all()
  gain, kernel = jax.device_get(begin('pytorch', jax.random.key(0)))
  assert 0.1 < np.std(gain) < 0.6 and 0.1 < np.std(kernel) < 0.6


@pytest.mark.parametrize(
  ('changes', 'eps'), [(dict(fidelity='tf'), 1e-12), (dict(), 1e-5), (dict(fidelity='tf', eps=1e-5), 1e-5)], ids=str
)
def test_layer_norm_epsilon_matches_the_release(changes, eps):
  cfg = dataclasses.replace(SMALL, N=1, **changes)
  params = params_of(cfg)
  layer = params['layer_00'] = jax.tree.map(np.zeros_like, params['layer_00'])
  layer['norm_1']['scale'], layer['norm_2']['scale'] = np.full(cfg.D, 1e-3), np.ones(cfg.D)
  found, _ = read(cfg, params, tokens(cfg, 4), 4)
  variance = 1e-6  # of what the second normalisation reads
  np.testing.assert_allclose(np.mean(found**2, -1), variance / (variance + eps), rtol=1e-3)


@pytest.mark.parametrize(
  'variant, millions',
  [('wt103_128m', 128), ('enwik8_18l', 87), ('enwik8_24l', 277), ('ptb', 23), ('lm1b_base', 466), ('lm1b_large', 838)],
)
def test_parameter_counts_are_close_to_the_paper(variant, millions):
  """128M, 88M, 277M, 24M, 0.46B and 0.8B (tables 2 to 6)."""
  cfg = registry.config('transformer_xl', variant)
  assert sum(math.prod(x.shape) for x in jax.tree.leaves(drawn.shapes(model.init, cfg))) // 1_000_000 == millions


@pytest.mark.parametrize(
  'wrong, words',
  [
    (dict(D=18, H=4), 'divisible by model.H = 4'),
    (dict(positions='shaw'), 'set model.clamp'),
    (dict(positions='absolute'), 'set model.M=0'),
    (dict(positions='layers', clamp=3), 'set model.M=0'),
    (dict(positions='layers', M=0), 'number of positions'),
    (dict(positions='shaw', clamp=3, attention='scan'), 'set model.attention to "auto"'),
    (dict(M=0, same_length=True), 'set model.M'),
    (dict(fidelity='torch'), 'did you mean "pytorch"'),
  ],
)
def test_invalid_settings_are_rejected(wrong, words):
  with pytest.raises(InputError, match=words):
    dataclasses.replace(SMALL, **wrong)


def test_packed_documents_are_rejected():
  batch = {'tokens_BT': tokens(SMALL, 4), 'documents_BT': np.zeros((1, 4), np.int32)}
  with pytest.raises(InputError, match='packed documents'):
    model.apply(SMALL, params_of(SMALL), batch, model.init_state(SMALL, 1))
