"""Compiled programs that the next process reads: for this processor only, equal to the bit, never a reason to fail."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from lmx.cli import main
from lmx.compilation import cache
from lmx.errors import InputWarning

# Compiles a program with a donated argument, reads it from the cache, and compiles it again where the entry is damaged.
PROGRAM = """
import glob, os, warnings
import jax, numpy as np
from lmx.compilation import cache
directory = cache.enable()
events = []
jax.monitoring.register_event_listener(lambda name, **more: events.append(name.split('/')[-1]))
def outcome():
  jax.clear_caches()
  function = lambda x, key: jax.numpy.cumsum(jax.numpy.tanh(x @ x), 1) * jax.random.normal(key, x.shape)
  step = jax.jit(function, donate_argnums=0)
  x = jax.device_put(np.linspace(0, 1, 64 * 64, dtype=np.float32).reshape(64, 64))
  x = x + 0
  address = x.unsafe_buffer_pointer()
  y = step(x, jax.random.key(0))
  return np.asarray(y).tobytes(), x.is_deleted(), y.unsafe_buffer_pointer() == address
jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
fresh = outcome()
hits = events.count('cache_hits')
read = outcome()
print(read == fresh, fresh[1:] == (True, True), hits, events.count('cache_hits') > 1)
for path in glob.glob(os.path.join(directory, '*-cache')):
  with open(path, 'r+b') as file:
    file.truncate(os.path.getsize(path) // 2)
with warnings.catch_warnings():
  warnings.simplefilter('ignore')
  print(outcome() == fresh)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
  """A cache of its own; returns the path of its folder of programs."""
  monkeypatch.setenv('LMX_CACHE', str(tmp_path))
  monkeypatch.delenv(cache.VARIABLE, raising=False)
  return tmp_path / 'compiled'


def test_cached_program_equals_compiled_one(root, tmp_path):
  environment = {name: x for name, x in os.environ.items() if not name.startswith(('JAX_', 'XLA_'))}
  environment |= {'PYTHONPATH': str(root), 'LMX_CACHE': str(tmp_path), 'JAX_PLATFORMS': 'cpu'}
  done = subprocess.run([sys.executable, '-c', PROGRAM], env=environment, capture_output=True, text=True, check=True)
  assert done.stdout.split() == ['True', 'True', '0', 'True', 'True']
  assert not done.stderr


def test_cache_folder_depends_on_the_processor(place, tmp_path, monkeypatch):
  folders, read = [cache.prepare()], cache.processor
  assert 'flags' in read() or 'CPU part' in read() or not os.path.exists('/proc/cpuinfo')
  listed = tmp_path / 'cpuinfo'
  for flags in ('fpu avx2', 'fpu avx2 avx512f'):
    one = f'cpu MHz\t\t: 20{len(flags)}.1\nflags\t\t: {flags}\n\n'
    listed.write_text(f'processor\t: 0\n{one}processor\t: 1\n{one}')
    assert read(str(listed)) == f'flags: {flags}'
    monkeypatch.setattr(cache, 'processor', lambda: read(str(listed)))
    folders.append(cache.prepare())
  monkeypatch.setattr(cache.host, 'cores', lambda: 12345)  # XLA divides a program among the cores
  folders.append(cache.prepare())
  monkeypatch.setenv('NPROC', '54321')
  folders.append(cache.prepare())
  assert len(set(folders)) == 5 and all(os.path.dirname(folder) == str(place) for folder in folders)
  assert cache.prepare() == folders[-1]


def test_unusable_cache_folder_is_not_an_error(place, tmp_path, monkeypatch):
  directory = cache.prepare()
  assert os.stat(directory).st_mode & 0o777 == 0o700
  os.chmod(directory, 0o770)  # others could put programs there, which would be run
  assert cache.prepare() == ''
  (tmp_path / 'file').touch()
  monkeypatch.setenv(cache.VARIABLE, str(tmp_path / 'file'))
  assert cache.prepare() == ''
  monkeypatch.setenv(cache.VARIABLE, 's3://bucket/programs')
  with pytest.warns(InputWarning, match='LMX_COMPILATION_CACHE: got s3://bucket/programs'):
    assert cache.prepare() == ''
  monkeypatch.setenv(cache.VARIABLE, 'off')
  assert cache.prepare() == ''
  monkeypatch.setenv(cache.VARIABLE, str(tmp_path / 'other'))
  assert os.path.dirname(cache.prepare()) == str(tmp_path / 'other')


def test_programs_are_kept_in_a_bucket(bucket, monkeypatch):
  names = ('compilation_cache_dir', 'compilation_cache_max_size', 'enable_compilation_cache')
  names += ('persistent_cache_min_compile_time_secs', 'persistent_cache_enable_xla_caches')
  for name in names:
    monkeypatch.delenv(f'JAX_{name}'.upper(), raising=False)
  monkeypatch.setenv(cache.VARIABLE, f'{bucket}/programs/')
  before = {name: getattr(jax.config, f'jax_{name}') for name in names}
  hits = []
  listen = lambda name, **more: hits.append(name) if name.endswith('cache_hits') else None
  jax.monitoring.register_event_listener(listen)
  try:
    directory = cache.enable()
    assert directory == f'{bucket}/programs/{cache.fingerprint()}'
    assert jax.config.jax_compilation_cache_max_size == -1  # a bound needs locks, which a bucket has not
    jax.config.update('jax_enable_compilation_cache', True)
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
    compilation_cache.reset_cache()
    for count in (0, 1):
      assert jax.jit(lambda x: x * 3 + 1)(np.float32(2)) == 7
      assert len(hits) == count
    assert any(path.name.endswith('-cache') for path in type(bucket)(directory).iterdir())
  finally:
    jax.monitoring.unregister_event_listener(listen)
    for name, value in before.items():
      jax.config.update(f'jax_{name}', value)
    compilation_cache.reset_cache()
  monkeypatch.setattr(type(bucket), 'mkdir', lambda self, **more: (_ for _ in ()).throw(ValueError('no credentials')))
  with pytest.warns(InputWarning, match='gs://b/run/programs/ cannot be written .no credentials'):
    assert cache.prepare() == ''


def test_other_users_cache_folder_is_not_used(place, monkeypatch):
  cache.prepare()
  user = os.getuid()
  monkeypatch.setattr(cache, '_user', lambda: str(user))  # the same name, as if another user had made it
  monkeypatch.setattr(cache.os, 'getuid', lambda: user + 1)
  assert cache.prepare() == ''


def test_incomplete_programs_and_unused_folders_are_removed(place):
  directory = cache.prepare()
  for name in ('jit_a-1-cache', 'jit_a-1-atime', 'jit_b-2-cache', 'jit_c-3-atime'):
    open(os.path.join(directory, name), 'w').close()
  ages = {'old': 40, 'new': 20}
  for name, days in ages.items():
    folder = place / f'{cache._user()}-{name}'
    folder.mkdir()
    (folder / 'used').touch()
    os.utime(folder / 'used', (time.time() - days * 86400,) * 2)
  (place / 'mine').mkdir()
  assert cache.prepare() == directory
  assert {name for name in os.listdir(directory) if name.startswith('jit')} == {'jit_a-1-cache', 'jit_a-1-atime'}
  assert set(os.listdir(place)) == {os.path.basename(directory), f'{cache._user()}-new', 'mine'}


def test_cache_set_by_environment_is_kept(place, monkeypatch):
  monkeypatch.setenv('JAX_COMPILATION_CACHE_DIR', 'elsewhere')
  assert cache.enable() == '' and not place.exists()


@pytest.mark.parametrize(['command', 'times'], [('evaluate', 1), ('list', 0)])
def test_command_caches_only_its_own_programs(command, times, monkeypatch, tmp_path, capsys):
  calls = []
  monkeypatch.setattr(cache, 'enable', lambda: calls.append(1))
  monkeypatch.setattr(main.host, 'keep_heap', lambda: True)
  words = [command, *([f'--workdir={tmp_path}'] if command == 'evaluate' else [])]
  monkeypatch.setattr(sys, 'argv', ['lmx', *words])
  main.main(words)
  assert not calls
  main.main()
  assert len(calls) == times
  capsys.readouterr()
