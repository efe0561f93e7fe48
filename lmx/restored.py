"""A trained run, given back to Python from its work directory."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import jax
import ml_collections
import numpy as np
from etils import epath
from flax.traverse_util import flatten_dict, unflatten_dict

from lmx import checkpoint, mirror, objectives, run_files, semantics, state
from lmx import config as config_lib
from lmx.data import pipeline
from lmx.data.corpus import Corpus
from lmx.errors import InputError, InputWarning
from lmx.models import registry
from lmx.optim import averaging, build
from lmx.types import Array, Params


@dataclasses.dataclass(frozen=True)
class Restored:
  """A run as it was when the checkpoint was written.

  Attributes:
    model: the model's module; `run.model.apply(run.cfg, run.params['model'], batch, state)`.
    cfg: its Config.
    params: {'model': ..., 'objective': ...}: the running average where the run kept one.
    tokenizer: see `lmx.data.tokenizers`.
    config: the resolved config.
    run: the same as frozen dataclasses.
    step: updates made.
    workdir: where it was loaded from.
    averaged: steps of the checkpoints whose mean `params` are; () where they are those of one.
  """

  model: ModuleType
  cfg: Any
  params: Params
  tokenizer: Any
  config: ml_collections.ConfigDict
  run: config_lib.Run
  step: int
  workdir: epath.Path
  averaged: tuple[int, ...] = ()

  def corpus(self) -> Corpus:
    """The data of the run, tokenised. Raises InputError if that is not by the run's tokenizer."""
    corpus = pipeline.load(self.run.data)
    if corpus.tokenizer.hash != self.tokenizer.hash:
      raise InputError(f"the data is tokenised by another tokenizer than the run's ({self.workdir}/tokenizer)")
    return corpus

  @property
  def objective(self) -> ModuleType:
    return objectives.get(self.run.objective_name)

  @property
  def labels(self) -> list[str]:
    """Names of the labels that it tells apart, in the order of their scores; [] where it tells none."""
    if self.run.objective_name == 'tag':
      return list(self.run.objective.labels)
    if self.run.objective_name != 'classify':
      return []
    return run_files.read_labels(self.workdir)


def init_params(run: config_lib.Run, key: Array) -> Params:
  """Parameters before the first update: {'model': the model's, 'objective': its head}."""
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)
  model_key, head_key = jax.random.split(key)
  head = objective.init(run.objective, model, run.model, head_key)
  return {'model': model.init(run.model, model_key), 'objective': head}


def merged(params: Params, taken: Params) -> Params:
  """`params` with the leaves of `taken`, a nested dict of some of them, in place of its own."""
  inner = lambda name, x: merged(x, taken[name]) if isinstance(x, Mapping) else taken[name]
  return {name: inner(name, x) if name in taken else x for name, x in params.items()}


def take(
  workdir, wanted: Params, parts: Sequence[str], tokenizer: Any, labels: Sequence[str] = ()
) -> tuple[Params, str]:
  """Parameters of a finished run as the start of another.

  Rows that belong to words (the leaves that the other run's model names in VOCABULARY) are matched by word where the
  two tokenizers differ, by id where the other run has no tokenizer; a word that the other run does not know gets the
  mean of its rows (Howard and Ruder 2018, released code). What the head has for each label (the objective's `labelled`)
  is put into the order of this run's labels. Learned positions (POSITIONS) are cut where this run has fewer; where it
  has more, they are repeated from the first on (Beltagy et al. 2020, arXiv 2004.05150, section 5).

  Args:
    workdir: the finished run; its best parameters are taken.
    wanted: shapes of the new run's parameters.
    parts: 'part' or 'there=here', each a leading part of names such as 'model' or 'model/encoder'; () is all.
    tokenizer: the new run's.
    labels: names of the new run's labels.

  Returns:
    (the leaves taken, as a nested dict; a line for the log).

  Raises:
    InputError: no run can be loaded there, a leaf that a part should have is missing there, has another shape, no word
      is known to both, or the labels are others.
  """
  try:
    loaded = load(workdir)
  except InputError as error:
    raise InputError(f'train.init_from: {error}') from None
  theirs = {'/'.join(path): x for path, x in flatten_dict(loaded.params).items()}
  ours = {'/'.join(path): x for path, x in flatten_dict(wanted).items()}
  source = _sources(workdir, parts, ours, theirs)
  by_word = {f'model/{name}' for name in getattr(loaded.model, 'VOCABULARY', ())}
  by_place = {f'model/{name}' for name in getattr(loaded.model, 'POSITIONS', ())}
  by_id = loaded.tokenizer.hash == tokenizer.hash or loaded.tokenizer.kind == 'none'
  rows = None if by_id else _rows(loaded.tokenizer, tokenizer)
  with_head = any(there.startswith('objective/') for there in source.values())
  heads = loaded.objective.labelled(loaded.run.objective) if with_head and loaded.labels else {}
  by_label = {f'objective/{name}': axes for name, axes in heads.items()}
  taken, wrong = {}, []
  for here, there in source.items():
    x = np.asarray(theirs[there])
    if there in by_word and (rows is not None or x.shape[0] != ours[here].shape[0]):
      x = _by_word(x, _rows(loaded.tokenizer, tokenizer) if rows is None else rows, loaded, ours[here].shape[0])
    if there in by_place and x.shape[1:] == ours[here].shape[1:]:
      x = x[np.arange(ours[here].shape[0]) % x.shape[0]]
    if there in by_label:
      x = _by_label(x, by_label[there], loaded, labels)
    if x.shape != ours[here].shape:
      wrong.append(f'{there} {x.shape} there, {here} {ours[here].shape} here')
    taken[tuple(here.split('/'))] = x
  if wrong:
    raise InputError(f'train.init_from: parameters of {workdir} have other shapes: {"; ".join(wrong[:5])}')
  note = f'began from step {loaded.step} of {workdir}: {len(taken)} of {len(ours)} arrays taken'
  places = [(len(theirs[there]), ours[here].shape[0]) for here, there in source.items() if there in by_place]
  note += ''.join(f'; {new} positions of {old}' for old, new in places if old != new)
  if rows is not None and by_word & set(source.values()):
    known = int((rows >= 0).sum())
    if not known:
      raise InputError(f'train.init_from: the vocabularies of {workdir} and of this run have no entry in common')
    note += f'; {known:,} of {len(rows):,} vocabulary rows matched, the others are the mean row'
  return unflatten_dict(taken), note


def _sources(workdir, parts: Sequence[str], ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, str]:
  """Name here -> name there of the leaves to take."""
  source: dict[str, str] = {}
  for part in parts or ('',):
    there, equals, here = part.partition('=')
    here = here if equals else there
    below = lambda name, prefix: not prefix or name == prefix or name.startswith(prefix + '/')
    names = [name for name in ours if below(name, here)]
    if not names:
      raise InputError(f'train.init_parts: this run has no parameters "{here}"; it has {_tops(ours)}')
    source |= {name: (there + name.removeprefix(here)) if there else name for name in names}
  missing = [there for there in source.values() if there not in theirs]
  unused = [] if parts else [name for name in theirs if name not in ours]
  if missing or unused:
    raise InputError(
      f'train.init_from: {workdir} lacks {", ".join(missing[:5]) or "nothing"} of what is to be taken'
      + (f', and has {", ".join(unused[:5])} besides' if unused else '')
      + f'; it has {_tops(theirs)}. Name the parts to take with train.init_parts'
    )
  return source


def _tops(names: Iterable[str]) -> str:
  return ', '.join(sorted({'/'.join(name.split('/')[:2]) for name in names}))


def _rows(theirs: Any, ours: Any) -> np.ndarray:
  """For each of our ids the id of the same entry there, -1 where there is none."""
  known = {theirs.id_to_token(i): i for i in range(theirs.vocab_size)}
  return np.asarray([known.get(ours.id_to_token(i), -1) for i in range(ours.vocab_size)])


def _by_word(x: np.ndarray, rows: np.ndarray, loaded: Restored, size: int) -> np.ndarray:
  """Rows of `x` in our order; of entries not known there, and of those beyond our tokenizer, the mean."""
  mean = x[: loaded.tokenizer.vocab_size].mean(axis=0)
  index = np.concatenate([rows, np.full(max(size - len(rows), 0), -1)])
  known = (index >= 0).reshape((-1,) + (1,) * (x.ndim - 1))
  return np.where(known, x[np.maximum(index, 0)], mean).astype(x.dtype)


def _by_label(x: np.ndarray, axes: Sequence[int], loaded: Restored, labels: Sequence[str]) -> np.ndarray:
  """A leaf of a head with its labels in the order given."""
  if sorted(labels) != sorted(loaded.labels):
    raise InputError(
      f'train.init_from: the labels of {loaded.workdir} are {", ".join(loaded.labels)}, those of this '
      f'run {", ".join(labels) or "none"}; take the model alone: train.init_parts=("model",)'
    )
  order = [loaded.labels.index(label) for label in labels]
  for axis in axes:
    x = np.take(x, order, axis)
  return x


def load(
  workdir, which: str | int = 'best', overrides: Iterable[str] = (), measured: Mapping[str, Any] | None = None
) -> Restored:
  """Loads a run for evaluation, generation or anything else, with a warning of parameters that are not finite.

  Args:
    workdir: the run's work directory.
    which: 'best' on the validation split (the last one where none was measured), 'last', a step, also as text, or
      'average', the mean of the newest `evaluation.average` checkpoints.
    overrides: `section.key=value`, such as data.eval_batch_size=1.
    measured: a resolved config whose name, data, objective and evaluation take the place of the run's own; the
      tokenizer stays the run's.

  Raises:
    InputError: no run is there, it has no finished checkpoint, or all are damaged.
  """
  workdir = epath.Path(workdir)
  own = run_files.read_config(workdir)
  config = config_lib.resolve(_measured(own, measured, workdir) if measured else own, overrides, saved=True)
  for note in semantics.evaluation_notes(config, jax.default_backend()):
    warnings.warn(f'{workdir}: {note}', InputWarning, stacklevel=2)
  run = config_lib.to_run(config)
  directory = workdir / 'checkpoints'
  which = int(which) if str(which).isdecimal() else which
  shapes = jax.eval_shape(functools.partial(init_params, run), jax.random.key(0))
  wanted = jax.eval_shape(functools.partial(build.average, run.optim), shapes)
  averaged: tuple[int, ...] = ()
  if which == 'average':
    if wanted is not None:
      raise InputError(f'{workdir} keeps a running average (optim.ema or optim.asgd), which is loaded in any case')
    params, averaged = average(directory, shapes, run.evaluation.average)
    step = averaged[-1]
  elif wanted is not None:
    running, _, step = checkpoint.restore_params(directory, wanted, which, tree='ema')
    params = averaging.value(running, running.mean)
  else:
    params, _, step = checkpoint.restore_params(directory, shapes, which)
  state.warn_nonfinite(workdir, params)
  tokenizer = run_files.read_tokenizer(workdir)
  return Restored(registry.get(run.model_name), run.model, params, tokenizer, config, run, step, workdir, averaged)


def _measured(saved: Mapping[str, Any], given: Mapping[str, Any], workdir) -> dict[str, Any]:
  """The config of a run as another config wants it measured."""
  own = {name: saved['data'][name] for name in ('tokenizer', 'lower_case', 'cache_dir', 'prefetch', 'workers')}
  taken = {name: given[name] for name in ('name', 'objective', 'evaluation')}
  path = mirror.here(epath.Path(workdir) / 'tokenizer')
  data = {**given['data'], **own, 'tokenizer_path': path, 'special_tokens': (), 'marks': '', 'prefix_space': False}
  return {**saved, **taken, 'data': data}


def average(
  directory, wanted: Params, count: int, warn: checkpoint.Warn = checkpoint.stderr_warn
) -> tuple[Params, tuple[int, ...]]:
  """The mean of the parameters of the newest checkpoints (Vaswani et al. 2017, section 6.1), in float32.

  They are planned ones (`checkpoint.planned_steps`), so where a run was stopped does not change it. One checkpoint is
  held beside the sum, however many there are.

  Args:
    directory: of the checkpoints.
    wanted: shapes of the parameters.
    count: how many to average; where fewer are intact, those, with a warning.
    warn: called with each warning.

  Returns:
    (the mean, steps of the checkpoints it is of, rising).

  Raises:
    InputError: there is no intact checkpoint.
  """
  total, steps, damaged = None, [], False
  for step in reversed(checkpoint.planned_steps(directory)):
    try:
      params, _, _ = checkpoint.restore_params(directory, wanted, step, warn=warn)
    except checkpoint.AllDamaged:
      damaged = True  # the warning has named it
      continue
    params = jax.tree.map(lambda x: np.asarray(x, np.float32), params)
    total = params if total is None else jax.tree.map(np.add, total, params)
    steps.append(step)
    if len(steps) == count:
      break
  if total is None:
    raise InputError(f'no intact checkpoint in {directory}')
  if len(steps) < count:
    warn(
      f'{len(steps)} checkpoints are averaged instead of {count}, those of steps '
      f'{", ".join(map(str, sorted(steps)))}: no more are in {directory}'
    )
  elif damaged:
    warn(f'checkpoint average: the mean of steps {", ".join(map(str, sorted(steps)))} is used, the newest intact ones')
  return jax.tree.map(lambda x: x / np.float32(len(steps)), total), tuple(sorted(steps))
