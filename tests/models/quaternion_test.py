"""Both quaternion Transformers beside the ordinary one, their numbers of parameters, and the encoder's refusals."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.layers import quaternion
from lmx.models import quaternion_text, registry
from lmx.types import Features
from tests import drawn
from tests.reference import quaternion as reference

quaternion_transformer = registry.get('quaternion_transformer')
transformer = registry.get('transformer')

B, S, T = 2, 6, 5
QUIET = {'dropout': 0.0, 'dropout_attention': 0.0, 'dropout_relu': 0.0}


def params_of(name, cfg):
  return drawn.params(registry.get(name).init, cfg, std=drawn.by_size(2))


def batch_of(cfg):
  rng = np.random.default_rng(0)
  ids = lambda *shape: rng.integers(0, cfg.V, shape).astype(np.int32)
  valid_BS = np.arange(S) < np.array([[S], [3]])
  return {'source_BS': ids(B, S), 'source_valid_BS': valid_BS, 'tokens_BT': ids(B, T)}


@functools.partial(jax.jit, static_argnums=(0, 1))
def scores(model, cfg, params, batch):
  return model.logits(cfg, params, model.apply(cfg, params, batch, ())[0])


@functools.partial(jax.jit, static_argnums=(0, 1))
def outputs(model, cfg, params, batch):
  return model.logits(cfg, params, model.apply(cfg, params, batch, ())[0]), model.alignment(cfg, params, batch)


def real(w_CXY, inputs_of_heads, outputs_of_heads, H):  # noqa: N803, an axis
  """The matrix of a projection by Hamilton's rules: what each unit vector becomes, heads in the order of lmx."""
  n = 4 * w_CXY.shape[1]
  matrix = np.array([reference.linear(w_CXY, unit) for unit in np.eye(n)])
  order = lambda n: np.concatenate([reference.share(np.arange(n), H, h, 'quaternion') for h in range(H)])
  rows = order(n) if inputs_of_heads else np.arange(n)
  columns = order(matrix.shape[1]) if outputs_of_heads else np.arange(matrix.shape[1])
  return matrix[rows][:, columns]


def as_dense(cfg, params):
  """The same parameters with every quaternion matrix as the real one that it is."""
  H, K = cfg.H, cfg.D // cfg.H

  def made(path, w):
    part, name = path[-3].key, path[-2].key
    to_heads = part != 'mlp' and name != 'out'
    from_heads = part != 'mlp' and name == 'out'
    build = functools.partial(real, inputs_of_heads=from_heads, outputs_of_heads=to_heads, H=H)
    w = np.asarray(w)
    if w.ndim == 4:
      return np.stack([build(w[:, :, c]).reshape(cfg.D, H, K) for c in range(w.shape[2])], axis=1)
    matrix = build(w)
    if to_heads:
      return matrix.reshape(cfg.D, H, K)
    return matrix.reshape(H, K, cfg.D) if part != 'mlp' else matrix

  def walk(tree, path=()):
    if not isinstance(tree, dict):
      return np.asarray(made(path, tree) if path[-1].key == 'quaternions' else tree, np.float32)
    named = {key: walk(x, (*path, jax.tree_util.DictKey(key))) for key, x in tree.items()}
    return {'kernel' if key == 'quaternions' else key: x for key, x in named.items()}

  return walk(params)


@pytest.mark.parametrize('kind', [pytest.param('full', marks=pytest.mark.slow), 'partial'])
def test_with_whole_scores_it_is_the_transformer_of_the_real_matrices(kind):
  cfg = registry.config('quaternion_transformer', 'tiny', quaternion=kind, scores='whole', **QUIET)
  params, batch = params_of('quaternion_transformer', cfg), batch_of(cfg)
  plain = transformer.Config(
    V=cfg.V,
    D=cfg.D,
    F=cfg.F,
    H=cfg.H,
    encoder_layers=1,
    decoder_layers=1,
    norm='pre',
    positions='tensor2tensor',
    dropout=0.0,
  )
  dense = as_dense(cfg, params)
  assert jax.tree.structure(dense) == jax.tree.structure(drawn.shapes(transformer.init, plain))
  logits_BTV, a_BTS = outputs(quaternion_transformer, cfg, params, batch)
  expected_BTV, expected = outputs(transformer, plain, dense, batch)
  np.testing.assert_allclose(logits_BTV, expected_BTV, rtol=1e-5, atol=2e-5)
  np.testing.assert_allclose(a_BTS, expected, rtol=1e-5, atol=1e-5)
  other = registry.config('quaternion_transformer', 'tiny', quaternion=kind, **QUIET)
  other_BTV, a_BTS = jax.device_get(outputs(quaternion_transformer, other, params, batch))
  assert np.abs(other_BTV - logits_BTV).max() > 1e-2
  np.testing.assert_allclose(a_BTS.sum(-1), 1, rtol=1e-5)
  assert np.abs(a_BTS - expected).max() > 1e-3 and not np.any(a_BTS * ~batch['source_valid_BS'][:, None])


def test_without_quaternions_it_is_the_transformer():
  cfg = registry.config('quaternion_transformer', 'tiny', quaternion='none', norm='post', **QUIET)
  plain = transformer.Config(
    V=cfg.V, D=cfg.D, F=cfg.F, H=cfg.H, encoder_layers=1, decoder_layers=1, positions='tensor2tensor', dropout=0.0
  )
  first, second = jax.jit(lambda key: (quaternion_transformer.init(cfg, key), transformer.init(plain, key)))(
    jax.random.key(4)
  )
  jax.tree.map(np.testing.assert_array_equal, first, second)
  batch = batch_of(cfg)
  found, expected = (scores(m, c, first, batch) for m, c in ((quaternion_transformer, cfg), (transformer, plain)))
  np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
  'name,variant,matrices,printed',
  [
    ('quaternion_transformer', 'base', 44_040_192, '44M'),
    ('quaternion_transformer', 'partial', 29_884_416, '29M'),
    ('quaternion_transformer', 'full', 11_010_048, '11M'),
    ('quaternion_text', 'encoder_base', 393_216, '400K'),
    ('quaternion_text', 'encoder_partial', 294_912, '300K'),
    ('quaternion_text', 'encoder_full', 98_304, '100K'),
  ],
)
def test_printed_parameter_counts(name, variant, matrices, printed):
  """Millions are cut off, thousands rounded to hundreds; only matrices are of that size."""
  cfg = registry.config(name, variant)
  shapes = drawn.shapes(registry.get(name).init, cfg)
  sizes = {jax.tree_util.keystr(p): x.size for p, x in jax.tree_util.tree_leaves_with_path(shapes)}
  of_layers = {p: n for p, n in sizes.items() if 'embed' not in p}
  assert sum(n for p, n in of_layers.items() if 'kernel' in p or 'quaternions' in p) == matrices
  attention = (4 + 8) * 6 * 512**2 if name == 'quaternion_transformer' else 2 * 4 * 128**2
  networks = 12 * 2 * 512 * 2048 if name == 'quaternion_transformer' else 2 * 2 * 128 * 512
  quarter = {'none': (1, 1), 'partial': (4, 1), 'full': (4, 4)}[cfg.quaternion]
  assert matrices == attention // quarter[0] + networks // quarter[1]
  total = sum(of_layers.values())
  shown = f'{total // 10**6}M' if total > 10**6 else f'{round(total, -5) // 1000}K'
  assert shown == printed
  # With an ordinary matrix after the heads, the paper would have had to print 33M.
  assert (attention * 3 // 4 // 4 + attention // 4 + networks) // 10**6 == 33 or name == 'quaternion_text'


def encoder(**changes):
  return registry.config('quaternion_text', 'tiny', causal=False, **QUIET, **changes)


@pytest.mark.parametrize('scores', quaternion.SCORES)
def test_encoder_sees_all_of_its_row_and_no_padding(scores):
  cfg = encoder(scores=scores)
  params = params_of('quaternion_text', cfg)
  tokens_BT = batch_of(cfg)['source_BS']
  batch = lambda tokens_BT, valid_BT: {'tokens_BT': tokens_BT, 'valid_BT': valid_BT}
  run = jax.jit(lambda *keys: quaternion_text.apply(cfg, params, batch(*keys), ())[0])
  valid_BT = np.arange(S) < np.array([[S], [3]])
  before = np.asarray(run(tokens_BT, valid_BT).last_BTD)
  last = np.asarray(run(np.concatenate([tokens_BT[:, :-1], (tokens_BT[:, -1:] + 1) % cfg.V], 1), valid_BT).last_BTD)
  assert (np.abs(last - before)[0].max(-1) > 1e-5).all()
  np.testing.assert_array_equal(last[1, :3], before[1, :3])


def test_encoder_has_no_next_token():
  cfg = encoder()
  params = params_of('quaternion_text', cfg)
  batch = {'tokens_BT': batch_of(cfg)['tokens_BT']}
  assert quaternion_text.init_state(cfg, B) == ()
  features = Features(np.zeros((B, T, cfg.D), np.float32))
  for refused in (
    lambda: quaternion_text.init_state(cfg, B, 8),
    lambda: quaternion_text.logits(cfg, params, features),
    lambda: quaternion_text.nll(cfg, params, features, batch['tokens_BT']),
  ):
    with pytest.raises(InputError, match='causal'):
      refused()


def test_packed_documents_are_independent_without_a_cache():
  cfg = registry.config('quaternion_text', 'tiny', **QUIET)
  params = params_of('quaternion_text', cfg)
  tokens_BT = batch_of(cfg)['source_BS']
  packed = {
    'tokens_BT': tokens_BT,
    'documents_BT': np.repeat([[0, 1]], 3, axis=1).repeat(B, 0),
    'position_BT': np.tile(np.arange(3), (B, 2)),
  }
  run = jax.jit(lambda batch: quaternion_text.apply(cfg, params, batch, ())[0].last_BTD)
  alone = np.concatenate([run({'tokens_BT': tokens_BT[:, part]}) for part in (slice(0, 3), slice(3, 6))], axis=1)
  np.testing.assert_allclose(run(packed), alone, rtol=1e-5, atol=1e-5)
  with pytest.raises(InputError, match='packed documents'):
    quaternion_text.apply(cfg, params, packed, quaternion_text.init_state(cfg, B, 8))
