"""Restoration of a trained run from its work directory."""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import ml_collections
import numpy as np
from etils import epath

from lmx import documents, objectives, records, storage
from lmx.checkpoint import manager
from lmx.config import resolve as config_lib
from lmx.config import run_files, schema, semantics
from lmx.data import pipeline
from lmx.data.corpus import Corpus
from lmx.engine import state
from lmx.errors import InputError, InputWarning
from lmx.layout import Layout
from lmx.models import registry
from lmx.optim import averaging, build
from lmx.runs import init
from lmx.types import Model, Objective, Params


@dataclasses.dataclass(frozen=True)
class RestoredRun:
  """Run restored from a checkpoint.

  Attributes:
    model: the model's module; `run.model.apply(run.cfg, run.params['model'], batch, state)`.
    cfg: the model's Config.
    params: {'model': ..., 'objective': ...}: the running average if the run has one.
    tokenizer: see `lmx.data.tokenizers.build`.
    config: the resolved config.
    run: the config as frozen dataclasses.
    step: updates made.
    workdir: work directory of the run.
    averaged: steps of the checkpoints whose mean `params` is; () if it is from a single one.
    files: of published weights, keeps the temporary work directory as long as the run; `files.source` is their folder.
  """

  model: Model
  cfg: Any
  params: Params
  tokenizer: Any
  config: ml_collections.ConfigDict
  run: schema.Run
  step: int
  workdir: epath.Path
  averaged: tuple[int, ...] = ()
  files: Any = None

  def corpus(self) -> Corpus:
    """Return the tokenised data of the run. Raises InputError if another tokenizer made it."""
    corpus = pipeline.load(self.run.data)
    data, own = corpus.tokenizer, self.tokenizer
    if self.run.data.characters:  # out-of-vocabulary words, which are spelled, may differ
      data, own = data.proper, own.proper
    if data.hash != own.hash:
      if self.model.READS == 'images':
        name = corpus.manifest['dataset']['name']
        raise InputError(f'data set {name} has other classes or images than the run ({self.workdir}) was trained on')
      raise InputError(f"the data was tokenised by another tokenizer than the run's ({self.workdir}/tokenizer)")
    return corpus

  @property
  def objective(self) -> Objective:
    return objectives.get(self.run.objective_name)

  @property
  def labels(self) -> list[str]:
    """Names of the labels that the head predicts, in the order of its logits; [] without labels."""
    return self.objective.labels(self.run.objective, functools.partial(run_files.read_labels, self.workdir))


def load(
  workdir: Any,
  which: str | int = 'measured',
  overrides: Iterable[str] = (),
  replacement: Mapping[str, Any] | None = None,
) -> RestoredRun:
  """Load a run for evaluation, generation or anything else; warn of parameters that are not finite.

  Args:
    workdir: the run's work directory.
    which: 'measured': that of results.json, by the run's `evaluation.which`; 'best' by `train.best_by` (the last
      checkpoint if there was no validation), 'last', a step (int or text), 'words:N', kept by `checkpoint.at_words`, or
      'average', the mean of the newest `evaluation.average` checkpoints.
    overrides: `section.key=value`, such as data.eval_batch_size=1.
    replacement: a resolved config whose name, data, objective and evaluation replace the run's own; the tokenizer stays
      the run's.

  Raises:
    InputError: there is no run, it has no finished checkpoint, all are damaged, or the one read is of another run.
  """
  workdir = storage.path('--workdir', workdir, storage.FOLDER)
  saved = run_files.read_config(workdir)
  config = config_lib.resolve(
    _replace_sections(saved, replacement, workdir) if replacement else saved, overrides, saved=True
  )
  for note in semantics.evaluation_notes(config, jax.default_backend()):
    warnings.warn(f'{workdir}: {note}', InputWarning, stacklevel=2)
  for note in () if replacement else _held_out_notes(saved['data'], config['data']):
    warnings.warn(f'{workdir}: {note}', InputWarning, stacklevel=2)
  run = config_lib.to_run(config, workdir=workdir)
  run = dataclasses.replace(run, data=run_files.with_own_words(run.data, workdir))
  directory = workdir / 'checkpoints'
  own = documents.field(saved, 'evaluation', dict, f'{workdir}/config.json').get('which', 'best')
  which = manager.step_of(workdir, own if which == 'measured' else which)
  shapes = jax.eval_shape(functools.partial(init.init_params, run), jax.random.key(0))
  layout = init.stored_layout(run, shapes)
  average_shapes = jax.eval_shape(functools.partial(build.average, run.optim), shapes)
  averaged: tuple[int, ...] = ()
  if which == 'average':
    if average_shapes is not None:
      raise InputError(
        f'--which: got average, but {workdir} has a running average (optim.ema or optim.asgd), which is always loaded'
      )
    params, averaged = average(directory, shapes, layout, run.evaluation.average)
    step = averaged[-1]
  elif average_shapes is not None:
    running, meta, step = manager.restore_params(directory, average_shapes, which, layout=layout, tree='ema')
    params = averaging.value(running, running.mean)
  else:
    params, meta, step = manager.restore_params(directory, shapes, which, layout=layout)
  if which != 'average':
    check_own(workdir, step, meta)
  state.warn_nonfinite(workdir, params)
  if note := missing_note(workdir, which, step, run.train.best_by):
    warnings.warn(f'{workdir}: {note}', InputWarning, stacklevel=2)
  tokenizer = run_files.read_tokenizer(workdir)
  return RestoredRun(registry.get(run.model_name), run.model, params, tokenizer, config, run, step, workdir, averaged)


def _held_out_notes(saved: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
  """Return a line for each setting that holds out other training rows than the run's own."""
  return [
    f'data.{key} is {data[key]}, {own} in training: rows held out here may be rows that the run was trained on'
    for key in ('fold', 'split_fraction')
    if (own := saved.get(key, data[key])) != data[key] and data['dataset'] == saved['dataset']
  ]


def _replace_sections(saved: Mapping[str, Any], replacement: Mapping[str, Any], workdir: Any) -> dict[str, Any]:
  """Return the config of a run with the name, data, objective and evaluation of another."""
  replaced = {name: replacement[name] for name in ('name', 'objective', 'evaluation')}
  if (
    replaced['objective']['name'] == saved['objective']['name']
  ):  # fields determined by the data come from the head's run
    settled = {name: saved['objective'][name] for name in ('classes', 'labels') if name in saved['objective']}
    replaced['objective'] = {**replaced['objective'], **settled}
  here = {name: saved['data'][name] for name in ('cache_dir', 'prefetch', 'workers', 'processes')}
  if not pipeline.has_texts(replacement['data']['dataset']):
    return {**saved, **replaced, 'data': {**replacement['data'], **here}}
  own = here | {name: saved['data'][name] for name in ('tokenizer', 'lower_case')}
  path = storage.local_copy(storage.path('--workdir', workdir) / 'tokenizer')
  data = {
    **replacement['data'],
    **own,
    'tokenizer_path': path,
    'vectors': '',
    'special_tokens': (),
    'marks': '',
    'prefix_space': False,
  }
  return {**saved, **replaced, 'data': data}


def checkpoint_note(loaded: RestoredRun, which: str | int) -> str:
  """Return a line if a run is loaded from another checkpoint than results.json reports; '' otherwise."""
  measured = loaded.run.evaluation.which
  if which != 'best' or measured == 'best':
    return ''
  if (step := records.read_results(loaded.workdir).get('step')) in (None, loaded.step):
    return ''
  return (
    f'reads the best checkpoint, of step {loaded.step:,}; results.json has the figures of step {step:,}, '
    f'--which={measured}'
  )


def check_own(workdir: Any, step: int, meta: Mapping[str, Any]) -> None:
  """Raise InputError if a checkpoint was saved by another run.

  Args:
    workdir: work directory of the run.
    step: step of the checkpoint.
    meta: its record; earlier versions and imported weights have no `run`.
  """
  found, expected = meta.get('run'), run_files.read_run_id(workdir)
  if found and expected and found != expected:
    raise InputError(
      f'{workdir}/checkpoints: step {step:,} is a checkpoint of another run (run: got {found}; expected {expected}); '
      "restore the run's own, or remove it"
    )


def missing_note(workdir: epath.Path, which: str | int, step: int, best_by: str) -> str:
  """Return a line if the newest or best checkpoint of a run is missing, or if no validation has a score; '' otherwise.

  Args:
    workdir: work directory of the run.
    which: checkpoint that was read.
    step: its step.
    best_by: `train.best_by` of the run.
  """
  if isinstance(which, int):
    return ''
  directory = workdir / 'checkpoints'
  try:
    results = records.read_results(workdir)
  except InputError:  # `lmx results` reports the fault
    results = {}
  trained = results.get('steps', 0)
  newest = manager.newest_step(directory)
  if not results and (which == 'last' or step == newest) and step < (logged := _logged(workdir)):
    return f'reads step {step:,}; metrics.jsonl has updates until {logged:,}, whose checkpoint is missing'
  if results and newest < trained and (which != 'best' or results.get('step') != step):
    return f'reads step {step:,}; results.json is of {trained:,} updates, whose last checkpoint is missing'
  return _best_note(directory, step, best_by) if which == 'best' else ''


def _logged(workdir: epath.Path) -> int:
  """Return the last step in metrics.jsonl, 0 without one or if it is damaged."""
  try:
    return max((record['step'] for record in records.read_metrics(workdir)), default=0)
  except InputError:  # `lmx runs` reports the fault
    return 0


def _best_note(directory: epath.Path, step: int, best_by: str) -> str:
  """Return a line if the checkpoint of the best validation is missing, or if no validation has a score."""
  metrics, meta = manager.read_metrics(directory)
  progress = meta.get('progress', {})
  best = progress.get('best_score', progress.get('best'))
  finite = [metric for metric in metrics if metric is not None and math.isfinite(metric)]
  if best is not None and math.isfinite(best):
    found = 'the best one there' if finite else 'the last one'
    is_there = finite and min(finite) <= best
    return '' if is_there else f'reads step {step:,}, {found}; the checkpoint of the best validation is missing'
  if finite or all(metric is None for metric in metrics):
    return ''
  return f'reads step {step:,}, the last one; no validation has a finite score (train.best_by={best_by})'


def average(
  directory: Any, shapes: Params, layout: Layout, count: int, warn: manager.Warn = manager.stderr_warn
) -> tuple[Params, tuple[int, ...]]:
  """Return the mean of the parameters of the newest checkpoints (Vaswani et al. 2017, section 6.1), in float32.

  Only planned checkpoints count (`manager.planned_steps`), so the mean does not depend on where a run was stopped.
  Memory holds the sum and one checkpoint, for any `count`.

  Args:
    directory: directory of the checkpoints.
    shapes: shapes of the parameters as the model initialises them.
    layout: layout of the run, see `init.stored_layout`.
    count: number of checkpoints to average; fewer, with a warning, if fewer are intact.
    warn: called with each warning.

  Returns:
    (the mean, steps of the averaged checkpoints in ascending order).

  Raises:
    InputError: there is no intact checkpoint.
  """
  total, steps, damaged = None, [], False
  workdir = storage.path('--workdir', directory).parent
  for step in reversed(manager.planned_steps(directory)):
    try:
      params, meta, _ = manager.restore_params(directory, shapes, step, layout=layout, warn=warn)
    except manager.AllDamaged:
      damaged = True  # a warning has been printed
      continue
    check_own(workdir, step, meta)
    params = jax.tree.map(lambda x: np.asarray(x, np.float32), params)
    total = params if total is None else jax.tree.map(np.add, total, params)
    steps.append(step)
    if len(steps) == count:
      break
  if total is None:
    raise InputError(f'no intact checkpoint in {directory}')
  if len(steps) < count:
    warn(
      f'averaging {len(steps)} checkpoints instead of {count}, steps '
      f'{", ".join(map(str, sorted(steps)))}: {directory} has no more'
    )
  elif damaged:
    warn(f'checkpoint average: using the mean of steps {", ".join(map(str, sorted(steps)))}, the newest intact ones')
  return jax.tree.map(lambda x: x / np.float32(len(steps)), total), tuple(sorted(steps))
