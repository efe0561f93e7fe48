"""The parts of gpu.sh: parity with the CPU, exact resumption, and the table of both and of the step times.

  python -m benchmarks.gpu expect FOLDER MODEL...       on a CPU: what `parity` compares with
  python -m benchmarks.gpu parity FOLDER FILE.jsonl MODEL...
  python -m benchmarks.gpu resume FILE.jsonl EXPERIMENT...
  python -m benchmarks.gpu table FOLDER

Each model trains `STEPS` steps of SGD at its tiny size with dropout, on the CPU and on the GPU, from the same
parameters and keys. A deviation is the largest difference of a parameter after these steps, divided by the largest
change of one: of float32 the difference of two orders of summation, of bfloat16 its rounding.
"""

from __future__ import annotations

import functools
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

STEPS, ROWS = 4, 8
RATE = 0.05
VOCABULARY = 512  # at most
MOST = {'float32': 1e-3, 'bfloat16': 0.15}  # accepted deviation
CASES = (('float32', 23), ('bfloat16', 24), ('bfloat16', 23))  # compute type, tokens a row
KILL = 12  # logged steps
RESUMED = (
  '--config.train.steps=30',
  '--config.train.eval_every=15',
  '--config.train.log_every=1',
  '--config.checkpoint.every_steps=5',
  '--config.evaluation.baselines=false',
  '--config.samples.count=0',
)


def train(name: str, dtype: str, length: int, params: Any = None) -> tuple[list[float], Any, Any]:
  """Return (losses, parameters before, parameters after) of a model's tiny size on the first device."""
  import jax
  import numpy as np

  from lmx.benchmark.task import build_model, build_task
  from lmx.engine import flops, precision, sharding, sparse_step, state, step
  from lmx.optim import build

  large = getattr(build_model(f'{name}:tiny')[1], 'V', 0) > VOCABULARY
  task, _ = build_task(f'{name}:tiny', [f'dtype={dtype}'] + [f'V={VOCABULARY}'] * large)
  params = params or jax.tree.map(np.asarray, jax.jit(task.init)(jax.random.key(0)))
  cfg = build.Config(optimizer='sgd', lr=RATE)
  tx = build.make(cfg, params, functools.partial(task.model.depth, task.cfg), task.cfg.N, 1000, 100)
  parts, rate = (task.model, task.cfg, task.objective, task.objective_cfg), build.rate(cfg, 1000, 100)
  if task.model.rows is not None and sparse_step.is_sparse(cfg):
    train_step = sparse_step.make(*parts, rate)
  else:
    train_step = step.make_train_step(*parts, tx, rate, total_steps=1000)
  engine = sharding.Engine(sharding.Config(), jax.devices()[:1], precision.default([dtype]))
  train_state = engine.build(lambda p: state.create(p, tx), params)
  rows = engine.build_rows(lambda: task.model.init_state(task.cfg, ROWS), ROWS)
  compiled = engine.compile_train(train_step, train_state)
  key, losses = engine.replicate(jax.random.key(1)), []
  for i in range(STEPS):
    batch = engine.put_batch(flops.random_batch(task, ROWS, length, seed=i))
    train_state, rows, metrics = compiled(train_state, rows, batch, key)
    losses.append(float(metrics['loss']))
  return losses, params, jax.tree.map(np.asarray, train_state.params)


def expect(folder: str, name: str) -> None:
  """Write what every case of a model comes to on this machine's CPU."""
  import numpy as np
  from flax.traverse_util import flatten_dict

  for dtype, length in CASES:
    losses, before, after = train(name, dtype, length)
    arrays = flatten_dict({'before': before, 'after': after}, sep='|')
    np.savez(pathlib.Path(folder, f'{name}_{dtype}_{length}.npz'), losses=np.array(losses), **arrays)


def parity(folder: str, name: str) -> Iterator[dict[str, Any]]:
  """Yield a row for each case of a model."""
  import jax
  import numpy as np
  from flax.traverse_util import unflatten_dict

  for dtype, length in CASES:
    begin = time.perf_counter()
    row: dict[str, Any] = {'part': 'parity', 'name': f'{name}, {dtype}, {length}', 'holds': False}
    try:
      with np.load(pathlib.Path(folder, f'{name}_{dtype}_{length}.npz')) as saved:
        expected = unflatten_dict(dict(saved), sep='|')
      before, known = ({'objective': {}} | expected[key] for key in ('before', 'after'))  # files lack empty ones
      losses, _, after = train(name, dtype, length, before)
      largest = lambda a, b: max(jax.tree.leaves(jax.tree.map(lambda x, y: float(np.abs(x - y).max(initial=0)), a, b)))
      row['deviation'] = largest(known, after) / largest(known, before)
      row['losses'] = [float(b / a - 1) for a, b in zip(expected['losses'], losses, strict=True)]
      row['holds'] = row['deviation'] < MOST[dtype]
    except Exception as error:  # the other models still run
      row['error'] = f'{type(error).__name__}: {error}'[:2000]
    yield row | {'seconds': time.perf_counter() - begin}


def resume(experiment: str) -> Iterator[dict[str, Any]]:
  """Yield one row: is a run that was killed and started again bit-equal to one that was not?"""
  import jax
  import numpy as np

  from lmx.checkpoint import manager

  begin = time.perf_counter()
  row: dict[str, Any] = {'part': 'resume', 'name': experiment, 'holds': False}
  with tempfile.TemporaryDirectory() as root:
    command = [sys.executable, '-m', 'lmx.cli.main', 'train', f'--config=experiments/{experiment}/quickstart.py:tiny']
    whole, killed = pathlib.Path(root, 'whole'), pathlib.Path(root, 'killed')
    start = lambda folder: subprocess.Popen(
      [*command, *RESUMED, f'--workdir={folder}'],
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      encoding='utf-8',
      errors='replace',
    )
    runs = [start(whole), start(killed)]
    log = killed / 'metrics.jsonl'
    while runs[1].poll() is None and not (log.exists() and len(log.read_text(encoding='utf-8').splitlines()) >= KILL):
      time.sleep(0.02)
    row['killed'] = runs[1].poll() is None
    runs[1].send_signal(signal.SIGKILL)
    runs[1].wait()
    runs[1] = start(killed)
    said = [run.communicate()[0] for run in runs]
    if any(run.returncode for run in runs):
      row['error'] = '\n'.join(text[-1000:] for text in said)
    else:
      params = [jax.tree.leaves(manager.restore_params(folder / 'checkpoints')[0]) for folder in (whole, killed)]
      row['holds'] = row['killed'] and all(np.array_equal(a, b) for a, b in zip(*params, strict=True))
  yield row | {'seconds': time.perf_counter() - begin}


def write(path: str, rows: Iterator[dict[str, Any]]) -> None:
  """Append rows to a file of JSON lines, each at once."""
  for row in rows:
    with open(path, 'a', encoding='utf-8') as file:
      print(json.dumps(row), file=file, flush=True)


def table(folder: str) -> list[str]:
  """Return the lines of one Markdown table of all results in a folder, and of what `planned` names without a result.

  Steps of part 'switch' have the difference to the one with all implementations.
  """
  lines = ['| Part | Case | Result | Holds |', '|---|---|---|---|']
  rows = [
    json.loads(line) for path in sorted(pathlib.Path(folder).glob('*.jsonl')) for line in path.open(encoding='utf-8')
  ]
  for row in rows:
    result = f'{row["seconds"]:.0f} s'
    if 'deviation' in row:
      result += f', deviation {row["deviation"]:.1e}, of losses {max(map(abs, row["losses"])):.1e}'
    result = row['error'].strip().splitlines()[-1][:120] if 'error' in row else result
    lines.append(f'| {row["part"]} | {row["name"]} | {result} | {"yes" if row["holds"] else "no"} |')
  for part in ('step', 'switch'):
    timed = {
      path.stem.removeprefix(f'{part}_'): json.loads(path.read_text(encoding='utf-8'))[0]
      for path in sorted(pathlib.Path(folder).glob(f'{part}_*.json'))
    }
    for name, step in timed.items():
      mfu = 'unknown' if step['mfu'] is None else f'{step["mfu"]:.3f}'
      result = f'{1000 * step["step_seconds"]:.2f} ms, {step["tokens_per_second"]:,.0f} tokens/s, MFU {mfu}'
      all_on = timed.get(f'{name.partition(",")[0]},all_on')
      if part == 'switch' and all_on:
        result += f', {1000 * (step["step_seconds"] - all_on["step_seconds"]):+.2f} ms'
      lines.append(f'| {part} | {name} | {result} | |')
  planned = pathlib.Path(folder, 'planned')
  for name in planned.read_text(encoding='utf-8').splitlines() if planned.exists() else ():
    start = '| {} | {}'.format(*name.split())
    if not any(line.startswith((f'{start} ', f'{start}, ')) for line in lines):
      lines.append(f'{start} | no result, see the logs | no |')
  return lines


def main(part: str, path: str, *names: str) -> None:
  """Run one part; see the module's docstring."""
  if part == 'table':
    print('\n'.join(table(path)))
  elif part == 'expect':
    for name in names:
      expect(path, name)
  elif part == 'parity':
    for name in names[1:]:
      write(names[0], parity(path, name))
  else:
    for name in names:
      write(path, resume(name))


if __name__ == '__main__':
  if len(sys.argv) < 3 or sys.argv[1] not in ('table', 'expect', 'parity', 'resume'):
    sys.exit(__doc__)
  main(*sys.argv[1:])
