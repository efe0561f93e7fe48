"""All attention backends against the plain restatement and each other."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.layers import attention, masks
from tests.reference import attention as reference

BACKENDS = ('xla', 'blocked')


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
  """Several blocks of queries, the last of them shorter, at sizes that a test can afford."""
  monkeypatch.setattr(attention, '_QUERIES', 4)


def draw(B=2, T=11, H=2, K=8, S=None, seed=0):
  keys = jax.random.split(jax.random.key(seed), 3)
  lengths = (T, S or T, S or T)
  return [jax.random.normal(k, (B, n, H, K)) for k, n in zip(keys, lengths, strict=True)]


DOCUMENTS_BT = np.array([[0] * 3 + [1] * 5 + [2] * 3, [0] * 11])
VALID_BT = np.arange(11) < np.array([[11], [6]])

LOOKS = {
  'all': ({}, lambda b, t, s: True),
  'valid': ({'valid_BT': VALID_BT}, lambda b, t, s: VALID_BT[b, s]),
  'documents': ({'documents_BT': DOCUMENTS_BT}, lambda b, t, s: DOCUMENTS_BT[b, t] == DOCUMENTS_BT[b, s]),
}
LOOKS['both'] = (
  {**LOOKS['valid'][0], **LOOKS['documents'][0]},
  lambda b, t, s: VALID_BT[b, s] and DOCUMENTS_BT[b, t] == DOCUMENTS_BT[b, s],
)


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('causal', [True, False])
@pytest.mark.parametrize('look', LOOKS)
def test_equals_the_restatement(backend, causal, look):
  q, k, v = draw()
  batch, may_look = LOOKS[look]
  both = lambda b, t, s: may_look(b, t, s) and (not causal or s <= t)
  found = attention.attend(q, k, v, masks.from_batch(jax.tree.map(jnp.asarray, batch)), causal=causal, backend=backend)
  expected = reference.attention(*(np.asarray(x) for x in (q, k, v)), both)
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('backend', BACKENDS)
def test_queries_at_their_own_positions(backend):
  """As with a cache: row b's queries are at 3 + t and 5 + t, and the keys after them are hidden."""
  q, k, v = draw(T=3, S=9)
  start_B = np.array([3, 5])
  look = masks.Look(query_position_BT=jnp.asarray(start_B[:, None] + np.arange(3)))
  found = attention.attend(q, k, v, look, causal=True, backend=backend)
  expected = reference.attention(*map(np.asarray, (q, k, v)), lambda b, t, s: s <= start_B[b] + t)
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('rate,causal', [(0.0, True), (0.3, True), (0.3, False)])
@pytest.mark.parametrize('look', ['all', 'both'])
def test_backends_have_equal_gradients(rate, causal, look):
  arrays = draw()
  weight = jax.random.normal(jax.random.key(9), arrays[0].shape)
  masks_ = masks.from_batch(jax.tree.map(jnp.asarray, LOOKS[look][0]))

  def loss(arrays, backend):
    o = attention.attend(*arrays, masks_, causal=causal, backend=backend, rate=rate, key=jax.random.key(7))
    return jnp.sum(o * weight)

  expected, found = (jax.jit(jax.grad(loss), static_argnums=1)(arrays, b) for b in BACKENDS)
  for a, b in zip(expected, found, strict=True):
    assert np.abs(a).max() > 0.1
    np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('backend', BACKENDS)
def test_dropout_drops_probabilities_and_keeps_their_mean(backend):
  """Values of one: without dropout every output is 1; with it they scatter around 1."""
  q, k, _ = draw(B=4, T=32, H=4)
  look = masks.Look()
  run = lambda key: attention.attend(
    q * 0.1, k * 0.1, jnp.ones_like(k), look, causal=False, backend=backend, rate=0.25, key=key
  )
  np.testing.assert_allclose(run(None), 1.0, rtol=1e-5)
  dropped = np.asarray(run(jax.random.key(3)))[..., 0]
  # 512 outputs of 32 keys each: the deviation of an output is sqrt(0.25 / 0.75 / 32) = 0.10.
  assert abs(dropped.mean() - 1) < 0.02
  assert 0.08 < dropped.std() < 0.13
  assert not np.allclose(dropped, np.asarray(run(jax.random.key(4)))[..., 0])


def test_blocked_never_computes_above_the_diagonal():
  plan = attention._Plan(causal=True, rate=0.0, heads=1, aligned=True)
  assert plan.blocks(10, 10) == [((0, 4), (0, 4)), ((4, 8), (0, 8)), ((8, 10), (0, 10))]
  assert plan._replace(causal=False).blocks(6, 10) == [((0, 4), (0, 10)), ((4, 6), (0, 10))]
  assert plan._replace(aligned=False).blocks(3, 10) == [((0, 3), (0, 10))]


def test_bfloat16_stays_near_float32():
  arrays = draw()
  half = [x.astype(jnp.bfloat16) for x in arrays]
  exact = attention.attend(*arrays, masks.Look(), causal=True, backend='xla')
  for backend in BACKENDS:
    found = attention.attend(*half, masks.Look(), causal=True, backend=backend)
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(found.astype(jnp.float32), exact, atol=0.03)


def test_auto_serves_every_shape_on_this_device():
  q, k, v = draw()
  found = attention.attend(q, k, v, masks.Look(), causal=True)
  np.testing.assert_allclose(
    found, attention.attend(q, k, v, masks.Look(), causal=True, backend='xla'), rtol=1e-5, atol=1e-6
  )


def test_auto_takes_blocked_for_long_rows_on_one_cpu(monkeypatch):
  monkeypatch.setattr(jax, 'default_backend', lambda: 'cpu')
  monkeypatch.setattr(jax, 'device_count', lambda: 1)
  choice = lambda T: attention.choose('auto', jnp.zeros((1, T, 1, 8)), jnp.zeros((1, T, 1, 8)), masks.Look(), 0.0)
  side = int(attention.BLOCKED_FROM**0.5)
  assert choice(side) == 'blocked'
  assert choice(side - 1) == 'xla'
  monkeypatch.setattr(jax, 'device_count', lambda: 8)
  assert choice(side) == 'xla'


@pytest.mark.parametrize(
  'change,words',
  [
    (dict(dtype='float32'), 'bfloat16 or float16'),
    (dict(rate=0.1), 'no dropout'),
    (dict(K=41), 'multiple of 8'),
    (dict(K=136), 'at most 128'),
    (dict(T=7, look=masks.Look(query_group_BT=jnp.zeros((1, 7)), key_group_BS=jnp.zeros((1, 7)))), 'even'),
  ],
)
def test_cudnn_says_why_it_cannot_serve(monkeypatch, change, words):
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  given = dict(dtype='bfloat16', rate=0.0, K=64, T=8, look=masks.Look()) | change
  x = jnp.zeros((1, given['T'], 2, given['K']), given['dtype'])
  with pytest.raises(InputError, match=words):
    attention.choose('cudnn', x, x, given['look'], given['rate'])
  assert attention.choose('auto', x, x, given['look'], given['rate']) == 'xla'


def test_cudnn_is_taken_where_it_can_serve(monkeypatch):
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  x = jnp.zeros((1, 7, 2, 64), jnp.bfloat16)
  assert attention.choose('auto', x, x, masks.Look(), 0.0) == 'cudnn'


def test_a_gpu_whose_cudnn_lacks_the_kernel_computes_without_it(monkeypatch):
  def missing(*_, **__):
    raise NotImplementedError('needs cuDNN 9')

  monkeypatch.setattr(attention.jax.nn, 'dot_product_attention', missing)
  monkeypatch.setattr(attention, 'cudnn_obstacle', lambda *_: None)
  attend = lambda backend: attention.attend(*draw(), masks.Look(), causal=True, backend=backend)
  np.testing.assert_array_equal(attend('auto'), attend('xla'))
  with pytest.raises(InputError, match='needs cuDNN 9.*set it to "auto"'):
    attend('cudnn')


def test_cudnn_without_a_gpu():
  if jax.default_backend() == 'gpu':
    pytest.skip('there is a GPU here')
  with pytest.raises(InputError, match='needs a GPU'):
    attention.attend(*draw(), masks.Look(), causal=True, backend='cudnn')


@pytest.mark.parametrize('look', LOOKS)
def test_cudnn_equals_xla(look):
  if jax.default_backend() != 'gpu':
    pytest.skip('cuDNN needs a GPU')
  arrays = [x.astype(jnp.bfloat16) for x in draw(T=11, K=64)]
  masks_ = masks.from_batch(jax.tree.map(jnp.asarray, LOOKS[look][0]))
  if look != 'all':
    arrays, masks_ = [x[:, :10] for x in arrays], jax.tree.map(lambda x: x[:, :10], masks_)
  run = lambda backend: attention.attend(*arrays, masks_, causal=True, backend=backend).astype(jnp.float32)
  np.testing.assert_allclose(run('cudnn'), run('xla'), atol=0.02)
