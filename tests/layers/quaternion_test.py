"""Quaternion layers against Hamilton's rules one number at a time, their weights, and how these are drawn."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.kernels import attention as kernels
from lmx.layers import decoder_block, quaternion, transformer
from lmx.layers.decoder_block import Source
from lmx.ops import attention, masks
from tests import drawn
from tests.reference import quaternion as reference

T, H, D = 5, 2, 16


def test_product_follows_hamiltons_rules():
  e = dict(zip(reference.UNITS, np.eye(4), strict=True))
  p, q, r = np.random.default_rng(0).normal(size=(3, 4))
  times = lambda *factors: functools.reduce(reference.product, factors)
  for square in (times(e['i'], e['i']), times(e['j'], e['j']), times(e['k'], e['k']), times(e['i'], e['j'], e['k'])):
    np.testing.assert_array_equal(square, -e['1'])
  np.testing.assert_allclose(times(p, times(q, r)), times(times(p, q), r), rtol=1e-12)
  np.testing.assert_allclose(np.linalg.norm(times(p, q)), np.linalg.norm(p) * np.linalg.norm(q), rtol=1e-12)


def of_units(a: int, b: int) -> np.ndarray:
  """e_a e_b, as `SIGNS` has it."""
  found = np.zeros(4)
  found[a ^ b] = quaternion.SIGNS[a][b]
  return found


def test_product_signs_follow_hamilton():
  for a in range(4):
    for b in range(4):
      np.testing.assert_array_equal(of_units(a, b), reference.product(np.eye(4)[a], np.eye(4)[b]))


@pytest.mark.parametrize('X,Y', [(1, 1), (3, 2), (4, 5)])
def test_real_matrix_is_the_product_of_quaternions(X, Y):  # noqa: N803, axes
  rng = np.random.default_rng(0)
  w_CXY, x_B = rng.normal(size=(4, X, Y)).astype(np.float32), rng.normal(size=(3, 4 * X)).astype(np.float32)
  matrix = np.asarray(jax.jit(quaternion.real)(w_CXY))
  assert matrix.shape == (4 * X, 4 * Y) and matrix.size == 4 * w_CXY.size
  for x in x_B:
    np.testing.assert_allclose(x @ matrix, reference.linear(w_CXY, x), rtol=1e-5, atol=1e-5)


def test_norm_of_a_product_is_the_product_of_the_norms():
  rng = np.random.default_rng(0)
  w_C11, q_B4 = rng.standard_normal((4, 1, 1), np.float32), rng.standard_normal((9, 4), np.float32)
  found = np.linalg.norm(q_B4 @ np.asarray(jax.jit(quaternion.real)(w_C11)), axis=1)
  np.testing.assert_allclose(found, np.linalg.norm(w_C11) * np.linalg.norm(q_B4, axis=1), rtol=1e-5)


def block(**changes) -> decoder_block.DecoderBlock:
  sizes = {'D': D, 'F': 24, 'H': H, 'attention': 'xla', 'bias': True}
  return quaternion.decoder(quaternion.Config(**(sizes | changes)))


def params_of(made: decoder_block.DecoderBlock):
  return drawn.params(decoder_block.init_block, made, D, std=0.4)


@functools.partial(jax.jit, static_argnums=0)
def run_block(made, params, x_BTD, source_BSD):
  return made.apply({'params': params}, x_BTD, masks.AttentionMask(), source=Source(source_BSD))[0]


@pytest.mark.parametrize('kind', quaternion.KINDS)
def test_quaternion_layers_have_a_quarter_of_the_weights(kind):
  shapes = lambda **changes: jax.eval_shape(lambda: decoder_block.init_block(block(**changes), D, jax.random.key(0)))
  params = shapes(quaternion=kind)
  dense = {
    ('attention', 'qkv'): 3 * D * D,
    ('attention', 'out'): D * D,
    ('cross', 'q'): D * D,
    ('cross', 'kv'): 2 * D * D,
    ('cross', 'out'): D * D,
    ('mlp', 'in'): D * 24,
    ('mlp', 'out'): 24 * D,
  }
  for (part, name), size in dense.items():
    fewer = kind == 'full' or (kind == 'partial' and part != 'mlp')
    (weights,) = (x for key, x in params[part][name].items() if key != 'bias')
    assert weights.size == (size // 4 if fewer else size), (part, name)
    assert ('bias' in params[part][name]) == (part == 'mlp')
  assert 'bias' in shapes(quaternion='partial', bias=False)['mlp']['in']
  assert 'bias' not in shapes(bias=False)['mlp']['in']


@pytest.mark.parametrize(
  ('scores', 'grouping'),
  [
    pytest.param(scores, grouping, marks=() if i == j else pytest.mark.slow)
    for i, scores in enumerate(quaternion.SCORES)
    for j, grouping in enumerate(quaternion.GROUPINGS)
  ],
)
def test_attention_of_a_block_matches_reference(scores, grouping):
  """The whole of a block, with its own tokens and with a source, from the weights to what comes out."""
  made = block(scores=scores, grouping=grouping, norm='post')
  params, rng = params_of(made), np.random.default_rng(1)
  x_TD, source_SD = rng.normal(size=(T, D)).astype(np.float32), rng.normal(size=(3, D)).astype(np.float32)

  def norm(x_TD, name):
    centred = x_TD - x_TD.mean(-1, keepdims=True)
    scale, bias = (np.asarray(params[name][key], np.float64) for key in ('scale', 'bias'))
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + quaternion.EPS) * scale + bias

  def attended(x_TD, q, k, v, w, may_look):
    heads = lambda x_TD, h: np.array([reference.share(x, H, h, grouping) for x in x_TD])
    every = [[reference.linear(w, x) for x in of] for w, of in (q, k, v)]
    found = [reference.attention(*(heads(of, h) for of in every), may_look, scores) for h in range(H)]
    joined = [reference.together([o[t] for o in found], grouping) for t in range(len(x_TD))]
    return np.array([reference.linear(w, o) for o in joined])

  weights = lambda *names: np.asarray(functools.reduce(dict.__getitem__, names, params)['quaternions'])
  qkv, kv = weights('attention', 'qkv'), weights('cross', 'kv')
  own = [(qkv[:, :, c], x_TD) for c in range(3)]
  h_TD = norm(x_TD + attended(x_TD, *own, weights('attention', 'out'), lambda t, s: s <= t), 'norm_1')
  across = [(weights('cross', 'q'), h_TD), (kv[:, :, 0], source_SD), (kv[:, :, 1], source_SD)]
  h_TD = norm(h_TD + attended(h_TD, *across, weights('cross', 'out'), lambda t, s: True), 'norm_cross')
  network = params['mlp']
  rows = []
  for h in h_TD:
    f = np.maximum(reference.linear(weights('mlp', 'in'), h) + np.asarray(network['in']['bias']), 0)
    rows.append(h + reference.linear(weights('mlp', 'out'), f) + np.asarray(network['out']['bias']))
  found_BTD = run_block(made, params, x_TD[None], source_SD[None])
  np.testing.assert_allclose(found_BTD[0], norm(np.array(rows), 'norm_2'), rtol=1e-5, atol=2e-5)


def test_views_give_each_component_its_own_softmax(monkeypatch):
  """Padded rows, causal, more than one block; values a quarter as wide as keys, forward and back."""
  monkeypatch.setattr(kernels, '_QUERIES', 4)
  *qkv, weight = np.random.default_rng(0).standard_normal((4, 2, 9, H, 8), np.float32)
  valid_BT = np.arange(9) < np.array([[9], [6]])
  look = masks.from_batch({'valid_BT': valid_BT})

  @functools.partial(jax.jit, static_argnums=(1, 2))
  @functools.partial(jax.grad, has_aux=True)
  def run(qkv, backend, rate):
    views = quaternion.views(*qkv)
    o = attention.attend(*views, look, causal=True, backend=backend, rate=rate, key=jax.random.key(1))
    return jnp.sum(o.reshape(qkv[0].shape) * weight), o.reshape(qkv[0].shape)

  plain, found = run(qkv, 'xla', 0.0)
  for b in range(2):
    may_look = lambda t, s, b=b: s <= t and valid_BT[b, s]
    for h in range(H):
      head = (np.asarray(x[b, :, h], np.float64) for x in qkv)
      expected_TK = reference.attention(*head, may_look, 'component')
      np.testing.assert_allclose(found[b, :, h], expected_TK, rtol=1e-5, atol=1e-5)
  pairs = ((plain, found), run(qkv, 'blocked', 0.0)), (run(qkv, 'xla', 0.3), run(qkv, 'blocked', 0.3))
  for a, b in (leaves for pair in pairs for leaves in zip(*map(jax.tree.leaves, pair), strict=True)):
    assert np.abs(a).max() > 0.1
    np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)


def test_component_scores_differ_from_whole_scores():
  params, x_BTD = params_of(block()), np.random.default_rng(3).standard_normal((1, T, D), np.float32)
  made = (block(scores=s, grouping=g, norm='post') for s in quaternion.SCORES for g in quaternion.GROUPINGS)
  outputs = [run_block(each, params, x_BTD, x_BTD[:, :3]) for each in made]
  for i, a in enumerate(outputs):
    for b in outputs[:i]:
      assert np.abs(a - b).max() > 1e-2


INITIAL = {  # name -> variance of a component by (inputs, outputs) in attention (queries apart) and in networks
  'glorot': (lambda n, m: 2 / (n + m), lambda n, m: 2 / (n + m)),
  'released': (lambda n, m: 1 / n, lambda n, m: 2 / (n / 4 + m)),
  'polar_glorot': (lambda n, m: 2 / (n + m), lambda n, m: 2 / (n + m)),
  'polar_he': (lambda n, m: 2 / n, lambda n, m: 2 / n),
}


@pytest.mark.parametrize(
  'initial',
  [pytest.param(name, marks=pytest.mark.slow) if name == 'polar_he' else name for name in quaternion.INITIALS],
)
def test_initial_variances(initial):
  D, F = 128, 512  # noqa: N806, axes
  made = block(D=D, F=F, H=8, initial=initial)
  params = jax.jit(decoder_block.init_block, static_argnums=(0, 1))(made, D, jax.random.key(0))
  attention, network = INITIAL[initial]
  for part, name, variance in (
    ('attention', 'qkv', attention(D, D)),
    ('attention', 'out', attention(D, D)),
    ('cross', 'q', attention(D, D)),
    ('cross', 'kv', attention(D, D)),
    ('mlp', 'in', network(D, F)),
    ('mlp', 'out', network(F, D)),
  ):
    w = np.asarray(params[part][name]['quaternions'])
    queries = name == 'q' or name == 'qkv'
    if queries and initial == 'released':
      narrow, w = (w[:, :, 0], w[:, :, 1:]) if name == 'qkv' else (w, None)
      assert abs(np.mean(narrow**2) * D**2 - 1) < 0.06
    if w is not None:
      assert abs(np.mean(w**2) / variance - 1) < 0.06, (part, name)
      assert abs(np.mean(w)) < 0.05 * variance**0.5
    if w is not None and not initial.startswith('polar'):
      for component in w:  # all alike, and independent
        assert abs(np.mean(component**2) / variance - 1) < 0.12
      assert np.abs(np.corrcoef(w.reshape(4, -1)) - np.eye(4)).max() < 0.07
      uniform = initial == 'glorot' or part == 'mlp'
      assert (np.abs(w).max() <= (3 * variance) ** 0.5 * 1.0001) == uniform


def test_polar_form():
  """Length from a chi distribution of four degrees of freedom, a unit axis, an angle from all round."""
  polar = jax.jit(quaternion.polar, static_argnums=(1, 2))
  w = np.asarray(polar(jax.random.key(0), (4, 200, 200), 0.5), np.float64)
  length = np.linalg.norm(w, axis=0)
  mean = math.sqrt(2) * math.gamma(2.5) / math.gamma(2)
  assert abs(length.mean() / 0.5 / mean - 1) < 0.01 and abs(np.mean(length**2) / 0.25 / 4 - 1) < 0.02
  assert abs(np.mean(length**4) / 0.5**4 / 24 - 1) < 0.03  # 26.4 if the axis were not of length 1
  imaginary = np.linalg.norm(w[1:], axis=0)
  np.testing.assert_allclose(w[0] ** 2 + imaginary**2, length**2)
  axis = w[1:] / imaginary
  assert (np.abs(axis.sum(0)) >= 1 - 1e-6).all()  # of one sign: three draws from [0, 1], up to that of the sine
  assert np.abs(axis.mean((1, 2))).max() < 0.02 and np.abs(np.mean(axis**2, (1, 2)) - 1 / 3).max() < 0.01
  angle = np.arctan2(imaginary * np.sign(axis[0]), w[0])
  found, _ = np.histogram(angle, bins=8, range=(-math.pi, math.pi))
  assert np.abs(found / 5000 - 1).max() < 0.06
  assert abs(np.corrcoef(np.cos(angle).ravel(), length.ravel())[0, 1]) < 0.04


def test_equal_settings_are_one_block():
  """So that layers alike are traced once."""
  assert block() == block() and hash(block()) == hash(block()) and block() != block(grouping='contiguous')


@pytest.mark.parametrize(
  'changes,words',
  [
    (dict(D=20), 'model.D: got 20'),
    (dict(D=15, quaternion='none'), 'model.D: got 15'),
    (dict(F=22), 'model.F: got 22'),
  ],
)
def test_invalid_settings_are_rejected(changes, words):
  with pytest.raises(InputError, match=words):
    block(**changes)


def test_without_quaternions_widths_are_free():
  assert type(block(quaternion='none', D=20, F=22).attention) is transformer.SelfAttention
  assert type(block(quaternion='partial', F=22).mlp) is transformer.Mlp
