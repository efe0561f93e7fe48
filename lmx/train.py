"""The training loop: the only file that imports every part.

A run is a function of (config, seed, data). Batches, dropout and schedules are functions of the global step, and a
checkpoint holds everything else. So a run killed at any moment resumes to the parameters of one never killed.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from lmx import objectives, storage
from lmx.checkpoint import manager, orbax_format
from lmx.cluster import hosts, notices
from lmx.config import resolve as config_lib
from lmx.config import run_files, schema
from lmx.data import labels, pipeline
from lmx.engine import distributed, flops, peaks, sharding
from lmx.errors import NonFiniteLoss
from lmx.evaluation import evaluate, parts, report, samples
from lmx.interrupts import Stop
from lmx.metrics import metric
from lmx.models import registry
from lmx.optim import averaging, build
from lmx.redaction import redact
from lmx.reporting import ledger as ledgers
from lmx.reporting import profile_schedule, run_log, trackers, utilisation
from lmx.runs import init, profiles, restore, start, training, work_directory
from lmx.runs.init import init_params
from lmx.runs.progress import Progress
from lmx.signals import PREEMPTED, Stopped

TRIGGERED = {'triggered': 'averaging begins', 'start': 'the run ends'}  # by optim.asgd


def train(config: Any, workdir: Any, command: Sequence[str] = (), began: float | None = None) -> int:
  """Train, or resume, the run of `config` in `workdir`; return 0, or the exit code of a run asked to stop.

  Args:
    config: from `lmx.config.resolve.load` or `resolve`.
    workdir: directory of the run, local or on a bucket.
    command: the command line, for `results.json` and for messages.
    began: when the process began, in seconds since the epoch, for the time in `results.json`; None is now.

  Raises:
    InputError: bad config, data or work directory, or a full disk.
    NonFiniteLoss: see lmx/errors.py.
    Stopped: another process of the training has ended, or a signal has ended a worker process of `data.processes`.
    KeyboardInterrupt: its message names the newest checkpoint.
  """
  workdir = storage.path('--workdir', workdir, storage.FOLDER)
  resume_command = f'`{redact(shlex.join(command))}`' if command else 'the same call'

  def describe_checkpoint() -> str:
    entries = orbax_format.entries(workdir / 'checkpoints')
    if not entries:
      return f'no checkpoint is saved, {resume_command} starts from step 0'
    return f'the checkpoint of step {entries[-1][0]} is saved, {resume_command} resumes from it'

  try:
    stop = Stop(describe_checkpoint if command else None)
    return _train(config, workdir, command, stop, resume_command, ledgers.Ledger(began))
  except jax.errors.JaxRuntimeError as error:
    if not distributed.is_lost(error):
      raise
    raise Stopped(f'another process has ended ({orbax_format.short(error)}); {describe_checkpoint()}') from error
  except pipeline.WorkerKilled as error:
    raise Stopped(f'{error}; {describe_checkpoint()}') from error
  except KeyboardInterrupt:
    raise KeyboardInterrupt(describe_checkpoint()) from None
  except Stopped:
    print(f'stopped; {describe_checkpoint()}', file=sys.stderr)
    return PREEMPTED


def _train(
  config: Any, workdir: epath.Path, command: Sequence[str], stop: Stop, resume_command: str, ledger: ledgers.Ledger
) -> int:
  config, rules = work_directory.resume_config(config, workdir)
  run = config_lib.to_run(config, workdir=workdir)
  trackers.check(run.log, workdir)
  engine = training.make_engine(run)
  with ledger.during('data'):
    corpus = load_corpus(run, workdir)
  if jax.process_index() == 0:
    print(f'data: {pipeline.summary(run.data, corpus)}', file=sys.stderr, flush=True)
  config, run = config_lib.with_corpus(config, corpus, workdir)
  work_directory.check(workdir, config, corpus)
  session = Session(run, corpus, engine, workdir, config_lib.digest(config), ledger)
  evaluate.check(run, session.validation)
  # Prepared before the first update, so that a missing or too small split fails now and not after training.
  final = evaluate.final_batches(run, corpus, run.evaluation.split)
  about_data = [
    *run.data.file_notes(),
    *pipeline.held_out_notes(run.data, corpus),
    *(labels.untaught(corpus) if session.objective.labelled(run.objective) else ()),
  ]
  notes = [*about_data, *session.notes, *report.check(run, corpus, final)]
  begun: list[str] = []  # before the work directory exists, so that a bad init_from can be replaced in the same one
  if not (run_files.exists(workdir) and orbax_format.entries(workdir / 'checkpoints')):
    begun = session.initialize()
  work_directory.create(workdir, config, corpus, run.train.init_from)
  settings = {key: value for key, value in config_lib.flatten(config).items() if not key.startswith('log.')}
  with (
    work_directory.watch(workdir),
    work_directory.lock(workdir),
    manager.Checkpoints(
      workdir / 'checkpoints', run.checkpoint, words=session.words, ties=run.train.ties
    ) as checkpoints,
  ):
    with ledger.during('restore'):
      session.restore(checkpoints, 'last')
    checkpoints.prune()
    notes += training.past_words(session.words, session.done, checkpoints.steps())
    if missing := restore.missing_note(workdir, 'last', session.done, ''):
      notes.insert(0, missing)
    notes += [*rules, *build.notes(run.optim, session.total_steps, session.batches.steps), *begun]
    notes += session.selection()
    with (
      run_log.Logger(
        workdir,
        session.total_steps,
        start_step=session.done,
        every=run.train.log_every,
        tokens_per_step=session.batches.positions() // session.batches.steps,
        unit=session.batches.unit,
        primary=jax.process_index() == 0,
        settings=settings,
        meter=session.meter(),
        ledger=ledger,
      ) as logger,
      trackers.Trackers(run.log, logger, workdir.name, settings, session.config_hash) as session.trackers,
      hosts.Host(workdir, ledger, run.train, logger.note),
    ):
      for note in notes:
        logger.note(note)
      if session.is_finished() and (workdir / 'results.json').exists():
        logger.note(f'this run is finished; its results are in {workdir}')
        session.trackers.finish()
        return 0
      with stop, notices.Notice(logger.note):
        if session.complete(checkpoints, logger, command, stop):
          return 0
        logger.note(f'stopped after update {session.done} of {session.total_steps} and saved; {resume_command} resumes')
        return stop.code


def load_corpus(run: schema.Run, workdir: Any = None) -> Any:
  """Return a run's tokenised data; with several processes, process 0 prepares it.

  A run that has started in `workdir` has its vocabulary there, so it no longer needs the data.vectors file.
  """
  data = run.data if workdir is None else run_files.with_own_words(run.data, workdir)
  recorded = {} if data is run.data else run_files.read_data(workdir)
  if jax.process_index() == 0:
    corpus = pipeline.load(data)
  distributed.barrier('corpus')
  corpus = corpus if jax.process_index() == 0 else pipeline.load(data)
  has_labels = objectives.get(run.objective_name).labelled(run.objective)
  if workdir is not None and not run_files.exists(workdir) and has_labels:
    labels.check_training(corpus, run.data.training_files())
  return corpus.with_record({'vectors': recorded['vectors']}) if 'vectors' in recorded else corpus


class Session:
  """One process's share of a run: the compiled steps, the state, and the position in the data."""

  def __init__(
    self,
    run: schema.Run,
    corpus: Any,
    engine: sharding.Engine,
    workdir: Any,
    config_hash: str,
    ledger: ledgers.Ledger | None = None,
  ):
    self.ledger = ledgers.Ledger() if ledger is None else ledger
    self.run, self.corpus, self.engine = run, corpus, engine
    self.workdir, self.config_hash = workdir, config_hash
    self.model = registry.get(run.model_name)
    self.objective = objectives.get(run.objective_name)
    plan = training.plan(run, corpus, engine.row_shards)
    self.batches, self.microbatches, self.total_steps = plan.batches, plan.microbatches, plan.total_steps
    self.notes, self.words = plan.notes, plan.words
    profile_schedule.check(run.train.profile, run.train.profile_hosts, plan.total_steps, jax.process_count())
    dealing = engine.row_shards // jax.process_count() if run.parallel.mode == 'pmap' else 1
    self.step_parts = functools.partial(training.step_parts, plan, dealing)
    self.task = flops.Task(self.model, run.model, self.objective, run.objective)
    self.rows = engine.process_rows(self.batches.padded_rows)
    self.validation = pipeline.batches(run.data, corpus, 'valid', pipeline.EVAL_SEED, train=False)
    self.progress, self.done = Progress(), 0
    self.averaged: tuple[int, ...] = ()  # steps of the averaged checkpoints
    self.trackers: trackers.Trackers | None = None
    self._unchecked: tuple[int, Any] | None = None
    with self.ledger.during('build'):
      self._build(jax.random.key(run.seed))
    predicted = parts.get(self.objective.EVALUATION).SCORES
    self.best_by = evaluate.score_name(run, self.shapes, self.validation, corpus.splits['valid'].counts, predicted)

  def _build(self, key: jax.Array) -> None:
    """Initialize the state and compile the training step."""
    run, batches = self.run, self.batches
    self.init_key, train_key = jax.random.split(key)
    self.train_key = self.engine.replicate(train_key)
    built = training.build_step(
      run,
      self.engine,
      total_steps=self.total_steps,
      steps_per_epoch=batches.steps,
      microbatches=self.microbatches,
      lengths=batches.lengths,
    )
    self.shapes, self.layout, self.train_step = built.shapes, built.layout, built.step
    self.state = self.engine.build(built.create, self.init_key)
    rows = batches.padded_rows
    self.model_state = self.engine.build_rows(lambda: self.model.init_state(run.model, rows), rows)

  def meter(self) -> utilisation.Meter:
    """Return the counter of the training's utilisation."""
    mesh, dtype = self.engine.mesh, self.run.model.dtype
    return utilisation.Meter(
      self.step_parts,
      functools.partial(flops.part_flops, self.task),
      functools.partial(peaks.run_peak, dtype, mesh.size),
      utilisation.count_chips(mesh.devices.flat),
    )

  @functools.cached_property
  def run_id(self) -> str:
    """Random name of the run, read once; the work directory must exist."""
    return run_files.read_run_id(self.workdir)

  def restore(self, checkpoints: manager.Checkpoints, which: str) -> None:
    """Restore the newest ('last') or the best intact checkpoint, if there is one.

    'average' restores the newest one with the mean of several checkpoints' parameters.
    """
    if not checkpoints.steps():
      return
    if which == 'average':
      self.restore(checkpoints, 'last')
      directory, count = checkpoints.directory, self.run.evaluation.average
      params, self.averaged = restore.average(directory, self.shapes, self.layout, count)
      self.state = self.state.replace(params=self.engine.build(self.layout.store, params))
      return
    state, model_state = self._global_arrays()
    layouts = {}

    def abstract(saved: Mapping[str, tuple[int, ...]]) -> Any:
      """Return the shapes of the state in the layout of the checkpoint."""
      layouts['saved'] = self.layout.detect(saved)
      return self.engine.abstract(jax.eval_shape(self.layout.converter(layouts['saved']), state), model_state)

    (state, model_state), meta, self.done = checkpoints.restore(abstract, which)
    self.state, self.model_state = self.engine.from_global(state, model_state, self.batches.padded_rows)
    if layouts['saved'] != self.layout:
      self.state = self.engine.convert(layouts['saved'].converter(self.layout), self.state)
    restore.check_own(self.workdir, self.done, meta)
    self.progress = Progress.from_dict(meta['progress'])

  def initialize(self) -> list[str]:
    """Initialize parameters as `train.init_from` and `data.vectors` give them; return a line for each that is set.

    Raises:
      InputError: see `start.take`.
    """
    taken, notes = start.take(self.run, self.shapes, self.corpus, self.init_key)
    if taken:
      create = lambda key, taken: self.layout.store(init.merge(init_params(self.run, key), taken))
      self.state = self.state.replace(params=self.engine.build(create, self.init_key, taken))
      if self.state.ema is not None:
        average = lambda state: state.replace(ema=build.average(self.run.optim, state.params))
        self.state = self.state.replace(ema=self.engine.convert(average, self.state.replace(opt_state=())).ema)
    return notes

  def save(
    self, checkpoints: manager.Checkpoints, logger: run_log.Logger, metric: float | None, *, block: bool, planned: bool
  ) -> None:
    """Save all that the run needs to resume from this update; see `checkpoint.manager.Checkpoints.save`."""
    if not run_files.exists(self.workdir):
      raise FileNotFoundError(f'no config.json in {self.workdir}')  # resuming also needs config.json
    with self.ledger.during('checkpoint'):
      self._save(checkpoints, logger, metric, block=block, planned=planned)
    self.ledger.write(saved=True)

  def _save(
    self, checkpoints: manager.Checkpoints, logger: run_log.Logger, metric: float | None, *, block: bool, planned: bool
  ) -> None:
    logger.flush()  # so that a resumed run's log has this step
    logger.mirror.send()
    meta = {
      'progress': dataclasses.asdict(self.progress),
      'run': self.run_id,
      'config_hash': self.config_hash,
      'data_hash': self.corpus.hash,
      'versions': run_log.versions(),
    }
    checkpoints.save(self.done, self._global_arrays(), meta, metric, block, planned)
    if self.trackers is not None:
      self.trackers.commit(checkpoints.steps, self.done)

  def _global_arrays(self) -> tuple[Any, Any]:
    """Return the arrays of a checkpoint."""
    return self.engine.to_global(self.state, self.model_state, self.batches.batch_size)

  def evaluation_params(self) -> Any:
    """Return the parameters to evaluate: the running average if the run has one."""
    if self.state.ema is None:
      return self.state.params
    return self.engine.gather_average(averaging.value(self.state.ema, self.state.params))

  def is_finished(self) -> bool:
    """Return whether no update is left; see `Progress.is_finished`."""
    run = self.run
    return self.progress.is_finished(self.done, self.total_steps, run.train, run.optim)

  def complete(
    self, checkpoints: manager.Checkpoints, logger: run_log.Logger, command: Sequence[str], stop: Stop
  ) -> bool:
    """Train, evaluate and write the results; return False when asked to stop before the last update."""
    self.ledger.enter('other')
    self.ledger.begin(self.done)
    if not self.train(checkpoints, logger, stop):
      return False
    stop.saved()
    with self.ledger.during('evaluation'):
      self.finish(checkpoints, logger, command)
    return True

  def train(self, checkpoints: manager.Checkpoints, logger: run_log.Logger, stop: Stop) -> bool:
    """Train to the last update and return True; when asked to stop, save and return False."""
    if self.is_finished():
      return True
    started = time.monotonic() - self.progress.seconds
    data = self.run.data
    ahead = (data.prefetch, data.workers, data.processes)
    profiled = (self.run.train.profile, self.run.train.profile_hosts, self.workdir)
    with (
      pipeline.prefetch(self.batches, self.done, self.total_steps, self.rows, *ahead) as stream,
      self.ledger.during('host'),
      profiles.Profiler(*profiled, lambda: jax.block_until_ready(self.state), logger) as profiler,
    ):
      for index, batch in self.ledger.waiting(stream):
        placed = self.engine.put_batch(batch)
        with profiler.update(index + 1), self.ledger.during('steps'), logger.compiling(index + 1, batch):
          self.state, self.model_state, metrics = self.train_step(self.state, self.model_state, placed, self.train_key)
        self._check_finite()  # the previous update, while this one is computed
        self._unchecked, self.done = (index, metrics), index + 1
        logger.train(self.done, metrics, stream.wait_seconds)
        validating, sampling = self._is_validation_due(), self._is_sample_due()
        if validating or sampling:
          profiler.end()
        score = self._validate(checkpoints, logger) if validating else None
        if sampling:
          self._sample(logger)
        finished = self.is_finished()
        with self.ledger.during('steps'):  # the hosts wait for one another
          stopping = stop.requested(self.done)
          planned = score is not None or finished or checkpoints.is_planned(self.done)
          is_due = planned or stopping or checkpoints.is_kept(self.done) or checkpoints.is_late(self.done)
        self.progress.seconds = time.monotonic() - started
        if is_due:
          profiler.end()
          self._check_finite()
          self.save(checkpoints, logger, score, block=finished or stopping, planned=planned)
        if finished:
          self._note_end(logger)
          return True
        if stopping:
          return False
    return True

  def _note_end(self, logger: run_log.Logger) -> None:
    """Report the reason if training ends before its last update."""
    reason = self.progress.end_reason(self.run.train, self.run.optim, self.best_by)
    if self.done < self.total_steps and reason:
      logger.note(f'stopping after update {self.done} of {self.total_steps}: {reason}')

  def selection(self) -> list[str]:
    """Return a line with the score that selects checkpoints, unless it is the loss."""
    if self.best_by == 'loss':
      return []
    follows = self.run.optim.schedule == 'plateau' and self.run.optim.plateau_by == 'score'
    also = ', which also reduces the learning rate' * follows
    return [f'{self.best_by} of the validations selects the best checkpoint{also} (train.best_by)']

  def _is_validation_due(self) -> bool:
    """Return whether to validate after this update: the last one, every `eval_every`, or the last of an epoch."""
    if self.done == self.total_steps:
      return True
    every = self.run.train.eval_every
    return self.done % every == 0 if every else self.batches.epoch_of(self.done)[1] == 0

  def _is_sample_due(self) -> bool:
    """Return whether to write samples after this update."""
    return bool(self.run.samples.every) and self.done % self.run.samples.every == 0

  def _validate(self, checkpoints: manager.Checkpoints, logger: run_log.Logger) -> float:
    """Validate and return the score, lower is better: the loss, or the metric `train.best_by`.

    Raises NonFiniteLoss, also if `train.on_nan` is 'skip'.
    """
    self._check_finite()
    with self.ledger.during('validation'):
      return self._measure(checkpoints, logger)

  def _measure(self, checkpoints: manager.Checkpoints, logger: run_log.Logger) -> float:
    params = self.evaluation_params()
    totals = evaluate.compute_totals(self.run, params, self.validation, self.engine, title='valid')
    loss = evaluate.compute_loss(self.run, totals)
    metrics = evaluate.report(self.run, self.corpus.splits['valid'].counts, totals)
    if math.isfinite(loss):
      metrics |= report.validation_scores(self.run, self.corpus, params, self.engine, self.best_by)
    if self.run.optim.asgd != 'off':
      begun = self.run.optim.asgd == 'start' or self.progress.trigger is not None
      metrics['averaged'] = float(begun)  # 1: the averaged parameters were evaluated
    score = loss
    if self.best_by != 'loss':
      score = metric.orient(self.objective.METRICS, self.best_by, metrics.get(self.best_by, math.nan))
    captions = evaluate.metric_captions(self.run, self.corpus.manifest, metrics)
    is_best = self.best_by != 'loss' and self.progress.improves(score, self.run.train.ties)
    logger.evaluation(self.done, 'valid', metrics, captions, best_by=self.best_by * is_best)
    evaluate.check_finite(self.run, totals, params, f'the validation split after update {self.done}')
    reductions = self.progress.plateau.reductions
    self.progress.observe(loss, self.run.train, self.run.optim, self.done, score)
    if self.progress.trigger == self.done:
      logger.note(f'the validation loss no longer falls: {TRIGGERED[self.run.optim.asgd]} after update {self.done}')
      if self.run.optim.asgd == 'triggered':
        started = self.engine.scalar(np.bool_(True))
        self.state = self.state.replace(ema=self.state.ema._replace(begun=started))
    if self.progress.plateau.reductions > reductions:
      self._reduce_rate(checkpoints, logger)
    return score

  def _sample(self, logger: run_log.Logger) -> None:
    """Write samples of the current parameters."""
    self._check_finite()
    with self.ledger.during('samples'):
      params = self.engine.to_one_device(self._evaluated(self.evaluation_params()))
      if text := samples.generate_samples(self.run, self.corpus, params, (), self.workdir):
        logger.samples(text, self.done)

  def _evaluated(self, params: Any) -> Any:
    """Return parameters in the layout of the model, for evaluation."""
    return params if self.layout.is_own else self.engine.convert(self.layout.view, params)

  def _reduce_rate(self, checkpoints: manager.Checkpoints, logger: run_log.Logger) -> None:
    """Set the rate that the plateau has reduced; with `optim.restore_best` also the best validation's parameters."""
    optim, plateau, best = self.run.optim, self.progress.plateau, self.progress.best_step
    followed = 'loss' if optim.plateau_by == 'loss' else self.best_by
    text = f'{followed} is no better: optim.lr is now {optim.lr * plateau.scale:.3g}'
    self.state = self.state.replace(lr_scale=self.engine.scalar(np.float32(plateau.scale)))
    if optim.restore_best and best not in (None, self.done):  # the current ones may be the best, by too little
      checkpoints.wait()
      params, _, _ = manager.restore_params(checkpoints.directory, self.shapes, best, layout=self.layout)
      self.state = self.state.replace(params=self.engine.build(self.layout.store, jax.device_get(params)))
      text += f', and the parameters are those after update {best}'
    logger.note(text)

  def _check_finite(self) -> None:
    """Check the loss of the last update: a non-finite one stops the run or is counted, as `train.on_nan` sets."""
    if self._unchecked is None:
      return
    (index, metrics), self._unchecked = self._unchecked, None
    with self.ledger.during('steps'):
      is_finite = bool(metrics['finite'])
    if is_finite:
      return
    batch = self.batches(index)  # the global batch, a function of its step
    where = _record_nonfinite(self.workdir, index + 1, metrics, batch)
    self.progress.skipped += 1
    if self.run.train.on_nan == 'stop':
      raise NonFiniteLoss(
        f'the loss is not finite in {where}; the indices of the batch are in nonfinite.jsonl. The parameters are as '
        'before that update. Lower optim.lr, set optim.clip_norm, or skip such updates with train.on_nan=skip.'
      )
    if self.progress.skipped > self.run.train.max_skips:
      raise NonFiniteLoss(f'{where}: {self.progress.skipped} updates were skipped; expected at most train.max_skips')

  def finish(self, checkpoints: manager.Checkpoints, logger: run_log.Logger, command: Sequence[str]) -> dict[str, Any]:
    """Evaluate the parameters of `evaluation.which` and write the results of the run; return them."""
    run, progress = self.run, self.progress
    score = None if self.best_by == 'loss' else progress.best_score
    trained: dict[str, Any] = {
      'seed': run.seed,
      'config_hash': self.config_hash,
      'steps': self.done,
      'epochs': round(self.batches.passes * self.done / self.batches.steps, 4),
      'command': redact(list(command)),
      'training_seconds': progress.seconds,
      'skipped_updates': progress.skipped,
      **({} if progress.best is None else {'validation_loss': progress.best}),
      **(
        {}
        if score is None
        else {f'validation_{self.best_by}': metric.orient(self.objective.METRICS, self.best_by, score)}
      ),
      **({} if run.optim.asgd == 'off' else {'trigger_step': progress.trigger}),
    }
    self.restore(checkpoints, run.evaluation.which)
    if note := restore.missing_note(self.workdir, run.evaluation.which, self.done, self.best_by):
      logger.note(note)
    params, data = self._evaluated(self.evaluation_params()), (self.run, self.corpus)
    result = report.evaluate_run(*data, params, self.engine, run.evaluation.split, validation_baselines=True)
    averaged = {'averaged_steps': list(self.averaged)} if self.averaged else {}
    metrics = {**result.metrics, 'step': self.done, **trained, **averaged}
    report.write(*data, params, self.engine, result._replace(metrics=metrics), logger)
    if self.trackers is not None:
      self.trackers.finish()
    return metrics


def _record_nonfinite(
  workdir: epath.Path, update: int, metrics: Mapping[str, Any], batch: Mapping[str, np.ndarray]
) -> str:
  """Append an update to nonfinite.jsonl; return its loss, gradient norm and learning rate as text."""
  index_B = np.asarray(batch['index_B'])
  values: dict[str, Any] = {
    'step': update,
    'loss': float(metrics['loss']),
    'grad_norm': float(metrics['grad_norm']),
    'learning_rate': float(metrics['lr']),
    'batch_indices': index_B[index_B >= 0].tolist(),
  }
  if jax.process_index() == 0:
    with (workdir / 'nonfinite.jsonl').open('a', encoding='utf-8') as file:
      file.write(json.dumps({k: v if np.all(np.isfinite(v)) else str(v) for k, v in values.items()}) + '\n')
  return (
    f'update {update}: loss {values["loss"]}, gradient norm {values["grad_norm"]}, '
    f'learning rate {values["learning_rate"]:.3g}'
  )
