"""Arrays in host memory, written a few chunks at a time."""

from __future__ import annotations

import asyncio

import jax
import numpy as np

from lmx.checkpoint import manager, orbax_format

ARRAYS = {
  'rows': np.arange(3000, dtype=np.float32).reshape(300, 10),
  'columns': np.arange(2400, dtype=np.float32).reshape(3, 8, 100).swapaxes(0, 2),  # strided
  'half': np.arange(500, dtype=np.float16),
  'scalar': np.asarray(2.5, np.float32),
}


def test_chunks_are_written_in_turn_and_read_bit_for_bit(tmp_path, monkeypatch):
  turns, taken = [], []

  class Semaphore(asyncio.Semaphore):
    async def acquire(self):
      await super().acquire()
      turns.append(self._value)
      taken.append(1)
      return True

  for name, value in (('_CHUNK', 256), ('_CHUNKS', 10**6), ('_SMALL', 500)):
    monkeypatch.setattr(orbax_format, name, value)
  monkeypatch.setattr(orbax_format.asyncio, 'Semaphore', Semaphore)
  with manager.Checkpoints(tmp_path / 'checkpoints', manager.Config(asynchronous=False)) as checkpoints:
    checkpoints.save(0, {'params': ARRAYS}, {})
  assert len(taken) > sum(x.nbytes for x in ARRAYS.values() if x.nbytes > 500) // 256 and min(turns) >= 0
  params, _, _ = manager.restore_params(tmp_path / 'checkpoints')
  jax.tree.map(np.testing.assert_array_equal, params, ARRAYS)
  assert {name: x.dtype for name, x in params.items()} == {name: x.dtype for name, x in ARRAYS.items()}
