"""MaxText's training step against lmx's, compiled for TPU slices: maxtext.csv, and the page that prints it.

  python -m benchmarks.maxtext                    print the record in docs/comparison.md
  python -m benchmarks.maxtext tokamax            compile the steps first that have one of these words
  python -m benchmarks.maxtext 124m+v5e-16 lmx    or all words that a '+' joins

lmx does not depend on MaxText. To compile, install both in an environment of Python 3.12, with one JAX and one libtpu
for both; nothing of MaxText's data pipeline or checkpoints is needed:

  pip install -e . jax==0.11.1 libtpu==0.0.46.3 qwix aqtp drjax pathwaysutils omegaconf pydantic jaxtyping einshape
    immutabledict typeguard==2.13.3 psutil xprof huggingface_hub transformers tiktoken sympy
  pip install --no-deps maxtext==0.2.5 tokamax==0.0.14

Both programs are counted by `lmx.compilation.report.read`: XLA's cycles for its own instructions, libtpu's scheduled
bundles for Pallas kernels, bytes of collectives. lmx's kernels declare how often their bundles run; `schedule` derives
it for splash attention.
"""

from __future__ import annotations

import csv
import datetime
import importlib.metadata
import importlib.util
import json
import math
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import slices

RECORD = slices.ROOT / 'benchmarks/maxtext.csv'
PAGE = slices.ROOT / 'docs/comparison.md'
TABLE = '| Step | Program | '  # begins the header of the page's table
LENGTH, VOCABULARY, HEAD = 1024, 50_257, 64
SIZES = {'124m': (768, 12), '1558m': (1600, 48)}  # width, layers
# Without rematerialisation MaxText saves the results of products and attention, and computes the rest again.
REMAT = {'124m': 'minimal_with_context', '1558m': 'full'}
CONFIGS = {  # of lmx, and rows per chip
  ('124m', 'v5e-16'): ('gpt2/webtext.py:124m,pod', '--config.data.batch_size=128', 8),
  ('124m', 'v5e-256'): ('gpt2/webtext.py:124m,pod', '', 2),
  ('1558m', 'v5e-64'): ('gpt2/webtext.py:1558m,pod', '', 8),
}
_BUNDLE = re.compile(r'^\s*(?:0x[0-9a-f]+|0)\s+(?:[A-Z]{2}\s*)?:\s*((?:> ?)*)\s*\{(.*)$', re.MULTILINE)
_START = re.compile(r'(?:Start(?:/End empty)?|End empty|empty) region (\d+)')
_BRANCH = re.compile(r'sbr\.rel \([^)]*\) target = \$region(\d+)')
_CALL = re.compile(
  r'(%([\w.\-]+) = [^\n]*custom_call_target="tpu_custom_call"[^\n]*kernel_metadata=)'
  r'\{\n"xprof_metadata":("(?:[^"\\]|\\.)*")\n\}'
)
_ROWS = re.compile(r'operand_layout_constraints=\{.*?bf16\[(\d+),(\d+),(\d+),\d+\]')
Row = dict[str, str]


def rows() -> list[Row]:
  """Return the record."""
  with RECORD.open(newline='', encoding='utf-8') as file:
    return list(csv.DictReader(file))


def settings(row: Row) -> list[str]:
  """Return MaxText's options for a row: GPT-2 in its GPT-3 block, with the shapes, types and mesh of lmx's recipe."""
  width, layers = SIZES[row['size']]
  chips = int(row['topology'].rpartition('-')[2])
  is_sharded = row['size'] == '1558m'
  options = {
    'run_name': 'compiled',
    'base_output_directory': tempfile.gettempdir(),
    'enable_checkpointing': False,
    'dataset_type': 'synthetic',
    'skip_jax_distributed_system': True,
    'compile_topology': row['topology'],
    'compile_topology_num_slices': 1,
    'ici_data_parallelism': 1 if is_sharded else chips,
    'ici_fsdp_parallelism': chips if is_sharded else 1,
    'per_device_batch_size': CONFIGS[row['size'], row['topology']][2],
    'max_target_length': LENGTH,
    'vocab_size': VOCABULARY,
    'decoder_block': 'gpt3',
    'base_emb_dim': width,
    'base_mlp_dim': 4 * width,
    'base_num_decoder_layers': layers,
    'base_num_query_heads': width // HEAD,
    'base_num_kv_heads': width // HEAD,
    'head_dim': HEAD,
    'trainable_position_size': LENGTH,
    'mlp_activations': "['gelu']",
    'fused_qkv': True,
    'logits_via_embedding': True,
    'normalize_embedding_logits': False,
    'logits_dot_in_fp32': False,
    'enable_dropout': False,
    'dtype': 'bfloat16',
    'weight_dtype': 'float32',
    'opt_type': 'adamw',
    'gradient_clipping_threshold': 1.0,
    'scan_layers': row['layers'] == 'scanned',
    'remat_policy': REMAT[row['size']],
    'attention': 'flash',
    'use_tokamax_splash': row['attention'] == 'tokamax',
    'sa_use_fused_bwd_kernel': True,
  }
  return [f'{name}={value}' for name, value in options.items()]


def compile_step(folder: pathlib.Path, options: Sequence[str]) -> None:
  """Compile MaxText's step as its train_compile.py does, and write the program and its memory into a folder."""
  import jax
  import maxtext
  from flax.core.spmd import logical_axis_rules
  from maxtext.configs import pyconfig
  from maxtext.trainers.pre_train import train, train_compile
  from maxtext.utils import maxtext_utils, sharding

  jax.config.update('jax_default_matmul_precision', None)  # lmx sets float32, MaxText its own where needed
  config = pyconfig.initialize(['', f'{os.path.dirname(maxtext.__file__)}/configs/base.yml', *options])
  mesh = train_compile.get_topology_mesh(config)
  arguments, named, state, _, model = train_compile.get_shaped_inputs(mesh, config)
  parameters, state = sharding.maybe_update_params_sharding_with_opt(config, state)
  state = sharding.build_zero1_input_state_mesh_shardings(config, state, parameters)
  batch = sharding.get_input_data_sharding(config, mesh)
  function, *rest = maxtext_utils.get_functional_train_with_signature(
    train.train_step, batch, state, model, config, parameters
  )
  rules = logical_axis_rules(config.logical_axis_rules)
  compiled = train_compile.jit_and_compile(function, arguments, named, mesh, *rest, config, rules)
  planned = compiled.memory_analysis()
  total = planned.argument_size_in_bytes + planned.output_size_in_bytes - planned.alias_size_in_bytes
  memory = {'total': total + planned.temp_size_in_bytes}
  (folder / 'memory.json').write_text(json.dumps(memory), encoding='utf-8')
  (folder / 'step.hlo').write_text(compiled.as_text(), encoding='utf-8')


def blocks(length: int, queries: int, keys: int) -> tuple[int, int]:
  """Return the numbers of blocks of a causal mask that are visible: whole, in part."""
  starts = [(i, j) for i in range(0, length, queries) for j in range(0, length, keys)]
  whole = sum(j + keys - 1 <= i for i, j in starts)
  return whole, sum(j < i + queries for i, j in starts) - whole


def regions(text: str) -> tuple[int, ...]:
  """Return the bundles of a kernel's innermost predicated regions of the loop over its grid, in order.

  `lmx.compilation.bundles` takes a region with most of the loop for a guard around all of it. The one body of a splash
  kernel is as large.
  """
  starts: dict[str, int] = {}
  branches = []
  for address, (loops, instructions) in enumerate(_BUNDLE.findall(text)):
    for region in _START.findall(instructions):
      starts.setdefault(region, address)
    branches += [(address, region) for region in _BRANCH.findall(instructions) if '>' in loops]
  spans = sorted((at, starts[region]) for at, region in branches if starts.get(region, at) > at)
  inner = [(at, end) for at, end in spans if not any(at < other and until <= end for other, until in spans)]
  return tuple(end - at - 1 for at, end in inner)


def schedule(
  kernel: str, metadata: Mapping[str, Any], calls: int, length: int, sizes: Sequence[int], *, is_tokamax: bool
) -> list[float]:
  """Return the steps of a causal splash kernel's grid, and the share of them in which each predicated region runs.

  Per row and head, the grid has a step per block of queries and block of keys; the forward pass of tokamax has only the
  visible ones. The body of JAX's kernels runs for visible blocks. tokamax has two bodies, for blocks that the mask
  leaves whole and for others. The regions before and after them start and end the sums, once per block of queries
  (forward) or keys (backward).

  Args:
    kernel: its name.
    metadata: its block sizes, as it declares them.
    calls: rows times heads.
    length: positions of a row.
    sizes: bundles of its `regions`.
    is_tokamax: tokamax's kernel, else JAX's.

  Raises:
    ValueError: another kernel, or fewer regions than bodies.
  """
  is_forward, is_backward = '_fwd' in kernel, '_dkv' in kernel
  if is_forward == is_backward:
    raise ValueError(f'{kernel}: expected a forward kernel, or a backward kernel that computes all gradients')
  queries, keys = (metadata[f'block_{axis}{"" if is_forward else "_dkv"}'] for axis in ('q', 'kv'))
  whole, partial = blocks(length, queries, keys)
  steps = whole + partial if is_tokamax and is_forward else math.ceil(length / queries) * math.ceil(length / keys)
  bodies = [whole / steps, partial / steps] if is_tokamax else [(whole + partial) / steps]
  largest = sorted(sorted(range(len(sizes)), key=lambda i: -sizes[i])[: len(bodies)])
  if len(largest) < len(bodies):
    raise ValueError(f'{kernel}: got {len(sizes)} regions; expected at least {len(bodies)}')
  edge = math.ceil(length / (queries if is_forward else keys)) / steps
  shares = [bodies[largest.index(i)] if i in largest else edge for i in range(len(sizes))]
  return [calls * steps, *shares]


def with_schedules(text: str, scheduled: Mapping[str, Any], *, is_tokamax: bool) -> str:
  """Return a program whose splash kernels declare their schedule, as lmx's kernels do.

  Args:
    text: the program.
    scheduled: `lmx.compilation.bundles.Bundles` of its kernels by name; calls of one kernel differ in a number.
    is_tokamax: its kernels are tokamax's.
  """
  from lmx.kernels import score_rows

  by_kind = {name.partition('.')[0]: found.regions for name, found in scheduled.items()}

  def declared(match: re.Match[str]) -> str:
    before, name, quoted = match.groups()
    kind, shape = name.partition('.')[0], _ROWS.search(text, match.start())
    assert shape is not None, name
    count, heads, length = map(int, shape.groups())
    metadata = json.loads(json.loads(quoted))
    steps, *shares = schedule(kind, metadata, count * heads, length, by_kind[kind], is_tokamax=is_tokamax)
    return before + json.dumps(score_rows.schedule(round(steps), shares))

  return _CALL.sub(declared, text)


def count(row: Row, folder: pathlib.Path) -> dict[str, Any]:
  """Return the report on MaxText's step that `compile_step` wrote into a folder.

  The kernels are renamed, because a report takes a splash kernel for lmx's, whose blocks it knows.
  """
  from lmx.compilation import bundles, report
  from lmx.compilation.slices import parse

  scheduled = bundles.read(str(folder / 'llo'))
  for path in folder.glob('llo/*-splash_*[0-9]-final_bundles.txt'):
    name = path.name.split('-')[1]
    scheduled[name] = scheduled[name]._replace(regions=regions(path.read_text(encoding='utf-8', errors='replace')))
  text = (folder / 'step.hlo').read_text(encoding='utf-8')
  text = with_schedules(text, scheduled, is_tokamax=row['attention'] == 'tokamax')
  rename = lambda text: text.replace('splash', 'peer')
  scheduled = {rename(name): found for name, found in scheduled.items()}
  found = report.read(rename(text), 0.0, parse(row['topology']), scheduled=scheduled)
  memory = json.loads((folder / 'memory.json').read_text(encoding='utf-8'))
  return found | {'memory': memory}


def figures(report: Mapping[str, Any]) -> Row:
  """Return the figures of a report, as the record has them.

  Raises:
    ValueError: calls of kernels are not counted by their bundles, or a loop's length is unknown.
  """
  estimate = report['estimate']
  uncounted = report['pallas_calls_not_counted'] + estimate['pallas_calls_at_half_peak']
  if uncounted or report['loops_of_unknown_length']:
    raise ValueError(f'{uncounted} calls without bundles, {report["loops_of_unknown_length"]} loops of unknown length')
  return {
    'date': f'{datetime.date.today()}',
    'jax': importlib.metadata.version('jax'),
    'libtpu': importlib.metadata.version('libtpu'),
    'gib': f'{report["memory"]["total"] / 2**30:.2f}',
    'collectives_mb': f'{report["communicated"] / 1e6:.0f}',
    'compute_s': f'{estimate["compute_seconds"]:.4f}',
    'attention_s': f'{estimate["pallas_seconds"]:.4f}',
    'collectives_s': f'{estimate["collective_seconds"]:.4f}',
  }


def compile_row(row: Row) -> Row:
  """Return a row with the figures of a compilation on this machine."""
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    if row['program'] == 'lmx':
      config, options, _ = CONFIGS[row['size'], row['topology']]
      path = folder / 'report.json'
      words = ['lmx.cli.main', *slices.command({'config': config, 'topology': row['topology'], 'options': options})]
      _run([*words, f'--json={path}'], {})
      commit = subprocess.run(
        ['git', 'describe', '--always'], cwd=slices.ROOT, check=True, capture_output=True, text=True
      )
      return row | {'version': commit.stdout.strip()} | figures(json.loads(path.read_text(encoding='utf-8')))
    from lmx.cli.compile import ENVIRONMENT
    from lmx.compilation import bundles

    _run(
      ['benchmarks.maxtext', '--into', name, *settings(row)],
      {**ENVIRONMENT, 'JAX_ENABLE_COMPILATION_CACHE': 'false', 'LIBTPU_INIT_ARGS': bundles.flags(f'{name}/llo')},
    )
    return row | {'version': importlib.metadata.version('maxtext')} | figures(count(row, folder))


def _run(words: Sequence[str], environment: Mapping[str, str]) -> None:
  """Run a module in a process with an unlimited stack, which libtpu needs."""
  limit, most = resource.getrlimit(resource.RLIMIT_STACK)
  resource.setrlimit(resource.RLIMIT_STACK, (most, most))
  try:
    command = [sys.executable, '-m', *words]
    subprocess.run(command, cwd=slices.ROOT, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
  finally:
    resource.setrlimit(resource.RLIMIT_STACK, (limit, most))


def seconds(row: Row) -> tuple[float, float]:
  """Return the seconds of a step with collectives that overlap the computation, and without overlap."""
  compute, collectives = float(row['compute_s']), float(row['collectives_s'])
  return max(compute, collectives), compute + collectives


def page_lines(record: Sequence[Row]) -> list[str]:
  """Return the table of docs/comparison.md, without rows that are not compiled yet."""
  record = [row for row in record if row['compute_s']]
  heads = (
    'JAX, libtpu',
    'Layers, attention',
    'GiB a chip',
    'Compute, s',
    'Kernels, s',
    'Collectives, s',
    'Overlapped, s',
    'Not, s',
  )
  lines = [f'{TABLE}{" | ".join(heads)} | Times lmx |', '|---' * (len(heads) + 3) + '|']
  ours = {(row['size'], row['topology']): seconds(row) for row in record if row['program'] == 'lmx'}
  for row in record:
    times, base = seconds(row), ours[row['size'], row['topology']]
    cells = [
      f'GPT-2 {row["size"]}, {row["topology"]}',
      f'{row["program"]} {row["version"]}',
      f'{row["jax"]}, {row["libtpu"]}',
      f'{row["layers"]}, {row["attention"]}',
      *(row[key] for key in ('gib', 'compute_s', 'attention_s', 'collectives_s')),
      *(f'{time:.4f}' for time in times),
      '-' if row['program'] == 'lmx' else ', '.join(f'{a / b:.2f}' for a, b in zip(times, base, strict=True)),
    ]
    lines.append(f'| {" | ".join(cells)} |')
  return lines


def page() -> str:
  """Return the text of docs/comparison.md."""
  return slices.replace_table(PAGE.read_text(encoding='utf-8'), TABLE, page_lines(rows()))


def main(words: Sequence[str]) -> None:
  """Compile the rows that `words` name, then write the record and the page."""
  if words[:1] == ['--into'] and len(words) > 1:
    compile_step(pathlib.Path(words[1]), words[2:])
    return
  if words[:1] == ['--help']:
    print(__doc__)
    return
  record = rows()
  unknown = [word for word in words if not any(set(row.values()).issuperset(word.split('+')) for row in record)]
  if unknown:
    sys.exit(f'benchmarks.maxtext: no row of {RECORD.name} has "{unknown[0]}"\n\n{__doc__}')
  if words and importlib.util.find_spec('maxtext') is None:
    sys.exit(f'benchmarks.maxtext: MaxText is not installed\n\n{__doc__}')
  for i, row in enumerate(record):
    values = set(row.values())
    if any(values.issuperset(word.split('+')) for word in words):
      record[i] = compile_row(row)
      print(','.join(record[i].values()), flush=True)
      slices.save(RECORD, record)
  PAGE.write_text(page(), encoding='utf-8')


if __name__ == '__main__':
  main(sys.argv[1:])
