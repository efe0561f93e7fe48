"""Training progress: the state that determines schedule, stopping and the best checkpoint."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from lmx.optim import averaging, build, schedules

Meta = dict[str, Any]


@dataclasses.dataclass
class Progress:
  """State of the training loop besides the parameters; saved as JSON with every checkpoint.

  Attributes:
    best: loss of the best validation so far, None before the first.
    best_score: its score: the loss, or what `train.best_by` names; lower is better.
    since_best: validations since then.
    plateau: state of the schedule 'plateau'.
    skipped: updates skipped because the loss was not finite.
    seconds: training time of all sessions.
    losses: validation losses until NT-ASGD's condition held; empty without `optim.asgd`.
    trigger: updates made when it held: where the averaging began, or ('start') the run ended; None before.
  """

  best: float | None = None
  best_score: float | None = None
  since_best: int = 0
  plateau: schedules.Plateau = dataclasses.field(default_factory=schedules.Plateau)
  skipped: int = 0
  seconds: float = 0.0
  losses: list[float] = dataclasses.field(default_factory=list)
  trigger: int | None = None

  @classmethod
  def from_dict(cls, meta: Meta) -> Progress:
    """Return the progress saved with a checkpoint."""
    best = meta['best'] if math.isfinite(meta['best'] or 0.0) else None  # earlier versions saved NaN
    score = meta.get('best_score', best)  # earlier versions saved only the loss
    return cls(**{**meta, 'best': best, 'best_score': score, 'plateau': schedules.Plateau(**meta['plateau'])})

  def observe(self, loss: float, optim: build.Config, done: int, score: float | None = None) -> None:
    """Record a validation after `done` updates: its loss, and its score if that differs."""
    if optim.asgd != 'off' and self.trigger is None:
      self.trigger = done if averaging.is_triggered(self.losses, loss, optim.nonmono) else None
      self.losses.append(loss)
    score = loss if score is None else score
    better = math.isfinite(score) and (self.best_score is None or score < self.best_score)
    self.since_best += 1
    if better:
      self.best, self.best_score, self.since_best = loss, score, 0
    if optim.schedule == 'plateau':
      self.plateau = build.plateau(optim, self.plateau, loss)

  def is_finished(self, done: int, total_steps: int, patience: int, optim: build.Config) -> bool:
    """Return True if no update is left after `done`, or validations have stopped improving.

    `train.patience` decides the latter, or `optim.asgd` = 'start', whose fine-tuning ends at its trigger.
    """
    fine_tuned = optim.asgd == 'start' and self.trigger is not None
    return done >= total_steps or 0 < patience <= self.since_best or fine_tuned
