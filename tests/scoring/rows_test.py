"""Batches of rows: every row once, one shape for a length, and no padding where rows are many."""

from __future__ import annotations

import numpy as np
import pytest

from lmx.scoring import rows


@pytest.mark.parametrize('most', [None, 50])
def test_batches_have_every_row_once_and_one_shape_for_a_length(most, monkeypatch):
  monkeypatch.setattr(rows, '_CPU_TOKENS', 64)
  lengths = np.random.default_rng(0).integers(0, 50, 300)
  found, shapes = [], {}
  for indices, size, length in rows.batches(lengths, most=most):
    assert len(indices) <= size and size & (size - 1) == 0 and size * length <= max(64, length)
    assert (lengths[indices] <= length).all() and (length <= (most or 56))
    assert shapes.setdefault(length, size) == size
    found += indices.tolist()
  assert sorted(found) == list(range(300)) and len(shapes) < 14
  assert not list(rows.batches([]))


def test_many_rows_are_not_padded(monkeypatch):
  monkeypatch.setattr(rows, '_MANY', 500)
  lengths = [5] * 40 + [6] * 50 + [9] * 10
  assert {(length, len(indices)) for indices, _, length in rows.batches(lengths)} == {(5, 40), (6, 50), (12, 10)}


def test_logits_limit_the_rows():
  ((_, size, _),) = rows.batches([64], classes=1 << 24)
  assert size == 1
