"""TPU slices: their chips and layouts. Imports no JAX.

A chip's peaks and bandwidths are from Google Cloud's pages; the clock is the peak over twice the multipliers.
"""

from __future__ import annotations

import dataclasses
import math
import re

from lmx.compilation import cards
from lmx.errors import InputError, nearest


@dataclasses.dataclass(frozen=True)
class Chip:
  """A chip.

  Attributes:
    peak: dense bfloat16 FLOP/s.
    memory: GiB of HBM.
    clock: cycles a second.
    links: bytes a second to other chips, over all links.
    pod: chips of the largest slice along each axis.
  """

  peak: float
  memory: int
  clock: float
  links: float
  pod: tuple[int, ...]


CHIPS = {
  'v4': Chip(275e12, 32, 1.05e9, 300e9, (16, 16, 16)),
  'v5e': Chip(197e12, 16, 1.5e9, 200e9, (16, 16)),
  'v5p': Chip(459e12, 95, 1.75e9, 600e9, (16, 20, 28)),
  'v6e': Chip(918e12, 32, 1.75e9, 448e9, (16, 16)),
}
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

  def __str__(self) -> str:
    name = f'{self.generation}-{math.prod(self.layout)} ({"x".join(map(str, self.layout))})'
    return name if self.slices == 1 else f'{self.slices} x {name}'


def parse(text: str) -> Topology | cards.Server:
  """Read 'v5e-16' (generation and chips), 'v5p:4x4x4' (generation and layout), or an NVIDIA server, 'h100x8'.

  '2xv5e-64' is two slices.

  Raises:
    InputError: an unknown generation, or a number of slices or chips or a layout that there is not.
  """
  times = re.match(r'(\d+)x', text)
  name = text[times.end() :] if times else text
  got = f'--topology: got "{text}"; expected'
  if name.startswith(tuple(cards.CARDS)):
    if times:
      raise InputError(f'{got} one server of NVIDIA cards, such as {name}; leave {times.group()} out')
    return cards.parse(text)
  count = int(times.group(1)) if times else 1
  if not 1 <= count <= MOST:
    raise InputError(f'{got} 1 to {MOST} slices, such as 2x{name}')
  generation = name.replace(':', '-').partition('-')[0]
  if generation not in CHIPS:
    names = f'one of {", ".join(CHIPS)} and its chips, such as v5e-16'
    raise InputError(
      f'{got} {names}, or slices of it, such as 2xv5e-16, or NVIDIA cards, such as h100x8{nearest(generation, CHIPS)}'
    )
  return Topology(generation, _layout(generation, name[len(generation) + 1 :], got), count)


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
    if not text.isdecimal() or int(text) not in layouts:
      raise InputError(f'{got} {generation}- and one of {", ".join(map(str, layouts))} chips, or a layout {example}')
    return layouts[int(text)]
  if text in names:
    return names[text]
  sizes = tuple(int(part) if part.isdecimal() else 0 for part in text.split('x'))
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
