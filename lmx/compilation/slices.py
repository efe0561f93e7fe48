"""Slices of TPUs: their chips and layouts. Imports no JAX.

Peaks and bandwidths of a chip are those of Google Cloud's pages; the clock is the peak over twice the multipliers.
"""

from __future__ import annotations

import dataclasses
import math

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
    axes: dimensions of a slice.
  """

  peak: float
  memory: int
  clock: float
  links: float
  axes: int


CHIPS = {
  'v4': Chip(275e12, 32, 1.05e9, 300e9, 3),
  'v5e': Chip(197e12, 16, 1.5e9, 200e9, 2),
  'v5p': Chip(459e12, 95, 1.75e9, 600e9, 3),
  'v6e': Chip(918e12, 32, 1.75e9, 448e9, 2),
}
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
  """A slice.

  Attributes:
    generation: key of CHIPS.
    layout: chips along each axis.
  """

  generation: str
  layout: tuple[int, ...]

  @property
  def chip(self) -> Chip:
    """Its chip."""
    return CHIPS[self.generation]

  @property
  def chips(self) -> int:
    """Number of chips."""
    return math.prod(self.layout)

  def __str__(self) -> str:
    return f'{self.generation}-{self.chips} ({"x".join(map(str, self.layout))})'


def parse(text: str) -> Topology | cards.Server:
  """Read 'v5e-16' (generation and chips), 'v5p:4x4x4' (generation and layout) or 'h100x8' (NVIDIA card and number).

  Raises:
    InputError: an unknown generation, or a number of chips or a layout that it does not have.
  """
  generation = text.replace(':', '-').partition('-')[0]
  if text.startswith(tuple(cards.CARDS)):
    return cards.parse(text)
  got = f'--topology: got "{text}"; expected'
  if generation not in CHIPS:
    names = f'one of {", ".join(CHIPS)} and its chips, such as v5e-16'
    raise InputError(f'{got} {names}, or NVIDIA cards, such as h100x8{nearest(generation, CHIPS)}')
  axes, rest = CHIPS[generation].axes, text[len(generation) + 1 :]
  layouts = LAYOUTS[axes]
  example = f'{generation}:{"x".join(map(str, layouts[16]))}'
  if 'x' in rest:
    parts = rest.split('x')
    if len(parts) == axes and all(part.isdigit() and int(part) > 0 for part in parts):
      return Topology(generation, tuple(map(int, parts)))
    raise InputError(f'{got} {axes} sizes, such as {example}')
  if not rest.isdigit() or int(rest) not in layouts:
    raise InputError(
      f'{got} {generation}- and one of {", ".join(map(str, layouts))} chips, or a layout such as {example}'
    )
  return Topology(generation, layouts[int(rest)])
