"""Shared by all tests: eight simulated devices, a cache of their own, and where real data sets are looked for."""

from __future__ import annotations

import gc
import os
import pathlib
import shutil
import signal
import stat
import sys
import tempfile
import threading

import pytest

# Before jax is imported. Without NPROC, collectives of simulated devices starve each other on a machine with few
# cores and XLA aborts after 40 s.
os.environ.setdefault('NPROC', '16')
os.environ.setdefault('JAX_PLATFORMS', 'cpu')
# lmx leaves memory as it is where one of these is set: many programs one after the other would hold on to too much.
# Giving every little back at once costs a fiftieth of the time of the tests.
for name, mebibytes in (('MALLOC_TRIM_THRESHOLD_', 64), ('MALLOC_MMAP_THRESHOLD_', 4), ('MALLOC_TOP_PAD_', 16)):
  os.environ.setdefault(name, str(mebibytes << 20))
if '--xla_force_host_platform_device_count' not in os.environ.get('XLA_FLAGS', ''):
  # Most of a test's time is compiling, so XLA is told not to optimise, to write its loops by the older of its two
  # emitters, which takes less than half as long, and not to divide small programs for several threads.
  flags = ' --xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0'
  flags += ' --xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters --xla_cpu_parallel_codegen_split_count=1'
  os.environ['XLA_FLAGS'] = os.environ.get('XLA_FLAGS', '') + flags

# Under nohup, and in the background of a script, these are ignored, also by the commands that tests start.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tracing makes many objects of short life, few of them in cycles: collecting every 700 takes a sixth of its time.
gc.set_threshold(100_000, 50, 50)

# Tokenised data and compiled programs, many of them alike, go to a directory that ends with the tests. Workers of
# pytest-xdist and commands started by tests inherit it from their parent.
_MADE = ''
if 'LMX_CACHE' not in os.environ:
  _MADE = os.environ['LMX_CACHE'] = tempfile.mkdtemp(prefix='lmx-tests-')
  os.environ.setdefault('JAX_COMPILATION_CACHE_DIR', os.path.join(_MADE, 'compiled'))
  os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0.1')

MOST_MAPS = 20_000
ROOT = pathlib.Path(__file__).resolve().parents[1]


def pytest_collection_finish(session):
  """Spares the garbage collector what imports and tests themselves are made of."""
  gc.freeze()


def pytest_unconfigure(config):
  """Removes the cache, in the process that made it."""
  if _MADE:
    shutil.rmtree(_MADE, ignore_errors=True)


@pytest.fixture(scope='module', autouse=True)
def few_programs():
  """Forgets compiled programs after a file of tests, once there are many.

  Each holds several memory mappings, of which Linux allows a process 65,530; where it gets no more, XLA ends with a
  segmentation fault.
  """
  yield
  maps = pathlib.Path('/proc/self/maps')
  if 'jax' in sys.modules and maps.exists() and maps.read_bytes().count(b'\n') > MOST_MAPS:
    sys.modules['jax'].clear_caches()


@pytest.fixture(scope='module', autouse=True)
def no_loss_curves(request):
  """Leaves loss.png empty, which takes a third of a tiny training to draw, except in files that set `DRAWS`."""
  from lmx.reporting import loss_curve

  with pytest.MonkeyPatch.context() as patch:
    if not getattr(request.module, 'DRAWS', False):
      patch.setattr(loss_curve, 'draw', lambda records, path, *more: path.write_bytes(b''))
    yield


@pytest.fixture(scope='session')
def root() -> pathlib.Path:
  """The repository."""
  return ROOT


@pytest.fixture(scope='session')
def data_dir() -> pathlib.Path:
  """A directory of real data sets (lm/ptb, lm/wikitext2, ...); the test is skipped without one."""
  found = pathlib.Path(os.environ.get('LMX_DATA', ROOT.parent / 'shared' / 'data'))
  if not found.is_dir():
    pytest.skip(f'no real data in {found}; set LMX_DATA to a directory that holds it')
  return found


@pytest.fixture
def bucket(monkeypatch):
  """A bucket in memory, whose objects can be neither appended to nor moved."""
  import fsspec
  from etils import epath
  from fsspec.implementations.memory import MemoryFileSystem

  class Bucket(MemoryFileSystem):
    protocol = ('gcs', 'gs')
    store: dict = {}
    pseudo_dirs = ['']

    def open(self, path, mode='rb', **more):
      assert 'a' not in mode and '+' not in mode, 'an object cannot be appended to'
      return super().open(path, mode, **more)

  fsspec.register_implementation('gcs', Bucket, clobber=True)
  backend = epath.Path('gs://b/run')._backend
  backend._get_filesystem.cache_clear()
  yield epath.Path('gs://b/run')
  backend._get_filesystem.cache_clear()


@pytest.fixture
def metadata_server():
  """Stand-in for Compute Engine's metadata server; `preempt` answers the request that waits for a change."""
  from http import server

  class Handler(server.BaseHTTPRequestHandler):
    def do_GET(self):
      path, _, query = self.path.partition('?')
      if self.server.broken.is_set():
        return self.send_error(503)
      if (path, self.headers['Metadata-Flavor']) != ('/computeMetadata/v1/instance/preempted', 'Google'):
        return self.send_error(403)
      self.server.requests += 1
      if 'wait_for_change=true' in query and not self.server.hasty.is_set():
        self.server.preempted.wait(60)
      is_preempted = self.server.preempted.is_set()
      body = b'TRUE' if is_preempted else b'FALSE'
      self.send_response(200)
      self.send_header('ETag', str(int(is_preempted)))
      self.end_headers()
      self.wfile.write(body)

    def log_message(self, *_):
      pass

  with server.ThreadingHTTPServer(('localhost', 0), Handler) as serving:
    serving.daemon_threads = True
    serving.preempted, serving.broken = threading.Event(), threading.Event()
    serving.hasty, serving.requests = threading.Event(), 0
    serving.preempt, serving.address = serving.preempted.set, f'localhost:{serving.server_port}'
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    yield serving
    serving.preempted.set()
    serving.shutdown()


@pytest.fixture
def peer(tmp_path):
  """Interpreter that answers each step of `lmx bench --peer` with a second."""
  answers = tmp_path / 'answers.py'
  answers.write_text(
    'import json, sys\n'
    'for line in sys.stdin:\n'
    '  ask = json.loads(line)\n'
    '  if ask.get("V") == 13: reply = {"error": "unlucky"}\n'
    '  elif "kind" in ask: reply = {"parameters": 5, "torch": "2.0", "threads": ask["threads"], "tokens": 8}\n'
    '  else: reply = {"seconds": [1.0] * ask["steps"], "loss": 0.0}\n'
    '  print(json.dumps(reply), flush=True)\n'
  )
  program = tmp_path / 'python'
  program.write_text(f'#!/bin/sh\nexec {sys.executable} {answers}\n')
  program.chmod(program.stat().st_mode | stat.S_IXUSR)
  return os.fspath(program)
