"""Mapped tensors, used block by block."""

from __future__ import annotations

import numpy as np
import pytest

from lmx.interop import mapped


@pytest.fixture
def small_blocks(monkeypatch):
  monkeypatch.setattr(mapped, '_BLOCK', 64)


@pytest.mark.usefixtures('small_blocks')
@pytest.mark.parametrize('shape', [(), (5,), (0, 3), (7, 3), (100, 2, 3), (1, 300)])
def test_blocks_are_the_whole_array(shape, tmp_path):
  x = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
  (tmp_path / 'x').write_bytes(b'head' + x.tobytes())
  stored = mapped.view(tmp_path / 'x', 4, shape, x.dtype)
  np.testing.assert_array_equal(np.concatenate([block.reshape(-1) for block in mapped.blocks(stored)]), x.reshape(-1))
  copied = mapped.copy(stored)
  np.testing.assert_array_equal(copied, x)
  assert not np.may_share_memory(copied, stored) and copied.flags.writeable


@pytest.mark.usefixtures('small_blocks')
def test_equality_is_that_of_all_blocks():
  x = np.arange(100, dtype=np.float32).reshape(50, 2)
  x[3, 1] = np.nan
  assert mapped.are_equal(x, x.copy()) and mapped.are_equal(x, x.astype(np.float64))
  assert not mapped.are_equal(x, x.reshape(2, 50))
  for place in ((0, 0), (3, 1), (49, 1)):
    other = x.copy()
    other[place] = -1
    assert not mapped.are_equal(x, other)
  assert mapped.are_equal(np.array(['a', 'b']), np.array(['a', 'b']))
