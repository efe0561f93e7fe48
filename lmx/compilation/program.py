"""A config's training step, for devices that this process may not have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from lmx import objectives
from lmx.config import deferred, resolve, schema
from lmx.data import pipeline
from lmx.data.batching.base import round_up
from lmx.engine import flops, sharding
from lmx.errors import InputError
from lmx.models import registry
from lmx.runs import training

ENDLESS = 100_000  # assumed updates if the run's length depends on absent data
_OPTIONS = {  # options instead of the data, of keys for which it is not --config.KEY=N
  'model.V': '--vocabulary=N',
  'objective.labels': """--config.objective.labels="('O','B-X','I-X')\"""",
}
PROBED = 100  # batches of the data among which the largest is compiled


@dataclasses.dataclass(frozen=True)
class Step:
  """A training step before compilation.

  Attributes:
    run: the run.
    engine: its devices.
    rows: rows of the global batch, with padding rows.
    length: positions of a row.
    microbatches: number of microbatches.
    function: the compiled step's function, see `lmx.engine.sharding.Engine.compile_train`.
    arguments: shapes and shardings of its arguments.
    parameters: number of parameters.
    model_flops: operations of the step on all devices, without recomputation and padding rows.
    notes: source of the shapes, and assumptions about absent data.
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


@dataclasses.dataclass(frozen=True)
class _Inputs:
  """Batches of the step.

  Attributes:
    batch: shapes of the global batch, with padding rows.
    real_rows: rows without padding rows.
    length: positions of a row.
    microbatches, lengths, total_steps, steps_per_epoch: see `lmx.runs.training.build_step`.
    notes: where the shapes come from.
  """

  batch: Mapping[str, jax.ShapeDtypeStruct]
  real_rows: int
  length: int
  microbatches: int
  lengths: tuple[int, ...]
  total_steps: int
  steps_per_epoch: int
  notes: tuple[str, ...]

  @property
  def rows(self) -> int:
    return next(iter(self.batch.values())).shape[0]


def build(config: Any, devices: Sequence[jax.Device], vocabulary: int = 0) -> Step:
  """Return the step that `lmx train` would run on `devices`; nothing is traced before `Step.lower`.

  Batch shapes come from prepared data on this machine, else from the objective.

  Args:
    config: from `lmx.config.resolve.load`.
    devices: see `lmx.compilation.topology`.
    vocabulary: vocabulary size instead of the data's, which is then not read.

  Raises:
    InputError: the config does not fit the devices or the data, or the vocabulary is unknown.
  """
  corpus = None if vocabulary else pipeline.load_prepared(resolve.to_run(config).data)
  if corpus is None:
    run = resolve.to_run(config, *_sizes(config, vocabulary))
    _check_known(run)
    run = resolve.with_counts(run, lambda: [1] * run.model.V)  # the program of any other counts is as large
  else:
    run = resolve.with_corpus(config, corpus)[1]
  engine = training.make_engine(run, devices)
  task = flops.Task(registry.get(run.model_name), run.model, objectives.get(run.objective_name), run.objective)
  inputs = _assumed(run, task, engine) if corpus is None else _of_data(run, corpus, engine)
  built = training.build_step(
    run,
    engine,
    total_steps=inputs.total_steps,
    steps_per_epoch=inputs.steps_per_epoch,
    microbatches=inputs.microbatches,
    lengths=inputs.lengths,
  )
  rows = inputs.rows
  arguments = engine.step_arguments(built.create, lambda: task.model.init_state(run.model, rows), inputs.batch)
  return Step(
    run=run,
    engine=engine,
    rows=rows,
    length=inputs.length,
    microbatches=inputs.microbatches,
    function=built.step,
    arguments=arguments,
    parameters=flops.count(built.shapes),
    model_flops=flops.step_flops(task, inputs.batch) * inputs.real_rows / rows,
    notes=inputs.notes,
  )


def _check_known(run: schema.Run) -> None:
  """Raise InputError with the options for the values that the absent data would give."""
  unknown = deferred.unknown(run)
  if unknown:
    options = ' '.join(_OPTIONS.get(key, f'--config.{key}=N') for key in unknown)
    raise InputError(f'{", ".join(unknown)}: got no prepared data; prepare them (lmx prepare), or add {options}')


def _sizes(config: Any, vocabulary: int) -> tuple[int | None, None, int]:
  """Return the arguments of `resolve.to_run` after the config: V or None, no directory, the source's own size or 0."""
  size, source_size = pipeline.trained_sizes(config.data)
  if config.data.vocabularies == 'separate':
    size, source_size = (vocabulary, vocabulary) if vocabulary else (size * bool(source_size), source_size)
  return vocabulary or size or None, None, source_size


def _of_data(run: schema.Run, corpus: Any, engine: sharding.Engine) -> _Inputs:
  """Return the largest of the data's first batches."""
  plan = training.plan(run, corpus, engine.row_shards)
  batches, shards = plan.batches, engine.row_shards
  probed = min(PROBED, batches.steps)
  parts = [batches(step, slice(0, batches.padded_rows // shards)) for step in range(probed)]  # the rows of a device
  largest = max(parts, key=lambda part: sum(x.nbytes for x in part.values()))
  whole = lambda x: jax.ShapeDtypeStruct((x.shape[0] * shards, *x.shape[1:]), jax.dtypes.canonicalize_dtype(x.dtype))
  batch = {name: whole(x) for name, x in largest.items()}
  shapes = {tuple((name, x.shape) for name, x in sorted(part.items())) for part in parts}
  kind = f'the largest of {len(shapes)} shapes of the first {probed} batches' if len(shapes) > 1 else 'batches'
  rows = next(iter(batch.values())).shape[0]
  return _Inputs(
    batch=batch,
    real_rows=batches.batch_size if rows == batches.padded_rows else rows,
    length=_length(run, batch),
    microbatches=plan.microbatches,
    lengths=batches.lengths,
    total_steps=plan.total_steps,
    steps_per_epoch=batches.steps,
    notes=(f'{kind} of the prepared data', *plan.notes),
  )


def _length(run: schema.Run, batch: Mapping[str, jax.ShapeDtypeStruct]) -> int:
  """Return the number of positions per row."""
  for name, x in batch.items():
    kind, _, axes = name.rpartition('_')
    if kind in ('tokens', 'inputs', 'characters') and 'T' in axes:
      return x.shape[axes.index('T')]
  return run.data.length


def assumed_rows(run: schema.Run) -> int:
  """Return the rows of a batch without the data, without rows of padding."""
  batching = run.data.batching
  if not getattr(batching, 'tokens', 0):
    return run.data.batch_size
  return max(1, batching.tokens // run.data.length // batching.rows_multiple) * batching.rows_multiple


def _assumed(run: schema.Run, task: flops.Task, engine: sharding.Engine) -> _Inputs:
  """Return a batch with the objective's shapes, for absent data."""
  rows, length = assumed_rows(run), run.data.length
  notes = [f"the objective's shapes, rows of {length}, because the data are not prepared here or not read"]
  if getattr(run.data.batching, 'tokens', 0):
    notes.append(f'{rows} rows of {length} tokens assumed, because data.batching.tokens groups rows by their lengths')
  division = training.divide((rows,), 1, run.optim.accumulate, engine.row_shards)
  steps = run.train.steps or ENDLESS
  if not run.train.steps:
    notes.append(f'{steps:,} updates assumed, because train.epochs needs the data')
  return _Inputs(
    batch=task.arguments(round_up(rows, division.multiple), length)[1],
    real_rows=rows,
    length=length,
    microbatches=division.microbatches,
    lengths=(),
    total_steps=steps,
    steps_per_epoch=min(steps, 1000),
    notes=(*notes, *division.notes),
  )
