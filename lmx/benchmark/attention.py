"""Time and memory of attention, forward and backward, by length (`lmx bench --attention=T,T,...`).

One row of `HEADS` heads of width `WIDTH`: scores, softmax, weighted values, and their gradients, without projections.
It measures both patterns of sparse_attention.py (merged, stride the power of two nearest sqrt(T), `SUMMARY` summary
columns) and dense causal attention, whole and in blocks. Time is the minimum of some runs, in wall-clock seconds and,
on a CPU, in processor seconds, which other programs disturb less. Memory is XLA's plan for temporary arrays. A kind
whose plan exceeds `MOST` bytes is not run. The exponent is the slope of log(value) over log(T) by least squares.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from lmx.errors import InputError

HEADS, WIDTH, SUMMARY = 4, 32, 8
MOST = 3 * 2**30
KINDS = ('strided', 'fixed', 'dense', 'dense, blocked')


def parse(text: str) -> list[int]:
  """Parse lengths from '1024,2048', in their order."""
  try:
    lengths = [int(part) for part in text.split(',')]
  except ValueError:
    lengths = []
  if len(lengths) < 2 or min(lengths) < 16 or max(lengths) > 10_000_000 or len(set(lengths)) < len(lengths):
    raise InputError(
      f'--attention: got "{text}"; expected two or more different lengths of at least 16, such as 1024,2048'
    )
  return lengths


def nearest_stride(length: int) -> int:
  """Return the power of two nearest sqrt(length); of two equally near, the larger."""
  return int(2 ** math.floor(math.log2(length) / 2 + 0.5))


def attention(kind: str, length: int) -> Callable[..., Any]:
  """Return a function of queries, keys and values (B, T, H, K), for one of KINDS."""
  from lmx.ops import attention, sparse_attention
  from lmx.ops.masks import AttentionMask

  if kind.startswith('dense'):
    backend = 'blocked' if kind.endswith('blocked') else 'xla'
    return lambda q, k, v: attention.attend(q, k, v, AttentionMask(), causal=True, backend=backend)
  plan = sparse_attention.Plan(kind, 'merged', nearest_stride(length), SUMMARY, 'released')
  return lambda q, k, v: sparse_attention.attend(q, k, v, AttentionMask(), plan)


def measure_one(kind: str, length: int, runs: int) -> dict[str, Any]:
  """Measure one kind at one length; no times if the memory plan exceeds MOST."""
  import jax
  import jax.numpy as jnp

  from lmx import placement
  from lmx.engine import devices

  attend = attention(kind, length)
  qkv = jax.random.normal(jax.random.key(length), (3, 1, length, HEADS, WIDTH))
  gradient = jax.grad(lambda q, k, v: jnp.sum(jnp.square(attend(q, k, v))), argnums=(0, 1, 2))
  with placement.scope(devices.of_process()):
    compiled = jax.jit(gradient).lower(*qkv).compile()
  analysis: Any = compiled.memory_analysis()
  planned = analysis.temp_size_in_bytes
  row: dict[str, Any] = {'kind': kind, 'length': length, 'stride': nearest_stride(length), 'planned_bytes': planned}
  times = []
  for _ in range(runs + 1 if planned <= MOST else 0):
    begin, used = time.perf_counter(), time.process_time()
    jax.block_until_ready(compiled(*qkv))
    times.append((time.perf_counter() - begin, time.process_time() - used))
  clock, processor = (min(column) for column in zip(*times[1:], strict=True)) if times else (None, None)
  return row | {'seconds': clock, 'processor_seconds': processor}


def exponent(lengths: Sequence[int], values: Sequence[float | None]) -> float | None:
  """Return the slope of log(value) over log(length), None with fewer than two values."""
  points = [(math.log(t), math.log(x)) for t, x in zip(lengths, values, strict=True) if x]
  if len(points) < 2:
    return None
  return statistics.linear_regression(*zip(*points, strict=True)).slope


def measure(lengths: Sequence[int], runs: int) -> list[dict[str, Any]]:
  """Measure every kind at every length, print a table, and return its rows."""
  from lmx.reporting import run_log

  print(f'attention of {HEADS} heads of {WIDTH}, forward and backward, on {run_log.device()}; least of {runs} runs')
  rows = []
  for kind in KINDS:
    print(f'{kind}\n  {"length":>8}  {"stride":>6}  {"clock":>10}  {"processor":>10}  {"memory":>12}')
    kind_rows = [measure_one(kind, length, runs) for length in lengths]
    for f in kind_rows:
      times = [f'{1000 * x:,.0f} ms' if x else 'not run' for x in (f['seconds'], f['processor_seconds'])]
      stride = f['stride'] if kind in ('strided', 'fixed') else ''
      memory = f'{f["planned_bytes"] / 2**20:,.1f} MiB'
      print(f'  {f["length"]:>8}  {stride:>6}  {times[0]:>10}  {times[1]:>10}  {memory:>12}', flush=True)
    columns = ('seconds', 'processor_seconds', 'planned_bytes')
    slopes = [exponent(lengths, [f[name] for f in kind_rows]) for name in columns]
    shown = ['none' if x is None else f'{x:.2f}' for x in slopes]
    print(f'  {"exponent":>16}  {shown[0]:>10}  {shown[1]:>10}  {shown[2]:>12}')
    names = ('clock_exponent', 'processor_exponent', 'memory_exponent')
    rows += [f | dict(zip(names, slopes, strict=True)) for f in kind_rows]
  return rows
