"""Hosts, chips and devices of each accelerator."""

from __future__ import annotations

import pytest

from launch import accelerators


@pytest.mark.parametrize(
  'name, pool, hosts, chips, devices, topology',
  [
    ('v2-8', False, 1, 4, 8, ''),  # cloud.google.com/tpu/docs/v2
    ('v3-32', False, 4, 4, 8, ''),
    ('v4-8', False, 1, 4, 4, '2x2x1'),
    ('v4-32', True, 4, 4, 4, '2x2x4'),
    ('v5litepod-8', False, 1, 8, 8, '2x4'),  # one host of eight chips
    ('v5litepod-8', True, 2, 4, 4, '2x4'),  # two machines ct5lp-hightpu-4t
    ('v5litepod-256', False, 64, 4, 4, '16x16'),
    ('v5p-8', True, 1, 4, 4, '2x2x1'),
    ('v6e-1', True, 1, 1, 1, '1x1'),
    ('v6e-16', True, 4, 4, 4, '4x4'),
    ('tpu7x-128', True, 16, 4, 8, '4x4x4'),
  ],
)
def test_accelerators(name, pool, hosts, chips, devices, topology):
  found = accelerators.find(name, pool=pool)
  assert (found.hosts, found.chips, found.devices, found.topology) == (hosts, chips, devices, topology)


def test_accelerator_specifications_are_consistent():
  for name in accelerators.names():
    kind, _, count = name.rpartition('-')
    if kind in accelerators.GENERATIONS:
      generation = accelerators.GENERATIONS[kind]
      chips = int(count) // generation.per_chip
      sizes = [int(n) for n in generation.topologies[chips].split('x') if n]
      assert not sizes or chips == sizes[0] * sizes[1] * (sizes[2] if len(sizes) == 3 else 1), name
      for pool in [False] * bool(generation.runtime) + [True] * bool(generation.gke):
        found = accelerators.find(name, pool=pool)
        assert found.hosts * found.chips == chips, name
