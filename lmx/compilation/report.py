"""Report on a compiled training step: memory, communication, operations, and estimated time.

For TPUs the estimate is XLA's: expected cycles per instruction, times loop counts, divided by the chip's clock, without
overlap. XLA has no estimate for Pallas kernels. Those that declare their schedule count the bundles that libtpu
schedules (lmx/compilation/bundles.py). Others of lmx count their operations at half the peak, and the report says so;
the rest are reported without an estimate. For NVIDIA cards it is the minimum time (lmx/compilation/roofline.py).
Collectives are estimated separately, from their bytes over a chip's ring links; traffic between slices is reported
without an estimate. The estimate serves to compare two programs.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lmx.compilation import bound, bundles, cards, hlo, program, roofline, slices, topology
from lmx.kernels import relative_rows, row_attention, splash_attention, triton

RING = {'all-reduce': 2.0, 'all-gather': 1.0, 'reduce-scatter': 1.0, 'all-to-all': 1.0, 'collective-permute': 1.0}
KERNEL_SHARE = 0.5  # of the peak, at which Pallas kernels are assumed to compute
LARGEST = 8  # arrays and collectives in a report
GIB = 2**30


class Calls(NamedTuple):
  """Calls of one Pallas kernel.

  Attributes:
    call: the instruction.
    operations: operations of one call, 0 if they are not known.
    cycles: cycles of one call by its bundles, 0 if they are not known.
  """

  call: hlo.Kernel
  operations: float
  cycles: float


def compile_step(
  step: program.Step, slice_: slices.Topology | cards.Server, dump: str = ''
) -> tuple[dict[str, Any], str]:
  """Compile a step; return (report, HLO text). The text is '' if the compiler runs out of chip memory.

  Args:
    step: the step.
    slice_: the devices.
    dump: folder into which libtpu writes its bundles (`bundles.flags`), '' for none.
  """
  report = about(step, slice_)
  with topology.tracing(slice_):
    lowered = step.lower()
  begin = time.perf_counter()
  try:
    compiled = lowered.compile(compiler_options=topology.options(slice_))
  except Exception as error:  # XLA's error has no specific class
    if 'RESOURCE_EXHAUSTED' not in str(error) and 'out of memory' not in str(error).lower():
      raise
    return report | {'compile_seconds': time.perf_counter() - begin} | _too_large(str(error), slice_), ''
  report['compile_seconds'] = time.perf_counter() - begin
  report |= _memory(compiled.memory_analysis(), slice_)
  text = compiled.as_text()
  if isinstance(slice_, cards.Server):
    report['notes'] += cards.notes(text, report['memory']['total'], slice_.chip)
  return report | read(text, step.model_flops, slice_, scheduled=bundles.read(dump) if dump else {}), text


def read(
  text: str,
  model_flops: float,
  slice_: slices.Topology | cards.Server,
  *,
  estimated: bool = True,
  scheduled: Mapping[str, bundles.Bundles] | None = None,
) -> dict[str, Any]:
  """Return the part of a report that the program's text gives.

  Args:
    text: the program.
    model_flops: operations of the model in a step on all devices.
    slice_: the devices.
    estimated: False if it is only partitioned.
    scheduled: bundles of its instructions.
  """
  compiled = hlo.Program(text)
  products = compiled.products()
  collectives = compiled.collectives(merged=not estimated)
  within, between = _split(collectives, slice_)
  found = compiled.kernels()
  kernels = [
    Calls(one, _kernel_operations(one), cycles)
    for one, cycles in zip(found, bundles.cycles(found, scheduled or {}), strict=True)
  ]
  pallas = sum(one.call.count * one.operations for one in kernels)
  report: dict[str, Any] = {
    'program_flops_per_chip': sum(products.values()) + pallas,
    'pallas_flops_per_chip': pallas,
    'pallas_calls_not_counted': sum(one.call.count for one in kernels if not one.operations and not one.cycles),
    'products': products,
    'float32_share': hlo.float32_share(products),
    'attention': compiled.attention(),
    'collectives': _by_kind(within),
    'between_slices': _by_kind(between),
    'largest_collectives': [
      {'kind': one.kind, 'count': one.count, 'bytes': one.size, 'type': _type(one.shape), 'op_name': one.op_name}
      for one in within[:LARGEST]
    ],
    'largest_arrays': [
      {'bytes': n, 'type': _type(shape), 'op_name': op_name} for n, shape, op_name in compiled.arrays()[:LARGEST]
    ],
    'loops_of_unknown_length': compiled.unknown_loops,
    'loops_of_expected_length': compiled.expected_loops,
  }
  if not (estimated and between):  # compiled, a collective over slices is several
    report['communicated'] = sum(one.total for one in collectives)
  if estimated:
    report['estimate'] = _estimate(compiled, kernels, within, model_flops / slice_.devices, slice_.chip)
  return report


def about(step: program.Step, slice_: slices.Topology | cards.Server) -> dict[str, Any]:
  """Return the part of a report that is known before compilation."""
  mesh = {axis: n for axis, n in step.engine.mesh.shape.items() if n > 1}
  return {
    'model': step.run.model_name,
    'topology': str(slice_),
    'chips': slice_.chips,
    'mode': step.run.parallel.mode,
    'mesh': mesh,
    'rows': step.rows,
    'length': step.length,
    'microbatches': step.microbatches,
    'dtype': step.run.model.dtype,
    'parameters': step.parameters,
    'model_flops_per_chip': step.model_flops / slice_.devices,
    'bound': bound.of_step(step),
    'notes': [*step.notes, *slice_.notes],
  }


def _memory(planned: Any, slice_: slices.Topology | cards.Server) -> dict[str, Any]:
  arguments, temporary = planned.argument_size_in_bytes, planned.temp_size_in_bytes
  total = arguments + planned.output_size_in_bytes - planned.alias_size_in_bytes + temporary
  memory = {'arguments': arguments, 'temporary': temporary, 'total': total, 'chip': slice_.chip.memory * GIB}
  if peak := getattr(planned, 'peak_memory_in_bytes', 0):  # 0 if the compiler does not report it
    memory['peak'] = peak
  return {'fits': total <= memory['chip'], 'memory': memory}


def _too_large(message: str, slice_: slices.Topology | cards.Server) -> dict[str, Any]:
  """Return the memory that a program needs that exceeds a chip's, and its largest arrays, from the message of XLA."""
  used = re.search(r'Used ([\d.]+)([KMG]) of ([\d.]+)([KMG]) hbm', message)
  units = {'K': 2**10, 'M': 2**20, 'G': 2**30}
  memory: dict[str, Any] = {'chip': slice_.chip.memory * GIB}
  if used:
    memory['total'] = round(float(used.group(1)) * units[used.group(2)])
  pattern = r'Size: ([\d.]+)([KMG]).*?Shape: (\S+).*?(?:op_name="([^"]*)"|Allocation type)'
  arrays = [
    {'bytes': round(float(n) * units[unit]), 'type': shape.split('{')[0], 'op_name': op_name or ''}
    for n, unit, shape, op_name in re.findall(pattern, message, re.DOTALL)
  ]
  return {'fits': False, 'memory': memory, 'largest_arrays': arrays[:LARGEST], 'message': message[:2000]}


def _split(
  collectives: Sequence[hlo.Collective], topology_: slices.Topology | cards.Server
) -> tuple[list[hlo.Collective], list[hlo.Collective]]:
  """Return the collectives within slices, and a chip's transfers to other slices.

  A collective over slices first runs within each slice, after which each chip has a shard of the array.
  """
  within = [one for one in collectives if not one.is_between_slices]
  between = [one for one in collectives if one.is_between_slices]
  if isinstance(topology_, cards.Server) or topology_.slices == 1:
    return within, between
  chips = topology_.devices // topology_.slices
  everything = (tuple(range(topology_.devices)),)
  inside = []
  for one in within:
    of_slices = [collections.Counter(device // chips for device in group) for group in one.groups or everything]
    if max(max(counts.values()) for counts in of_slices) > 1:
      inside.append(one)
    if crossing := sum(len(counts) > 1 for counts in of_slices):
      between.append(dataclasses.replace(one, size=one.size * crossing // chips))
  return inside, between


def _by_kind(collectives: Sequence[hlo.Collective]) -> dict[str, dict[str, int]]:
  total: dict[str, dict[str, int]] = collections.defaultdict(lambda: {'count': 0, 'bytes': 0})
  for one in collectives:
    total[one.kind]['count'] += one.count
    total[one.kind]['bytes'] += one.total
  return dict(total)


def _estimate(
  compiled: hlo.Program,
  kernels: Sequence[Calls],
  collectives: Sequence[hlo.Collective],
  work: float,
  chip: slices.Chip | cards.Card,
) -> dict[str, Any]:
  """Return the estimated seconds of a step and its utilisation: `work` operations a chip."""
  details: dict[str, Any] = {}
  if isinstance(chip, cards.Card):
    computing, moved, number = roofline.cost(compiled, chip)
    details = {'moved_bytes': moved, 'kernels': number}
  else:
    cycles = sum(compiled.cycles().values())
    scheduled = sum(one.call.count * one.cycles for one in kernels) / (chip.clock * chip.cores)
    rest = [one for one in kernels if not one.cycles and one.operations]
    assumed = sum(one.call.count * one.operations for one in rest) / (KERNEL_SHARE * chip.peak)
    computing = cycles / chip.clock + scheduled + assumed
    details = {
      'cycles': round(cycles),
      'pallas_seconds': scheduled + assumed,
      'pallas_calls_by_bundles': sum(one.call.count for one in kernels if one.cycles),
      'pallas_calls_at_half_peak': sum(one.call.count for one in rest),
    }
  communicating = sum(RING[one.kind] * one.total for one in collectives) / chip.links
  mfu = lambda seconds: work / chip.peak / max(seconds, 1e-12)
  return details | {
    'compute_seconds': computing,
    'collective_seconds': communicating,
    'mfu_if_overlapped': mfu(max(computing, communicating)),
    'mfu_if_not': mfu(computing + communicating),
  }


def _kernel_operations(kernel: hlo.Kernel) -> float:
  """Return the operations of one call of an lmx kernel, 0 for others."""
  if declared := triton.declared(kernel.metadata):
    return declared.operations
  modules = {'splash': splash_attention, 'row_attention': row_attention, 'relative_rows': relative_rows}
  for name, module in modules.items():
    if name in kernel.op_name:
      return module.operations(kernel.op_name, kernel.shapes)
  return 0.0


def _type(shape: str) -> str:
  return re.sub(r'\{[^}]*\}', '', shape)[:80]


def lines(report: Mapping[str, Any]) -> list[str]:
  """Return a report as lines of text."""
  mesh = ' x '.join(f'{axis} {n}' for axis, n in report['mesh'].items()) or 'one chip'
  text = [
    f'{report["model"]}, {report["parameters"]:,} parameters, on {report["topology"]}: {mesh} ({report["mode"]}), '
    f'{report["rows"]} rows of {report["length"]}, {report["dtype"]}, {report["microbatches"]} microbatch(es)',
    *(f'note: {note}' for note in report['notes']),
  ]
  memory = report.get('memory')
  if memory:
    total = f'{memory["total"] / GIB:.2f}' if 'total' in memory else 'more than'
    parts = [f'{name} {memory[name] / GIB:.2f}' for name in ('arguments', 'temporary', 'peak') if name in memory]
    verdict, limit = 'fits' if report['fits'] else 'does not fit', f'{memory["chip"] / GIB:.0f} GiB a chip'
    text.append(f'{verdict}: {total} of {limit} ({", ".join(parts)})')
  for row in report.get('largest_arrays', ()):
    text.append(f'  array {row["bytes"] / 2**20:10,.1f} MiB  {row["type"]}  {row["op_name"]}')
  for kind, row in report.get('collectives', {}).items():
    text.append(f'{kind}: {row["count"]:,} a step, {row["bytes"] / 1e6:,.1f} MB a chip')
  for kind, row in report.get('between_slices', {}).items():
    text.append(f'{kind} between slices: {row["count"]:,} a step, {row["bytes"] / 1e6:,.1f} MB a chip')
  if report.get('bound') and 'communicated' in report:
    least = sum(report['bound'].values())
    needs = ', '.join(f'{name} {n / 1e6:,.1f}' for name, n in report['bound'].items())
    ratio = report['communicated'] / least
    text.append(
      f'collectives: {report["communicated"] / 1e6:,.1f} MB, {ratio:.2f} of the bound of {least / 1e6:,.1f} ({needs})'
    )
    if 'compile_seconds' not in report and report['microbatches'] > 1:
      text.append('note: after partitioning, XLA moves the reduction of gradients out of the loop over microbatches')
  for row in report.get('largest_collectives', ()):  # within a slice
    name = f'{row["kind"]} {row["count"]:,} x {row["bytes"] / 1e6:,.2f} MB'
    text.append(f'  {name}  {row["type"]}  {row["op_name"]}')
  if 'products' in report:
    model, program_ = (report[f'{name}_flops_per_chip'] for name in ('model', 'program'))
    text.append(f'operations a chip: model {model:.4g}, program {program_:.4g}')
    text.append(f'products in float32: {report["float32_share"]:.1%}')
  if report.get('attention'):
    calls = ', '.join(f'{n:,} {name}' for name, n in report['attention'].items())
    text.append(f'attention a step: {calls}')
  if 'estimate' in report:
    text += _estimate_lines(report)
  if report.get('loops_of_unknown_length'):
    text.append(f'{report["loops_of_unknown_length"]} loops of unknown length count once')
  if report.get('loops_of_expected_length'):
    text.append(
      f"{report['loops_of_expected_length']} loops over an adaptive softmax's tails count as often as under Zipf's law"
    )
  if 'compile_seconds' in report:
    text.append(f'compiled in {report["compile_seconds"]:.1f} s')
  return text


def _estimate_lines(report: Mapping[str, Any]) -> list[str]:
  """Return the estimate of a report, and what it does not count, as lines of text."""
  estimate = report['estimate']
  kind = 'estimate' if 'cycles' in estimate else 'least time, each kernel at the peak or bandwidth of the card'
  text = [
    f'{kind}: compute {estimate["compute_seconds"]:.4g} s, collectives {estimate["collective_seconds"]:.4g} s; MFU '
    f'{estimate["mfu_if_overlapped"]:.3f} if they overlap, {estimate["mfu_if_not"]:.3f} if not'
  ]
  if 'kernels' in estimate:
    declared = f', {report["pallas_flops_per_chip"]:.4g} operations of which are declared by Triton kernels'
    text.append(
      f'{estimate["kernels"]:,} kernels a step move {estimate["moved_bytes"] / 1e9:.1f} GB'
      f'{declared if report["pallas_flops_per_chip"] else ""}'
    )
  if estimate.get('pallas_seconds'):
    scheduled, assumed = estimate['pallas_calls_by_bundles'], estimate['pallas_calls_at_half_peak']
    kinds = [f'{scheduled:,} calls by their scheduled bundles'] if scheduled else []
    kinds += [f'{assumed:,} calls without bundles at {KERNEL_SHARE:.0%} of the peak'] if assumed else []
    text.append(
      f'of which Pallas kernels: {report["pallas_flops_per_chip"]:.4g} operations, '
      f'{estimate["pallas_seconds"]:.4g} s; {", ".join(kinds)}'
    )
  if report['between_slices']:
    text.append('transfers between slices are not in it')
  if report['pallas_calls_not_counted']:
    text.append(f'{report["pallas_calls_not_counted"]} calls of other Pallas kernels are not in it')
  return text
