"""Evaluation time per token, with a memory and by a sliding window (`lmx bench MODEL --evaluation=LENGTHS`).

Dai et al. 2019 (arXiv 1901.02860), section 4.5 and table 9. At the same attention length A:

- a model with a memory reads a text in segments of --length tokens, caches A positions of each layer and predicts
  every token of a segment, each of which attends to A positions;
- the same sizes without a memory, with absolute positions, predict one token from a window of A tokens and move the
  window by one (Al-Rfou et al. 2018). Only the last position goes through the output layer.

Both read --batch rows at once, with random weights and tokens, in alternating rounds of about the same duration. The
paper measured on a GPU with models of unpublished sizes.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lmx.errors import InputError

if TYPE_CHECKING:
  from lmx.types import Array, Batch, Params, State

PAPER = {800: 363, 1800: 773, 2800: 1409, 3800: 1874}  # table 9: slowdown of the sliding window
SEGMENT = 128  # tokens of a segment, as the released evaluation of the 24-layer model


def parse(text: str) -> list[int]:
  """Read attention lengths such as '100,200,400'."""
  parts = text.split(',')
  if not all(part.isdecimal() and 0 < len(part) < 8 and int(part) for part in parts):
    raise InputError(f'--evaluation: got "{text}"; expected attention lengths separated by commas, such as 100,200,400')
  return [int(part) for part in parts]


def measure_all(
  name: str, task: Any, lengths: Sequence[int], segment: int, batch: int, **repeats: int
) -> list[dict[str, Any]]:
  """Time each attention length, print its table row at once, and return all rows.

  Args:
    name: name of the model, for the table.
    task: flops.Task of a model with a memory.
    lengths: attention lengths.
    segment: tokens of a segment.
    batch: number of rows.
    **repeats: `steps`, `warmup` and `rounds` of `measure`.

  Raises:
    InputError: the model has no memory.
  """
  from lmx import placement
  from lmx.engine import devices
  from lmx.reporting import run_log

  if task.model.without_memory(task.cfg) == task.cfg:
    raise InputError(f'--evaluation needs a model with a memory, such as transformer_xl; {name} has none')
  print(f'{name}: evaluation of {batch} rows, in segments of {segment}, on {run_log.device()}')
  print(f'{"attention":>11}{"memory":>14}{"windows":>14}{"slower":>11}  {"rounds":24}{"paper":>8}', flush=True)
  rows = []
  for length in lengths:
    with placement.scope(devices.of_process()):
      measured = measure(task, length, segment, batch, **repeats)
    rows.append(measured | {'name': name, 'device': run_log.device()})
    print(format_row(rows[-1]), flush=True)
  return rows


def build_configs(cfg: Any, length: int) -> tuple[Any, Any]:
  """Return configs (with a memory of `length`, without one and with absolute positions) of the same sizes."""
  return (
    dataclasses.replace(cfg, M=length, same_length=True),
    dataclasses.replace(cfg, M=0, same_length=False, positions='absolute', clamp=0),
  )


def measure(
  task: Any, length: int, segment: int, batch: int, *, steps: int, warmup: int, rounds: int
) -> dict[str, Any]:
  """Time one attention length, in seconds per token."""
  remembering, windowed = build_configs(task.cfg, length)
  reuse = _reuse(dataclasses.replace(task, cfg=remembering), batch, segment)
  slide = _slide(dataclasses.replace(task, cfg=windowed), batch, length)
  short, long = (_measure_times(step, warmup + 2)[-1] for step in (reuse, slide))
  calls = max(1, round(long / short))  # turns of equal duration, so that other programs disturb both alike
  with_memory, by_windows, ratios = [], [], []
  for _ in range(rounds):
    with_memory.append([x / (batch * segment) for x in _measure_times(reuse, steps, calls)])
    by_windows.append([x / batch for x in _measure_times(slide, steps)])
    ratios.append(statistics.median(by_windows[-1]) / statistics.median(with_memory[-1]))
  memory, windows = (statistics.median(sum(rounds, [])) for rounds in (with_memory, by_windows))
  return {
    'attention_length': length,
    'batch': batch,
    'segment': segment,
    'segments_of_a_turn': calls,
    'memory_seconds': memory,
    'window_seconds': windows,
    'ratio': windows / memory,
    'ratio_of_rounds': ratios,
    'paper': PAPER.get(length),
  }


def _measure_times(step: Callable[[], Any], count: int, calls: int = 1) -> list[float]:
  """Return `count` times in seconds of a call, each the mean over `calls` of them."""
  import jax

  times = []
  for _ in range(count):
    begin = time.perf_counter()
    for _ in range(calls):
      output = step()
    jax.block_until_ready(output)
    times.append((time.perf_counter() - begin) / calls)
  return times


def _reuse(task: Any, rows: int, segment: int) -> Callable[[], Any]:
  """Return a function that predicts the next segment of every row, with the memory of the previous call."""
  import jax

  from lmx.engine import flops

  params = jax.jit(task.init)(jax.random.key(0))
  batch = flops.random_batch(task, rows, segment)
  batch.pop('reset_B', None)  # every segment continues the row

  @functools.partial(jax.jit, donate_argnums=2)
  def losses(params: Params, batch: Batch, state: State) -> tuple[Array, State]:
    nll_BT, _, state = task.objective.score(task.objective_cfg, task.model, task.cfg, params, batch, state)
    return nll_BT, state

  state = task.model.init_state(task.cfg, rows)

  def step() -> Any:
    nonlocal state
    nll_BT, state = losses(params, batch, state)
    return nll_BT, state

  return step


def _slide(task: Any, rows: int, length: int) -> Callable[[], Any]:
  """Return a function that predicts one token of every row from a window of `length`."""
  import jax

  from lmx.engine import flops
  from lmx.evaluation import context_length

  params = jax.jit(task.init)(jax.random.key(0))
  batch = flops.random_batch(task, rows, length)
  predict = jax.jit(functools.partial(context_length.last_nll, task.model, task.cfg))
  return lambda: predict(params, batch['tokens_BT'], batch['targets_BT'][:, -1:])


def format_row(row: dict[str, Any]) -> str:
  """Return a row of the table."""
  micro = lambda seconds: f'{1e6 * seconds:,.1f} us'
  rounds = ', '.join(f'{ratio:,.0f}' for ratio in row['ratio_of_rounds'])
  paper = f'{row["paper"]:,}x' if row['paper'] else '-'
  return (
    f'{row["attention_length"]:11,}{micro(row["memory_seconds"]):>14}{micro(row["window_seconds"]):>14}'
    f'{row["ratio"]:10,.0f}x  {rounds:24}{paper:>8}'
  )
