"""TPU slices and GPU machines by Google's names: hosts, chips, and labels of GKE.

Sources, as of 2026: cloud.google.com/tpu/docs (configurations of each generation), /kubernetes-engine/docs (topologies
and node labels) and /compute/docs/tpus/tpu-machines (machine types of Compute Engine); the same pairs are in xpk's
system_characteristics.py. Imports no JAX.
"""

from __future__ import annotations

import dataclasses
import re

from lmx.compilation import cards, slices
from lmx.errors import InputError, nearest

_PLANE, _CUBES = (
  {chips: 'x'.join(map(str, layout)) for chips, layout in layouts.items()}
  for layouts in (slices.LAYOUTS[2], {**slices.LAYOUTS[3], 4096: (16, 16, 16)})
)
del _CUBES[1]  # Google rents no single chip of these


@dataclasses.dataclass(frozen=True)
class Generation:
  """TPU generation.

  Attributes:
    per_chip: units of the number in the name per chip: 2 if the name counts TensorCores.
    topologies: number of chips -> topology.
    whole: most chips of a TPU VM with a single host.
    devices: JAX devices of a chip.
    gke: GKE's label of the accelerator, '' if GKE has no pools of it.
    runtime: software version of a TPU VM, '' if the Cloud TPU API has none of it.
    gce: machine type of Compute Engine without the number of chips, '' if it has none.
  """

  per_chip: int
  topologies: dict[int, str]
  whole: int
  devices: int
  gke: str
  runtime: str
  gce: str = ''


def _generation(name: str, whole: int, gke: str, runtime: str, gce: str = '') -> Generation:
  """Return a generation of `lmx.compilation.slices`, by its name there."""
  chip = slices.CHIPS[name]
  return Generation(chip.counted, _PLANE if len(chip.pod) == 2 else _CUBES, whole, chip.devices, gke, runtime, gce)


GENERATIONS = {
  'v2': Generation(2, dict.fromkeys((4, 16, 64, 128, 256), ''), 4, 2, '', 'tpu-ubuntu2204-base'),
  'v3': Generation(2, dict.fromkeys((4, 16, 32, 64, 128, 256, 512, 1024), ''), 4, 2, '', 'tpu-ubuntu2204-base'),
  'v4': _generation('v4', 4, 'tpu-v4-podslice', 'tpu-ubuntu2204-base'),
  'v5litepod': _generation('v5e', 8, 'tpu-v5-lite-podslice', 'v2-alpha-tpuv5-lite'),
  'v5p': _generation('v5p', 4, 'tpu-v5p-slice', 'v2-alpha-tpuv5', 'ct5p-hightpu'),
  'v6e': _generation('v6e', 8, 'tpu-v6e-slice', 'v2-alpha-tpuv6e', 'ct6e-standard'),
  'tpu7x': _generation('tpu7x', 4, 'tpu7x', '', 'tpu7x-standard'),
}

GPUS = {  # name without the number -> label of GKE, GPUs that a machine can have; names in `lmx.compilation.cards` too
  't4': ('nvidia-tesla-t4', (1, 2, 4)),
  'l4': ('nvidia-l4', (1, 2, 4, 8)),
  'a100-40gb': ('nvidia-tesla-a100', (1, 2, 4, 8)),
  'a100-80gb': ('nvidia-a100-80gb', (1, 2, 4, 8)),
  'h100-80gb': ('nvidia-h100-80gb', (1, 2, 4, 8)),
  'h100-mega-80gb': ('nvidia-h100-mega-80gb', (8,)),
  'h200-141gb': ('nvidia-h200-141gb', (8,)),
  'b200': ('nvidia-b200', (8,)),
}


# Launcher -> name in messages, and the field of a generation that it needs.
WHERE = {'gke': ('GKE', 'gke'), 'tpu_vm': ('TPU VMs', 'runtime'), 'gce': ('Compute Engine', 'gce')}


@dataclasses.dataclass(frozen=True)
class Slice:
  """TPU slice, or a machine with GPUs.

  Attributes:
    name: name of the accelerator, as in --accelerator.
    kind: 'tpu' or 'gpu'.
    hosts: number of machines; 1 for GPUs, which allow any number.
    chips: chips of a machine.
    devices: JAX devices of a machine.
    label: GKE's accelerator label.
    topology: topology of a TPU slice.
    runtime: software version of a TPU VM.
    machine_type: machine type of Compute Engine.
  """

  name: str
  kind: str
  hosts: int
  chips: int
  devices: int
  label: str = ''
  topology: str = ''
  runtime: str = ''
  machine_type: str = ''

  @property
  def compiled(self) -> str:
    """Return lmx's name of the chips, a key of `slices.CHIPS` or `cards.CARDS`; '' if lmx compiles for none."""
    kind = self.name.rpartition('-')[0]
    return slices.GENERATIONS.get(kind) or cards.GOOGLE.get(kind, '')


def names(kind: str = '') -> list[str]:
  """Return the known names of TPUs, GPUs or both."""
  tpus = [f'{name}-{chips * g.per_chip}' for name, g in GENERATIONS.items() for chips in g.topologies]
  gpus = [f'{name}-{count}' for name, (_, counts) in GPUS.items() for count in counts]
  return {'tpu': tpus, 'gpu': gpus}.get(kind, tpus + gpus)


def find(name: str, where: str) -> Slice:
  """Return the slice with a given name.

  Args:
    name: name such as 'v5litepod-16' or 'h100-80gb-8'.
    where: key of WHERE. Machines of GKE's node pools have four chips of a slice, or one.

  Raises:
    InputError: unknown name; the message has the nearest one.
  """
  title, field = WHERE[where]
  candidates = [n for n in names('tpu') if getattr(GENERATIONS[n.rpartition('-')[0]], field)]
  candidates += names('gpu') if where == 'gke' else []
  if name not in candidates:
    alike = name.lower().replace('v5e', 'v5litepod').replace('v5lite-', 'v5litepod-')
    raise InputError(f'{title}: no accelerator "{name}"{nearest(alike, _nearest_count(alike, candidates))}')
  kind, _, count = name.rpartition('-')
  if kind in GPUS:
    return Slice(name, 'gpu', 1, int(count), int(count), GPUS[kind][0])
  generation = GENERATIONS[kind]
  chips = int(count) // generation.per_chip
  whole = min(generation.whole, 4) if where == 'gke' else generation.whole
  hosts = 1 if chips <= whole else chips // 4
  chips_per_host = chips // hosts
  return Slice(
    name,
    'tpu',
    hosts,
    chips_per_host,
    chips_per_host * generation.devices,
    generation.gke,
    generation.topologies[chips],
    generation.runtime,
    f'{generation.gce}-{chips_per_host}t',
  )


def _nearest_count(name: str, candidates: list[str]) -> list[str]:
  """Return the name of the same kind with the nearest number, or all names."""
  kind, _, count = name.rpartition('-')
  same = [k for k in candidates if k.rpartition('-')[0] == kind]
  if not same or not re.fullmatch(r'\d{1,9}', count):
    return candidates
  return [min(same, key=lambda k: abs(int(k.rpartition('-')[2]) - int(count)))]
