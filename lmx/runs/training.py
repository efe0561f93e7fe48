"""The training step of a run and the arrays that it takes, before any of them exists."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from lmx import objectives
from lmx.config import schema
from lmx.data import pipeline
from lmx.data.batching.base import Batches, round_up
from lmx.engine import sharding, sparse_step, state, step
from lmx.errors import InputError, check_range
from lmx.layout import Layout
from lmx.models import registry
from lmx.optim import build
from lmx.runs.init import init_params, stored_layout
from lmx.types import Array, Params


@dataclasses.dataclass(frozen=True)
class Division:
  """Split of a batch over devices and microbatches.

  Attributes:
    multiple: the batch is padded with rows of weight 0 to a multiple of this.
    microbatches: number of microbatches, groups of similar length included.
    notes: lines for the log if there are rows of padding, or devices that have no others.
  """

  multiple: int
  microbatches: int
  notes: tuple[str, ...]


def divide(row_counts: Sequence[int], groups: int, accumulate: int, row_shards: int) -> Division:
  """Return the split of a run's batches.

  Args:
    row_counts: distinct numbers of rows of the batches, see `Batches.row_counts`.
    groups: number of length groups; if above one, reduced to what the devices share evenly.
    accumulate: number of microbatches without groups.
    row_shards: devices that share the rows.
  """
  unit = row_shards * accumulate
  padded = [round_up(rows, unit) for rows in row_counts]
  divides = lambda k: all(rows % (unit * k) == 0 for rows in padded)
  groups = next((k for k in range(groups, 1, -1) if divides(k)), 1)
  parts = f'{row_shards} devices' + (f' x {accumulate} microbatches' if accumulate > 1 else '')
  sums = [f'{rows:,} + {more - rows:,}' for rows, more in zip(row_counts, padded, strict=True) if more > rows]
  notes = [f'batches are padded with rows of weight 0 for {parts}: {", ".join(sums)} rows'] if sums else []
  # A device's rows are contiguous, and padding comes last.
  idle = min((more - rows) * row_shards // more for rows, more in zip(row_counts, padded, strict=True))
  if idle:
    notes.append(
      f'{idle} of {row_shards} devices are idle, because all their rows are padding; set data.batch_size to a multiple '
      f'of {unit}, set parallel.tensor to divide each row among devices, or use {row_shards - idle} devices'
    )
  fewest = min(range(1, accumulate + 1), key=lambda k: (sum(round_up(n, row_shards * k) for n in row_counts), -k))
  if sum(padded) > 1.1 * sum(row_counts) and fewest < accumulate:
    notes.append(f'optim.accumulate: got {accumulate}; {fewest} needs fewer padding rows on these devices')
  return Division(unit, accumulate * groups, tuple(notes))


@dataclasses.dataclass(frozen=True)
class Plan:
  """The updates of a run.

  Attributes:
    batches: of the training split, with the rows of padding of `Division`.
    microbatches: see `Division`.
    total_steps: number of updates.
    notes: lines for the log.
    words: see `steps_of_words`.
  """

  batches: Batches
  microbatches: int
  total_steps: int
  notes: tuple[str, ...]
  words: Mapping[int, int]


def plan(run: schema.Run, corpus: Any, row_shards: int) -> Plan:
  """Return the updates of a run on its data; see `divide` for `row_shards`. Raises InputError."""
  batches: Any = pipeline.batches(run.data, corpus, 'train', run.seed, train=True)
  if batches.packable:
    if registry.get(run.model_name).pool is None:
      raise InputError(
        f'data.batching.packed: got True with model "{run.model_name}"; expected a model that exports `pool`, such as '
        'bert; set data.batching.packed=False'
      )
    if row_shards * run.optim.accumulate == 1:
      batches = batches.pack()
  division = divide(batches.row_counts(), batches.groups, run.optim.accumulate, row_shards)
  total_steps = run.train.steps or max(1, batches.steps_in(run.train.epochs))
  check_range('train.epochs, as updates,', total_steps, 1, 2**31)  # counted in an int32
  padded = batches.pad_rows(division.multiple)
  notes = (*batches.notes, *division.notes, *_shapes_note(padded))
  words = steps_of_words(run.checkpoint.at_words, batches, corpus.split('train').counts.get('words', 0), total_steps)
  return Plan(padded, division.microbatches, total_steps, notes, words)


def _shapes_note(batches: Batches) -> tuple[str, ...]:
  """Return a log line with the shapes of the batches, each of which is compiled."""
  sizes = [f'{rows:,} x {length:,}' for rows, length in batches.shapes()]
  if len(sizes) < 2:
    return tuple(f'1 shape of batches, {size} {batches.unit}: compiled once, at the first update' for size in sizes)
  return (
    f'{len(sizes)} shapes of batches, {", ".join(sizes)} {batches.unit}: each compiled once, when it first comes',
  )


def step_parts(plan: Plan, dealing: int, batch: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
  """Return (rows, positions of a row) of the parts that a step computes, over all processes and without padding rows.

  Groups of similar length have their truncated length, packed rows that of their sequences.

  Args:
    plan: the updates of the run.
    dealing: devices of this process that assign their own rows to groups, as under `pmap`.
    batch: rows of this process, on the host.
  """
  batches, processes = plan.batches, jax.process_count()
  parts: tuple[tuple[int, int], ...] = ((batches.batch_size // processes, batches.length),)
  if batches.lengths:
    parts = step.microbatch_shapes(batch, plan.microbatches, batches.lengths, dealing)
  elif 'packed_PT' in batch or 'tokens_BT' in batch:
    parts = (batch['packed_PT' if 'packed_PT' in batch else 'tokens_BT'].shape,)
  parts = tuple((rows * processes, length) for rows, length in parts)
  padded = batches.padded_rows > batches.batch_size  # padding rows do not count as work
  return tuple((batches.batch_size if padded and rows == batches.padded_rows else rows, n) for rows, n in parts)


def steps_of_words(amounts: Sequence[int], batches: Batches, words: int, total_steps: int) -> dict[int, int]:
  """Return {updates: training words} for each number of words in `checkpoint.at_words`, in ascending order.

  Args:
    amounts: numbers of words.
    batches: of the training split.
    words: its words; 0 if unknown.
    total_steps: number of updates.

  Raises:
    InputError: the words are unknown, the run reads fewer, or two numbers are reached by the same update.
  """
  if amounts and not words:
    raise InputError(
      f'checkpoint.at_words: got {amounts[0]:,} with {batches.split} data whose words are not counted; expected text '
      'without data.fraction and data.train_documents; limit the text by data.words instead'
    )
  epoch = words * batches.passes
  steps: dict[int, int] = {}
  for amount in sorted(amounts):
    whole, rest = divmod(amount, epoch)
    first = batches.steps_in(whole)
    step = max(1, first + -(-rest * (batches.steps_in(whole + 1) - first) // epoch))
    if step > total_steps:
      raise InputError(
        f'checkpoint.at_words: got {amount:,}, which update {step:,} reaches; expected at most the words of '
        f'{total_steps:,} updates, {epoch:,} in an epoch; remove it, or set train.epochs'
      )
    if step in steps:
      raise InputError(
        f'checkpoint.at_words: got {steps[step]:,} and {amount:,}, both reached by update {step:,}; expected numbers '
        'that are further apart; remove one'
      )
    steps[step] = amount
  return steps


def past_words(words: Mapping[int, int], done: int, saved: Sequence[int]) -> list[str]:
  """Return a line for the log if a resumed run has no checkpoint at some of its `words` any more.

  Args:
    words: see `steps_of_words`.
    done: updates made.
    saved: steps with a checkpoint.
  """
  past = [f'{amount:,}' for step, amount in words.items() if step <= done and step not in saved]
  return [f'checkpoint.at_words: the run is past {", ".join(past)}; no checkpoint is kept for them'] * bool(past)


@dataclasses.dataclass(frozen=True)
class Training:
  """Training step of a run.

  Attributes:
    shapes: shapes of the parameters as the model initialises them.
    layout: layout in which the training state stores them.
    create: pure function from the key of the initialisation to the training state.
    step: `Engine.compile_train` of the step.
  """

  shapes: Params
  layout: Layout
  create: Callable[[Array], state.TrainState]
  step: Any


def make_engine(run: schema.Run, devices: Sequence[jax.Device] | None = None) -> sharding.Engine:
  """Return the engine of a run on these devices; None: all. Raises InputError."""
  row_tables = registry.get(run.model_name).ROW_TABLES
  return sharding.Engine(run.parallel, devices, run.matmul_precision, row_tables)


def build_step(
  run: schema.Run,
  engine: sharding.Engine,
  *,
  total_steps: int,
  steps_per_epoch: int,
  microbatches: int,
  lengths: Sequence[int] = (),
) -> Training:
  """Return the training step of a run; nothing is computed.

  Args:
    run: the run, with the vocabulary of its data.
    engine: its devices.
    total_steps: number of updates.
    steps_per_epoch: updates of a pass over the data.
    microbatches: number of microbatches of an update.
    lengths: see `lmx.engine.step.make_train_step`.
  """
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)
  if engine.placement.reduce_dtype not in ('float32', run.model.dtype):
    raise InputError(
      f'parallel.reduce_dtype: got "{run.parallel.reduce_dtype}" with parallel.fsdp and model.dtype='
      f'{run.model.dtype}; expected products in bfloat16; set model.dtype=bfloat16 or parallel.reduce_dtype=float32'
    )
  parts = (model, run.model, objective, run.objective)
  key = jax.eval_shape(lambda: jax.random.key(0))
  shapes = jax.eval_shape(functools.partial(init_params, run), key)
  layout = stored_layout(run, shapes)
  leaves = run.optim, shapes, functools.partial(model.depth, run.model), run.model.N
  tx = build.make(*leaves, total_steps, steps_per_epoch, layout)
  rate = build.rate(run.optim, total_steps, steps_per_epoch)
  if model.rows is not None and sparse_step.is_sparse(run.optim):
    if run.parallel.reduce_dtype != 'float32':
      raise InputError(
        f'parallel.reduce_dtype: got "{run.parallel.reduce_dtype}"; expected float32, because plain SGD changes only '
        f'the rows that a batch reads; set parallel.reduce_dtype=float32'
      )
    train_step = sparse_step.make(*parts, rate, replicate=engine.constrain_replicated)
  else:
    train_step = step.make_train_step(
      *parts,
      tx,
      rate,
      accumulate=microbatches,
      lengths=lengths,
      ema=run.optim.ema,
      lag=run.optim.asgd_lag,
      total_steps=total_steps,
      reduction=engine.reduction,
      by_group=build.metrics_by_group(*leaves, steps_per_epoch, layout),
      **_by_row(run, model, objective, microbatches),
    )
  create = functools.partial(_create, run, layout, tx)
  return Training(shapes, layout, create, engine.compile_train(train_step, jax.eval_shape(create, key)))


def _by_row(run: schema.Run, model: Any, objective: Any, microbatches: int) -> dict[str, Any]:
  """Return {'read_rows': ...} for `make_train_step` if a step updates only rows that it reads, else {}."""
  is_global = run.parallel.mode == 'jit' and run.parallel.reduce_dtype == 'float32' and microbatches == 1
  if not (objective.read_rows is not None and build.is_by_row(run.optim) and is_global):
    return {}
  return {'read_rows': functools.partial(objective.read_rows, run.objective, model, run.model)}


def _create(run: schema.Run, layout: Layout, tx: Any, key: Array) -> state.TrainState:
  params = layout.store(init_params(run, key))
  return state.create(params, tx, build.average(run.optim, params))
