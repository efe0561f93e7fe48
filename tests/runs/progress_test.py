"""Best losses and the end of a training."""

from __future__ import annotations

import dataclasses

from lmx.optim import build
from lmx.runs.progress import Progress


def test_best_loss_of_nan_in_an_older_checkpoint_is_none():
  meta = dataclasses.asdict(Progress(best=float('nan')))
  assert Progress.from_dict(meta).best is None
  assert Progress.from_dict(meta | {'best': 2.0}).best == 2.0


def test_loss_of_nan_is_never_the_best():
  progress, optim = Progress(), build.Config()
  for loss, best, since in ((float('nan'), None, 1), (3.0, 3.0, 0), (float('nan'), 3.0, 1)):
    progress.observe(loss, optim, 1)
    assert (progress.best, progress.since_best) == (best, since)


def test_score_decides_in_place_of_the_loss():
  progress, optim = Progress(), build.Config()
  for loss, score, best, since in ((3.0, -0.5, 3.0, 0), (2.0, -0.4, 3.0, 1), (9.0, -0.6, 9.0, 0), (1.0, -0.6, 9.0, 1)):
    progress.observe(loss, optim, 1, score)
    assert (progress.best, progress.since_best) == (best, since)
  again = Progress.from_dict(dataclasses.asdict(progress))
  assert again == progress and again.best_score == -0.6
  old = {name: value for name, value in dataclasses.asdict(progress).items() if name != 'best_score'}
  assert Progress.from_dict(old).best_score == 9.0  # an earlier version ranked by the loss


def test_training_ends_by_its_updates_its_patience_or_its_trigger():
  fine_tuned = build.Config(asgd='start')
  assert not Progress(since_best=2).is_finished(3, 4, 3, build.Config())
  assert Progress().is_finished(4, 4, 0, build.Config())
  assert Progress(since_best=3).is_finished(3, 4, 3, build.Config())
  assert Progress(trigger=2).is_finished(3, 4, 0, fine_tuned) and not Progress().is_finished(3, 4, 0, fine_tuned)
