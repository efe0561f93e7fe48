"""Minimum time of a step on an NVIDIA card, for which XLA has no cycle estimate.

Kernels run in sequence. Each reaches the peak of its products or the bandwidth of its arrays, whichever takes longer
(Williams et al. 2009, "Roofline"). Caches do not help, float32 products run in TF32 at half the bfloat16 peak, and
launches take no time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lmx.compilation import cards, hlo

# Instructions that are not kernels, or whose parts are counted separately.
_NO_KERNEL = (
  'parameter constant tuple get-tuple-element bitcast while call conditional after-all partition-id replica-id '
  'opt-barrier async-start async-update async-done'
).split()
_SLICES = ('dynamic-slice', 'slice', 'gather')
_UPDATES = ('dynamic-update-slice', 'scatter')


def seconds(program: hlo.Program, card: cards.Card) -> float:
  """Return the least seconds of a step's kernels on one card, without collectives."""
  total = 0.0
  for name, runs in program.runs.items():
    instructions = program.computations.get(name, ()) if name not in program.fused else ()
    types = {one.name: one.result for one in instructions}
    for one in instructions:
      kind = one.kind.removesuffix('-start').removesuffix('-done')
      if kind not in hlo.COLLECTIVES and one.kind not in _NO_KERNEL:
        body = program.body(one)
        total += runs * max(_computing(body or [one], types, card), traffic(one, body, types) / card.bandwidth)
  return total


def _computing(parts: Sequence[hlo.Instruction], types: Mapping[str, str], card: cards.Card) -> float:
  """Return the seconds of a kernel's products."""
  types = {**types, **{part.name: part.result for part in parts}}
  products = [hlo.product(part, types) for part in parts]
  return sum(operations / (card.peak / 2 if 'f32' in kind else card.peak) for kind, operations in products)


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
  return sum(_read(name, parts, types) for name in read) + sum(_written(output, types) for output in outputs)


def _read(name: str, parts: Sequence[hlo.Instruction], types: Mapping[str, str]) -> int:
  """Return the bytes read from an array: only the slices used, and 0 for an array that is updated in place."""
  whole = hlo.size(types.get(name, ''))
  slices = 0
  for user in parts:
    if name not in user.operands or (user.kind in _UPDATES and user.operands[0] == name):
      continue
    if user.kind not in _SLICES or user.operands[0] != name:
      return whole
    slices += hlo.size(user.result)
  return min(whole, slices)


def _written(one: hlo.Instruction, types: Mapping[str, str]) -> int:
  """Return the bytes that are written of a result: only the update of an array that is updated in its place."""
  return hlo.size(types.get(one.operands[1], '') if one.kind == 'dynamic-update-slice' else one.result)
