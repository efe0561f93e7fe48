"""The `optim` section of a config, and its optax transformation and learning rate.

The order inside one update: clip by the global norm, then by value, L2 into the gradient ('adam', 'sgd'), moments or
momentum, decoupled decay ('adamw': Loshchilov and Hutter 2019, arXiv 1711.05101; 'bert_adam': released BERT, where the
rate multiplies the decay too), factors of the groups, rate. Only `rate` counts updates: the transformation receives the
step, so a resumed or partly skipped run cannot drift from its schedule.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lmx import ranges
from lmx.errors import InputError, check_choice, check_range
from lmx.layout import Layout, broadcast
from lmx.optim import averaging, schedules, unfreeze
from lmx.optim import groups as groups_lib
from lmx.optim.adam import bias_correction, scale_by_raw_adam
from lmx.types import Array, Params

OPTIMIZERS = ('adadelta', 'adagrad', 'adam', 'adamw', 'bert_adam', 'rmsprop_graves', 'sgd')
SCHEDULES = (
  'constant',
  'linear',
  'cosine',
  'inverse_sqrt',
  'inverse_time',
  'plateau',
  'poly',
  'slanted_triangular',
  'step_decay',
  'milestones',
)
ASGD = ('off', 'triggered', 'start')
PLATEAU_BY = ('score', 'loss')
ORIGINS = ('after_warmup', 'from_zero', 'multiplied')
# google-research/bert, optimization.py; Graves 2013, arXiv 1308.0850, equation 45; Bahdanau et al. 2015, appendix B.2;
# 1e-8 elsewhere (arXiv 1412.6980, algorithm 1)
EPS = {'adadelta': 1e-6, 'bert_adam': 1e-6, 'rmsprop_graves': 1e-4}


@dataclasses.dataclass(frozen=True)
class Config:
  """Optimizer, learning rate and regularisation. Rates are per update; `lr` is the peak of the schedule.

  Attributes:
    optimizer: 'adam' (decay as L2 in the gradient), 'adamw' (decoupled), 'bert_adam' (no bias correction, decoupled),
      'sgd' (L2 in the gradient), 'adagrad' (Duchi et al. 2011; L2 in the gradient), 'rmsprop_graves' (Graves 2013,
      arXiv 1308.0850, equations 38 to 45: over the running standard deviation, then momentum; L2 in the gradient),
      'adadelta' (Zeiler 2012, arXiv 1212.5701, algorithm 1; L2 in the gradient; `lr` 1 is the paper's).
    accumulator: Adagrad's initial sum of squares; 1 in ELMo's release, 0.1 in TensorFlow.
    lr: peak learning rate; for 'inverse_sqrt' with a width, the factor of the paper's formula.
    b1: Adam's decay of the mean.
    b2: Adam's decay of the mean square.
    eps: epsilon; 0 means 1e-8, 1e-6 for 'bert_adam' and, under the roots, 1e-4 for 'rmsprop_graves' and 1e-6
      for 'adadelta'. Adagrad's, under its root, is 0 unless set.
    eps_form: 'corrected' adds eps to the bias-corrected root (paper, optax), 'uncorrected' to the raw one
      (TensorFlow, released GPT). 'bert_adam' has no correction, so both are the same there.
    decay_form: 'scheduled' multiplies the decoupled decay of 'adamw' by the scheduled rate (arXiv 1711.05101),
      'bias_corrected' also by sqrt(1 - b2**t) / (1 - b1**t) at update t (released GPT, opt.py).
    momentum: of 'sgd' and 'rmsprop_graves'; 0 disables it.
    rms_decay: decay of the running mean and mean square of 'rmsprop_graves', and of both of 'adadelta' (rho).
    nesterov: use Nesterov's form of that momentum.
    weight_decay: multiplied by the factor of the parameter's group.
    clip_norm: maximum global gradient norm, 0 disables it.
    clip_value: maximum absolute value of each gradient element, 0 disables it.
    schedule: 'constant', 'linear', 'cosine', 'inverse_sqrt', 'inverse_time', 'plateau', 'poly',
      'slanted_triangular', 'step_decay' or 'milestones' (lmx/optim/schedules.py).
    warmup_steps: updates of linear warm-up from 0.
    warmup_fraction: the same as a fraction of all updates; set one of the two.
    end_fraction: fraction of `lr` at the end of 'linear', 'cosine' and 'poly'.
    schedule_origin: origin of 'linear', 'cosine' and 'poly', see `schedules.decayed`.
    power: 'poly': the rate is lr (1 - t / T)**power after t of T updates.
    decay_after_epochs: 'step_decay': epochs at the full rate.
    decay_rate: 'step_decay': divisor per epoch after those; 'milestones': divisor at each of them.
    milestones: 'milestones': epochs after which the rate is divided by decay_rate.
    decrease: 'inverse_time': the rate is lr / (1 + decrease t) after t updates.
    patience: 'plateau': validations without a new best before a reduction.
    factor: 'plateau': factor of a reduction.
    min_lr: 'plateau': minimum rate.
    plateau_by: 'plateau': 'score' follows `train.best_by`; 'loss' is the rule of earlier versions, which followed the
      loss whatever that names.
    threshold: 'plateau': fraction of the best score by which a new best differs from it; 1e-4 is the default of
      torch.optim.lr_scheduler.ReduceLROnPlateau.
    restore_best: 'plateau': a reduction also restores the parameters of the best validation, and not the optimizer's
      moments (lukecq1231/nli, scripts/ESIM/main.py, lines 917 to 925). Needs `checkpoint.keep_best`.
    max_reductions: 'plateau': reductions after which the next one ends the run; 0 for no such end.
    stop_lr: 'plateau': rate below which the run ends.
    cut_fraction: 'slanted_triangular': fraction of the updates in which the rate rises.
    ratio: 'slanted_triangular': peak over lowest rate.
    min_cut: 'slanted_triangular': minimum number of updates in which the rate rises. 0 is the rule of earlier versions:
      runs of fewer than 1 / cut_fraction updates have their peak at the first and the lowest rate at all others.
    width: 'inverse_sqrt': model width of the paper's formula; 0 makes `lr` the peak.
    groups: (regular expression, factor of the rate, factor of the decay); the first that matches in a parameter's
      name applies, and every parameter needs one.
    layer_decay: factor of the rate per layer counted from the top; 1 disables it.
    layer_decay_form: 'by_depth', 'by_depth_of_biases', 'as_paper' or 'as_released', see lmx/optim/groups.py.
    unfreeze_every: epochs after which one more layer from the top is trained, initially only the head; 0 trains
      all from the start (lmx/optim/unfreeze.py).
    stages: gradual unfreezing with a 'slanted_triangular' schedule per stage: (groups trained from the top, 0 for all,
      -n for only the n-th; epochs, 0 for the rest of the run; factor of `lr`; cut_fraction).
    ema: decay of the average of the parameters used in evaluation; 0 disables it.
    ema_debias: initialise that average at zero and correct its bias, instead of at the first parameters.
    asgd: averaged SGD: 'off'; 'triggered' averages the parameters once the validation loss has not fallen below
      its best (NT-ASGD); 'start' averages from the first update and ends the run there (the fine-tuning of the
      released AWD-LSTM).
    nonmono: asgd: number of last validations excluded from the best, n of the paper's algorithm 1.
    asgd_lag: asgd: rate and mean lag by one update, as in torch.optim.ASGD (lmx/optim/averaging.py).
    accumulate: number of sequential microbatches of an update (gradient accumulation).
  """

  optimizer: str = 'adamw'
  lr: float = 3e-4
  b1: float = 0.9
  b2: float = 0.999
  eps: Annotated[float, ranges.Limits(0, 1)] = 0.0
  eps_form: str = 'corrected'
  decay_form: str = 'scheduled'
  accumulator: Annotated[float, ranges.FACTOR] = 0.1
  momentum: float = 0.0
  rms_decay: float = 0.95  # arXiv 1308.0850, equation 42; arXiv 1212.5701, table 1
  nesterov: bool = False
  weight_decay: float = 0.0
  clip_norm: float = 0.0
  clip_value: float = 0.0
  schedule: str = 'constant'
  warmup_steps: int = 0
  warmup_fraction: float = 0.0
  end_fraction: Annotated[float, ranges.Limits(0, 1)] = 0.0
  schedule_origin: str = 'after_warmup'
  power: float = 0.9  # as released for segmentation, zhanghang1989/PyTorch-Encoding, utils/lr_scheduler.py
  decay_after_epochs: int = 4  # Zaremba et al. 2014, small
  decay_rate: Annotated[float, ranges.Limits(1)] = 2.0  # Zaremba et al. 2014, small
  milestones: Annotated[tuple[float, ...], ranges.Distinct(is_sorted=True)] = ()
  decrease: float = 0.0
  patience: int = 0
  factor: float = 0.5
  min_lr: float = 0.0
  plateau_by: str = 'score'
  threshold: Annotated[float, ranges.Limits(0, 1)] = 0.0
  restore_best: bool = False
  max_reductions: int = 0
  stop_lr: float = 0.0
  cut_fraction: float = 0.1  # arXiv 1801.06146, section 3.2
  ratio: Annotated[float, ranges.Limits(1)] = 32.0  # arXiv 1801.06146, section 3.2
  min_cut: int = 1
  width: int = 0
  groups: tuple[groups_lib.Group, ...] = (('.*', 1.0, 1.0),)
  layer_decay: Annotated[float, ranges.Limits(0, 1)] = 1.0
  layer_decay_form: str = 'by_depth'
  unfreeze_every: float = 0.0
  stages: tuple[unfreeze.Stage, ...] = ()
  ema: float = 0.0
  ema_debias: bool = True
  asgd: str = 'off'
  nonmono: int = 5  # arXiv 1708.02182, section 5
  asgd_lag: bool = False
  accumulate: int = 1

  def __post_init__(self) -> None:
    check_choice('optim.optimizer', self.optimizer, OPTIMIZERS)
    check_choice('optim.schedule', self.schedule, SCHEDULES)
    check_choice('optim.asgd', self.asgd, ASGD)
    check_choice('optim.plateau_by', self.plateau_by, PLATEAU_BY)
    check_choice('optim.schedule_origin', self.schedule_origin, ORIGINS)
    check_choice('optim.layer_decay_form', self.layer_decay_form, groups_lib.FORMS)
    check_choice('optim.eps_form', self.eps_form, ('corrected', 'uncorrected'))
    check_choice('optim.decay_form', self.decay_form, ('scheduled', 'bias_corrected'))
    for field, low, high in (
      ('lr', 0, None),
      ('b1', 0, 1),
      ('b2', 0, 1),
      ('eps', 0, None),
      ('accumulator', 0, None),
      ('momentum', 0, 1),
      ('rms_decay', 0, 1),
      ('weight_decay', 0, None),
      ('clip_norm', 0, None),
      ('clip_value', 0, None),
      ('warmup_steps', 0, None),
      ('warmup_fraction', 0, 1),
      ('end_fraction', 0, None),
      ('width', 0, None),
      ('decay_after_epochs', 0, None),
      ('decrease', 0, None),
      ('patience', 0, None),
      ('min_cut', 0, None),
      ('min_lr', 0, None),
      ('threshold', 0, 1),
      ('max_reductions', 0, None),
      ('stop_lr', 0, None),
      ('ema', 0, 1),
      ('nonmono', 0, None),
      ('accumulate', 1, None),
    ):
      check_range(f'optim.{field}', getattr(self, field), low, high)
    for field in ('decay_rate', 'power', 'factor', 'cut_fraction', 'ratio', 'layer_decay'):
      if not getattr(self, field) > 0:
        raise InputError(f'optim.{field}: got {getattr(self, field)}; expected a number above 0')
    if not self.cut_fraction < 1 or not self.factor < 1:
      raise InputError(f'optim.cut_fraction, optim.factor: got {self.cut_fraction}, {self.factor}; expected below 1')
    if self.schedule == 'plateau' and self.min_lr > self.lr:
      raise InputError(f'optim.min_lr: got {self.min_lr}; expected at most optim.lr = {self.lr}')
    if self.restore_best and (self.ema or self.asgd != 'off'):
      raise InputError(
        'optim.restore_best: got True with a parameter average (optim.ema or optim.asgd), which it would not restore; '
        'set one of the two'
      )
    if self.ema and self.asgd != 'off':
      raise InputError(
        'optim.ema: got a value above 0 with optim.asgd; expected only one parameter average; set one of the two'
      )
    check_range('optim.unfreeze_every', self.unfreeze_every, 0)
    if self.stages and (problem := unfreeze.check(self.stages)):
      raise InputError(f'optim.stages: {problem}')
    if self.stages and (self.unfreeze_every or self.schedule != 'slanted_triangular'):
      raise InputError(
        'optim.stages: expected optim.schedule=slanted_triangular and optim.unfreeze_every=0; set these two'
      )
    if self.warmup_steps and self.warmup_fraction:
      raise InputError('optim.warmup_steps: got a value with optim.warmup_fraction; set one of the two')
    warms = self.warmup_steps or self.warmup_fraction
    if self.schedule == 'slanted_triangular' and warms:
      raise InputError(
        'optim.warmup_steps and optim.warmup_fraction: optim.schedule "slanted_triangular" warms up over '
        'optim.cut_fraction; set both to 0'
      )
    if self.schedule == 'inverse_sqrt' and not warms:
      raise InputError('optim.schedule "inverse_sqrt" needs optim.warmup_steps or optim.warmup_fraction')


def rate(cfg: Config, total_steps: int, steps_per_epoch: int) -> schedules.Schedule:
  """Return the function from the number of previous updates to the learning rate (before `lr_scale`).

  Args:
    cfg: the section.
    total_steps: number of updates of the run.
    steps_per_epoch: updates in an epoch, for 'step_decay'.
  """
  warmup = cfg.warmup_steps or round(cfg.warmup_fraction * total_steps)
  one = optax.constant_schedule(1.0)
  match cfg.schedule:
    case 'linear':
      decay = schedules.linear(cfg.end_fraction)
      factor = schedules.decayed(decay, warmup, cfg.schedule_origin, total_steps)
    case 'cosine':
      decay = schedules.cosine(cfg.end_fraction)
      factor = schedules.decayed(decay, warmup, cfg.schedule_origin, total_steps)
    case 'poly':
      decay = schedules.poly(cfg.power, cfg.end_fraction)
      factor = schedules.decayed(decay, warmup, cfg.schedule_origin, total_steps)
    case 'inverse_sqrt':
      factor = schedules.inverse_sqrt(max(warmup, 1), cfg.width)
    case 'milestones':
      warm = schedules.decayed(one, warmup, 'from_zero', total_steps)
      falls = schedules.milestones(steps_per_epoch, cfg.milestones, cfg.decay_rate)
      factor = lambda step: warm(step) * falls(step)
    case 'inverse_time':
      warm = schedules.decayed(one, warmup, 'from_zero', total_steps)
      slowing = schedules.inverse_time(cfg.decrease)
      factor = lambda step: warm(step) * slowing(step)
    case 'slanted_triangular' if cfg.stages:
      factor = unfreeze.rate_by_stage(cfg.stages, cfg.ratio, total_steps, steps_per_epoch, cfg.min_cut)
    case 'slanted_triangular':
      factor = schedules.slanted_triangular(total_steps, cfg.cut_fraction, cfg.ratio, cfg.min_cut)
    case 'step_decay':
      warm = schedules.decayed(one, warmup, 'from_zero', total_steps)
      steps = schedules.step_decay(steps_per_epoch, cfg.decay_after_epochs, cfg.decay_rate)
      factor = lambda step: warm(step) * steps(step)
    case _:  # 'constant', and 'plateau', whose reductions are in lr_scale
      factor = schedules.decayed(one, warmup, 'from_zero', total_steps)
  return lambda step: jnp.asarray(cfg.lr * factor(step), jnp.float32)


def notes(cfg: Config, total_steps: int, steps_per_epoch: int) -> list[str]:
  """Warn about each slanted triangle that is too short to rise over `cut_fraction` of its updates."""
  if cfg.schedule != 'slanted_triangular':
    return []
  triangles = [(total_steps, cfg.cut_fraction)]
  if cfg.stages:
    steps = unfreeze.stage_lengths(unfreeze.stage_starts(cfg.stages, steps_per_epoch), total_steps)
    triangles = [(count, stage[3]) for count, stage in zip(steps, cfg.stages, strict=True)]
  return [
    f'optim.cut_fraction: {cut:g} of {count:,} updates is less than {max(cfg.min_cut, 1)}; the learning rate has '
    f'its peak at update {cfg.min_cut + 1}'
    for count, cut in triangles
    if count * cut < max(cfg.min_cut, 1)
  ]


def plateau(cfg: Config, state: schedules.Plateau, score: float, ties: str = 'earlier') -> schedules.Plateau:
  """Return the plateau's state after a validation; its `scale` is the next `lr_scale`."""
  return state.observe(
    score,
    patience=cfg.patience,
    factor=cfg.factor,
    min_scale=cfg.min_lr / cfg.lr if cfg.lr else 0.0,
    threshold=cfg.threshold,
    ties=ties,
  )


def average(cfg: Config, params: Params) -> averaging.State:
  """Return the initial average of the parameters that the section selects; None for none."""
  if cfg.asgd != 'off':
    return averaging.init_mean(params, begun=cfg.asgd == 'start')
  return averaging.init(params, cfg.ema, debias=cfg.ema_debias)


def is_by_row(cfg: Config) -> bool:
  """Return True if an update leaves table rows with zero gradient unchanged and there is no average."""
  plain, whole = Config(), ('momentum', 'weight_decay', 'ema', 'asgd', 'stages', 'unfreeze_every')
  return cfg.optimizer in ('adagrad', 'sgd') and all(getattr(cfg, name) == getattr(plain, name) for name in whole)


def make(
  cfg: Config,
  params: Params,
  depth: groups_lib.Depth,
  n_layers: int,
  total_steps: int,
  steps_per_epoch: int,
  layout: Layout | None = None,
) -> optax.GradientTransformationExtraArgs:
  """Build the transformation from the global gradient to the parameter update.

  Its `update` takes two further keyword arguments: `step`, the number of the update, and `lr_scale`, a factor of
  the scheduled rate (default 1).

  Args:
    cfg: the section.
    params: {'model': ..., 'objective': ...} as the model initialises them, arrays or shapes; only names and numbers of
      axes are used.
    depth: path below params['model'] -> layer number (the model's `depth` with its config bound).
    n_layers: number of layers N; an objective's head has depth N + 1.
    total_steps: number of updates of the run.
    steps_per_epoch: updates in an epoch.
    layout: layout of the parameters that the transformation is applied to; None: that of `params`.

  Raises:
    InputError: `groups` do not cover the parameters, or one matches none.
  """
  powers = groups_lib.exponents(cfg.layer_decay_form, params, depth, n_layers)
  released = cfg.layer_decay_form == 'as_released'
  rates, decays = groups_lib.multipliers(cfg.groups, 1.0 if released else cfg.layer_decay, powers, params)
  if layout is not None:
    rates, decays, powers = layout.factors(rates), layout.factors(decays), layout.factors(powers)
  trained = _trained_groups(cfg, steps_per_epoch)
  if trained is not None:
    group = unfreeze.groups(params, depth, n_layers, groups_lib.top(cfg.layer_decay_form, params, depth, n_layers))
  eps = cfg.eps or EPS.get(cfg.optimizer, 1e-8)
  parts = [] if trained is None else [unfreeze.without_frozen(group, trained)]
  if cfg.clip_norm:
    parts.append(optax.clip_by_global_norm(cfg.clip_norm))
  if cfg.clip_value:
    parts.append(optax.clip(cfg.clip_value))
  if released:
    scale = lambda g, n: g * broadcast(cfg.layer_decay**n, g)
    parts.append(optax.stateless(lambda updates, _: jax.tree.map(scale, updates, powers)))
  decay = _add_decay(cfg, decays) if cfg.weight_decay else optax.identity()
  if cfg.optimizer in ('adadelta', 'adagrad', 'adam', 'rmsprop_graves', 'sgd'):
    parts.append(decay)
  moments = _moments(cfg, eps)
  if moments is not None:
    parts.append(moments if trained is None else unfreeze.by_group(moments, group, trained))
  if cfg.optimizer in ('adamw', 'bert_adam'):
    parts.append(decay)
  parts.append(_scale_by_rate(rate(cfg, total_steps, steps_per_epoch), rates))
  if trained is not None:
    parts.append(unfreeze.without_frozen(group, trained))  # weight decay, too
  return optax.chain(*parts)


def _moments(cfg: Config, eps: float) -> optax.GradientTransformation | None:
  if cfg.optimizer == 'adagrad':
    return optax.scale_by_rss(cfg.accumulator, cfg.eps)
  if cfg.optimizer == 'adadelta':
    return optax.scale_by_adadelta(cfg.rms_decay, eps)
  if cfg.optimizer == 'rmsprop_graves':
    by_deviation = optax.scale_by_stddev(cfg.rms_decay, eps)
    return optax.chain(by_deviation, optax.trace(cfg.momentum, cfg.nesterov)) if cfg.momentum else by_deviation
  if cfg.optimizer == 'bert_adam':
    return scale_by_raw_adam(cfg.b1, cfg.b2, eps, corrected=False)
  if cfg.optimizer != 'sgd' and cfg.eps_form == 'uncorrected':
    return scale_by_raw_adam(cfg.b1, cfg.b2, eps, corrected=True)
  if cfg.optimizer != 'sgd':
    return optax.scale_by_adam(cfg.b1, cfg.b2, eps)
  return optax.trace(cfg.momentum, cfg.nesterov) if cfg.momentum else None


def _trained_groups(cfg: Config, steps_per_epoch: int) -> unfreeze.Trained | None:
  """Return the function from an update to its number of trained groups; None if it always trains all."""
  if cfg.stages:
    return unfreeze.by_stage(cfg.stages, steps_per_epoch)
  return unfreeze.by_epoch(cfg.unfreeze_every, steps_per_epoch) if cfg.unfreeze_every else None


def _add_decay(cfg: Config, decays: Params) -> optax.GradientTransformationExtraArgs:
  corrected = cfg.optimizer == 'adamw' and cfg.decay_form == 'bias_corrected'

  def update(updates: Any, state: Any, params: Params | None = None, *, step: Array, **extra: Any) -> Any:
    del extra
    factor = cfg.weight_decay * (bias_correction(cfg.b1, cfg.b2, step + 1) if corrected else 1.0)
    add = lambda u, p, d: u + factor * broadcast(d, p) * p if np.any(d) else u
    return jax.tree.map(add, updates, params, decays), state

  return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def _scale_by_rate(schedule: schedules.Schedule, rates: Params) -> optax.GradientTransformationExtraArgs:
  def update(
    updates: Any, state: Any, params: Params | None = None, *, step: Array, lr_scale: Any = 1.0, **extra: Any
  ) -> Any:
    del params, extra
    now = -schedule(step) * lr_scale
    return jax.tree.map(lambda u, r: u * (now * broadcast(r, u)), updates, rates), state

  return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
