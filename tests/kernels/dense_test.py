"""Products with gradients in the operands' type: values, gradients, and the types that are multiplied."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from lmx import placement
from lmx.compilation import hlo
from lmx.kernels import dense as dense_kernels
from lmx.layers import transformer
from lmx.ops import dense
from tests import placed

CASES = {
  'BTHK,BSHK->BHTS': ((2, 3, 4, 5), (2, 6, 4, 5)),
  'BTHK,RHK->BHTR': ((2, 3, 4, 5), (6, 4, 5)),
  '...D,VD->...V': ((2, 3, 5), (7, 5)),
}


def gradients(multiply, axes, x, y):
  shape = jax.eval_shape(functools.partial(multiply, axes), x, y).shape
  weights = np.random.default_rng(1).standard_normal(shape, np.float32)
  loss = lambda x, y: jnp.sum(multiply(axes, x, y) * weights)
  return jax.jit(jax.value_and_grad(loss, argnums=(0, 1))), (x, y)


def draw(axes, dtype):
  rng = np.random.default_rng(0)
  return [jnp.asarray(rng.standard_normal(shape), dtype) for shape in CASES[axes]]


def plain(axes, x, y):
  return jnp.einsum(axes, x, y, preferred_element_type=jnp.float32)


@pytest.mark.parametrize('axes', CASES)
def test_float32_is_the_einsum_to_the_bit(axes):
  (fast, args), (slow, _) = (gradients(f, axes, *draw(axes, 'float32')) for f in (dense_kernels.einsum, plain))
  jax.tree.map(np.testing.assert_array_equal, fast(*args), slow(*args))


@pytest.mark.parametrize('axes', CASES)
def test_bfloat16_multiplies_only_bfloat16_and_adds_in_float32(axes):
  (fast, args), (slow, _) = (gradients(f, axes, *draw(axes, 'bfloat16')) for f in (dense_kernels.einsum, plain))
  found, expected = fast(*args), slow(*args)
  np.testing.assert_array_equal(found[0], expected[0])  # the forward product is the same
  for a, b in zip(found[1], expected[1], strict=True):
    assert a.dtype == jnp.bfloat16
    np.testing.assert_allclose(a.astype(jnp.float32), b.astype(jnp.float32), rtol=0.02, atol=0.05)
  with placed.on('tpu'):
    fast, _ = gradients(dense_kernels.einsum, axes, *args)
    products = [line for line in fast.lower(*args).as_text().splitlines() if 'dot_general' in line]
  assert len(products) == 3 and not any('f32' in line.partition(' -> ')[0].rpartition(' : ')[2] for line in products)
  assert all(line.rstrip().endswith('xf32>') for line in products)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_gradient_of_a_float32_kernel_is_accumulated_in_float32(dtype):
  rng = np.random.default_rng(0)
  x_RHK = jnp.asarray(rng.standard_normal((6, 4, 5)), dtype)
  kernel_HKD, weights_RD = (rng.standard_normal(shape, np.float32) for shape in ((4, 5, 7), (6, 7)))
  loss = lambda f: jax.jit(
    jax.value_and_grad(lambda x, w: jnp.sum(f(x, w).astype(jnp.float32) * weights_RD), argnums=(0, 1))
  )
  fast = loss(lambda x, w: dense_kernels.dot(x, w, 2))
  slow = loss(lambda x, w: jnp.tensordot(x, w.astype(x.dtype), 2))
  found, expected = fast(x_RHK, kernel_HKD), slow(x_RHK, kernel_HKD)
  assert found[1][1].dtype == jnp.float32
  if dtype == 'float32':
    jax.tree.map(np.testing.assert_array_equal, found, expected)
  else:
    rounded = jnp.asarray(weights_RD, dtype).astype(jnp.float32)
    exact = jnp.tensordot(x_RHK.astype(jnp.float32), rounded, ((0,), (0,)))
    np.testing.assert_allclose(found[1][1], exact, rtol=1e-6, atol=1e-6)  # not rounded to bfloat16
    np.testing.assert_array_equal(found[1][0], expected[1][0])


def attention_gradient(project, vectors):
  """The gradients of the scores of distances, whose vectors are read twice, and of a memory and a segment."""
  rng = np.random.default_rng(0)
  memory_BMX, encoding_RX = (rng.standard_normal(shape, np.float32) for shape in ((8, 2, 16), (23, 16)))

  def loss(x_BTX, key_XHK, distance_XHK):
    k_BSHK, r_GRHK = project(memory_BMX, x_BTX, key_XHK), vectors(encoding_RX, distance_XHK)
    q_GBSHK = k_BSHK.reshape(len(r_GRHK), -1, *k_BSHK.shape[1:])
    scores = [jnp.einsum('GBSHK,GRHK->GBHSR', f(q_GBSHK), r_GRHK) for f in (jnp.sin, jnp.cos)]
    return sum(jnp.sum(jnp.square(x)) for x in scores)

  return jax.value_and_grad(loss, argnums=(0, 1, 2))


def keys_with_memory(memory, x, kernel):
  return dense_kernels.dots_with_memory(memory, x, jnp.stack([jnp.zeros_like(kernel), kernel], axis=1), x.shape[1])[1]


@pytest.mark.parametrize('memory', [0, 5])
@pytest.mark.parametrize('length', [7, 4])
def test_products_with_memory_add_their_input_gradient_once_under_tensor(memory, length):
  rng = np.random.default_rng(2)
  draw = lambda *shape: rng.standard_normal(shape, np.float32)
  memory_BMX, x_BTX, kernel_XCY = draw(4, memory, 16) if memory else None, draw(4, 7, 16), draw(16, 3, 4, 5)
  bars = [draw(4, 7, 4, 5), *(draw(4, memory + length, 4, 5) for _ in range(2))]

  def total(dots, x_BTX, kernel_XCY):
    return sum(jnp.sum(y * bar) for y, bar in zip(dots(memory_BMX, x_BTX, kernel_XCY, length), bars, strict=True))

  run = lambda dots: jax.jit(jax.value_and_grad(functools.partial(total, dots), argnums=(0, 1)))
  expected = run(dense.dots_with_memory.equation)(x_BTX, kernel_XCY)
  here = placed.at(data=2, tensor=4)
  specs = PartitionSpec('data'), PartitionSpec(None, None, 'tensor')
  shardings = tuple(NamedSharding(here.mesh, spec) for spec in specs)
  with placement.scope(here):
    step = jax.jit(run(dense_kernels.dots_with_memory), in_shardings=shardings, out_shardings=(None, shardings))
    compiled = step.lower(x_BTX, kernel_XCY).compile()
  found = compiled(*jax.device_put((x_BTX, kernel_XCY), shardings))
  jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), found, expected)
  over_tensor = [one for one in hlo.Program(compiled.as_text()).collectives() if len(one.groups[0]) == 4]
  rows = 4 * 2 * 7 * 16
  assert rows <= sum(one.total for one in over_tensor) < rows + 64  # and scalars


def test_input_gradient_of_queries_keys_and_values_is_added_once_under_tensor():
  rng = np.random.default_rng(3)
  draw = lambda *shape: rng.standard_normal(shape, np.float32)
  x_BTX, kernel_XCY, bias_CY, bars = draw(4, 7, 16), draw(16, 3, 4, 5), draw(3, 4, 5), draw(3, 4, 7, 4, 5)

  def total(split, x_BTX, kernel_XCY, bias_CY):
    return sum(jnp.sum(y * bar) for y, bar in zip(split(x_BTX, kernel_XCY, bias_CY, 1, 1), bars, strict=True))

  run = lambda split: jax.jit(jax.grad(functools.partial(total, split), argnums=(0, 1, 2)))
  expected = run(dense.split_affine.equation)(x_BTX, kernel_XCY, bias_CY)
  here = placed.at('tpu', data=2, tensor=4)
  specs = PartitionSpec('data'), PartitionSpec(None, None, 'tensor'), PartitionSpec(None, 'tensor')
  shardings = tuple(NamedSharding(here.mesh, spec) for spec in specs)
  with placement.scope(here):
    step = jax.jit(run(dense_kernels.split_affine), in_shardings=shardings, out_shardings=shardings)
    compiled = step.lower(x_BTX, kernel_XCY, bias_CY).compile()
  found = compiled(*jax.device_put((x_BTX, kernel_XCY, bias_CY), shardings))
  jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), found, expected)
  over_tensor = [one for one in hlo.Program(compiled.as_text()).collectives() if len(one.groups[0]) == 4]
  assert sum(one.total for one in over_tensor) == 4 * 2 * 7 * 16


@pytest.mark.parametrize('mesh', [dict(data=8), dict(fsdp=8), dict(fsdp=4, tensor=2)], ids=str)
def test_shared_kernels_are_reduced_once(mesh):
  """The values are those of the plain products; no vector of the 23 shared rows is communicated."""
  rng = np.random.default_rng(1)
  x_BTX, *kernels = (rng.standard_normal(shape, np.float32) for shape in ((8, 3, 16), (16, 4, 5), (16, 4, 5)))
  plain = attention_gradient(
    lambda memory, x, kernel: jnp.tensordot(jnp.concatenate([memory, x], axis=1), kernel, 1),
    lambda encoding, kernel: jnp.tensordot(encoding, kernel, 1)[None],
  )
  expected = jax.jit(plain)(x_BTX, *kernels)
  per_shard = functools.partial(dense_kernels.dot_per_shard, axes='DHK')
  once = attention_gradient(keys_with_memory, per_shard)
  here = placed.at(**mesh)
  specs = PartitionSpec(('data', 'fsdp')), *(PartitionSpec('fsdp', 'tensor'),) * 2
  shardings = tuple(NamedSharding(here.mesh, spec) for spec in specs)
  with placement.scope(here):
    step = jax.jit(once, in_shardings=shardings, out_shardings=(None, shardings)).lower(x_BTX, *kernels).compile()
  jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-2), step(x_BTX, *kernels), expected)
  collectives = hlo.Program(step.as_text()).collectives()
  reduced = ''.join(one.shape for one in collectives if one.kind == 'all-reduce')
  assert len(re.findall(r'f32\[16,\d,5\]', reduced)) == 2
  assert not any('23' in one.shape for one in collectives)


def test_gradient_of_an_added_parameter_is_summed_in_its_own_type():
  rows, bias = jnp.zeros((301, 2), jnp.bfloat16), jnp.zeros(2)  # bfloat16 has no 301
  total = lambda bias: jnp.sum(dense.add(rows, bias), dtype=jnp.float32)
  assert dense.add(rows, bias).dtype == jnp.bfloat16
  assert jax.grad(total)(bias).tolist() == [301, 301]


SHAPES = [((3, 1, 8), (8, 6), 1), ((3, 8), (8, 2, 5), 1), ((2, 4, 3), (4, 3, 7), 2)]


@pytest.mark.parametrize(('x', 'kernel', 'axes'), SHAPES)
def test_kernels_stored_by_outputs_give_the_same_in_a_loop(monkeypatch, x, kernel, axes):
  monkeypatch.setattr(dense_kernels, 'LEAST_KERNEL', 1)
  random, used, by_outputs = np.random.default_rng(0), [], dense_kernels._dot_by_outputs
  monkeypatch.setattr(dense_kernels, '_dot_by_outputs', lambda *a, **named: used.append(1) or by_outputs(*a, **named))
  x, kernel = (jnp.asarray(random.normal(size=shape), jnp.float32) for shape in (x, kernel))
  plain = dense.dot(x, kernel, axes)
  with placed.on('cpu'), placement.scope(dense_kernels.for_decoding(kernel)):
    found = dense.dot(x, kernel, axes)
  assert used and found.shape == plain.shape
  np.testing.assert_allclose(found, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('change', ['rows', 'kernel', 'bytes', 'dtype', 'platform', 'outside'])
def test_other_loop_products_are_unchanged(monkeypatch, change):
  monkeypatch.setattr(dense_kernels, 'LEAST_KERNEL', 100 if change == 'kernel' else 1)
  monkeypatch.setattr(dense_kernels, 'MOST_BYTES', 1 if change == 'bytes' else 2**31)
  monkeypatch.setattr(dense_kernels, '_dot_by_outputs', lambda *args, **named: pytest.fail('stored by outputs'))
  x, kernel = jnp.ones((1 if change == 'rows' else 4, 8)), jnp.ones((8, 6), jnp.bfloat16 if change == 'dtype' else None)
  with placed.on('gpu' if change == 'platform' else 'cpu'):
    here = placement.current() if change == 'outside' else dense_kernels.for_decoding(kernel)
  with placement.scope(here):
    np.testing.assert_array_equal(dense.dot(x.astype(kernel.dtype), kernel, 1), np.full((len(x), 6), 8))


@pytest.mark.parametrize(('x', 'kernel', 'axes'), [*SHAPES, ((5,), (5,), 1), ((2, 0), (0, 3), 1)])
def test_one_cpu_multiplies_matrices(x, kernel, axes):
  random = np.random.default_rng(0)
  x, kernel = (jnp.asarray(random.normal(size=shape), jnp.float32) for shape in (x, kernel))
  weights = random.normal(size=(*x.shape[: x.ndim - axes], *kernel.shape[axes:])).astype(np.float32)
  gradient = jax.value_and_grad(lambda x, kernel: jnp.sum(weights * dense_kernels.dot(x, kernel, axes)), (0, 1))
  expected = gradient(x, kernel)
  with placed.on('cpu', 'cpu'):
    found, program = gradient(x, kernel), str(jax.make_jaxpr(gradient)(x, kernel))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)
  products = re.findall(r'f32\[([\d,]*)\] = dot_general', program)
  assert len(products) == 3 and all(shape.count(',') == 1 for shape in products)


def value_and_gradients(function, weights, *args):
  """The weighted sum of a function of arrays, and its gradients."""
  loss = lambda *args: jnp.sum(function(*args).astype(jnp.float32) * weights)
  return jax.jit(jax.value_and_grad(loss, argnums=tuple(range(len(args)))))(*args)


def close(found, expected, tolerance):
  for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    assert a.dtype == b.dtype
    a, b = (np.asarray(x, np.float32) for x in (a, b))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.abs(b).max()))


@pytest.mark.parametrize('bias', [True, False])
@pytest.mark.parametrize('dtype, tolerance', [('float32', 1e-5), ('bfloat16', 2e-2)])
def test_layer_norm_for_gpus_equals_the_equation(dtype, tolerance, bias):
  """Also where an element or the mean is far from the others, and in constant rows, as of padding."""
  rng = np.random.default_rng(0)
  x_BTD, weights_BTD = (rng.standard_normal((2, 6, 48), np.float32) for _ in range(2))
  x_BTD[0, 1, 0], x_BTD[0, 2] = 300.0, x_BTD[0, 2] + 100.0
  x_BTD[1, 3:5], weights_BTD[1, 3:5] = [[7.1], [0.0]], 0.0
  args = jnp.asarray(x_BTD, dtype), *(rng.standard_normal(48, np.float32) for _ in range(1 + bias))
  run = lambda norm: value_and_gradients(lambda x, *ps: norm(x, *(*ps, None)[:2], 1e-12), weights_BTD, *args)
  with placed.on('gpu'):
    found = run(dense_kernels.layer_norm)
  close(found, run(dense.layer_norm.equation), tolerance)


@pytest.mark.parametrize('name', transformer.ACTIVATIONS)
def test_activation_for_gpus_stores_only_its_input(name):
  rng = np.random.default_rng(0)
  x_BTF, weights_BTF = (rng.standard_normal((2, 3, 8), np.float32) for _ in range(2))
  run = lambda activate, x: value_and_gradients(
    lambda x: activate(x, transformer.ACTIVATIONS[name]), weights_BTF.astype(x.dtype), x
  )
  with placed.on('gpu'):
    for dtype, tolerance in (('float32', 1e-6), ('bfloat16', 2e-2)):
      x = jnp.asarray(x_BTF, dtype)
      close(run(dense_kernels.activate, x), run(dense.activate.equation, x), tolerance)
    stored = jax.eval_shape(lambda: jax.vjp(lambda x: dense.activate(x, transformer.ACTIVATIONS[name]), x)[1])
  assert [leaf.shape for leaf in jax.tree.leaves(stored)] == [x.shape]


@pytest.mark.parametrize('platform, devices', [('gpu', 1), ('gpu', 2), ('tpu', 1), ('cpu', 1)])
@pytest.mark.parametrize('bias', [True, False])
def test_split_products_equal_the_equation(platform, devices, bias):
  rng = np.random.default_rng(0)
  shapes = (2, 6, 8), (8, 3, 2, 4), *[(3, 2, 4)] * bias
  args = [rng.standard_normal(shape, np.float32) for shape in shapes]
  weights = rng.standard_normal((3, 2, 6, 2, 4), np.float32)
  run = lambda split: value_and_gradients(lambda x, *ps: jnp.stack(split(x, *(*ps, None)[:2], 1, 1)), weights, *args)
  with placed.on(platform, devices=devices):
    found = run(dense_kernels.split_affine)
    products = jax.make_jaxpr(lambda x, w: dense_kernels.split_affine(x, w, None, 1, 1))(*args[:2])
  close(found, run(dense.split_affine.equation), 1e-5)
  assert str(products).count('dot_general') == (1 if platform == 'cpu' else 3)


def test_gradients_of_split_products_are_reduced_as_one():
  """On GPUs that share the rows."""
  x_BTX, kernel_XCHK = jnp.ones((2, 6, 8)), jnp.ones((8, 3, 2, 4))

  def products(devices):
    with placed.on('gpu', devices=devices):
      loss = lambda w: sum(jnp.sum(jnp.sin(y)) for y in dense_kernels.split_affine(x_BTX, w, None, 1, 1))
      return str(jax.make_jaxpr(jax.grad(loss))(kernel_XCHK)).count('dot_general')

  assert products(1) == 3 + 3 and products(2) == 3 + 2  # of the backward pass, one product is of x, which is not used
