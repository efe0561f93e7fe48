"""The fast paths of attention against the equation (`lmx.ops.attention.attend`), and the choice of one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.errors import InputError
from lmx.kernels import attention as kernels
from lmx.kernels import patterns
from lmx.ops import attention, masks
from tests import placed
from tests.kernels import equality


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
  """Several blocks of queries, the last of them shorter, at sizes that a test can afford."""
  monkeypatch.setattr(kernels, '_QUERIES', 4)


def draw(B=2, T=11, H=2, K=8, S=None, seed=0):
  rng = np.random.default_rng(seed)
  return [rng.standard_normal((B, n, H, K), np.float32) for n in (T, S or T, S or T)]


DOCUMENTS_BT = np.array([[0] * 3 + [1] * 5 + [2] * 3, [0] * 11])
VALID_BT = np.arange(11) < np.array([[11], [6]])
MASKS = {
  'all': masks.AttentionMask(),
  'valid': masks.from_batch({'valid_BT': VALID_BT}),
  'both': masks.from_batch({'valid_BT': VALID_BT, 'documents_BT': DOCUMENTS_BT}),
  'positions': masks.AttentionMask(query_position_BT=np.array([[3], [5]]) + np.arange(11)),
}


@pytest.mark.parametrize(
  'mask,causal,rate',
  [
    ('all', True, 0.0),
    pytest.param('all', False, 0.3, marks=pytest.mark.slow),
    ('valid', True, 0.3),
    pytest.param('both', True, 0.0, marks=pytest.mark.slow),
    ('both', False, 0.3),
    ('positions', True, 0.3),
  ],
)
def test_blocked_equals_the_equation_and_so_do_gradients(monkeypatch, mask, causal, rate):
  monkeypatch.setattr(kernels, '_QUERIES', 6)
  arrays = draw(S=20 if mask == 'positions' else None)
  weight = np.random.default_rng(9).standard_normal(arrays[0].shape, np.float32)

  def loss(arrays, serve):
    o = serve(*arrays, MASKS[mask], causal=causal, rate=rate, key=jax.random.key(7))
    return jnp.sum(o * weight), o

  both = jax.jit(
    lambda x: [jax.grad(loss, has_aux=True)(x, serve) for serve in (attention.attend.equation, kernels.blocked)]
  )
  for a, b in zip(*map(jax.tree.leaves, both(arrays)), strict=True):
    assert np.abs(a).max() > 0.1
    np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)


def test_blocked_never_computes_above_the_diagonal():
  plan, mask = kernels.Plan(causal=True, rate=0.0, heads=1), MASKS['all']
  assert plan.blocks(mask, 10, 10) == [((0, 4), (0, 4)), ((4, 8), (0, 8)), ((8, 10), (0, 10))]
  assert plan._replace(causal=False).blocks(mask, 6, 10) == [((0, 4), (0, 10)), ((4, 6), (0, 10))]
  assert plan.blocks(MASKS['positions'], 3, 10) == [((0, 3), (0, 10))]


def test_blocked_in_bfloat16_stays_near_float32():
  @jax.jit
  def run(*arrays):
    half = [x.astype(jnp.bfloat16) for x in arrays]
    options = dict(mask=MASKS['all'], causal=True)
    served = [attention.attend(*half, **options, backend=backend) for backend in ('xla', 'blocked')]
    return attention.attend.equation(*arrays, **options), served

  with placed.on('cpu'):
    exact, served = run(*draw())
  for found in served:
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(found, np.float32), exact, atol=0.03)


def test_attend_equals_the_equation_by_every_backend():
  options = dict(mask=MASKS['both'], causal=True, rate=0.3)

  @jax.jit
  def run(*arrays):
    more = options | {'key': jax.random.key(7)}
    served = {backend: attention.attend(*arrays, backend=backend, **more) for backend in ('auto', 'xla', 'blocked')}
    return attention.attend.equation(*arrays, **more), served

  with placed.on('cpu'):
    expected, served = run(*draw())
  for backend, found in served.items():
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=backend)


def test_auto_selects_blocked_for_long_rows_on_one_cpu():
  choice = lambda T: kernels.choose(
    'auto', jnp.zeros((1, T, 1, 8)), jnp.zeros((1, T, 1, 8)), masks.AttentionMask(), 0.0
  )
  side = int(kernels.BLOCKED_FROM**0.5)
  with placed.on('cpu'):
    assert choice(side) is kernels.blocked
    assert choice(side - 1) is attention.attend.equation
  with placed.on('cpu', devices=8):
    assert choice(side) is attention.attend.equation


@pytest.mark.parametrize(
  'change,words',
  [
    (dict(dtype='float32'), 'bfloat16 or float16'),
    (dict(rate=0.1), 'no dropout'),
    (dict(K=41), 'multiple of 8'),
    (dict(K=136), 'at most 128'),
    (dict(mask=masks.AttentionMask(pattern=patterns.Compressed(3))), 'no masks by a pattern'),
  ],
)
def test_unsupported_cudnn_lstm_names_its_reason(change, words):
  given = dict(dtype='bfloat16', rate=0.0, K=64, T=8, mask=masks.AttentionMask()) | change
  x = jnp.zeros((1, given['T'], 2, given['K']), given['dtype'])
  with placed.on('gpu'):
    with pytest.raises(InputError, match=words):
      kernels.choose('cudnn', x, x, given['mask'], given['rate'])
    without = kernels.triton if given['rate'] else attention.attend.equation
    assert kernels.choose('auto', x, x, given['mask'], given['rate']) is without


def test_cudnn_is_selected_where_supported():
  x = jnp.zeros((1, 7, 2, 64), jnp.bfloat16)
  with placed.on('gpu'):
    assert kernels.choose('auto', x, x, masks.AttentionMask(), 0.0) is kernels.cudnn_or_chunked


def test_gpu_whose_cudnn_lacks_the_kernel_computes_without_it(monkeypatch):
  def missing(*_, **__):
    raise NotImplementedError('needs cuDNN 9')

  monkeypatch.setattr(jax.nn, 'dot_product_attention', missing)
  monkeypatch.setattr(kernels, 'cudnn_obstacle', lambda *_: None)
  mask = masks.AttentionMask()
  attend = lambda backend: jax.jit(lambda *x: attention.attend(*x, mask, causal=True, backend=backend))(*draw())
  with placed.on('gpu'):
    np.testing.assert_allclose(attend('auto'), attend('xla'), rtol=1e-4, atol=1e-6)
    with pytest.raises(InputError, match='needs cuDNN 9.*set it to "auto"'):
      attend('cudnn')


def test_cudnn_is_called_with_masks_and_with_values_as_wide_as_keys(monkeypatch):
  """By what `jax.nn.dot_product_attention` computes without cuDNN."""
  plain = jax.nn.dot_product_attention

  def checked(q, k, v, *, implementation, **options):
    assert implementation == 'cudnn' and k.shape == v.shape
    assert q.shape[1] % 2 == k.shape[1] % 2 == 0, 'cuDNN has no gradient of odd lengths'
    return plain(q, k, v, **options)

  monkeypatch.setattr(jax.nn, 'dot_product_attention', checked)

  @jax.jit
  def run(q, k, v):
    both = lambda name, *of, **how: [
      serve(*of, jax.tree.map(lambda x: x[:, : of[0].shape[1]], MASKS[name]), **{'causal': True} | how)
      for serve in (attention.attend.equation, kernels.cudnn)
    ]
    even = [x[:, :10] for x in (q, k, v)]
    return {
      'all': both('all', q, k, v[..., :5]),
      'not causal': both('all', q, k, v, causal=False),
      'both': both('both', q, k, v),
      'even': both('both', *even),
      'even, all': both('all', *even),
    }

  for name, (expected, found) in run(*draw()).items():
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=name)


def test_cudnn_without_a_gpu():
  with placed.on(), pytest.raises(InputError, match='needs a GPU, and the device here is cpu'):
    attention.attend(*draw(), masks.AttentionMask(), causal=True, backend='cudnn')


@pytest.mark.parametrize('mask', ['all', 'valid', 'both'])
@pytest.mark.parametrize('length', [10, 9])
def test_cudnn_equals_the_equation(mask, length):
  if jax.default_backend() != 'gpu':
    pytest.skip('cuDNN needs a GPU')
  arrays = [jnp.asarray(x[:, :length], jnp.bfloat16) for x in draw(K=64)]
  mask = jax.tree.map(lambda x: x[:, :length], MASKS[mask])

  def run(serve):
    loss = lambda *x: jnp.sum(jnp.square(serve(*x, mask, causal=True).astype(jnp.float32)))
    return serve(*arrays, mask, causal=True), jax.grad(loss, argnums=(0, 1, 2))(*arrays)

  found, expected = jax.jit(lambda: (run(kernels.cudnn), run(attention.attend.equation)))()
  for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    np.testing.assert_allclose(a, b, atol=0.02 * np.abs(b).max())


def test_tpu_kernel_takes_values_narrower_than_keys():
  """As of quaternion attention, whose component scores average a quarter of the values each."""
  q, k, v = draw(K=16)
  out = np.ones((2, 11, 2, 4), np.float32)
  kernel, equation = equality.both(kernels.rows, (q, k, v[..., :4]), masks.AttentionMask(), out, causal=True, rate=0.3)
  equality.assert_equal(kernel, equation)
