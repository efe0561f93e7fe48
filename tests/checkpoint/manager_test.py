"""What is saved comes back bit by bit, or not at all and with a reason."""

from __future__ import annotations

import errno
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from etils import epath
from jax.sharding import NamedSharding, PartitionSpec

from lmx.checkpoint import manager, orbax_format
from lmx.errors import InputError

CHILD = pathlib.Path(__file__).with_name('checkpoint_child.py')


def state_of(step: int) -> dict:
  """Every kind of leaf that a run has."""
  key = jax.random.key(step)
  params = {'model': {'layer_00': {'w': jax.random.normal(key, (30, 40)), 'b': jnp.zeros((40,))}}}
  return {
    'params': params,
    'opt': optax.adam(1e-3).init(params),
    'key': key,
    'old_key': jax.random.PRNGKey(step),
    'keys': jax.random.split(jax.random.key(1, impl='rbg'), 3),
    'half': jnp.full((3, 5), step, jnp.bfloat16),
    'flag': jnp.array(True),
    'count': np.array([step, 2**40], np.int64),
    'nothing': None,
  }


def bits(tree) -> list[bytes]:
  return [np.asarray(jax.random.key_data(x) if orbax_format._is_key(x) else x).tobytes() for x in jax.tree.leaves(tree)]


def save_steps(directory, *steps: int, **metrics: float) -> None:
  with manager.Checkpoints(directory) as checkpoints:
    for step in steps:
      checkpoints.save(step, state_of(step), {'step': step}, metrics.get(f'step{step}'))


def child(*args: object, devices: int = 1, **options) -> subprocess.Popen:
  root = str(CHILD.parents[2])
  env = os.environ | {
    'XLA_FLAGS': f'--xla_force_host_platform_device_count={devices}',
    'NPROC': '16',
    'JAX_PLATFORMS': 'cpu',
    'PYTHONPATH': os.pathsep.join([root, os.environ.get('PYTHONPATH', '')]),
  }
  command = [sys.executable, str(CHILD), *map(str, args)]
  return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def finish(process: subprocess.Popen) -> str:
  out, err = process.communicate(timeout=120)
  assert process.returncode == 0, err[-2000:]
  return out


@pytest.mark.parametrize('concrete', [True, False])
def test_round_trip_is_bit_equal(tmp_path, concrete):
  state = state_of(3)
  meta = {'config': {'lr': 1e-3, 'none': None}, 'best': 0.1 + 0.2, 'list': [1, 'a']}
  with manager.Checkpoints(tmp_path / 'new' / 'folder') as checkpoints:
    checkpoints.save(3, state, meta, metric=1.5)
    wanted = state if concrete else jax.eval_shape(lambda: state) | {'count': state['count']}
    found, found_meta, step = checkpoints.restore(wanted)
  assert (found_meta, step) == (meta, 3)
  assert jax.tree.structure(found) == jax.tree.structure(state)
  assert bits(found) == bits(state)
  assert [x.dtype for x in jax.tree.leaves(found)] == [x.dtype for x in jax.tree.leaves(state)]
  assert jnp.array_equal(jax.random.normal(found['key']), jax.random.normal(state['key']))


def test_keeps_last_and_best(tmp_path):
  save_steps(tmp_path, 1, 2, 3, 4, 5, step1=3.0, step2=1.0, step3=2.0, step4=float('nan'))
  with manager.Checkpoints(tmp_path) as checkpoints:
    assert checkpoints.steps() == [2, 4, 5]
    assert checkpoints.restore(state_of(0), 'best')[2] == 2
    assert checkpoints.restore(state_of(0), 4)[1] == {'step': 4}
    with pytest.raises(InputError, match=r'no checkpoint \(1\).*\[2, 4, 5\]'):
      checkpoints.restore(state_of(0), 1)
  assert manager.read_meta(tmp_path) == {'step': 5}
  assert manager.read_meta(tmp_path, 'best') == {'step': 2}


def test_nan_metric_is_never_best(tmp_path):
  with manager.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(1, {'x': jnp.ones(3)}, {}, metric=float('nan'))
    checkpoints.save(2, {'x': jnp.ones(3)}, {}, metric=float('-inf'))
    checkpoints.wait()
    assert checkpoints.restore({'x': jnp.ones(3)}, 'best')[2] == 2  # the last one where none was measured


@pytest.mark.parametrize('which', ['last', 'best', 7])
def test_checkpoint_renamed_to_another_step_is_rejected(tmp_path, which):
  with manager.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(3, {'x': jnp.ones(3)}, {}, metric=1.0)
  shutil.copytree(tmp_path / 'step_000000003', tmp_path / 'step_000000007')
  with pytest.raises(InputError, match='step_000000007: got a checkpoint of step 3'):
    manager.read_meta(tmp_path, which)
  with pytest.raises(InputError, match='remove it if it is a copy'):
    manager.planned_steps(tmp_path)


def test_best_checkpoint_is_kept_only_on_request(tmp_path):
  with manager.Checkpoints(tmp_path, manager.Config(keep_best=False, keep_last=3)) as checkpoints:
    for step in range(5):
      checkpoints.save(step, {'x': jnp.ones(3)}, {}, metric=step)
  assert checkpoints.steps() == [2, 3, 4]


def test_interim_checkpoints_do_not_evict_scheduled_ones(tmp_path):
  with manager.Checkpoints(tmp_path / 'mixed', manager.Config(keep_last=3)) as checkpoints:
    for step in (10, 20, 30, 34, 40, 50, 52, 53):
      checkpoints.save(step, {'x': jnp.ones(3)}, {}, planned=step % 10 == 0)
  assert checkpoints.steps() == [30, 40, 50, 52, 53]
  assert manager.planned_steps(tmp_path / 'mixed') == [30, 40, 50]
  with manager.Checkpoints(tmp_path / 'interim') as checkpoints:
    for step in range(5):
      checkpoints.save(step, {'x': jnp.ones(3)}, {}, planned=False)
  assert checkpoints.steps() == manager.planned_steps(tmp_path / 'interim') == [3, 4]


def test_checkpoints_at_words_are_never_deleted(tmp_path):
  state = {'x': jnp.ones(3)}
  with manager.Checkpoints(tmp_path / 'checkpoints', words={2: 1000, 4: 2000}) as checkpoints:
    for step in range(1, 8):
      checkpoints.save(step, state, {}, planned=step % 2 == 1)
    checkpoints.wait()
    assert checkpoints.steps() == [2, 4, 5, 6, 7]  # two of them, the last two, and the last two planned ones
  assert manager.kept(tmp_path) == [(2, 1000), (4, 2000)] and manager.kept(tmp_path / 'none') == []
  assert manager.planned_steps(tmp_path / 'checkpoints') == [5, 7]  # those that an average takes
  with manager.Checkpoints(tmp_path / 'checkpoints') as checkpoints:  # also where the setting is gone
    checkpoints.save(8, state, {})
  assert manager.kept(tmp_path) == [(2, 1000), (4, 2000)]
  assert [manager.step_of(tmp_path, which) for which in ('words:2000', '7', 'best')] == [4, 7, 'best']
  with pytest.raises(InputError, match='--which: got words:3; expected one of words:1000, words:2000'):
    manager.step_of(tmp_path, 'words:3')


def test_two_verified_checkpoints_exist_during_a_write(tmp_path, monkeypatch):
  save_steps(tmp_path, 1, 2)
  seen = []
  write = orbax_format.Writer._sign

  def look(self):
    seen.append(sorted(p.name for p in tmp_path.iterdir() if p.suffix == '' and 'tmp' not in p.name))
    write(self)

  monkeypatch.setattr(orbax_format.Writer, '_sign', look)
  save_steps(tmp_path, 3, 4)
  assert seen == [['step_000000001', 'step_000000002'], ['step_000000002', 'step_000000003']]


def test_repeated_steps_are_plotted_once(tmp_path):
  with manager.Checkpoints(tmp_path) as checkpoints:
    for number, step in enumerate((1, 2, 2, 2)):
      checkpoints.save(step, {'x': jnp.float32(number)}, {'number': number})
    state, meta, step = checkpoints.restore({'x': jnp.float32(0)})
    assert (float(state['x']), meta, step) == (3.0, {'number': 3}, 2)
    assert checkpoints.steps() == [1, 2]
    checkpoints.save(3, {'x': jnp.float32(9)}, {})
    checkpoints.restore({'x': jnp.float32(0)}, 2)
    # From step 2 the run goes on anew: what is left of the old step 3 must not be taken for its future.
    checkpoints.save(2, {'x': jnp.float32(5)}, {}, block=True)
    assert checkpoints.steps() == [2]


def test_arrays_can_be_donated_after_save_returns(tmp_path):
  update = jax.jit(lambda x: x + 1.0, donate_argnums=0)
  x = jnp.zeros((500, 1000))
  with manager.Checkpoints(tmp_path) as checkpoints:
    for step in range(4):
      checkpoints.save(step, {'x': x}, {})
      x = update(x)
    found, _, _ = checkpoints.restore({'x': x})
  assert np.all(np.asarray(found['x']) == 3.0)


def test_save_is_asynchronous(tmp_path, monkeypatch):
  released = threading.Event()
  write = orbax_format.Writer._sign
  monkeypatch.setattr(orbax_format.Writer, '_sign', lambda self: (released.wait(20), write(self)))
  with manager.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(1, {'x': jnp.ones(3)}, {})
    assert checkpoints.steps() == []  # not committed, so not there
    released.set()
    checkpoints.wait()
    assert checkpoints.steps() == [1]
  with manager.Checkpoints(tmp_path, manager.Config(asynchronous=False)) as checkpoints:
    checkpoints.save(2, {'x': jnp.ones(3)}, {})
    assert checkpoints.steps() == [1, 2]


def damages(path: pathlib.Path):
  """Yields one kind of damage after the other, and repairs it."""
  rng = random.Random(0)
  for file in sorted(p for p in path.rglob('*') if p.is_file() and p.stat().st_size):
    if file.name in ('commit_success.txt', '_CHECKPOINT_METADATA'):
      continue  # nothing is read from them
    old = file.read_bytes()
    place = rng.randrange(len(old))
    flipped = bytearray(old)
    flipped[place] ^= 1 << rng.randrange(8)
    for what, new in (('missing', None), ('half', old[: len(old) // 2]), ('flipped', bytes(flipped))):
      if new is None:
        file.unlink()
      else:
        file.write_bytes(new)
      yield f'{file.relative_to(path)} {what}'
    file.write_bytes(old)


def test_damaged_checkpoint_falls_back_to_the_previous(tmp_path, capfd):
  save_steps(tmp_path, 1, 2)
  wanted, number = bits(state_of(1)), 0
  for what in damages(tmp_path / 'step_000000002'):
    warnings = []
    with manager.Checkpoints(tmp_path, warn=warnings.append) as checkpoints:
      state, meta, step = checkpoints.restore(state_of(0))
    assert (step, meta) == (1, {'step': 1}), what
    assert bits(state) == wanted, what
    assert len(warnings) == 2 and str(tmp_path / 'step_000000002') in warnings[0], (what, warnings)
    assert 'using step 1' in warnings[1], (what, warnings)
    assert 'missing' in warnings[0] or 'files.json' in what or not what.endswith('missing'), warnings
    number += 1
  assert number > 20
  assert capfd.readouterr().err == ''  # no stray tracebacks


@pytest.mark.parametrize('which, named, used', [('best', 2, 3), ('last', 3, 2), (3, 3, None)])
def test_damaged_metadata_and_fallback_are_reported(tmp_path, which, named, used):
  with manager.Checkpoints(tmp_path, manager.Config(keep_last=4)) as checkpoints:
    for step, metric in ((1, 4.0), (2, 2.7), (3, 3.2)):
      checkpoints.save(step, state_of(step), {}, metric)
  path = tmp_path / f'step_00000000{named}' / 'meta' / 'metadata'
  path.write_text(path.read_text().replace('metric', 'metrik'))
  warnings = []
  read = lambda: manager.restore_params(tmp_path, None, which, warn=warnings.append)
  if used is None:
    with pytest.raises(InputError, match='every checkpoint is damaged'):
      read()
  else:
    assert read()[2] == used
    assert f'checkpoint {which}: using step {used} (metric {[4.0, 2.7, 3.2][used - 1]})' in warnings[-1]
  assert f'step_00000000{named} is damaged' in warnings[0] and 'meta/metadata differs from its' in warnings[0]
  assert ('may have been the best' in warnings[0]) == (which == 'best')


@pytest.mark.parametrize('file', ['meta/metadata', 'files.json'])
@pytest.mark.parametrize('content', ['[' * 100_000, '{"body": ' + '[' * 100_000, '[]'])
def test_malformed_json_counts_as_damage(tmp_path, file, content):
  (tmp_path / 'meta').mkdir()
  (tmp_path / file).write_text(content)
  read = orbax_format.read_document if file == 'meta/metadata' else orbax_format.check_files
  with pytest.raises(orbax_format.Damaged, match=file):
    read(epath.Path(tmp_path))


def test_damaged_best_is_reported_during_retention(tmp_path):
  warnings = []
  with manager.Checkpoints(tmp_path, warn=warnings.append) as checkpoints:
    checkpoints.save(1, state_of(1), {}, 1.0, block=True)
    (tmp_path / 'step_000000001' / 'meta' / 'metadata').write_text('{}')
    for step in (2, 3):
      checkpoints.save(step, state_of(step), {}, 2.0, block=True)
  assert len(warnings) == 1 and 'step_000000001 is damaged and does not count for keep_last' in warnings[0]
  assert manager.Checkpoints(tmp_path).steps() == [2, 3]


def test_checksum_detects_flipped_bits(tmp_path, monkeypatch):
  save_steps(tmp_path, 1, 2)
  monkeypatch.setattr(orbax_format, 'check_files', lambda path: None)
  restore, calls = orbax_format.ocp.Checkpointer.restore, []

  def flip(self, path, **options):
    found = restore(self, path, **options)
    calls.append(path)
    if len(calls) == 1:
      w = np.array(found['params']['model']['layer_00']['w'])
      w.view(np.uint32)[4, 5] ^= 1
      found['params']['model']['layer_00']['w'] = jnp.asarray(w)
    return found

  monkeypatch.setattr(orbax_format.ocp.Checkpointer, 'restore', flip)
  warnings = []
  with manager.Checkpoints(tmp_path, warn=warnings.append) as checkpoints:
    assert checkpoints.restore(state_of(0))[2] == 1
  assert 'array params/model/layer_00/w' in warnings[0]


def test_directory_that_is_deleted_during_a_save_is_an_input_error(tmp_path, monkeypatch):
  sign = orbax_format.Writer._sign
  monkeypatch.setattr(orbax_format.Writer, '_sign', lambda self: (shutil.rmtree(tmp_path), sign(self)))
  with manager.Checkpoints(tmp_path) as checkpoints:
    with pytest.raises(InputError, match='cannot write checkpoint .*deleted while it was written'):
      checkpoints.save(1, state_of(1), {}, block=True)


def test_retention_waits_for_newer_checkpoint_if_some_are_damaged(tmp_path):
  with manager.Checkpoints(tmp_path, manager.Config(keep_last=4)) as checkpoints:
    for step in (1, 2, 3, 4):
      checkpoints.save(step, state_of(step), {})
  with manager.Checkpoints(tmp_path) as checkpoints:
    checkpoints.restore(state_of(0))
    checkpoints.prune()
    assert checkpoints.steps() == [3, 4]
  (tmp_path / 'step_000000004' / 'meta' / 'metadata').write_text('{}')
  with manager.Checkpoints(tmp_path, warn=lambda text: None) as checkpoints:
    checkpoints.restore(state_of(0))
    checkpoints.prune()
    assert checkpoints.steps() == [3, 4]


def test_deleted_directory_is_recreated_but_not_its_parent(tmp_path):
  with manager.Checkpoints(tmp_path / 'run' / 'checkpoints') as checkpoints:
    checkpoints.save(1, {'x': jnp.ones(3)}, {}, block=True)
    shutil.rmtree(tmp_path / 'run' / 'checkpoints')
    checkpoints.save(2, {'x': jnp.ones(3)}, {}, block=True)
    assert checkpoints.steps() == [2]
    shutil.rmtree(tmp_path / 'run')
    with pytest.raises(InputError, match='cannot write checkpoint .*No such file or directory'):
      checkpoints.save(3, {'x': jnp.ones(3)}, {}, block=True)
  assert not (tmp_path / 'run').exists()


def test_damaged_checkpoints_do_not_count_as_verified(tmp_path):
  save_steps(tmp_path, 1, 2)
  (tmp_path / 'step_000000002' / 'meta' / 'metadata').write_text('{}')
  with manager.Checkpoints(tmp_path, warn=lambda text: None) as checkpoints:
    checkpoints.restore(state_of(0))
    checkpoints.save(3, state_of(3), {}, block=True)
    assert checkpoints.steps() == [1, 3]


def test_no_usable_checkpoint_is_an_input_error(tmp_path):
  save_steps(tmp_path, 1, 2)
  for step in (1, 2):
    (tmp_path / f'step_00000000{step}' / 'state' / 'manifest.ocdbt').write_bytes(b'')
  warnings = []
  with manager.Checkpoints(tmp_path, warn=warnings.append) as checkpoints:
    with pytest.raises(InputError, match=r'(?s)every checkpoint is damaged.*step_000000002: .*step_000000001: '):
      checkpoints.restore(state_of(0))
  assert len(warnings) == 2
  with manager.Checkpoints(tmp_path / 'empty') as checkpoints:
    assert checkpoints.steps() == []
    with pytest.raises(InputError, match='no checkpoint'):
      checkpoints.restore(state_of(0))
  with pytest.raises(InputError, match='no checkpoint'):
    manager.read_meta(tmp_path / 'empty')


@pytest.mark.parametrize(
  'change, message',
  [
    (lambda s: s | {'half': jnp.zeros((3, 6), jnp.bfloat16)}, r'half has shape \[3, 5\].*\[3, 6\] in this run'),
    (lambda s: s | {'half': jnp.zeros((3, 5), jnp.float32)}, 'half has dtype bfloat16.*float32 in this run'),
    (lambda s: s | {'key': jax.random.key(0, impl='rbg')}, 'key has shape|key has key'),
    (lambda s: s | {'more': jnp.zeros(7)}, r'lacks more \(shape \[7\]\)'),
    (lambda s: {k: v for k, v in s.items() if k != 'flag'}, r'has flag \(shape \[\]\)'),
  ],
)
def test_mismatched_state_structure_is_an_input_error(tmp_path, change, message):
  save_steps(tmp_path, 1, 2)
  with manager.Checkpoints(tmp_path, warn=pytest.fail) as checkpoints:
    with pytest.raises(InputError, match=message):
      checkpoints.restore(change(state_of(0)))


def test_parameters_are_restored_without_the_optimizer(tmp_path):
  save_steps(tmp_path, 1, 2)
  wanted = state_of(2)['params']
  for abstract in (None, wanted, jax.eval_shape(lambda: wanted)):
    params, meta, step = manager.restore_params(tmp_path, abstract)
    assert (meta, step) == ({'step': 2}, 2)
    assert bits(params) == bits(wanted)
    assert jax.tree.structure(params) == jax.tree.structure(wanted)
  with pytest.raises(InputError, match='has no "ema"'):
    manager.restore_params(tmp_path, tree='ema')
  with pytest.raises(InputError, match='has params/model/layer_00/b'):
    manager.restore_params(tmp_path, {'model': {'layer_01': jnp.ones(3)}})
  (tmp_path / 'step_000000002' / 'state' / 'manifest.ocdbt').write_bytes(b'')
  warnings = []
  assert manager.restore_params(tmp_path, warn=warnings.append)[2] == 1
  assert len(warnings) == 2


def failing(error: Exception):
  def fail(*_):
    raise error

  return fail


@pytest.mark.parametrize('block', [True, False])
def test_full_disk_raises_and_keeps_last_good_checkpoint(tmp_path, monkeypatch, block):
  save_steps(tmp_path, 1)
  with manager.Checkpoints(tmp_path) as checkpoints:
    with monkeypatch.context() as patch:
      patch.setattr(orbax_format, '_file_sums', failing(OSError(errno.ENOSPC, 'No space left on device')))
      with pytest.raises(InputError, match=r'step_000000002: no space left.*MB.*last good checkpoint is step 1'):
        checkpoints.save(2, state_of(2), {}, block=block)
        checkpoints.save(3, state_of(3), {})  # an asynchronous error is noticed here
    assert [p.name for p in tmp_path.iterdir()] == ['step_000000001']
    checkpoints.save(4, state_of(4), {}, block=True)  # once there is space again
    assert checkpoints.steps() == [1, 4]


def test_full_file_system_raises(tmp_path):
  mount = tmp_path / 'small'
  mount.mkdir()
  command = ['mount', '-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', str(mount)]
  try:
    mounted = subprocess.run(command, capture_output=True).returncode == 0
  except OSError:
    mounted = False
  if not mounted:
    pytest.skip('mounting a small file system needs to be root')
  try:
    noise = lambda n: {'x': jax.random.normal(jax.random.key(0), (n, 1000))}
    with manager.Checkpoints(mount / 'c') as checkpoints:
      checkpoints.save(1, noise(50), {}, block=True)
      checkpoints.save(2, noise(1000), {})
      with pytest.raises(InputError, match='no space left on the disk'):
        checkpoints.wait()
      assert [p.name for p in (mount / 'c').iterdir()] == ['step_000000001']
      assert checkpoints.restore(noise(50))[2] == 1
  finally:
    subprocess.run(['umount', str(mount)], check=True)


def test_file_over_the_size_limit_is_reported_once(tmp_path, monkeypatch):
  printed = []
  monkeypatch.setattr(sys, 'unraisablehook', lambda error: printed.append(str(error.exc_value)))
  limit = resource.getrlimit(resource.RLIMIT_FSIZE)
  noise = np.random.default_rng(0).normal(size=(40, 64, 1024)).astype(np.float32)
  with manager.Checkpoints(tmp_path, manager.Config(asynchronous=False)) as checkpoints:
    checkpoints.save(1, state_of(1), {})
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, limit[1]))
    try:
      with pytest.raises(InputError, match=r'step_000000002: File too large; raise .* last good checkpoint is step 1'):
        checkpoints.save(2, {str(n): each for n, each in enumerate(noise)}, {})
    finally:
      resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    for error in (RuntimeError('Event loop is closed'), ValueError('another')):
      sys.unraisablehook(types.SimpleNamespace(exc_value=error))
    assert printed == ['another']
    checkpoints.save(2, state_of(2), {})
    assert checkpoints.restore(state_of(2))[2] == 2


def test_asynchronous_save_errors_are_raised(tmp_path, monkeypatch):
  monkeypatch.setattr(orbax_format, '_file_sums', failing(OSError(errno.EACCES, 'Permission denied')))
  for notice in ('wait', 'close'):
    checkpoints = manager.Checkpoints(tmp_path)
    checkpoints.save(1, {'x': jnp.ones(3)}, {})
    with pytest.raises(InputError, match='Permission denied.*there is no earlier one'):
      getattr(checkpoints, notice)()
  monkeypatch.setattr(orbax_format, '_file_sums', failing(KeyError('a fault of ours')))
  checkpoints = manager.Checkpoints(tmp_path)
  with pytest.raises(KeyError, match='a fault of ours'):
    checkpoints.save(1, {'x': jnp.ones(3)}, {}, block=True)


def test_uncreatable_directory_is_an_input_error(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(InputError, match='a part of it is a file'):
    manager.Checkpoints(tmp_path / 'file' / 'below')


def test_repeated_kills_during_save_keep_a_good_checkpoint(tmp_path):
  rng, partial, last, kills = random.Random(3), False, 0, 0
  being_written = lambda: any('tmp' in path.name for path in tmp_path.iterdir())
  while kills < 2 or not partial:
    kills += 1
    assert kills < 20, 'no kill has hit a write'
    process = child('save_until_killed', tmp_path)
    ready = process.stdout.readline().split()
    assert ready[:1] == ['ready'], process.communicate()[1][-2000:]
    assert int(ready[1]) >= last
    last = int(ready[1])
    time.sleep(rng.random() * 0.4)
    deadline = time.monotonic() + 60
    while not being_written() and time.monotonic() < deadline:
      pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    partial |= being_written()
  warnings = []
  with manager.Checkpoints(tmp_path, warn=warnings.append) as checkpoints:
    step = checkpoints.steps()[-1]
    assert manager.read_meta(tmp_path) == {'step': step} and step >= last
    checkpoints.save(step + 1, {'x': jnp.ones(2)}, {}, block=True)
  assert not warnings
  assert all(orbax_format._NAME.fullmatch(p.name) for p in tmp_path.iterdir())  # leftovers are swept away


def test_restores_on_another_device_count(tmp_path):
  array = jnp.arange(64 * 3, dtype=jnp.float32).reshape(64, 3)
  devices = jax.devices()
  placed = lambda n: NamedSharding(jax.make_mesh((n,), ('d',), devices=devices[:n]), PartitionSpec('d'))
  with manager.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(5, {'x': jax.device_put(array, placed(len(devices)))}, {}, block=True)
    sharded = jax.ShapeDtypeStruct((64, 3), jnp.float32, sharding=placed(2))
    found = checkpoints.restore({'x': sharded})[0]['x']
  assert found.sharding.device_set == set(devices[:2])
  assert np.array_equal(found, array)


@pytest.mark.slow
def test_restores_in_another_process_with_other_device_count(tmp_path):
  with manager.Checkpoints(tmp_path) as checkpoints:
    checkpoints.save(5, {'x': jnp.arange(64 * 3, dtype=jnp.float32).reshape(64, 3)}, {}, block=True)
  assert finish(child('restore_here', tmp_path, devices=4)) == 'restored 5 4\n'


def test_two_processes_save_and_restore_together(tmp_path):
  with socket.socket() as s:
    s.bind(('localhost', 0))
    port = s.getsockname()[1]
  both = [child('two_processes', tmp_path, port, index, devices=2) for index in (0, 1)]
  assert [finish(process).splitlines()[-1] for process in both] == ['restored 2', 'restored 2']


def test_checkpoints_are_due_by_steps_or_minutes(monkeypatch, tmp_path):
  now = [100.0]
  monkeypatch.setattr(manager.time, 'monotonic', lambda: now[0])
  checkpoints = manager.Checkpoints(tmp_path, manager.Config(every_steps=10, every_seconds=60))
  assert [s for s in range(1, 31) if checkpoints.is_planned(s)] == [10, 20, 30]
  assert not checkpoints.is_late(33)
  now[0] += 61
  assert checkpoints.is_late(33) and not checkpoints.is_planned(33)
  checkpoints.save(33, {'x': jnp.ones(1)}, {})
  assert not checkpoints.is_late(34)
  checkpoints.close()
  now[0] += 61
  assert not manager.Checkpoints(tmp_path, manager.Config(every_steps=10)).is_late(33)


@pytest.mark.parametrize(
  'fields', [{'keep_last': 1}, {'every_steps': 0}, {'every_seconds': -1}, {'timeout_seconds': 0}]
)
def test_invalid_config_is_rejected(fields):
  with pytest.raises(InputError, match='checkpoint'):
    manager.Config(**fields)


def test_partial_files_with_glob_characters_are_removed(tmp_path):
  for name in ('**', '[a]', 'other'):
    (tmp_path / f'{name}.orbax-checkpoint-tmp-1').mkdir()
  for name in ('**', '[a]', 'absent'):
    orbax_format.remove_partial(epath.Path(tmp_path / name))
  assert [path.name for path in tmp_path.iterdir()] == ['other.orbax-checkpoint-tmp-1']


def test_file_size_limit_is_reported():
  error = ValueError('OUT_OF_RANGE: Error writing "x" in OCDBT database: Failed writing: File too large')
  assert orbax_format.file_system_error(error) == 'File too large; raise the limit of file sizes (ulimit -f)'
