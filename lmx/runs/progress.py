"""Training progress: the state that determines schedule, stopping and the best checkpoint."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from lmx.config import schema
from lmx.optim import averaging, build, schedules

Meta = dict[str, Any]


@dataclasses.dataclass
class Progress:
  """State of the training loop besides the parameters; saved as JSON with every checkpoint.

  Attributes:
    best: loss of the best validation so far, None before the first.
    best_score: its score: the loss, or what `train.best_by` names; lower is better.
    best_step: updates made before it.
    since_best: validations since then.
    scores: scores of the last validations, None for one that is not finite; empty unless `train.patience_form` is
      'recent'.
    plateau: state of the schedule 'plateau'.
    skipped: updates skipped because the loss was not finite.
    seconds: training time of all sessions.
    losses: validation losses until NT-ASGD's condition held; empty without `optim.asgd`.
    trigger: updates made when it held: where the averaging began, or ('start') the run ended; None before.
  """

  best: float | None = None
  best_score: float | None = None
  best_step: int | None = None
  since_best: int = 0
  scores: list[float | None] = dataclasses.field(default_factory=list)
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

  def improves(self, score: float, ties: str) -> bool:
    """Return whether a validation with this score is the best so far; see `train.ties`."""
    if self.best_score is None or not math.isfinite(score):
      return math.isfinite(score)
    return score < self.best_score or ties == 'later' and score == self.best_score

  def observe(
    self, loss: float, train: schema.Train, optim: build.Config, done: int, score: float | None = None
  ) -> None:
    """Record a validation after `done` updates: its loss, and its score if that differs."""
    if optim.asgd != 'off' and self.trigger is None:
      self.trigger = done if averaging.is_triggered(self.losses, loss, optim.nonmono) else None
      self.losses.append(loss)
    score = loss if score is None else score
    self.since_best += 1
    if self.improves(score, train.ties):
      self.best, self.best_score, self.best_step, self.since_best = loss, score, done, 0
    if train.patience_form == 'recent':
      self.scores = [*self.scores, score if math.isfinite(score) else None][-train.patience - 2 :]
    if optim.schedule == 'plateau':
      followed = loss if optim.plateau_by == 'loss' else score
      self.plateau = build.plateau(optim, self.plateau, followed, train.ties)

  def is_finished(self, done: int, total_steps: int, train: schema.Train, optim: build.Config) -> bool:
    """Return True if no update is left after `done`, or the validations have ended the run.

    See `end_reason`, and `optim.asgd` = 'start', whose fine-tuning ends at its trigger.
    """
    fine_tuned = optim.asgd == 'start' and self.trigger is not None
    return done >= total_steps or fine_tuned or bool(self.end_reason(train, optim, ''))

  def end_reason(self, train: schema.Train, optim: build.Config, name: str) -> str:
    """Return why the validations end the run before its last update; '' if they do not.

    Args:
      train: the `train` section.
      optim: the `optim` section.
      name: name of the score.
    """
    patience, reductions = train.patience, self.plateau.reductions
    if patience and train.patience_form == 'recent':
      if len(self.scores) == patience + 2 and self._is_worst_of(patience):
        return f'{name} is no better than in each of the {patience} validations before (train.patience={patience})'
    elif 0 < patience <= self.since_best:
      return f'the last {self.since_best} validations did not improve {name} (train.patience={patience})'
    if 0 < optim.max_reductions < reductions:
      return f'{reductions} reductions of the learning rate (optim.max_reductions={optim.max_reductions})'
    rate = optim.lr * self.plateau.scale
    if reductions and rate < optim.stop_lr:
      return f'the learning rate {rate:.3g} is below optim.stop_lr={optim.stop_lr:g}'
    return ''

  def _is_worst_of(self, count: int) -> bool:
    """Return whether the newest score is no better than each of the `count` before it."""
    *before, newest = [math.inf if score is None else score for score in self.scores[-count - 1 :]]
    return all(newest >= score for score in before)
