"""The training step as XLA partitions it for eight devices: no array has the rows of all, and what is communicated."""

from __future__ import annotations

import functools
import math
import re

import jax
import pytest

from lmx.compilation import bound, hlo, program
from lmx.config import resolve
from lmx.errors import InputError
from lmx.kernels import softmax_loss

ROWS = 56  # 7 a device; no other size of the model is 56
OVERRIDES = {
  'data': [],
  'fsdp': ['parallel.fsdp=8'],
  'tensor': ['parallel.tensor=2'],
  'fsdp+tensor': ['parallel.fsdp=4', 'parallel.tensor=2'],
  'pmap': ['parallel.mode=pmap'],
}
# Both directions, or both texts, reduce the gradient of the characters' table, a quarter of the tiny model.
MOST = {'elmo': 1.5, 'bidaf': 1.5}
MODELS = ('gpt2', 'bert', 'xlnet', 'transformer_xl', 'transformer', 'awd_lstm', 'rnn_lm', 'elmo', 'bidaf')


@functools.cache
def partitioned(model, mode, *more, vocabulary=97):
  path = f'experiments/{model}/quickstart.py:tiny'
  overrides = [f'data.batch_size={ROWS}', 'optim.accumulate=1', *OVERRIDES[mode], *more]
  step = program.build(resolve.load(path, overrides), jax.devices(), vocabulary=vocabulary)
  return step, hlo.Program(step.lower().compile().as_text())


def of_all_rows(compiled):
  """The arrays with the rows of the global batch."""
  sizes = lambda shape: [dims.split(',') for dims in re.findall(r'\b[a-z]\w*\[([\d,]*)\]', shape)]
  return [row for row in compiled.arrays() if any(str(ROWS) in dims for dims in sizes(row[1]))]


@pytest.mark.parametrize('mode', [pytest.param(m, marks=pytest.mark.slow) if m == 'fsdp' else m for m in OVERRIDES])
@pytest.mark.parametrize('model', [m if m == 'gpt2' else pytest.param(m, marks=pytest.mark.slow) for m in MODELS])
def test_rows_are_sharded_over_devices(model, mode):
  step, compiled = partitioned(model, mode)
  assert not of_all_rows(compiled)
  least = sum(bound.of_step(step).values())  # 0 for ELMo under tensor
  if least:
    assert 0.5 < sum(one.total for one in compiled.collectives()) / least <= MOST.get(model, 1.2)


@pytest.mark.parametrize('mode', ['data', pytest.param('fsdp', marks=pytest.mark.slow)])
def test_tied_table_gradients_are_added_before_reduction(mode):
  _, compiled = partitioned('gpt2', mode)
  reduced = [one.shape for one in compiled.collectives() if one.kind == 'all-reduce']
  assert ''.join(reduced).count('f32[97,32]') == 1


@pytest.mark.parametrize('tied', [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
  'mode', ['tensor', *(pytest.param(m, marks=pytest.mark.slow) for m in ('data', 'fsdp+tensor'))]
)
def test_chunked_loss_reduces_the_table_gradient_once(mode, tied, monkeypatch):
  """Under tensor a device has a shard of the vocabulary; each chunk of the loss reduces only activations."""
  monkeypatch.setattr(softmax_loss, 'CPU_CHUNK', 56)
  step, compiled = partitioned.__wrapped__('gpt2', mode, f'model.tied={tied}', vocabulary=96)
  rows = 96 // step.engine.mesh.shape['tensor']
  assert mode == 'data' or any(one.count > 3 for one in compiled.collectives())  # by chunk
  reduced = [one for one in compiled.collectives() if one.kind == 'all-reduce']
  assert sum(one.count * one.shape.count(f'f32[{rows},32]') for one in reduced) == (1 if tied else 2)
  assert 0.7 < sum(one.total for one in compiled.collectives()) / sum(bound.of_step(step).values()) <= 1.1


@pytest.mark.parametrize('options', [['optim.accumulate=2'], ['parallel.mode=pmap']], ids=['jit', 'pmap'])
def test_gradients_are_reduced_once_in_the_configured_type(options):
  """Read before compilation, because XLA adds bfloat16 in float32 on a CPU."""

  def traced(*more):
    overrides = ['data.batch_size=64', 'optim.accumulate=1', *options, *more]
    step = program.build(resolve.load('experiments/gpt2/quickstart.py:tiny', overrides), jax.devices(), vocabulary=97)
    return step, step.lower().as_text()

  step, text = traced('parallel.reduce_dtype=bfloat16')
  reduced = re.findall(r'all_reduce.*?-> tensor<([\dx]*)(f32|bf16)>', text, re.DOTALL)
  gradients = [math.prod(map(int, filter(None, sizes.split('x')))) for sizes, dtype in reduced if dtype == 'bf16']
  assert len(gradients) == len(jax.tree.leaves(step.arguments[0].params)) and sum(gradients) == step.parameters
  assert not [sizes for sizes, dtype in reduced if dtype == 'f32' and sizes]  # only scalars
  assert bound.of_step(step)['gradients'] == 2 * step.parameters
  (_, default), (_, exact) = traced(), traced('parallel.reduce_dtype=float32')
  assert default == exact and 'bf16' not in default


def test_gathered_rows_are_not_reduced():
  config = resolve.load('experiments/word2vec/quickstart.py:tiny', ['parallel.reduce_dtype=bfloat16'])
  with pytest.raises(InputError, match='parallel.reduce_dtype: got "bfloat16"'):
    program.build(config, jax.devices(), vocabulary=97)


def test_unsharded_rows_are_detected():
  """Without constraints the same step has arrays of all rows under fsdp: the test above can fail."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr('lmx.placement.Placement.spec', lambda self, shape, axes: jax.sharding.PartitionSpec())
    assert of_all_rows(partitioned.__wrapped__('gpt2', 'fsdp')[1])


def test_fsdp_reduces_gradients_in_the_configured_type(tmp_path):
  """Read after partitioning, because XLA adds bfloat16 in float32 on a CPU."""
  options = ['optim.accumulate=1', 'model.N=1', 'model.tied=false', 'model.dtype=bfloat16', 'parallel.fsdp=8']
  overrides = [f'data.batch_size={ROWS}', *options, 'parallel.reduce_dtype=bfloat16']
  step = program.build(resolve.load('experiments/gpt2/quickstart.py:tiny', overrides), jax.devices(), vocabulary=96)
  step.lower().compile(compiler_options={'xla_dump_to': str(tmp_path), 'xla_dump_hlo_pass_re': 'spmd-partitioning'})
  (path,) = tmp_path.glob('*after_spmd-partitioning*')
  found = hlo.Program(path.read_text()).collectives(merged=True)
  reduced = [one.shape.partition('{')[0] for one in found if one.kind == 'all-reduce']
  matrices = ['[128,32]', '[32,128]', '[32,3,4,8]', '[4,8,32]', '[96,32]', '[96,32]']
  assert sorted(shape.removeprefix('bf16') for shape in reduced if shape.startswith('bf16')) == matrices
  assert not {f'f32{shape}' for shape in matrices} & {*reduced}


def test_fsdp_in_bfloat16_needs_a_model_in_bfloat16():
  overrides = ['parallel.fsdp=8', 'parallel.reduce_dtype=bfloat16']
  config = resolve.load('experiments/gpt2/quickstart.py:tiny', [*overrides, 'model.dtype=float32'])
  with pytest.raises(InputError, match='parallel.reduce_dtype: got "bfloat16" with parallel.fsdp and model.dtype'):
    program.build(config, jax.devices(), vocabulary=97)
