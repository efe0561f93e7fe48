"""Needs of a row: hardware, hours of it, and data under a licence."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import NamedTuple

from experiments.tables import CORES, DATA, GPU, GPUS, POD, Row, Run
from launch.tables import plan as plans

HARDWARE = {'2cores': (CORES,), '1gpu': (CORES, GPU), 'pod': (CORES, GPU, GPUS, POD)}
_ORDER = (CORES, GPU, GPUS, POD)


class Needs(NamedTuple):
  """Needs of a row with all runs that it starts from.

  Attributes:
    hardware: CORES, GPU, GPUS or POD.
    gpu_hours: estimated hours of one H100 for all seeds; 0 if none is estimated.
    data: names in DATA, in its order.
  """

  hardware: str
  gpu_hours: float
  data: tuple[str, ...]


def of_row(row: Row, runs: Mapping[str, Run]) -> Needs:
  """Return the needs of a row of a table with `runs` by name."""
  needed = plans.sort_by_dependency(list(row.runs), runs)
  text = ' '.join(' '.join((*run.settings, *run.then)) for run in needed)
  return Needs(
    max((run.needs for run in needed), key=_ORDER.index),
    sum(run.gpu_hours * max(run.seeds, 1) for run in needed),
    tuple(name for name in DATA if f'{{data.{name}}}' in text),
  )


def here() -> str:
  """Return the key of HARDWARE for this machine: '1gpu' where NVIDIA's tools are installed, else '2cores'."""
  return '1gpu' if shutil.which('nvidia-smi') else '2cores'


def describe(needs: Needs) -> str:
  """Return needs as text: 'one GPU, 12 h of an H100; squad (CC BY-SA)'."""
  hours = f', {needs.gpu_hours:,.2g} h of an H100' if 0 < needs.gpu_hours < 10 else ''
  hours = f', {needs.gpu_hours:,.0f} h of an H100' if needs.gpu_hours >= 10 else hours
  data = '; '.join(f'{name} ({DATA[name].terms})' for name in needs.data)
  return f'{needs.hardware}{hours}' + (f'; {data}' if data else '')
