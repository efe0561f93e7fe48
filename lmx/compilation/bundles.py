"""Cycles of Pallas kernels, which XLA does not estimate: the bundles that libtpu schedules for them.

A TPU core issues a bundle of instructions per cycle. libtpu writes the bundles of each kernel while it compiles, if
`flags` are set before it is loaded. A kernel consists of instructions before its loop over the grid and of the loop's
body, in which predicated regions are skipped. A kernel of lmx declares in its metadata how often the grid loop runs,
and in what share of its steps each branch runs (`score_rows.schedule`). Waits for memory transfers are not in the
count.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lmx.compilation import hlo
from lmx.kernels.score_rows import SCHEDULE

GUARD = 0.75  # share of the loop's body from which a region guards all of it
_LINE = re.compile(r'^\s*(0x[0-9a-f]+|0)\s+(?:[A-Z]{2}\s*)?:\s*((?:> ?)*)\s*\{(.*)$')
_STARTS = re.compile(r'(?:Start(?:/End empty)?|End empty|empty) region (\d+)')
_BRANCH = re.compile(r'sbr\.rel \([^)]*\) target = \$region(\d+)')
_DUMP = '-final_bundles.txt'


class Bundles(NamedTuple):
  """Scheduled bundles of a kernel.

  Attributes:
    before: bundles outside the loop over the grid.
    body: bundles of the loop.
    regions: bundles of the outermost predicated regions of the loop, in order, without one that guards the whole body.
  """

  before: int
  body: int
  regions: tuple[int, ...]

  def cycles(self, steps: int, shares: Sequence[float]) -> float:
    """Return the cycles of a call.

    Args:
      steps: steps of the grid.
      shares: share of the steps in which each branch runs; the branches are the largest regions.
    """
    branches = sorted(self.regions, reverse=True)[: len(shares)]
    in_order = [size for size in self.regions if size in branches][: len(shares)]
    skipped = sum(size * (1 - share) for size, share in zip(in_order, shares, strict=False))
    return self.before + steps * (self.body - skipped)


def flags(folder: str) -> str:
  """Return the flags for the environment variable LIBTPU_INIT_ARGS that write the bundles into a folder."""
  dump = f'--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true --xla_jf_dump_llo_pass_label_regex=.*final_bundles.*'
  return f'{os.environ.get("LIBTPU_INIT_ARGS", "")} {dump}'.strip()


def read(folder: str) -> dict[str, Bundles]:
  """Return the bundles of each instruction of the program whose compilation wrote into a folder, by name."""
  found = {}
  for path in sorted(glob.glob(f'{glob.escape(folder)}/*{_DUMP}')):
    name = re.fullmatch(rf'\d+-(.*)-\d+{re.escape(_DUMP)}', os.path.basename(path))
    if name:
      with open(path, encoding='utf-8', errors='replace') as file:
        found[name.group(1)] = parse(file.read())
  return found


def parse(text: str) -> Bundles:
  """Return the bundles of a kernel from libtpu's text."""
  starts: dict[str, int] = {}
  branches: list[tuple[int, str]] = []
  depths: list[int] = []
  for line in text.splitlines():
    if match := _LINE.match(line):
      address = len(depths)
      depths.append(match.group(2).count('>'))
      for region in _STARTS.findall(match.group(3)):
        starts.setdefault(region, address)
      branches += [(address, region) for region in _BRANCH.findall(match.group(3))]
  body = sum(depth > 0 for depth in depths)
  spans = [(at, starts[region]) for at, region in branches if starts.get(region, at) > at and depths[at]]
  spans = [(at, end) for at, end in spans if end - at < GUARD * body]
  outer = [(at, end) for at, end in spans if not any(other < at and end <= until for other, until in spans)]
  return Bundles(len(depths) - body, body, tuple(end - at - 1 for at, end in sorted(outer)))


def cycles(kernels: Sequence[hlo.Kernel], found: Mapping[str, Bundles]) -> list[float]:
  """Return the cycles of one call of each kernel, 0 if its bundles or its schedule are not known.

  libtpu schedules equal calls of a kernel once, so a call without bundles has those of an equal one.
  """
  known: dict[tuple[Any, ...], float] = {}
  for kernel in kernels:
    if kernel.name in found and SCHEDULE in kernel.metadata:
      steps, *shares = json.loads(kernel.metadata[SCHEDULE])
      known.setdefault(_kind(kernel), found[kernel.name].cycles(steps, shares))
  return [known.get(_kind(kernel), 0.0) for kernel in kernels]


def _kind(kernel: hlo.Kernel) -> tuple[Any, ...]:
  """Return what equal calls have in common."""
  return kernel.op_name.removesuffix('/pallas_call').rpartition('/')[2], kernel.shapes, *kernel.metadata.items()
