"""TPU slices: their devices, layouts and names. Imports no JAX.

Peaks, memory and bandwidths are from Google Cloud's pages (cloud.google.com/tpu/docs/v4, v5e, v5p, v6e, tpu7x); the
clock is the peak over twice the multipliers. lmx names a slice by its chips. Google's names of some generations count
TensorCores instead: Google's v5p-128 has 64 chips.
"""

from __future__ import annotations

import dataclasses
import math
import re

from lmx.compilation import cards
from lmx.errors import InputError, suggest


@dataclasses.dataclass(frozen=True)
class Chip:
  """A generation's chip; peak, memory and bandwidth are those of one JAX device.

  Attributes:
    peak: dense bfloat16 FLOP/s.
    memory: GiB of HBM.
    clock: cycles a second.
    bandwidth: bytes a second of its HBM.
    links: bytes a second to other chips, over all links.
    pod: chips of the largest slice along each axis.
    google: Google's name of the generation.
    counted: units of the number in Google's name per chip: 2 if the name counts TensorCores.
    devices: JAX devices of a chip; 2 have half of its peak, memory and bandwidth each.
    kinds: names of a device in JAX.
  """

  peak: float
  memory: int
  clock: float
  bandwidth: float
  links: float
  pod: tuple[int, ...]
  google: str
  counted: int = 1
  devices: int = 1
  kinds: tuple[str, ...] = ()

  @property
  def cores(self) -> int:
    """TensorCores of a JAX device, which share the grid of a kernel."""
    return self.counted // self.devices


CHIPS = {
  'v4': Chip(275e12, 32, 1.05e9, 1228e9, 300e9, (16, 16, 16), 'v4', counted=2, kinds=('TPU v4',)),
  'v5e': Chip(197e12, 16, 1.5e9, 819e9, 200e9, (16, 16), 'v5litepod', kinds=('TPU v5 lite', 'TPU v5e')),
  'v5p': Chip(459e12, 95, 1.75e9, 2765e9, 600e9, (16, 20, 28), 'v5p', counted=2, kinds=('TPU v5', 'TPU v5p')),
  'v6e': Chip(918e12, 32, 1.75e9, 1640e9, 448e9, (16, 16), 'v6e', kinds=('TPU v6 lite', 'TPU v6e')),
  'tpu7x': Chip(
    2307e12 / 2, 96, 2.2e9, 7380e9 / 2, 600e9 / 2, (16, 24, 24), 'tpu7x', counted=2, devices=2, kinds=('TPU7x',)
  ),
}
GENERATIONS = {chip.google: name for name, chip in CHIPS.items()}  # Google's name -> lmx's
MOST = 256  # slices of a run
LAYOUTS: dict[int, dict[int, tuple[int, ...]]] = {  # chips -> layout, by the number of axes
  2: {1: (1, 1), 4: (2, 2), 8: (2, 4), 16: (4, 4), 32: (4, 8), 64: (8, 8), 128: (8, 16), 256: (16, 16)},
  3: {
    1: (1, 1, 1),
    4: (2, 2, 1),
    8: (2, 2, 2),
    16: (2, 2, 4),
    32: (2, 4, 4),
    64: (4, 4, 4),
    128: (4, 4, 8),
    256: (4, 8, 8),
    512: (8, 8, 8),
    1024: (8, 8, 16),
    2048: (8, 16, 16),
  },
}


@dataclasses.dataclass(frozen=True)
class Topology:
  """A slice, or several equal ones that a data center's network connects.

  Attributes:
    generation: key of CHIPS.
    layout: chips of a slice along each axis.
    slices: number of slices.
  """

  generation: str
  layout: tuple[int, ...]
  slices: int = 1

  @property
  def chip(self) -> Chip:
    """Its chip."""
    return CHIPS[self.generation]

  @property
  def chips(self) -> int:
    """Number of chips of all slices."""
    return self.slices * math.prod(self.layout)

  @property
  def devices(self) -> int:
    """Number of JAX devices of all slices."""
    return self.chips * self.chip.devices

  @property
  def notes(self) -> list[str]:
    """Notes on its names and devices."""
    found = []
    if self.chip.counted > 1:
      found.append(f"Google's name of a slice, which counts TensorCores, is {self.google}")
    if self.chip.devices > 1:
      found.append(f'a chip has {self.chip.devices} devices; values per chip are those of one device')
    return found

  @property
  def google(self) -> str:
    """Google's name of one slice."""
    return f'{self.chip.google}-{math.prod(self.layout) * self.chip.counted}'

  def __str__(self) -> str:
    name = f'{self.generation}-{math.prod(self.layout)} ({"x".join(map(str, self.layout))})'
    return name if self.slices == 1 else f'{self.slices} x {name}'


def parse(text: str) -> Topology | cards.Server:
  """Read 'v5e-16' (generation and chips), 'v5p:4x4x4' (generation and layout), or an NVIDIA server, 'h100x8'.

  '2xv5e-64' is two slices. Google's names of a v5e ('v5litepod-16') and of servers ('h100-80gb-8') are read too.

  Raises:
    InputError: an unknown generation, or a number of slices or chips or a layout that there is not.
  """
  times = re.match(r'([0-9]+)x', text)
  name = text[times.end() :] if times else text
  got = f'--topology: got "{text}"; expected'
  if cards.is_named(name):
    if times:
      raise InputError(f'{got} one server of NVIDIA cards, such as {name}; leave {times.group()} out')
    return cards.parse(text)
  count = int(times.group(1)) if times else 1
  if not 1 <= count <= MOST:
    raise InputError(f'{got} 1 to {MOST} slices, such as 2x{name}')
  named = re.split('[-:]', name, maxsplit=1)[0]
  generation = GENERATIONS.get(named, named)
  if generation not in CHIPS:
    suggestion = suggest(re.sub(r'x\d+$', '', named), {*CHIPS, *GENERATIONS, *cards.CARDS})
    raise InputError(
      f'{got} one of {", ".join(CHIPS)} and its chips, such as v5e-16, or slices of it, such as 2xv5e-16, or one of '
      f'{", ".join(cards.CARDS)} and their number, such as h100x8{suggestion}'
    )
  return Topology(generation, _layout(generation, name[len(named) + 1 :], got), count)


def _layout(generation: str, text: str, got: str) -> tuple[int, ...]:
  """Return the layout for '16' (chips) or '4x4'.

  Raises:
    InputError: there is no such slice; the message begins with `got`.
  """
  pod = CHIPS[generation].pod
  layouts = LAYOUTS[len(pod)]
  names = {'x'.join(map(str, layout)): layout for layout in layouts.values()}
  example = f'such as {generation}:{"x".join(map(str, layouts[16]))}'
  if 'x' not in text:
    if not (text.isascii() and text.isdecimal()) or int(text) not in layouts:
      raise InputError(f'{got} {generation}- and one of {", ".join(map(str, layouts))} chips, or a layout {example}')
    return layouts[int(text)]
  if text in names:
    return names[text]
  sizes = tuple(int(part) if part.isascii() and part.isdecimal() else 0 for part in text.split('x'))
  if len(sizes) != len(pod):
    raise InputError(f'{got} {len(pod)} sizes, {example}')
  cubes = len(pod) == 3  # larger slices consist of cubes of 4 x 4 x 4 chips
  if (
    cubes
    and all(0 < n <= most and n % 4 == 0 for n, most in zip(sizes, pod, strict=True))
    and [*sizes] == sorted(sizes)
  ):
    return sizes
  more = f', or multiples of 4 in ascending order, to {"x".join(map(str, pod))}' if cubes else ''
  raise InputError(f'{got} {generation}: and one of {", ".join(names)}{more}')
