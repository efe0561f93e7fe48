"""The fast path of relative attention against the equation, and the choice of one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx import host, placement
from lmx.kernels import relative_attention as kernels
from lmx.layers import relative_attention
from tests import placed

B, H, K = 2, 3, 8


@pytest.mark.parametrize(
  'T, M, filled, farthest, rate',
  [
    (5, 0, None, None, 0.0),
    (130, 20, (0, 20), 25, 0.3),
    (1, 7, (7, 2), None, 0.0),
    (64, 64, None, None, 0.5),
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
      out = relative_attention.attend(*arrays, filled_B, backend=backend, farthest=farthest, rate=rate, key=key)
      return jnp.sum(out * weights), out

    return jax.value_and_grad(total, argnums=range(6), has_aux=True)(*arrays)

  ((_, plain), expected), ((_, blocked), gradients) = jax.jit(lambda *x: (run('xla', *x), run('blocked', *x)))(*arrays)
  np.testing.assert_allclose(blocked, plain, rtol=1e-5, atol=1e-5)
  for name, a, b in zip(('q', 'k', 'value', 'r', 'u', 'v'), gradients, expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=5e-5, err_msg=name)


def test_auto_is_blocked_on_one_cpu_device_for_long_rows(monkeypatch):
  """With several cores for longer rows."""
  for scope in (placed.on(devices=8), placed.on('tpu'), placement.scope(None)):
    with scope:
      assert kernels.choose('auto', 2**10, 2**10) == 'xla'
  for cores, least in ((1, kernels.BLOCKED_FROM), (2, kernels.BLOCKED_FROM_CORES)):
    monkeypatch.setattr(host, 'cores', lambda cores=cores: cores)
    with placed.on():
      assert kernels.choose('auto', 2, least // 2) == 'blocked'
      assert kernels.choose('auto', 2, least // 2 - 1) == 'xla'
  assert kernels.choose('xla', 2**10, 2**10) == 'xla' and kernels.choose('blocked', 1, 1) == 'blocked'
