"""Attention by length: plans, exponents and strides."""

from __future__ import annotations

import pytest

from lmx.benchmark import attention


def test_benchmark_beyond_memory_is_planned_but_not_run(monkeypatch):
  monkeypatch.setattr(attention, 'MOST', 10)
  found = attention.measure_one('dense', 64, 1)
  assert found['seconds'] is None and found['planned_bytes'] > 64 * 64


def test_exponents_and_strides():
  assert attention.exponent([2, 4, 8], [3 * t**1.5 for t in (2, 4, 8)]) == pytest.approx(1.5)
  assert attention.exponent([2, 4, 8], [None, None, 1.0]) is None
  assert [attention.nearest_stride(t) for t in (1024, 2048, 4096, 8192, 16384)] == [32, 64, 64, 128, 128]
