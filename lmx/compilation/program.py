"""The training step of a config, for devices that this process may not have."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from lmx import objectives
from lmx.benchmark import flops
from lmx.config import resolve, schema
from lmx.data.batching.base import round_up
from lmx.engine import sharding
from lmx.errors import InputError
from lmx.models import registry
from lmx.runs import training

ENDLESS = 100_000  # updates of a run whose length depends on data that are absent


@dataclasses.dataclass(frozen=True)
class Step:
  """A training step before compilation.

  Attributes:
    run: the run.
    engine: its devices.
    rows: rows of the global batch.
    length: positions of a row.
    microbatches: number of microbatches.
    function: the compiled step's function, see `lmx.engine.sharding.Engine.compile_train`.
    arguments: shapes and shardings of its arguments.
    parameters: number of parameters.
    model_flops: operations of the step on all devices, without recomputation.
    notes: assumptions where the data are absent.
  """

  run: schema.Run
  engine: sharding.Engine
  rows: int
  length: int
  microbatches: int
  function: Any
  arguments: tuple[Any, ...]
  parameters: int
  model_flops: float
  notes: tuple[str, ...]

  def lower(self) -> Any:
    """Return the `jax.stages.Lowered` of the step."""
    return self.function.lower(*self.arguments)


def build(config: Any, devices: Sequence[jax.Device], vocabulary: int = 0) -> Step:
  """Return the step that `lmx train` would run on `devices`; nothing is traced before `Step.lower`.

  Args:
    config: from `lmx.config.resolve.load`.
    devices: see `lmx.compilation.topology`.
    vocabulary: size of the vocabulary if the config does not give it.

  Raises:
    InputError: the config does not fit the devices, or the vocabulary is unknown.
  """
  run = resolve.to_run(config, vocabulary or _vocabulary(config))
  if not getattr(run.model, 'V', 1):
    raise InputError('model.V: the vocabulary is not known without the data; give it with --vocabulary=N')
  engine = sharding.Engine(run.parallel, devices, matmul_precision=run.matmul_precision)
  rows, length, notes = _batch(run, engine)
  task = flops.Task(registry.get(run.model_name), run.model, objectives.get(run.objective_name), run.objective)
  steps = run.train.steps or ENDLESS
  if not run.train.steps:
    notes.append(f'{steps:,} updates assumed, because train.epochs needs the data')
  built = training.build_step(
    run, engine, total_steps=steps, steps_per_epoch=min(steps, 1000), microbatches=run.optim.accumulate
  )
  arguments = engine.step_arguments(
    built.create, lambda: task.model.init_state(run.model, rows), task.arguments(rows, length)[1]
  )
  work = 3 * flops.flops_per_token(task, rows, length, training=False) * rows * length
  return Step(
    run=run,
    engine=engine,
    rows=rows,
    length=length,
    microbatches=run.optim.accumulate,
    function=built.step,
    arguments=arguments,
    parameters=flops.count(built.shapes),
    model_flops=work,
    notes=tuple(notes),
  )


def _vocabulary(config: Any) -> int | None:
  """Return the configured vocabulary of the tokenizer, if the config gives it."""
  return getattr(config.data, 'vocab_size', 0) or None


def _batch(run: schema.Run, engine: sharding.Engine) -> tuple[int, int, list[str]]:
  """Return (rows, positions, notes) of the global batch, rows of padding included."""
  batching, length, notes = run.data.batching, run.data.length, []
  rows = run.data.batch_size
  if getattr(batching, 'tokens', 0):
    rows = max(1, batching.tokens // length // batching.rows_multiple) * batching.rows_multiple
    notes.append(f'{rows} rows of {length} tokens assumed, because data.batching.tokens groups rows by their lengths')
  division = training.divide((rows,), 1, run.optim.accumulate, engine.row_shards)
  return round_up(rows, division.multiple), length, [*notes, *division.notes]
