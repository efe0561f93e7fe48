"""Hosts, chips and devices of each accelerator."""

from __future__ import annotations

import pytest

from launch import accelerators


@pytest.mark.parametrize(
  'name, where, hosts, chips, devices, topology',
  [
    ('v2-8', 'tpu_vm', 1, 4, 8, ''),  # cloud.google.com/tpu/docs/v2
    ('v3-32', 'tpu_vm', 4, 4, 8, ''),
    ('v4-8', 'tpu_vm', 1, 4, 4, '2x2x1'),
    ('v4-32', 'gke', 4, 4, 4, '2x2x4'),
    ('v5litepod-8', 'tpu_vm', 1, 8, 8, '2x4'),  # one host of eight chips
    ('v5litepod-8', 'gke', 2, 4, 4, '2x4'),  # two machines ct5lp-hightpu-4t
    ('v5litepod-256', 'tpu_vm', 64, 4, 4, '16x16'),
    ('v5p-8', 'gke', 1, 4, 4, '2x2x1'),
    ('v6e-1', 'gke', 1, 1, 1, '1x1'),
    ('v6e-16', 'gke', 4, 4, 4, '4x4'),
    ('tpu7x-128', 'gke', 16, 4, 8, '4x4x4'),
    ('tpu7x-16', 'gce', 2, 4, 8, '2x2x2'),
    ('v6e-8', 'gce', 1, 8, 8, '2x4'),
  ],
)
def test_accelerators(name, where, hosts, chips, devices, topology):
  found = accelerators.find(name, where)
  assert (found.hosts, found.chips, found.devices, found.topology) == (hosts, chips, devices, topology)


def test_accelerator_specifications_are_consistent():
  for name in accelerators.names():
    kind, _, count = name.rpartition('-')
    if kind in accelerators.GENERATIONS:
      generation = accelerators.GENERATIONS[kind]
      chips = int(count) // generation.per_chip
      sizes = [int(n) for n in generation.topologies[chips].split('x') if n]
      assert not sizes or chips == sizes[0] * sizes[1] * (sizes[2] if len(sizes) == 3 else 1), name
      for where, (_, field) in accelerators.WHERE.items():
        if not getattr(generation, field):
          continue
        found = accelerators.find(name, where)
        assert found.hosts * found.chips == chips, name


def test_machine_types_of_compute_engine():
  expected = {
    'v5p-8': 'ct5p-hightpu-4t',
    'v6e-1': 'ct6e-standard-1t',
    'v6e-8': 'ct6e-standard-8t',
    'v6e-16': 'ct6e-standard-4t',
    'tpu7x-16': 'tpu7x-standard-4t',
  }
  assert {name: accelerators.find(name, 'gce').machine_type for name in expected} == expected
