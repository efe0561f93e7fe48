"""The Sparse Transformer against the restatement; how its parameters begin, recomputation, documents, errors."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.models import registry
from tests import drawn
from tests.models import compiled
from tests.reference import sparse_transformer as reference

sparse_transformer = registry.get('sparse_transformer')

B, T = 2, 14


def config(**changes) -> sparse_transformer.Config:
  small = {'V': 31, 'T': 24, 'D': 16, 'H': 4, 'N': 2, 'stride': 4, 'summary': 2, 'dropout': 0.0}
  return registry.config('sparse_transformer', 'tiny', **(small | changes))


def params_of(cfg):
  return drawn.params(sparse_transformer.init, cfg, std=drawn.by_size(2))


def tokens(cfg, shape=(B, T), seed=0):
  return np.random.default_rng(seed).integers(0, cfg.V, shape).astype(np.int32)


def logits(cfg, batch, state=()):
  return compiled.logits(sparse_transformer, cfg, params_of(cfg), batch, state)


@pytest.mark.parametrize(
  'pattern,merge,fidelity',
  [('strided', 'alternate', 'paper'), ('fixed', 'merged', 'released'), ('fixed', 'heads', 'paper')],
)
def test_matches_reference_and_in_parts_of_any_size(pattern, merge, fidelity):
  cfg = config(pattern=pattern, merge=merge, fidelity=fidelity, N=2 if merge == 'alternate' else 1)
  tokens_BT = tokens(cfg)
  found, _ = logits(cfg, {'tokens_BT': tokens_BT})
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params_of(cfg))
  for b in range(B):
    wanted = reference.model(
      exact, tokens_BT[b], pattern, merge, cfg.stride, cfg.summary, fidelity == 'released', sparse_transformer.EPS
    )
    np.testing.assert_allclose(found[b], wanted, rtol=1e-4, atol=1e-4)
  state, start = sparse_transformer.init_state(cfg, B, T), 0
  for _ in range(2):  # more than the stride at a time
    part = {'tokens_BT': tokens_BT[:, start : start + 7], 'reset_B': np.array([start == 0, start == 7])}
    scores, state = logits(cfg, part, state)
    np.testing.assert_allclose(scores[0], found[0, start : start + 7], rtol=1e-4, atol=1e-4)
    if start == 0:
      np.testing.assert_allclose(scores[1], found[1, :7], rtol=1e-4, atol=1e-4)
    start += 7
  np.testing.assert_array_equal(state['position_B'], [14, 7])


def test_dense_is_the_union_of_everything_with_the_same_parameters():
  """Fixed attention whose block is the whole row looks at everything."""
  dense, whole = config(pattern='dense', N=1), config(pattern='fixed', stride=24, N=1)
  shapes = lambda cfg: jax.tree.map(np.shape, {k: v for k, v in params_of(cfg).items() if k != 'embed'})
  assert shapes(dense) == shapes(whole)
  params = params_of(whole)
  batch = {'tokens_BT': tokens(whole)}
  as_dense = config(pattern='dense', stride=24, N=1)
  np.testing.assert_allclose(
    compiled.run(sparse_transformer, as_dense, params, batch, ())[0],
    compiled.run(sparse_transformer, whole, params, batch, ())[0],
    atol=1e-4,
  )


@pytest.mark.parametrize(
  'init,one,tokens_std,places_std',
  [
    ('paper', 0.125, 0.125 / 64**0.5, 0.125 / 128**0.5),
    ('released', 0.125**0.5, 0.013, 0.007 / 2**0.5),
  ],
)
def test_initial_deviations_match_the_release(init, one, tokens_std, places_std):
  """Section 6: by the inputs of each matrix; 5.2: smaller by sqrt(2 N) on the residual path; the output 0."""
  cfg = config(D=64, V=256, T=1024, init=init)
  params = jax.device_get(jax.jit(sparse_transformer.init, static_argnums=0)(cfg, jax.random.key(0)))
  layer = params['layer_01']
  wanted = {
    ('attention', 'qkv'): one / 64**0.5,
    ('attention', 'out'): one / 64**0.5 / 2,
    ('mlp', 'in'): one / 64**0.5,
    ('mlp', 'out'): one / 256**0.5 / 2,
  }
  for (part, name), std in wanted.items():
    kernel, bias = layer[part][name]['kernel'], layer[part][name]['bias']
    assert np.std(kernel) == pytest.approx(std, rel=0.05), (part, name)
    assert not bias.any()
  assert np.std(params['embed']['tokens']) == pytest.approx(tokens_std, rel=0.05)
  assert np.std(params['embed']['rows']) == pytest.approx(places_std, rel=0.05)
  assert params['embed']['rows'].shape == (256, 64) and params['embed']['columns'].shape == (4, 64)
  assert not params['output']['table'].any()


def test_recomputation_changes_no_gradient_and_keeps_no_scores():
  """Section 5.4, with dropout: the same masks are drawn again."""
  cfg = config(dropout=0.3, N=1)
  batch = {'tokens_BT': tokens(cfg), 'targets_BT': tokens(cfg, seed=1)}

  def loss(remat, params):
    options = dataclasses.replace(cfg, remat=remat)
    features, _ = sparse_transformer.apply(options, params, batch, (), jax.random.key(3))
    return jnp.mean(sparse_transformer.nll(options, params, features, batch['targets_BT']))

  both = jax.jit(lambda p: [jax.value_and_grad(functools.partial(loss, remat))(p) for remat in ('none', 'full')])
  plain, again = both(params_of(cfg))
  for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(again), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

  def kept(remat):
    return sum(
      x.size
      for x in jax.tree.leaves(jax.eval_shape(lambda p: jax.vjp(functools.partial(loss, remat), p)[1], params_of(cfg)))
    )

  assert kept('full') < kept('none') / 2


def test_packed_documents_do_not_mix():
  cfg = config(merge='heads')
  tokens_BT, documents_BT = tokens(cfg), np.repeat([[0, 1]], [6, 8], axis=1).repeat(B, 0)
  before, _ = logits(cfg, {'tokens_BT': tokens_BT, 'documents_BT': documents_BT})
  other = tokens_BT.copy()
  other[:, 2] = (other[:, 2] + 1) % cfg.V
  after, _ = logits(cfg, {'tokens_BT': other, 'documents_BT': documents_BT})
  np.testing.assert_array_equal(after[:, 6:], before[:, 6:])
  assert (np.abs(after - before)[:, 3:6].max(-1) > 1e-6).all()


def test_invalid_settings_are_rejected():
  for change in (
    dict(H=5),
    dict(stride=0),
    dict(summary=5),
    dict(summary=3, fidelity='released'),
    dict(attention='chunked'),  # with the default pattern
    dict(merge='heads', H=1),
  ):
    with pytest.raises(InputError, match=next(iter(change))):
      config(**change)
  cfg = config()
  apply = functools.partial(sparse_transformer.apply, cfg, params_of(cfg))
  with pytest.raises(InputError, match='T = 24 positions'):
    apply({'tokens_BT': tokens(cfg, (1, 25))}, ())
  with pytest.raises(InputError, match='packed'):
    batch = {'tokens_BT': tokens(cfg), 'documents_BT': np.zeros((B, T), np.int32)}
    apply(batch, sparse_transformer.init_state(cfg, B, T))
