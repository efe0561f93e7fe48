"""Operations of a profile (lmx/reporting/profiles.py), by layer, with their work against the device's roofline.

A trace names HLO instructions. The stored programs give their metadata, from which layers, modules and directions
follow, and their operations and bytes (lmx/compilation/roofline.py). Loops and calls are not listed, because the
instructions in them are. An instruction that runs in parallel with others has its full time, so the sum can exceed a
step's.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import gzip
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from jax.profiler import ProfileData

from lmx import documents, records, storage
from lmx.compilation import hlo, roofline
from lmx.errors import InputError
from lmx.runs import profiles

_TRACE, _PROGRAM = '.xplane.pb', '.hlo.gz'
_TPU, _TPU_LINE = '/device:TPU:', 'XLA Ops'
_END = 'end: '  # of the event that ends an asynchronous operation on a CPU
_LAYER = re.compile(r'layers?_\d{2,}(_\d{2,})?')
_WRAPPED = re.compile(r'\w+\((.*)\)')  # by a transformation, such as jvp(layer_00)
_CALL = re.compile(r'p?jit\(.*\)')
_STRUCTURE = re.compile(r'while|body|cond|closed_call|checkpoint|rematted_computation|shard_map|branch_\d+_fun|\W*')
_BLOCK = re.compile(r'[A-Z]\w*')  # class of a layer's outermost module


HEAD = ('share', 'ms', 'runs', 'GFLOP/s', 'GB/s', 'roofline', 'layer', 'direction', 'operation', 'HLO')


class Scope(NamedTuple):
  """Place of an operation in the model.

  Attributes:
    layer: layer_00, ..., else the objective's name, or 'optimizer'; '' if unknown.
    direction: 'forward', 'backward', 'recomputation' or 'update'; '' if unknown.
    path: modules and operations within the layer, from the outermost.
  """

  layer: str
  direction: str
  path: str


def read_scope(op_name: str) -> Scope:
  """Return the place of an operation by the name in its HLO metadata; of merged ones, .../(a:b), that of the first."""
  outer, is_merged, names = op_name.partition('/(')
  if is_merged and ':' in names:
    first, *others = names.removesuffix(')').split(':')
    scope = read_scope(f'{outer}/{first}')
    return scope._replace(path=f'{scope.path} and {len(others)} more')
  parts: list[str] = []
  for part in op_name.split('/')[:-1]:
    if _CALL.fullmatch(part):
      continue
    while match := _WRAPPED.fullmatch(part):
      part = match[1]
    is_method = parts and part.startswith(f'{parts[-1]}.')  # of a Linen module: attention/attention.attend
    if not _STRUCTURE.fullmatch(part) and not is_method:
      parts.append(part)
  at = next((i for i, part in enumerate(parts) if _LAYER.fullmatch(part)), 0)
  layer, *inner = parts[at:] or ['']
  if inner and _BLOCK.fullmatch(inner[0]):
    inner = inner[1:]
  return Scope(layer, _direction(op_name, layer), '/'.join([*inner, op_name.rpartition('/')[2]]))


def _direction(op_name: str, layer: str) -> str:
  if 'rematted_computation' in op_name:
    return 'recomputation'
  if 'transpose(' in op_name:
    return 'backward'
  return 'forward' if 'jvp(' in op_name else 'update' if layer == 'optimizer' else ''


class Event(NamedTuple):
  """One run of an instruction: device, its program's name and number (0 if unknown), its name, and its seconds."""

  device: str
  program: str
  number: int
  name: str
  seconds: float


def read_events(trace: bytes) -> list[Event]:
  """Return the runs of instructions in a trace, an `XSpace`.

  On CPUs and GPUs the trace names the instruction of each kernel. On TPUs a line has all instructions of a core.
  """
  data = ProfileData.from_serialized_xspace(trace)
  with warnings.catch_warnings():
    warnings.simplefilter('ignore', DeprecationWarning)  # of a type of jaxlib, from Python 3.12 on
    planes = [(_read_cores if plane.name.startswith(_TPU) else _read_kernels)(plane) for plane in data.planes]
  return [event for events in planes for event in events]


def _read_cores(plane: Any) -> list[Event]:
  """Return the events of a TPU core."""
  found = []
  for event in (event for line in plane.lines if line.name == _TPU_LINE for event in line.events):
    name = event.name.partition(' = ')[0].lstrip('%')
    number = int(dict(event.stats).get('program_id', 0))
    found.append(Event(plane.name, '', number, name, event.duration_ns / 1e9))
  return found


def _read_kernels(plane: Any) -> list[Event]:
  """Return the events of a CPU or GPU."""
  ends: dict[int, float] = {}
  kernels = []
  for event in (event for line in plane.lines for event in line.events):
    stats = dict(event.stats)
    if event.name.startswith(_END):
      ends[stats.get('_c', 0)] = event.start_ns
    elif 'hlo_op' in stats:
      kernels.append((stats, event.start_ns, event.duration_ns))
  found = []
  for stats, start, duration in kernels:
    seconds = max(ends.get(stats.get('_p', -1), 0.0) - start, duration) / 1e9
    program = str(stats.get('hlo_module', '')).partition('(')[0]
    device = f'{plane.name} {stats.get("device_ordinal", "")}'
    found.append(Event(device, program, int(stats.get('program_id', 0)), str(stats['hlo_op']), seconds))
  return found


@dataclasses.dataclass(frozen=True)
class Operation:
  """An instruction in the updates of a profile; times and counts are per update and device.

  Attributes:
    name: the instruction.
    program: its program.
    kind: its opcode; '' if the program is not stored.
    layer, direction, path: see `Scope`.
    seconds: time.
    share: part of the time of all operations.
    count: number of runs.
    flops: operations of its products; None if the program is not stored.
    moved: bytes that it reads and writes; None too.
    roofline: least time on this device as a share of `seconds`; None if unknown, or for a collective.
  """

  name: str
  program: str
  kind: str
  layer: str
  direction: str
  path: str
  seconds: float
  share: float
  count: float
  flops: float | None
  moved: float | None
  roofline: float | None


@dataclasses.dataclass(frozen=True)
class Profile:
  """A profile.

  Attributes:
    folder: its folder.
    record: see `lmx.reporting.profiles`.
    operations: by time, the longest first.
  """

  folder: str
  record: Mapping[str, Any]
  operations: tuple[Operation, ...]

  @property
  def updates(self) -> int:
    """Number of updates."""
    return int(self.record['last'] - self.record['first'] + 1)

  @property
  def step_seconds(self) -> float:
    """Time of an update."""
    return float(self.record['seconds'] / self.updates)

  @property
  def busy_seconds(self) -> float:
    """Time of all operations, per update and device."""
    return sum(one.seconds for one in self.operations)

  def layers(self) -> list[tuple[str, str, float, float]]:
    """Return (layer, direction, seconds, share) of all operations, in the order of their names."""
    seconds: dict[tuple[str, str], float] = collections.defaultdict(float)
    for one in self.operations:
      seconds[one.layer, one.direction] += one.seconds
    total = self.busy_seconds or 1.0
    return [(*place, time, time / total) for place, time in sorted(seconds.items())]

  def to_json(self) -> dict[str, Any]:
    """Return the profile for a JSON file."""
    layers = [dict(zip(('layer', 'direction', 'seconds', 'share'), row, strict=True)) for row in self.layers()]
    return {
      'folder': self.folder,
      **self.record,
      'step_seconds': self.step_seconds,
      'busy_seconds': self.busy_seconds,
      'operations': [dataclasses.asdict(one) for one in self.operations],
      'layers': layers,
    }


def folders(workdir: Any) -> list[Any]:
  """Return the folders of a run's profiles, in the order of their updates."""
  folder = workdir / profiles.FOLDER
  return sorted((path for path in folder.iterdir() if path.is_dir()), key=str) if folder.exists() else []


def load(folder: Any, host: int | None = None) -> Profile:
  """Read a profile.

  Args:
    folder: one of `folders`.
    host: number of the process; None is the first that was profiled.

  Raises:
    InputError: this host has no profile, or a file is damaged.
  """
  traces = sorted(path for path in folder.iterdir() if path.name.endswith(_TRACE))
  names = [path.name.removesuffix(_TRACE) for path in traces]
  name = f'host-{host:03d}' if host is not None else next(iter(names), '')
  if name not in names:
    numbers = ' or '.join(one.removeprefix('host-').lstrip('0') or '0' for one in names)
    raise InputError(f'--host: got {host}; expected {numbers or "no host: there is no trace"}')
  path = folder / f'{name}.json'
  record = records.read(path)
  for key, kind in (('first', int), ('last', int), ('seconds', float), ('device', str)):
    documents.field(record, key, kind, str(path))
  limits = roofline.of_device(record['device'])
  if records.is_number(record.get('peak')) and records.is_number(record.get('bandwidth')):
    limits = roofline.Limits(record['peak'], record['peak'], record['bandwidth'])
  programs = _Programs(folder, name)
  total: dict[tuple[str, int, str], list[float]] = collections.defaultdict(lambda: [0.0, 0])
  devices: set[str] = set()
  try:
    for event in read_events((folder / (name + _TRACE)).read_bytes()):
      sums = total[event.program, event.number, event.name]
      sums[0], sums[1] = sums[0] + event.seconds, sums[1] + 1
      devices.add(event.device)
  except (RuntimeError, ValueError) as error:
    raise InputError(
      f'{folder / (name + _TRACE)}: got a file that is no trace; expected one of jax.profiler'
    ) from error
  runs = (record['last'] - record['first'] + 1) * max(len(devices), 1)
  found = [_operation(programs.find(*place), place, time, count, limits) for place, (time, count) in total.items()]
  kept = [one for one in found if one is not None]
  whole = sum(one.seconds for one in kept) or 1.0
  scaled = [
    dataclasses.replace(one, seconds=one.seconds / runs, share=one.seconds / whole, count=one.count / runs)
    for one in kept
  ]
  return Profile(str(folder), {**record, 'devices': len(devices)}, tuple(sorted(scaled, key=lambda one: -one.seconds)))


class _Found(NamedTuple):
  """An instruction, the fused ones in it, and the types of the results in its computation."""

  one: hlo.Instruction
  body: list[hlo.Instruction]
  types: Mapping[str, str]


class _Programs:
  """The programs stored with a host's trace."""

  def __init__(self, folder: Any, host: str):
    names = (path.name for path in folder.iterdir())
    stored = (re.fullmatch(rf'{host}\.(.*)\.(\d+){re.escape(_PROGRAM)}', name) for name in names)
    self._files = {(match[1], int(match[2])): folder / match[0] for match in stored if match}
    self._read = functools.cache(self._read_file)

  def _read_file(self, path: Any) -> dict[str, _Found]:
    try:
      program = hlo.Program(gzip.decompress(path.read_bytes()).decode())
    except (OSError, EOFError, UnicodeDecodeError) as error:
      raise InputError(f'{path}: got a damaged file; expected a program as lmx wrote it; remove the profile') from error
    found: dict[str, _Found] = {}
    for name, instructions in program.computations.items():
      if name not in program.fused:
        types = {one.name: one.result for one in instructions}
        found |= {one.name: _Found(one, list(program.body(one)), types) for one in instructions}
    return found

  def find(self, program: str, number: int, name: str) -> _Found | None:
    """Return an instruction of a program by its number, else of one of its name, that has the instruction."""
    by_number = [path for (_, n), path in self._files.items() if n == number]
    by_name = [path for (text, _), path in self._files.items() if not program or text == program]
    for path in (*by_number, *by_name):
      if found := self._read(path).get(name):
        return found
    return None


def _operation(
  found: _Found | None, place: tuple[str, int, str], seconds: float, count: float, limits: roofline.Limits | None
) -> Operation | None:
  """Return an instruction, by its program, number and name, with its total time; None if it only runs others."""
  common: dict[str, Any] = {'program': place[0], 'name': place[2], 'seconds': seconds, 'share': 0.0, 'count': count}
  if found is None:
    return Operation(kind='', layer='', direction='', path='', flops=None, moved=None, roofline=None, **common)
  if roofline.is_container(found.one):
    return None
  work = roofline.kernel(*found, limits or roofline.Limits(1.0, 1.0, 1.0))
  share = None
  if limits and seconds and not roofline.is_collective(found.one):
    share = count * work.seconds(limits) / seconds
  scope = read_scope(_op_name(found))._asdict()
  return Operation(kind=found.one.kind, **scope, flops=work.operations, moved=work.moved, roofline=share, **common)


def _op_name(found: _Found) -> str:
  """Return the name of the traced operation: of a fusion's largest product, else its own, else of any in it."""
  types = {**found.types, **{part.name: part.result for part in found.body}}
  products = [part for part in found.body if hlo.product(part, types)[1]]
  largest = max(products, key=lambda part: hlo.product(part, types)[1], default=found.one)
  names: Iterable[str] = (part.op_name for part in (largest, found.one, *reversed(found.body)))
  return next(filter(None, names), '')


def table(profile: Profile, top: int) -> list[tuple[str, ...]]:
  """Return a head and the rows of the `top` operations that take the longest, as texts."""
  rows: list[tuple[str, ...]] = [HEAD]
  for one in profile.operations[:top]:
    rate = lambda amount, one=one: '' if not amount else f'{amount * one.count / one.seconds / 1e9:,.1f}'
    bound = '' if one.roofline is None else f'{one.roofline:.0%}'
    numbers = f'{one.share:.1%}', f'{1000 * one.seconds:.3f}', f'{one.count:g}', rate(one.flops), rate(one.moved), bound
    rows.append((*numbers, one.layer, one.direction, one.path or one.program, one.name))
  return rows


def layer_table(profile: Profile) -> list[tuple[str, ...]]:
  """Return a head and the rows of all layers and directions, as texts."""
  rows: list[tuple[str, ...]] = [('share', 'ms', 'layer', 'direction')]
  return rows + [(f'{share:.1%}', f'{1000 * time:.3f}', layer, way) for layer, way, time, share in profile.layers()]


def title(profile: Profile) -> str:
  """Return a line with the updates, devices and times of a profile."""
  record, times = profile.record, (1000 * profile.step_seconds, 1000 * profile.busy_seconds)
  return (
    f'updates {record["first"]:,} to {record["last"]:,} of host {record.get("process", 0)}, {record["devices"]} x '
    f'{record["device"]}: {times[0]:,.2f} ms per update, operations {times[1]:,.2f} ms per device'
  )


def open_run(field: str, workdir: Any) -> list[Any]:
  """Return `folders` of a run. Raises InputError if there are none."""
  found = folders(storage.path(field, workdir, storage.FOLDER))
  if not found:
    raise InputError(f'{field}: got {workdir}, which has no profile; train with --config.train.profile=100:110')
  return found
