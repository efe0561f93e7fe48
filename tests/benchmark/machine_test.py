"""The limits of the machine: units, counted work, and turns with the peer."""

from __future__ import annotations

import pytest

from lmx.benchmark import machine, table


@pytest.mark.parametrize(
  ('name', 'size', 'unit', 'work'), [('product', 64, 'GFLOP/s', 2 * 64**3), ('copy', 1000, 'GB/s', 8000)]
)
def test_counts_operations_and_bytes(monkeypatch, name, size, unit, work):
  monkeypatch.setitem(machine.PRESETS, name, size)
  assert machine.work(name) == pytest.approx(work / 1e9)
  monkeypatch.setattr(machine, '_xla', lambda name: lambda: 2e-3)
  (found,) = table.measure(name, table.Options(rounds=2))
  assert found['unit'] == unit and found['ratio'] is None
  assert found['ours']['median'] == pytest.approx(work / 1e9 / 2e-3)


def test_measured_operations_match_counts(monkeypatch):
  monkeypatch.setitem(machine.PRESETS, 'product', 32)
  assert machine._xla('product')() > 0


@pytest.mark.peer
@pytest.mark.parametrize('name', list(machine.PRESETS))
def test_peer_does_the_same_work(monkeypatch, peer, name):
  monkeypatch.setitem(machine.PRESETS, name, 64)
  (found,) = table.measure(name, table.Options(rounds=1, peers=peer))
  assert found['theirs']['median'] > 0 and found['missing'] == ''
