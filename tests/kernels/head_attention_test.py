"""Attention by Numba against the equation (`lmx.ops.attention.attend`), and the choice of it."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx import placement
from lmx.engine import devices
from lmx.errors import InputError
from lmx.kernels import attention as kernels
from lmx.kernels import chunked_attention, native, patterns
from lmx.models import registry
from lmx.ops import attention, masks
from tests import placed

bert = registry.get('bert')
gpt2 = registry.get('gpt2')
quaternion_text = registry.get('quaternion_text')
transformer = registry.get('transformer')

needs_numba = pytest.mark.skipif(not native.has_products(), reason='needs Numba and the instructions of its products')


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
  monkeypatch.setattr(kernels, 'NUMBA_FROM', 1)


def draw(B, T, S, H, K, W, seed=0):
  rng = np.random.default_rng(seed)
  return [rng.standard_normal(shape, np.float32) for shape in ((B, T, H, K), (B, S, H, K), (B, S, H, W))]


def grouped(B, T, S):
  rng = np.random.default_rng(1)
  key_group_BS = rng.integers(0, 3, (B, S))
  key_group_BS[:, :3] = range(3)  # a key of each group, at the beginning
  return masks.AttentionMask(None, rng.integers(0, 3, (B, T)).astype(np.int32), key_group_BS.astype(np.int32))


def run(backend, arrays, mask=None, *, causal=True, rate=0.0, attend=attention.attend):
  """(output, gradients of q, k and v)."""
  mask = mask or masks.AttentionMask()
  weight = np.random.default_rng(9).standard_normal((*arrays[0].shape[:3], arrays[2].shape[3]), np.float32)

  def loss(*arrays):
    o = attend(*arrays, mask, causal=causal, backend=backend, rate=rate, key=jax.random.key(7))
    return jnp.sum(weight * o), o

  with placement.scope(devices.of_process()):
    gradients, o = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(*arrays)
  return o, gradients


# Lengths and widths below, at and above those of a panel (8 to 32), more queries than a strip (4 to 12) and a block
# (48 or 96), one and several rows and heads.
SIZES = {'short': (2, 3, 5, 2, 4, 4), 'panel': (1, 32, 32, 2, 32, 32), 'odd': (2, 13, 70, 1, 20, 40)}


@needs_numba
@pytest.mark.parametrize('rate', [0.0, 0.3])
@pytest.mark.parametrize('is_grouped', [False, True])
@pytest.mark.parametrize('sizes', ['panel', 'odd', pytest.param('short', marks=pytest.mark.slow)])
def test_outputs_and_gradients_match_the_equation(sizes, is_grouped, rate):
  B, T, S, *_ = SIZES[sizes]
  arrays, mask = draw(*SIZES[sizes]), grouped(B, T, S) if is_grouped else None
  for causal in (False, True) if not is_grouped else (False,):
    found, expected = (run(backend, arrays, mask, causal=causal, rate=rate) for backend in ('numba', 'xla'))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5), found, expected)
    assert min(np.abs(x).max() for x in jax.tree.leaves(found)) > 0.1


@needs_numba
def test_several_blocks_of_causal_queries_of_a_document_each():
  arrays = draw(1, 130, 130, 1, 16, 8)
  document_BT = (np.arange(130) // 50)[None].astype(np.int32)
  mask = masks.AttentionMask(None, document_BT, document_BT)
  one_group = masks.AttentionMask(None, document_BT[:, :1], document_BT)
  np.testing.assert_allclose(run('numba', arrays, one_group)[0], run('xla', arrays, one_group)[0], rtol=2e-5, atol=1e-5)
  found, expected = (run(backend, arrays, mask, rate=0.1) for backend in ('numba', 'xla'))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5), found, expected)


@needs_numba
def test_any_number_of_threads_computes_the_same_bits(monkeypatch):
  arrays, found = draw(2, 20, 20, 3, 8, 8), []
  for threads in (1, 2, 5):
    monkeypatch.setattr(native, 'count_threads', lambda parts, threads=threads: min(parts, threads))
    found.append(run('numba', arrays, rate=0.3))
  for other in found[1:]:
    jax.tree.map(np.testing.assert_array_equal, found[0], other)


@needs_numba
def test_rematerialised_and_mapped_attention_has_the_same_gradient():
  arrays = draw(2, 9, 9, 2, 4, 4)
  again = lambda *args, **options: jax.checkpoint(lambda *x: attention.attend(*x, *args[3:], **options))(*args[:3])  # noqa: E731
  rows = lambda q, k, v, *rest, **options: jax.vmap(lambda *x: attention.attend(*x, *rest, **options))(  # noqa: E731
    *(x[:, None] for x in (q, k, v))
  )[:, 0]
  expected = run('numba', arrays)
  for attend in (again, rows):
    found = run('numba', arrays, attend=attend)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)


@needs_numba
def test_widely_spread_scores_are_accurate():
  q, k, v = draw(1, 12, 40, 1, 8, 8)
  for found, expected in zip(*(jax.tree.leaves(run(name, [40 * q, k, v])) for name in ('numba', 'xla')), strict=True):
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@needs_numba
@pytest.mark.parametrize('value', [np.nan, np.inf])
@pytest.mark.parametrize('which', [0, 1, 2])
def test_non_finite_values_propagate(which, value):
  arrays = draw(1, 5, 5, 2, 4, 4)
  arrays[which][0, 1, 0, 2] = value
  for rate in (0.0, 0.3):
    found, expected = (run(backend, arrays, rate=rate, causal=False) for backend in ('numba', 'xla'))
    lost = lambda a, b: not np.isfinite(b).all() and np.isfinite(a).all()  # noqa: E731
    assert not any(jax.tree.leaves(jax.tree.map(lost, found, expected)))
    head = lambda tree: [np.asarray(x)[:, :, 1] for x in jax.tree.leaves(tree)]  # noqa: E731
    for a, b in zip(head(found), head(expected), strict=True):  # the other head
      np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@needs_numba
def test_query_without_keys_is_finite():
  arrays, group = draw(1, 4, 4, 1, 4, 4), np.zeros((1, 4), np.int32)
  mask = masks.AttentionMask(None, group, group + masks.PADDING)
  for x in jax.tree.leaves(run('numba', arrays, mask, rate=0.3)):
    assert np.isfinite(x).all()


def test_inference_needs_no_numba(monkeypatch):
  monkeypatch.setattr(native, 'has_products', lambda: False)
  arrays = draw(1, 6, 6, 2, 4, 4)
  with placement.scope(devices.of_process()):
    one, other = (
      attention.attend(*arrays, masks.AttentionMask(), causal=True, backend=backend)
      for backend in ('numba', 'without_numba')
    )
  np.testing.assert_array_equal(one, other)


def test_training_without_numba_warns(monkeypatch):
  native.load.cache_clear()
  monkeypatch.setattr(native, 'has_products', lambda: False)
  with pytest.raises(InputError, match=r'model.attention: got "numba"'):
    run('numba', draw(1, 6, 6, 2, 4, 4))


def test_numba_is_for_rows_of_float32_on_one_cpu(monkeypatch):
  monkeypatch.setattr(kernels, 'NUMBA_FROM', 8 * 8)

  def choice(T=8, mask=None, dtype=jnp.float32, backend='numba'):
    q_BTHK = jnp.zeros((1, T, 1, 8), dtype)
    return kernels.choose(backend, q_BTHK, q_BTHK, mask or masks.AttentionMask(), 0.1)

  with placed.on('cpu'):
    assert choice() is kernels.numba
    assert choice(backend='without_numba') is choice(backend='auto') is choice(T=7) is attention.attend.equation
    assert choice(dtype=jnp.bfloat16) is attention.attend.equation
    assert choice(mask=masks.AttentionMask(jnp.zeros((1, 8), jnp.int32))) is attention.attend.equation
    assert choice(mask=masks.AttentionMask(pattern=patterns.Compressed(2))) is attention.attend.equation
    q_BTHK = jnp.zeros((2, 8, 2, 8))
    for other in (q_BTHK[:1], q_BTHK[:, :, :1], q_BTHK.astype(jnp.bfloat16)):  # of keys; products may broadcast
      assert kernels.choose('numba', q_BTHK, other, masks.AttentionMask(), 0.0) is attention.attend.equation
    side = int(kernels.BLOCKED_FROM**0.5)
    assert choice(T=side, backend='without_numba') is kernels.blocked
  with placed.on('cpu', devices=8):
    assert choice() is attention.attend.equation
  with placed.on('gpu', 'NVIDIA H100'):
    assert choice() is choice(backend='auto') is chunked_attention.attention


@pytest.mark.parametrize('model', [bert, gpt2, quaternion_text, transformer])
def test_run_records_its_attention_kernel(monkeypatch, model):
  for found, backend in ((True, 'numba'), (False, 'without_numba')):
    monkeypatch.setattr(native, 'has_products', lambda found=found: found)
    assert model.settle(model.Config()).attention == backend
    assert model.settle(model.Config(dtype='bfloat16')).attention == 'without_numba'
    assert model.settle(model.Config(attention='blocked')).attention == 'blocked'


@pytest.mark.slow
@needs_numba
def test_asking_for_products_compiles_nothing_and_operations_compile_once(tmp_path):
  """A second process finds the machine code, and a run that computes no such operation compiles none."""
  program = (
    'import sys, jax; jax.config.update("jax_compilation_cache_dir", sys.argv[1]); from lmx.kernels import native;'
    'assert native.has_products() and "numba" not in sys.modules; native.load("lstm", "", "");'
    'from lmx.kernels.native import lstm; print(lstm.forward.cache_hits, lstm._forward.cache_hits)'
  )
  for hits, message in (('0 0\n', 'compiling Numba operations (lstm), once on this machine\n'), ('1 1\n', '')):
    done = subprocess.run([sys.executable, '-c', program, tmp_path], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (hits, message)
