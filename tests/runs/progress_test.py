"""Best losses and the end of a training."""

from __future__ import annotations

import dataclasses
import json

import numpy as np

from lmx.config.schema import Train
from lmx.optim import build, schedules
from lmx.runs.progress import Progress

TRAIN = Train(steps=4)


def test_best_loss_of_nan_in_an_older_checkpoint_is_none():
  meta = dataclasses.asdict(Progress(best=float('nan')))
  assert Progress.from_dict(meta).best is None
  assert Progress.from_dict(meta | {'best': 2.0}).best == 2.0


def test_loss_of_nan_is_never_the_best():
  progress, optim = Progress(), build.Config()
  for loss, best, since in ((float('nan'), None, 1), (3.0, 3.0, 0), (float('nan'), 3.0, 1)):
    progress.observe(loss, TRAIN, optim, 1)
    assert (progress.best, progress.since_best) == (best, since)


def test_score_decides_in_place_of_the_loss():
  progress, optim = Progress(), build.Config()
  for loss, score, best, since in ((3.0, -0.5, 3.0, 0), (2.0, -0.4, 3.0, 1), (9.0, -0.6, 9.0, 0), (1.0, -0.6, 9.0, 1)):
    progress.observe(loss, TRAIN, optim, 1, score)
    assert (progress.best, progress.since_best) == (best, since)
  again = Progress.from_dict(dataclasses.asdict(progress))
  assert again == progress and again.best_score == -0.6
  old = {name: value for name, value in dataclasses.asdict(progress).items() if name != 'best_score'}
  assert Progress.from_dict(old).best_score == 9.0  # an earlier version ranked by the loss


def test_training_ends_by_its_updates_its_patience_or_its_trigger():
  fine_tuned, patient = build.Config(asgd='start'), Train(steps=4, patience=3)
  assert not Progress(since_best=2).is_finished(3, 4, patient, build.Config())
  assert Progress().is_finished(4, 4, TRAIN, build.Config())
  assert Progress(since_best=3).is_finished(3, 4, patient, build.Config())
  assert Progress(trigger=2).is_finished(3, 4, TRAIN, fine_tuned) and not Progress().is_finished(
    3, 4, TRAIN, fine_tuned
  )


def ended(scores, train, optim):
  """Observe scores until the run ends; return the validations made, and the progress through JSON after each."""
  progress = Progress()
  for i, score in enumerate(scores, 1):
    progress.observe(9.0, train, optim, i, score)
    progress = Progress.from_dict(json.loads(json.dumps(dataclasses.asdict(progress))))
    if progress.is_finished(i, 99, train, optim):
      return i, progress
  return None, progress


def test_recent_patience_is_that_of_glue_baselines():
  """`_check_history` of src/trainer.py: the score is no better than all of the last six, from the seventh on."""
  rng = np.random.default_rng(0)
  train = Train(steps=99, patience=5, patience_form='recent')
  for _ in range(50):
    metrics = rng.integers(0, 12, 40).tolist()
    stops = [n for n in range(1, 41) if n > 6 and min(metrics[n - 6 : n]) >= metrics[n - 1]]
    assert ended([-m for m in metrics], train, build.Config())[0] == (stops[0] if stops else None)
  undefined = [-3.0, -2.0, -2.0, -2.0, -2.0, -2.0, float('nan')]
  assert ended(undefined, train, build.Config())[0] == 7  # an undefined score is no better than any


def test_plateau_of_esim_counts_ties_as_best_and_ends_after_more_than_seven_halvings():
  """main.py, lines 900 to 930: the error is compared with the least so far, the rate halved at each higher one."""
  optim = build.Config(schedule='plateau', lr=4e-4, factor=0.5, restore_best=True, max_reductions=7)
  train, rng = Train(steps=99, ties='later'), np.random.default_rng(1)
  for _ in range(20):
    errors = rng.integers(0, 9, 40).tolist()
    best, halvings, stop = None, 0, None
    for n, error in enumerate(errors, 1):
      if error <= min(errors[:n]):
        best = n
      else:
        halvings += 1
      if halvings > 7:
        stop = n
        break
    found, progress = ended([float(error) for error in errors], train, optim)
    assert (found, progress.best_step, progress.plateau.reductions) == (stop, best, halvings)
    assert progress.plateau.scale == 0.5**halvings


def test_rate_below_its_limit_ends_the_run():
  optim = build.Config(schedule='plateau', lr=1e-4, factor=0.2, stop_lr=1e-6)
  assert ended([1.0, 2.0, 2.0, 0.5, 2.0], TRAIN, optim)[0] == 5  # 1e-4 x 0.2 ** 3 < 1e-6
  reason = Progress(plateau=schedules.Plateau(scale=0.008, reductions=3)).end_reason(TRAIN, optim, 'f1')
  assert reason == 'the learning rate 8e-07 is below optim.stop_lr=1e-06'


def test_plateau_follows_the_score_or_as_before_the_loss():
  for follows, reductions in (('score', 0), ('loss', 2)):
    optim, progress = build.Config(schedule='plateau', plateau_by=follows), Progress()
    for i, (loss, score) in enumerate(((1.0, -0.1), (2.0, -0.2), (3.0, -0.3))):
      progress.observe(loss, TRAIN, optim, i, score)
    assert progress.plateau.reductions == reductions
