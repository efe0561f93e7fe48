"""The training step that GPUs compute, on a CPU: implementations for GPUs, and switches between them."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lmx.config import resolve
from lmx.engine import devices, sharding
from lmx.errors import InputError
from lmx.kernels import dense as dense_kernel
from lmx.kernels import implementations
from lmx.kernels import softmax_loss as loss_kernel
from lmx.kernels import table as table_kernel
from lmx.ops import dense, table
from tests import engine_cases

STEPS = 20
BFLOAT16 = {'dtype': 'bfloat16', 'attention': 'xla'}


@pytest.fixture
def as_gpu(monkeypatch):
  """Engines on this process's CPUs whose steps are traced as for a GPU."""
  of_devices = lambda *args, **named: dataclasses.replace(devices.of_devices(*args, **named), platform='gpu')
  monkeypatch.setattr(sharding, 'of_devices', of_devices)
  exactly = lambda *arrays: tuple(x.astype(jnp.float32) for x in arrays)  # a CPU lacks products of two types
  monkeypatch.setattr(dense_kernel, '_operands', exactly)


def losses(model=None, **parallel):
  """Losses of a model whose first logits have a standard deviation of about 2."""
  first = jax.tree.map(np.copy, engine_cases.start('gpt2'))
  first['model']['embed']['tokens'] *= 20
  options = {'devices': 1, 'steps': STEPS, 'model': model, 'first': first}
  return engine_cases.train('gpt2', sharding.Config(data=1, **parallel), **options)['losses']


def test_losses_match_float32(as_gpu, monkeypatch):
  """Each implementation for GPUs is computed, and the losses of a bfloat16 model are near those of a float32 model."""
  computed = set()

  def spy(module, name):
    function = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args, **named: computed.add(name) or function(*args, **named))

  implemented = (
    (table_kernel, '_rounded'),
    (dense_kernel, '_layer_norm'),
    (dense_kernel, '_activate'),
    (loss_kernel, '_in_one_pass'),
  )
  for module, name in implemented:
    spy(module, name)
  found = losses(BFLOAT16)
  assert computed == {name for _, name in implemented}
  np.testing.assert_allclose(found, losses(), rtol=0, atol=1e-2)


@pytest.mark.parametrize(
  'parallel, training',
  [({}, 'bfloat16'), ({'logits_dtype': 'float32'}, 'float32'), ({'logits_dtype': 'bfloat16'}, 'bfloat16')],
)
def test_logits_are_rounded_in_training_only(parallel, training, as_gpu):
  engine = sharding.Engine(sharding.Config(data=1, **parallel), jax.devices()[:1])
  assert (engine._training.logits, engine.placement.logits) == (training, 'float32')


def test_logits_on_a_cpu_stay_float32():
  engine = sharding.Engine(sharding.Config(data=1), jax.devices()[:1])
  assert engine._training == engine.placement


def test_equations_replace_implementations():
  engine = sharding.Engine(sharding.Config(data=1, equations=('dot',)), jax.devices()[:1])
  assert engine._training.implementation(dense.dot) is None
  assert engine._training.implementation(table.product) is implementations.find(table.product)
  assert engine.placement.implementation is implementations.find
  with pytest.raises(InputError, match='parallel.equations: unknown "dott".*"dot"'):
    resolve.to_run(resolve.load('experiments/gpt2/quickstart.py:tiny', ['parallel.equations=dott']))
