"""word2vec's updates as one operation of Numba: those of the sparse step, which XLA compiles from the equations."""

from __future__ import annotations

import hashlib
import itertools
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from lmx import host, objectives, placement
from lmx.engine import sharding, sparse_step
from lmx.engine import state as state_lib
from lmx.errors import InputError
from lmx.kernels import native, window_updates
from lmx.models import registry
from lmx.optim import build
from tests.models import word2vec_test as examples

word2vec = registry.get('word2vec')
skipgram = objectives.get('skipgram')

pytestmark = pytest.mark.skipif(not native.is_installed(), reason='needs Numba')

RATE = 0.05
TREES = [False, pytest.param(True, marks=pytest.mark.slow)]  # each compiles machine code of its own
CASES = [('skipgram', False, 'c'), ('skipgram', True, 'c'), *itertools.product(['cbow'], [False, True], ['c', 'mean'])]


def run_step(kernel, architecture, batch, given, gradient='c'):
  """(tables, metrics) of a step on one device."""
  V, D = given['embed']['table'].shape
  cfg = word2vec.Config(V=V, D=D, architecture=architecture, cbow_gradient=gradient, update_kernel=kernel)
  optim = build.Config(optimizer='sgd', lr=RATE)
  tx = build.make(optim, {'model': given, 'objective': {}}, lambda path: word2vec.depth(cfg, path), 0, 10, 10)
  step = sparse_step.make(word2vec, cfg, skipgram, skipgram.Config(), build.rate(optim, 10, 10))
  engine = sharding.Engine(sharding.Config(data=1), jax.devices()[:1])
  params = {'model': jax.tree.map(np.copy, given), 'objective': {}}
  state, rows = engine.build(lambda p: state_lib.create(p, tx), params), engine.build_rows(lambda: (), 1)
  key = engine.replicate(jax.random.key(0))
  state, _, metrics = engine.compile_train(step, state)(state, rows, engine.put_batch(batch), key)
  assert int(state.step) == 1
  return jax.tree.map(np.asarray, state.params['model']), jax.tree.map(np.asarray, metrics)


@pytest.mark.parametrize(
  ('architecture', 'tree', 'gradient', 'B', 'D'),
  [
    ('skipgram', False, 'c', 2, 40),
    *(pytest.param(*case, 3, 5, marks=pytest.mark.slow) for case in CASES),
  ],
)
def test_updates_match_the_sparse_step(architecture, tree, gradient, B, D):
  batch = examples.batch_of(tree, True, batch_size=B, length=18)
  given = examples.tables(examples.corpus().tokenizer.vocab_size, D)
  found, metrics = run_step('numba', architecture, batch, given, gradient)
  expected, definition = run_step('xla', architecture, batch, given, gradient)
  for a, b, before in zip(*map(jax.tree.leaves, (found, expected, given)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6)
    assert np.abs(b - before).max() > 0.05
  assert metrics.keys() == definition.keys() and bool(metrics['finite'])
  for name in metrics:
    np.testing.assert_allclose(metrics[name], definition[name], rtol=2e-6)


@pytest.mark.parametrize('tree', TREES)
def test_number_of_threads_changes_no_bit(tree, monkeypatch):
  batch = examples.batch_of(tree, True, batch_size=4, length=24)
  given = examples.tables(examples.corpus().tokenizer.vocab_size, 20)
  found = []
  for count in (1, 2, 3):
    monkeypatch.setattr(host, 'cores', lambda count=count: count)
    found.append(run_step('numba', 'cbow', batch, given))
  for other in found[1:]:
    jax.tree.map(np.testing.assert_array_equal, found[0], other)


@pytest.mark.parametrize('tree', TREES)
def test_non_finite_loss_stops_the_updates_of_the_step(tree):
  batch = examples.batch_of(tree, True, batch_size=1, length=24, sample=0.0)
  given = examples.tables(examples.corpus().tokenizer.vocab_size)
  first = {k: v[:, :1] if v.ndim > 1 else v for k, v in batch.items()}
  expected, _ = run_step('numba', 'skipgram', first, given)
  read = set(np.ravel(word2vec.rows(word2vec.Config(), first)['embed/table']).tolist())
  used = np.asarray(batch['tokens_BJS'])[np.asarray(batch['documents_BJS']) > 0]
  word = next(int(i) for i in used if int(i) not in read)
  given['embed']['table'][word] = 3e38  # its scores overflow
  found, metrics = run_step('numba', 'skipgram', batch, given)
  assert not bool(metrics['finite'])
  # The first update, and nothing of the second.
  np.testing.assert_array_equal(found['output']['table'], expected['output']['table'])
  others = np.arange(len(given['embed']['table'])) != word
  np.testing.assert_array_equal(found['embed']['table'][others], expected['embed']['table'][others])


def test_unsupported_forms_and_devices_use_xla():
  shared, pairs = examples.batch_of(False, True), examples.batch_of(False, False)
  cfg = word2vec.Config(update_kernel='numba')
  assert word2vec.fused_updates(cfg, shared) is None  # no device was chosen
  engine = sharding.Engine(sharding.Config(data=1), jax.devices()[:1])
  with placement.scope(engine.placement):
    assert word2vec.fused_updates(cfg, shared) is window_updates.apply
    assert word2vec.fused_updates(cfg, pairs) is None
    assert word2vec.fused_updates(word2vec.Config(update_kernel='xla'), shared) is None
    assert word2vec.fused_updates(word2vec.Config(dtype='bfloat16'), shared) is None


def test_run_that_used_numba_does_not_continue_without(monkeypatch):
  assert word2vec.settle(word2vec.Config()).update_kernel == 'numba'
  monkeypatch.setattr(native, 'is_installed', lambda: False)
  assert word2vec.settle(word2vec.Config()).update_kernel == 'xla'
  engine = sharding.Engine(sharding.Config(data=1), jax.devices()[:1])
  with placement.scope(engine.placement), pytest.raises(InputError, match='model.update_kernel: got "numba"'):
    word2vec.fused_updates(word2vec.Config(update_kernel='numba'), examples.batch_of(False, True))


@pytest.mark.parametrize('tree', TREES)
def test_loss_whose_sum_over_the_rows_is_not_finite_stops_them_too(tree):
  batch = examples.batch_of(tree, True, batch_size=4, length=6, sample=0.0)
  given = examples.tables(examples.corpus().tokenizer.vocab_size)
  given['embed']['table'][:], given['output']['table'][:] = 1e18, 1.0
  total = run_step('numba', 'skipgram', batch, given)[1]['nll'][0]  # of large scores, so it grows as they do
  given['output']['table'][:] = (
    1.5 * float(np.finfo(np.float32).max) / float(total)
  )  # of four rows, of which none is infinite
  found, metrics = run_step('numba', 'skipgram', batch, given)
  assert not np.isfinite(metrics['loss']) and not bool(metrics['finite']) and metrics['grad_norm'] == 0
  jax.tree.map(np.testing.assert_array_equal, found, given)


PROCESS = """
from tests.kernels import window_updates_test
print(window_updates_test.digest())
"""


def digest() -> str:
  """SHA-256 of the tables after a step."""
  batch = examples.batch_of(False, True, batch_size=4, length=24)
  tables, _ = run_step('numba', 'skipgram', batch, examples.tables(examples.corpus().tokenizer.vocab_size, 20))
  return hashlib.sha256(b''.join(x.tobytes() for x in jax.tree.leaves(tables))).hexdigest()


def test_another_process_uses_the_compiled_machine_code():
  folder = jax.config.jax_compilation_cache_dir
  if not folder:
    pytest.skip('JAX keeps no programs')
  compiled = digest()
  times = lambda: {path: path.stat().st_mtime_ns for path in pathlib.Path(folder).rglob('*.nb?')}
  kept = times()
  assert any('operation' in path.name for path in kept)
  command = [sys.executable, '-c', PROCESS]
  assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == compiled
  assert times() == kept
