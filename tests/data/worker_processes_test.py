"""Worker processes build the batches of one process; they share mapped files, and end with their parent."""

import os
import signal
import time
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest

from lmx import host
from lmx.data import cache, pipeline, token_file, worker_processes
from lmx.errors import InputError
from tests.data import pipeline_test

pytestmark = pytest.mark.usefixtures('little_prose')


def copied(batches, rows=slice(None)):
  return ForkingPickler.loads(ForkingPickler.dumps(worker_processes.Builder(batches, rows)))


@pytest.mark.parametrize('kind', pipeline_test.KINDS)
def test_every_batching_can_be_sent_to_a_process(kind):
  batches = pipeline_test.make(kind)
  there = copied(batches, slice(0, 3))
  for step in (0, 4):
    found = there(step)
    assert found[0] == step
    pipeline_test.equal(found[1], batches(step, slice(0, 3)))


def test_mapped_arrays_are_sent_by_name(tmp_path):
  x = np.arange(40_000, dtype=np.uint16)
  (tmp_path / 'x.tokens').write_bytes(x.tobytes())
  np.save(tmp_path / 'x.npy', x.astype(np.int64))
  entry = {'bytes': x.nbytes, 'sha256': cache.sha256(str(tmp_path / 'x.tokens'))}
  tokens = token_file.TokenFile(str(tmp_path / 'x.tokens'), x.dtype, entry, None, 40_000)
  offsets = np.load(tmp_path / 'x.npy', mmap_mode='r')
  held = [tokens, offsets, offsets[1_000:]]
  sent = ForkingPickler.dumps(worker_processes.Builder(held, slice(None)))
  assert len(sent) < 2_000
  there = ForkingPickler.loads(sent)._batches
  for array, own in zip(there, held, strict=True):
    np.testing.assert_array_equal(array[5:900], own[5:900])
  assert isinstance(there[1], np.memmap)
  sent = ForkingPickler.dumps(worker_processes.Builder(offsets[::2], slice(None)))  # no range of the file
  np.testing.assert_array_equal(ForkingPickler.loads(sent)._batches, offsets[::2])


class Fails:
  """Batches, of which step 3 fails as `how` says."""

  def __init__(self, how):
    self.how = how

  def __call__(self, step, rows):
    if step == 3 and self.how == 'error':
      raise InputError('token id 9 in step 3')
    if step == 3 and self.how == 'exit':
      os._exit(3)
    if step == 3:
      os.kill(os.getpid(), signal.SIGKILL)
    return {'process_B': np.full(4, os.getpid())[rows]}


def test_more_processes_than_the_cores_can_run_are_refused(monkeypatch):
  monkeypatch.setattr(host, 'cores', lambda: 2)
  batches = pipeline_test.make('windows')
  with pytest.raises(InputError, match='data.processes: got 9; expected at most 8, 4 for each core'):
    pipeline.prefetch(batches, 2, 9, slice(1, 5), buffer=4, workers=1, processes=9)


def test_processes_build_the_batches_in_order():
  batches = pipeline_test.make('windows')
  with pipeline.prefetch(batches, 2, 9, slice(1, 5), buffer=4, workers=1, processes=2) as stream:
    found = [(step, dict(batch)) for step, batch in stream]
  assert [step for step, _ in found] == list(range(2, 9))
  for step, batch in found:
    pipeline_test.equal(batch, batches(step, slice(1, 5)))


@pytest.mark.parametrize(('code', 'killed'), [('-9', True), ('-7', True), ('1', False)])
def test_exit_code_of_a_worker_decides_about_a_restart(code, killed, monkeypatch):
  def make(*_):
    raise RuntimeError(f'Worker process was terminated unexpectedly with exit code {code}. Search the logs above.')

  monkeypatch.setattr(pipeline.Prefetch, '_make', make)
  with pytest.raises(InputError, match=rf'ended .* {code[-1]}; if memory is full') as error:
    next(pipeline.prefetch(Fails('error'), 0, 1))
  assert isinstance(error.value, pipeline.WorkerKilled) == killed


FAILURES = [
  ('error', 'token id 9 in step 3'),
  ('exit', 'data.processes: .* ended with exit code 3'),
  ('kill', 'data.processes: .* ended by signal 9'),
]


@pytest.mark.slow
@pytest.mark.parametrize(('how', 'message'), FAILURES)
def test_failed_process_is_reported(how, message):
  stream, found = pipeline.prefetch(Fails(how), 0, 10, buffer=1, processes=2), []
  with pytest.raises(InputError, match=message) as error:
    for _, batch in stream:
      found.append(int(batch['process_B'][0]))
  assert isinstance(error.value, pipeline.WorkerKilled) == (how == 'kill')
  assert how != 'error' or (len(found) == 3 and found[0] == found[2] != found[1])
  assert list(stream) == [] and os.getpid() not in found
  deadline = time.monotonic() + 20
  while any(map(host.is_alive, found)) and time.monotonic() < deadline:
    time.sleep(0.1)
  assert found and not any(map(host.is_alive, found))
