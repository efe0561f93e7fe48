"""Optimizers, schedules and averages; here the `optim` section of a config, without JAX."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated

from lmx import ranges
from lmx.errors import InputError, check_choice, check_range

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
Group = Annotated[
  tuple[Annotated[str, ranges.Regex()], Annotated[float, ranges.FACTOR], Annotated[float, ranges.FACTOR]],
  ranges.Record(('regex', 'learning-rate factor', 'weight-decay factor')),
]
FORMS = ('by_depth', 'by_depth_of_biases', 'as_paper', 'as_released')  # of layer-wise decay
# Groups trained (0: all; -n: only the n-th from the top), epochs (0: to the end), factor of lr, cut_fraction.
Stage = Annotated[
  tuple[
    Annotated[int, ranges.SIGNED],
    float,
    Annotated[float, ranges.FACTOR],
    Annotated[float, ranges.Limits(0, 1, is_open=True)],
  ],
  ranges.Record(('groups', 'epochs', 'learning-rate factor', 'cut_fraction')),
]


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
  groups: tuple[Group, ...] = (('.*', 1.0, 1.0),)
  layer_decay: Annotated[float, ranges.Limits(0, 1)] = 1.0
  layer_decay_form: str = 'by_depth'
  unfreeze_every: float = 0.0
  stages: tuple[Stage, ...] = ()
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
    check_choice('optim.layer_decay_form', self.layer_decay_form, FORMS)
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
    if self.stages and (problem := _check_stages(self.stages)):
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


def _check_stages(stages: Sequence[Sequence[float]]) -> str:
  """Return the error message for invalid stages; '' if they are valid."""
  for i, stage in enumerate(stages):
    if len(stage) != 4:
      return f'each has four numbers (groups, epochs, factor of lr, cut_fraction), not {tuple(stage)}'
    groups_trained, epochs, factor, cut = stage
    last = i == len(stages) - 1
    if groups_trained != math.floor(groups_trained) or factor < 0 or not 0 < cut < 1:
      return f'{tuple(stage)} is out of range: groups is whole, factor at least 0, cut_fraction between 0 and 1'
    if epochs < 0 or (epochs == 0) != last:
      return 'the last one must have 0 epochs, for the rest of the run, and all others more than 0'
  return ''
