"""Functions of equal layers as a few programs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import monitoring

from lmx.decoding import generate
from lmx.engine import by_layer, precision
from lmx.models import registry
from tests import drawn

PROMPT_BT = np.random.default_rng(0).integers(0, 60, (1, 9)).astype(np.int32)


@pytest.fixture
def compiled():
  """Names of the events of compilation, as they come."""
  by_layer.fast_options()  # compiles
  events = []
  listen = lambda name, seconds, **_: events.append(name) if name.endswith('backend_compile_duration') else None
  monitoring.register_event_duration_secs_listener(listen)
  yield events
  monitoring.unregister_event_duration_listener(listen)


@jax.jit
def _layer(x_D, table_DD, cache_D, other_D):
  y_D = jnp.tanh(x_D @ table_DD)
  return y_D, cache_D + y_D, other_D


def _stack(setting, tables, caches, x_D):
  x_D, new = jnp.sin(x_D), []
  other_D = x_D + setting
  for table_DD, cache_D in zip(tables, caches, strict=True):
    x_D, cache_D, other_D = _layer(x_D, table_DD, cache_D, other_D)
    new.append(cache_D)
  return x_D.sum() + other_D.sum(), new, tables[0]


def test_programs_equal_the_function_and_compile_equal_layers_once(compiled):
  random = np.random.default_rng(0)
  draw = lambda *shape: jnp.asarray(random.normal(size=shape), jnp.float32)
  tables, x_D = [draw(8, 8) for _ in range(6)], draw(8)
  caches = [draw(8) for _ in range(6)]
  expected = _stack(2, tables, caches, x_D)
  compiled.clear()
  programs = by_layer.prepare(_stack, 2, tables, caches, x_D, donated=1)
  found = programs(tables, caches, x_D)
  assert len(compiled) == 3  # before, of, and after the layers
  for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    np.testing.assert_allclose(x, y, rtol=1e-6)
  assert all(x.is_deleted() for x in caches)  # overwritten, and nothing else is
  assert not any(x.is_deleted() for x in (*tables, x_D))
  again = by_layer.prepare(_stack, 2, tables, found[1], x_D, donated=1)
  assert again is programs
  by_layer.prepare(_stack, 3, tables, found[1], x_D, donated=1)(tables, found[1], x_D)
  assert len(compiled) == 5  # the layer of another setting is the same program


def test_generation_by_layer_equals_the_loop(compiled, monkeypatch):
  """A call of a model with equal layers compiles three programs of the prompt, three of the steps, and the keys."""
  module = registry.get('gpt2')
  cfg = registry.config('gpt2', 'tiny', N=by_layer.LEAST_LAYERS, D=16, H=2)
  params = drawn.params(module.init, cfg)
  call = {'steps': 12, 'key': jax.random.key(3), 'sampler': generate.Sampler(top_k=20), 'eos_ids': (5,)}
  with precision.scope('float32'):
    compiled.clear()
    found = generate.generate(module, cfg, params, PROMPT_BT, **call)
    assert len(compiled) in (6, 7)  # the program of the keys may be compiled before
    count = len(compiled)
    streamed = [int(token_B[0]) for token_B in generate.stream(module, cfg, params, PROMPT_BT, **call)]
    assert len(compiled) == count  # the same programs
    compiled.clear()
    greedy = {**call, 'key': None, 'sampler': generate.Sampler(greedy=True)}
    greedy_BT = generate.generate(module, cfg, params, PROMPT_BT, **greedy).tokens_BT
    assert len(compiled) == 4  # what is before and after the layers, whose two programs are the same
    monkeypatch.setattr(generate, '_MOST_STEPS', 0)
    np.testing.assert_array_equal(greedy_BT, generate.generate(module, cfg, params, PROMPT_BT, **greedy).tokens_BT)
    expected = generate.generate(module, cfg, params, PROMPT_BT, **call)
  np.testing.assert_array_equal(found.tokens_BT, expected.tokens_BT)
  np.testing.assert_array_equal(found.counts_B, expected.counts_B)
  assert streamed == found.tokens_BT[0, : found.counts_B[0]].tolist()


def test_options_that_xla_does_not_have_are_left_out(monkeypatch):
  known = {'xla_llvm_disable_expensive_passes': True}
  monkeypatch.setattr(by_layer, '_FAST_COMPILATION', {'xla_no_such_option': False, **known})
  assert by_layer.fast_options.__wrapped__() == known
  monkeypatch.setattr(by_layer, '_FAST_COMPILATION', {'xla_cpu_parallel_codegen_split_count': 'many'})
  with pytest.raises(jax.errors.JaxRuntimeError, match='xla_cpu_parallel'):
    by_layer.fast_options.__wrapped__()
