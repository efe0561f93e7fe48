"""Names of slices; libtpu compiles for them where it is installed."""

from __future__ import annotations

import builtins

import pytest

from lmx.compilation import cards, slices, topology
from lmx.engine import peaks
from lmx.errors import InputError


@pytest.mark.parametrize(
  'text, generation, layout',
  [
    ('v5e-1', 'v5e', (1, 1)),
    ('v5e-256', 'v5e', (16, 16)),
    ('v6e-16', 'v6e', (4, 4)),
    ('v5p-64', 'v5p', (4, 4, 4)),
    ('v5p:2x2x4', 'v5p', (2, 2, 4)),
    ('v4:2x2x1', 'v4', (2, 2, 1)),
    ('v5p:4x8x12', 'v5p', (4, 8, 12)),
    ('tpu7x-4', 'tpu7x', (2, 2, 1)),
  ],
)
def test_one_and_two_slices_are_parsed(text, generation, layout):
  parsed = slices.parse(text)
  assert (parsed.generation, parsed.layout) == (generation, layout)
  assert slices.parse(f'{generation}:{"x".join(map(str, layout))}') == parsed
  two = slices.parse(f'2x{text}')
  assert (two.generation, two.layout, two.slices, two.chips) == (generation, layout, 2, 2 * parsed.chips)
  assert str(two) == f'2 x {parsed}'


@pytest.mark.parametrize(
  'text, expected',
  [
    ('c9-8', 'one of v4, v5e, v5p, v6e, tpu7x and its.* h100, h200, b200, a100 and their number, such as h100x8$'),
    ('v7x-8', 'did you mean "tpu7x"'),
    ('v5lite-16', 'did you mean "v5litepod"'),
    ('h300x8', 'did you mean "h[12]00"'),
    ('v5e', 'one of 1, 4, 8, 16, 32, 64, 128, 256 chips'),
    ('v5e-48', 'one of 1, 4, 8'),
    ('v5e:4x4x4', '2 sizes, such as v5e:4x4'),
    ('v5p:4x4', '3 sizes, such as v5p:2x2x4'),
    ('v5e:4x0', 'one of 1x1, 2x2'),
    ('v5e:32x32', '1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16$'),
    ('v5e:4x2', '1x1, 2x2, 2x4'),
    ('v5p:8x4x4', 'multiples of 4 in ascending order, to 16x20x28'),
    ('v5p:4x4x6', 'multiples of 4'),
    ('v4:4x16x20', 'multiples of 4 in ascending order, to 16x16x16'),
    ('0xv5e-16', '1 to 256 slices, such as 2xv5e-16'),
    ('1000xv5e-16', '1 to 256 slices'),
    ('2xh100x8', 'one server of NVIDIA cards, such as h100x8'),
    ('v5e-two', 'one of 1, 4'),
    ('v5litepod-48', 'one of 1, 4, 8'),
    ('v5e-١٦', 'one of 1, 4, 8'),
  ],
)
def test_another_slice_is_rejected(text, expected):
  with pytest.raises(InputError, match=expected):
    slices.parse(text)


def test_names_of_google_are_read():
  assert slices.parse('v5litepod-16') == slices.parse('v5e-16')
  assert slices.parse('2xv5litepod:4x4') == slices.parse('2xv5e-16')


def test_google_counts_cores():
  pod = slices.parse('2xtpu7x-64')
  assert (pod.devices, pod.google) == (2 * 64 * 2, 'tpu7x-128') and len(pod.notes) == 2
  assert any('tpu7x-128' in note for note in pod.notes)
  assert not slices.parse('v5e-16').notes


def test_peak_flops_match_clock_rate():
  """A v5e has 4 arrays of 128 x 128 multipliers: peak = 2 x multipliers x clock."""
  assert slices.CHIPS['v5e'].peak == pytest.approx(2 * 4 * 128**2 * slices.CHIPS['v5e'].clock, rel=0.01)
  assert slices.CHIPS['v5p'].peak == pytest.approx(2 * 8 * 128**2 * slices.CHIPS['v5p'].clock, rel=0.01)


def test_peaks_are_those_of_the_devices_of_a_training():
  named = [(kind, chip.peak) for chip in slices.CHIPS.values() for kind in chip.kinds]
  named += [(card.kind, card.peak) for card in cards.CARDS.values()]
  assert named and {kind: peaks.peak_flops(kind) for kind, _ in named} == dict(named)


def test_without_libtpu_the_extra_is_reported(monkeypatch):
  real = builtins.__import__

  def without(name, *args, **named):
    if name == 'libtpu':
      raise ImportError(name)
    return real(name, *args, **named)

  monkeypatch.setattr(builtins, '__import__', without)
  with pytest.raises(InputError, match=r"pip install 'lmx\[tpu\]'"):
    topology.devices(slices.parse('v5e-16'))
