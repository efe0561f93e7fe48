"""Minimum time of kernels: of a step on an NVIDIA card, for which XLA has no cycle estimate, and of a profile.

Kernels run in sequence. Each reaches the peak of its products or the bandwidth of its arrays, whichever takes longer
(Williams et al. 2009, "Roofline"). Caches do not help, float32 products run in TF32 at half the bfloat16 peak, and
launches take no time. Triton kernels have the operations and bytes that they declare (lmx/kernels/triton.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lmx.compilation import cards, hlo, slices
from lmx.kernels import triton

# Instructions that are not kernels, or whose parts are counted separately.
_NO_KERNEL = (
  'parameter constant tuple get-tuple-element bitcast while call conditional after-all partition-id replica-id '
  'opt-barrier async-start async-update async-done'
).split()
_SLICES = ('dynamic-slice', 'gather')
_VIEWS = ('bitcast', 'convert', 'reshape', 'slice')  # in a fusion, they read only the elements that are used
_UPDATES = ('dynamic-update-slice', 'scatter')


class Limits(NamedTuple):
  """Limits of a device.

  Attributes:
    peak: FLOP/s of products without a float32 operand.
    peak_float32: FLOP/s of products with one.
    bandwidth: bytes a second of its memory.
  """

  peak: float
  peak_float32: float
  bandwidth: float


class Work(NamedTuple):
  """Work of one run of a kernel: operations of its products, their least seconds, and bytes read and written."""

  operations: float
  computing: float
  moved: float

  def seconds(self, limits: Limits) -> float:
    """Return the kernel's least time."""
    return max(self.computing, self.moved / limits.bandwidth)


class Cost(NamedTuple):
  """Kernels of a step on one card, without collectives.

  Attributes:
    seconds: their least time.
    moved: bytes that they read and write.
    kernels: their number.
  """

  seconds: float
  moved: float
  kernels: int


def cost(program: hlo.Program, card: cards.Card) -> Cost:
  """Return the cost of a step's kernels on one card."""
  limits = of_card(card)
  seconds = moved = kernels = 0.0
  for name, runs in program.runs.items():
    instructions = program.computations.get(name, ()) if name not in program.fused else ()
    types = {one.name: one.result for one in instructions}
    for one in instructions:
      if not is_collective(one) and not is_container(one):
        work = kernel(one, program.body(one), types, limits)
        seconds += runs * work.seconds(limits)
        moved += runs * work.moved
        kernels += runs
  return Cost(seconds, moved, round(kernels))


def of_card(card: cards.Card) -> Limits:
  """Return the limits of an NVIDIA card."""
  return Limits(card.peak, card.peak / 2, card.bandwidth)


def of_device(kind: str) -> Limits | None:
  """Return the limits of a device by its name in JAX, None if unknown.

  A float32 product on a TPU is six bfloat16 passes, the precision that lmx sets.
  """
  for card in cards.CARDS.values():
    if card.kind == kind:
      return of_card(card)
  for chip in slices.CHIPS.values():
    if kind in chip.kinds:
      return Limits(chip.peak, chip.peak / 6, chip.bandwidth)
  return None


def is_collective(one: hlo.Instruction) -> bool:
  """Return whether an instruction is a collective, or a part of an asynchronous one."""
  return one.kind.removesuffix('-start').removesuffix('-done') in hlo.COLLECTIVES


def is_container(one: hlo.Instruction) -> bool:
  """Return whether an instruction is no kernel, or only runs others, such as a loop."""
  return one.kind in _NO_KERNEL


def kernel(one: hlo.Instruction, body: Sequence[hlo.Instruction], types: Mapping[str, str], limits: Limits) -> Work:
  """Return the work of one run of a kernel; see `traffic` for the arguments."""
  if declared := triton.declared(hlo.metadata(one.text)):
    return Work(declared.operations, declared.operations / limits.peak, declared.moved)
  parts = body or [one]
  known = {**types, **{part.name: part.result for part in parts}}
  products = [hlo.product(part, known) for part in parts]
  computing = sum(n / (limits.peak_float32 if 'f32' in kind else limits.peak) for kind, n in products)
  return Work(sum(n for _, n in products), computing, traffic(one, body, types))


def traffic(one: hlo.Instruction, body: Sequence[hlo.Instruction], types: Mapping[str, str]) -> int:
  """Return the bytes that a kernel reads and writes.

  Args:
    one: its instruction.
    body: a fusion's instructions; () for other instructions.
    types: result types in the computation, by name.
  """
  read, outputs, parts = list(dict.fromkeys(one.operands)), [one], [one]
  if body:
    named = {part.name: part for part in body}
    read, parts = [part.name for part in body if part.kind == 'parameter'], list(body)
    outputs = [named[name] for name in body[-1].operands] if body[-1].kind == 'tuple' else [body[-1]]
    types = {name: part.result for name, part in named.items()}
  roots = {output.name for output in outputs}
  return sum(_read(name, parts, types, roots) for name in read) + sum(_written(output, types) for output in outputs)


def _read(name: str, parts: Sequence[hlo.Instruction], types: Mapping[str, str], roots: set[str]) -> int:
  """Return the bytes read from an array: only the slices used, and 0 for an array that is updated in place."""
  whole = hlo.size(types.get(name, ''))
  slices = 0
  for user in parts:
    if name not in user.operands or (user.kind in _UPDATES and user.operands[0] == name):
      continue
    size = hlo.size(user.result)
    if user.kind in _VIEWS:
      used = size if user.name in roots else _read(user.name, parts, types, roots)
      slices += used * whole // max(size, 1) if user.kind == 'convert' else used
    elif user.kind in _SLICES and user.operands[0] == name:
      slices += size
    else:
      return whole
  return min(whole, slices)


def _written(one: hlo.Instruction, types: Mapping[str, str]) -> int:
  """Return the bytes that are written of a result: only the update of an array that is updated in its place."""
  return hlo.size(types.get(one.operands[1], '') if one.kind == 'dynamic-update-slice' else one.result)
