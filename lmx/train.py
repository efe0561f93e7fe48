"""The training loop: the only file that knows every part.

What decides a run is (config, seed, data): batches, dropout and schedules are functions of the global step, and one
checkpoint holds everything else, so a run killed at any moment goes on to the parameters of one never killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import filelock
import jax
import numpy as np
from etils import epath

from lmx import objectives
from lmx.checkpoint import manager, orbax_format
from lmx.config import resolve as config_lib
from lmx.config import run_files, schema, semantics
from lmx.data import labels, pipeline
from lmx.engine import distributed, sharding, sparse_step, state, step
from lmx.errors import InputError, NonFiniteLoss, check_range
from lmx.evaluation import evaluate, report
from lmx.interrupts import PREEMPTED, Stop, Stopped
from lmx.models import registry
from lmx.optim import averaging, build, schedules
from lmx.reporting import run_log
from lmx.runs import init, restore, transfer
from lmx.runs.init import init_params
from lmx.types import Totals

TRIGGERED = {'triggered': 'averaging begins', 'start': 'the run ends'}  # by optim.asgd
Meta = dict[str, Any]


@dataclasses.dataclass
class Progress:
  """What the loop itself remembers between updates; saved as JSON with every checkpoint.

  Attributes:
    best: lowest validation loss so far, None before the first.
    since_best: looks at the validation split since then.
    plateau: state of the schedule 'plateau'.
    skipped: updates left out because the loss was not finite.
    seconds: training time of all sessions.
    losses: of the looks at the validation split until NT-ASGD's condition held; empty without `optim.asgd`.
    trigger: updates made when it held: where the averaging began, or ('start') the run ended; None before.
  """

  best: float | None = None
  since_best: int = 0
  plateau: schedules.Plateau = dataclasses.field(default_factory=schedules.Plateau)
  skipped: int = 0
  seconds: float = 0.0
  losses: list[float] = dataclasses.field(default_factory=list)
  trigger: int | None = None

  @classmethod
  def of(cls, meta: Meta) -> Progress:
    best = meta['best'] if math.isfinite(meta['best'] or 0.0) else None  # NaN was once kept, and nothing is below it
    return cls(**{**meta, 'best': best, 'plateau': schedules.Plateau(**meta['plateau'])})

  def observe(self, loss: float, optim: build.Config, done: int) -> None:
    """Takes in a look at the validation split after `done` updates."""
    if optim.asgd != 'off' and self.trigger is None:
      self.trigger = done if averaging.triggered(self.losses, loss, optim.nonmono) else None
      self.losses.append(loss)
    better = math.isfinite(loss) and (self.best is None or loss < self.best)
    self.best, self.since_best = (loss, 0) if better else (self.best, self.since_best + 1)
    if optim.schedule == 'plateau':
      self.plateau = build.plateau(optim, self.plateau, loss)


def train(config, workdir, command: Sequence[str] = ()) -> int:
  """Trains, or resumes, the run of `config` in `workdir`; returns 0, or the exit code of a run asked to stop.

  Args:
    config: from `lmx.config.resolve.load` or `resolve`.
    workdir: directory of the run, local or on a bucket.
    command: the command line, for `results.json` and for messages.

  Raises:
    InputError: bad config, data or work directory, or a full disk.
    NonFiniteLoss: see lmx/errors.py.
    KeyboardInterrupt: with a sentence on the newest checkpoint.
  """
  workdir = epath.Path(workdir)
  again = f'`{shlex.join(command)}`' if command else 'the same call'

  def kept() -> str:
    entries = orbax_format.entries(workdir / 'checkpoints')
    return f'step {entries[-1][0]} is kept, {again} continues' if entries else f'no step is saved, {again} begins anew'

  try:
    return _train(config, workdir, command, Stop(kept if command else None), again)
  except KeyboardInterrupt:
    raise KeyboardInterrupt(kept()) from None
  except Stopped:
    print(f'stopped while finishing; {kept()}', file=sys.stderr)
    return PREEMPTED


def _train(config, workdir: epath.Path, command: Sequence[str], stop: Stop, again: str) -> int:
  config, rules = continued(config, workdir)
  run = config_lib.to_run(config)
  engine = sharding.Engine(run.parallel, matmul_precision=run.matmul_precision)
  corpus = load_corpus(run)
  config, run = config_lib.with_corpus(config, corpus)
  check_workdir(workdir, config, corpus)
  session = Session(run, corpus, engine, workdir, config_lib.digest(config))
  evaluate.check(run, session.validation)
  notes = [
    *pipeline.held_out(run.data, corpus),
    *session.batches.notes,
    *report.check(run, corpus, session.measurement),
  ]
  begun = []  # before the work directory is there, so that another init_from can be named for it
  if run.train.init_from and not (run_files.exists(workdir) and orbax_format.entries(workdir / 'checkpoints')):
    begun.append(session.begin_from(run.train.init_from))
  open_workdir(workdir, config, corpus)
  with present(workdir), alone(workdir), manager.Checkpoints(workdir / 'checkpoints', run.checkpoint) as checkpoints:
    session.restore(checkpoints, 'last')
    notes += [*rules, *build.notes(run.optim, session.total_steps, session.batches.steps), *begun]
    with run_log.Logger(
      workdir,
      session.total_steps,
      start_step=session.done,
      every=run.train.log_every,
      tokens_per_step=session.batches.positions() // session.batches.steps,
      primary=jax.process_index() == 0,
    ) as logger:
      for note in notes:
        logger.note(note)
      if session.ended() and (workdir / 'results.json').exists():
        logger.note(f'this run is finished; its results are in {workdir}')
        return 0
      with stop:
        if not session.run_to_end(checkpoints, logger, stop):
          logger.note(f'stopped after update {session.done} of {session.total_steps} and saved; {again} continues')
          return stop.code
        stop.saved()
        report.finish(session, checkpoints, logger, command)
  return 0


def load_corpus(run: schema.Run):
  """The tokenised data of a run; several processes let the first one prepare it."""
  if jax.process_index() == 0:
    corpus = pipeline.load(run.data)
  distributed.barrier('corpus')
  return corpus if jax.process_index() == 0 else pipeline.load(run.data)


def continued(config, workdir) -> tuple[Any, list[str]]:
  """Returns the config under the rules that a run in `workdir` began under, and a line for each earlier rule.

  Raises:
    InputError: its next updates would follow another rule than its first, or its config.json is damaged.
  """
  saved = _saved(workdir)
  if saved is None:
    return config, []
  finished = (workdir / 'results.json').exists()
  fixed = semantics.fixed_since(saved)
  if fixed and not finished:
    raise InputError(
      f'--workdir: {workdir} holds a run that began before a fix of what it computes: {"; ".join(fixed)}. It cannot '
      'continue under another rule; train anew in another --workdir, or finish it with the lmx that began it'
    )
  notes = [
    f'continues under its earlier rule "{name}" (since then: {rule.fix})'
    for name, rule in semantics.earlier(saved).items()
    if not finished
  ]
  config = config_lib.continued(config, saved)
  return config, notes if finished else notes + config_lib.evaluation_changes(saved, config)


def _saved(workdir):
  """Returns the resolved config of the run in `workdir`, None without one; InputError if it is damaged."""
  # Resolved, so that a run continues under a later lmx whose configs have more fields.
  return config_lib.resolve(run_files.read_config(workdir), saved=True) if run_files.exists(workdir) else None


def check_workdir(workdir, config, corpus) -> None:
  """Checks that a run in `workdir` has this config and data; InputError if not, or if it is damaged."""
  saved = _saved(workdir)
  if saved is None:
    return
  config_lib.check_same(saved, config, workdir)
  recorded = run_files.read_data(workdir)['hash']
  if recorded != corpus.hash:
    raise InputError(f'{workdir} was trained on other data (hash {recorded}, now {corpus.hash})')
  run_files.read_tokenizer(workdir)  # verified before the first update


def open_workdir(workdir, config, corpus) -> None:
  """Write the config, the data manifest, the tokenizer and their checksums, where they are missing."""
  try:
    if jax.process_index() == 0 and not run_files.add_sums(workdir):
      run_files.write(workdir, config.to_dict(), {'hash': corpus.hash, **corpus.manifest}, corpus.tokenizer)
  except OSError as error:
    raise InputError(f'cannot use work directory {workdir}: {error}') from None
  distributed.barrier('workdir')


@contextlib.contextmanager
def present(workdir) -> Iterator[None]:
  """Name a work directory that is deleted during a run as the cause of what fails. Raises InputError."""
  try:
    yield
  except Exception as error:
    if run_files.exists(workdir):
      raise
    raise InputError(
      f'--workdir: {workdir} was deleted during the run ({orbax_format.short(error)}); restart in one that stays'
    ) from error


@contextlib.contextmanager
def alone(workdir) -> Iterator[None]:
  """Holds a work directory, which the death of the process gives back; one on a bucket cannot be held.

  Raises:
    InputError: another process trains there.
  """
  with contextlib.ExitStack() as stack:
    if jax.process_index() == 0 and '://' not in os.fspath(workdir):
      try:
        stack.enter_context(filelock.FileLock(workdir / '.lock', blocking=False))
      except filelock.Timeout:
        raise InputError(
          f'{workdir} is in use by another process that trains there; wait for its end, or choose another --workdir'
        ) from None
      except (OSError, RuntimeError):
        pass  # a file system without locks
    yield


def _create(run: schema.Run, tx, key: jax.Array) -> state.TrainState:
  params = init_params(run, key)
  return state.create(params, tx, build.average(run.optim, params))


class Session:
  """One process's share of a run: the compiled steps, the state, and where in the data it stands."""

  def __init__(self, run: schema.Run, corpus, engine: sharding.Engine, workdir, config_hash: str):
    self.run, self.corpus, self.engine = run, corpus, engine
    self.workdir, self.config_hash = workdir, config_hash
    self.model = registry.get(run.model_name)
    self.objective = objectives.get(run.objective_name)
    self.batches = pipeline.batches(run.data, corpus, 'train', run.seed, train=True)
    self.rows = engine.process_rows(self.batches.batch_size)
    self.microbatches = run.optim.accumulate * self._groups()
    for rows in self.batches.row_counts():
      engine.check_batch(rows, self.microbatches)
    # Made before the first update: a split that there is not, or that is too small, would else end the run at its end.
    self.validation = pipeline.batches(run.data, corpus, 'valid', pipeline.EVAL_SEED, train=False)
    self.measurement = pipeline.batches(
      evaluate.final_data(run), corpus, run.evaluation.split, pipeline.EVAL_SEED, train=False
    )
    self.total_steps = run.train.steps or max(1, self.batches.steps_in(run.train.epochs))
    check_range('train.epochs, as updates,', self.total_steps, 1, 2**31)  # an int32 counts them
    self.progress, self.done = Progress(), 0
    self.averaged: tuple[int, ...] = ()  # steps of the checkpoints whose mean the parameters are
    self._unchecked: tuple[int, Any] | None = None
    self._build(jax.random.key(run.seed))

  def _groups(self) -> int:
    """Groups of rows of like length: as many as the config asks for, or the devices can share evenly."""
    unit = self.engine.row_shards * self.run.optim.accumulate
    fits = lambda k: all(rows % (unit * k) == 0 for rows in self.batches.row_counts())
    return next((k for k in range(self.batches.groups, 1, -1) if fits(k)), 1)

  def _build(self, key: jax.Array) -> None:
    """Makes the state before the first update and the two compiled steps."""
    run, parts = self.run, (self.model, self.run.model, self.objective, self.run.objective)
    init_key, train_key = jax.random.split(key)
    self.train_key = self.engine.replicate(train_key)
    self.init_key, self.shapes = init_key, jax.eval_shape(functools.partial(init_params, run), init_key)
    depth = functools.partial(self.model.depth, run.model)
    tx = build.make(run.optim, self.shapes, depth, run.model.N, self.total_steps, self.batches.steps)
    rate = build.rate(run.optim, self.total_steps, self.batches.steps)
    self.state = self.engine.build(functools.partial(_create, run, tx), init_key)
    rows = self.batches.batch_size
    self.model_state = self.engine.build_rows(lambda: self.model.init_state(run.model, rows), rows)
    if sparse_step.suits(self.model, run.optim):
      train_step = sparse_step.make(*parts, rate, everywhere=self.engine.everywhere)
    else:
      train_step = step.make_train_step(
        *parts,
        tx,
        rate,
        accumulate=self.microbatches,
        lengths=self.batches.lengths,
        ema=run.optim.ema,
        lag=run.optim.asgd_lag,
        total_steps=self.total_steps,
      )
    self.train_step = self.engine.compile_train(train_step, self.state)
    measured = (self.model, run.measured, self.objective, run.objective)
    self.eval_step = self.engine.compile_eval(step.make_eval_step(*measured))

  def restore(self, checkpoints: manager.Checkpoints, which: str) -> None:
    """Takes up the newest ('last') or the best intact checkpoint, if there is any; 'average' is the newest with the
    mean of the parameters of several."""
    if not checkpoints.steps():
      return
    if which == 'average':
      self.restore(checkpoints, 'last')
      directory, count = checkpoints.directory, self.run.evaluation.average
      params, self.averaged = restore.average(directory, self.shapes, count)
      self.state = self.state.replace(params=self.engine.build(lambda p: p, params))
      return
    shapes = self.engine.abstract(*self.engine.to_global(self.state, self.model_state))
    saved, meta, self.done = checkpoints.restore(shapes, which)
    self.state, self.model_state = self.engine.from_global(*saved)
    self.progress = Progress.of(meta['progress'])

  def begin_from(self, workdir: str) -> str:
    """Takes parameters of a finished run as the start, all or some parts; returns a line that says which."""
    names = labels.of(self.corpus.manifest)
    taken, note = transfer.take(workdir, self.shapes, self.run.train.init_parts, self.corpus.tokenizer, names)
    create = lambda key, taken: init.merge(init_params(self.run, key), taken)
    params = self.engine.build(create, self.init_key, taken)
    average = self.engine.build(functools.partial(build.average, self.run.optim), params)
    self.state = self.state.replace(params=params, ema=average)
    return note

  def save(
    self, checkpoints: manager.Checkpoints, logger: run_log.Logger, metric: float | None, *, block: bool, planned: bool
  ) -> None:
    """Commits everything that the run needs to go on from here; see `checkpoint.Checkpoints.save`."""
    if not run_files.exists(self.workdir):
      raise FileNotFoundError(f'no config.json in {self.workdir}')  # a checkpoint alone would be of no use
    logger.flush()  # so that a resumed log has the line of this step
    logger.mirror.send()
    meta = {
      'progress': dataclasses.asdict(self.progress),
      'config_hash': self.config_hash,
      'data_hash': self.corpus.hash,
      'versions': run_log.versions(),
    }
    checkpoints.save(self.done, self.engine.to_global(self.state, self.model_state), meta, metric, block, planned)

  def measured(self):
    """The parameters that evaluation and generation use: the running average where there is one."""
    return averaging.value(self.state.ema, self.state.params)

  def evaluate(self, *, final: bool = False) -> Totals:
    """Sums over the validation split, or, `final`, over what the results are measured on."""
    batches, title = (self.measurement, self.run.evaluation.split) if final else (self.validation, 'valid')
    begin = lambda rows: self.model.init_state(self.run.measured, rows)
    return evaluate.measure(self.eval_step, self.measured(), begin, batches, self.engine, title=title)

  def host_params(self):
    """The parameters to measure and to generate with, whole, on this process's first device."""
    return self.engine.on_one(self.measured())

  def ended(self) -> bool:
    """Whether no update is left to do, or the validation loss has stopped to fall (`train.patience`, `optim.asgd`)."""
    patience, progress = self.run.train.patience, self.progress
    fine_tuned = self.run.optim.asgd == 'start' and progress.trigger is not None
    return self.done >= self.total_steps or 0 < patience <= progress.since_best or fine_tuned

  def run_to_end(self, checkpoints: manager.Checkpoints, logger: run_log.Logger, stop: Stop) -> bool:
    """Trains until the last update, or until told to stop (False, after saving)."""
    if self.ended():
      return True
    started = time.monotonic() - self.progress.seconds
    data = self.run.data
    with pipeline.prefetch(self.batches, self.done, self.total_steps, self.rows, data.prefetch, data.workers) as stream:
      for index, batch in stream:
        self.state, self.model_state, metrics = self.train_step(
          self.state, self.model_state, self.engine.put_batch(batch), self.train_key
        )
        self._check()  # the update before, while this one is computed
        self._unchecked, self.done = (index, metrics), index + 1
        logger.train(self.done, metrics, stream.wait_seconds)
        look = self.done == self.total_steps or self._is_time_to_look()
        metric = self._validate(logger) if look else None
        ended, told = self.ended(), stop.requested(self.done)
        self.progress.seconds = time.monotonic() - started
        planned = metric is not None or ended or checkpoints.planned(self.done)
        if planned or told or checkpoints.late(self.done):
          self._check()
          self.save(checkpoints, logger, metric, block=ended or told, planned=planned)
        if ended:
          return True
        if told:
          return False
    return True

  def _is_time_to_look(self) -> bool:
    """Whether the validation split is to be measured after this update: every so often, or after each epoch."""
    every = self.run.train.eval_every
    return self.done % every == 0 if every else self.batches.epoch_of(self.done)[1] == 0

  def _validate(self, logger: run_log.Logger) -> float:
    """Measures the validation split; returns the loss. Raises NonFiniteLoss, also with `train.on_nan` 'skip'."""
    self._check()
    totals = self.evaluate()
    loss = evaluate.loss(self.run, totals)
    report = evaluate.report(self.run, self.corpus.splits['valid'].counts, totals)
    if self.run.optim.asgd != 'off':
      begun = self.run.optim.asgd == 'start' or self.progress.trigger is not None
      report['averaged'] = float(begun)  # 1: the figures are those of the mean
    logger.evaluation(self.done, 'valid', report, evaluate.captions(self.run, self.corpus.manifest, report))
    evaluate.check_finite(self.run, totals, self.measured(), f'the validation split after update {self.done}')
    self.progress.observe(loss, self.run.optim, self.done)
    if self.progress.trigger == self.done:
      logger.note(f'the validation loss no longer falls: {TRIGGERED[self.run.optim.asgd]} after update {self.done}')
      if self.run.optim.asgd == 'triggered':
        started = self.engine.replicate(np.bool_(True))
        self.state = self.state.replace(ema=self.state.ema._replace(begun=started))
    if self.run.optim.schedule == 'plateau':
      scale = self.engine.replicate(np.float32(self.progress.plateau.scale))
      self.state = self.state.replace(lr_scale=scale)
    return loss

  def _check(self) -> None:
    """Looks at the last update not yet looked at: a loss that is not finite stops the run, or is counted."""
    if self._unchecked is None:
      return
    (index, metrics), self._unchecked = self._unchecked, None
    if bool(metrics['finite']):
      return
    rows = self.batches(index)  # of all hosts: a batch is a function of its step
    found = {
      'step': index + 1,
      'loss': float(metrics['loss']),
      'grad_norm': float(metrics['grad_norm']),
      'learning_rate': float(metrics['lr']),
      'batch_indices': rows['index_B'].tolist(),
    }
    if jax.process_index() == 0:
      with (self.workdir / 'nonfinite.jsonl').open('a') as file:
        file.write(json.dumps({k: v if np.all(np.isfinite(v)) else str(v) for k, v in found.items()}) + '\n')
    self.progress.skipped += 1
    where = (
      f'update {index + 1}: loss {found["loss"]}, gradient norm {found["grad_norm"]}, '
      f'learning rate {found["learning_rate"]:.3g}'
    )
    if self.run.train.on_nan == 'stop':
      raise NonFiniteLoss(
        f'the loss is not finite in {where}; the indices of the batch are in nonfinite.jsonl. The parameters are as '
        'before that update. Lower optim.lr, set optim.clip_norm, or leave such updates out with train.on_nan=skip.'
      )
    if self.progress.skipped > self.run.train.max_skips:
      raise NonFiniteLoss(f'{where}: {self.progress.skipped} updates were skipped, more than train.max_skips')
