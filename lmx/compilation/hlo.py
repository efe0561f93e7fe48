"""Parser for XLA's compiled programs (HLO text): loops, matrix products, collectives, arrays and cycles.

`Compiled.cost_analysis()` counts the body of a loop once. Here each computation counts as often as it runs in a step.
All sizes are per device, because the program is partitioned.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from lmx.compilation import libraries
from lmx.kernels import adaptive_softmax, chunked_attention

COLLECTIVES = ('all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all', 'collective-permute')
# Instructions whose result is not a separate array.
_NO_ARRAY = ('parameter', 'tuple', 'get-tuple-element', 'while', 'bitcast', 'broadcast', 'iota', 'constant')
_BITS = {'pred': 8, 'bf16': 16, 's4': 8, 'u4': 8, 's2': 8, 'u2': 8, 'token': 0}  # of others the digits of the name

_INSTRUCTION = re.compile(r'^\s+(?:ROOT )?%([\w.\-]+) = (.*)$')
_SHAPE = re.compile(r'\b(pred|bf16|[sufc]\d+\w*)\[([\d,]*)\]')
_CALLED = re.compile(
  r'(calls|body|condition|to_apply|true_computation|false_computation|async_computation)=%([\w.\-]+)'
)
# Kernels that only appear by name: cuDNN's attention, Pallas on TPUs and GPUs.
_KERNEL = re.compile(r'custom_call_target="([^"]*(?:fmha|tpu_custom_call|triton)[^"]*)"')
_PALLAS = re.compile(r'custom_call_target="[^"]*(?:tpu_custom_call|triton)[^"]*"')
# Transfers to other slices, after the compilation of a collective over them.
_TRANSFER = re.compile(r'xla_megascale_runtime.*_xla_megascale_transfer_type="(\w+)"')
_EXPECTED = re.compile(rf'{adaptive_softmax.EXPECTED}(\d+)\)*/while$')
_BRANCHES = re.compile(r'(?:branch_computations|called_computations)=\{([^}]*)\}')


@dataclasses.dataclass(frozen=True)
class Instruction:
  """One instruction.

  Attributes:
    name: its name.
    kind: opcode, such as 'dot'.
    result: type of the result, as text.
    operands: names of its operands.
    text: everything after '='.
  """

  name: str
  kind: str
  result: str
  operands: tuple[str, ...]
  text: str

  @property
  def op_name(self) -> str:
    """Name of the traced operation that it comes from, with the functions around it."""
    match = re.search(r'op_name="([^"]*)"', self.text)
    return match.group(1) if match else ''

  @property
  def cycles(self) -> int:
    """XLA's estimate for a TPU; 0 without one, as for a Pallas kernel."""
    match = re.search(r'"estimated_cycles":"(\d+)"', self.text)
    return int(match.group(1)) if match else 0


@dataclasses.dataclass(frozen=True)
class Collective:
  """Communication of one channel in a step.

  Attributes:
    kind: one of COLLECTIVES.
    count: how often it runs.
    size: bytes of one run on one device, of the larger of operands and result.
    shape: type of the result.
    op_name: see `Instruction`.
    groups: groups of device numbers that communicate; () is all devices.
    is_between_slices: a network transfer between slices, from this device to one in each other slice.
  """

  kind: str
  count: int
  size: int
  shape: str
  op_name: str
  groups: tuple[tuple[int, ...], ...] = ()
  is_between_slices: bool = False

  @property
  def total(self) -> int:
    """Bytes of a step."""
    return self.count * self.size


@dataclasses.dataclass(frozen=True)
class Kernel:
  """A call of a Pallas kernel.

  Attributes:
    name: name of its instruction.
    count: how often it runs in a step.
    op_name: see `Instruction`; it ends with the kernel's name.
    shapes: shapes of its floating-point operands.
    metadata: what the kernel declares of itself.
  """

  name: str
  count: int
  op_name: str
  shapes: tuple[tuple[int, ...], ...]
  metadata: Mapping[str, str]


class Program:
  """A compiled program.

  Attributes:
    computations: name -> instructions.
    entry: name of the entry computation.
    runs: name -> how often the computation runs in a step.
    fused: computations inside a fusion, whose results are not stored.
    unknown_loops: number of loops of unknown length; they count once.
    expected_loops: number of loops over the tails of an adaptive softmax, whose length depends on the text; they count
      as often as under Zipf's law (`lmx.kernels.adaptive_softmax.zipf_share`).
  """

  def __init__(self, text: str):
    self.computations, self.entry = _parse(text)
    self.runs: dict[str, float] = collections.defaultdict(float)
    self.fused: set[str] = set()
    self.unknown_loops = self.expected_loops = 0
    self._visit(self.entry, 1.0)

  def _visit(self, name: str, factor: float) -> None:
    self.runs[name] += factor
    for instruction in self.computations.get(name, ()):
      inner = factor
      if instruction.kind == 'while':
        trips = self._trips(instruction)
        self.expected_loops += _EXPECTED.search(instruction.op_name) is not None
        self.unknown_loops += trips is None
        inner = factor * (trips or 1)
      for attribute, called in _CALLED.findall(instruction.text):
        if attribute == 'to_apply' and not instruction.kind.startswith('call'):  # the function of a reduction
          continue
        if instruction.kind == 'fusion':
          self.fused.add(called)
        self._visit(called, inner)
      for group in _BRANCHES.findall(instruction.text):
        for called in filter(None, (name.strip().lstrip('%') for name in group.split(','))):
          self._visit(called, inner)

  def _trips(self, loop: Instruction) -> int | None:
    """Return how often a loop runs: the constant with which its counter, from 0, is compared, or the expectation."""
    if expected := _EXPECTED.search(loop.op_name):
      return int(expected.group(1))
    known = re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.text)
    if known:
      return int(known.group(1))
    condition = re.search(r'condition=%([\w.\-]+)', loop.text)
    names, instructions = [condition.group(1)] if condition else [], []
    while names:
      for instruction in self.computations.get(names.pop(), ()):
        instructions.append(instruction)
        names += [called for _, called in _CALLED.findall(instruction.text)]
    constants = [int(n) for i in instructions if i.kind == 'constant' for n in re.findall(r'constant\((\d+)\)', i.text)]
    compared = [i for i in instructions if i.kind == 'compare' and 'direction=LT' in i.text]
    return constants[0] if len(constants) == len(compared) == 1 else None

  def body(self, instruction: Instruction) -> list[Instruction]:
    """Return a fusion's instructions; () for other instructions."""
    called = re.search(r'calls=%([\w.\-]+)', instruction.text) if instruction.kind == 'fusion' else None
    return self.computations.get(called.group(1), []) if called else []

  def products(self) -> dict[str, float]:
    """Return the operations of products, convolutions and library calls in a step, by the types of their operands."""
    total: dict[str, float] = collections.defaultdict(float)
    for name, factor in self.runs.items():
      shapes = {instruction.name: instruction.result for instruction in self.computations.get(name, ())}
      for instruction in self.computations.get(name, ()):
        types, operations = product(instruction, shapes)
        if operations:
          total[types] += factor * operations
    return dict(total)

  def collectives(self, *, merged: bool = False) -> list[Collective]:
    """Return the collectives of a step, the largest first.

    An asynchronous collective counts once, although all its parts, in separate computations, name its channel. Several
    in one computation are distinct even with one channel, as under `pmap`. So are those fused with a slice of their
    result, each in its own computation.

    Args:
      merged: count equal collectives with the same operands once, as XLA merges them after partitioning.
    """
    channels: dict[tuple[str, str, int], tuple[float, Collective]] = {}
    seen: set[tuple[Any, ...]] = set()
    for name, factor in self.runs.items():
      shapes = {instruction.name: instruction.result for instruction in self.computations.get(name, ())}
      numbers: dict[tuple[str, str], int] = collections.defaultdict(int)  # computations of a channel's collectives
      for instruction in self.computations.get(name, ()):
        kind = next((kind for kind in COLLECTIVES if instruction.kind in (kind, f'{kind}-start')), None)
        transfer = _TRANSFER.search(instruction.text) if instruction.kind == 'send' else None
        if transfer:
          kind = transfer.group(1).lower().replace('_', '-')
        equal = name, kind, instruction.operands, instruction.result
        if kind is None or (merged and equal in seen):
          continue
        seen.add(equal)
        is_fused = name.startswith('all-reduce-scatter')  # with a slice of its result, which a TPU does as one
        if is_fused:
          kind = 'reduce-scatter'
        operands = sum(size(shapes.get(operand, '')) for operand in instruction.operands)
        result = 0 if transfer else size(instruction.result)
        if instruction.kind.endswith('-start'):  # its result has the operands too
          result = operands if instruction.kind == 'all-reduce-start' else max(result - operands, operands)
        channel = re.search(r'channel_id=(\d+)', instruction.text)
        one_of = kind, channel.group(1) if channel and not is_fused else f'{name}/{instruction.name}'
        key = *one_of, numbers[one_of]
        numbers[one_of] += 1
        if key not in channels or factor < channels[key][0]:  # its start may run once while its parts are in a loop
          largest = max(operands, result)
          channels[key] = (
            factor,
            Collective(
              kind,
              round(factor),
              largest,
              instruction.result,
              instruction.op_name,
              groups(instruction.text),
              is_between_slices=transfer is not None,
            ),
          )
    return sorted((one for _, one in channels.values()), key=lambda one: -one.total)

  def arrays(self) -> list[tuple[int, str, str]]:
    """Return (bytes, type, op_name) of the arrays that the program computes, the largest first."""
    sizes: dict[tuple[str, str], int] = {}
    for name in self.runs:
      for instruction in self.computations.get(name, ()) if name not in self.fused else ():
        if instruction.kind not in _NO_ARRAY:
          sizes.setdefault((instruction.result, instruction.op_name), size(instruction.result))
    return sorted(((n, shape, op_name) for (shape, op_name), n in sizes.items()), key=lambda row: -row[0])

  def cycles(self) -> dict[str, float]:
    """Return XLA's estimated cycles of a step by op_name; an instruction without a name counts under its kind."""
    total: dict[str, float] = collections.defaultdict(float)
    for name, factor in self.runs.items():
      for instruction in self.computations.get(name, ()) if name not in self.fused else ():
        total[instruction.op_name or instruction.kind] += factor * instruction.cycles
    return dict(total)

  def attention(self) -> dict[str, int]:
    """Return the calls per step of each attention kernel by name, and of products outside kernels.

    'plain products' have an array of all scores, 'chunked_attention' has the scores of a chunk of queries.
    """
    total: dict[str, float] = collections.defaultdict(float)
    for name, factor in self.runs.items():
      for instruction in self.computations.get(name, ()):
        kernel = _KERNEL.search(instruction.text) if instruction.kind == 'custom-call' else None
        if kernel and ('fmha' in kernel.group(1) or re.search('attention|relative_rows', instruction.op_name)):
          traced = instruction.op_name.removesuffix('/pallas_call').rpartition('/')[2]
          total[kernel.group(1) if 'fmha' in kernel.group(1) else traced] += factor
        is_product = instruction.kind in ('dot', 'convolution') or '"__cublas$' in instruction.text
        if is_product and chunked_attention.SCOPE in instruction.op_name:
          total[f'products of {chunked_attention.SCOPE}'] += factor
        elif is_product and 'BHTS' in instruction.op_name:
          total['plain products'] += factor
    return {name: round(n) for name, n in sorted(total.items())}

  def kernels(self) -> list[Kernel]:
    """Return the Pallas kernel calls in a step, for which XLA has no estimate."""
    return [
      Kernel(
        instruction.name,
        round(factor),
        instruction.op_name,
        _operand_shapes(instruction.text),
        metadata(instruction.text),
      )
      for name, factor in self.runs.items()
      for instruction in self.computations.get(name, ())
      if instruction.kind == 'custom-call' and _PALLAS.search(instruction.text)
    ]


def product(instruction: Instruction, shapes: Mapping[str, str]) -> tuple[str, int]:
  """Return (operand types, operations) of a product, convolution or library call, else ('', 0).

  Args:
    instruction: any instruction.
    shapes: types of the results of its computation, by name.
  """
  if instruction.kind not in ('convolution', 'dot', 'custom-call') or len(instruction.operands) < 2:
    return '', 0
  operands = [_SHAPE.search(shapes.get(operand, '')) for operand in instruction.operands]
  dimensions = [_dimensions(shape) if shape else [] for shape in operands]
  types = '/'.join(sorted({shape.group(1) for shape in operands[:2] if shape}))
  if instruction.kind == 'custom-call':
    return types, libraries.operations(instruction.text, dimensions)
  result = _SHAPE.search(instruction.result)
  if not (operands[0] and operands[1] and result):
    return '', 0
  return types, _operations(instruction, dimensions[0], dimensions[1], _dimensions(result))


def groups(text: str) -> tuple[tuple[int, ...], ...]:
  """Return a collective's device groups, or a permutation's pairs; () is one group of all devices.

  XLA writes them in three ways: as lists; as '[2,4]<=[4,2]T(1,0)', which is 0 to 7 in the shape (4, 2), transposed and
  split into rows of the shape (2, 4); or as mesh axes, "mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a'}".
  """
  listed = re.search(r'(?:replica_groups|source_target_pairs)=\{(\{[\d,{} ]*\})\}', text)
  if listed:
    return tuple(_integers(group) for group in re.findall(r'\{([\d, ]+)\}', listed.group(1)))
  rows = re.search(r'replica_groups=\[([\d,]+)\]<=(\[[\d,]+\]\S*)', text)
  if rows:
    return _rows(_device_numbers(rows.group(2)).reshape(_integers(rows.group(1))))
  mesh = re.search(r'replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(([^{]*)\))? \{([^}]*)\}', text)
  if not mesh:
    return ()
  sizes = {name: int(n) for name, n in re.findall(r"'(\w+)'=(\d+)", mesh.group(1))}
  shape: list[int] = []
  grouped: list[int] = []  # dimensions of `shape` along which devices communicate
  parts = {name: part for name, *part in re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", mesh.group(3))}
  for name, n in sizes.items():
    before, size = (int(part) if part else None for part in parts.get(name, ('', '')))  # part of an axis: (before)size
    grouped += [len(shape) + 1] if name in parts else []
    shape += [before or 1, size or n, n // ((before or 1) * (size or n))]
  numbers = _device_numbers(mesh.group(2) or f'[{math.prod(shape)}]').reshape(shape)
  others = [axis for axis in range(len(shape)) if axis not in grouped]
  count = math.prod(shape[axis] for axis in grouped)
  return _rows(numbers.transpose(others + grouped).reshape(-1, count))


def _integers(text: str) -> tuple[int, ...]:
  return tuple(int(n) for n in re.findall(r'\d+', text))


def _device_numbers(text: str) -> np.ndarray:
  """Return device numbers in a shape and order such as '[4,2]T(1,0)'."""
  shape, _, order = text.partition('T')
  sizes = _integers(shape)
  return np.arange(math.prod(sizes)).reshape(sizes).transpose(_integers(order) or None)


def _rows(numbers: np.ndarray) -> tuple[tuple[int, ...], ...]:
  return tuple(tuple(map(int, row)) for row in numbers)


def float32_share(products: Mapping[str, float]) -> float:
  """Return the share of operations in `Program.products` with a float32 operand."""
  return sum(n for types, n in products.items() if 'f32' in types) / max(sum(products.values()), 1.0)


def size(text: str) -> int:
  """Return the bytes of all array types in a text."""
  return sum(_bytes(name) * math.prod(int(n) for n in dims.split(',') if n) for name, dims in _SHAPE.findall(text))


@functools.cache
def _bytes(name: str) -> int:
  if name in _BITS:
    return _BITS[name] // 8
  digits = re.search(r'\d+', name)
  return max(1, int(digits.group()) // 8) if digits else 0


def _parse(text: str) -> tuple[dict[str, list[Instruction]], str]:
  """Return ({name: instructions}, name of the entry)."""
  computations: dict[str, list[Instruction]] = {}
  current, entry = None, ''
  text = re.sub(r'kernel_metadata=\{\n(.*)\n\}', r'kernel_metadata={\1}', text)  # of a Pallas kernel, on separate lines
  for line in text.splitlines():
    if not line.startswith(' ') and line.endswith('{') and ' -> ' in line:
      name = line.removeprefix('ENTRY ').split(' ', 1)[0].lstrip('%')
      current = computations[name] = []
      entry = name if line.startswith('ENTRY') else entry
    elif current is not None and (match := _INSTRUCTION.match(line)):
      current.append(_instruction(*match.groups()))
  return computations, entry


def _operand_shapes(text: str) -> tuple[tuple[int, ...], ...]:
  """Return the shapes of a custom call's operands of floating point."""
  match = re.search(r'operand_layout_constraints=\{(.*?\})\}', text)
  shapes = _SHAPE.finditer(match.group(1)) if match else ()
  return tuple(tuple(_dimensions(shape)) for shape in shapes if shape.group(1).startswith(('bf', 'f')))


def metadata(text: str) -> dict[str, str]:
  """Return the metadata of a Pallas kernel from its instruction; {} for other instructions."""
  if match := re.search(r'kernel_metadata=(?={)', text):  # its values may contain brackets
    return dict(json.JSONDecoder().raw_decode(text, match.end())[0])
  match = re.search(r'serialized_metadata = "(.*?)"', text)  # of Triton, whose quotation marks are escaped
  return dict(json.loads(match.group(1).replace(r'\22', '"'))) if match else {}


def _instruction(name: str, text: str) -> Instruction:
  end = _closing(text, 0, ' ')  # the type of the result ends at the first blank outside brackets
  kind, _, rest = text[end + 1 :].partition('(')
  operands = re.findall(r'%([\w.\-]+)', rest[: _closing(rest, 1, '')])
  return Instruction(name, kind, text[:end], tuple(operands), text)


def _closing(text: str, depth: int, blank: str) -> int:
  """Return where `blank` is outside brackets, or where the bracket of `depth` 1 closes."""
  for i, c in enumerate(text):
    depth += (c in '([{') - (c in ')]}')
    if not depth and (c == blank or (not blank and c == ')')):
      return i
  return len(text)


def _dimensions(shape: re.Match[str]) -> list[int]:
  return [int(n) for n in shape.group(2).split(',') if n]


def _operations(instruction: Instruction, left: list[int], right: list[int], result: list[int]) -> int:
  """Return 2 per multiply-add of a dot or a convolution, without those with padding or with dilation's zeros."""
  if instruction.kind == 'dot':
    axes = re.search(r'lhs_contracting_dims=\{([\d,]*)\}', instruction.text)
    contracted = [left[int(axis)] for axis in axes.group(1).split(',') if axis] if axes else []
    return 2 * math.prod(result) * math.prod(contracted)
  labels = re.search(r'dim_labels=(\w+)_(\w+)->(\w+)', instruction.text)
  assert labels is not None, instruction.text
  inputs, kernel, outputs = (
    dict(zip(names, sizes, strict=True)) for names, sizes in zip(labels.groups(), (left, right, result), strict=True)
  )
  spatial = sorted(axis for axis in kernel if axis.isdigit())
  window = _window(instruction.text)
  read = lambda name, default: window[name].split('x') if name in window else [default] * len(spatial)
  pairs = 1
  for axis, stride, pad, dilation, kernel_dilation in zip(
    spatial, read('stride', '1'), read('pad', '0_0'), read('lhs_dilate', '1'), read('rhs_dilate', '1'), strict=True
  ):
    steps = int(stride), int(pad.split('_')[0]), int(dilation), int(kernel_dilation)
    pairs *= _pairs(inputs[axis], kernel[axis], outputs[axis], *steps)
  return 2 * pairs * outputs['b'] * outputs['f'] * kernel['i']


def _window(text: str) -> Mapping[str, str]:
  match = re.search(r'window=\{([^}]*)\}', text)
  parts: list[Any] = [part.split('=') for part in match.group(1).split()] if match else []
  return dict(parts)


@functools.cache
def _pairs(inputs: int, kernel: int, outputs: int, stride: int, low: int, dilation: int, kernel_dilation: int) -> int:
  """Return the pairs of an input and a kernel position that a convolution multiplies along one axis."""
  last = (inputs - 1) * dilation
  positions = (o * stride - low + k * kernel_dilation for o in range(outputs) for k in range(kernel))
  return sum(0 <= position <= last and position % dilation == 0 for position in positions)
