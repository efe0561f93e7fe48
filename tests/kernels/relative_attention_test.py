"""The fast path of relative attention against the equation, and the choice of one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx import host
from lmx.errors import InputError
from lmx.kernels import relative_attention as kernels
from lmx.kernels import relative_rows, score_rows
from lmx.ops import relative_attention
from lmx.ops.visible import HIDDEN, Segments, Visible
from tests import placed

B, H, K = 4, 2, 8


@pytest.mark.parametrize(
  'T, M, filled, farthest, rate',
  [
    pytest.param(5, 0, None, None, 0.0, marks=pytest.mark.slow),
    (130, 20, (0, 20, 3, 20), 25, 0.3),
    (1, 7, (7, 2, 0, 7), None, 0.0),
    pytest.param(64, 64, None, None, 0.5, marks=pytest.mark.slow),
  ],
)
def test_blocked_equals_the_equation(T, M, filled, farthest, rate):  # noqa: N803
  """Outputs and the gradients of all inputs, with the same dropout masks."""
  rng = np.random.default_rng(0)
  shapes = (B, T, H, K), (B, M + T, H, K), (B, M + T, H, K), (1, M + T, H, K), (H, K), (H, K)
  arrays = [rng.standard_normal(shape, np.float32) for shape in shapes]
  filled_B, key = None if filled is None else jnp.array(filled), jax.random.key(3) if rate else None
  weights = rng.standard_normal((B, T, H, K)).astype(np.float32)

  def run(backend, *arrays):
    def total(*arrays):
      visible = relative_attention.causal(T, M + T, filled_B, farthest)
      out = relative_attention.attend(*arrays, visible, backend=backend, rate=rate, key=key)
      return jnp.sum(out * weights), out

    return jax.value_and_grad(total, argnums=range(6), has_aux=True)(*arrays)

  with placed.on():
    both = jax.jit(lambda *x: (run('xla', *x), run('blocked', *x)))(*arrays)
  ((_, plain), expected), ((_, blocked), gradients) = both
  np.testing.assert_allclose(blocked, plain, rtol=1e-5, atol=1e-5)
  for name, a, b in zip(('q', 'k', 'value', 'r', 'u', 'v'), gradients, expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=5e-5, err_msg=name)


def streams(T, M, P):  # noqa: N803
  """Arrays, visible keys, segments and positions of a permutation of T tokens, of which P are predicted.

  Two of them are at one position, as in padding, and the first rows of the order see no key.
  """
  rng = np.random.default_rng(1)
  draw = lambda *shape: rng.standard_normal(shape, np.float32)
  order_BT = np.stack([rng.permutation(T) for _ in range(B)]).astype(np.int32)
  positions_BP = np.sort(np.stack([rng.permutation(T)[:P] for _ in range(B)])).astype(np.int32)
  positions_BP[:, 0] = np.argmin(order_BT, axis=1)
  positions_BP[0, -1] = positions_BP[0, 1]  # in another block of queries
  row_BX = np.concatenate([order_BT, np.take_along_axis(order_BT, positions_BP, axis=1) - 1], axis=1)
  key_BS = np.pad(order_BT, ((0, 0), (M, 0)), constant_values=HIDDEN)
  type_BX, type_BS = rng.integers(3, size=row_BX.shape), rng.integers(3, size=key_BS.shape)
  X, S = T + P, T + M
  arrays = draw(B, X, H, K), draw(B, S, H, K), draw(B, S, H, K), draw(B, S + T - 1, H, K), draw(H, K), draw(H, K)
  visible = Visible(key_BS, np.full_like(row_BX, -1), row_BX)
  return (*arrays, draw(H, K), draw(2, H, K)), visible, (type_BX, type_BS), positions_BP


def compare(choice, arrays, visible, rate, types=None, positions_BP=None):
  """Assert that outputs and the gradients of all inputs are those of the equation, with the same dropout."""
  weights = np.random.default_rng(2).standard_normal(arrays[0].shape).astype(np.float32)
  if positions_BP is not None:
    weights[0, -1] = 0  # the second query at a position
  key = jax.random.key(3) if rate else None

  def attend(choice, q, k, value, r, *vectors):
    segments = Segments(*vectors[2:], *types) if types else None
    options = dict(segments=segments, positions_BP=positions_BP, rate=rate, key=key)
    if choice == 'xla':
      vectors = vectors[:2]
      return relative_attention.attend(q, k, value, r, *vectors, visible, empty_rows=True, backend='xla', **options)
    interpret = {'interpret': True} if choice == 'rows' else {}
    return kernels.BY_NAME[choice](q, k, value, r, *vectors[:2], visible, **interpret, **options)

  def run(choice, *arrays):
    def total(*arrays):
      out = attend(choice, *arrays) * (weights != 0)
      return jnp.sum(out * weights), out

    return jax.value_and_grad(total, argnums=range(len(arrays)), has_aux=True)(*arrays)

  ((_, plain), expected), ((_, found), gradients) = jax.jit(lambda *x: (run('xla', *x), run(choice, *x)))(*arrays)
  np.testing.assert_allclose(found, plain, rtol=1e-5, atol=1e-5)
  for name, a, b in zip(('q', 'k', 'value', 'r', 'u', 'v', 's', 'e'), gradients, expected, strict=False):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=5e-5, err_msg=name)


@pytest.fixture
def small_blocks(monkeypatch):
  monkeypatch.setattr(kernels, '_SCANNED', 16)
  for module in (relative_rows, score_rows):
    monkeypatch.setattr(module, 'LANES', 16)


@pytest.mark.parametrize(
  ('choice', 'filled', 'farthest'),
  [('rows', (0, 20, 3, 20), 25), ('rows', (0, 20, 3, 20), None), ('rows', None, None), ('scan', (0, 20, 3, 20), 25)],
)
def test_blocks_of_queries_equal_the_equation(small_blocks, choice, filled, farthest):
  """Over several blocks, with a memory that is filled in part."""
  T, M = 40, 20
  rng = np.random.default_rng(0)
  shapes = (B, T, H, K), (B, M + T, H, K), (B, M + T, H, K), (1, M + T, H, K), (H, K), (H, K)
  arrays = [rng.standard_normal(shape, np.float32) for shape in shapes]
  filled_B = None if filled is None else jnp.array(filled)
  compare(choice, arrays, relative_attention.causal(T, M + T, filled_B, farthest), 0.3)


@pytest.mark.parametrize('choice', ['rows', 'scan'])
def test_two_streams_equal_the_equation(small_blocks, choice):
  """With segments, other distances in each row, and queries of both streams."""
  arrays, visible, types, positions_BP = streams(40, 20, 20)
  compare(choice, arrays, visible, 0.3, types, positions_BP)


def test_each_device_computes_its_rows_and_heads(small_blocks):
  """Of arrays with distances for each row, with what one device drops."""
  arrays, visible, types, positions_BP = streams(20, 4, 3)
  with placed.on('tpu', data=2, fsdp=2, tensor=2):
    compare('rows', arrays, visible, 0.3, types, positions_BP)
    run = lambda *x: kernels.rows(*x, None, interpret=True)
    traced = jax.jit(run).trace(arrays[0][:, :20], *arrays[1:6])
  assert 'shard_map' in str(traced.jaxpr)


def test_auto_is_blocked_on_one_cpu_device_for_long_rows(monkeypatch):
  """With several cores for longer rows."""
  choose = lambda T, S, backend='auto': kernels.choose(backend, (1, T, H, K), S)
  with placed.on(devices=8):
    assert choose(2**10, 2**10) is relative_attention.attend.equation
  for cores, least in ((1, kernels.BLOCKED_FROM), (2, kernels.BLOCKED_FROM_CORES)):
    monkeypatch.setattr(host, 'cores', lambda cores=cores: cores)
    with placed.on():
      assert choose(2, least // 2) is choose(1, 1, 'blocked') is kernels.blocked
      assert choose(2, least // 2 - 1) is choose(2**10, 2**10, 'xla') is relative_attention.attend.equation


def test_auto_selects_rows_and_then_the_scan_on_accelerators():
  choose = lambda T, S, backend='auto', rows=2: kernels.choose(backend, (rows, T, H, K), S)
  with placed.on('tpu', devices=2):
    assert choose(kernels.KERNEL_FROM, kernels.ROWS_TO) is kernels.rows
    assert choose(kernels.KERNEL_FROM - 1, kernels.ROWS_TO) is relative_attention.attend.equation
    assert choose(kernels.KERNEL_FROM, kernels.ROWS_TO + 1) is kernels.scan
    assert choose(kernels.KERNEL_FROM, kernels.ROWS_TO, rows=3) is relative_attention.attend.equation
    with pytest.raises(InputError, match='model.attention: got "rows"'):
      choose(kernels.KERNEL_FROM, kernels.ROWS_TO + 1, 'rows')
  with placed.on('gpu'):
    assert choose(kernels.KERNEL_FROM, kernels.SCAN_FROM) is kernels.scan
    assert choose(kernels.KERNEL_FROM, kernels.SCAN_FROM - 1) is relative_attention.attend.equation
    with pytest.raises(InputError, match='model.attention: got "rows"'):
      choose(kernels.KERNEL_FROM, kernels.ROWS_TO, 'rows')


def test_operations():
  """Two blocks of 128 positions, and one of further queries, which passes both: four of 128 rows."""
  shapes = [(3, 2, 64, 300), (3, 2, 64, 384), (3, 2, 64, 384), (1, 2, 64, 640), (2, 64, 2)]
  column = 2 * 3 * 2 * 64 * 4 * 128
  assert relative_rows.operations(f'jit(step)/{relative_rows.FORWARD}/pallas_call', shapes) == column * (3 * 384 + 128)
  backward = relative_rows.operations(f'jit(step)/{relative_rows.BACKWARD}/pallas_call', shapes)
  assert backward == column * (5 * 384 + 2 * 384 + 3 * (384 + 128))  # 2: the reversal of 128 rows, at a width of 64
