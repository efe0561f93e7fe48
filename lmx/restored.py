"""A trained run, given back to Python from its work directory."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import jax
import ml_collections
from etils import epath

from lmx import checkpoint, objectives
from lmx import config as config_lib
from lmx.data import tokenizers
from lmx.errors import InputError
from lmx.models import registry
from lmx.optim import averaging
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
  """

  model: ModuleType
  cfg: Any
  params: Params
  tokenizer: Any
  config: ml_collections.ConfigDict
  run: config_lib.Run
  step: int
  workdir: epath.Path

  @property
  def objective(self) -> ModuleType:
    return objectives.get(self.run.objective_name)


def init_params(run: config_lib.Run, key: Array) -> Params:
  """Parameters before the first update: {'model': the model's, 'objective': its head}."""
  model, objective = registry.get(run.model_name), objectives.get(run.objective_name)
  model_key, head_key = jax.random.split(key)
  head = objective.init(run.objective, model, run.model, head_key)
  return {'model': model.init(run.model, model_key), 'objective': head}


def load(workdir, which: str | int = 'best', overrides: Iterable[str] = ()) -> Restored:
  """Loads a run for evaluation, generation or anything else.

  Args:
    workdir: the run's work directory.
    which: 'best' on the validation split (the last one where none was measured), 'last', or a step.
    overrides: `section.key=value`, such as data.eval_batch_size=1.

  Raises:
    InputError: no run is there, it has no finished checkpoint, or all are damaged.
  """
  workdir = epath.Path(workdir)
  try:
    config = config_lib.resolve(json.loads((workdir / 'config.json').read_text()), overrides)
  except FileNotFoundError:
    raise InputError(f'{workdir} holds no run: it has no config.json') from None
  except json.JSONDecodeError as error:
    raise InputError(f'{workdir}/config.json cannot be read: {error}') from None
  run = config_lib.to_run(config)
  directory = workdir / 'checkpoints'
  shapes = jax.eval_shape(functools.partial(init_params, run), jax.random.key(0))
  if run.optim.ema:
    wanted = jax.eval_shape(lambda p: averaging.init(p, run.optim.ema, debias=run.optim.ema_debias), shapes)
    average, _, step = checkpoint.restore_params(directory, wanted, which, tree='ema')
    params = jax.tree.map(lambda x: x / average.weight, average.mean)
  else:
    params, _, step = checkpoint.restore_params(directory, shapes, which)
  tokenizer = tokenizers.load(str(workdir / 'tokenizer'))
  return Restored(registry.get(run.model_name), run.model, params, tokenizer, config, run, step, workdir)
