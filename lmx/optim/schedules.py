"""Learning-rate schedules as factors of the peak rate, of the number of previous updates (0 for the first).

Linear, cosine and polynomial decay are optax's. The others are here, because optax lacks them:
  inverse_sqrt        Vaswani et al. 2017, arXiv 1706.03762, section 5.3, equation 3.
  slanted_triangular  Howard and Ruder 2018, arXiv 1801.06146, section 3.2, equation 3.
  step_decay          by epoch, Zaremba et al. 2014, arXiv 1409.2329, section 4.1 (optax's staircase cannot begin
                      in epoch 0).
  milestones          by epoch, Merity et al. 2018, arXiv 1803.08240 (optax's takes numbers of steps).
  inverse_time        Bengio et al. 2003, section 4.1.
  schedule origins    origin of the decay after a warm-up. The released code of BERT (`optimization.py`) counts
                      from step 0 over all steps, so the rate drops at the end of the warm-up; the released code
                      of GPT (`opt.py`, `warmup_linear`) also multiplies warm-up and decay.
  Plateau             reduction when the validation score stops improving, decided on the host between updates.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import optax

from lmx.types import Array

Schedule = Callable[[int | Array], Array]  # number of previous updates -> factor of the peak rate


def decayed(decay: optax.Schedule, warmup_steps: int, origin: str, total_steps: int) -> Schedule:
  """Join a linear warm-up from 0 to 1 and a decay.

  Args:
    decay: maps progress in [0, 1] to a factor.
    warmup_steps: updates until the factor reaches 1 (the first update of a warm-up has factor 0, as in BERT's code).
    origin: 'after_warmup': progress starts at the end of the warm-up; 'from_zero': it starts at update 0 and the
      warm-up replaces it; 'multiplied': it starts at update 0 and the warm-up multiplies it.
    total_steps: updates after which progress is 1.
  """

  def factor(step: int | Array) -> Array:
    step = jnp.asarray(step, jnp.float32)
    warm = jnp.minimum(step / warmup_steps, 1.0) if warmup_steps else jnp.float32(1)
    start = warmup_steps if origin == 'after_warmup' else 0
    progress = jnp.clip((step - start) / max(total_steps - start, 1), 0.0, 1.0)
    if origin == 'multiplied':
      return warm * decay(progress)
    return jnp.where(step < warmup_steps, warm, decay(progress))

  return factor


def linear(end_fraction: float) -> optax.Schedule:
  """Decay from 1 to `end_fraction` as progress goes from 0 to 1."""
  return optax.linear_schedule(1.0, end_fraction, 1)


def cosine(end_fraction: float) -> optax.Schedule:
  """Decay by half a cosine from 1 to `end_fraction` as progress goes from 0 to 1."""
  return optax.cosine_decay_schedule(1.0, 1, alpha=end_fraction)


def poly(power: float, end_fraction: float) -> optax.Schedule:
  """Decay as (1 - progress)**power from 1 to `end_fraction` (Liu, Rabinovich and Berg 2016, arXiv 1506.04579)."""
  return optax.polynomial_schedule(1.0, end_fraction, power, 1)


def inverse_sqrt(warmup_steps: int, width: int = 0) -> Schedule:
  """Warm up linearly, then decay with the inverse square root of the number of the update (1 for the first).

  Args:
    warmup_steps: number of the update at which both parts meet; at least 1.
    width: with a width, the paper's own scale width**-0.5 * min(t**-0.5, t * warmup**-1.5), in which the peak
      depends on the warm-up; without (0), the factor is 1 at the peak.
  """

  def factor(step: int | Array) -> Array:
    t = jnp.asarray(step, jnp.float32) + 1.0
    shape = jnp.minimum(t**-0.5, t * warmup_steps**-1.5)
    return shape * (width**-0.5 if width else warmup_steps**0.5)

  return factor


def slanted_triangular(total_steps: int, cut_fraction: float, ratio: float, min_cut: int = 1) -> Schedule:
  """ULMFiT's schedule: up from 1/ratio to 1 over `cut_fraction` of the updates, then down to 1/ratio.

  Args:
    total_steps: updates of the triangle.
    cut_fraction: fraction of them until the peak.
    ratio: peak over lowest factor.
    min_cut: minimum number of updates until the peak. With 0, a peak at the first update leaves all others at 1/ratio.
  """
  cut = max(math.floor(total_steps * cut_fraction), min_cut)

  def factor(step: int | Array) -> Array:
    t = jnp.asarray(step, jnp.float32)
    down = 1.0 - (t - cut) / max(cut * (1.0 / cut_fraction - 1.0), 1.0)
    p = jnp.where(t < cut, t / max(cut, 1), jnp.maximum(down, 0.0))
    return (1.0 + p * (ratio - 1.0)) / ratio

  return factor


def inverse_time(decrease: float) -> Schedule:
  """Return 1 / (1 + r t) after t updates; r is `decrease`."""
  return lambda step: 1.0 / (1.0 + decrease * jnp.asarray(step, jnp.float32))


def step_decay(steps_per_epoch: int, after_epochs: int, divisor: float) -> Schedule:
  """Hold 1 for `after_epochs` epochs, then divide by `divisor` at the start of each epoch."""

  def factor(step: int | Array) -> Array:
    epoch = jnp.floor(jnp.asarray(step, jnp.float32) / steps_per_epoch)
    return float(divisor) ** -jnp.maximum(epoch + 1.0 - after_epochs, 0.0)

  return factor


def milestones(steps_per_epoch: int, epochs: Sequence[float], divisor: float) -> Schedule:
  """Start at 1 and divide by `divisor` after each number in `epochs`."""
  bounds = [round(e * steps_per_epoch) for e in epochs]

  def factor(step: int | Array) -> Array:
    passed = sum((jnp.asarray(step) >= b).astype(jnp.float32) for b in bounds)
    return float(divisor) ** -jnp.asarray(passed, jnp.float32)

  return factor


@dataclasses.dataclass(frozen=True)
class Plateau:
  """State between validations of a learning rate that is reduced on a plateau; saved as JSON with a checkpoint.

  Attributes:
    best: best score so far, None before the first; lower is better.
    bad: validations since then.
    scale: current factor of the scheduled rate.
    reductions: reductions so far.
  """

  best: float | None = None
  bad: int = 0
  scale: float = 1.0
  reductions: int = 0

  def observe(
    self,
    score: float,
    *,
    patience: int,
    factor: float,
    min_scale: float,
    threshold: float = 0.0,
    ties: str = 'earlier',
  ) -> Plateau:
    """Return the state after a validation; `scale` is multiplied by `factor` after patience + 1 bad ones in a row.

    Args:
      score: score of the validation, lower is better.
      patience: bad validations in a row that change nothing.
      factor: factor of a reduction.
      min_scale: minimum of `scale`.
      threshold: fraction of the best score by which a better one differs from it.
      ties: 'later' if a score equal to the best is no bad one, else 'earlier'.
    """
    bound = math.inf if self.best is None else self.best - threshold * abs(self.best)
    if score < bound or score == bound and ties == 'later' and self.best is not None:
      return dataclasses.replace(self, best=score, bad=0)
    if self.bad + 1 <= patience:
      return dataclasses.replace(self, bad=self.bad + 1)
    scale = max(self.scale * factor, min_scale)
    return dataclasses.replace(self, bad=0, scale=scale, reductions=self.reductions + 1)
