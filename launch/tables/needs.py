"""Needs of a row: hardware, hours of it, and data under a licence."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import NamedTuple

from experiments.tables import CORES, DATA, GPU, GPUS, POD, Row, Run
from launch.tables import hours
from launch.tables import plan as plans

HARDWARE = {'2cores': (CORES,), '1gpu': (CORES, GPU), 'pod': (CORES, GPU, GPUS, POD)}
_ORDER = (CORES, GPU, GPUS, POD)


class Needs(NamedTuple):
  """Hardware, time and data that a row and its initial runs need.

  Attributes:
    hardware: CORES, GPU, GPUS or POD.
    gpu_hours: estimated H100 hours for all seeds and tries; 0 without an estimate.
    core_hours: hours on two cores, for runs without a GPU.
    data: names in DATA, in its order.
  """

  hardware: str
  gpu_hours: float
  core_hours: float
  data: tuple[str, ...]


def of_row(row: Row, runs: Mapping[str, Run]) -> Needs:
  """Return the needs of a table row, given `runs` by name."""
  seeds = plans.planned_seeds(row.runs, runs, plans.Plan())
  needed = [runs[name] for name in seeds]
  text = ' '.join(' '.join((*run.settings, *run.then)) for run in needed)
  each = [of_run(run, runs, len(seeds[run.name])) for run in needed]
  return Needs(
    hardware(row, runs),
    sum(one.gpu_hours for one in each),
    sum(one.core_hours for one in each),
    tuple(name for name in DATA if f'{{data.{name}}}' in text),
  )


def of_run(run: Run, runs: Mapping[str, Run], seeds: int) -> Needs:
  """Return the needs of `seeds` seeds of only this run, without data."""
  needed = hours.of_run(run, runs) * seeds
  on_cores = run.needs == CORES
  return Needs(run.needs, 0.0 if on_cores else needed, needed if on_cores else 0.0, ())


def hardware(row: Row, runs: Mapping[str, Run]) -> str:
  """Return the most that a run of a row needs: CORES, GPU, GPUS or POD."""
  needed = plans.sort_by_dependency(list(row.runs), runs)
  return max((run.needs for run in needed), key=_ORDER.index)


def here() -> str:
  """Return this machine's key in HARDWARE: '1gpu' if NVIDIA's tools are installed, else '2cores'."""
  return '1gpu' if shutil.which('nvidia-smi') else '2cores'


def describe(needs: Needs) -> str:
  """Return needs as text: 'one GPU, about 12 hours of an H100; squad (CC BY-SA)'."""
  parts = [_about(needs.gpu_hours, 'an H100'), _about(needs.core_hours, CORES)]
  parts = parts if needs.hardware == CORES and parts[1] else [needs.hardware, *parts]
  data = '; '.join(f'{name} ({DATA[name].terms})' for name in needs.data)
  return ', '.join(filter(None, parts)) + (f'; {data}' if data else '')


def _about(hours: float, what: str) -> str:
  if not hours:
    return ''
  if hours < 0.05:
    return f'minutes of {what}'
  return f'about {f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}"} hours of {what}'
